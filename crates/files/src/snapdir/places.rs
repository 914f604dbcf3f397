//! The path of a file, which a snapshot of it bears. Handles do not have it: so a LOOKUP in
//! `.aquifer` notes where it found a file.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use aquifer_dataset::{Dataset, ROOT_DIRECTORY};
use aquifer_ondisk::shown_name::shown;
use aquifer_ondisk::{Guid, ObjectId};
use aquifer_pool::Parts;

use crate::core::Files;
use crate::damage::SEARCH_ENTRIES_MAX;
use crate::types::Credentials;

/// Files of which the place is noted, at most. Of others it is searched.
const NOTED_MAX: usize = 1024;
/// Entries of a directory that are read at a time.
const BATCH_ENTRIES: usize = 1000;
/// Directories above each other. There may be more, but no path of so many fits a record.
const DEPTH_MAX: usize = 512;

/// Where files were found: the directory, and the name in it.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<(Guid, ObjectId), (ObjectId, Vec<u8>)>);

impl Places {
    fn note(&mut self, file: (Guid, ObjectId), place: (ObjectId, Vec<u8>)) {
        if self.0.len() >= NOTED_MAX && !self.0.contains_key(&file) {
            self.0.pop_first();
        }
        self.0.insert(file, place);
    }
}

impl Files {
    /// Notes that a file was found under this name.
    pub(super) fn note_place(
        &self,
        dataset: &Dataset,
        file: ObjectId,
        (directory, name): (ObjectId, &[u8]),
    ) {
        let place = (directory, name.to_vec());
        self.places.lock().note((dataset.fs_guid, file), place);
    }

    /// The path of a file that has a name, as it is shown, without a slash before it; if there are
    /// several, that by which it was found last.
    pub(super) async fn path_of_file(
        &self,
        dataset: &Arc<Dataset>,
        file: ObjectId,
    ) -> Option<String> {
        let noted = self.places.lock().0.get(&(dataset.fs_guid, file)).cloned();
        if let Some((directory, name)) = noted
            && let Some(path) = self.path_from(dataset, file, (directory, name)).await
        {
            return Some(path);
        }
        let (name, wanted) = (self.datasets.full_name(dataset), HashSet::from([file]));
        let path = self.paths_of(&name, wanted, SEARCH_ENTRIES_MAX).await.remove(&file)?;
        Some(path.trim_start_matches('/').into())
    }

    /// Returns the path of a file by a directory and the file's name there, if the file is still
    /// there.
    async fn path_from(
        &self,
        dataset: &Arc<Dataset>,
        file: ObjectId,
        (mut directory, name): (ObjectId, Vec<u8>),
    ) -> Option<String> {
        let mut above = self.stored(dataset, directory).await.ok()?;
        let found = self.find(&Credentials::root(), &above, &name).await.ok()?;
        found.entry.filter(|entry| entry.object == file)?;
        let (mut path, mut parts) = (shown(&name), Parts::default());
        for _ in 0..DEPTH_MAX {
            if directory == ROOT_DIRECTORY {
                return Some(path);
            }
            above = self.stored(dataset, above.inode().parent).await.ok()?;
            let mut from = 0;
            let name = loop {
                let read = above.object.read_entries(&self.pool, from, u64::MAX, BATCH_ENTRIES);
                let entries = read.await.ok()?;
                if let Some(entry) = entries.iter().find(|entry| entry.object == directory) {
                    break entry.name.clone();
                }
                from = entries.last()?.key.checked_add(1)?;
                parts.step(&self.pool).await;
            };
            path = format!("{}/{path}", shown(&name));
            directory = above.object.id;
        }
        None
    }
}
