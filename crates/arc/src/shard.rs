//! The policy, for the entries of one shard. The head of the crate states it.
//!
//! Invariants, after every operation:
//! - The table names exactly the slots of the slab, each by its key's hash.
//! - T1 and T2 hold values, B1 and B2 none.
//! - T1 + T2 <= c, T1 + B1 <= c, B1 + B2 <= c (costs in bytes; c = `Budget::residents`).
//! - Ghosts <= `Budget::ghosts`, so `resident_bytes` <= capacity.

use hashbrown::HashTable;

use crate::budget::Budget;
use crate::slab::{Fresh, Queue, Slab};
use crate::stats::Stats;
use crate::{Class, Key};

pub(crate) struct Shard<V> {
    table: HashTable<u32>,
    slab: Slab<V>,
    budget: Budget,
    /// Counts gets and inserts, and wraps: the policy's only notion of time.
    ticks: u32,
    /// Counters, the classes' sizes and ARC's p; the other sizes are filled in by `stats`.
    stats: Stats,
}

/// A value on its way in.
pub(crate) struct Arrival<V> {
    pub key: Key,
    pub value: V,
    pub charge_bytes: u32,
    pub class: Class,
    /// Its inheritance from the block that it replaces.
    pub standing: Option<Standing>,
}

/// The standing of an entry with the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    queue: Queue,
    lives: u8,
}

impl<V: Clone> Shard<V> {
    pub(crate) fn new(capacity: u64) -> Self {
        let budget = Budget::new::<V>(capacity);
        let (table, slab) = (HashTable::new(), Slab::new());
        Shard { table, slab, budget, ticks: 0, stats: Stats::default() }
    }

    #[inline]
    pub(crate) fn get(&mut self, hash: u64, key: &Key) -> Option<V> {
        let index = self.find(hash, key);
        self.used(index).cloned()
    }

    /// `get` of `count` neighbours from `first` on.
    pub(crate) fn get_run(&mut self, first: &Key, count: u64, mut found: impl FnMut(u64, &V)) {
        let mut before = None;
        for at in 0..count {
            let key = Key { place: first.place + at, ..*first };
            // Entries that came in one after the other are neighbours in the slab, as long as
            // nothing has moved.
            let beside = before.and_then(|index| self.slab.beside(index));
            let index = match beside {
                Some(index) if self.slab.slot(index).key == key => Some(index),
                _ => self.find(key.mixed(), &key),
            };
            if let Some(value) = self.used(index) {
                found(at, value);
            }
            before = index;
        }
    }

    /// `get` of each. Searches for all before it uses the first, so that the searches do not wait
    /// for each other.
    pub(crate) fn get_each<'a>(
        &mut self,
        keys: impl Iterator<Item = (usize, &'a Key)>,
        found: &mut impl FnMut(usize, &V),
    ) {
        let search = |(at, key): (usize, &Key)| (at, self.find(key.mixed(), key));
        let indices: Vec<(usize, Option<u32>)> = keys.map(search).collect();
        for (at, index) in indices {
            if let Some(value) = self.used(index) {
                found(at, value);
            }
        }
    }

    /// Counts a use of an entry, if it was found.
    #[inline]
    fn used(&mut self, index: Option<u32>) -> Option<&V> {
        self.ticks = self.ticks.wrapping_add(1);
        let (now, window) = (self.ticks, self.correlation_window());
        let slot = index.map(|index| self.slab.slot_mut(index));
        let Some(slot) = slot.filter(|slot| slot.value.is_some()) else {
            self.stats.misses += 1;
            return None;
        };
        let lives = lives_of_marked(slot.class);
        if slot.lives != lives && now.wrapping_sub(slot.born) > window {
            slot.lives = lives;
        }
        self.stats.class.of_mut(slot.class).hits += 1;
        slot.value.as_ref()
    }

    pub(crate) fn contains(&self, hash: u64, key: &Key) -> bool {
        self.find(hash, key).is_some_and(|index| self.slab.slot(index).value.is_some())
    }

    /// Inserts a value, unless it is there already (then that one stays) or too large.
    pub(crate) fn insert(&mut self, hash: u64, arrival: Arrival<V>) {
        self.ticks = self.ticks.wrapping_add(1);
        let (class, charge) = (arrival.class, arrival.charge_bytes);
        let Some(cost) = charge.checked_add(self.budget.overhead).filter(|cost| self.fits(*cost))
        else {
            self.stats.refused += 1;
            return;
        };
        let known = self.find(hash, &arrival.key);
        if known.is_some_and(|index| self.slab.slot(index).value.is_some()) {
            return;
        }
        self.make_room(u64::from(cost));
        let room_for_nodes = self.stats.class.node.bytes < self.budget.nodes;
        match known {
            Some(ghost) => self.revive(ghost, cost, arrival),
            None => self.admit(hash, cost, room_for_nodes, arrival),
        }
        let stats = self.stats.class.of_mut(class);
        stats.inserts += 1;
        stats.entries += 1;
        stats.bytes += u64::from(cost);
        self.trim_ghosts();
        assert!(self.resident_bytes() <= self.budget.capacity, "the cache stays under its cap");
    }

    /// Forgets a key and its ghost. Returns its value, if there was one, and its standing.
    pub(crate) fn remove(&mut self, hash: u64, key: &Key) -> Option<(V, Standing)> {
        let index = self.find(hash, key)?;
        let slot = self.slab.slot_mut(index);
        let (class, cost, value) = (slot.class, slot.cost, slot.value.take());
        let standing = Standing { queue: slot.queue(), lives: slot.lives };
        self.release(index);
        let value = value?;
        self.stats.class.of_mut(class).removals += 1;
        self.discount(class, cost);
        Some((value, standing))
    }

    pub(crate) fn set_capacity(&mut self, capacity: u64) {
        self.budget = Budget::new::<V>(capacity);
        self.stats.recent_target_bytes = self.stats.recent_target_bytes.min(self.budget.residents);
        self.make_room(0);
        self.trim_ghosts();
        self.slab.shrink();
        assert!(self.resident_bytes() <= self.budget.capacity, "the cache stays under its cap");
    }

    /// Values, overhead and ghosts, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        match self.slab.len() {
            0 => 0,
            _ => {
                let ghosts = self.ghosts() * u64::from(self.budget.overhead);
                self.budget.base + self.values_bytes() + ghosts
            }
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            recent_bytes: self.slab.list(Queue::T1).bytes,
            frequent_bytes: self.slab.list(Queue::T2).bytes,
            ghosts: self.ghosts(),
            resident_bytes: self.resident_bytes(),
            capacity_bytes: self.budget.capacity,
            ..self.stats
        }
    }

    /// A key never seen, or forgotten.
    fn admit(&mut self, hash: u64, cost: u32, room_for_nodes: bool, arrival: Arrival<V>) {
        let Arrival { key, value, class, standing, .. } = arrival;
        let lives = u8::from(class == Class::Node && room_for_nodes);
        let fresh = Standing { queue: Queue::T1, lives };
        let Standing { queue, lives } = standing.unwrap_or(fresh);
        let fresh = Fresh { key, value, cost, born: self.ticks, class, lives };
        let index = self.slab.push(fresh, queue);
        let slab = &self.slab;
        self.table.insert_unique(hash, index, |&index| slab.slot(index).key.mixed());
    }

    /// A key whose value was evicted too early: learns from it, and treats it as frequent.
    fn revive(&mut self, ghost: u32, cost: u32, arrival: Arrival<V>) {
        let b1 = self.slab.list(Queue::B1).bytes;
        let b2 = self.slab.list(Queue::B2).bytes;
        let slot = self.slab.slot(ghost);
        let (from, step) = (slot.queue(), u64::from(slot.cost));
        let target = &mut self.stats.recent_target_bytes;
        // The shorter a ghost list, the more a hit in it means. No list is empty that was hit, and
        // the step is at most the length of the other list.
        if from == Queue::B1 {
            *target = (*target + step * (b2 / b1.max(1)).max(1)).min(self.budget.residents);
        } else {
            *target = target.saturating_sub(step * (b1 / b2.max(1)).max(1));
        }
        self.stats.class.of_mut(arrival.class).ghost_hits += 1;
        let born = self.ticks;
        self.slab.relink(ghost, Queue::T2, |slot| {
            slot.value = Some(arrival.value);
            (slot.class, slot.cost, slot.born, slot.lives) = (arrival.class, cost, born, 0);
        });
    }

    /// Evicts until `cost` more fits.
    fn make_room(&mut self, cost: u64) {
        while self.values_bytes() + cost > self.budget.residents {
            self.evict();
        }
    }

    /// Moves the clock's hand to the next entry that has no life left, and makes it a ghost.
    fn evict(&mut self) {
        for passed in 0_u64.. {
            let (t1, t2) = (self.slab.list(Queue::T1).bytes, self.slab.list(Queue::T2).bytes);
            let recent = t2 == 0 || (t1 > 0 && t1 >= self.stats.recent_target_bytes);
            let (from, to) = if recent { (Queue::T1, Queue::B1) } else { (Queue::T2, Queue::B2) };
            let index = self.slab.oldest(from).expect("over budget: something is resident");
            let slot = self.slab.slot(index);
            if slot.lives == 0 || passed == SWEEP_MAX {
                let (class, cost) = (slot.class, slot.cost);
                self.slab.relink(index, to, |slot| slot.value = None);
                self.stats.class.of_mut(class).evictions += 1;
                self.discount(class, cost);
                return;
            }
            self.slab.relink(index, Queue::T2, |slot| slot.lives -= 1);
        }
    }

    fn trim_ghosts(&mut self) {
        loop {
            let [t1, b1, b2] = [Queue::T1, Queue::B1, Queue::B2].map(|q| *self.slab.list(q));
            let too_recent = t1.bytes + b1.bytes > self.budget.residents;
            let too_large = b1.bytes + b2.bytes > self.budget.residents;
            let too_many = self.ghosts() > self.budget.ghosts;
            // ARC lets B1 have its length and B2 the rest. If the number of ghosts is the limit,
            // because values are small, B2 would get nothing, and nothing would hold the target
            // down.
            let ghost = match (too_recent, too_large, too_many) {
                (true, _, _) => self.slab.oldest(Queue::B1),
                (_, true, _) => self.slab.oldest(Queue::B2).or(self.slab.oldest(Queue::B1)),
                (_, _, true) if b1.entries > b2.entries => self.slab.oldest(Queue::B1),
                (_, _, true) => self.slab.oldest(Queue::B2),
                (false, false, false) => return,
            };
            self.release(ghost.expect("a list of ghosts is too long"));
        }
    }

    /// Takes a slot out of table and slab.
    fn release(&mut self, index: u32) {
        let hash = self.slab.slot(index).key.mixed();
        if let Ok(entry) = self.table.find_entry(hash, |&known| known == index) {
            entry.remove();
        }
        if let Some((moved, old)) = self.slab.release(index)
            && let Some(known) = self.table.find_mut(moved.mixed(), |&known| known == old)
        {
            *known = index;
        }
        let (buckets, entries) = (self.table.num_buckets(), self.table.len());
        if buckets > TABLE_BUCKETS_MIN && 7 * buckets > 32 * entries {
            let slab = &self.slab;
            self.table.shrink_to(entries, |&index| slab.slot(index).key.mixed());
        }
    }

    fn find(&self, hash: u64, key: &Key) -> Option<u32> {
        self.table.find(hash, |&index| self.slab.slot(index).key == *key).copied()
    }

    fn fits(&self, cost: u32) -> bool {
        u64::from(cost) <= self.budget.entry
    }

    fn discount(&mut self, class: Class, cost: u32) {
        let stats = self.stats.class.of_mut(class);
        stats.entries -= 1;
        stats.bytes -= u64::from(cost);
    }

    fn values_bytes(&self) -> u64 {
        self.slab.list(Queue::T1).bytes + self.slab.list(Queue::T2).bytes
    }

    fn ghosts(&self) -> u64 {
        u64::from(self.slab.list(Queue::B1).entries) + u64::from(self.slab.list(Queue::B2).entries)
    }

    /// How many ticks after its arrival hits on an entry belong to the access that brought it in.
    fn correlation_window(&self) -> u32 {
        (self.slab.list(Queue::T1).entries + self.slab.list(Queue::T2).entries) / WINDOW_SHARE
    }
}

/// How often the hand passes a marked entry.
fn lives_of_marked(class: Class) -> u8 {
    match class {
        Class::Node => 2,
        Class::Data => 1,
    }
}

/// The window in ticks is this part of the resident entries. 1/8 to 1/2 differ by 1 %; 1/16 is
/// too short for read-ahead in a small cache.
const WINDOW_SHARE: u32 = 4;
/// Entries that the hand passes at most for one eviction: bounds the time under the lock when all
/// are marked. 16 cost 0.3 % more device reads, 1024 save none.
const SWEEP_MAX: u64 = 64;
/// Tables up to this size are not shrunk: `Budget::base` pays for them.
const TABLE_BUCKETS_MIN: usize = 64;

#[cfg(test)]
mod tests;
