//! Subjects: what a text of a command or a request names. No other code looks for an `@`, `,`, `%`,
//! `:` or `#` in one.
//!
//! | Text | Subject |
//! |---|---|
//! | `tank/vms` | a dataset |
//! | `tank/vms@before`, `tank/vms@a,c%e,%b` | snapshots of it: one, or a [`Choice`] |
//! | `tank/vms#sent` | a bookmark of it |
//! | `tank/vms:web01/disk0.vhd` | a file in it |
//! | `tank/vms:web01/disk0.vhd@before`, `tank/vms:*/*.vhd@auto-*,b` | snapshots of files in it |
//!
//! Names of datasets may have colons, and so may names of snapshots. Paths may have any of these
//! characters where they were not copied from a listing, which escapes them
//! ([`aquifer_ondisk::shown_name`]). So a text is read in this order, and the first that fits
//! counts:
//!
//! 1. If there is an `@`, the last one ends a place, and names of snapshots follow. Place is a
//!    dataset of this very name; or else a file: the dataset has the longest name that ends before
//!    a colon, and a path follows that is not empty.
//! 2. If neither is there, the first `@` ends the name of a dataset. Of what follows, no snapshot
//!    has the name.
//! 3. Without an `@` it is a dataset of this very name; or else a bookmark, if a dataset ends
//!    before the first `#`; or else a file, as above.
//!
//! So a dataset `tank/a:b` hides a file `b` in `tank/a`, which `tank/a::b` names nevertheless.
//!
//! Some texts name a file and nothing else: where a clone is to be made ([`FilePlace::parse`]), and
//! of what two versions are compared ([`ends`]). In these, an `@` behind the colon is of the path.
//!
//! Before it is known which pools and datasets there are, [`pools`] and [`datasets`] list all that
//! a text may be about.

mod choice;
mod error;
mod pattern;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use aquifer_dataset::{Dataset, Datasets, FullName, FullNameError, check_snapshot};

pub use choice::{Choice, Chosen};
pub use error::SubjectError;
pub use pattern::PathPattern;
use pattern::Pattern;

/// Colons in a text that may end the name of a dataset.
const COLONS_MAX: usize = 64;
/// Where the name of a dataset may end in a text, at most.
const ENDS_MAX: usize = 64;

/// See the module's head.
#[derive(Debug, Clone)]
pub enum Subject {
    /// A dataset.
    Dataset(Arc<Dataset>),
    /// Snapshots of a dataset.
    Snapshots(SnapshotNames),
    /// A bookmark of a dataset.
    Bookmark(BookmarkName),
    /// A file.
    File(FilePlace),
    /// Snapshots of files.
    FileSnapshots(FileSnapshotNames),
}

/// Snapshots of a dataset, which need not exist.
#[derive(Debug, Clone)]
pub struct SnapshotNames {
    text: String,
    dataset: Arc<Dataset>,
    names: String,
}

/// One snapshot of a dataset, which need not exist.
#[derive(Debug, Clone)]
pub struct OneSnapshot {
    /// Its full name.
    pub full: String,
    /// The dataset.
    pub dataset: Arc<Dataset>,
    /// Name of the snapshot: one that a snapshot may have.
    pub name: String,
}

/// A bookmark of a dataset, which need not exist.
#[derive(Debug, Clone)]
pub struct BookmarkName {
    /// Its full name.
    pub full: String,
    /// The dataset.
    pub dataset: Arc<Dataset>,
}

/// A file, which need not exist.
#[derive(Debug, Clone)]
pub struct FilePlace {
    pub(crate) text: String,
    /// The dataset.
    pub dataset: Arc<Dataset>,
    /// The parts of its path, as they were given; at least one.
    pub(crate) parts: Vec<String>,
}

/// Snapshots of files of a dataset: paths and names, both of which may be patterns.
#[derive(Debug, Clone)]
pub struct FileSnapshotNames {
    text: String,
    place_bytes: usize,
    /// The dataset.
    pub dataset: Arc<Dataset>,
    pub(crate) path: PathPattern,
    pub(crate) names: String,
}

/// A subject in its parts.
#[derive(Debug, PartialEq, Eq)]
enum Parts<'a, D> {
    Dataset(D),
    Snapshots(D, &'a str),
    Bookmark(D),
    File(D, Vec<&'a str>),
    /// Bytes of the place come last.
    FileSnapshots(D, Vec<&'a str>, &'a str, usize),
}

impl Subject {
    /// The subject of a text.
    ///
    /// # Errors
    /// There is no such dataset.
    pub fn parse(datasets: &Datasets, text: &str) -> Result<Subject, SubjectError> {
        let parts = parts(text, |name| datasets.by_name(name));
        let parts = parts.ok_or_else(|| SubjectError::no_dataset(text))?;
        let text = text.to_string();
        Ok(match parts {
            Parts::Dataset(dataset) => Subject::Dataset(dataset),
            Parts::Snapshots(dataset, names) => {
                Subject::Snapshots(SnapshotNames { names: names.into(), dataset, text })
            }
            Parts::Bookmark(dataset) => Subject::Bookmark(BookmarkName { full: text, dataset }),
            Parts::File(dataset, parts) => {
                let parts = parts.into_iter().map(str::to_string).collect();
                Subject::File(FilePlace { dataset, parts, text })
            }
            Parts::FileSnapshots(dataset, parts, names, place_bytes) => {
                let (path, names) = (PathPattern::new(&parts.join("/")), names.into());
                let of = FileSnapshotNames { path, names, place_bytes, dataset, text };
                Subject::FileSnapshots(of)
            }
        })
    }

    /// The dataset that it is, or is of.
    pub fn dataset(&self) -> &Arc<Dataset> {
        match self {
            Subject::Dataset(dataset) => dataset,
            Subject::Snapshots(of) => &of.dataset,
            Subject::Bookmark(of) => &of.dataset,
            Subject::File(of) => &of.dataset,
            Subject::FileSnapshots(of) => &of.dataset,
        }
    }

    /// The snapshots of a dataset that it is.
    ///
    /// # Errors
    /// It is something else.
    pub fn snapshots(self, text: &str) -> Result<SnapshotNames, SubjectError> {
        match self {
            Subject::Snapshots(of) => Ok(of),
            other => Err(other.is_no("snapshot of a dataset: write dataset@name", text)),
        }
    }

    /// The one snapshot of a dataset that it is.
    ///
    /// # Errors
    /// It is something else, or no snapshot can have the name.
    pub fn one_snapshot(self, text: &str) -> Result<OneSnapshot, SubjectError> {
        self.snapshots(text)?.one()
    }

    /// The bookmark that it is.
    ///
    /// # Errors
    /// It is something else.
    pub fn bookmark(self, text: &str) -> Result<BookmarkName, SubjectError> {
        match self {
            Subject::Bookmark(of) => Ok(of),
            other => Err(other.is_no("bookmark: write dataset#name", text)),
        }
    }

    /// Makes the error for one that wants something else.
    pub fn is_no(&self, wanted: &'static str, text: &str) -> SubjectError {
        let is = match self {
            Subject::Dataset(_) => "a dataset",
            Subject::Snapshots(_) => "a snapshot of a dataset",
            Subject::Bookmark(_) => "a bookmark",
            Subject::File(_) => "a file",
            Subject::FileSnapshots(_) => "a snapshot of a file",
        };
        SubjectError::Another { text: text.into(), is, wanted }
    }
}

impl SnapshotNames {
    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The dataset.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// The one snapshot that it is.
    ///
    /// # Errors
    /// No snapshot can have the name: it may be several ones, or a range.
    pub fn one(self) -> Result<OneSnapshot, SubjectError> {
        check_snapshot(&self.text, &self.names)?;
        Ok(OneSnapshot { full: self.text, dataset: self.dataset, name: self.names })
    }

    /// Which snapshots of the dataset it is: one is a choice, too.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn choice(&self) -> Result<Choice, SubjectError> {
        Choice::parse(&self.text, &self.names)
    }
}

impl FilePlace {
    /// The file that a text names, whatever is in its path.
    ///
    /// # Errors
    /// There is no such dataset, or no path.
    pub fn parse(datasets: &Datasets, text: &str) -> Result<FilePlace, SubjectError> {
        let place = place(text, &|name: &str| datasets.by_name(name));
        let (dataset, parts) = place.ok_or_else(|| SubjectError::NoPlace(text.into()))?;
        let parts = parts.into_iter().map(str::to_string).collect();
        Ok(FilePlace { text: text.into(), dataset, parts })
    }
}

impl FileSnapshotNames {
    /// The snapshots of files that a text names.
    ///
    /// # Errors
    /// It names something else, or nothing.
    pub fn parse(datasets: &Datasets, text: &str) -> Result<FileSnapshotNames, SubjectError> {
        match Subject::parse(datasets, text) {
            Ok(Subject::FileSnapshots(of)) => Ok(of),
            _ => Err(SubjectError::NoFileSnapshot(text.into())),
        }
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The files, as they were given.
    pub fn files(&self) -> &str {
        self.text.get(..self.place_bytes).unwrap_or(&self.text)
    }

    /// The path of the one file that it is about, as it was given.
    pub(crate) fn one_path(&self) -> Option<&str> {
        self.path.plain().map(|_| self.path.text())
    }

    /// Returns patterns of names of snapshots, each of which means some.
    pub(crate) fn each_name(&self) -> impl Iterator<Item = Pattern> {
        self.names.split(',').map(Pattern::new)
    }

    /// These files, with another snapshot's name.
    pub(crate) fn at(&self, name: &str) -> FileSnapshotNames {
        let text = format!("{}@{name}", self.files());
        FileSnapshotNames { text, names: name.into(), ..self.clone() }
    }

    /// That of a text which names a snapshot of files, or only a snapshot: of the same files then.
    pub(crate) fn completed(
        &self,
        datasets: &Datasets,
        text: &str,
    ) -> Result<FileSnapshotNames, SubjectError> {
        match FullName::of(text) {
            FullName::Snapshot("", name) => Ok(self.at(name)),
            _ => FileSnapshotNames::parse(datasets, text),
        }
    }
}

/// The pools that a text may be about, the one with the longest name first.
pub fn pools(text: &str) -> impl Iterator<Item = &str> {
    let first = text.split(['/', '@', '#']).next().unwrap_or_default();
    let shorter = first.rmatch_indices(':').filter_map(|(at, _)| first.get(..at));
    std::iter::once(first).chain(shorter)
}

/// The names of datasets that a text may be about. None are listed if they are too many.
pub fn datasets(text: &str) -> Vec<&str> {
    let ends = text.char_indices().filter(|(_, c)| ":@#".contains(*c));
    let ends: Vec<usize> = ends.map(|(at, _)| at).chain([text.len()]).take(ENDS_MAX + 1).collect();
    match ends.len() > ENDS_MAX {
        true => Vec::new(),
        false => ends.iter().filter_map(|end| text.get(..*end)).collect(),
    }
}

/// Whether a text is about a dataset of this name, or about what is in it or below it.
pub fn begins_with(text: &str, dataset: &str) -> bool {
    let rest = text.strip_prefix(dataset);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@', ':', '#']))
}

/// Where a path may begin in a text: what is before that and may have a name, and the path. The
/// longest name comes first: a colon in a shown path is escaped.
pub fn ends(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.rmatch_indices(':').take(COLONS_MAX).map(|(at, _)| {
        let (name, path) = text.split_at(at);
        (name, path.trim_start_matches(':'))
    })
}

/// Dataset and path of a file, which has at least one part.
fn place<'a, D>(text: &'a str, dataset: &impl Fn(&str) -> Option<D>) -> Option<(D, Vec<&'a str>)> {
    let (dataset, path) = ends(text).find_map(|(name, path)| Some((dataset(name)?, path)))?;
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then_some((dataset, parts))
}

fn file<'a, D>(text: &'a str, dataset: &impl Fn(&str) -> Option<D>) -> Option<Parts<'a, D>> {
    place(text, dataset).map(|(dataset, parts)| Parts::File(dataset, parts))
}

/// The one parser: see the module's head.
fn parts<'a, D>(text: &'a str, dataset: impl Fn(&str) -> Option<D>) -> Option<Parts<'a, D>> {
    if let Some((before, names)) = text.rsplit_once('@') {
        if let Some(dataset) = dataset(before) {
            return Some(Parts::Snapshots(dataset, names));
        }
        if let Some((dataset, parts)) = place(before, &dataset) {
            return Some(Parts::FileSnapshots(dataset, parts, names, before.len()));
        }
    } else if let Some(dataset) = dataset(text) {
        return Some(Parts::Dataset(dataset));
    }
    match FullName::of(text) {
        FullName::Snapshot(name, names) => Some(Parts::Snapshots(dataset(name)?, names)),
        FullName::Bookmark(name, _) => {
            dataset(name).map(Parts::Bookmark).or_else(|| file(text, &dataset))
        }
        FullName::Dataset(_) => file(text, &dataset),
    }
}

impl From<FullNameError> for SubjectError {
    fn from(error: FullNameError) -> Self {
        SubjectError::Dataset(error.into())
    }
}
