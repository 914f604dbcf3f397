//! Connections of clients, and which one is evicted when there are too many.
//!
//! A datastore's network has other users: machines that no export names, and users without
//! privileges on named hosts. They open connections too, and hold them.
//!
//! Invariants:
//! - Strangers (whose calls no export takes as they come, at least not yet) have a small part of
//!   all connections. One stranger more evicts another: the longest idle one of the site that has
//!   most.
//! - One site has no more than half of all, except for this machine's own.
//! - When all are taken, a stranger is evicted first. Then the site that has most gives one up: if
//!   it has more than [`GREEDY`](crate::places::GREEDY) times as many as the newcomer's, however
//!   young that is; otherwise one that was not heard from lately. A connection with a request under
//!   way stays then, and so does a client that was just heard from: the newcomer is turned away. A
//!   client whose connection was closed connects again when it has a request.
//! - A site with few finds places where others find none any more.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Context;
use std::time::Duration;

use aquifer_nfs::site;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::{IDLE_MIN, STRANGER_IDLE_MAX, STRANGERS_SHARE};
use crate::places::{Holder, Places, Principal, Rank, Taken};

const STRANGER: Rank = 0;
const CLIENT: Rank = 1;

/// The connections of a server.
#[derive(Debug)]
pub(crate) struct Peers {
    began: Instant,
    seats: Mutex<Places<Arc<Seat>>>,
}

/// A connection among all.
#[derive(Debug)]
pub(crate) struct Seat {
    /// 0 until it is among all.
    number: AtomicU64,
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

    fn evict(&self) {
        self.is_evicted.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Holder for Arc<Seat> {
    fn idle_since(&self) -> Option<u64> {
        let heard = self.heard_ms.load(Ordering::Relaxed);
        (heard != BUSY).then_some(heard)
    }
}

impl Peers {
    pub fn new() -> Self {
        Peers { began: Instant::now(), seats: Mutex::default() }
    }

    /// A seat for a connection, of at most `most`. May evict another one. `None` if none can be
    /// evicted.
    pub fn take(&self, address: IpAddr, is_stranger: bool, most: usize) -> Option<Arc<Seat>> {
        let (is_here, site) = (address.to_canonical().is_loopback(), site(address));
        let now_ms = milliseconds(self.began.elapsed());
        let mut seats = self.seats.lock();
        if let Some(evicts) = evicts(&seats, (site, is_here), is_stranger, most, now_ms) {
            seats.leave(evicts?)?.evict();
        }
        let seat = Arc::new(Seat {
            number: AtomicU64::new(0),
            began: self.began,
            heard_ms: AtomicU64::new(now_ms),
            is_evicted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let rank = if is_stranger { STRANGER } else { CLIENT };
        let (principal, holder) = (Principal::Site(site), Arc::clone(&seat));
        let number = seats.take(Taken { site, principal, rank, holder });
        seat.number.store(number, Ordering::Relaxed);
        Some(seat)
    }

    /// An export takes the calls of a connection: it is a client's.
    pub fn know(&self, seat: &Seat, address: IpAddr) {
        let number = seat.number.load(Ordering::Relaxed);
        self.seats.lock().change(number, CLIENT, &Principal::Site(site(address)));
    }

    /// A connection has ended.
    pub fn leave(&self, seat: &Seat) {
        self.seats.lock().leave(seat.number.load(Ordering::Relaxed));
    }

    /// Evicts strangers that have been idle for long. Called from time to time.
    pub fn sweep(&self) {
        let now_ms = milliseconds(self.began.elapsed());
        let Some(early) = now_ms.checked_sub(milliseconds(STRANGER_IDLE_MAX)) else { return };
        let mut seats = self.seats.lock();
        let is_old = |seat: &Taken<Arc<Seat>>| is_idle(seat, early);
        while let Some(number) = seats.first(STRANGER..=STRANGER, 0, is_old) {
            seats.leave(number).iter().for_each(|seat| seat.evict());
        }
    }
}

/// The seat that a newcomer evicts, if one must go; `Some(None)` if one must and none can.
fn evicts(
    seats: &Places<Arc<Seat>>,
    (site, is_here): (IpAddr, bool),
    is_stranger: bool,
    most: usize,
    now_ms: u64,
) -> Option<Option<u64>> {
    let principal = Principal::Site(site);
    let quiet_since = now_ms.checked_sub(milliseconds(IDLE_MIN));
    let is_quiet = |seat: &Taken<Arc<Seat>>| quiet_since.is_some_and(|since| is_idle(seat, since));
    let stranger = |least| seats.first(STRANGER..=STRANGER, least, |seat| is_idle(seat, now_ms));
    if is_stranger && seats.of_rank(STRANGER) >= (most / STRANGERS_SHARE).max(1) {
        return Some(stranger(seats.of(STRANGER, &principal)));
    }
    if !is_here && seats.of_site(site) >= (most / 2).max(1) {
        return Some(seats.first(STRANGER..=CLIENT, 0, |seat| seat.site == site && is_quiet(seat)));
    }
    // This machine's own are not counted by site here either.
    let is_full = if is_here { seats.len() >= most } else { seats.are_full_for(site, most) };
    if !is_full {
        return None;
    }
    let has = seats.of(CLIENT, &principal);
    // A stranger pushes out no client that was just heard from.
    let greedy = || if is_stranger { None } else { seats.first_of_greedy(CLIENT..=CLIENT, has) };
    let quiet = || seats.first(CLIENT..=CLIENT, has, is_quiet);
    Some(stranger(0).or_else(greedy).or_else(quiet))
}

fn is_idle(seat: &Taken<Arc<Seat>>, since_ms: u64) -> bool {
    seat.holder.idle_since().is_some_and(|heard| heard <= since_ms)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(BUSY - 1)
}

#[cfg(test)]
mod tests;
