//! The locks of all files, counted, and the grants that are on their way to those who waited.
//!
//! Invariants:
//! - `clients` and `total` count what is in `files`; both stay within the limits, also when an
//!   UNLOCK would split a lock.
//! - A grant that is on its way is a lock that is held. It is settled by the first of: the client's
//!   answer, the client's own word (LOCK, UNLOCK, CANCEL of it), the client's end.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use aquifer_files::FileHandle;

use super::file::{FileLocks, Held, Share, Waiter};
use super::{Client, LockKind, LockState, LockView, Owner, Range};
use crate::limits::{CLIENT_LOCKS_MAX, LOCKS_MAX};

/// A lock that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub owner: Arc<Owner>,
    pub range: Range,
    pub exclusive: bool,
    /// Our address as the client knows it.
    pub via: Option<IpAddr>,
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    Granted,
    /// This is in the way.
    Denied(Blocker),
    /// It waits, and will be told.
    Blocked,
    /// There are too many locks.
    NoLocks,
}

/// The lock that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocker {
    pub owner: Arc<Owner>,
    pub range: Range,
    pub exclusive: bool,
}

/// A lock that is held for somebody who is to be told.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub file: FileHandle,
    pub waiter: Waiter,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    files: HashMap<FileHandle, FileLocks>,
    clients: HashMap<Arc<Client>, usize>,
    total: usize,
    grants: BTreeMap<u64, Grant>,
    last_grant: u64,
    /// Grants that nobody carries yet.
    untold: VecDeque<u64>,
}

impl Table {
    /// What would keep `ask` from being granted.
    pub fn test(&self, file: FileHandle, ask: &Ask) -> Option<Blocker> {
        let held = self.files.get(&file)?.conflict(&ask.owner, &ask.range, ask.exclusive)?;
        let Held { owner, range, exclusive } = held.clone();
        Some(Blocker { owner, range, exclusive })
    }

    /// Grants a lock, or lets it wait if it may.
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
                // Asked again: clients do, in case that the grant was lost.
                Some(_) => Locked::Blocked,
                None if fits_one => {
                    let (owner, range, exclusive) = (owner.clone(), *range, *exclusive);
                    locks.waiting.push_back(Waiter { range, exclusive, owner, via: *via });
                    self.count(&ask.owner.client, 1, 0);
                    Locked::Blocked
                }
                None => Locked::NoLocks,
            }
        } else if fits_two {
            if let Some(place) = place {
                locks.waiting.remove(place);
                self.count(&owner.client, 0, 1);
            }
            self.settle(file, owner, range);
            self.set(file, owner, *range, Some(*exclusive));
            Locked::Granted
        } else {
            Locked::NoLocks
        };
        self.tidy(file);
        outcome
    }

    /// Takes a range away from its owner. `false` if that would make too many locks of one.
    pub fn unlock(&mut self, file: FileHandle, owner: &Arc<Owner>, range: Range) -> bool {
        let splits = self.files.get(&file).is_some_and(|locks| locks.would_split(owner, &range));
        if splits && !self.fits(&owner.client, 1) {
            return false;
        }
        // Also where nothing is held: a grant may be on its way.
        self.settle(file, owner, &range);
        self.set(file, owner, range, None);
        self.tidy(file);
        true
    }

    /// Ends the wait for a lock, or gives it back if it was granted meanwhile and nobody knows.
    /// Whether there was such a thing.
    pub fn cancel(&mut self, file: FileHandle, ask: &Ask) -> bool {
        let Ask { owner, range, exclusive, .. } = ask;
        let Some(locks) = self.files.get_mut(&file) else { return false };
        if let Some(place) = locks.place_of(owner, range, *exclusive) {
            locks.waiting.remove(place);
            self.count(&owner.client, 0, 1);
            self.tidy(file);
            return true;
        }
        let is_it = |grant: &&u64| {
            self.grants.get(grant).is_some_and(|Grant { file: of, waiter }| {
                *of == file && waiter.owner == *owner && waiter.range == *range
            })
        };
        let granted = self.grants.keys().find(is_it).copied();
        granted.is_some_and(|grant| self.give_back(grant))
    }

    /// The client knows of its grant, or does not want it.
    pub fn answered(&mut self, grant: u64, accepted: bool) {
        match accepted {
            true => drop(self.grants.remove(&grant)),
            false => drop(self.give_back(grant)),
        }
    }

    /// Reserves. `Denied` carries nobody: NLM does not say who is in the way.
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
        } else if fits {
            locks.shares.push(Share { owner: owner.clone(), access, deny });
            self.count(&owner.client, 1, 0);
            Shared::Granted
        } else {
            Shared::NoLocks
        };
        self.tidy(file);
        outcome
    }

    /// Gives a reservation back.
    pub fn unshare(&mut self, file: FileHandle, owner: &Owner) {
        let Some(locks) = self.files.get_mut(&file) else { return };
        let before = locks.shares.len();
        locks.shares.retain(|share| *share.owner != *owner);
        let gone = before - locks.shares.len();
        self.count(&owner.client, 0, gone);
        self.tidy(file);
    }

    /// Ends everything of the clients that `gone` names. How many locks that were.
    pub fn free(&mut self, gone: impl Fn(&Client) -> bool) -> usize {
        // By name, not by what is counted: a grant may be on its way of which nothing is left.
        let is_gone = |owner: &Owner| gone(&owner.client);
        self.grants.retain(|_, grant| !is_gone(&grant.waiter.owner));
        let mut touched = Vec::new();
        for (file, locks) in &mut self.files {
            let before = locks.held.len() + locks.waiting.len() + locks.shares.len();
            locks.held.retain(|held| !is_gone(&held.owner));
            locks.waiting.retain(|waiter| !is_gone(&waiter.owner));
            locks.shares.retain(|share| !is_gone(&share.owner));
            if before > locks.held.len() + locks.waiting.len() + locks.shares.len() {
                touched.push(*file);
            }
        }
        let mut freed = 0;
        self.clients.retain(|client, count| {
            let is_gone = gone(client);
            freed += if is_gone { *count } else { 0 };
            !is_gone
        });
        self.total = self.total.saturating_sub(freed);
        for file in touched {
            self.tidy(file);
        }
        freed
    }

    /// The file is no more, and its locks with it.
    pub fn forget(&mut self, file: FileHandle) {
        let Some(locks) = self.files.remove(&file) else { return };
        self.grants.retain(|_, grant| grant.file != file);
        let owners = locks.held.iter().map(|held| &held.owner);
        let owners = owners.chain(locks.waiting.iter().map(|waiter| &waiter.owner));
        for owner in owners.chain(locks.shares.iter().map(|share| &share.owner)) {
            self.count(&owner.client, 0, 1);
        }
    }

    /// Clients that have anything here.
    pub fn clients(&self) -> impl Iterator<Item = &Arc<Client>> {
        self.clients.keys()
    }

    pub fn has_client(&self, client: &Client) -> bool {
        self.clients.contains_key(client)
    }

    /// A grant that is to be told, once.
    pub fn next_untold(&mut self) -> Option<(u64, Grant)> {
        while let Some(grant) = self.untold.pop_front() {
            if let Some(found) = self.grants.get(&grant) {
                return Some((grant, found.clone()));
            }
        }
        None
    }

    /// Whether there are grants that nobody carries yet.
    pub fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Whether a grant is still to be told.
    pub fn is_on_its_way(&self, grant: u64) -> bool {
        self.grants.contains_key(&grant)
    }

    /// Everything, for people.
    pub fn list(&self) -> Vec<LockView> {
        let granting: HashSet<(FileHandle, &Owner)> =
            self.grants.values().map(|grant| (grant.file, &*grant.waiter.owner)).collect();
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

    /// Gives back what a grant gave. Whether there is such a grant.
    fn give_back(&mut self, grant: u64) -> bool {
        let Some(Grant { file, waiter }) = self.grants.remove(&grant) else { return false };
        self.set(file, &waiter.owner, waiter.range, None);
        self.tidy(file);
        true
    }

    /// The owner has spoken of this range, so it needs not be told of grants in it.
    fn settle(&mut self, file: FileHandle, owner: &Owner, range: &Range) {
        self.grants.retain(|_, grant| {
            let waiter = &grant.waiter;
            grant.file != file || *waiter.owner != *owner || !waiter.range.overlaps(range)
        });
    }

    fn set(&mut self, file: FileHandle, owner: &Arc<Owner>, range: Range, kind: Option<bool>) {
        let Some(locks) = self.files.get_mut(&file) else { return };
        let before = locks.held.len();
        locks.set(owner, range, kind);
        let after = locks.held.len();
        self.count(&owner.client, after, before);
    }

    /// Serves those whose turn it is, and forgets a file without locks.
    fn tidy(&mut self, file: FileHandle) {
        let Some(locks) = self.files.get_mut(&file) else { return };
        let mut served = Vec::new();
        loop {
            let before = locks.held.len() + locks.waiting.len();
            let Some(waiter) = locks.next_served() else { break };
            served.push((before, locks.held.len() + locks.waiting.len(), waiter));
        }
        if locks.is_empty() {
            self.files.remove(&file);
        }
        for (before, after, waiter) in served {
            self.count(&waiter.owner.client, after, before);
            self.last_grant += 1;
            self.grants.insert(self.last_grant, Grant { file, waiter });
            self.untold.push_back(self.last_grant);
        }
        if self.untold.len() > UNTOLD_MAX {
            self.untold.retain(|grant| self.grants.contains_key(grant));
        }
    }

    fn fits(&self, client: &Client, more: usize) -> bool {
        let own = self.clients.get(client).copied().unwrap_or(0);
        self.total + more <= LOCKS_MAX && own + more <= CLIENT_LOCKS_MAX
    }

    fn count(&mut self, client: &Arc<Client>, more: usize, less: usize) {
        self.total = (self.total + more).saturating_sub(less);
        let own = self.clients.entry(client.clone()).or_default();
        *own = (*own + more).saturating_sub(less);
        if *own == 0 {
            self.clients.remove(client);
        }
    }
}

/// What comes of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    Granted,
    Denied,
    NoLocks,
}

/// Grants, some of them settled, after which the settled ones are looked for.
const UNTOLD_MAX: usize = 1024;
