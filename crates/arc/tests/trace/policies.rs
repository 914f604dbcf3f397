//! The compared policies: the cache, LRU, and ARC as in the paper (one class, no rules added).

use std::collections::{BTreeMap, HashMap};

use aquifer_arc::{Cache, Class, Key};

pub trait Policy {
    /// Whether the block is cached. Counts as a use.
    fn get(&mut self, key: Key) -> bool;
    fn insert(&mut self, key: Key, bytes: u32, class: Class);
    fn remove(&mut self, key: Key);
    /// `key` takes the place of `old`, which is freed.
    fn replace(&mut self, old: Key, key: Key, bytes: u32, class: Class) {
        self.remove(old);
        self.insert(key, bytes, class);
    }
}

impl Policy for Cache<()> {
    fn get(&mut self, key: Key) -> bool {
        Cache::get(self, &key).is_some()
    }
    fn insert(&mut self, key: Key, bytes: u32, class: Class) {
        Cache::insert(self, key, (), bytes, class);
    }
    fn remove(&mut self, key: Key) {
        Cache::remove(self, &key);
    }
    fn replace(&mut self, old: Key, key: Key, bytes: u32, class: Class) {
        Cache::replace(self, &old, key, |_| (), bytes, class);
    }
}

/// A list in order of use.
#[derive(Default)]
struct List {
    entries: HashMap<Key, (u64, u64)>,
    order: BTreeMap<u64, Key>,
    now: u64,
    bytes: u64,
}

impl List {
    fn push(&mut self, key: Key, bytes: u64) {
        self.now += 1;
        self.entries.insert(key, (self.now, bytes));
        self.order.insert(self.now, key);
        self.bytes += bytes;
    }

    fn take(&mut self, key: Key) -> Option<u64> {
        let (at, bytes) = self.entries.remove(&key)?;
        self.order.remove(&at);
        self.bytes -= bytes;
        Some(bytes)
    }

    fn take_oldest(&mut self) -> Option<(Key, u64)> {
        let (_, &key) = self.order.first_key_value()?;
        self.take(key).map(|bytes| (key, bytes))
    }
}

/// Megiddo and Modha, FAST 2003, figure 4, in bytes.
pub struct TextbookArc {
    capacity: u64,
    p: u64,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
    /// LRU instead: p = c, and nothing ever enters T2.
    lru: bool,
}

pub fn lru(capacity: u64) -> TextbookArc {
    TextbookArc { lru: true, ..TextbookArc::new(capacity) }
}

impl TextbookArc {
    /// 3 % is left for bookkeeping, as in the cache.
    pub fn new(capacity: u64) -> Self {
        let (t1, t2, b1, b2) = Default::default();
        TextbookArc { capacity: capacity / 100 * 97, p: 0, t1, t2, b1, b2, lru: false }
    }

    fn evict(&mut self, hit_b2: bool) {
        let t1 = self.t1.bytes;
        let recent = t1 > 0 && (t1 > self.p || (hit_b2 && t1 == self.p) || self.t2.bytes == 0);
        let (list, ghosts) =
            if recent { (&mut self.t1, &mut self.b1) } else { (&mut self.t2, &mut self.b2) };
        let (key, bytes) = list.take_oldest().expect("something is cached");
        ghosts.push(key, bytes);
    }
}

impl Policy for TextbookArc {
    fn get(&mut self, key: Key) -> bool {
        let Some(bytes) = self.t1.take(key).or_else(|| self.t2.take(key)) else {
            return false;
        };
        let list = if self.lru { &mut self.t1 } else { &mut self.t2 };
        list.push(key, bytes);
        true
    }

    fn insert(&mut self, key: Key, bytes: u32, _: Class) {
        let bytes = u64::from(bytes);
        let (b1, b2) = (self.b1.bytes, self.b2.bytes);
        let ghost = if self.lru {
            None
        } else if self.b1.take(key).is_some() {
            self.p = (self.p + bytes * (b2 / b1).max(1)).min(self.capacity);
            Some(false)
        } else if self.b2.take(key).is_some() {
            self.p = self.p.saturating_sub(bytes * (b1 / b2).max(1));
            Some(true)
        } else {
            None
        };
        while self.t1.bytes + self.t2.bytes + bytes > self.capacity {
            self.evict(ghost == Some(true));
        }
        if ghost.is_some() {
            self.t2.push(key, bytes)
        } else {
            self.t1.push(key, bytes)
        }
        while self.b1.bytes > 0 && self.t1.bytes + self.b1.bytes > self.capacity {
            self.b1.take_oldest();
        }
        while self.b2.bytes > 0 && self.b1.bytes + self.b2.bytes > self.capacity {
            self.b2.take_oldest();
        }
    }

    fn remove(&mut self, key: Key) {
        for list in [&mut self.t1, &mut self.t2, &mut self.b1, &mut self.b2] {
            list.take(key);
        }
    }
}
