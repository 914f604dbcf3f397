//! Snapshots of files that a pool takes and prunes by itself, by the property `filesnapshots`.
//!
//! [`crate::schedule`] has the periods and the names, `aquifer_files` finds the files that a rule
//! means. Here it is decided what is due, and what goes.
//!
//! Invariants:
//! - Each file counts for itself. One of a cadence is due if its schedule took none of the file in
//!   the period that it is now: so a new file has its first ones at the next look.
//! - Only what a schedule took is pruned: its record has the mark. Of a file the newest of a
//!   cadence stay, by the order in which they were taken.
//! - Only files that a rule means now are pruned. A file that was removed or renamed keeps what it
//!   has, and so does one whose rule is gone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use aquifer_ondisk::file_snapshot::{FILE_PATH_BYTES_MAX, FileSnapshotId};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::Cadence;
use aquifer_ondisk::{DatasetId, ObjectId};

use super::wanted::LONG_PATH;
use super::{Asks, FileSnapshot, NewFileSnapshot};
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::file_schedule::FileSchedule;
use crate::property::Property;
use crate::schedule::{Schedule, name, seconds};
use crate::snapshots::Act;

/// Files that one txg takes snapshots of for a schedule, unless one dataset has more; and snapshots
/// that one txg prunes.
const AT_ONCE_MAX: usize = 10_000;
/// Files that are looked at before others have their turn.
const FILES_OF_A_TURN: usize = 64;
/// Names that an event has.
const NAMES_TOLD_MAX: usize = 20;

/// Names that one look has given to files, and to their paths.
#[derive(Debug, Default)]
struct Names {
    of_files: HashSet<(ObjectId, String)>,
    of_paths: HashSet<(String, String)>,
}

/// A file that a rule of its dataset means.
#[derive(Debug, Clone)]
pub struct ScheduledFile {
    /// The file.
    pub object: ObjectId,
    /// Its generation.
    pub generation: u64,
    /// Its path in the dataset, as it is shown, without a slash before it.
    pub path: String,
    /// Schedule that its rule sets.
    pub schedule: Arc<Schedule>,
}

/// The files of a dataset that rules mean, each once.
#[derive(Debug, Clone)]
pub struct ScheduledFiles {
    /// The dataset.
    pub dataset: Arc<Dataset>,
    /// In the order of the rules.
    pub files: Vec<ScheduledFile>,
}

/// Snapshots of files that are due, by cadence and dataset.
type Due = BTreeMap<Cadence, Vec<Vec<NewFileSnapshot>>>;

impl Datasets {
    /// The datasets of which files have snapshots by schedule, and their rules. A copy that is
    /// received into has none.
    pub fn file_schedules(&self) -> Vec<(Arc<Dataset>, FileSchedule)> {
        let is_served = |of: &Arc<Dataset>| !of.is_standby() && of.takes_changes();
        let served = self.all().into_iter().filter(is_served);
        let schedules = served.map(|dataset| {
            let (value, _) = self.value(&dataset, Property::Filesnapshots);
            (dataset, FileSchedule::parse(&value).unwrap_or_default())
        });
        schedules.filter(|(_, schedule)| !schedule.rules().is_empty()).collect()
    }

    /// Takes the snapshots of these files that are due at `now`, and prunes those that schedules
    /// took of them and that are too many. On disk when this returns.
    ///
    /// # Errors
    /// Errors of the pool, and a path that is too long. What else is due was taken, and what can be
    /// pruned was, nevertheless.
    pub async fn tend_scheduled_files(
        &self,
        all: &[ScheduledFiles],
        now: Time,
    ) -> Result<(), DatasetError> {
        if all.is_empty() {
            return Ok(());
        }
        let _act = self.acts.lock().await;
        let taken = self.take_due_files(all, now).await;
        self.prune_files(all).await?;
        taken
    }

    /// Notes why files could not be tended, or that they were. Tells of each reason once.
    pub fn tell_of_scheduled_files(&self, failed: Option<String>) {
        if self.file_schedules_failed.is_news(failed.clone()) {
            tracing::error!(
                class = "snapshot.schedule_failed",
                pool = self.pool.name(),
                error = failed,
                "snapshots of files that are due cannot be taken"
            );
        }
    }

    /// The caller holds the lock of acts.
    async fn take_due_files(&self, all: &[ScheduledFiles], now: Time) -> Result<(), DatasetError> {
        let (due, mut skipped) = self.due_files(all, now).await;
        for (cadence, of_datasets) in due {
            let (mut together, mut groups) = (Vec::new(), Vec::new());
            // The room of one is not there for the next. Each group asks for its own once more.
            let mut asked = Vec::new();
            for files in of_datasets {
                // A dataset that has no room keeps no other from its snapshots.
                match self.ask_for_files(files.iter()).await {
                    Err(error @ DatasetError::NoRoomForSnapshot { .. }) => {
                        skipped = skipped.or(Some(error));
                        continue;
                    }
                    of_it => asked.push(of_it?),
                }
                if !together.is_empty() && together.len() + files.len() > AT_ONCE_MAX {
                    groups.push(std::mem::take(&mut together));
                }
                together.extend(files);
            }
            groups.push(together);
            groups.retain(|group| !group.is_empty());
            drop(asked);
            for group in groups {
                match self.take_group(group, cadence, now).await {
                    // Other groups can be taken.
                    Err(
                        error @ (DatasetError::BadName { .. }
                        | DatasetError::Increment(_)
                        | DatasetError::NoRoomForSnapshot { .. }),
                    ) => {
                        skipped = skipped.or(Some(error));
                    }
                    done => done?,
                }
            }
        }
        skipped.map_or(Ok(()), Err)
    }

    /// Takes snapshots of these files, all in one txg, but of those that are removed by now.
    async fn take_group(
        &self,
        group: Vec<NewFileSnapshot>,
        cadence: Cadence,
        now: Time,
    ) -> Result<(), DatasetError> {
        let full = |of: &NewFileSnapshot| self.file_snapshot_name(&of.dataset, &of.path, &of.name);
        let mut names: Vec<String> = group.iter().map(full).collect();
        match self.snapshot_files_for(group, Asks::Schedule(cadence, now)).await {
            Err(DatasetError::FilesGone { missing, .. }) => {
                let missing: BTreeSet<String> = missing.into_iter().collect();
                names.retain(|name| !missing.contains(name));
            }
            done => drop(done?),
        }
        if let Some(snapshots) = told(&names) {
            tracing::info!(
                class = "snapshot.scheduled",
                pool = self.pool.name(),
                snapshots,
                count = names.len(),
                "snapshots of files taken by schedule"
            );
        }
        Ok(())
    }

    /// Finds the snapshots of files that are due, and why one that is due cannot be taken.
    async fn due_files(&self, all: &[ScheduledFiles], now: Time) -> (Due, Option<DatasetError>) {
        let (mut due, mut skipped) = (Due::new(), None);
        let mut looked_at = 0;
        for ScheduledFiles { dataset, files } in all {
            let mut of_it: BTreeMap<Cadence, Vec<NewFileSnapshot>> = BTreeMap::new();
            let mut names = Names::default();
            for file in files.iter().filter(|_| dataset.takes_changes()) {
                looked_at += 1;
                if looked_at % FILES_OF_A_TURN == 0 {
                    self.pool.turn_of_others().await;
                }
                for cadence in due_cadences(dataset, file, seconds(now)) {
                    if file.path.len() > FILE_PATH_BYTES_MAX {
                        let name = format!("{}:{}", self.full_name(dataset), file.path);
                        let why = LONG_PATH.into();
                        skipped = skipped.or(Some(DatasetError::BadName { name, why }));
                        break;
                    }
                    // Somebody else has both names of this second: it is taken at the next look.
                    let of = (dataset.as_ref(), file);
                    let Some(name) = free_name(&mut names, of, (cadence, seconds(now))) else {
                        continue;
                    };
                    let ScheduledFile { object, generation, ref path, .. } = *file;
                    let (dataset, path) = (dataset.clone(), path.clone());
                    let new = NewFileSnapshot { dataset, object, generation, path, name };
                    of_it.entry(cadence).or_default().push(new);
                }
            }
            for (cadence, files) in of_it {
                due.entry(cadence).or_default().push(files);
            }
        }
        (due, skipped)
    }

    /// Destroys what schedules took of these files and that is too many. The caller holds the lock
    /// of acts.
    async fn prune_files(&self, all: &[ScheduledFiles]) -> Result<(), DatasetError> {
        let mut excess: Vec<(DatasetId, FileSnapshotId)> = Vec::new();
        let mut names = Vec::new();
        let mut held: BTreeMap<DatasetId, u64> = BTreeMap::new();
        let mut looked_at = 0;
        for ScheduledFiles { dataset, files } in all {
            for file in files.iter().filter(|_| !dataset.is_destroyed()) {
                looked_at += 1;
                if looked_at % FILES_OF_A_TURN == 0 {
                    self.pool.turn_of_others().await;
                }
                for of in too_many(dataset, file) {
                    let FileSnapshot { id, record } = of.as_ref();
                    if self.check_not_held(dataset, [*id]).is_err() {
                        *held.entry(dataset.id).or_default() += 1;
                        continue;
                    }
                    excess.push((dataset.id, *id));
                    names.push(self.file_snapshot_name(dataset, &record.path, &record.name));
                }
            }
        }
        self.tell_of_held(&self.left_held_of_files, &held);
        for some in excess.chunks(AT_ONCE_MAX) {
            let mut lines: BTreeMap<DatasetId, Vec<FileSnapshotId>> = BTreeMap::new();
            for (line, id) in some {
                lines.entry(*line).or_default().push(*id);
            }
            let destroy = |(line, ids)| Act::DestroyFiles { line, ids, at_once: false };
            self.act(lines.into_iter().map(destroy).collect()).await?;
        }
        if let Some(snapshots) = told(&names) {
            tracing::info!(
                class = "snapshot.pruned",
                pool = self.pool.name(),
                snapshots,
                count = names.len(),
                "snapshots of files pruned by schedule"
            );
        }
        Ok(())
    }
}

/// Lists the snapshots that schedules took of a file, in order, each with its cadence. One that was
/// destroyed does not count, although a clone may need it.
fn scheduled(dataset: &Dataset, file: &ScheduledFile) -> Vec<(Cadence, Arc<FileSnapshot>)> {
    let snapshots = dataset.snapshots.lock();
    let shown = snapshots.files.of_file(file.object).filter(|of| !of.record.hidden);
    shown.filter_map(|of| Some((of.record.schedule?, of.clone()))).collect()
}

/// The cadences of a file's rule that are due.
fn due_cadences(dataset: &Dataset, file: &ScheduledFile, now_s: u64) -> BTreeSet<Cadence> {
    let taken = scheduled(dataset, file).into_iter();
    file.schedule.due(taken.map(|(of, taken)| (of, seconds(taken.record.created))), now_s)
}

/// Finds the snapshots that schedules took of a file and of which its rule has too many.
fn too_many(dataset: &Dataset, file: &ScheduledFile) -> Vec<Arc<FileSnapshot>> {
    file.schedule.excess(scheduled(dataset, file).into_iter())
}

/// A name that no snapshot of the file or of its path has. From here on it is taken.
fn free_name(
    names: &mut Names,
    (dataset, file): (&Dataset, &ScheduledFile),
    (cadence, now_s): (Cadence, u64),
) -> Option<String> {
    let is_free = |name: &String| {
        !names.of_files.contains(&(file.object, name.clone()))
            && !names.of_paths.contains(&(file.path.clone(), name.clone()))
            && !dataset.snapshots.lock().files.has_name(file.object, &file.path, name)
    };
    let free = [false, true].map(|to_the_second| name(cadence, now_s, to_the_second));
    let free = free.into_iter().find(is_free)?;
    names.of_files.insert((file.object, free.clone()));
    names.of_paths.insert((file.path.clone(), free.clone()));
    Some(free)
}

/// The names that an event has; `None`: there are none.
fn told(names: &[String]) -> Option<String> {
    let some = names.get(..NAMES_TOLD_MAX).unwrap_or(names);
    match names.len().saturating_sub(some.len()) {
        _ if some.is_empty() => None,
        0 => Some(some.join(" ")),
        more => Some(format!("{} and {more} more", some.join(" "))),
    }
}
