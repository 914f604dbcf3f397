//! Finds the files that have snapshots by schedule: those that rules of the property
//! `filesnapshots` mean.
//!
//! Invariants:
//! - A look reads no more than [`ENTRIES_MAX`] names of a dataset, whatever its rules are, in the
//!   tree of the last txg: it writes nothing, and no client waits for it.
//! - A file follows the first rule that means it, by any of its names. If a rule cannot be
//!   followed, neither are those behind it: they would keep less of files that it means.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use aquifer_dataset::{
    Dataset, DatasetError, Datasets, FileRule, FileSchedule, LookError, Property, ScheduledFile,
    ScheduledFiles, Version,
};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::inode::Time;

use super::{FILES_AT_ONCE_MAX, FileNameError, Found};
use crate::core::Files;
use crate::subject::PathPattern;

/// Entries of directories that the rules of a dataset look at, at most, all together.
const ENTRIES_MAX: usize = 100_000;

/// Files that have snapshots by schedule, as [`Files::scheduled`] found them.
#[derive(Debug)]
pub struct Scheduled {
    of: Vec<ScheduledFiles>,
    /// The patterns that mean files, in any dataset.
    met: BTreeSet<String>,
    /// The first rule that cannot be followed.
    failed: Option<FileNameError>,
}

impl Scheduled {
    /// The patterns of a dataset that mean no file, neither of it nor of datasets below that
    /// inherit them. None if that is not known.
    pub fn unmet(&self, datasets: &Datasets, dataset: &Dataset) -> Vec<String> {
        let (value, _) = datasets.value(dataset, Property::Filesnapshots);
        let schedule = FileSchedule::parse(&value).unwrap_or_default();
        let patterns = schedule.rules().iter().map(|rule| &rule.pattern);
        let unmet = patterns.filter(|of| self.failed.is_none() && !self.met.contains(*of));
        unmet.cloned().collect()
    }
}

impl Files {
    /// Finds the files that have snapshots by schedule. Changes nothing.
    pub async fn scheduled(&self) -> Scheduled {
        let mut found = Scheduled { of: Vec::new(), met: BTreeSet::new(), failed: None };
        for (dataset, schedule) in self.datasets.file_schedules() {
            let mut files = Vec::new();
            match self.follow(&dataset, &schedule, (&mut files, &mut found.met)).await {
                Ok(()) => {}
                // It went, or a stream comes into it.
                Err(FileNameError::Look(LookError::Destroyed(_))) => continue,
                Err(FileNameError::Dataset(
                    DatasetError::NotFound(_) | DatasetError::Increment(_),
                )) => continue,
                Err(error) => found.failed = found.failed.or(Some(error)),
            }
            found.of.push(ScheduledFiles { dataset, files });
        }
        found
    }

    /// Takes the snapshots of these files that are due at `now`, and prunes those that schedules
    /// took of them and that are too many. On disk when this returns. Tells of a failure once.
    ///
    /// # Errors
    /// A rule that cannot be followed, and as [`aquifer_dataset::Datasets::tend_scheduled_files`].
    /// What else is due was taken, and what can be pruned was, nevertheless.
    pub async fn tend_scheduled(&self, found: Scheduled, now: Time) -> Result<(), FileNameError> {
        let done = self.datasets.tend_scheduled_files(&found.of, now).await;
        let done = found.failed.map_or(Ok(()), Err).and(done.map_err(FileNameError::from));
        let why = |error: &FileNameError| match error {
            FileNameError::Dataset(error) => error.lasting(),
            error => error.to_string(),
        };
        self.datasets.tell_of_scheduled_files(done.as_ref().err().map(why));
        done
    }

    /// The files of a dataset that rules mean, each with the first of its rules.
    async fn follow(
        &self,
        dataset: &Arc<Dataset>,
        schedule: &FileSchedule,
        (files, met): (&mut Vec<ScheduledFile>, &mut BTreeSet<String>),
    ) -> Result<(), FileNameError> {
        let name = self.datasets.full_name(dataset);
        let version = self.datasets.version(&name)?;
        let (mut known, mut entries) = (HashSet::new(), ENTRIES_MAX);
        for rule in schedule.rules() {
            let into = (&mut known, &mut *files);
            let followed = self.follow_one(rule, &version, into, &mut entries).await;
            let why = |why: String| {
                let (dataset, pattern) = (name.clone(), &rule.pattern);
                let why = format!("{pattern:?} {why}");
                FileNameError::Schedule { dataset, why }
            };
            let meant = followed.map_err(|error| match error {
                FileNameError::TooMany(_) => why(format!(
                    "and the rules before it mean more than {FILES_AT_ONCE_MAX} files; use the \
                     property snapshots, or let them mean fewer"
                )),
                FileNameError::TooLong(_) => why(format!(
                    "and the rules before it look at more than {ENTRIES_MAX} names; use the \
                     property snapshots, or name directories"
                )),
                FileNameError::Look(LookError::TooLong(_)) => {
                    why("takes too long to look up; let it mean fewer names".into())
                }
                FileNameError::Pool(error) => why(format!("cannot be looked up: {error}")),
                other => other,
            })?;
            if meant > 0 {
                met.insert(rule.pattern.clone());
            }
        }
        Ok(())
    }

    /// Returns how many files the rule means, also those that follow one before it.
    async fn follow_one(
        &self,
        rule: &FileRule,
        version: &Version,
        (known, files): (&mut HashSet<ObjectId>, &mut Vec<ScheduledFile>),
        entries: &mut usize,
    ) -> Result<usize, FileNameError> {
        let mut look = version.look(&self.pool)?;
        let path = PathPattern::new(&rule.pattern);
        let found = match self.matching(&rule.pattern, &mut look, &path, entries).await {
            Err(
                FileNameError::NoMatch(_)
                | FileNameError::NotThere(_)
                | FileNameError::NotRegular(_),
            ) => Vec::new(),
            found => found?,
        };
        let schedule = Arc::new(rule.schedule.clone());
        let (before, meant) = (files.len(), found.len());
        for Found { inode, path } in found {
            let (object, generation, schedule) = (inode.object, inode.generation, schedule.clone());
            if known.insert(object) {
                files.push(ScheduledFile { object, generation, path, schedule });
            }
        }
        if files.len() > FILES_AT_ONCE_MAX {
            files.truncate(before);
            return Err(FileNameError::TooMany(rule.pattern.clone()));
        }
        Ok(meant)
    }
}
