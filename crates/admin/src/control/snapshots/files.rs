//! Snapshots of single files.

use std::sync::Arc;

use aquifer_api::{ApiError, CloneSnapshot, DatasetDone, SnapshotInfo, guid_text};
use aquifer_dataset::{Dataset, FileSnapshot, FileVersion, RollbackOptions};
use aquifer_files::file_snapshots::{FileNameError, OfVersions};
use aquifer_ondisk::Txg;

use super::super::datasets::act_on;
use super::super::serving::Serving;
use super::super::{Control, properties};
use super::pages::Cursor;
use super::{SnapshotsOf, pool_name};

impl Control {
    /// The pool of a dataset, a snapshot, or a file in one. Its name may have colons, as may what
    /// comes behind it.
    pub(in super::super) fn pool_of_one(&self, text: &str) -> Result<Arc<Serving>, ApiError> {
        let name = pool_name(text);
        self.serving(name).or_else(|error| {
            let shorter = name.rmatch_indices(':').map(|(at, _)| name.split_at(at).0);
            shorter.filter_map(|name| self.serving(name).ok()).next().ok_or(error)
        })
    }

    /// The pool of all these snapshots.
    pub(in super::super) fn pool_of_all(&self, names: &[String]) -> Result<Arc<Serving>, ApiError> {
        let first = names.first().ok_or_else(|| ApiError::invalid("no snapshot is named"))?;
        let serving = self.pool_of_one(first)?;
        for other in names {
            if self.pool_of_one(other)?.name() != serving.name() {
                return Err(ApiError::invalid(format!(
                    "{first:?} and {other:?} are in two pools: a command acts on all snapshots at \
                     one moment, which two pools do not have"
                )));
            }
        }
        Ok(serving)
    }
}

/// Whether these are names of snapshots of files, and not of datasets.
///
/// # Errors
/// Names of both kinds, or names of files with what is for datasets.
pub(super) fn are_named(
    serving: &Serving,
    names: &[String],
    recursive: bool,
) -> Result<bool, ApiError> {
    let of_file = |name: &&String| serving.service().files.names_files(name);
    let Some(file) = names.iter().find(of_file) else { return Ok(false) };
    if let Some(other) = names.iter().find(|name| !of_file(name)) {
        return Err(ApiError::invalid(format!(
            "{file:?} is a snapshot of files and {other:?} is one of a dataset: take them with two \
             commands"
        )));
    }
    match recursive {
        true => Err(ApiError::invalid(format!(
            "{file:?} is a snapshot of files: -r is for datasets. A pattern such as \
             tank/vms:web01/*@NAME means several files"
        ))),
        false => Ok(true),
    }
}

pub(super) async fn take(serving: &Serving, names: Vec<String>) -> Result<Vec<String>, ApiError> {
    let files = serving.service().files.clone();
    let take = async move { files.snapshot_files(&names).await };
    let done = serving.run(take).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(api_error)
}

/// Gives the snapshots of files that are listed so another name. Returns their full names.
pub(super) async fn rename(
    serving: &Serving,
    name: &str,
    new: String,
) -> Result<Vec<String>, ApiError> {
    let found = find(serving, name, |_| true).await?;
    let datasets = serving.service().datasets.clone();
    let rename = async move {
        let mut names = Vec::new();
        for SnapshotsOf { dataset, files, .. } in found {
            let ids = files.iter().map(|file| file.id).collect();
            names.extend(datasets.rename_file_snapshots(&dataset, &ids, &new).await?);
        }
        Ok(names)
    };
    act_on(serving, rename).await
}

/// The snapshots of files that are listed so, of those of txgs that are seen.
pub(super) async fn find(
    serving: &Serving,
    name: &str,
    is_seen: impl Fn(Txg) -> bool,
) -> Result<Vec<SnapshotsOf>, ApiError> {
    let files = serving.service().files.clone();
    let text = name.to_string();
    let find = async move { files.listed_file_snapshots(&text).await };
    let done = serving.run(find).await.map_err(|error| ApiError::failed(error.to_string()))?;
    let (dataset, mut files) = done.map_err(api_error)?;
    files.retain(|file| is_seen(file.txg()));
    let name = serving.service().datasets.full_name(&dataset);
    Ok(vec![SnapshotsOf { name, dataset, snapshots: Vec::new(), files }])
}

/// The versions of files that a text means, with their dataset.
pub(in super::super) async fn versions(
    serving: &Serving,
    name: &str,
) -> Result<OfVersions, ApiError> {
    let (files, text) = (serving.service().files.clone(), name.to_string());
    let find = async move { files.file_versions(&text).await };
    let done = serving.run(find).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(api_error)
}

/// The pool of a snapshot of a file, if a text is the name of one.
pub(in super::super) fn pool_of_file(control: &Control, name: &str) -> Option<Arc<Serving>> {
    let serving = control.pool_of_one(name).ok()?;
    serving.service().files.names_files(name).then_some(serving)
}

/// Rolls files back, each to a version of it. Returns the names of destroyed snapshots.
pub(in super::super) async fn roll_back(
    serving: &Serving,
    name: &str,
    (dataset, versions): (Arc<Dataset>, Vec<FileVersion>),
    options: RollbackOptions,
) -> Result<Vec<String>, ApiError> {
    let (files, text) = (serving.service().files.clone(), name.to_string());
    let roll = async move { files.roll_back(&text, (&dataset, &versions), options).await };
    let done = serving.run(roll).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(api_error)
}

/// Makes files that begin as a snapshot of another one.
pub(in super::super) async fn clone(
    serving: &Serving,
    request: CloneSnapshot,
) -> Result<DatasetDone, ApiError> {
    let CloneSnapshot { snapshot, name, more, properties } = request;
    if let Some(property) = properties.keys().next() {
        return Err(ApiError::invalid(format!(
            "{snapshot:?} is a snapshot of a file: a clone of it is a file, and has no property \
             {property}"
        )));
    }
    let names: Vec<String> = std::iter::once(name.clone()).chain(more).collect();
    let (files, from, clones) = (serving.service().files.clone(), snapshot.clone(), names.len());
    let clone = async move { files.clone_file(&from, &names).await };
    let done = serving.run(clone).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(api_error)?;
    tracing::info!(class = "file.cloned", %snapshot, file = %name, clones, "file cloned");
    Ok(DatasetDone { name, notes: Vec::new() })
}

pub(super) fn info(
    of: &SnapshotsOf,
    file: &FileSnapshot,
    (used, counts_saved): (Option<u64>, bool),
) -> SnapshotInfo {
    let record = &file.record;
    SnapshotInfo {
        name: of.full_of_file(file),
        dataset: of.name.clone(),
        created_ns: record.created.since_1970_ns(),
        txg: file.txg().0,
        guid: guid_text(record.guid.0),
        used_bytes: used,
        refer_bytes: record.inode.refer_bytes,
        logical_refer_bytes: counts_saved.then_some(record.inode.refer().logical_bytes()),
        holds: 0,
        schedule: record.schedule.map(|cadence| cadence.name().into()),
        path: Some(record.path.clone()),
        size_bytes: Some(record.inode.size),
        cursor: Cursor::of_file(&of.name, file.id).to_string(),
    }
}

pub(in super::super) fn api_error(error: FileNameError) -> ApiError {
    let message = error.to_string();
    match error {
        FileNameError::Dataset(error) => properties::api_error(error),
        FileNameError::NotThere(_) | FileNameError::NoMatch(_) | FileNameError::NoDirectory(_) => {
            ApiError::not_found(message)
        }
        FileNameError::Clone { .. }
        | FileNameError::Return { .. }
        | FileNameError::NameTaken(_)
        | FileNameError::AnotherFile { .. }
        | FileNameError::ReturnKeepsLater(_)
        | FileNameError::Schedule { .. }
        | FileNameError::NotNamed { .. }
        | FileNameError::ReadOnly(_)
        | FileNameError::Enough { .. }
        | FileNameError::Locked { .. } => ApiError::conflict(message),
        FileNameError::Listed { .. } => ApiError::not_found(message),
        FileNameError::NoSnapshot(_) => ApiError::not_found(format!(
            "{message}; `aquifer list -t snapshot` shows those that there are"
        )),
        FileNameError::NoName(_)
        | FileNameError::NotRegular(_)
        | FileNameError::TooMany(_)
        | FileNameError::ManySnapshots(_)
        | FileNameError::ManyReturn(_)
        | FileNameError::TooManyClones(_)
        | FileNameError::NoTarget(_)
        | FileNameError::OtherDataset(_)
        | FileNameError::Twice(_)
        | FileNameError::TooLong(_) => ApiError::invalid(message),
        FileNameError::Look(_) => ApiError::conflict(message),
        FileNameError::Pool(_) | FileNameError::Path { .. } => ApiError::failed(message),
    }
}

#[cfg(test)]
mod tests {
    use aquifer_api::shown::shown;
    use aquifer_ondisk::shown_name;

    /// A terminal that shows something else instead of a letter would show another name.
    #[test]
    fn a_shown_name_stays_as_it_is_on_a_terminal() {
        for character in '\0'..=char::MAX {
            let name = shown_name::shown(format!("a{character}b").as_bytes());
            assert_eq!(shown(&name), name, "{character:?}");
        }
    }
}
