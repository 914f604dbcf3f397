//! Connections of clients, and which one is evicted when there are too many.
//!
//! A datastore's network has other users: machines that no export names, and users without
//! privileges on named hosts. They open connections too, and hold them.
//!
//! Invariants:
//! - Strangers (which no export admits, at least not yet) have a small part of all connections. One
//!   stranger more evicts the one that has been idle longest.
//! - One address has no more than half of all, except for this machine's own.
//! - When all are taken, a stranger is evicted first, then the longest idle of the address that has
//!   most. A connection with a request under way stays, and so does a client that was just heard
//!   from: then the newcomer is turned away. A client whose connection was closed connects again
//!   when it has a request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Context;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::{IDLE_MIN, STRANGER_IDLE_MAX, STRANGERS_SHARE};

/// The connections of a server.
#[derive(Debug)]
pub(crate) struct Peers {
    began: Instant,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    all: HashMap<u64, Arc<Seat>>,
    last: u64,
    strangers: usize,
    of_each: HashMap<IpAddr, usize>,
}

/// A connection among all.
#[derive(Debug)]
pub(crate) struct Seat {
    number: u64,
    address: IpAddr,
    is_stranger: AtomicBool,
    began: Instant,
    /// When it was last heard from, in milliseconds since the server began; [`BUSY`] with a request
    /// under way.
    heard_ms: AtomicU64,
    is_evicted: AtomicBool,
    waker: AtomicWaker,
}

const BUSY: u64 = u64::MAX;

impl Seat {
    /// Whether the connection must close. If not, the task is woken when it must.
    pub fn is_evicted(&self, cx: &Context<'_>) -> bool {
        self.waker.register(cx.waker());
        self.is_evicted.load(Ordering::Acquire)
    }

    /// The connection has a request under way, or unsent replies.
    pub fn is_busy(&self) {
        self.heard_ms.store(BUSY, Ordering::Relaxed);
    }

    /// It has none any more, or was just heard from.
    pub fn is_idle(&self) {
        self.heard_ms.store(milliseconds(self.began.elapsed()), Ordering::Relaxed);
    }

    /// Changed under the lock of all seats only.
    fn is_stranger(&self) -> bool {
        self.is_stranger.load(Ordering::Relaxed)
    }

    fn idle_since_ms(&self) -> Option<u64> {
        let heard = self.heard_ms.load(Ordering::Relaxed);
        (heard != BUSY).then_some(heard)
    }

    fn evict(&self) {
        self.is_evicted.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Peers {
    pub fn new() -> Self {
        Peers { began: Instant::now(), seats: Mutex::default() }
    }

    /// A seat for a connection, of at most `most`. May evict another one. `None` if none can be
    /// evicted.
    pub fn take(&self, address: IpAddr, is_stranger: bool, most: usize) -> Option<Arc<Seat>> {
        let address = address.to_canonical();
        let strangers_max = (most / STRANGERS_SHARE).max(1);
        let of_one_max = (most / 2).max(1);
        let now_ms = milliseconds(self.began.elapsed());
        let mut seats = self.seats.lock();
        if is_stranger && seats.strangers >= strangers_max {
            seats.evict(Seat::is_stranger, now_ms)?;
        } else if !address.is_loopback() && seats.of(address) >= of_one_max {
            let early = now_ms.checked_sub(milliseconds(IDLE_MIN))?;
            seats.evict(|seat| seat.address == address, early)?;
        } else if seats.all.len() >= most && seats.evict(Seat::is_stranger, now_ms).is_none() {
            let early = now_ms.checked_sub(milliseconds(IDLE_MIN))?;
            let fullest = seats.of_each.iter().max_by_key(|(_, count)| **count);
            let fullest = fullest.map(|(address, _)| *address)?;
            seats.evict(|seat| seat.address == fullest, early)?;
        }
        seats.last += 1;
        let seat = Arc::new(Seat {
            number: seats.last,
            address,
            is_stranger: AtomicBool::new(is_stranger),
            began: self.began,
            heard_ms: AtomicU64::new(now_ms),
            is_evicted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        seats.add(seat.clone());
        Some(seat)
    }

    /// A stranger has proven to be a client.
    pub fn know(&self, seat: &Seat) {
        let mut seats = self.seats.lock();
        if seats.all.contains_key(&seat.number) && seat.is_stranger.swap(false, Ordering::Relaxed) {
            seats.strangers -= 1;
        }
    }

    /// A connection has ended.
    pub fn leave(&self, seat: &Seat) {
        self.seats.lock().remove(seat.number);
    }

    /// Evicts strangers that have been idle for long. Called from time to time.
    pub fn sweep(&self) {
        let now_ms = milliseconds(self.began.elapsed());
        let Some(early) = now_ms.checked_sub(milliseconds(STRANGER_IDLE_MAX)) else { return };
        let mut seats = self.seats.lock();
        while seats.evict(Seat::is_stranger, early).is_some() {}
    }
}

impl Seats {
    fn of(&self, address: IpAddr) -> usize {
        self.of_each.get(&address).copied().unwrap_or(0)
    }

    /// Evicts the longest idle one of those that `may` go and were last heard from by `until_ms`.
    fn evict(&mut self, may: impl Fn(&Seat) -> bool, until_ms: u64) -> Option<()> {
        let idle = self.all.values().filter(|seat| may(seat));
        let idle = idle.filter_map(|seat| Some((seat.idle_since_ms()?, seat.number)));
        let (_, longest) = idle.filter(|(since, _)| *since <= until_ms).min()?;
        self.remove(longest)?.evict();
        Some(())
    }

    fn add(&mut self, seat: Arc<Seat>) {
        *self.of_each.entry(seat.address).or_default() += 1;
        self.strangers += usize::from(seat.is_stranger());
        self.all.insert(seat.number, seat);
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Seat>> {
        let seat = self.all.remove(&number)?;
        self.strangers -= usize::from(seat.is_stranger());
        if let Some(count) = self.of_each.get_mut(&seat.address) {
            *count -= 1;
            if *count == 0 {
                self.of_each.remove(&seat.address);
            }
        }
        Some(seat)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(BUSY - 1)
}

#[cfg(test)]
mod tests;
