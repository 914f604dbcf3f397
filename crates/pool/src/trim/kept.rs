//! Records on disk of trims and initializations that have ended: of each disk, the newest of each
//! kind. They are only shown. A record reaches the disk with some later txg, as an item of the
//! namespace.

use std::collections::{BTreeSet, HashMap, HashSet};

use aquifer_ondisk::Guid;
use aquifer_ondisk::free_work::{EndedWork, FreeWorkRecord, WorkEnd};
use aquifer_ondisk::inode::Time;
use aquifer_sync::Mutex;

use super::{FreeWork, FreeWorkState, FreeWorkStatus};
use crate::pool::Pool;

#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    all: HashMap<Guid, FreeWorkRecord>,
    /// Those that differ from what is on disk.
    changed: BTreeSet<Guid>,
}

impl Records {
    fn set(&mut self, leaf: Guid, work: FreeWork, ended: Option<EndedWork>) {
        let none = FreeWorkRecord { leaf, trim: None, initialize: None };
        let record = self.all.entry(leaf).or_insert(none);
        let of = match work {
            FreeWork::Trim => &mut record.trim,
            FreeWork::Initialize => &mut record.initialize,
        };
        if *of != ended {
            *of = ended;
            self.changed.insert(leaf);
        }
    }
}

impl Pool {
    /// Import: the records from disk.
    pub fn load_free_work(&self, records: impl IntoIterator<Item = FreeWorkRecord>) {
        let mut kept = self.acts.trims.kept.0.lock();
        kept.all.extend(records.into_iter().map(|record| (record.leaf, record)));
    }

    /// The records that the next sync writes, each with its disk; without one, it goes. Records of
    /// disks that have left the pool go too.
    pub fn take_free_work(&self) -> Vec<(Guid, Option<FreeWorkRecord>)> {
        let mut kept = self.acts.trims.kept.0.lock();
        if kept.changed.is_empty() {
            return Vec::new();
        }
        let own: HashSet<Guid> = self.tree().config.disks().map(|disk| disk.guid).collect();
        let Records { all, changed } = &mut *kept;
        let is_needed = |record: &FreeWorkRecord| {
            own.contains(&record.leaf) && (record.trim.is_some() || record.initialize.is_some())
        };
        changed.extend(all.extract_if(|_, record| !is_needed(record)).map(|(leaf, _)| leaf));
        std::mem::take(changed).into_iter().map(|leaf| (leaf, all.get(&leaf).copied())).collect()
    }

    /// Keeps work that has ended.
    pub(super) fn keep_ended_work(&self, leaf: Guid, work: FreeWork, status: &FreeWorkStatus) {
        let Some(end) = end_of(status.state) else { return };
        let ended = EndedWork {
            end,
            begun: Time::from_ns(status.begun_ns),
            ended: Time::from_ns(status.ended_ns.unwrap_or(status.begun_ns)),
            total_bytes: status.total_bytes,
            passed_bytes: status.passed_bytes,
            done_bytes: status.done_bytes,
            skipped_bytes: status.skipped_bytes,
        };
        self.acts.trims.kept.0.lock().set(leaf, work, Some(ended));
        self.background_waits();
    }

    pub(super) fn forget_ended_work(&self, leaf: Guid, work: FreeWork) {
        self.acts.trims.kept.0.lock().set(leaf, work, None);
        self.background_waits();
    }

    /// How work of this kind last ended on a disk.
    pub(super) fn ended_work(&self, leaf: Guid, work: FreeWork) -> Option<FreeWorkStatus> {
        let record = self.acts.trims.kept.0.lock().all.get(&leaf).copied()?;
        let ended = match work {
            FreeWork::Trim => record.trim?,
            FreeWork::Initialize => record.initialize?,
        };
        Some(FreeWorkStatus {
            state: match ended.end {
                WorkEnd::Finished => FreeWorkState::Finished,
                WorkEnd::Canceled => FreeWorkState::Canceled,
                WorkEnd::Failed => FreeWorkState::Failed,
            },
            passed_bytes: ended.passed_bytes,
            total_bytes: ended.total_bytes,
            done_bytes: ended.done_bytes,
            skipped_bytes: ended.skipped_bytes,
            begun_ns: ended.begun.since_1970_ns(),
            ended_ns: Some(ended.ended.since_1970_ns()),
            last_error: None,
        })
    }
}

fn end_of(state: FreeWorkState) -> Option<WorkEnd> {
    match state {
        FreeWorkState::Finished => Some(WorkEnd::Finished),
        FreeWorkState::Canceled => Some(WorkEnd::Canceled),
        FreeWorkState::Failed => Some(WorkEnd::Failed),
        FreeWorkState::Running
        | FreeWorkState::Waiting
        | FreeWorkState::Suspended
        | FreeWorkState::Unsupported => None,
    }
}
