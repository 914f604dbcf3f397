//! Names in the top directory of a dataset: each means an entry, or a dataset below, and not both.
//!
//! A client that mounts `/tank/iso` gets the dataset of that name if there is one, else the
//! directory. So a dataset that was made over a directory would take it away from new clients,
//! while old ones go on with it. Names that a pool has twice from before stay as they are.
//!
//! Invariant: a name is reserved here before the directory is looked at, with the directory's
//! writer lock, and until the dataset is entered. An entry is made under that lock, behind a look
//! at [`Datasets::is_dataset_below`]. So one of the two sees the other.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::DatasetId;
use aquifer_ondisk::dirent::{COLLISIONS_MAX, hash_key};

use crate::dataset::{Dataset, ROOT_DIRECTORY};
use crate::datasets::Datasets;
use crate::error::DatasetError;

/// A name below a dataset that a new one will have. Dropped when that is entered, or not made.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    datasets: &'a Datasets,
    place: (DatasetId, String),
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.datasets.state.lock().reserved_names.remove(&self.place);
    }
}

impl Datasets {
    /// Whether a name in the top directory of a dataset is that of a dataset below it, or of one
    /// that is about to be made; or was, and the disk still has it so.
    pub fn is_dataset_below(&self, parent: DatasetId, name: &[u8]) -> bool {
        let Ok(name) = std::str::from_utf8(name) else { return false };
        let committed = self.pool.committed_txg();
        let state = self.state.lock();
        let is_it = |of: &Arc<Dataset>| {
            let is_there = of
                .destroyed_in()
                .is_none_or(|txg| txg > committed && !left_out(Rule::NamesMeanOneThing));
            let is_so = |above: DatasetId, own: &str| above == parent && own == name;
            let was = || of.was.lock().as_ref().is_some_and(|(above, own)| is_so(*above, own));
            let now = || {
                let record = of.record.lock();
                is_so(record.parent, &record.name)
            };
            is_there && (was() || now())
        };
        // Few are being made at a time: acts come one by one.
        let is_reserved = state.reserved_names.iter().any(|(of, own)| *of == parent && own == name);
        is_reserved || state.datasets.values().any(is_it)
    }

    /// The datasets below one, as they are on disk, without those below these.
    pub fn children(&self, parent: &Dataset) -> Vec<Arc<Dataset>> {
        let state = self.state.lock();
        let shown = state.datasets.values().filter(|of| !state.hidden.contains(&of.id));
        shown.filter(|of| of.look_at_place(|above, _| above == parent.id)).cloned().collect()
    }

    /// A dataset below one, by its last name component, as it is on disk.
    pub fn child(&self, parent: &Dataset, name: &[u8]) -> Option<Arc<Dataset>> {
        let name = std::str::from_utf8(name).ok()?;
        let state = self.state.lock();
        // Each LOOKUP of a name that is not there asks.
        let mut shown = state.datasets.values().filter(|of| !state.hidden.contains(&of.id));
        shown.find(|of| of.look_at_place(|above, own| above == parent.id && own == name)).cloned()
    }

    /// Reserves a name below a dataset. The caller holds the lock of acts.
    ///
    /// # Errors
    /// The top directory of the dataset has an entry of that name, or cannot be read.
    pub(crate) async fn reserve_name(
        &self,
        parent: &Arc<Dataset>,
        name: &str,
    ) -> Result<Reserved<'_>, DatasetError> {
        let place = (parent.id, name.to_string());
        self.state.lock().reserved_names.insert(place.clone());
        let reserved = Reserved { datasets: self, place };
        let Some(top) = parent.object(&self.pool, ROOT_DIRECTORY).await? else {
            return Ok(reserved);
        };
        // What is being made there comes first.
        let _none_under_way = top.write().await;
        let base = hash_key(top.inode().hash_seed, name.as_bytes());
        let limit = usize::try_from(COLLISIONS_MAX).unwrap_or(usize::MAX);
        let entries =
            top.read_entries(&self.pool, base, base + (COLLISIONS_MAX - 1), limit).await?;
        let is_taken = entries.iter().any(|entry| entry.name == name.as_bytes());
        match is_taken && !left_out(Rule::NamesMeanOneThing) {
            true => {
                let above = self.full_name(parent);
                let why = format!(
                    "is a file or directory in {above:?}: clients that have it would not see what \
                     others see. Give it another name, or remove it, first"
                );
                Err(DatasetError::BadName { name: format!("{above}/{name}"), why })
            }
            false => Ok(reserved),
        }
    }
}
