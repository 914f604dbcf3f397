//! The policy, for one shard.

use hashbrown::HashTable;

use crate::budget::Budget;
use crate::slab::{Queue, Slab, Slot};
use crate::stats::{ClassStats, PerClass, Stats};
use crate::{Class, Key};

pub(crate) struct Shard<V> {
    table: HashTable<u32>,
    slab: Slab<V>,
    budget: Budget,
    /// ARC's p of each class: what T1 should come to, in bytes.
    recent_target: PerClass<u64>,
    /// What the nodes should come to, in bytes.
    node_target: u64,
    /// Counts gets and inserts; wraps.
    ticks: u32,
    counters: PerClass<ClassStats>,
    misses: u64,
    refused: u64,
}

impl<V: Clone> Shard<V> {
    pub(crate) fn new(capacity: u64) -> Self {
        let budget = Budget::new::<V>(capacity);
        Shard {
            table: HashTable::new(),
            slab: Slab::new(),
            budget,
            recent_target: PerClass::default(),
            node_target: budget.residents / NODE_START.1 * NODE_START.0,
            ticks: 0,
            counters: PerClass::default(),
            misses: 0,
            refused: 0,
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, hash: u64, key: &Key) -> Option<V> {
        self.ticks = self.ticks.wrapping_add(1);
        let window = self.correlation_window();
        if let Some(index) = self.find(hash, key) {
            let slot = self.slab.slot_mut(index);
            if let Some(value) = &slot.value {
                let value = value.clone();
                if !slot.referenced && self.ticks.wrapping_sub(slot.born) > window {
                    slot.referenced = true;
                }
                self.counters.of_mut(slot.class).hits += 1;
                return Some(value);
            }
        }
        self.misses += 1;
        None
    }

    pub(crate) fn contains(&self, hash: u64, key: &Key) -> bool {
        self.find(hash, key).is_some_and(|index| self.slab.slot(index).value.is_some())
    }

    pub(crate) fn insert(&mut self, hash: u64, key: Key, value: V, charge: u32, class: Class) {
        self.ticks = self.ticks.wrapping_add(1);
        let cost = charge.saturating_add(self.budget.overhead);
        if u64::from(cost) > self.budget.entry_cost_max() {
            self.refused += 1;
            return;
        }
        let known = self.find(hash, &key);
        if known.is_some_and(|index| self.slab.slot(index).value.is_some()) {
            return;
        }
        self.make_room(u64::from(cost), class);
        match known {
            Some(ghost) => {
                self.learn(ghost);
                let slot = self.slab.slot_mut(ghost);
                slot.value = Some(value);
                slot.born = self.ticks;
                slot.referenced = false;
                // cost may differ
                self.slab.relink(ghost, Queue::T2);
            }
            None => {
                let index = self.slab.push(Slot::new(key, value, cost, self.ticks, class));
                let slab = &self.slab;
                self.table.insert_unique(hash, index, |&index| slab.slot(index).key.hash());
            }
        }
        self.counters.of_mut(class).inserts += 1;
        self.trim_ghosts(Class::Node);
        self.trim_ghosts(Class::Data);
        assert!(self.resident_bytes() <= self.budget.capacity, "the cap holds");
    }

    pub(crate) fn remove(&mut self, hash: u64, key: &Key) -> bool {
        let Some(index) = self.find(hash, key) else { return false };
        let slot = self.slab.slot(index);
        let (class, resident) = (slot.class, slot.value.is_some());
        self.counters.of_mut(class).removals += 1;
        self.release(index);
        resident
    }

    pub(crate) fn set_capacity(&mut self, capacity: u64) {
        self.budget = Budget::new::<V>(capacity);
        self.make_room(0, Class::Data);
        self.trim_ghosts(Class::Node);
        self.trim_ghosts(Class::Data);
        assert!(self.resident_bytes() <= self.budget.capacity, "the cap holds");
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        if self.slab.len() == 0 {
            return 0;
        }
        let residents = self.class_bytes(Class::Node) + self.class_bytes(Class::Data);
        let ghosts = self.ghosts(Class::Node) + self.ghosts(Class::Data);
        self.budget.base + residents + ghosts * u64::from(self.budget.overhead)
    }

    pub(crate) fn stats(&self) -> Stats {
        let class = |class| ClassStats {
            entries: self.entries(class),
            ghosts: self.ghosts(class),
            recent_bytes: self.slab.list(class, Queue::T1).bytes,
            frequent_bytes: self.slab.list(class, Queue::T2).bytes,
            recent_target_bytes: *self.recent_target.of(class),
            ..*self.counters.of(class)
        };
        Stats {
            class: PerClass { node: class(Class::Node), data: class(Class::Data) },
            misses: self.misses,
            refused: self.refused,
            resident_bytes: self.resident_bytes(),
            capacity_bytes: self.budget.capacity,
            node_target_bytes: self.node_target,
        }
    }

    fn make_room(&mut self, cost: u64, class: Class) {
        let incoming = match class { Class::Node => cost, Class::Data => 0 };
        loop {
            let (nodes, data) = (self.class_bytes(Class::Node), self.class_bytes(Class::Data));
            if nodes + data + cost <= self.budget.residents {
                return;
            }
            let victim = if data == 0 || (nodes > 0 && nodes + incoming > self.node_target) {
                Class::Node
            } else {
                Class::Data
            };
            self.evict(victim);
        }
    }

    /// CAR's replace
    fn evict(&mut self, class: Class) {
        let mut passed = 0;
        loop {
            let t1 = self.slab.list(class, Queue::T1).bytes;
            let t2 = self.slab.list(class, Queue::T2).bytes;
            let target = (*self.recent_target.of(class)).clamp(1, t1 + t2);
            let (from, ghosts) =
                if t1 >= target || t2 == 0 { (Queue::T1, Queue::B1) } else { (Queue::T2, Queue::B2) };
            let Some(oldest) = self.slab.oldest(class, from) else { return };
            let slot = self.slab.slot_mut(oldest);
            if slot.referenced && passed < SWEEP_MAX {
                slot.referenced = false;
                passed += 1;
                self.slab.relink(oldest, Queue::T2);
            } else {
                slot.value = None;
                self.slab.relink(oldest, ghosts);
                self.counters.of_mut(class).evictions += 1;
                return;
            }
        }
    }

    fn learn(&mut self, ghost: u32) {
        let slot = self.slab.slot(ghost);
        let (class, cost, queue) = (slot.class, u64::from(slot.cost), slot.queue());
        let b1 = self.slab.list(class, Queue::B1).bytes;
        let b2 = self.slab.list(class, Queue::B2).bytes;
        let room = self.class_bytes(class) + cost;
        let target = self.recent_target.of_mut(class);
        if queue == Queue::B1 {
            *target = (*target + cost * (b2 / b1).max(1)).min(room);
            self.counters.of_mut(class).ghost_hits_recent += 1;
        } else {
            *target = (*target).min(room).saturating_sub(cost * (b1 / b2).max(1));
            self.counters.of_mut(class).ghost_hits_frequent += 1;
        }
        let nodes = self.ghost_bytes(Class::Node).max(1);
        let data = self.ghost_bytes(Class::Data).max(1);
        let (least, most) = (self.budget.residents / NODE_MIN.1 * NODE_MIN.0, self.budget.residents / NODE_MAX.1 * NODE_MAX.0);
        let step = match class {
            Class::Node => NODE_WEIGHT * cost * (data / nodes).max(1),
            Class::Data => cost * (nodes / data).max(1),
        };
        self.node_target = match class {
            Class::Node => (self.node_target + step).min(most),
            Class::Data => self.node_target.saturating_sub(step).max(least),
        };
    }

    fn trim_ghosts(&mut self, class: Class) {
        let limit = self.budget.residents;
        while self.slab.list(class, Queue::T1).bytes + self.slab.list(class, Queue::B1).bytes > limit {
            let Some(ghost) = self.slab.oldest(class, Queue::B1) else { break };
            self.release(ghost);
        }
        while self.ghost_bytes(class) > limit || self.ghosts(class) > self.budget.ghosts {
            let ghost = self.slab.oldest(class, Queue::B2).or(self.slab.oldest(class, Queue::B1));
            let Some(ghost) = ghost else { break };
            self.release(ghost);
        }
    }

    fn release(&mut self, index: u32) {
        let hash = self.slab.slot(index).key.hash();
        if let Ok(entry) = self.table.find_entry(hash, |&found| found == index) {
            entry.remove();
        }
        if let Some((moved, old)) = self.slab.release(index)
            && let Some(entry) = self.table.find_mut(moved.hash(), |&found| found == old)
        {
            *entry = index;
        }
        let len = self.table.len();
        if self.table.num_buckets() > 64 && self.table.num_buckets() > 7 * len / 2 {
            let slab = &self.slab;
            self.table.shrink_to(len, |&index| slab.slot(index).key.hash());
        }
    }

    fn correlation_window(&self) -> u32 {
        let mut n = 0;
        for class in [Class::Node, Class::Data] {
            for queue in [Queue::T1, Queue::T2] { n += self.slab.list(class, queue).entries; }
        }
        if WINDOW_SHARE == 0 { 0 } else { n / WINDOW_SHARE }
    }

    fn find(&self, hash: u64, key: &Key) -> Option<u32> {
        self.table.find(hash, |&index| self.slab.slot(index).key == *key).copied()
    }

    fn class_bytes(&self, class: Class) -> u64 {
        self.slab.list(class, Queue::T1).bytes + self.slab.list(class, Queue::T2).bytes
    }
    fn ghost_bytes(&self, class: Class) -> u64 {
        self.slab.list(class, Queue::B1).bytes + self.slab.list(class, Queue::B2).bytes
    }
    fn entries(&self, class: Class) -> u64 {
        u64::from(self.slab.list(class, Queue::T1).entries + self.slab.list(class, Queue::T2).entries)
    }
    fn ghosts(&self, class: Class) -> u64 {
        u64::from(self.slab.list(class, Queue::B1).entries + self.slab.list(class, Queue::B2).entries)
    }
}

const NODE_START: (u64, u64) = (3, 4);
const NODE_MIN: (u64, u64) = (1, 16);
const NODE_MAX: (u64, u64) = (15, 16);
const NODE_WEIGHT: u64 = 1;
const WINDOW_SHARE: u32 = 16;
const SWEEP_MAX: u32 = 64;
