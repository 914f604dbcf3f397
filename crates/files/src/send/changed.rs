//! Changes between two snapshots.
//!
//! The trees of both are compared pointer by pointer. Births would not do: they say nothing of what
//! is gone.

use aquifer_object::Object;
use aquifer_object::btree::{self, Difference};
use aquifer_object::extent_tree::compare_extents;
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, Objects};
use aquifer_stream::{ENTRIES_MAX, KEYS_MAX, Record};

use super::runs::{Reads, Runs};
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

    pub(super) async fn changed_object(
        &mut self,
        (old, new): (Inode, Inode),
        within: Option<u64>,
    ) -> Result<Option<u64>, SendError> {
        self.check(&new)?;
        let what = |of: &Inode| (of.generation, of.kind, of.name_seed());
        if what(&old) != what(&new) {
            let snapshot = self.snapshot.into();
            return Err(SendError::AnotherFile { object: new.object.0, snapshot });
        }
        if within.is_none() || self.again.take() == Some(new.object.0) {
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
        let (mut changed, mut found) = (Vec::new(), Runs::default());
        let mut reads = Reads::new(pool, &file);
        loop {
            self.step().await?;
            let is_more = compare.next(&mut changed).await?;
            for pages in changed.drain(..) {
                found.add(pages, end_page);
            }
            let is_over = !is_more || compare.known_to() >= end_page;
            if is_over {
                found.close();
            }
            if is_over || self.is_full() || found.are_many() {
                self.put_runs(&mut reads, found.take()).await?;
            }
            if is_over {
                self.put_rest(&mut reads).await?;
                return Ok(None);
            }
            if self.is_full() {
                self.put_rest(&mut reads).await?;
                let next = found.open.map_or(compare.known_to(), |run| run.from_page);
                return Ok(Some(next.max(from)));
            }
        }
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

/// Reduces an inode to the attributes that count when two versions are compared.
pub(super) fn travels(inode: Option<&Inode>) -> Option<Inode> {
    inode.map(|inode| Inode {
        refer_bytes: 0,
        saved_bytes: 0,
        line: 1,
        hash_seed: inode.name_seed(),
        rdev: inode.device(),
        cloned: false,
        ..inode.clone()
    })
}
