//! Locks of files, with the files' paths for people.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use aquifer_api::{ApiError, ClearLocks, ClearedLocks, LockExtent, LockInfo, LocksInfo};
use aquifer_files::{FileHandle, SEARCH_ENTRIES_MAX};
use aquifer_nfs::lock::{LockKind, LockState, LockView};
use aquifer_ondisk::Guid;

use super::Control;
use super::serving::Serving;

/// A dataset's name, and a path in it.
type Place = (String, Option<String>);

impl Control {
    /// All locks. Searches directories for the paths, so do not call it for every scrape of a
    /// metric.
    pub async fn locks(&self) -> LocksInfo {
        let (views, grace) = self.frontend.locks();
        let files = views.iter().map(|view| view.file).collect();
        let places = self.places(files).await;
        let mut locks: Vec<LockInfo> = views
            .iter()
            .map(|view| info(view, places.get(&view.file).cloned().unwrap_or_default()))
            .collect();
        locks.sort_by(|a, b| {
            let key = |lock: &LockInfo| {
                (lock.dataset.clone(), lock.object, lock.offset, lock.state.clone())
            };
            key(a).cmp(&key(b))
        });
        LocksInfo { grace, locks }
    }

    /// Ends all locks of a client: it is dead, and others wait.
    ///
    /// # Errors
    /// It has no locks.
    pub fn clear_locks(&self, request: &ClearLocks) -> Result<ClearedLocks, ApiError> {
        let ClearLocks { address, client } = request;
        let address = address.to_canonical();
        let ended = self.frontend.clear_locks(address, client.as_deref());
        if ended == 0 {
            let of = client.as_ref().map_or(String::new(), |client| format!(" of {client:?}"));
            return Err(ApiError::not_found(format!(
                "{address} has no locks{of}; `aquifer locks` shows who has some"
            )));
        }
        tracing::warn!(
            class = "locks.cleared", client = %address, ended, "locks ended by the administrator"
        );
        Ok(ClearedLocks { ended })
    }

    /// Ends the locks in datasets and snapshots that are not served any more: destroyed ones, and
    /// those that stand by. While a pool is awaited, an unknown file system may be one of its.
    /// Returns a note for people, if there were any.
    pub(super) fn end_locks_of_gone(
        &self,
        serving: &[Arc<Serving>],
        more_to_come: bool,
    ) -> Option<String> {
        if more_to_come {
            return None;
        }
        let is_there = |guid| {
            let mut all = serving.iter().map(|serving| &serving.service().datasets);
            all.any(|datasets| datasets.by_guid(guid).is_some())
        };
        self.end_locks(&|guid| !is_there(guid))
    }

    /// Ends the locks in the datasets of a pool that leaves.
    pub(super) fn end_locks_of(&self, leaving: &Serving) -> Option<String> {
        let datasets = &leaving.service().datasets;
        self.end_locks(&|guid| datasets.by_guid(guid).is_some())
    }

    fn end_locks(&self, is_gone: &dyn Fn(Guid) -> bool) -> Option<String> {
        let ended = self.frontend.end_locks(is_gone);
        if ended == 0 {
            return None;
        }
        tracing::warn!(class = "locks.ended", ended, "locks in what is not served any more ended");
        Some(format!("{ended} locks that clients held there have ended"))
    }

    async fn places(&self, files: HashSet<FileHandle>) -> HashMap<FileHandle, Place> {
        let mut places = HashMap::new();
        let mut by_dataset: HashMap<_, HashSet<FileHandle>> = HashMap::new();
        for file in files {
            by_dataset.entry(file.fs_guid).or_default().insert(file);
        }
        for serving in self.all_serving() {
            let (datasets, files) = (&serving.service().datasets, &serving.service().files);
            for (guid, locked) in &by_dataset {
                let Some(dataset) = datasets.by_guid(*guid) else { continue };
                let name = datasets.full_name(&dataset);
                let objects = locked.iter().map(|file| file.object).collect();
                let paths = files.paths_of(&name, objects, SEARCH_ENTRIES_MAX);
                // Files of a pool that does not answer are named by their numbers.
                let paths = serving.while_it_answers(paths).await.unwrap_or_default();
                places.extend(
                    locked
                        .iter()
                        .map(|file| (*file, (name.clone(), paths.get(&file.object).cloned()))),
                );
            }
        }
        places
    }
}

fn info(view: &LockView, (dataset, file): Place) -> LockInfo {
    let owner = &view.owner;
    let (extent, offset, length) = match view.kind {
        LockKind::Shared(range) => (LockExtent::Shared, range.first, range.length()),
        LockKind::Exclusive(range) => (LockExtent::Exclusive, range.first, range.length()),
        LockKind::Share { access, deny } => (LockExtent::Reservation { access, deny }, 0, 0),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    LockInfo {
        dataset,
        file,
        object: view.file.object.0,
        client: text(&owner.client.name),
        address: owner.client.address,
        svid: owner.svid,
        owner: text(&owner.oh),
        extent,
        offset,
        length,
        state: match view.state {
            LockState::Held => "held",
            LockState::Granting => "granting",
            LockState::Waiting => "waiting",
        }
        .into(),
    }
}
