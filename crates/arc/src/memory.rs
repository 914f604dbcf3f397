//! The memory of a process: who has how much of it, and that all of it stays under one cap.
//!
//! [`Share`]s have what they need: dirty data, requests of clients, bitmaps, objects ([`Shelf`]).
//! The caches of all pools have the rest, so an idle server's memory is a read cache. Among caches
//! the rest is divided by need, once a second ([`Memory::balance`]).
//!
//! # Invariants
//! - Before a share holds more than it is charged for, the caches have given up the difference.
//! - Charges, what is kept for things that nobody counts, and the caches' capacities are together
//!   at most the cap. Who holds shares bounds them so that the caches keep [`FLOOR`] of it.
//! - A charge follows its share down as well as up, in steps: a write changes no capacity as a
//!   rule.

use std::sync::{Arc, Weak};

use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::cache::{Cache, Shrinks};
use crate::shelf::Shelf;
use crate::stats::Stats;

/// A part of the cap that is kept for what nobody counts: walks, reads under way.
const KEPT: u64 = 16;
/// The least part of the cap that caches have together.
const FLOOR: u64 = 8;
/// A charge moves in steps: the memory has so many.
const STEPS: u64 = 256;
/// The caches give up no more at once: it would hold up the write or request that asks.
const STEP_BYTES_MAX: u64 = 4 << 20;
/// Parts into which the caches' memory is divided.
const PARTS: u64 = 1 << 12;
/// Parts that move at once to the cache that needs them more.
const MOVED: u64 = PARTS / 16;
/// A cache keeps at least this part of an even share.
const LEAST: u64 = 8;
/// So many a second are a need; fewer are noise.
const NEED: u64 = 64;
/// A cache is idle beside one that evicts this many times what it is asked for.
const IDLER: u64 = 16;

/// The memory of a process.
#[derive(Debug)]
pub struct Memory {
    cap_bytes: u64,
    /// Caches.
    pools: AtomicUsize,
    shelf: Mutex<Weak<Shelf>>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Bytes that all shares are charged for.
    charged_bytes: u64,
    caches: Vec<Member>,
}

/// A cache, and its part of what the caches have.
struct Member {
    cache: Weak<dyn Shrinks>,
    /// Never more than this.
    bytes_max: u64,
    parts: u64,
    /// Its counters at the last look.
    seen: Look,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Memory {
    /// A process that may take `cap_bytes`.
    pub fn new(cap_bytes: u64) -> Arc<Memory> {
        let (pools, shelf, inner) = Default::default();
        Arc::new(Memory { cap_bytes, pools, shelf, inner })
    }

    /// Returns the bytes that it may take.
    pub fn cap_bytes(&self) -> u64 {
        self.cap_bytes
    }

    /// How many caches share it: one for each pool.
    pub fn pools(&self) -> usize {
        self.pools.load(Ordering::Relaxed)
    }

    /// A new share.
    pub fn share(self: &Arc<Self>) -> Share {
        let step_bytes = (self.cap_bytes / STEPS).clamp(1, STEP_BYTES_MAX);
        Share { memory: self.clone(), step_bytes, charged_bytes: AtomicU64::new(0) }
    }

    /// Things that all pools keep in memory in case they are used again: one shelf for all.
    pub fn shelf(self: &Arc<Self>) -> Arc<Shelf> {
        let mut known = self.shelf.lock();
        if let Some(shelf) = known.upgrade() {
            return shelf;
        }
        let shelf = Arc::new(Shelf::new(self.share(), self.cap_bytes));
        *known = Arc::downgrade(&shelf);
        shelf
    }

    /// A new cache, of at most `bytes_max`. It has its part of the memory as long as it lives.
    pub fn cache<V: Clone + Send + 'static>(
        self: &Arc<Self>,
        shards: u32,
        bytes_max: u64,
    ) -> Arc<Cache<V>> {
        // The number of shards follows from what it can ever have.
        let cache = Arc::new(Cache::new(bytes_max.min(self.most_bytes()), shards));
        let known: Weak<dyn Shrinks> = Arc::downgrade(&(cache.clone() as Arc<dyn Shrinks>));
        let mut inner = self.inner.lock();
        inner.caches.retain(|member| member.cache.strong_count() > 0);
        inner.caches.push(Member { cache: known, bytes_max, parts: 0, seen: Look::default() });
        self.divide_evenly(&mut inner);
        self.apply(&inner);
        cache
    }

    /// Divides what the caches have by need: a cache whose values come back soon after they were
    /// evicted takes from the one that misses its own least. Call it once a second.
    pub fn balance(&self) {
        let mut inner = self.inner.lock();
        let before = inner.caches.len();
        inner.caches.retain(|member| member.cache.strong_count() > 0);
        let count = inner.caches.len();
        let moves = match count == before {
            true => count > 1 && moved(&mut inner.caches),
            false => {
                self.divide_evenly(&mut inner);
                true
            }
        };
        if moves {
            self.apply(&inner);
        }
    }

    /// Returns the bytes that the caches may take together now.
    pub fn caches_bytes(&self) -> u64 {
        self.left_bytes(self.inner.lock().charged_bytes)
    }

    /// Returns the bytes that all shares are charged for.
    pub fn charged_bytes(&self) -> u64 {
        self.inner.lock().charged_bytes
    }

    fn most_bytes(&self) -> u64 {
        self.cap_bytes - self.cap_bytes / KEPT
    }

    fn left_bytes(&self, charged_bytes: u64) -> u64 {
        self.most_bytes().saturating_sub(charged_bytes).max(self.cap_bytes / FLOOR)
    }

    fn divide_evenly(&self, inner: &mut Inner) {
        let count = inner.caches.len();
        self.pools.store(count, Ordering::Relaxed);
        for member in &mut inner.caches {
            member.parts = PARTS / count as u64;
        }
    }

    /// Gives each cache its part. Returns when no cache has more.
    fn apply(&self, inner: &Inner) {
        let left = self.left_bytes(inner.charged_bytes);
        for member in &inner.caches {
            if let Some(cache) = member.cache.upgrade() {
                cache.resize((left / PARTS * member.parts).min(member.bytes_max));
            }
        }
    }
}

/// Moves some parts to the cache that needs them most. Whether any moved.
fn moved(caches: &mut [Member]) -> bool {
    let least = PARTS / caches.len() as u64 / LEAST;
    let looks: Vec<Look> = caches.iter_mut().map(Member::look).collect();
    let look = |at: usize| looks.get(at).copied().unwrap_or_default();
    let all = 0..caches.len();
    let gives = |at: &usize| caches.get(*at).is_some_and(|member| member.parts > least);
    // Who missed what it had evicted shortly before takes from who missed least of that.
    let neediest = all.clone().max_by_key(|at| look(*at).ghost_hits);
    let other = all.clone().filter(|at| Some(*at) != neediest).filter(gives);
    let least_needy = other.min_by_key(|at| look(*at).ghost_hits);
    // Who turns over takes from who is idle: that a larger cache would help shows in no ghost where
    // more is read in turn than ghosts are kept of.
    let busiest = all.clone().max_by_key(|at| look(*at).evictions);
    let other = all.filter(|at| Some(*at) != busiest).filter(gives);
    let idlest = other.min_by_key(|at| look(*at).gets);
    let needs = |to: usize, from: usize| look(to).ghost_hits >= 2 * look(from).ghost_hits + NEED;
    let idles = |to: usize, from: usize| look(to).evictions >= IDLER * look(from).gets + NEED;
    let by_need = neediest.zip(least_needy).filter(|(to, from)| needs(*to, *from));
    let by_idleness = busiest.zip(idlest).filter(|(to, from)| idles(*to, *from));
    let Some((to, from)) = by_need.or(by_idleness) else { return false };
    let mut parts = 0;
    if let Some(member) = caches.get_mut(from) {
        parts = MOVED.min(member.parts - least);
        member.parts -= parts;
    }
    if let Some(member) = caches.get_mut(to) {
        member.parts += parts;
    }
    true
}

/// Events in a cache since the last look.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    ghost_hits: u64,
    evictions: u64,
    gets: u64,
}

impl Look {
    fn of(stats: &Stats) -> Look {
        let (node, data) = (stats.class.node, stats.class.data);
        Look {
            ghost_hits: node.ghost_hits + data.ghost_hits,
            evictions: node.evictions + data.evictions,
            gets: stats.hits() + stats.misses,
        }
    }
}

impl Member {
    fn look(&mut self) -> Look {
        let now = self.cache.upgrade().map(|cache| Look::of(&cache.counts())).unwrap_or_default();
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let look = Look {
            ghost_hits: since(now.ghost_hits, self.seen.ghost_hits),
            evictions: since(now.evictions, self.seen.evictions),
            gets: since(now.gets, self.seen.gets),
        };
        self.seen = now;
        look
    }
}

/// Memory that comes before the caches.
#[derive(Debug)]
pub struct Share {
    memory: Arc<Memory>,
    step_bytes: u64,
    charged_bytes: AtomicU64,
}

impl Share {
    /// It holds `bytes`, or is about to. Call it before memory is taken.
    pub fn grow_to(&self, bytes: u64) {
        if bytes <= self.charged_bytes.load(Ordering::SeqCst) {
            return;
        }
        let mut inner = self.memory.inner.lock();
        // Another thread may have done it.
        if bytes > self.charged_bytes.load(Ordering::SeqCst) {
            self.charge(&mut inner, bytes.next_multiple_of(self.step_bytes));
        }
    }

    /// It holds less: `now_bytes` says how much. A call costs little if that is near the charge.
    pub fn settle(&self, now_bytes: impl Fn() -> u64) {
        let wanted = |bytes: u64| (bytes + self.step_bytes).next_multiple_of(self.step_bytes);
        if wanted(now_bytes()) >= self.charged_bytes.load(Ordering::SeqCst) {
            return;
        }
        let mut inner = self.memory.inner.lock();
        let lower = wanted(now_bytes());
        if lower < self.charged_bytes.load(Ordering::SeqCst) {
            self.charge(&mut inner, lower);
            // Who grew meanwhile either sees the lower charge, or shows here.
            let now = now_bytes();
            if now > lower {
                self.charge(&mut inner, wanted(now));
            }
        }
    }

    /// Sets what it holds, if one caller alone changes it.
    pub fn set(&self, bytes: u64) {
        self.grow_to(bytes);
        self.settle(|| bytes);
    }

    /// Returns the bytes that it is charged for: what it holds, and up to two steps more.
    pub fn charged_bytes(&self) -> u64 {
        self.charged_bytes.load(Ordering::Relaxed)
    }

    fn charge(&self, inner: &mut Inner, bytes: u64) {
        let before = self.charged_bytes.load(Ordering::SeqCst);
        inner.charged_bytes = inner.charged_bytes - before + bytes;
        let grows = bytes > before;
        if grows {
            self.memory.apply(inner);
        }
        // Shown only now: nobody takes memory that the caches have not given up.
        self.charged_bytes.store(bytes, Ordering::SeqCst);
        if !grows {
            self.memory.apply(inner);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let memory = self.memory.clone();
        self.charge(&mut memory.inner.lock(), 0);
    }
}

#[cfg(test)]
mod tests;
