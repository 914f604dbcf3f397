//! Connections to the API, and how long one stays that shows no token.
//!
//! Everybody on the network can connect. An administrator comes in all the same.
//!
//! Invariants:
//! - Until a connection has shown the token, it has so much time and no more: for its handshake,
//!   for its request, whatever it sends meanwhile.
//! - One address has a part of all connections. When that is taken, or all are, the one goes that
//!   has been here longest without a token, of that address or of all. Of all, those go first from
//!   whose address no token has come lately: strangers who come by the thousand do not throw out an
//!   administrator whose handshake takes a moment.
//! - Refusals of an address are logged once a minute, those of each token by themselves; of all
//!   addresses without a token, so many in a minute: a machine may have as many as it likes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Connections at a time, handshakes included.
pub const CONNECTIONS_MAX: usize = 128;

/// Of one address: an administrator, scripts and a collector of metrics have a few.
pub const ADDRESS_CONNECTIONS_MAX: usize = 16;

/// An address from which a token came stays familiar for so long.
const FAMILIAR_FOR: Duration = Duration::from_secs(24 * 3600);

/// Familiar addresses at a time.
const FAMILIAR_MAX: usize = 64;

/// Between two lines of the log about one address and token.
const TOLD_PAUSE: Duration = Duration::from_secs(60);

/// Tokens and their addresses of which the log tells within that time.
const TOLD_MAX: usize = 64;

/// Addresses without a token of which it does.
const STRANGERS_TOLD_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Guests {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    of_each: HashMap<IpAddr, usize>,
    /// In the order in which they came.
    all: BTreeMap<u64, Arc<Guest>>,
    last: u64,
    /// When a token was last shown from these addresses.
    familiar: HashMap<IpAddr, Instant>,
    /// When the log told last of an address, and of which token.
    told: HashMap<(IpAddr, Box<str>), Instant>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Guest {
    number: u64,
    pub address: IpAddr,
    is_known: AtomicBool,
    has_to_go: AtomicBool,
    waker: AtomicWaker,
}

impl Guest {
    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Ready when it has to make room for somebody else.
    pub fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.has_to_go.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Guests {
    /// A place for a connection, if there is one.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut inner = self.inner.lock();
        let of_address = inner.of_each.get(&address).copied().unwrap_or(0);
        let makes_room = match of_address >= ADDRESS_CONNECTIONS_MAX {
            true => Some(Some(address)),
            false => (inner.all.len() >= CONNECTIONS_MAX).then_some(None),
        };
        if let Some(of) = makes_room {
            let may_go = |guest: &&Arc<Guest>| {
                !guest.is_known() && of.is_none_or(|address| guest.address == address)
            };
            let now = Instant::now();
            let mut may_go = inner.all.values().filter(may_go);
            let first = may_go.clone().find(|guest| !inner.is_familiar(guest.address, now));
            let oldest = first.or_else(|| may_go.next())?.number;
            let gone = inner.remove(oldest)?;
            gone.has_to_go.store(true, Ordering::Release);
            gone.waker.wake();
        }
        inner.last += 1;
        let (is_known, has_to_go, waker) = Default::default();
        let number = inner.last;
        let guest = Arc::new(Guest { number, address, is_known, has_to_go, waker });
        inner.all.insert(number, guest.clone());
        *inner.of_each.entry(address).or_default() += 1;
        Some(Place { guests: Arc::clone(self), guest })
    }

    /// The connection has shown a token.
    pub fn know(&self, guest: &Guest) {
        self.know_at(Instant::now(), guest);
    }

    fn know_at(&self, now: Instant, guest: &Guest) {
        guest.is_known.store(true, Ordering::Relaxed);
        let familiar = &mut self.inner.lock().familiar;
        familiar.insert(guest.address, now);
        if familiar.len() > FAMILIAR_MAX {
            let longest_ago = familiar.iter().min_by_key(|(_, at)| **at);
            let longest_ago = longest_ago.map(|(address, _)| *address);
            longest_ago.and_then(|address| familiar.remove(&address));
        }
    }

    /// Whether the log is to tell of this address, and of a token (none: empty), now.
    pub fn is_told(&self, address: IpAddr, token: &str) -> bool {
        self.is_told_at(Instant::now(), address, token)
    }

    fn is_told_at(&self, now: Instant, address: IpAddr, token: &str) -> bool {
        let who = (address, Box::from(token));
        let told = &mut self.inner.lock().told;
        told.retain(|_, at| now.duration_since(*at) < TOLD_PAUSE);
        let of_strangers = told.keys().filter(|(_, token)| token.is_empty()).count();
        let is_due = !told.contains_key(&who)
            && match token.is_empty() {
                true => of_strangers < STRANGERS_TOLD_MAX,
                false => told.len() - of_strangers < TOLD_MAX,
            };
        if is_due {
            told.insert(who, now);
        }
        is_due
    }
}

impl Inner {
    fn is_familiar(&self, address: IpAddr, now: Instant) -> bool {
        let shown = self.familiar.get(&address);
        shown.is_some_and(|at| now.duration_since(*at) < FAMILIAR_FOR)
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Guest>> {
        let guest = self.all.remove(&number)?;
        if let Some(count) = self.of_each.get_mut(&guest.address) {
            *count -= 1;
            if *count == 0 {
                self.of_each.remove(&guest.address);
            }
        }
        Some(guest)
    }
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    guests: Arc<Guests>,
    pub guest: Arc<Guest>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.guests.inner.lock().remove(self.guest.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 | number).to_be_bytes())
    }

    #[test]
    fn strangers_do_not_throw_out_an_administrator() {
        let guests = Arc::new(Guests::default());
        let administrator = guests.enter(address(0)).unwrap();
        guests.know(&administrator.guest);
        drop(administrator);
        // Their next connection is still in its handshake when thousands come.
        let shakes_hands = guests.enter(address(0)).unwrap();
        let others: Vec<Place> = (1..3000).filter_map(|it| guests.enter(address(it))).collect();
        assert_eq!(others.len(), 2999);
        assert!(!shakes_hands.guest.has_to_go.load(Ordering::Relaxed));
        let gone = |place: &&Place| place.guest.has_to_go.load(Ordering::Relaxed);
        assert_eq!(others.iter().filter(gone).count(), 3000 - CONNECTIONS_MAX);
        // It has only its address's part of all, like everybody.
        let more: Vec<Place> = (0..16).filter_map(|_| guests.enter(address(0))).collect();
        assert_eq!(more.len(), ADDRESS_CONNECTIONS_MAX);
        assert!(shakes_hands.guest.has_to_go.load(Ordering::Relaxed));
        // Familiar addresses alone can fill everything: then the oldest goes.
        let (guests, now) = (Arc::new(Guests::default()), Instant::now());
        let first = guests.enter(address(0)).unwrap();
        let all: Vec<Place> = (1..128).filter_map(|it| guests.enter(address(it))).collect();
        for (place, ms) in all.iter().chain([&first]).zip(0..) {
            // One after the other: of those at one time, any may be forgotten.
            place.guests.know_at(now + Duration::from_millis(ms), &place.guest);
            place.guest.is_known.store(false, Ordering::Relaxed);
        }
        assert!(guests.enter(address(200)).is_some());
        assert!(!first.guest.has_to_go.load(Ordering::Relaxed), "a newer one is unfamiliar");
    }

    #[test]
    fn an_address_is_familiar_for_a_day_and_some_of_many_are() {
        let guests = Arc::new(Guests::default());
        let now = Instant::now();
        let know = |number: u32, at: Instant| {
            let place = guests.enter(address(number)).unwrap();
            guests.know_at(at, &place.guest);
        };
        let is_familiar = |number, at| guests.inner.lock().is_familiar(address(number), at);
        know(0, now);
        assert!(is_familiar(0, now) && !is_familiar(1, now));
        assert!(!is_familiar(0, now + FAMILIAR_FOR));
        let most = u32::try_from(FAMILIAR_MAX).unwrap();
        (1..=most).for_each(|number| know(number, now + Duration::from_secs(number.into())));
        let later = now + Duration::from_secs(100);
        assert!(!is_familiar(0, later) && is_familiar(1, later) && is_familiar(most, later));
    }

    #[test]
    fn addresses_that_are_made_up_fill_no_log() {
        let (guests, begun) = (Guests::default(), Instant::now());
        let told = |now, token| {
            let addresses = (0..10_000_u32).map(|number| IpAddr::from(number.to_be_bytes()));
            addresses.filter(|address| guests.is_told_at(now, *address, token)).count()
        };
        let is_told = |now| guests.is_told_at(now, [10, 0, 0, 1].into(), "backup");
        assert_eq!((told(begun, ""), told(begun, "")), (STRANGERS_TOLD_MAX, 0));
        assert!(is_told(begun), "hidden by strangers");
        assert!(!is_told(begun));
        let later = begun + TOLD_PAUSE;
        assert!(is_told(later));
        assert_eq!((told(later, ""), told(later, "x")), (STRANGERS_TOLD_MAX, TOLD_MAX - 1));
    }
}
