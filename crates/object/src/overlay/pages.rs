//! The pages that a file's version has written.
//!
//! Invariants:
//! - The number of pages with content is counted as they come and go: every reply asks for
//!   attributes, and a version may hold a hundred thousand pages.
//! - The pages that no log record holds are kept in order: a COMMIT costs what it logs, not what is
//!   dirty. They are kept apart, too, since they change while a sync shares the pages. Shared data
//!   is copied before it changes, and a COMMIT at the wrong moment would copy all pages.

use std::collections::BTreeMap;
use std::ops::Range;

use aquifer_blockio::Page;
use aquifer_ondisk::Place;
use aquifer_sync::Mutex;

use super::DirtyPage;

/// Pages by their number, in groups of 16 neighbours. So sequential writes search the map once for
/// each group.
#[derive(Debug, Default)]
pub struct Pages {
    all: BTreeMap<u64, Group>,
    stored: u64,
    /// Locked for a moment, under the object's own lock, so without contention.
    unlogged: Mutex<Numbers>,
}

impl Clone for Pages {
    fn clone(&self) -> Self {
        let unlogged = Mutex::new(self.unlogged.lock().clone());
        Pages { all: self.all.clone(), stored: self.stored, unlogged }
    }
}

impl Pages {
    /// Inserts a page and returns the one that was there.
    pub fn insert(&mut self, page: u64, dirty: DirtyPage) -> Option<DirtyPage> {
        self.stored += u64::from(dirty.page.is_some());
        if dirty.logged {
            self.unlogged.get_mut().remove(page);
        } else {
            self.unlogged.get_mut().insert(page);
        }
        let before = self.all.entry(page / GROUP_PAGES).or_default().insert(page, dirty);
        self.forget(before.as_ref());
        before
    }

    /// Removes and returns all pages from `page` on.
    pub fn cut(&mut self, page: u64) -> BTreeMap<u64, DirtyPage> {
        let mut gone = self.all.split_off(&(page / GROUP_PAGES));
        if let Some(mut first) = gone.first_entry() {
            let kept: Vec<(u64, DirtyPage)> =
                first.get_mut().0.extract_if(.., |(of, _)| *of < page).collect();
            if !kept.is_empty() {
                self.all.insert(page / GROUP_PAGES, Group(kept));
            }
        }
        self.unlogged.get_mut().cut(page);
        let gone: BTreeMap<u64, DirtyPage> = gone.into_values().flat_map(|group| group.0).collect();
        gone.values().for_each(|dirty| self.forget(Some(dirty)));
        gone
    }

    fn forget(&mut self, dirty: Option<&DirtyPage>) {
        self.stored -= u64::from(dirty.is_some_and(|dirty| dirty.page.is_some()));
    }

    /// A page.
    pub fn get(&self, page: u64) -> Option<&DirtyPage> {
        self.all.get(&(page / GROUP_PAGES))?.get(page)
    }

    /// All pages in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &DirtyPage)> {
        self.all.values().flat_map(|group| &group.0).map(|(page, dirty)| (*page, dirty))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of pages with content to be written out.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// Up to `limit` pages of `from..to` that no log record holds, in order.
    pub fn unlogged(&self, from: u64, to: u64, limit: usize) -> Vec<u64> {
        self.unlogged.lock().range(from..to).take(limit).collect()
    }

    /// The content of the `count` pages from `first` on, if each has content that no record holds
    /// and that has no place yet.
    pub fn fresh_run(&self, first: u64, count: usize) -> Option<Vec<Page>> {
        let fresh = |dirty: &DirtyPage| dirty.place.is_none().then(|| dirty.page.clone()).flatten();
        // A cheap rejection: a run that is being filled usually lacks one end.
        let last = first + (count as u64).checked_sub(1)?;
        fresh(self.get(last)?)?;
        fresh(self.get(first)?)?;
        if self.unlogged.lock().range(first..last + 1).count() < count {
            return None;
        }
        let groups = self.all.range(first / GROUP_PAGES..=last / GROUP_PAGES);
        let pages = groups.flat_map(|(_, group)| &group.0);
        let run: Vec<Page> = pages
            .filter(|(page, _)| (first..=last).contains(page))
            .map_while(|(_, dirty)| fresh(dirty))
            .collect();
        (run.len() == count).then_some(run)
    }

    /// The pages from `first` on, which are all present, are under way to `places`.
    pub fn put_at(&mut self, first: u64, places: impl IntoIterator<Item = Place>) {
        let groups = self.all.range_mut(first / GROUP_PAGES..);
        let pages = groups.flat_map(|(_, group)| &mut group.0);
        let from_first = pages.skip_while(|(page, _)| *page < first);
        // Places first in the zip: they end.
        for (place, (_, dirty)) in places.into_iter().zip(from_first) {
            dirty.place = Some(place);
        }
    }

    /// These pages need no record any more: one holds them, or a newer page lies over them.
    pub fn need_no_record(&self, pages: impl IntoIterator<Item = u64>) {
        let mut unlogged = self.unlogged.lock();
        pages.into_iter().for_each(|page| unlogged.remove(page));
    }
}

/// Up to 16 neighbours, aligned, in order; never empty in a map.
#[derive(Debug, Clone, Default)]
struct Group(Vec<(u64, DirtyPage)>);

impl Group {
    fn find(&self, page: u64) -> Result<usize, usize> {
        match self.0.last() {
            Some((last, _)) if *last < page => Err(self.0.len()),
            _ => self.0.binary_search_by_key(&page, |(of, _)| *of),
        }
    }

    fn get(&self, page: u64) -> Option<&DirtyPage> {
        self.0.get(self.find(page).ok()?).map(|(_, dirty)| dirty)
    }

    fn insert(&mut self, page: u64, dirty: DirtyPage) -> Option<DirtyPage> {
        match self.find(page) {
            Ok(at) => {
                let (_, before) = self.0.get_mut(at)?;
                Some(std::mem::replace(before, dirty))
            }
            Err(at) => {
                if self.0.is_empty() {
                    // Most pages are alone, or all are present.
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (page, dirty));
                None
            }
        }
    }
}

/// A set of page numbers: one bit for each, by groups.
#[derive(Debug, Clone, Default)]
struct Numbers(BTreeMap<u64, u16>);

impl Numbers {
    fn insert(&mut self, page: u64) {
        *self.0.entry(page / GROUP_PAGES).or_default() |= 1 << (page % GROUP_PAGES);
    }

    fn remove(&mut self, page: u64) {
        if let Some(bits) = self.0.get_mut(&(page / GROUP_PAGES)) {
            *bits &= !(1 << (page % GROUP_PAGES));
            if *bits == 0 {
                self.0.remove(&(page / GROUP_PAGES));
            }
        }
    }

    /// Removes those from `page` on.
    fn cut(&mut self, page: u64) {
        let gone = self.0.split_off(&(page / GROUP_PAGES));
        let kept = gone.get(&(page / GROUP_PAGES)).copied().unwrap_or(0);
        let kept = kept & ((1 << (page % GROUP_PAGES)) - 1);
        if kept != 0 {
            self.0.insert(page / GROUP_PAGES, kept);
        }
    }

    fn range(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        let Range { start, end } = range;
        let groups =
            self.0.range(start / GROUP_PAGES..end.div_ceil(GROUP_PAGES).max(start / GROUP_PAGES));
        let pages = groups.flat_map(|(group, bits)| {
            let of_group = (0..GROUP_PAGES).filter(move |at| bits & (1 << at) != 0);
            of_group.map(move |at| group * GROUP_PAGES + at)
        });
        pages.filter(move |page| (start..end).contains(page))
    }
}

/// As many pages as the longest extent has: the pages of one extent are in one group.
const GROUP_PAGES: u64 = 16;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
            pages in prop::collection::vec((8..24u64, any::<bool>(), 0..9u8), 0..40),
            first in 8..24u64,
            count in 0..6usize,
        ) {
            let mut all = Pages::default();
            for (page, stored, how) in pages {
                all.insert(page, dirty(stored || how > 0, how == 1));
                match how {
                    2 => all.put_at(page, [Place::new(0, page)]),
                    3 => all.need_no_record([page]),
                    _ => {}
                }
            }
            let fresh = |page| {
                let open = !all.unlogged(page, page + 1, 1).is_empty();
                all.get(page).is_some_and(|p| open && p.page.is_some() && p.place.is_none())
            };
            let expected = count > 0 && (first..first + count as u64).all(fresh);
            let found = all.fresh_run(first, count);
            prop_assert_eq!(found.is_some(), expected);
            prop_assert!(found.is_none_or(|run| run.len() == count));
        }

        /// The counted and ordered sets agree with a full search.
        #[test]
        fn what_is_kept_is_what_is_there(
            acts in prop::collection::vec((0..4u8, 0..40u64, any::<bool>(), any::<bool>()), 0..80)
        ) {
            let mut pages = Pages::default();
            let mut open = BTreeSet::new();
            for (act, page, stored, logged) in acts {
                match act {
                    0 => {
                        pages.cut(page);
                        open.retain(|kept| *kept < page);
                    }
                    1 => {
                        pages.need_no_record([page]);
                        open.remove(&page);
                    }
                    _ => {
                        pages.insert(page, dirty(stored, logged));
                        open.remove(&page);
                        open.extend((!logged).then_some(page));
                    }
                }
                let stored = pages.iter().filter(|(_, dirty)| dirty.page.is_some()).count();
                prop_assert_eq!(pages.stored(), stored as u64);
                let found = pages.unlogged(0, u64::MAX, usize::MAX);
                prop_assert_eq!(found, open.iter().copied().collect::<Vec<_>>());
                let few = pages.unlogged(10, 20, 3);
                prop_assert!(few.len() <= 3 && few.iter().all(|page| (10..20).contains(page)));
            }
        }
    }
}
