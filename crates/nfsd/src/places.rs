//! Who has how many of a number of places, and who gives one up when they are short. Pure: one
//! scheme for connections of NFS and of the API.
//!
//! A *principal* is whom a place counts for: the site of an address ([`aquifer_nfs::site`]), or a
//! token once it was shown. Strangers and admitted ones are counted in the same way: an admitted
//! host may be hostile too.
//!
//! # Invariants
//! - Of the places that may go, one of the lowest rank goes first, then one of the principal that
//!   has most of that rank, then the one that was heard from longest ago.
//! - Nobody loses a place to a principal that has more of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// A principal that has more than so many times the places of another gives it one, however young.
pub const GREEDY: usize = 16;

/// The last part of all places (one in so many) is for sites that have few.
const RESERVE: usize = 8;

/// A site has few if it has less than one in so many of all.
const FEW: usize = 256;

/// For whom a place counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// An address, or the network of one machine.
    Site(IpAddr),
    /// The bearers of a token.
    Token(Arc<str>),
}

/// Classes of those that may have places: the higher, the longer they stay.
pub type Rank = u8;

/// The holder of a place.
pub trait Holder {
    /// When it was last heard from, on any clock that all holders share. `None`: it is at work.
    fn idle_since(&self) -> Option<u64>;
}

/// A place that is taken.
#[derive(Debug)]
pub struct Taken<H> {
    /// The site of its address.
    pub site: IpAddr,
    /// For whom it counts.
    pub principal: Principal,
    /// How long it stays.
    pub rank: Rank,
    /// The one that has it.
    pub holder: H,
}

/// See the module's head.
#[derive(Debug)]
pub struct Places<H> {
    /// In the order in which they came.
    all: BTreeMap<u64, Taken<H>>,
    last: u64,
    of_sites: HashMap<IpAddr, usize>,
    of_principals: HashMap<(Rank, Principal), usize>,
    of_ranks: BTreeMap<Rank, usize>,
}

impl<H> Default for Places<H> {
    fn default() -> Self {
        let (all, last, of_sites, of_principals, of_ranks) = Default::default();
        Places { all, last, of_sites, of_principals, of_ranks }
    }
}

impl<H: Holder> Places<H> {
    /// Places that are taken.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Places of a site, of all ranks and principals.
    pub fn of_site(&self, site: IpAddr) -> usize {
        self.of_sites.get(&site).copied().unwrap_or(0)
    }

    /// Places of a principal with this rank.
    pub fn of(&self, rank: Rank, principal: &Principal) -> usize {
        self.of_principals.get(&(rank, principal.clone())).copied().unwrap_or(0)
    }

    /// Places of a rank.
    pub fn of_rank(&self, rank: Rank) -> usize {
        self.of_ranks.get(&rank).copied().unwrap_or(0)
    }

    /// Whether a newcomer of this site finds all places taken, of which there are `most`. The last
    /// ones are for sites with few.
    pub fn are_full_for(&self, site: IpAddr, most: usize) -> bool {
        let has_few = self.of_site(site) < (most / FEW).max(1);
        self.len() >= if has_few { most } else { most - most / RESERVE }
    }

    /// Takes a place. Its number.
    pub fn take(&mut self, taken: Taken<H>) -> u64 {
        self.last += 1;
        *self.of_sites.entry(taken.site).or_default() += 1;
        self.count(taken.rank, &taken.principal);
        self.all.insert(self.last, taken);
        self.last
    }

    /// A place now counts for another principal, or with another rank.
    pub fn change(&mut self, number: u64, rank: Rank, principal: &Principal) {
        let Some(taken) = self.all.get_mut(&number) else { return };
        let before = (taken.rank, std::mem::replace(&mut taken.principal, principal.clone()));
        taken.rank = rank;
        self.discount(before);
        self.count(rank, principal);
    }

    /// Gives a place up.
    pub fn leave(&mut self, number: u64) -> Option<H> {
        let taken = self.all.remove(&number)?;
        less(&mut self.of_sites, &taken.site);
        self.discount((taken.rank, taken.principal));
        Some(taken.holder)
    }

    /// The place that goes first, of those that may: for a newcomer whose principal has
    /// `newcomer_has` of that rank already.
    pub fn first(&self, newcomer_has: usize, may: impl Fn(&Taken<H>) -> bool) -> Option<u64> {
        let may_go = self.all.iter().filter(|(_, taken)| may(taken));
        let order = |(number, taken): (&u64, &Taken<H>)| {
            let count = self.of(taken.rank, &taken.principal);
            let since = taken.holder.idle_since();
            // Those at work after the others of their principal.
            let order = (taken.rank, Reverse(count), since.is_none(), since, *number);
            (count >= newcomer_has).then_some(order)
        };
        may_go.filter_map(order).min().map(|(.., number)| number)
    }

    /// The same, from a principal that has more than [`GREEDY`] times what the newcomer will have:
    /// however young the place is, and at work or not.
    pub fn first_of_greedy(
        &self,
        newcomer_has: usize,
        may: impl Fn(&Taken<H>) -> bool,
    ) -> Option<u64> {
        self.first(GREEDY.saturating_mul(newcomer_has + 1) + 1, may)
    }

    fn count(&mut self, rank: Rank, principal: &Principal) {
        *self.of_principals.entry((rank, principal.clone())).or_default() += 1;
        *self.of_ranks.entry(rank).or_default() += 1;
    }

    fn discount(&mut self, of: (Rank, Principal)) {
        if let Some(count) = self.of_ranks.get_mut(&of.0) {
            *count -= 1;
        }
        less(&mut self.of_principals, &of);
    }
}

/// Counts down, and forgets what is not there.
fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
