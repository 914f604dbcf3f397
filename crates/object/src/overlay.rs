//! Changes of clients that no root on disk holds yet, one version for each txg.
//!
//! Invariants:
//! - A reader sees, page by page or key by key, the newest version that has it. Below them all lies
//!   the committed tree, which is immutable.
//! - Accepted pages are immutable: an overwrite is a new page.
//! - `cut` takes effect before the pages of its own version.

mod pages;

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::Inode;
use aquifer_ondisk::{Place, Txg};
use aquifer_pool::intent_log::EarlyWrite;

pub use pages::Pages;

/// A page as a client left it.
#[derive(Debug, Clone)]
pub struct DirtyPage {
    /// Its content. `None`: zeros, or with a place, content that was lost.
    pub page: Option<Page>,
    /// Its checksum (0 for zeros).
    pub sum: u64,
    /// A log record held it when it came, so COMMIT need not log it. ([`Pages`] knows whether a
    /// record holds it by now.)
    pub logged: bool,
    /// It was written to its place early.
    pub place: Option<Place>,
}

/// An object's changes of one txg.
#[derive(Debug, Clone)]
pub struct Version {
    /// The attributes at the end of the txg so far (root and refer aside).
    pub inode: Inode,
    /// Pages from here on that are older than this version are gone.
    pub cut: Option<u64>,
    /// Pages written.
    pub pages: Pages,
    /// Directory entries added (`Some`) or removed.
    pub entries: BTreeMap<u64, Option<Dirent>>,
    /// A change of `inode` or `cut` that no log record holds.
    pub unlogged: bool,
    /// Runs written to their place before any record of them, by their first sector. A record that
    /// names one waits for it.
    pub early: BTreeMap<Place, EarlyWrite>,
}

impl Version {
    /// A version that changes nothing yet.
    pub fn new(inode: Inode) -> Self {
        Version {
            inode,
            cut: None,
            pages: Pages::default(),
            entries: BTreeMap::new(),
            unlogged: false,
            early: BTreeMap::new(),
        }
    }

    /// The early writes that these pages' content needs.
    fn early_of(&self, pages: &[(u64, DirtyPage)]) -> Vec<EarlyWrite> {
        let mut needed: BTreeMap<Place, EarlyWrite> = BTreeMap::new();
        for place in pages.iter().filter_map(|(_, dirty)| dirty.place) {
            let found = self.early.range(..=place).next_back();
            if let Some((first, write)) = found.filter(|(_, write)| write.run().contains(place)) {
                needed.entry(*first).or_insert_with(|| write.clone());
            }
        }
        needed.into_values().collect()
    }
}

/// The parts of a version that no log record held.
#[derive(Debug, Clone)]
pub struct Unlogged {
    /// Its attributes.
    pub inode: Option<Inode>,
    /// Pages in order.
    pub pages: Vec<(u64, DirtyPage)>,
    /// Early writes among them.
    pub early: Vec<EarlyWrite>,
}

/// The overlay's knowledge of a page.
#[derive(Debug, Clone)]
pub enum Seen {
    /// This content.
    Page(Page),
    /// Zeros.
    Zero,
    /// It was written to its place early, and was unreadable there when its record was replayed.
    Lost,
    /// None: the tree knows.
    Below,
}

/// The versions of one object, oldest first. A sync shares the one that it writes out. COMMIT,
/// which logs attributes, then changes a copy.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    versions: BTreeMap<Txg, Arc<Version>>,
}

impl Overlay {
    /// The version of `txg`, made from `inode` if there is none.
    pub fn version(&mut self, txg: Txg, inode: &Inode) -> &mut Version {
        debug_assert!(self.versions.keys().all(|of| *of <= txg), "changes enter the open txg");
        Arc::make_mut(self.entry(txg, inode))
    }

    fn entry(&mut self, txg: Txg, inode: &Inode) -> &mut Arc<Version> {
        self.versions.entry(txg).or_insert_with(|| Arc::new(Version::new(inode.clone())))
    }

    /// Marks up to `limit` pages of `from..to` that no log record holds as logged, and returns
    /// them, by txg, newest first. It returns only the newest content of each, since an older one
    /// would win over it in a replay. It leaves out pages that a newer version cut off, since they
    /// would come back.
    pub fn take_unlogged(&mut self, from: u64, to: u64, limit: usize) -> Vec<(Txg, Unlogged)> {
        let mut taken: Vec<(Txg, Unlogged)> = Vec::new();
        let mut left = limit;
        for txg in self.versions.keys().rev().copied().collect::<Vec<_>>() {
            let newer: Vec<&Version> =
                self.versions.range(txg.next()..).map(|(_, v)| &**v).collect();
            let hidden = |page: u64| {
                !left_out(Rule::CommitPresentContent)
                    && newer.iter().any(|version| version.pages.get(page).is_some())
                    || newer.iter().any(|version| version.cut.is_some_and(|cut| page >= cut))
            };
            let Some(version) = self.versions.get(&txg) else { continue };
            let mut pages = Vec::new();
            let mut over = Vec::new();
            let mut next = from;
            while left > 0 {
                let some = version.pages.unlogged(next, to, left);
                let Some(last) = some.last() else { break };
                next = last + 1;
                for page in some {
                    match version.pages.get(page) {
                        Some(dirty) if !hidden(page) => {
                            pages.push((page, dirty.clone()));
                            left -= 1;
                        }
                        _ => over.push(page),
                    }
                }
            }
            version.pages.need_no_record(pages.iter().map(|(page, _)| *page).chain(over));
            // Attributes of the newest version hold for all below it.
            let unlogged = newer.is_empty() && version.unlogged;
            let inode = unlogged.then(|| version.inode.clone());
            if unlogged && let Some(version) = self.versions.get_mut(&txg) {
                Arc::make_mut(version).unlogged = false;
            }
            let Some(version) = self.versions.get(&txg) else { continue };
            if inode.is_some() || !pages.is_empty() {
                let early = version.early_of(&pages);
                taken.push((txg, Unlogged { inode, pages, early }));
            }
        }
        taken
    }

    /// Counts pages of `from..to` that no log record holds, up to `limit`.
    pub fn count_unlogged(&self, from: u64, to: u64, limit: usize) -> usize {
        let each =
            self.versions.values().map(|version| version.pages.unlogged(from, to, limit).len());
        each.sum::<usize>().min(limit)
    }

    /// Makes a version of the txg that is being synced, for a change that its sync itself makes.
    pub fn adopt(&mut self, txg: Txg, inode: &Inode) {
        self.entry(txg, inode);
    }

    /// The version of `txg`, if it changed anything.
    pub fn get(&self, txg: Txg) -> Option<&Arc<Version>> {
        self.versions.get(&txg)
    }

    /// Every version, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = (Txg, &Version)> {
        self.versions.iter().rev().map(|(txg, version)| (*txg, &**version))
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// `txg` is on disk.
    pub fn committed(&mut self, txg: Txg) {
        self.versions.retain(|of, _| *of > txg);
    }

    /// The overlay's knowledge of a page.
    pub fn page(&self, page: u64) -> Seen {
        for (_, version) in self.newest_first() {
            match version.pages.get(page) {
                Some(DirtyPage { page: Some(content), .. }) => return Seen::Page(content.clone()),
                Some(DirtyPage { page: None, place: Some(_), .. }) => return Seen::Lost,
                Some(DirtyPage { page: None, place: None, .. }) => return Seen::Zero,
                None if version.cut.is_some_and(|cut| page >= cut) => return Seen::Zero,
                None => {}
            }
        }
        Seen::Below
    }

    /// Entries added or removed with keys in `from..=to`, the newest state of each.
    pub fn entries(&self, from: u64, to: u64) -> BTreeMap<u64, Option<Dirent>> {
        let mut merged = BTreeMap::new();
        for version in self.versions.values() {
            for (key, entry) in version.entries.range(from..=to) {
                merged.insert(*key, entry.clone());
            }
        }
        merged
    }

    /// Pages that wait to be written out.
    pub fn dirty_pages(&self) -> u64 {
        self.versions.values().map(|version| version.pages.stored()).sum()
    }
}
