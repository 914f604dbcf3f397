//! The content of one disk: the durable image, and the volatile cache in front of it.
//!
//! Invariants:
//! - A completed write is a *version* in the cache until a flush that was submitted after its
//!   completion has completed. Before that there is no promise for it.
//! - A durable write supersedes every older version of its sector; an older version never wins over
//!   it later.
//! - After a failed flush the writes it covered may be *doomed*: reads still return them from the
//!   cache, but no later flush covers them. So a flush that succeeds on a second try proves
//!   nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;

use aquifer_blockio::{Page, PageMut};

use crate::disk::image::Image;
use crate::rng::Rng;

#[cfg(test)]
mod tests;

/// Damage of a durable sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corruption {
    /// This many different bits are inverted.
    FlipBits(u16),
    /// The sector holds random bytes.
    Garbage,
    /// The sector holds zeros.
    Zeros,
}

/// One write's content of one sector, not durable.
#[derive(Debug)]
pub(crate) struct Version {
    /// Place in the order of completions of this disk.
    pub(crate) completed: u64,
    /// The write it belongs to.
    pub(crate) write: u64,
    pub(crate) page: Page,
    doomed: bool,
}

/// The versions of one sector, in the order of their completion.
#[derive(Debug)]
pub(crate) struct Cached {
    /// All but the newest; nearly always empty, and then without memory of its own.
    older: Vec<Version>,
    newest: Version,
}

impl Cached {
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Version> {
        self.older.iter().chain([&self.newest])
    }

    pub(crate) fn newest(&self) -> &Version {
        &self.newest
    }

    fn push(&mut self, version: Version) {
        if self.older.len() == OLDER_VERSIONS_MAX {
            self.older.remove(0);
        }
        self.older.push(mem::replace(&mut self.newest, version));
    }

    /// The versions for which `keep` is true; `None` if there are none.
    fn retain(self, mut keep: impl FnMut(&Version) -> bool) -> Option<Cached> {
        let Cached { mut older, newest } = self;
        older.retain(&mut keep);
        if keep(&newest) {
            return Some(Cached { older, newest });
        }
        older.pop().map(|newest| Cached { older, newest })
    }
}

/// Content of one disk.
#[derive(Debug)]
pub(crate) struct Platter {
    pub(crate) durable: Image,
    pub(crate) cache: BTreeMap<u64, Cached>,
    /// Writes completed so far.
    completed: u64,
    /// Sectors that give a read error until they are written.
    unreadable: BTreeSet<u64>,
    /// The content of a hole.
    zero: Page,
}

impl Platter {
    pub(crate) fn new(image: Image) -> Self {
        Platter {
            durable: image,
            cache: BTreeMap::new(),
            completed: 0,
            unreadable: BTreeSet::new(),
            zero: Page::zeroed(),
        }
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.durable.sectors()
    }

    /// The number of the last completed write: a flush submitted now covers writes up to it.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    pub(crate) fn zero(&self) -> Page {
        self.zero.clone()
    }

    pub(crate) fn durable(&self, sector: u64) -> Page {
        self.durable.get(sector).unwrap_or(&self.zero).clone()
    }

    /// The newest completed content of a sector.
    pub(crate) fn newest(&self, sector: u64) -> Page {
        match self.cache.get(&sector) {
            Some(cached) => cached.newest.page.clone(),
            None => self.durable(sector),
        }
    }

    /// The newest completed content of `count` sectors from `sector` on.
    pub(crate) fn view(&self, sector: u64, count: usize) -> Vec<Page> {
        let mut pages = Vec::with_capacity(count);
        let end = sector.saturating_add(count as u64);
        if self.cache.is_empty() {
            pages.extend((sector..end).map(|sector| self.durable(sector)));
            return pages;
        }
        let mut cached = self.cache.range(sector..end).peekable();
        for at in sector..end {
            match cached.next_if(|(held, _)| **held == at) {
                Some((_, cached)) => pages.push(cached.newest.page.clone()),
                None => pages.push(self.durable(at)),
            }
        }
        pages
    }

    /// A write completes into the cache. Sectors past the end of the disk are dropped.
    pub(crate) fn store(&mut self, write: u64, sector: u64, pages: impl IntoIterator<Item = Page>) {
        self.completed += 1;
        let completed = self.completed;
        for (at, page) in (sector..self.sectors()).zip(pages) {
            self.add_version(at, Version { completed, write, page, doomed: false });
        }
    }

    /// A write completes and is durable.
    pub(crate) fn store_durable(&mut self, sector: u64, pages: Vec<Page>) {
        self.completed += 1;
        for (at, page) in (sector..self.sectors()).zip(pages) {
            self.cache.remove(&at);
            self.durable.set(at, page);
        }
    }

    fn add_version(&mut self, sector: u64, version: Version) {
        match self.cache.get_mut(&sector) {
            Some(cached) => cached.push(version),
            None => {
                self.cache.insert(sector, Cached { older: Vec::new(), newest: version });
            }
        }
    }

    /// Makes durable every write up to the one numbered `covered`.
    pub(crate) fn flush(&mut self, covered: u64) {
        for (sector, cached) in mem::take(&mut self.cache) {
            let winner = cached
                .versions()
                .filter(|version| version.completed <= covered && !version.doomed)
                .last()
                .map(|version| (version.completed, version.page.clone()));
            let Some((upto, page)) = winner else {
                self.cache.insert(sector, cached);
                continue;
            };
            self.durable.set(sector, page);
            if let Some(rest) = cached.retain(|version| version.completed > upto) {
                self.cache.insert(sector, rest);
            }
        }
    }

    /// A flush fails: some of the sectors it covered became durable, others did not, and some of
    /// those never will.
    pub(crate) fn flush_failed(&mut self, covered: u64, rng: &mut Rng) {
        for (sector, mut cached) in mem::take(&mut self.cache) {
            let fate = rng.below(3);
            if fate == 0 && cached.newest.completed <= covered && !cached.newest.doomed {
                self.durable.set(sector, cached.newest.page);
                continue;
            }
            if fate == 1 {
                for version in cached.older.iter_mut().chain([&mut cached.newest]) {
                    version.doomed |= version.completed <= covered;
                }
            }
            self.cache.insert(sector, cached);
        }
    }

    /// Damages the durable copy of a sector, leaving the cache as it is.
    pub(crate) fn corrupt(&mut self, sector: u64, how: Corruption, rng: &mut Rng) {
        let mut page = PageMut::zeroed();
        match how {
            Corruption::Zeros => {}
            Corruption::Garbage => rng.fill(page.as_mut_slice()),
            Corruption::FlipBits(count) => {
                page = PageMut::with_prefix(self.durable(sector).as_slice());
                let bits = page.len() as u64 * 8;
                let first = rng.below(bits);
                // An odd step visits every bit once before it returns to the first.
                let step = rng.below(bits) | 1;
                for index in 0..u64::from(count) {
                    let bit = (first + index * step) % bits;
                    let byte = usize::try_from(bit / 8).ok().and_then(|byte| page.get_mut(byte));
                    if let Some(byte) = byte {
                        *byte ^= 1 << (bit % 8);
                    }
                }
            }
        }
        self.durable.set(sector, page.freeze());
    }

    pub(crate) fn mark_unreadable(&mut self, sectors: Range<u64>) {
        self.unreadable.extend(sectors.start..sectors.end.min(self.sectors()));
    }

    /// Written sectors can be read again: the device has put them elsewhere.
    pub(crate) fn heal(&mut self, sectors: Range<u64>) {
        if !self.unreadable.is_empty() {
            self.unreadable.retain(|sector| !sectors.contains(sector));
        }
    }

    pub(crate) fn readable(&self, sectors: Range<u64>) -> bool {
        self.unreadable.is_empty() || self.unreadable.range(sectors).next().is_none()
    }
}

/// Versions of one sector kept beside the newest. A disk that lies about flushes never drops any,
/// so there must be a limit; the oldest go first.
const OLDER_VERSIONS_MAX: usize = 15;
