//! Snapshots of single files.

use std::sync::Arc;

use aquifer_api::{ApiError, SnapshotInfo, guid_text};
use aquifer_dataset::{Dataset, FileSnapshot, FileVersion, RollbackOptions};
use aquifer_files::file_snapshots::{FileNameError, OfVersions};
use aquifer_files::subject::{FilePlace, FileSnapshotNames};
use aquifer_ondisk::Txg;

use super::super::datasets::act_on;
use super::super::serving::Serving;
use super::super::{errors, subjects};
use super::SnapshotsOf;
use super::pages::Cursor;

pub(super) async fn take(
    serving: &Serving,
    all: Vec<FileSnapshotNames>,
) -> Result<Vec<String>, ApiError> {
    let files = serving.service().files.clone();
    let take = async move { files.snapshot_files(&all).await };
    let done = serving.run(take).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(api_error)
}

/// Gives the snapshots of files that are listed so another name. Returns their full names.
pub(super) async fn rename(
    serving: &Serving,
    all: &[FileSnapshotNames],
    new: String,
) -> Result<Vec<String>, ApiError> {
    let mut found = Vec::new();
    for of in all {
        found.extend(find(serving, of, |_| true).await?);
    }
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
    of: &FileSnapshotNames,
    is_seen: impl Fn(Txg) -> bool,
) -> Result<Vec<SnapshotsOf>, ApiError> {
    let (files, of) = (serving.service().files.clone(), of.clone());
    let find = async move { files.listed_file_snapshots(&of).await };
    let done = serving.run(find).await.map_err(|error| ApiError::failed(error.to_string()))?;
    let (dataset, mut files) = done.map_err(api_error)?;
    files.retain(|file| is_seen(file.txg()));
    let name = serving.service().datasets.full_name(&dataset);
    Ok(vec![SnapshotsOf { name, dataset, snapshots: Vec::new(), files }])
}

/// The versions of files that these names mean, with their dataset.
pub(in super::super) async fn versions(
    serving: &Serving,
    of: &FileSnapshotNames,
) -> Result<OfVersions, ApiError> {
    let (files, of) = (serving.service().files.clone(), of.clone());
    let find = async move { files.file_versions(&of).await };
    let done = serving.run(find).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(api_error)
}

/// Rolls files back, each to a version of it. Returns the names of destroyed snapshots.
pub(in super::super) async fn roll_back(
    serving: &Serving,
    of: &FileSnapshotNames,
    (dataset, versions): (Arc<Dataset>, Vec<FileVersion>),
    options: RollbackOptions,
) -> Result<Vec<String>, ApiError> {
    let (files, of) = (serving.service().files.clone(), of.clone());
    let roll = async move { files.roll_back(&of, (&dataset, &versions), options).await };
    let done = serving.run(roll).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(api_error)
}

/// Makes files that begin as a snapshot of another one.
pub(in super::super) async fn clone(
    serving: &Serving,
    from: FileSnapshotNames,
    to: Vec<FilePlace>,
) -> Result<(), ApiError> {
    let files = serving.service().files.clone();
    let clone = async move { files.clone_file(&from, &to).await };
    let done = serving.run(clone).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(api_error)
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
        FileNameError::Dataset(error) => errors::api_error(error),
        FileNameError::Subject(error) => subjects::api_error(error),
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
        FileNameError::NotRegular(_)
        | FileNameError::TooMany(_)
        | FileNameError::ManySnapshots(_)
        | FileNameError::ManyReturn(_)
        | FileNameError::TooManyClones(_)
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
