//! Which snapshots of files can be taken together.

use std::collections::BTreeMap;

use aquifer_ondisk::file_snapshot::{FILE_PATH_BYTES_MAX, FILES_OF_A_TXG_MAX};
use aquifer_ondisk::{DatasetId, ObjectId, Txg};

use super::{NewFileSnapshot, Take};
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::full_name::check_snapshot;

const ONE_TOO_MANY: &str = "is one too many: one command takes at most 65536 of a dataset";
pub(super) const LONG_PATH: &str =
    "has a path of more than 640 bytes: snapshot its dataset instead";

impl Datasets {
    /// Gives each an index of its own. An act that was cut off may have some in the same txg.
    pub(super) fn number(&self, txg: Txg, takes: &mut [Take]) -> Result<(), DatasetError> {
        let mut next: BTreeMap<DatasetId, usize> = BTreeMap::new();
        for before in self.state.lock().queue.file_takes(txg) {
            *next.entry(before.new.dataset.id).or_default() += 1;
        }
        for take in takes {
            let index = next.entry(take.new.dataset.id).or_default();
            take.index = u16::try_from(*index).map_err(|_| {
                let NewFileSnapshot { dataset, path, name, .. } = &take.new;
                let name = self.file_snapshot_name(dataset, path, name);
                DatasetError::BadName { name, why: ONE_TOO_MANY.into() }
            })?;
            *index += 1;
        }
        Ok(())
    }

    /// Refuses what cannot be taken. Returns each file once.
    pub(super) fn check_files(
        &self,
        wanted: Vec<NewFileSnapshot>,
    ) -> Result<Vec<NewFileSnapshot>, DatasetError> {
        let mut known: BTreeMap<(DatasetId, ObjectId), String> = BTreeMap::new();
        let mut counts: BTreeMap<DatasetId, usize> = BTreeMap::new();
        let mut once = Vec::new();
        for new in wanted {
            let full = self.file_snapshot_name(&new.dataset, &new.path, &new.name);
            let bad = |why: &str| DatasetError::BadName { name: full.clone(), why: why.into() };
            check_snapshot(&full, &new.name)?;
            if new.path.len() > FILE_PATH_BYTES_MAX {
                return Err(bad(LONG_PATH));
            }
            if new.dataset.is_destroyed() {
                return Err(DatasetError::NotFound(self.full_name(&new.dataset)));
            }
            self.check_no_increment(&new.dataset)?;
            if new.dataset.snapshots.lock().files.has_name(new.object, &new.path, &new.name) {
                return Err(DatasetError::Exists(full));
            }
            let place = (new.dataset.id, new.object);
            if let Some(name) = known.insert(place, new.name.clone()) {
                if name != new.name {
                    return Err(bad("is the second of one file: one command takes one of each"));
                }
                continue;
            }
            let count = counts.entry(new.dataset.id).or_default();
            *count += 1;
            if *count > FILES_OF_A_TXG_MAX {
                return Err(bad(ONE_TOO_MANY));
            }
            once.push(new);
        }
        Ok(once)
    }
}
