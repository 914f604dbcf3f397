//! The policy, written a second time for equal costs: plain vectors, oldest first, linear search.

use crate::Class;
use crate::shard::{SWEEP_MAX, WINDOW_SHARE};

#[derive(Clone, Copy)]
struct Entry {
    name: u64,
    class: Class,
    born: u64,
    lives: u8,
}

/// CAR (Bansal and Modha, FAST 2004, figure 2) with the three rules of the crate's head.
pub(super) struct Model {
    cost: u64,
    capacity: u64,
    t1: Vec<Entry>,
    t2: Vec<Entry>,
    b1: Vec<Entry>,
    b2: Vec<Entry>,
    p: u64,
    now: u64,
    pub hits: u64,
}

impl Model {
    pub(super) fn new(cost: u64, capacity: u64) -> Self {
        let (t1, t2, b1, b2) = Default::default();
        Model { cost, capacity, t1, t2, b1, b2, p: 0, now: 0, hits: 0 }
    }

    pub(super) fn target(&self) -> u64 {
        self.p
    }

    /// Names of T1, T2, B1, B2, newest first.
    pub(super) fn names(&self) -> [Vec<u64>; 4] {
        [&self.t1, &self.t2, &self.b1, &self.b2]
            .map(|list| list.iter().rev().map(|entry| entry.name).collect())
    }

    pub(super) fn read(&mut self, name: u64, class: Class) -> bool {
        self.now += 1;
        let window = (self.t1.len() + self.t2.len()) as u64 / u64::from(WINDOW_SHARE);
        let mut residents = self.t1.iter_mut().chain(&mut self.t2);
        let Some(entry) = residents.find(|entry| entry.name == name) else {
            self.insert(name, class, None);
            return false;
        };
        if self.now - entry.born > window {
            entry.lives = if class == Class::Node { 2 } else { 1 };
        }
        self.hits += 1;
        true
    }

    /// `inherits`: whether the predecessor was in T2, and its lives.
    pub(super) fn insert(&mut self, name: u64, class: Class, inherits: Option<(bool, u8)>) {
        self.now += 1;
        if self.t1.iter().chain(&self.t2).any(|entry| entry.name == name) {
            return;
        }
        while (self.t1.len() + self.t2.len() + 1) as u64 * self.cost > self.capacity {
            self.replace_one();
        }
        let in_b1 = self.b1.iter().position(|entry| entry.name == name);
        let in_b2 = self.b2.iter().position(|entry| entry.name == name);
        let mut entry = Entry { name, class, born: self.now, lives: 0 };
        if let Some(at) = in_b1 {
            let step = (self.b2.len() / self.b1.len()).max(1) as u64 * self.cost;
            self.p = (self.p + step).min(self.capacity);
            self.b1.remove(at);
            self.t2.push(entry);
        } else if let Some(at) = in_b2 {
            let step = (self.b1.len() / self.b2.len()).max(1) as u64 * self.cost;
            self.p = self.p.saturating_sub(step);
            self.b2.remove(at);
            self.t2.push(entry);
        } else if let Some((frequent, lives)) = inherits {
            entry.lives = lives;
            if frequent { self.t2.push(entry) } else { self.t1.push(entry) }
        } else {
            let nodes = self.t1.iter().chain(&self.t2).filter(|entry| entry.class == Class::Node);
            let room = (nodes.count() as u64 * self.cost) < self.capacity / 4 * 3;
            entry.lives = u8::from(class == Class::Node && room);
            self.t1.push(entry);
        }
        while (self.t1.len() + self.b1.len()) as u64 * self.cost > self.capacity {
            self.b1.remove(0);
        }
        while (self.b1.len() + self.b2.len()) as u64 * self.cost > self.capacity {
            if self.b2.is_empty() {
                self.b1.remove(0)
            } else {
                self.b2.remove(0)
            };
        }
    }

    pub(super) fn remove(&mut self, name: u64) -> Option<(bool, u8)> {
        let standing = |list: &[Entry]| list.iter().find(|e| e.name == name).map(|e| e.lives);
        let recent = standing(&self.t1).map(|lives| (false, lives));
        let frequent = standing(&self.t2).map(|lives| (true, lives));
        for list in [&mut self.t1, &mut self.t2, &mut self.b1, &mut self.b2] {
            list.retain(|entry| entry.name != name);
        }
        recent.or(frequent)
    }

    pub(super) fn replace(&mut self, old: u64, new: u64, class: Class) {
        let standing = self.remove(old);
        self.insert(new, class, standing);
    }

    fn replace_one(&mut self) {
        let mut passed = 0;
        loop {
            let recent = self.t1.len() as u64 * self.cost >= self.p.max(1);
            let recent = recent || self.t2.is_empty();
            let list = if recent { &mut self.t1 } else { &mut self.t2 };
            let mut entry = list.remove(0);
            if entry.lives > 0 && passed < SWEEP_MAX {
                entry.lives -= 1;
                passed += 1;
                self.t2.push(entry);
            } else {
                let ghosts = if recent { &mut self.b1 } else { &mut self.b2 };
                ghosts.push(entry);
                return;
            }
        }
    }
}
