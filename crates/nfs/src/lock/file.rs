//! The locks of one file: ranges of bytes, waiters, and share reservations.
//!
//! Invariants:
//! - Locks of one owner are disjoint, and those of one kind do not touch: they are one.
//! - Locks of different owners that overlap are both shared.
//! - A waiter conflicts with a holder, or queues behind another waiter. So a change can only serve
//!   those that wait for a part of the changed range, or whose owner's locks changed: no other
//!   waiter is looked at. That, and the limits, keep a call's time short whatever clients have set
//!   up.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Owner, Range};
use crate::limits::{FILE_LOCKS_MAX, FILE_WAITERS_MAX};

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub range: Range,
    pub exclusive: bool,
    pub owner: Arc<Owner>,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub range: Range,
    pub exclusive: bool,
    pub owner: Arc<Owner>,
    /// Our address as the client knows it: the client believes only calls from there.
    pub via: Option<IpAddr>,
}

/// A share reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub owner: Arc<Owner>,
    pub access: u32,
    pub deny: u32,
}

/// A change of the locks of an owner, in a range.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub range: Range,
    pub owner: Arc<Owner>,
}

impl Change {
    fn concerns(&self, waiter: &Waiter) -> bool {
        self.range.overlaps(&waiter.range) || *self.owner == *waiter.owner
    }
}

/// A waiter that has its lock now.
#[derive(Debug)]
pub(super) struct Served {
    pub waiter: Waiter,
    /// Numbers of locks and waiters of the file before and after.
    pub before: usize,
    pub after: usize,
}

#[derive(Debug, Default)]
pub(super) struct FileLocks {
    pub held: Vec<Held>,
    pub waiting: VecDeque<Waiter>,
    pub shares: Vec<Share>,
}

impl FileLocks {
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty() && self.shares.is_empty()
    }

    /// Whether there is room for `more` locks or reservations.
    pub fn fits(&self, more: usize) -> bool {
        self.held.len() + self.shares.len() + more <= FILE_LOCKS_MAX
    }

    /// Whether there is room for one more waiter.
    pub fn fits_waiter(&self) -> bool {
        self.waiting.len() < FILE_WAITERS_MAX
    }

    /// A lock of another owner that conflicts.
    pub fn conflict(&self, owner: &Owner, range: &Range, exclusive: bool) -> Option<&Held> {
        self.held.iter().find(|held| {
            held.range.overlaps(range) && (held.exclusive || exclusive) && *held.owner != *owner
        })
    }

    /// Gives `owner` a lock of `range` (`Some(exclusive)`) in place of its locks there, or removes
    /// them (`None`).
    pub fn set(&mut self, owner: &Arc<Owner>, range: Range, kind: Option<bool>) {
        let mut whole = range;
        let mut rests = Vec::new();
        self.held.retain(|held| {
            if held.owner != *owner {
                return true;
            }
            if kind == Some(held.exclusive) && held.range.touches(&range) {
                whole.first = whole.first.min(held.range.first);
                whole.last = whole.last.max(held.range.last);
                return false;
            }
            if !held.range.overlaps(&range) {
                return true;
            }
            let before = range.first.checked_sub(1).filter(|last| *last >= held.range.first);
            let behind = range.last.checked_add(1).filter(|first| *first <= held.range.last);
            let rest = |range| Held { range, exclusive: held.exclusive, owner: owner.clone() };
            rests.extend(before.map(|last| rest(Range { last, ..held.range })));
            rests.extend(behind.map(|first| rest(Range { first, ..held.range })));
            false
        });
        self.held.extend(rests);
        let owner = owner.clone();
        self.held.extend(kind.map(|exclusive| Held { range: whole, exclusive, owner }));
    }

    /// Whether removing `range` from its owner splits one lock into two.
    pub fn would_split(&self, owner: &Owner, range: &Range) -> bool {
        self.held.iter().any(|held| {
            held.range.first < range.first && range.last < held.range.last && *held.owner == *owner
        })
    }

    /// Whether a waiter before place `place` of the queue waits for a conflicting lock. An owner
    /// that holds something already does not queue: the waiters before it may wait for it.
    pub fn must_queue(&self, owner: &Owner, range: &Range, exclusive: bool, place: usize) -> bool {
        let ahead = self.waiting.iter().take(place).any(|waiter| {
            waiter.range.overlaps(range)
                && (waiter.exclusive || exclusive)
                && *waiter.owner != *owner
        });
        ahead && !self.holds(owner)
    }

    fn holds(&self, owner: &Owner) -> bool {
        self.held.iter().any(|held| *held.owner == *owner)
    }

    /// Gives their locks to all waiters that `change` allows, in their order.
    pub fn serve(&mut self, change: Change) -> Vec<Served> {
        let (mut changes, mut served, mut place) = (vec![change], Vec::new(), 0);
        while let Some(waiter) = self.waiting.get(place) {
            let Waiter { range, exclusive, owner, .. } = waiter;
            let is_served = changes.iter().any(|change| change.concerns(waiter))
                && self.conflict(owner, range, *exclusive).is_none()
                && !self.must_queue(owner, range, *exclusive, place);
            if !is_served {
                place += 1;
                continue;
            }
            let before = self.held.len() + self.waiting.len();
            let Some(waiter) = self.waiting.remove(place) else { break };
            let Waiter { range, exclusive, owner, .. } = &waiter;
            // Earlier waiters may have their turn now: further requests of an owner that holds
            // something do not queue, and an exclusive lock may have become a shared one.
            let was_more = |held: &Held| held.exclusive && *held.owner == **owner;
            if !self.holds(owner) || !exclusive && self.held.iter().any(was_more) {
                place = 0;
            }
            self.set(owner, *range, Some(*exclusive));
            changes.push(Change { range: *range, owner: owner.clone() });
            let after = self.held.len() + self.waiting.len();
            served.push(Served { waiter, before, after });
        }
        served
    }

    /// The place of this very request in the queue.
    pub fn place_of(&self, owner: &Owner, range: &Range, exclusive: bool) -> Option<usize> {
        self.waiting.iter().position(|waiter| {
            waiter.range == *range && waiter.exclusive == exclusive && *waiter.owner == *owner
        })
    }

    /// A share reservation of another owner that conflicts.
    pub fn share_conflict(&self, owner: &Owner, access: u32, deny: u32) -> bool {
        self.shares.iter().any(|share| {
            *share.owner != *owner && (share.access & deny != 0 || share.deny & access != 0)
        })
    }
}
