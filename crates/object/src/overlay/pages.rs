//! The pages that a file's version has written.
//!
//! Invariants:
//! - How many hold content is counted as they come and go: attributes are asked for with every
//!   reply, and a version may hold a hundred thousand pages.
//! - Which ones no log record holds is kept in order: a COMMIT costs what it logs, not what is
//!   dirty.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_blockio::Page;
use aquifer_ondisk::Place;

use super::DirtyPage;

/// Pages by their number.
#[derive(Debug, Clone, Default)]
pub struct Pages {
    all: BTreeMap<u64, DirtyPage>,
    stored: u64,
    unlogged: BTreeSet<u64>,
}

impl Pages {
    /// Puts a page in place of the one that was there, which is returned.
    pub fn insert(&mut self, page: u64, dirty: DirtyPage) -> Option<DirtyPage> {
        self.stored += u64::from(dirty.page.is_some());
        if dirty.logged {
            self.unlogged.remove(&page);
        } else {
            self.unlogged.insert(page);
        }
        let before = self.all.insert(page, dirty);
        self.forget(before.as_ref());
        before
    }

    /// Takes all pages from `page` on away.
    pub fn cut(&mut self, page: u64) -> BTreeMap<u64, DirtyPage> {
        let gone = self.all.split_off(&page);
        self.unlogged.split_off(&page);
        gone.values().for_each(|dirty| self.forget(Some(dirty)));
        gone
    }

    fn forget(&mut self, dirty: Option<&DirtyPage>) {
        self.stored -= u64::from(dirty.is_some_and(|dirty| dirty.page.is_some()));
    }

    /// A page.
    pub fn get(&self, page: u64) -> Option<&DirtyPage> {
        self.all.get(&page)
    }

    /// All pages in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &DirtyPage)> {
        self.all.iter().map(|(page, dirty)| (*page, dirty))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many hold content that is to be written out.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// Up to `limit` pages of `from..to` that no log record holds, in order.
    pub fn unlogged(&self, from: u64, to: u64, limit: usize) -> Vec<u64> {
        self.unlogged.range(from..to.max(from)).take(limit).copied().collect()
    }

    /// The content of the `count` pages from `first` on, if each holds some that no record holds
    /// and that lies nowhere yet.
    pub fn fresh_run(&self, first: u64, count: usize) -> Option<Vec<Page>> {
        let fresh = |dirty: &DirtyPage| {
            (!dirty.logged && dirty.place.is_none()).then(|| dirty.page.clone()).flatten()
        };
        // Cheap where it is not so: of a run that is being filled one end is missing as a rule.
        let last = first + (count as u64).checked_sub(1)?;
        fresh(self.all.get(&last)?)?;
        fresh(self.all.get(&first)?)?;
        let run: Vec<Page> =
            self.all.range(first..=last).map_while(|(_, dirty)| fresh(dirty)).collect();
        (run.len() == count).then_some(run)
    }

    /// This page's content is on its way to `place`.
    pub fn put_at(&mut self, page: u64, place: Place) {
        if let Some(dirty) = self.all.get_mut(&page) {
            dirty.place = Some(place);
        }
    }

    /// No record need hold this page any more: one does, or a newer page lies over it.
    pub fn need_no_record(&mut self, page: u64) {
        self.unlogged.remove(&page);
        if let Some(dirty) = self.all.get_mut(&page) {
            dirty.logged = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use aquifer_blockio::PageMut;
    use proptest::prelude::*;

    use super::*;

    fn dirty(stored: bool, logged: bool) -> DirtyPage {
        let page = stored.then(|| PageMut::with_prefix(b"x").freeze());
        DirtyPage { page, sum: 0, logged, place: None }
    }

    proptest! {
        /// A run is fresh if each of its pages is.
        #[test]
        fn a_run_is_as_fresh_as_each_of_its_pages(
            pages in prop::collection::vec((0..12u64, any::<bool>(), 0..9u8), 0..40),
            first in 0..12u64,
            count in 0..6usize,
        ) {
            let mut all = Pages::default();
            for (page, stored, how) in pages {
                all.insert(page, dirty(stored || how > 0, how == 1));
                if how == 2 {
                    all.put_at(page, Place::new(0, page));
                }
            }
            let fresh = |page| {
                all.get(page).is_some_and(|p| p.page.is_some() && !p.logged && p.place.is_none())
            };
            let expected = count > 0 && (first..first + count as u64).all(fresh);
            let found = all.fresh_run(first, count);
            prop_assert_eq!(found.is_some(), expected);
            prop_assert!(found.is_none_or(|run| run.len() == count));
        }

        /// Counted and kept in order, or looked through: the same.
        #[test]
        fn what_is_kept_is_what_is_there(
            acts in prop::collection::vec((0..4u8, 0..40u64, any::<bool>(), any::<bool>()), 0..80)
        ) {
            let mut pages = Pages::default();
            for (act, page, stored, logged) in acts {
                match act {
                    0 => drop(pages.cut(page)),
                    1 => pages.need_no_record(page),
                    _ => drop(pages.insert(page, dirty(stored, logged))),
                }
                let stored = pages.iter().filter(|(_, dirty)| dirty.page.is_some()).count();
                prop_assert_eq!(pages.stored(), stored as u64);
                let open = pages.iter().filter(|(_, dirty)| !dirty.logged).map(|(page, _)| page);
                prop_assert_eq!(pages.unlogged(0, u64::MAX, usize::MAX), open.collect::<Vec<_>>());
                let few = pages.unlogged(10, 20, 3);
                prop_assert!(few.len() <= 3 && few.iter().all(|page| (10..20).contains(page)));
            }
        }
    }
}
