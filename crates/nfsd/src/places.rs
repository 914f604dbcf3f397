//! Places of a limited number: who has how many, and who gives one up when they are short. Pure:
//! one scheme for connections of NFS and of the API.
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
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A principal that has more than so many times the places of another gives it one, however young.
pub const GREEDY: usize = 16;

/// The last part of all places (one in so many) is for sites that have few.
const RESERVE: usize = 8;

/// A site has few if it has less than one in so many of all.
const FEW: usize = 256;

/// For whom a place counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    last: u64,
    of_sites: HashMap<IpAddr, usize>,
    of_ranks: BTreeMap<Rank, usize>,
    of_principals: HashMap<(Rank, Principal), usize>,
    /// The principal that each place counts for, with its rank.
    principals: HashMap<u64, (Rank, Principal)>,
    /// Places that each principal has of each rank: those with most come first. A place is found in
    /// a moment: the thread that looks may have a low priority, and those that serve clients wait.
    by_count: BTreeMap<(Rank, Reverse<usize>, Principal), Group<H>>,
}

/// Of those of one rank the least goes first: what its principal has, whether it is at work, since
/// when it is idle, its number.
type Order = (usize, bool, Option<u64>, u64);

/// Places of one principal and rank, in the order in which they came.
type Group<H> = BTreeMap<u64, Taken<H>>;

impl<H> Default for Places<H> {
    fn default() -> Self {
        let (last, of_sites, of_ranks, of_principals) = Default::default();
        let (principals, by_count) = Default::default();
        Places { last, of_sites, of_ranks, of_principals, principals, by_count }
    }
}

impl<H: Holder> Places<H> {
    /// Places that are taken.
    pub fn len(&self) -> usize {
        self.principals.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.principals.is_empty()
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
        self.put(self.last, taken);
        self.last
    }

    /// A place now counts for another principal, or with another rank.
    pub fn change(&mut self, number: u64, rank: Rank, principal: &Principal) {
        if let Some(taken) = self.take_out(number) {
            self.put(number, Taken { rank, principal: principal.clone(), ..taken });
        }
    }

    /// Gives a place up.
    pub fn leave(&mut self, number: u64) -> Option<H> {
        self.take_out(number).map(|taken| taken.holder)
    }

    /// The place that goes first, of those of these ranks that may: for a newcomer whose principal
    /// has `newcomer_has` of that rank already.
    pub fn first(
        &self,
        ranks: RangeInclusive<Rank>,
        newcomer_has: usize,
        may: impl Fn(&Taken<H>) -> bool,
    ) -> Option<u64> {
        if ranks.is_empty() {
            return None;
        }
        let ranks = self.of_ranks.range(ranks).map(|(rank, _)| *rank);
        ranks.filter_map(|rank| self.first_of(rank, newcomer_has, &may)).next()
    }

    fn first_of(
        &self,
        rank: Rank,
        newcomer_has: usize,
        may: impl Fn(&Taken<H>) -> bool,
    ) -> Option<u64> {
        let least = Principal::Site(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let from = (rank, Reverse(usize::MAX), least);
        let mut best: Option<Order> = None;
        for ((of, Reverse(count), _), group) in self.by_count.range(from..) {
            let is_behind = best.is_some_and(|(most, ..)| most != *count);
            if *of != rank || *count < newcomer_has || is_behind {
                break;
            }
            let order = |(number, taken): (&u64, &Taken<H>)| {
                let since = taken.holder.idle_since();
                // Those at work after the others.
                (*count, since.is_none(), since, *number)
            };
            let first = group.iter().filter(|(_, taken)| may(taken)).map(order).min();
            best = [best, first].into_iter().flatten().min();
        }
        best.map(|(.., number)| number)
    }

    /// Finds the place that goes first, from a principal that has more than [`GREEDY`] times what
    /// the newcomer will have: however young the place is, and at work or not.
    pub fn first_of_greedy(&self, ranks: RangeInclusive<Rank>, newcomer_has: usize) -> Option<u64> {
        self.first(ranks, GREEDY.saturating_mul(newcomer_has + 1) + 1, |_| true)
    }

    fn put(&mut self, number: u64, taken: Taken<H>) {
        let of = (taken.rank, taken.principal.clone());
        *self.of_sites.entry(taken.site).or_default() += 1;
        *self.of_ranks.entry(taken.rank).or_default() += 1;
        let count = self.of_principals.entry(of.clone()).or_default();
        let before = std::mem::replace(count, *count + 1);
        let mut group = self.by_count.remove(&key(&of, before)).unwrap_or_default();
        group.insert(number, taken);
        self.by_count.insert(key(&of, before + 1), group);
        self.principals.insert(number, of);
    }

    fn take_out(&mut self, number: u64) -> Option<Taken<H>> {
        let of = self.principals.remove(&number)?;
        let count = self.of(of.0, &of.1);
        let mut group = self.by_count.remove(&key(&of, count))?;
        let taken = group.remove(&number)?;
        if !group.is_empty() {
            self.by_count.insert(key(&of, count - 1), group);
        }
        less(&mut self.of_sites, &taken.site);
        less(&mut self.of_principals, &of);
        if let Some(count) = self.of_ranks.get_mut(&of.0) {
            *count -= 1;
        }
        Some(taken)
    }
}

fn key((rank, principal): &(Rank, Principal), count: usize) -> (Rank, Reverse<usize>, Principal) {
    (*rank, Reverse(count), principal.clone())
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

#[cfg(test)]
mod tests;
