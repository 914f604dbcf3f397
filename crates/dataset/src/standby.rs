//! Of the datasets with one file system guid, at most one is in service.
//!
//! A received dataset has the guid of the one that was sent, so that handles of clients go on when
//! it takes the other's place. Until then it stands by (property `standby`): handles do not lead to
//! it, and it is not exported. It is read by name alone, for `diff` and `send`; a clone of its
//! snapshot has a guid of its own.
//!
//! Invariant: a dataset comes into service by an act of an administrator, who is refused while
//! another one of its guid is in service. A pool that is imported may bring another one all the
//! same: that one steps back, until it is put in service or the pool is imported again.

use aquifer_ondisk::Guid;
use aquifer_sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;

impl Dataset {
    /// Whether it stands by: no handle leads to it.
    pub fn is_standby(&self) -> bool {
        self.standby.load(Ordering::SeqCst)
    }
}

impl Datasets {
    /// Takes those out of service whose guid another pool serves, by the name of the dataset there.
    /// Returns the names of both.
    pub fn step_back(&self, served: impl Fn(Guid) -> Option<String>) -> Vec<(String, String)> {
        let mut back = Vec::new();
        for dataset in self.all().into_iter().filter(|dataset| !dataset.is_standby()) {
            if let Some(other) = served(dataset.fs_guid) {
                dataset.steps_back.store(true, Ordering::SeqCst);
                back.push((self.full_name(&dataset), other));
            }
        }
        self.refresh_properties();
        back
    }

    /// Fails if another dataset with its guid is in service.
    pub(crate) fn check_service(&self, dataset: &Dataset) -> Result<(), DatasetError> {
        match self.by_guid(dataset.fs_guid).filter(|other| other.id != dataset.id) {
            None => Ok(()),
            Some(other) => Err(DatasetError::SameHandles {
                name: self.full_name(dataset),
                other: self.full_name(&other),
            }),
        }
    }
}
