//! Holds: a snapshot with a hold is not destroyed.
//!
//! A hold without an end stands until somebody releases it. One with an end stands until then, and
//! nobody shortens or releases it, through no act: it is the defence against one who has all
//! rights. He may also set the clock of the machine. So such a hold ends when two clocks have come
//! to its end: the wall clock, and the *hold clock*, which counts the time in which the pool is in
//! service and is read from nothing that can be set. A wall clock set forward ends nothing; one set
//! back makes holds longer. While the pool is out of service the hold clock stands.
//!
//! Invariants:
//! - Acts change what is held under the lock of acts, and are answered when they are on disk. So
//!   what destroys under that lock knows every hold that was answered.
//! - The hold clock on disk is never ahead of the time in service. A crash sets it back to what was
//!   noted last: holds become longer by that, at most [`NOTED`].
//! - The txg that writes a hold with an end notes the hold clock too.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::ms;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_meter::time::{self, text_s};
use aquifer_ondisk::config::{FEATURE_FILE_HOLDS, FEATURE_KEEPING};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::{
    HOLD_TAG_BYTES_MAX, HOLDS_MAX, Hold, HoldClock, HoldEnd, KeepRecord,
};
use aquifer_ondisk::{DatasetId, Txg};
use aquifer_sync::Mutex;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::feeder::is_mark;
use crate::hold_span::{HOLD_YEARS_MAX, YEAR_S};
use crate::property::Property;
use crate::snapshots::labels_error;

/// An idle pool notes the hold clock this often while a hold waits for its end.
const NOTED: Duration = Duration::from_secs(600);
/// A txg that is written anyhow notes it this often.
const NOTED_BY_THE_WAY: Duration = Duration::from_secs(60);

/// Time in service.
#[derive(Debug)]
pub(crate) struct Clock {
    /// At the import.
    base_ms: u64,
    imported: Duration,
    noted: Mutex<Noted>,
}

#[derive(Debug)]
struct Noted {
    ms: u64,
    /// Some hold has an end.
    runs: bool,
    /// The next txg notes it in any case.
    wanted: bool,
}

impl Clock {
    /// Import: goes on from what was noted.
    pub fn new(noted: Option<HoldClock>, now: Duration) -> Clock {
        let ms = noted.map_or(0, |noted| noted.ms);
        let noted = Noted { ms, runs: noted.is_some(), wanted: false };
        Clock { base_ms: ms, imported: now, noted: Mutex::new(noted) }
    }

    fn ms(&self, now: Duration) -> u64 {
        self.base_ms.saturating_add(ms(now.saturating_sub(self.imported)))
    }

    /// Some hold has an end from now on.
    pub fn run(&self) {
        let mut noted = self.noted.lock();
        (noted.runs, noted.wanted) = (true, true);
    }

    /// Whether an idle pool should write it.
    fn is_due(&self, now: Duration) -> bool {
        let noted = self.noted.lock();
        noted.runs && self.ms(now).saturating_sub(noted.ms) >= ms(NOTED)
    }

    /// The item that the next sync writes, if it says something new.
    pub fn take_item(&self, now: Duration) -> Option<(ItemKey, Option<Item>)> {
        let (mut noted, now_ms) = (self.noted.lock(), self.ms(now));
        let went_on = now_ms.saturating_sub(noted.ms) >= ms(NOTED_BY_THE_WAY);
        if !(noted.wanted || noted.runs && went_on) {
            return None;
        }
        (noted.ms, noted.wanted) = (now_ms, false);
        let key = ItemKey::new(DatasetId(0), ItemClass::HoldClock, 0);
        Some((key, Some(Item { key, value: HoldClock { ms: now_ms }.encode() })))
    }
}

/// A snapshot that may be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holdable {
    /// One that a dataset lists.
    OfDataset(Txg),
    /// One of a file of a dataset.
    OfFile(FileSnapshotId),
}

impl From<Txg> for Holdable {
    fn from(txg: Txg) -> Holdable {
        Holdable::OfDataset(txg)
    }
}

impl From<FileSnapshotId> for Holdable {
    fn from(id: FileSnapshotId) -> Holdable {
        Holdable::OfFile(id)
    }
}

/// A hold that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Name of the hold.
    pub tag: String,
    /// When it was placed.
    pub placed: Time,
    /// Seconds since 1970 at which it ends if the pool stays in service; `None`: when it is
    /// released.
    pub ends_s: Option<u64>,
}

impl Dataset {
    /// Why snapshots stay or go, of both kinds.
    fn keep_records(&self) -> Vec<(Holdable, KeepRecord)> {
        let of_it = |(txg, record): (&Txg, &KeepRecord)| (Holdable::from(*txg), record.clone());
        let mut all: Vec<_> = self.keeping.lock().iter().map(of_it).collect();
        let snapshots = self.snapshots.lock();
        let of_files = snapshots.files.keep_records();
        all.extend(of_files.map(|(id, record)| (Holdable::from(id), record.clone())));
        all
    }
}

impl Datasets {
    /// Places a hold on snapshots of datasets or files, all in one txg; on disk when this returns.
    /// With an end, in seconds since 1970, it stands until then, and nobody can release it. Placing
    /// it again with a later end makes it longer.
    ///
    /// # Errors
    /// A snapshot is not there, has too many holds, or has one of that tag; a bad tag or end. Then
    /// none was placed.
    pub async fn hold(
        &self,
        tag: &str,
        on: &[(Arc<Dataset>, impl Into<Holdable> + Copy)],
        until_s: Option<u64>,
    ) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        let now_s = self.wall_s();
        let end = until_s.map(|until_s| HoldEnd { until_s, clock_ms: self.clock_at(until_s) });
        let mut changes = Vec::new();
        for (dataset, snapshot) in on {
            let snapshot = (*snapshot).into();
            let full = self.held_name(dataset, snapshot)?;
            let bad = |why: String| {
                let (tag, snapshot) = (tag.into(), full.clone());
                DatasetError::BadHold { tag, snapshot, why }
            };
            check_tag(tag).map_err(bad)?;
            if is_mark(tag) {
                return Err(bad("a copy marks its newest snapshot so: choose another tag".into()));
            }
            if let Some(until_s) = until_s {
                check_end(until_s, now_s, self.hold_max_s()).map_err(bad)?;
            }
            let mut record = self.keep_record(dataset, snapshot);
            let count = record.holds.len();
            match record.holds.iter_mut().find(|hold| hold.tag == tag) {
                Some(stands) if is_longer(end, stands.end) => stands.end = end,
                Some(_) => return Err(bad("there is one, and it ends no earlier".into())),
                None if count >= HOLDS_MAX => {
                    return Err(bad(format!("it has {HOLDS_MAX} holds, and takes no more")));
                }
                None => {
                    let placed = Time::from_ns(self.pool.world().wall_ns());
                    record.holds.push(Hold { tag: tag.into(), placed, end });
                }
            }
            changes.push((dataset.clone(), snapshot, record));
        }
        self.use_feature(FEATURE_KEEPING).await?;
        if changes.iter().any(|(_, on, _)| matches!(on, Holdable::OfFile(_))) {
            self.use_feature(FEATURE_FILE_HOLDS).await?;
        }
        if let Some(until_s) = until_s {
            self.hold_clock.run();
            self.note_held_until(until_s).await?;
        }
        self.keep(changes).await
    }

    /// Releases a hold on those of these snapshots that have it, all in one txg; on disk when this
    /// returns.
    ///
    /// # Errors
    /// None has it, or it has an end that has not come. Then none was released.
    pub async fn release(
        &self,
        tag: &str,
        on: &[(Arc<Dataset>, impl Into<Holdable> + Copy)],
    ) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        let mut changes = Vec::new();
        for (dataset, snapshot) in on {
            let snapshot = (*snapshot).into();
            let full = self.held_name(dataset, snapshot)?;
            let mut record = self.keep_record(dataset, snapshot);
            let Some(at) = record.holds.iter().position(|hold| hold.tag == tag) else { continue };
            let hold = record.holds.remove(at);
            if let Some(ends_s) = self.ends_s(&hold) {
                let why = format!(
                    "it stands until {}, and nobody can release it before; nothing was released",
                    text_s(ends_s)
                );
                return Err(DatasetError::BadHold { tag: tag.into(), snapshot: full, why });
            }
            changes.push((dataset.clone(), snapshot, record));
        }
        if let (true, Some((dataset, snapshot))) = (changes.is_empty(), on.first()) {
            let snapshot = self.held_name(dataset, (*snapshot).into())?;
            let why = "there is none; `aquifer holds` shows those that there are".into();
            return Err(DatasetError::BadHold { tag: tag.into(), snapshot, why });
        }
        self.keep(changes).await
    }

    /// The holds on a snapshot.
    pub fn holds(&self, dataset: &Dataset, snapshot: impl Into<Holdable>) -> Vec<Standing> {
        let standing = |hold: Hold| {
            let ends_s = self.ends_s(&hold);
            Standing { tag: hold.tag, placed: hold.placed, ends_s }
        };
        self.keep_record(dataset, snapshot.into()).holds.into_iter().map(standing).collect()
    }

    /// The first snapshot of the pool that is held until a time: its full name and its holds.
    ///
    /// # Errors
    /// That it is held.
    pub fn check_no_hold_with_end(&self) -> Result<(), DatasetError> {
        for dataset in self.all() {
            for (snapshot, _) in dataset.keep_records() {
                let mut holds = self.holds(&dataset, snapshot);
                holds.retain(|hold| hold.ends_s.is_some());
                self.no_holds(&dataset, snapshot, &holds)?;
            }
        }
        Ok(())
    }

    /// Fails if one of these snapshots is held. The caller lets no act come between this and their
    /// destruction.
    ///
    /// # Errors
    /// The first one that is held, and by what.
    pub fn check_not_held(
        &self,
        dataset: &Dataset,
        snapshots: impl IntoIterator<Item = impl Into<Holdable>>,
    ) -> Result<(), DatasetError> {
        self.check_not_held_by(dataset, snapshots, |_| true)
    }

    /// Fails if one of these snapshots is held, as [`Datasets::check_not_held`]; but a mark of what
    /// was received keeps none ([`crate::feeder`]).
    pub(crate) fn check_not_held_by_people(
        &self,
        dataset: &Dataset,
        snapshots: impl IntoIterator<Item = impl Into<Holdable>>,
    ) -> Result<(), DatasetError> {
        self.check_not_held_by(dataset, snapshots, |hold| !is_mark(&hold.tag))
    }

    fn check_not_held_by(
        &self,
        dataset: &Dataset,
        snapshots: impl IntoIterator<Item = impl Into<Holdable>>,
        counts: impl Fn(&Standing) -> bool,
    ) -> Result<(), DatasetError> {
        if left_out(Rule::HeldIsKept) {
            return Ok(());
        }
        let mut each = snapshots.into_iter().map(Into::into);
        each.try_for_each(|snapshot| {
            let mut holds = self.holds(dataset, snapshot);
            holds.retain(&counts);
            self.no_holds(dataset, snapshot, &holds)
        })
    }

    /// Fails if a snapshot of a dataset that it lists, or of its files, is held.
    pub(crate) fn check_nothing_held(&self, dataset: &Dataset) -> Result<(), DatasetError> {
        let all = dataset.keep_records().into_iter().map(|(on, _)| on);
        self.check_not_held_by_people(dataset, all)
    }

    fn no_holds(
        &self,
        dataset: &Dataset,
        snapshot: Holdable,
        holds: &[Standing],
    ) -> Result<(), DatasetError> {
        if holds.is_empty() {
            return Ok(());
        }
        let each = holds.iter().map(|Standing { tag, ends_s, .. }| match ends_s {
            Some(ends_s) => format!("{tag:?} until {}", text_s(*ends_s)),
            None => format!("{tag:?}"),
        });
        let holds = each.collect::<Vec<_>>().join(", ");
        Err(DatasetError::Held { snapshot: self.held_name(dataset, snapshot)?, holds })
    }

    /// Takes away holds that have ended, and lets an idle pool note the hold clock. To be called
    /// now and then.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn tend_holds(&self) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        let has_end = |record: &KeepRecord| record.holds.iter().any(|hold| hold.end.is_some());
        let of_it = |dataset: &Arc<Dataset>| {
            dataset.keep_records().iter().any(|(_, record)| has_end(record))
        };
        self.hold_clock.noted.lock().runs = self.all().iter().any(of_it);
        // An earlier release placed them without a word in the labels.
        if let Some(until_s) = self.latest_end_s() {
            self.note_held_until(until_s).await?;
        }
        if self.hold_clock.is_due(self.pool.world().now()) {
            self.pool.sync().await?;
        }
        let mut changes = Vec::new();
        for dataset in self.all() {
            for (snapshot, before) in dataset.keep_records() {
                let record = self.keep_record(&dataset, snapshot);
                if record == before {
                    continue;
                }
                let name = self.held_name(&dataset, snapshot)?;
                for hold in before.holds.iter().filter(|hold| !record.holds.contains(hold)) {
                    tracing::info!(
                        class = "snapshot.hold_ended", snapshot = %name, tag = %hold.tag,
                        "a hold has ended"
                    );
                }
                changes.push((dataset.clone(), snapshot, record));
            }
        }
        self.keep(changes).await
    }

    /// How far ahead the end of a hold may lie, by the pool's own property, in seconds.
    pub fn hold_max_s(&self) -> Option<u64> {
        let own = self.by_name(self.pool.name())?;
        time::parse_span(&self.value(&own, Property::HoldMax).0)
    }

    /// The latest end of all holds, if there is one that has not come.
    pub fn latest_end_s(&self) -> Option<u64> {
        let ends = |dataset: Arc<Dataset>| {
            let records = dataset.keep_records().into_iter();
            let holds = records.flat_map(|(_, record)| record.holds);
            holds.filter_map(|hold| self.ends_s(&hold)).max()
        };
        self.all().into_iter().filter_map(ends).max()
    }

    /// The labels say until when holds stand.
    pub(crate) async fn note_held_until(&self, until_s: u64) -> Result<(), DatasetError> {
        self.pool.note_held_until(until_s).await.map_err(labels_error)
    }

    /// Writes these records. The caller holds the lock of acts.
    async fn keep(
        &self,
        changes: Vec<(Arc<Dataset>, Holdable, KeepRecord)>,
    ) -> Result<(), DatasetError> {
        if changes.is_empty() {
            return Ok(());
        }
        {
            let hold = self.hold_act().await?;
            let items: Vec<_> = changes.into_iter().map(keep_one).collect();
            self.state.lock().queue.write(hold.txg(), items);
        }
        Ok(self.act_on_disk().await?)
    }

    /// Why a snapshot stays or goes, without holds that have ended.
    fn keep_record(&self, dataset: &Dataset, snapshot: Holdable) -> KeepRecord {
        let mut record = match snapshot {
            Holdable::OfDataset(txg) => {
                dataset.keeping.lock().get(&txg).cloned().unwrap_or_default()
            }
            Holdable::OfFile(id) => dataset.snapshots.lock().files.keep_record(id),
        };
        record.holds.retain(|hold| hold.end.is_none() || self.ends_s(hold).is_some());
        record
    }

    /// When a hold ends at the earliest, if it has an end and that has not come.
    fn ends_s(&self, hold: &Hold) -> Option<u64> {
        let HoldEnd { until_s, clock_ms } = hold.end?;
        let now_s = self.wall_s();
        let left_ms = clock_ms.saturating_sub(self.hold_clock.ms(self.pool.world().now()));
        let left_ms = if left_out(Rule::HoldsLastInService) { 0 } else { left_ms };
        let ends_s = until_s.max(now_s.saturating_add(left_ms.div_ceil(1000)));
        (ends_s > now_s).then_some(ends_s)
    }

    /// Returns what the hold clock shows at a time, if the pool stays in service.
    pub(crate) fn clock_at(&self, until_s: u64) -> u64 {
        let left_ms = until_s.saturating_sub(self.wall_s()).saturating_mul(1000);
        self.hold_clock.ms(self.pool.world().now()).saturating_add(left_ms)
    }

    pub(crate) fn wall_s(&self) -> u64 {
        self.pool.world().wall_ns() / 1_000_000_000
    }

    /// Names a snapshot on the line of a dataset, for messages.
    pub fn name_on_line(&self, line: DatasetId, snapshot: Txg) -> String {
        let known = self.by_id(line).and_then(|of| of.snapshots.lock().get(snapshot));
        let lister = known.as_ref().and_then(|known| self.by_id(known.lister?));
        match known.zip(lister) {
            Some((known, lister)) => {
                format!("{}@{}", self.full_name(&lister), known.record.name)
            }
            None => format!("a hidden snapshot of txg {snapshot}"),
        }
    }

    /// The full name of a snapshot of one kind or the other.
    fn held_name(&self, dataset: &Dataset, snapshot: Holdable) -> Result<String, DatasetError> {
        let id = match snapshot {
            Holdable::OfDataset(txg) => return self.listed_name(dataset, txg),
            Holdable::OfFile(id) => id,
        };
        let known = dataset.file_snapshot(id, self.pool.committed_txg());
        match known.filter(|_| !dataset.is_destroyed()) {
            Some(known) => Ok(self.name_of_file(dataset, &known)),
            None => {
                let of = self.full_name(dataset);
                Err(DatasetError::NotFound(format!("{of}:@ of txg {}", id.txg())))
            }
        }
    }

    /// The full name of a snapshot that is in the list.
    pub(crate) fn listed_name(
        &self,
        dataset: &Dataset,
        snapshot: Txg,
    ) -> Result<String, DatasetError> {
        let name = dataset.listing.lock().name_of(snapshot);
        let of = self.full_name(dataset);
        match name.filter(|_| !dataset.is_destroyed()) {
            Some(name) => Ok(format!("{of}@{name}")),
            None => Err(DatasetError::NotFound(format!("{of}@ of txg {snapshot}"))),
        }
    }
}

/// A snapshot has this record in memory. Returns the item that says so.
fn keep_one(
    (dataset, snapshot, record): (Arc<Dataset>, Holdable, KeepRecord),
) -> (ItemKey, Option<Item>) {
    let snapshot = match snapshot {
        Holdable::OfDataset(snapshot) => snapshot,
        Holdable::OfFile(id) => {
            return dataset.snapshots.lock().files.keep((dataset.id, id), record);
        }
    };
    keep_on(&dataset, snapshot, record)
}

/// The change that gives a snapshot of a dataset this record.
pub(crate) fn keep_on(
    dataset: &Dataset,
    snapshot: Txg,
    record: KeepRecord,
) -> (ItemKey, Option<Item>) {
    let key = ItemKey::new(dataset.line_of(snapshot), ItemClass::Keep, snapshot.0);
    let mut keeping = dataset.keeping.lock();
    if record.is_empty() {
        keeping.remove(&snapshot);
        return (key, None);
    }
    let item = Item { key, value: record.encode() };
    keeping.insert(snapshot, record);
    (key, Some(item))
}

/// Whether a hold that stands may get this end instead.
fn is_longer(end: Option<HoldEnd>, than: Option<HoldEnd>) -> bool {
    end.zip(than)
        .is_some_and(|(end, than)| end.until_s > than.until_s && end.clock_ms >= than.clock_ms)
}

fn check_tag(tag: &str) -> Result<(), String> {
    if tag.is_empty() || tag.len() > HOLD_TAG_BYTES_MAX {
        return Err(format!("a tag has 1 to {HOLD_TAG_BYTES_MAX} bytes"));
    }
    match tag.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
        true => Ok(()),
        false => Err("a tag holds letters, digits, blanks and punctuation of ASCII only".into()),
    }
}

fn check_end(until_s: u64, now_s: u64, max_s: Option<u64>) -> Result<(), String> {
    if until_s <= now_s {
        return Err(format!("{} has passed", text_s(until_s)));
    }
    if max_s.is_some_and(|max_s| until_s - now_s > max_s) {
        let latest = text_s(now_s.saturating_add(max_s.unwrap_or(0)));
        return Err(format!(
            "{} is further ahead than the pool's hold_max allows, which is until {latest}",
            text_s(until_s)
        ));
    }
    match until_s - now_s > HOLD_YEARS_MAX * YEAR_S {
        true => Err(format!(
            "{} is more than {HOLD_YEARS_MAX} years ahead, and the hold could not be taken back; \
             place it again later to make it longer",
            text_s(until_s)
        )),
        false => Ok(()),
    }
}
