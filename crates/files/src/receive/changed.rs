//! Changes since a snapshot: each record is compared with what the dataset has, then made.
//!
//! The dataset has the old snapshot, whose names add up. So it is enough that what comes and what
//! goes add up ([`Sums`]). Of each object, name and directory the stream has one record: what is
//! there when it comes is what the old snapshot has.
//!
//! [`Sums`]: super::sums::Sums

use std::collections::HashSet;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_dataset::{Dataset, ROOT_DIRECTORY};
use aquifer_object::Object;
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_stream::Record;

use super::make::{BATCH_ENTRIES, To};
use super::sums::DIRECTORIES_MAX;
use super::{ReceiveError, Receiver};

impl Receiver {
    /// Takes a record.
    pub(super) async fn take_changed(
        &mut self,
        to: To<'_>,
        record: Record,
    ) -> Result<(), ReceiveError> {
        let is_made = !self.options.dry;
        match record {
            Record::Object(inode) => self.changed_object(to, *inode).await,
            Record::Remove { object, generation } => self.removed(to, object, generation).await,
            Record::Data { object, page, content } if is_made => {
                self.data(to, object, page, &content).await
            }
            Record::Hole { object, page, pages } if is_made => {
                self.hole(to, object, page, pages).await
            }
            Record::Entries { object, entries } => {
                let directory = self.found(to, object).await?;
                for entry in &entries {
                    if let Some(old) = self.name_at(to, directory.as_deref(), entry.key).await? {
                        self.sums.entry_goes(object, &old);
                    }
                    self.sums.entry_comes(object, entry);
                }
                if is_made { self.entries(to, object, entries).await } else { Ok(()) }
            }
            Record::Drops { object, keys } => {
                let directory = self.found(to, object).await?;
                for key in &keys {
                    let old = self.name_at(to, directory.as_deref(), *key).await?;
                    if old.is_none() && self.goes_on {
                        continue;
                    }
                    let old = old.ok_or_else(|| contradicts(object, "has no such name"))?;
                    self.sums.entry_goes(object, &old);
                }
                if is_made { self.drops(to, object, &keys).await } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    async fn changed_object(&mut self, to: To<'_>, inode: Inode) -> Result<(), ReceiveError> {
        let id = inode.object;
        let (files, dataset) = to;
        let mut old = self.found(to, id).await?;
        if old.as_ref().is_some_and(|old| old.inode().nlink == 0) {
            // It was removed, and comes back: its id means what is still being freed.
            old = None;
            if !self.options.dry && !left_out(Rule::IdsAreFreeFirst) {
                files.datasets.wait_for_id(dataset, id).await?;
            }
        }
        if let Some(old) = &old {
            let old = old.inode();
            let what = |of: &Inode| (of.generation, of.kind, of.name_seed());
            if what(&old) != what(&inode) {
                return Err(contradicts(id, "is another file here"));
            }
            self.sums.object_goes(&old);
        }
        self.sums.object_comes(&inode).map_err(ReceiveError::Contradicts)?;
        if self.options.dry { Ok(()) } else { self.make_object(to, inode, old).await }
    }

    async fn removed(
        &mut self,
        to: To<'_>,
        id: ObjectId,
        generation: u64,
    ) -> Result<(), ReceiveError> {
        let found = self.found(to, id).await?;
        if self.goes_on && found.as_ref().is_none_or(|found| found.inode().nlink == 0) {
            // It went before the stream broke off.
            return Ok(());
        }
        let old = found.filter(|old| {
            let old = old.inode();
            old.nlink > 0 && old.generation == generation
        });
        let old = old.ok_or_else(|| contradicts(id, "is not here to be removed"))?;
        let inode = old.inode();
        self.sums.object_goes(&inode);
        if inode.kind == FileKind::Directory {
            self.emptied(to, &old).await?;
        }
        if self.options.dry { Ok(()) } else { self.remove(to, &old).await }
    }

    /// The names in a directory that is removed go with it.
    async fn emptied(&mut self, to: To<'_>, directory: &Object) -> Result<(), ReceiveError> {
        let mut from = 0;
        loop {
            let names = directory.read_entries(&to.0.pool, from, u64::MAX, BATCH_ENTRIES).await;
            let names = names.map_err(|error| self.pool_error(error))?;
            let Some(last) = names.last() else { return Ok(()) };
            from = last.key.saturating_add(1);
            let keys: Vec<u64> = names.iter().map(|name| name.key).collect();
            names.iter().for_each(|name| self.sums.entry_goes(directory.id, name));
            if !self.options.dry {
                self.drops(to, directory.id, &keys).await?;
            }
        }
    }

    async fn name_at(
        &self,
        to: To<'_>,
        directory: Option<&Object>,
        key: u64,
    ) -> Result<Option<Dirent>, ReceiveError> {
        let Some(directory) = directory.filter(|of| of.kind() == FileKind::Directory) else {
            return Ok(None);
        };
        let found = directory.read_entries(&to.0.pool, key, key, 1).await;
        Ok(found.map_err(|error| self.pool_error(error))?.pop())
    }

    /// Fails unless each directory that came leads up to the root.
    pub(super) async fn check_ways(
        &self,
        dataset: Option<&Arc<Dataset>>,
    ) -> Result<(), ReceiveError> {
        let files = self.files()?;
        let above = self.sums.above();
        let mut reached: HashSet<ObjectId> = HashSet::from([ROOT_DIRECTORY]);
        for id in above.keys() {
            let (mut way, mut at) = (HashSet::new(), *id);
            while !reached.contains(&at) {
                if !way.insert(at) || way.len() > DIRECTORIES_MAX {
                    return Err(contradicts(*id, "lies in itself"));
                }
                at = match (above.get(&at), dataset) {
                    (Some(above), _) => *above,
                    // The sums say that it is there.
                    (None, None) => ROOT_DIRECTORY,
                    (None, Some(dataset)) => {
                        let found = self.found((&files, dataset), at).await?;
                        let found = found.filter(|of| of.kind() == FileKind::Directory);
                        let found = found.ok_or_else(|| contradicts(*id, "lies nowhere"))?;
                        found.inode().parent
                    }
                };
            }
            reached.extend(way);
        }
        Ok(())
    }
}

pub(super) fn contradicts(object: ObjectId, what: &str) -> ReceiveError {
    ReceiveError::Contradicts(format!("object {} {what}", object.0))
}
