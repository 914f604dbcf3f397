//! Locks of clients, which a rollback looks at.
//!
//! Locks are the protocols' ([`aquifer_nfs::lock`](../aquifer_nfs/lock)). A rollback would give
//! their holders other content. So it shuts the door of what goes back, and then counts the locks
//! there. The protocols look at the door with the table of locks in hand, before they grant one. So
//! of a lock and a rollback that come at once, one sees the other.

use std::fmt;
use std::sync::Arc;

use aquifer_ondisk::{Guid, ObjectId};

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::rollback::RollbackOptions;

/// Counts the locks in a file system, or in a file of it.
#[derive(Clone)]
pub(crate) struct LockCount(Arc<dyn Fn(Guid, Option<ObjectId>) -> usize + Send + Sync>);

impl fmt::Debug for LockCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockCount")
    }
}

impl Dataset {
    /// Whether it, or this object, is being rolled back, or takes no change for another reason.
    pub fn is_shut(&self, object: ObjectId) -> bool {
        self.entrance.is_shut() || self.cached(object).is_some_and(|object| object.is_shut())
    }
}

impl Datasets {
    /// Has rollbacks count locks so.
    pub fn count_locks_by(
        &self,
        count: Arc<dyn Fn(Guid, Option<ObjectId>) -> usize + Send + Sync>,
    ) {
        *self.lock_count.write() = Some(LockCount(count));
    }

    /// Refuses a rollback under locks, unless by force. The door of the dataset, or of the file, is
    /// shut.
    pub(crate) fn check_locks(
        &self,
        full: &str,
        (dataset, object): (&Dataset, Option<ObjectId>),
        options: RollbackOptions,
    ) -> Result<(), DatasetError> {
        let count = self.lock_count.read().clone();
        let Some(LockCount(count)) = count.filter(|_| !options.force) else { return Ok(()) };
        match count(dataset.fs_guid, object) {
            0 => Ok(()),
            locks => Err(DatasetError::Locked { name: full.into(), locks }),
        }
    }
}
