//! The locks of one file: ranges of bytes, who waits for some, and share reservations.
//!
//! Invariants:
//! - Locks of one owner are disjoint, and those of one kind do not touch: they are one.
//! - Locks of different owners that overlap are both shared.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Owner, Range};

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub range: Range,
    pub exclusive: bool,
    pub owner: Arc<Owner>,
}

/// Somebody who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub range: Range,
    pub exclusive: bool,
    pub owner: Arc<Owner>,
    /// Our address as the client knows it: it believes only what comes from there.
    pub via: Option<IpAddr>,
}

/// A share reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub owner: Arc<Owner>,
    pub access: u32,
    pub deny: u32,
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

    /// A lock of somebody else that is in the way.
    pub fn conflict(&self, owner: &Owner, range: &Range, exclusive: bool) -> Option<&Held> {
        self.held.iter().find(|held| {
            held.range.overlaps(range) && (held.exclusive || exclusive) && *held.owner != *owner
        })
    }

    /// Gives `owner` a lock of `range` (`Some(exclusive)`) in place of what it has there, or takes
    /// that away (`None`).
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

    /// Whether taking `range` away from its owner leaves two locks of one.
    pub fn would_split(&self, owner: &Owner, range: &Range) -> bool {
        self.held.iter().any(|held| {
            held.range.first < range.first && range.last < held.range.last && *held.owner == *owner
        })
    }

    /// Whether somebody before place `place` of the queue waits for what is in conflict with this.
    /// An owner that holds something already does not queue: those before it may wait for it.
    pub fn must_queue(&self, owner: &Owner, range: &Range, exclusive: bool, place: usize) -> bool {
        let ahead = self.waiting.iter().take(place).any(|waiter| {
            waiter.range.overlaps(range)
                && (waiter.exclusive || exclusive)
                && *waiter.owner != *owner
        });
        ahead && !self.held.iter().any(|held| *held.owner == *owner)
    }

    /// Takes the first who need not wait any longer out of the queue, and gives it its lock.
    pub fn next_served(&mut self) -> Option<Waiter> {
        let place = self.waiting.iter().enumerate().position(|(place, waiter)| {
            let Waiter { range, exclusive, owner, .. } = waiter;
            self.conflict(owner, range, *exclusive).is_none()
                && !self.must_queue(owner, range, *exclusive, place)
        })?;
        let waiter = self.waiting.remove(place)?;
        self.set(&waiter.owner, waiter.range, Some(waiter.exclusive));
        Some(waiter)
    }

    /// The place of this very wish in the queue.
    pub fn place_of(&self, owner: &Owner, range: &Range, exclusive: bool) -> Option<usize> {
        self.waiting.iter().position(|waiter| {
            waiter.range == *range && waiter.exclusive == exclusive && *waiter.owner == *owner
        })
    }

    /// A share of somebody else that is in the way.
    pub fn share_conflict(&self, owner: &Owner, access: u32, deny: u32) -> bool {
        self.shares.iter().any(|share| {
            *share.owner != *owner && (share.access & deny != 0 || share.deny & access != 0)
        })
    }
}
