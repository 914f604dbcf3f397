//! Acts on snapshots that a client's call asks for, in a protocol that sends calls again.
//!
//! The act is carried out by a task that goes on when the call's caller has gone: acts come one at
//! a time, each on disk before the next one. So caller and act agree on whether there is an act.
//!
//! Invariants:
//! - The call is in the reply table in the very txg of its act: both are put there under one hold.
//!   So a call that is sent again finds that it was carried out, also after a restart, and a call
//!   that is not in the table changed nothing.
//! - A caller that gave up before that is not acted for, and may say "later".
//! - If the sync then finds that it cannot carry the act out, it takes the call out of the table
//!   again, in the same txg: a call that is in there was carried out.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::config::FEATURE_SNAPSHOTS;
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::KeepRecord;
use aquifer_ondisk::reply::CallId;
use aquifer_ondisk::types::SNAPSHOT_DIRECTORY;
use aquifer_ondisk::unstored::Unstored;
use aquifer_ondisk::{Guid, ObjectId};
use aquifer_pool::TxHold;
use aquifer_sync::Mutex;

use super::{Act, New, Snapshot};
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::full_name::check_snapshot;

/// A call that asks for an act on the snapshots of a dataset.
#[derive(Debug)]
pub struct Called {
    dataset: Arc<Dataset>,
    /// Its name among calls, if it must not run twice.
    call: Option<CallId>,
    gives: Gives,
    is_waited_for: Mutex<bool>,
}

/// The handle in the answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// None.
    Nothing,
    /// That of the snapshot that it takes, of a dataset, by its guid.
    Snapshot(Guid),
    /// That of the snapshot that it takes, of a file.
    FileSnapshot(Guid),
}

impl Called {
    /// A call whose caller waits for the act.
    pub fn new(dataset: Arc<Dataset>, call: Option<CallId>, gives: Gives) -> Called {
        Called { dataset, call, gives, is_waited_for: Mutex::new(true) }
    }

    /// The dataset.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Its name among calls, if it must not run twice.
    pub fn call(&self) -> Option<CallId> {
        self.call
    }

    /// Does the part of an act after which it is made, together with the call's record, unless the
    /// caller gave up.
    ///
    /// # Errors
    /// It did.
    pub fn while_waited_for<T>(&self, made: impl FnOnce() -> T) -> Result<T, DatasetError> {
        let is_waited_for = self.is_waited_for.lock();
        match *is_waited_for || left_out(Rule::NoActForNobody) {
            true => Ok(made()),
            false => Err(DatasetError::GaveUp),
        }
    }

    /// The caller waits no more. An act that has not begun does not begin.
    pub fn give_up(&self) {
        *self.is_waited_for.lock() = false;
    }

    /// The guid of the snapshot that it takes.
    pub(crate) fn guid(&self) -> Option<Guid> {
        match self.gives {
            Gives::Nothing => None,
            Gives::Snapshot(guid) | Gives::FileSnapshot(guid) => Some(guid),
        }
    }

    /// Puts the call into the reply table of the txg that its act joins. `index` is that of the
    /// snapshot of a file that it takes. Returns the entry's order, if there is one.
    pub(crate) fn join(
        &self,
        datasets: &Datasets,
        (hold, index): (&TxHold, u16),
    ) -> Result<Option<u64>, DatasetError> {
        self.while_waited_for(|| self.record(datasets, (hold, index)))
    }

    fn record(&self, datasets: &Datasets, (hold, index): (&TxHold, u16)) -> Option<u64> {
        let replies = datasets.replies();
        let of_file = || Unstored::FileSnapshot(FileSnapshotId::new(hold.txg(), index)).id();
        let given = match self.gives {
            Gives::Nothing => (ObjectId(0), 0),
            Gives::Snapshot(guid) => (SNAPSHOT_DIRECTORY, guid.0),
            Gives::FileSnapshot(guid) => (of_file().unwrap_or(ObjectId(0)), guid.0),
        };
        let entry = self.call.and_then(|call| replies.entry(call, self.dataset.id, given));
        let entry = entry.filter(|_| !left_out(Rule::ActsKnowTheirCall))?;
        replies.record_act(hold.txg(), entry);
        Some(entry.order)
    }
}

impl Datasets {
    /// Enters the open txg for an act, and for the call behind it if there is one.
    pub(crate) async fn hold_act_of(&self, by: Option<&Called>) -> Result<TxHold, DatasetError> {
        let hold = self.hold_act().await?;
        match by {
            Some(called) => called.join(self, (&hold, 0)).map(|_| hold),
            None => Ok(hold),
        }
    }

    /// Takes a snapshot for a call. It is on disk when this returns.
    ///
    /// # Errors
    /// As [`Datasets::snapshot`]; or the caller gave up before the act began.
    pub async fn snapshot_for(
        &self,
        called: &Called,
        name: &str,
    ) -> Result<Arc<Snapshot>, DatasetError> {
        let _act = self.acts.lock().await;
        let dataset = self.of_call(called)?;
        let full = format!("{}@{name}", self.full_name(dataset));
        check_snapshot(&full, name)?;
        self.check_new(dataset, name)?;
        self.use_feature(FEATURE_SNAPSHOTS).await?;
        let created = Time::from_ns(self.pool.world().wall_ns());
        let guid = called.guid().unwrap_or_else(|| self.new_guid());
        let (dataset, keep) = (dataset.clone(), KeepRecord::default());
        let new = New { dataset: dataset.clone(), name: name.into(), guid, keep };
        self.take(vec![new], created, Some(called)).await?;
        self.listed(&dataset, |snapshot| snapshot.record.guid == guid)
            .ok_or(DatasetError::NotFound(full))
    }

    /// Destroys a snapshot for a call. It is gone, on disk, when this returns. Returns what it was.
    ///
    /// # Errors
    /// There is none of this name, it is held or has clones; or the caller gave up before the act
    /// began.
    pub async fn destroy_snapshot_for(
        &self,
        called: &Called,
        name: &str,
    ) -> Result<Arc<Snapshot>, DatasetError> {
        let look = || {
            let dataset = self.of_call(called)?;
            let snapshot = self.called(dataset, name)?;
            let these = [(dataset.clone(), BTreeSet::from([snapshot.txg]))];
            let (doomed, lines) = self.check_destroy(&these, false)?;
            Ok(((snapshot, doomed), lines))
        };
        let (_act, (snapshot, doomed)) = self.turn_when_filed(look).await?;
        self.end(&doomed.datasets, doomed.unlisted, Some(called)).await?;
        Ok(snapshot)
    }

    /// Gives a snapshot another name for a call. It is on disk when this returns. Returns what it
    /// was.
    ///
    /// # Errors
    /// There is none of this name, there is one of the new name, or that is no name; or the caller
    /// gave up before the act began.
    pub async fn rename_snapshot_for(
        &self,
        called: &Called,
        name: &str,
        new: &str,
    ) -> Result<Arc<Snapshot>, DatasetError> {
        let _act = self.acts.lock().await;
        let dataset = self.of_call(called)?;
        let snapshot = self.called(dataset, name)?;
        check_snapshot(&format!("{}@{new}", self.full_name(dataset)), new)?;
        let (of, txg) = (dataset.id, snapshot.txg);
        if name == new {
            // Nothing to do. The call is recorded all the same: things may have changed when it
            // comes again.
            self.act_for(Vec::new(), Some(called)).await?;
            return Ok(snapshot);
        }
        self.check_new(dataset, new)?;
        let act = Act::Rename { dataset: of, snapshot: txg, name: new.into() };
        self.act_for(vec![act], Some(called)).await?;
        Ok(snapshot)
    }

    pub(crate) fn of_call<'c>(&self, called: &'c Called) -> Result<&'c Arc<Dataset>, DatasetError> {
        match called.dataset.is_destroyed() {
            true => Err(DatasetError::NotFound(self.full_name(&called.dataset))),
            false => Ok(&called.dataset),
        }
    }

    fn called(&self, dataset: &Dataset, name: &str) -> Result<Arc<Snapshot>, DatasetError> {
        let found = self.listed(dataset, |snapshot| snapshot.record.name == name);
        let full = || format!("{}@{name}", self.full_name(dataset));
        found.ok_or_else(|| DatasetError::NotFound(full()))
    }

    fn listed(
        &self,
        dataset: &Dataset,
        is_it: impl Fn(&Snapshot) -> bool,
    ) -> Option<Arc<Snapshot>> {
        let mut all = dataset.snapshots(self.pool.committed_txg()).into_iter();
        all.find(|snapshot| is_it(snapshot))
    }

    pub(crate) fn new_guid(&self) -> Guid {
        Guid(self.pool.world().random().max(1))
    }
}
