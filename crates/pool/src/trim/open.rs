//! Records on disk of trims and initializations that go on or are suspended: each disk's, as an
//! item of the namespace. The next import goes on from there.
//!
//! It reaches the disk with the txg of each act, and while work goes on every 30 s. A place on disk
//! is never ahead of the work. It may be behind: then free space is worked on once more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aquifer_ondisk::Guid;
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::open_work::{OpenWork, OpenWorkRecord};
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_sync::Mutex;
use aquifer_vdev::{Leaf, Vdev};

use super::job::{Job, carry_on};
use super::{FreeWork, FreeWorkState};
use crate::pool::Pool;

/// Its place reaches the disk about this often.
pub(super) const NOTED: Duration = Duration::from_secs(30);

/// The disks of which the item on disk is out of date.
#[derive(Debug, Default)]
pub(super) struct Open(Mutex<BTreeSet<Guid>>);

impl Pool {
    /// Import: the records from disk. What they say goes on once the pool is in service.
    pub fn load_open_work(&self, records: impl IntoIterator<Item = OpenWorkRecord>) {
        let tree = self.tree();
        for OpenWorkRecord { leaf, trim, initialize } in records {
            let of = |vdev: &Arc<Vdev>| vdev.leaves.iter().find(|own| own.guid == leaf).cloned();
            let found = tree.data().find_map(|vdev| Some((vdev.clone(), of(vdev)?)));
            let Some((vdev, leaf)) = found else {
                self.note_open_work(leaf);
                continue;
            };
            for (work, open) in [(FreeWork::Trim, trim), (FreeWork::Initialize, initialize)] {
                let Some(open) = open else { continue };
                let job = Job::loaded(&vdev, &leaf, work, &open);
                self.acts.trims.jobs.0.lock().insert((leaf.guid, work), Arc::new(job));
            }
        }
    }

    /// Goes on with what an import found under way.
    pub(crate) fn resume_free_work(&self) {
        let jobs = self.acts.trims.jobs.0.lock();
        for job in jobs.values().filter(|job| job.is_active()) {
            tracing::info!(
                class = "disk.free_work_resumed", pool = self.name(), leaf = %job.path,
                work = ?job.work, "work on the free space of a disk goes on after a restart"
            );
            let turn = job.standing.lock().turn;
            let carry_on = carry_on(self.this.clone(), job.clone(), turn);
            self.world.spawn("free space", Box::pin(carry_on));
        }
    }

    /// The records that the next sync writes, each with its disk; without one, it goes.
    pub fn take_open_work(&self) -> Vec<(Guid, Option<OpenWorkRecord>)> {
        let changed = std::mem::take(&mut *self.acts.trims.open.0.lock());
        changed.into_iter().map(|leaf| (leaf, self.open_work(leaf))).collect()
    }

    /// The work on a disk is another than its item on disk says.
    pub(super) fn note_open_work(&self, leaf: Guid) {
        self.acts.trims.open.0.lock().insert(leaf);
        self.background_waits();
    }

    fn open_work(&self, leaf: Guid) -> Option<OpenWorkRecord> {
        let jobs = self.acts.trims.jobs.0.lock();
        let open = |work| jobs.get(&(leaf, work)).and_then(|job| job.open());
        let (trim, initialize) = (open(FreeWork::Trim), open(FreeWork::Initialize));
        let is_needed = trim.is_some() || initialize.is_some();
        is_needed.then_some(OpenWorkRecord { leaf, trim, initialize })
    }
}

impl Job {
    /// As a record says. A place that does not fit the vdev is brought into it.
    fn loaded(vdev: &Vdev, leaf: &Leaf, work: FreeWork, open: &OpenWork) -> Job {
        let job = Job::new(leaf, work, open.begun.since_1970_ns());
        {
            let mut standing = job.standing.lock();
            let sectors = vdev.geometry.sectors();
            let next = open.next_sector.min(sectors) / SEGMENT_SECTORS * SEGMENT_SECTORS;
            standing.rate = open.rate;
            (standing.next, standing.noted_next) = (next, next);
            let status = &mut standing.status;
            status.total_bytes = sectors * 4096;
            status.passed_bytes = next * 4096;
            status.done_bytes = open.done_bytes.min(status.total_bytes);
            status.skipped_bytes = open.skipped_bytes.min(status.total_bytes);
            if open.is_suspended {
                status.state = FreeWorkState::Suspended;
            }
        }
        job
    }

    /// Returns the record of the job that is kept while it has not ended.
    fn open(&self) -> Option<OpenWork> {
        let standing = self.standing.lock();
        let is_suspended = match standing.status.state {
            FreeWorkState::Running | FreeWorkState::Waiting => false,
            FreeWorkState::Suspended => true,
            FreeWorkState::Canceled
            | FreeWorkState::Finished
            | FreeWorkState::Unsupported
            | FreeWorkState::Failed => return None,
        };
        Some(OpenWork {
            is_suspended,
            begun: Time::from_ns(standing.status.begun_ns),
            rate: standing.rate,
            next_sector: standing.next,
            done_bytes: standing.status.done_bytes,
            skipped_bytes: standing.status.skipped_bytes,
        })
    }

    /// Whether its place is to reach the disk now.
    pub(super) fn is_to_be_noted(&self, now: Duration) -> bool {
        let mut standing = self.standing.lock();
        let is_old = now.saturating_sub(standing.noted) >= NOTED;
        let is_due = is_old && standing.next != standing.noted_next;
        if is_due {
            (standing.noted, standing.noted_next) = (now, standing.next);
        }
        is_due
    }
}
