//! Objects that owners keep in memory in case somebody uses them again: those of datasets and of
//! views of snapshots. One cap for all of them.
//!
//! A client that only reads makes as many of these as there are files, in each snapshot again. No
//! owner knows what the others keep: so the shelf counts.
//!
//! # Invariants
//! - What nobody uses takes no more than the cap, whoever owns it. What is in use counts too and
//!   stays, so that only this can be above the cap.
//! - The least recently used goes first, over all owners: a hand goes round, and passes what was
//!   used since it came by (CLOCK). So a scan does not push out what is in use again and again.
//! - An addition costs a bounded number of steps.
//! - A thing's bytes are charged ([`Share`]) before it is made, until it is dropped.

use std::collections::VecDeque;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Weak};

use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::memory::Share;

/// The part of all memory that things on the shelf may take.
const CAP: u64 = 16;
/// Steps of the hand for each addition.
const STEPS: usize = 8;
/// Places in the line that may be those of things which left by themselves, beside as many as there
/// are things.
const LEFT_MAX: u64 = 64;
/// Bytes of a thing beside itself: two places in the line.
const PLACE_BYTES: u64 = 2 * size_of::<Thing>() as u64;

/// A keeper of things. Called with no lock of the shelf held.
pub trait Owner: Debug + Send + Sync {
    /// Lets a thing go, if nobody uses it or has used it since the last call.
    fn let_go(&self, key: u64, number: u64) -> Verdict;
}

/// The end of a look at a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The thing is no longer there.
    Gone,
    /// The thing stays for a round.
    Stays,
}

/// See the module's head.
pub struct Shelf {
    cap_bytes: u64,
    share: Share,
    held_bytes: AtomicU64,
    things: AtomicU64,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    things: VecDeque<Thing>,
    last: u64,
}

#[derive(Debug)]
struct Thing {
    owner: Weak<dyn Owner>,
    key: u64,
    number: u64,
}

impl Debug for Shelf {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let held_bytes = self.held_bytes();
        f.debug_struct("Shelf").field("held_bytes", &held_bytes).finish_non_exhaustive()
    }
}

impl Shelf {
    /// One for a process that may take `cap_bytes`.
    pub(crate) fn new(share: Share, cap_bytes: u64) -> Shelf {
        Shelf {
            cap_bytes: cap_bytes / CAP,
            share,
            held_bytes: AtomicU64::new(0),
            things: AtomicU64::new(0),
            line: Mutex::default(),
        }
    }

    /// Bytes that things which nobody uses may take.
    pub fn cap_bytes(&self) -> u64 {
        self.cap_bytes
    }

    /// Bytes that all things take.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that the caches have given up for it.
    pub fn charged_bytes(&self) -> u64 {
        self.share.charged_bytes()
    }

    /// Room for a thing of so many bytes, which it keeps until it is dropped. Call it before any
    /// lock is taken: caches may have to shrink.
    pub fn room(self: &Arc<Self>, bytes: u64) -> Room {
        let bytes = bytes.saturating_add(PLACE_BYTES);
        self.things.fetch_add(1, Ordering::Relaxed);
        let held_bytes = self.held_bytes.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
        self.share.grow_to(held_bytes);
        let (shelf, used) = (Arc::clone(self), AtomicBool::new(false));
        Room { shelf, bytes, number: AtomicU64::new(0), used }
    }

    /// Puts a thing in the line. From here on its owner is asked to let it go.
    pub fn put(&self, room: &Room, owner: Weak<dyn Owner>, key: u64) {
        let mut line = self.line.lock();
        line.last += 1;
        let number = line.last;
        room.number.store(number, Ordering::Relaxed);
        line.things.push_back(Thing { owner, key, number });
    }

    /// After an addition, with no lock of an owner held: lets some things go that are too much.
    pub fn tidy(&self) {
        self.walk(STEPS);
    }

    /// Lets go all that is too much.
    pub fn trim(&self) {
        let all = self.line.lock().things.len();
        self.walk(all.saturating_mul(2));
    }

    fn walk(&self, steps: usize) {
        for _ in 0..steps {
            let Some(thing) = self.next() else { return };
            let verdict = thing.owner.upgrade().map(|of| of.let_go(thing.key, thing.number));
            if verdict == Some(Verdict::Stays) {
                self.line.lock().things.push_back(thing);
            }
        }
    }

    /// The thing at the hand, if there is too much.
    fn next(&self) -> Option<Thing> {
        let mut line = self.line.lock();
        let places_max = self.things.load(Ordering::Relaxed).saturating_mul(2) + LEFT_MAX;
        let is_long = line.things.len() as u64 > places_max;
        let thing = match is_long || self.held_bytes() > self.cap_bytes {
            true => line.things.pop_front(),
            false => None,
        };
        if line.things.len() < line.things.capacity() / 4 {
            let most = line.things.len() * 2;
            line.things.shrink_to(most);
        }
        thing
    }
}

/// The room of a thing.
#[derive(Debug)]
pub struct Room {
    shelf: Arc<Shelf>,
    bytes: u64,
    number: AtomicU64,
    used: AtomicBool,
}

impl Room {
    /// The thing is used.
    pub fn is_used(&self) {
        // Mostly it was: then no processor takes the line from the others.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since the last call.
    pub fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Its number in the line: another thing of its key has another one.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shelf.things.fetch_sub(1, Ordering::Relaxed);
        self.shelf.held_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.shelf.share.settle(|| self.shelf.held_bytes());
    }
}

#[cfg(test)]
mod tests;
