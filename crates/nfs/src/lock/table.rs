//! The locks of all files, counted.
//!
//! Invariants:
//! - `clients`, `sites` and `total` count the content of `files`. All stay within the limits, even
//!   when an UNLOCK would split a lock.
//! - Names cost nothing to make up, addresses do. The limit of one address holds for all of its
//!   names together, and the last quarter of the table is for addresses that have little.
//! - A grant on its way is a lock that is held.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use aquifer_files::{FileHandle, Guid};

use super::file::{Change, FileLocks, Held, Served, Share, Waiter};
use super::grants::{Grant, Grants};
use super::{Client, LockKind, LockState, LockView, Owner, Range};
use crate::limits::{LOCKS_MAX, LOCKS_RESERVED, SITE_LOCKS_MAX, SITE_LOCKS_SMALL, SITE_NAMES_MAX};
use aquifer_files::site;

/// A request for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub owner: Arc<Owner>,
    pub range: Range,
    pub exclusive: bool,
    /// Our address as the client knows it.
    pub via: Option<IpAddr>,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    Granted,
    /// Another lock conflicts.
    Denied(Blocker),
    /// The request waits, and the server will call the client.
    Blocked,
    /// There are too many locks.
    NoLocks,
    /// The file is about to have other content.
    Later,
}

/// The conflicting lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocker {
    pub owner: Arc<Owner>,
    pub range: Range,
    pub exclusive: bool,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    files: HashMap<FileHandle, FileLocks>,
    clients: HashMap<Arc<Client>, usize>,
    /// By site: an address, or the network of addresses that one machine may have.
    sites: HashMap<IpAddr, Site>,
    total: usize,
    pub grants: Grants,
}

/// Counts of what one site holds and waits for.
#[derive(Debug, Default)]
struct Site {
    locks: usize,
    names: usize,
}

impl Table {
    /// The lock that conflicts with `ask`, if any.
    pub fn test(&self, file: FileHandle, ask: &Ask) -> Option<Blocker> {
        let held = self.files.get(&file)?.conflict(&ask.owner, &ask.range, ask.exclusive)?;
        let Held { owner, range, exclusive } = held.clone();
        Some(Blocker { owner, range, exclusive })
    }

    /// Grants a lock, or queues the request if it may wait.
    pub fn lock(&mut self, file: FileHandle, ask: &Ask, may_wait: bool) -> Locked {
        let Ask { owner, range, exclusive, via } = ask;
        let (fits_one, fits_two) = (self.fits(&owner.client, 1), self.fits(&owner.client, 2));
        let locks = self.files.entry(file).or_default();
        let place = locks.place_of(owner, range, *exclusive);
        let blocker = locks.conflict(owner, range, *exclusive).cloned();
        let queues =
            || locks.must_queue(owner, range, *exclusive, place.unwrap_or(locks.waiting.len()));
        let outcome = if let (Some(held), false) = (&blocker, may_wait) {
            let Held { owner, range, exclusive } = held.clone();
            Locked::Denied(Blocker { owner, range, exclusive })
        } else if blocker.is_some() || may_wait && queues() {
            match place {
                // A repeated request: clients repeat it in case the grant was lost.
                Some(_) => Locked::Blocked,
                None if fits_one && locks.fits_waiter() => {
                    let (owner, range, exclusive) = (owner.clone(), *range, *exclusive);
                    locks.waiting.push_back(Waiter { range, exclusive, owner, via: *via });
                    self.count(&ask.owner.client, 1, 0);
                    Locked::Blocked
                }
                None => Locked::NoLocks,
            }
        } else if fits_two && locks.fits(2) {
            if let Some(place) = place {
                locks.waiting.remove(place);
                self.count(&owner.client, 0, 1);
            }
            self.grants.settle(file, owner, range);
            self.set(file, owner, *range, Some(*exclusive));
            Locked::Granted
        } else {
            Locked::NoLocks
        };
        match outcome {
            Locked::Granted => self.changed(file, owner, *range),
            _ => self.drop_empty(file),
        }
        outcome
    }

    /// Releases a range of its owner's locks. `false` if that would make too many locks of one.
    pub fn unlock(&mut self, file: FileHandle, owner: &Arc<Owner>, range: Range) -> bool {
        let splits = self.files.get(&file).filter(|locks| locks.would_split(owner, &range));
        if splits.is_some_and(|locks| !locks.fits(1) || !self.fits(&owner.client, 1)) {
            return false;
        }
        // Even if nothing is held: a grant may be on its way.
        self.grants.settle(file, owner, &range);
        self.set(file, owner, range, None);
        self.changed(file, owner, range);
        true
    }

    /// Ends the wait for a lock, or releases it if it was granted meanwhile without the client's
    /// knowledge. Returns whether there was either.
    pub fn cancel(&mut self, file: FileHandle, ask: &Ask) -> bool {
        let Ask { owner, range, exclusive, .. } = ask;
        let Some(locks) = self.files.get_mut(&file) else { return false };
        if let Some(place) = locks.place_of(owner, range, *exclusive) {
            locks.waiting.remove(place);
            self.count(&owner.client, 0, 1);
            self.changed(file, owner, *range);
            return true;
        }
        let is_it = |of: &Waiter| of.owner == *owner && of.range == *range;
        let granted = self.grants.of_file(file).find(|(_, of)| is_it(of)).map(|(grant, _)| grant);
        granted.is_some_and(|grant| self.give_back(grant))
    }

    /// The client knows of its grant, or does not want it.
    pub fn answered(&mut self, grant: u64, accepted: bool) {
        match accepted {
            true => drop(self.grants.remove(grant)),
            false => drop(self.give_back(grant)),
        }
    }

    /// Makes a share reservation. `Denied` names no holder: NLM does not report one.
    pub fn share(
        &mut self,
        file: FileHandle,
        owner: &Arc<Owner>,
        access: u32,
        deny: u32,
    ) -> Shared {
        let fits = self.fits(&owner.client, 1);
        let locks = self.files.entry(file).or_default();
        let own = locks.shares.iter().position(|share| share.owner == *owner);
        let outcome = if locks.share_conflict(owner, access, deny) {
            Shared::Denied
        } else if let Some(share) = own.and_then(|own| locks.shares.get_mut(own)) {
            (share.access, share.deny) = (access, deny);
            Shared::Granted
        } else if fits && locks.fits(1) {
            locks.shares.push(Share { owner: owner.clone(), access, deny });
            self.count(&owner.client, 1, 0);
            Shared::Granted
        } else {
            Shared::NoLocks
        };
        self.drop_empty(file);
        outcome
    }

    /// Releases a reservation.
    pub fn unshare(&mut self, file: FileHandle, owner: &Owner) {
        let Some(locks) = self.files.get_mut(&file) else { return };
        let before = locks.shares.len();
        locks.shares.retain(|share| *share.owner != *owner);
        let gone = before - locks.shares.len();
        self.drop_empty(file);
        if gone > 0 {
            self.count(&owner.client, 0, gone);
        }
    }

    /// Ends everything of the clients that `gone` names. Returns the number of locks.
    pub fn free(&mut self, gone: impl Fn(&Client) -> bool) -> usize {
        // By name, not by the counts: a grant may be on its way of which nothing is held.
        self.grants.end_of_owners(|owner| gone(&owner.client));
        let counted = self.clients.iter().filter(|(client, _)| gone(client));
        let counted: Vec<_> = counted.map(|(client, count)| (client.clone(), *count)).collect();
        if counted.is_empty() {
            return 0;
        }
        let mut touched = Vec::new();
        for (file, locks) in &mut self.files {
            let held = locks.held.iter().map(|held| &held.owner);
            let waiting = locks.waiting.iter().map(|waiter| &waiter.owner);
            let owners = held.chain(waiting).chain(locks.shares.iter().map(|share| &share.owner));
            let Some(owner) = owners.into_iter().find(|owner| gone(&owner.client)).cloned() else {
                continue;
            };
            locks.held.retain(|held| !gone(&held.owner.client));
            locks.waiting.retain(|waiter| !gone(&waiter.owner.client));
            locks.shares.retain(|share| !gone(&share.owner.client));
            touched.push((*file, owner));
        }
        for (client, count) in &counted {
            self.count(client, 0, *count);
        }
        for (file, owner) in touched {
            self.changed(file, &owner, Range::WHOLE);
        }
        counted.iter().map(|(_, count)| count).sum()
    }

    /// Removes a file that is gone, with its locks.
    pub fn forget(&mut self, file: FileHandle) {
        let Some(locks) = self.files.remove(&file) else { return };
        self.grants.end_of_file(file);
        let owners = locks.held.iter().map(|held| &held.owner);
        let owners = owners.chain(locks.waiting.iter().map(|waiter| &waiter.owner));
        for owner in owners.chain(locks.shares.iter().map(|share| &share.owner)) {
            self.count(&owner.client, 0, 1);
        }
    }

    /// Removes all files of file systems that are gone, with their locks. Returns the number of
    /// locks.
    pub fn forget_all(&mut self, is_gone: impl Fn(Guid) -> bool) -> usize {
        let before = self.total;
        let files: Vec<FileHandle> =
            self.files.keys().filter(|file| is_gone(file.fs_guid)).copied().collect();
        files.into_iter().for_each(|file| self.forget(file));
        before - self.total
    }

    /// Clients that have anything here.
    pub fn clients(&self) -> impl Iterator<Item = &Arc<Client>> {
        self.clients.keys()
    }

    /// Whether this address has anything here.
    pub fn knows(&self, address: IpAddr) -> bool {
        self.sites.contains_key(&site(address))
    }

    pub fn has_client(&self, client: &Client) -> bool {
        self.clients.contains_key(client)
    }

    /// How many locks and reservations a file has, and how many wait for one.
    pub fn count_on(&self, file: FileHandle) -> usize {
        let of = |locks: &FileLocks| locks.held.len() + locks.waiting.len() + locks.shares.len();
        self.files.get(&file).map_or(0, of)
    }

    /// Everything, for people.
    pub fn list(&self) -> Vec<LockView> {
        let granting = self.grants.owners();
        let mut list = Vec::new();
        let kind = |range, exclusive| match exclusive {
            true => LockKind::Exclusive(range),
            false => LockKind::Shared(range),
        };
        for (file, locks) in &self.files {
            let file = *file;
            list.extend(locks.held.iter().map(|held| LockView {
                file,
                owner: held.owner.clone(),
                kind: kind(held.range, held.exclusive),
                state: match granting.contains(&(file, &*held.owner)) {
                    true => LockState::Granting,
                    false => LockState::Held,
                },
            }));
            list.extend(locks.waiting.iter().map(|waiter| LockView {
                file,
                owner: waiter.owner.clone(),
                kind: kind(waiter.range, waiter.exclusive),
                state: LockState::Waiting,
            }));
            list.extend(locks.shares.iter().map(|share| LockView {
                file,
                owner: share.owner.clone(),
                kind: LockKind::Share { access: share.access, deny: share.deny },
                state: LockState::Held,
            }));
        }
        list
    }

    /// Releases the lock of a grant. Returns whether there is such a grant.
    fn give_back(&mut self, grant: u64) -> bool {
        let Some(Grant { file, waiter }) = self.grants.remove(grant) else { return false };
        self.set(file, &waiter.owner, waiter.range, None);
        self.changed(file, &waiter.owner, waiter.range);
        true
    }

    fn set(&mut self, file: FileHandle, owner: &Arc<Owner>, range: Range, kind: Option<bool>) {
        let Some(locks) = self.files.get_mut(&file) else { return };
        let before = locks.held.len();
        locks.set(owner, range, kind);
        let after = locks.held.len();
        self.count(&owner.client, after, before);
    }

    /// Serves the waiters that a change of an owner's locks in a range allows, and forgets a file
    /// without locks.
    fn changed(&mut self, file: FileHandle, owner: &Arc<Owner>, range: Range) {
        let Some(locks) = self.files.get_mut(&file) else { return };
        let served = locks.serve(Change { range, owner: owner.clone() });
        for Served { waiter, before, after } in served {
            self.count(&waiter.owner.client, after, before);
            self.grants.add(Grant { file, waiter });
        }
        self.drop_empty(file);
    }

    fn drop_empty(&mut self, file: FileHandle) {
        if self.files.get(&file).is_some_and(FileLocks::is_empty) {
            self.files.remove(&file);
        }
    }

    fn fits(&self, client: &Client, more: usize) -> bool {
        let site = self.sites.get(&site(client.address));
        let (own, names) = site.map_or((0, 0), |site| (site.locks, site.names));
        let reserved = if own + more <= SITE_LOCKS_SMALL { 0 } else { LOCKS_RESERVED };
        self.total + more <= LOCKS_MAX - reserved
            && own + more <= SITE_LOCKS_MAX
            && (names < SITE_NAMES_MAX || self.clients.contains_key(client))
    }

    fn count(&mut self, client: &Arc<Client>, more: usize, less: usize) {
        let own = self.clients.entry(client.clone()).or_default();
        let was_none = *own == 0;
        *own = (*own + more).saturating_sub(less);
        let is_none = *own == 0;
        if is_none {
            self.clients.remove(client);
        }
        self.total = (self.total + more).saturating_sub(less);
        let address = site(client.address);
        let site = self.sites.entry(address).or_default();
        site.locks = (site.locks + more).saturating_sub(less);
        site.names = (site.names + usize::from(was_none)).saturating_sub(usize::from(is_none));
        if site.locks == 0 {
            self.sites.remove(&address);
        }
    }
}

/// The result of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    Granted,
    Denied,
    NoLocks,
}
