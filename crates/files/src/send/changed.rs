//! What changed between two snapshots.
//!
//! The trees of both are compared pointer by pointer. Births would not do: they say nothing of what
//! is gone.

use std::ops::Range;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::Object;
use aquifer_object::btree::{self, Difference};
use aquifer_object::extent_tree::{ChangedPages, compare_extents};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, Objects};
use aquifer_stream::{DATA_PAGES_MAX, ENTRIES_MAX, HOLE_PAGES_MAX, KEYS_MAX, Record};

use super::{Making, NEW, OLD, Place, SendError};
use crate::diff::paths::visible;

impl Making<'_> {
    /// The objects that changed, from a place on, until the page is full. Returns the next place.
    pub(super) async fn changed_objects(
        &mut self,
        place: Place,
    ) -> Result<Option<Place>, SendError> {
        let pool = &*self.files.pool;
        let mut within = place.within;
        let (old, new) = (self.looks.objects(OLD), self.looks.objects(NEW));
        let mut compare = btree::compare_from::<Objects, _>(pool, old, new, place.object)?;
        while let Some(Difference { key, old, new }) = compare.next().await? {
            self.step().await?;
            let (old, new) = (visible(old), visible(new));
            if key < place.object || travels(old.as_ref()) == travels(new.as_ref()) {
                continue;
            }
            if self.is_full() {
                return Ok(Some(Place { object: key, within: None }));
            }
            let within = if key == place.object { within.take() } else { None };
            let left = match (old, new) {
                (Some(Inode { object, generation, .. }), None) => {
                    self.encoder.put(&Record::Remove { object, generation });
                    None
                }
                (None, Some(new)) => self.object(new, within).await?,
                (Some(old), Some(new)) => self.changed_object((old, new), within).await?,
                (None, None) => None,
            };
            if let Some(within) = left {
                return Ok(Some(Place { object: key, within: Some(within) }));
            }
        }
        Ok(None)
    }

    async fn changed_object(
        &mut self,
        (old, new): (Inode, Inode),
        within: Option<u64>,
    ) -> Result<Option<u64>, SendError> {
        self.check(&new)?;
        let what = |of: &Inode| (of.generation, of.kind, of.hash_seed);
        if what(&old) != what(&new) {
            let snapshot = self.snapshot.into();
            return Err(SendError::AnotherFile { object: new.object.0, snapshot });
        }
        if within.is_none() {
            self.encoder.put(&Record::Object(Box::new(new.clone())));
        }
        let from = within.unwrap_or(0);
        match new.kind {
            FileKind::Regular | FileKind::Symlink => self.changed_content((old, new), from).await,
            FileKind::Directory => self.changed_names((old, new), from).await,
            _ => Ok(None),
        }
    }

    /// Pages and holes of a file. What lies beyond its size goes with the size.
    async fn changed_content(
        &mut self,
        (old, new): (Inode, Inode),
        from: u64,
    ) -> Result<Option<u64>, SendError> {
        let pool = &*self.files.pool;
        let end_page = new.size.div_ceil(4096);
        if from >= end_page {
            return Ok(None);
        }
        let mut compare = compare_extents(pool, old.root, new.root, from)?;
        let file = Object::new(self.dataset.id, new);
        let (mut changed, mut run) = (Vec::new(), None);
        loop {
            self.step().await?;
            let is_more = compare.next(&mut changed).await?;
            for pages in changed.drain(..) {
                self.add(&file, &mut run, pages, end_page).await?;
            }
            if !is_more || compare.known_to() >= end_page {
                self.put_run(&file, &mut run, 1).await?;
                return Ok(None);
            }
            if self.is_full() {
                let next = run.map_or(compare.known_to(), |run: ChangedPages| run.from_page);
                return Ok(Some(next.max(from)));
            }
        }
    }

    /// Adds pages to a run of one kind, whatever extents they are in. What has the size of a record
    /// is put.
    async fn add(
        &mut self,
        file: &Object,
        run: &mut Option<ChangedPages>,
        pages: ChangedPages,
        end_page: u64,
    ) -> Result<(), SendError> {
        let pages = ChangedPages { to_page: pages.to_page.min(end_page), ..pages };
        // A birth says nothing of a hole.
        let births_only = left_out(Rule::IncrementsComparePointers) && !pages.is_data;
        if pages.from_page >= pages.to_page || births_only {
            return Ok(());
        }
        match run {
            Some(run) if run.to_page == pages.from_page && run.is_data == pages.is_data => {
                run.to_page = pages.to_page;
            }
            _ => {
                self.put_run(file, run, 1).await?;
                *run = Some(pages);
            }
        }
        let most = if pages.is_data { DATA_PAGES_MAX } else { HOLE_PAGES_MAX };
        self.put_run(file, run, most).await
    }

    /// Puts records of a run, as long as it has so many pages.
    async fn put_run(
        &mut self,
        file: &Object,
        run: &mut Option<ChangedPages>,
        least: u64,
    ) -> Result<(), SendError> {
        while let Some(ChangedPages { from_page, to_page, is_data }) = *run {
            if to_page - from_page < least {
                break;
            }
            let most = if is_data { DATA_PAGES_MAX } else { HOLE_PAGES_MAX };
            let pages = from_page..to_page.min(from_page + most);
            let next = pages.end;
            match is_data {
                true => self.data(file, pages).await?,
                false => self.hole(file.id, pages),
            }
            let rest = ChangedPages { from_page: next, to_page, is_data };
            *run = (next < to_page).then_some(rest);
        }
        Ok(())
    }

    fn hole(&mut self, object: ObjectId, pages: Range<u64>) {
        let (page, pages) = (pages.start, pages.end - pages.start);
        self.encoder.put(&Record::Hole { object, page, pages });
    }

    async fn changed_names(
        &mut self,
        (old, new): (Inode, Inode),
        from: u64,
    ) -> Result<Option<u64>, SendError> {
        let (pool, object) = (&*self.files.pool, new.object);
        let mut compare = btree::compare_from::<Directory, _>(pool, old.root, new.root, from)?;
        let (mut entries, mut drops) = (Vec::new(), Vec::new());
        while let Some(Difference { key, new, .. }) = compare.next().await? {
            self.step().await?;
            if key < from {
                continue;
            }
            if entries.len() >= ENTRIES_MAX || drops.len() >= KEYS_MAX {
                self.drops(object, &mut drops);
                self.entries(object, &mut entries);
            }
            if self.is_full() {
                self.drops(object, &mut drops);
                self.entries(object, &mut entries);
                return Ok(Some(key));
            }
            match new {
                Some(entry) => entries.push(entry),
                None => drops.push(key),
            }
        }
        self.drops(object, &mut drops);
        self.entries(object, &mut entries);
        Ok(None)
    }

    fn drops(&mut self, object: ObjectId, keys: &mut Vec<u64>) {
        if !keys.is_empty() {
            let keys = std::mem::take(keys);
            self.encoder.put(&Record::Drops { object, keys });
        }
    }
}

/// What of an object counts.
fn travels(inode: Option<&Inode>) -> Option<Inode> {
    inode.map(|inode| Inode { refer_bytes: 0, line: 1, ..inode.clone() })
}
