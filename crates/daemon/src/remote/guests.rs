//! Connections to the API, and how long one stays that shows no token.
//!
//! Everybody on the network can connect. An administrator comes in all the same.
//!
//! Invariants:
//! - Until a connection has shown the token, it has so much time and no more: for its handshake,
//!   for its request, whatever it sends meanwhile.
//! - Connections count for the site of their address, and once they have shown a token for that
//!   ([`aquifer_nfsd::places`]). A site has a part of all, and so has a token of each role but
//!   `admin`. Some are for none of these tokens.
//! - When a site's part is taken, or all are, the one goes that has been here longest without a
//!   token, of that site or of all. Of all, those go first from whose site no token has come
//!   lately: strangers who come by the thousand do not throw out an administrator whose handshake
//!   takes a moment. Where all have shown one, the least role goes first, and of that the token
//!   with most; `admin` only where one token has more than others may have.
//! - Refusals of an address are logged once a minute, those of each token by themselves; of all
//!   addresses without a token, so many in a minute: a machine may have as many as it likes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use aquifer_api::Role;
use aquifer_nfs::site;
use aquifer_nfsd::places::{Holder, Places, Principal, Rank, Taken};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Connections at a time, handshakes included.
pub const CONNECTIONS_MAX: usize = 128;

/// Of one site: an administrator, scripts and a collector of metrics have a few.
pub const ADDRESS_CONNECTIONS_MAX: usize = 16;

/// Of one token that is no administrator's.
pub const TOKEN_CONNECTIONS_MAX: usize = 16;

/// For administrators, and for those that have shown no token yet.
const RESERVED: usize = 32;

/// A token with no more than so many gives none up to somebody who has shown none.
const FEW: usize = 4;

/// A site from which a token came stays familiar for so long.
const FAMILIAR_FOR: Duration = Duration::from_secs(24 * 3600);

/// Familiar sites at a time.
const FAMILIAR_MAX: usize = 64;

/// Between two lines of the log about one address and token.
const TOLD_PAUSE: Duration = Duration::from_secs(60);

/// Tokens and their addresses of which the log tells within that time.
const TOLD_MAX: usize = 64;

/// Addresses without a token of which it does.
const STRANGERS_TOLD_MAX: usize = 8;

const UNKNOWN: Rank = 0;
const FAMILIAR: Rank = 1;

/// How long somebody stays who has shown a token of this role.
fn rank(role: Role) -> Rank {
    match role {
        Role::Metrics => 2,
        Role::Receive | Role::Send => 3,
        Role::Read => 4,
        Role::Operator => 5,
        Role::Admin => 6,
    }
}

#[derive(Debug)]
pub(super) struct Guests {
    began: Instant,
    inner: Mutex<Inner>,
}

impl Default for Guests {
    fn default() -> Self {
        Guests { began: Instant::now(), inner: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct Inner {
    places: Places<Seated>,
    /// When a token was last shown from these sites.
    familiar: HashMap<IpAddr, Instant>,
    /// When the log told last of an address, and of which token.
    told: HashMap<(IpAddr, Box<str>), Instant>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Guest {
    /// 0 until it has its place.
    number: AtomicU64,
    pub address: IpAddr,
    began: Instant,
    /// In milliseconds since the first could come: when a byte moved last, or without a token when
    /// it came.
    heard_ms: AtomicU64,
    is_known: AtomicBool,
    has_to_go: AtomicBool,
    waker: AtomicWaker,
}

/// A connection that has a place.
#[derive(Debug)]
struct Seated(Arc<Guest>);

impl Holder for Seated {
    fn idle_since(&self) -> Option<u64> {
        Some(self.0.heard_ms.load(Ordering::Relaxed))
    }
}

impl Guest {
    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// A byte moved.
    pub fn is_heard(&self) {
        if self.is_known() {
            let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.heard_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Ready when it has to make room for somebody else.
    pub fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.has_to_go.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    fn go(&self) {
        self.has_to_go.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Guests {
    /// A place for a connection, if there is one.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let (address, site, now) = (address.to_canonical(), site(address), Instant::now());
        let mut inner = self.inner.lock();
        let is_site_full = inner.places.of_site(site) >= ADDRESS_CONNECTIONS_MAX;
        if is_site_full || inner.places.len() >= CONNECTIONS_MAX {
            let gone = inner.first_to_go(is_site_full.then_some(site))?;
            inner.places.leave(gone)?.0.go();
        }
        let since = now.saturating_duration_since(self.began).as_millis();
        let guest = Arc::new(Guest {
            number: AtomicU64::new(0),
            address,
            began: self.began,
            heard_ms: AtomicU64::new(u64::try_from(since).unwrap_or(u64::MAX)),
            is_known: AtomicBool::new(false),
            has_to_go: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let rank = if inner.is_familiar(site, now) { FAMILIAR } else { UNKNOWN };
        let (principal, holder) = (Principal::Site(site), Seated(Arc::clone(&guest)));
        let number = inner.places.take(Taken { site, principal, rank, holder });
        guest.number.store(number, Ordering::Relaxed);
        Some(Place { guests: Arc::clone(self), guest })
    }

    /// The connection has shown a token of this name and role.
    pub fn know(&self, guest: &Guest, token: &Arc<str>, role: Role) {
        self.know_at(Instant::now(), guest, token, role);
    }

    fn know_at(&self, now: Instant, guest: &Guest, token: &Arc<str>, role: Role) {
        guest.is_known.store(true, Ordering::Relaxed);
        guest.is_heard();
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let principal = Principal::Token(Arc::clone(token));
        inner.places.change(guest.number(), rank(role), &principal);
        inner.shrink_to_fit(guest, &principal, role);
        let familiar = &mut inner.familiar;
        familiar.insert(site(guest.address), now);
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
    fn is_familiar(&self, site: IpAddr, now: Instant) -> bool {
        let shown = self.familiar.get(&site);
        shown.is_some_and(|at| now.duration_since(*at) < FAMILIAR_FOR)
    }

    /// The connection that goes for one that has shown no token; of a site, if that has its part.
    fn first_to_go(&self, of: Option<IpAddr>) -> Option<u64> {
        let is_of = |taken: &Taken<Seated>| of.is_none_or(|site| taken.site == site);
        let admin = rank(Role::Admin);
        let known = FAMILIAR + 1..=admin - 1;
        let unknown = self.places.first(0..=FAMILIAR, 0, is_of);
        let lesser = || self.places.first(known, FEW + 1, is_of);
        let greedy = || self.places.first(admin..=admin, TOKEN_CONNECTIONS_MAX + 1, is_of);
        unknown.or_else(lesser).or_else(greedy)
    }

    /// Somebody has shown a token: another goes if the token has too many, or those that are no
    /// administrators have.
    fn shrink_to_fit(&mut self, newcomer: &Guest, token: &Principal, role: Role) {
        let admin = rank(Role::Admin);
        if rank(role) == admin {
            return;
        }
        let is_other = |taken: &Taken<Seated>| taken.holder.0.number() != newcomer.number();
        let known = FAMILIAR + 1..=admin - 1;
        let all: usize = known.clone().map(|rank| self.places.of_rank(rank)).sum();
        let gone = if self.places.of(rank(role), token) > TOKEN_CONNECTIONS_MAX {
            let is_its = |taken: &Taken<Seated>| taken.principal == *token && is_other(taken);
            self.places.first(0..=admin, 0, is_its)
        } else if all > CONNECTIONS_MAX - RESERVED {
            self.places.first(known, 0, is_other)
        } else {
            None
        };
        if let Some(guest) = gone.and_then(|gone| self.places.leave(gone)) {
            guest.0.go();
        }
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
        self.guests.inner.lock().places.leave(self.guest.number());
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
        guests.know(&administrator.guest, &"root".into(), Role::Admin);
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
            let later = now + Duration::from_millis(ms);
            place.guests.know_at(later, &place.guest, &"root".into(), Role::Admin);
        }
        drop((first, all));
        // Their next connections have shown nothing yet.
        let first = guests.enter(address(100)).unwrap();
        let _all: Vec<Place> = (1..128).filter_map(|it| guests.enter(address(it))).collect();
        assert!(guests.enter(address(200)).is_some());
        assert!(!first.guest.has_to_go.load(Ordering::Relaxed), "a newer one is unfamiliar");
    }

    #[test]
    fn an_address_is_familiar_for_a_day_and_some_of_many_are() {
        let guests = Arc::new(Guests::default());
        let now = Instant::now();
        let know = |number: u32, at: Instant| {
            let place = guests.enter(address(number)).unwrap();
            guests.know_at(at, &place.guest, &"root".into(), Role::Admin);
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

    fn gone(places: &[Place]) -> usize {
        places.iter().filter(|place| place.guest.has_to_go.load(Ordering::Relaxed)).count()
    }

    /// A token of each role but `admin`, from as many addresses as there are, on connections that
    /// go on and on.
    #[test]
    fn no_token_keeps_administrators_out() {
        for role in [Role::Metrics, Role::Receive, Role::Read, Role::Operator] {
            let guests = Arc::new(Guests::default());
            let root = guests.enter(address(0)).unwrap();
            guests.know(&root.guest, &"root".into(), Role::Admin);
            let mut held = Vec::new();
            for number in 1..200 {
                let place = guests.enter(address(number)).unwrap();
                guests.know(&place.guest, &"eye".into(), role);
                held.push(place);
            }
            assert_eq!(held.len() - gone(&held), TOKEN_CONNECTIONS_MAX, "{role}");
            // Many tokens share what is left beside that of administrators.
            for number in 200..600_u32 {
                let place = guests.enter(address(number)).unwrap();
                guests.know(&place.guest, &number.to_string().into(), role);
                held.push(place);
            }
            assert_eq!(held.len() - gone(&held), CONNECTIONS_MAX - RESERVED, "{role}");
            let next = guests.enter(address(1000)).unwrap();
            guests.know(&next.guest, &"root".into(), Role::Admin);
            assert_eq!(gone(&[root, next]), 0, "{role}");
            // From the address of one that has its part of all, too.
            let guests = Arc::new(Guests::default());
            let from_there: Vec<Place> = (0..ADDRESS_CONNECTIONS_MAX)
                .map(|_| {
                    let place = guests.enter(address(1000)).unwrap();
                    guests.know(&place.guest, &"here".into(), role);
                    place
                })
                .collect();
            let admin = guests.enter(address(1000)).unwrap();
            guests.know(&admin.guest, &"root".into(), Role::Admin);
            assert_eq!((gone(&from_there), gone(&[admin])), (1, 0), "{role}");
        }
    }

    #[test]
    fn the_least_role_goes_first_and_a_network_is_one_site() {
        let guests = Arc::new(Guests::default());
        let know = |number, token: &str, role| {
            let place = guests.enter(address(number)).unwrap();
            guests.know(&place.guest, &token.into(), role);
            place
        };
        let operators: Vec<Place> =
            (0..48).map(|it| know(it, ["a", "b", "c"][it as usize % 3], Role::Operator)).collect();
        let eyes: Vec<Place> = (100..148)
            .map(|it| know(it, ["d", "e", "f"][it as usize % 3], Role::Metrics))
            .collect();
        let more: Vec<Place> = (200..210).map(|it| know(it, "g", Role::Read)).collect();
        assert_eq!((gone(&operators), gone(&eyes), gone(&more)), (0, 10, 0));
        let at = |number: u16| [0x2001, 0xdb8, 0, 1, 0, 0, 0, number].into();
        let of_network: Vec<Place> = (0..40).filter_map(|it| guests.enter(at(it))).collect();
        assert_eq!(of_network.len() - gone(&of_network), ADDRESS_CONNECTIONS_MAX);
    }
}
