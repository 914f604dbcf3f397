//! Subjects of requests: what a text names in a pool.
//!
//! A text is parsed once ([`aquifer_files::subject`]), when the act has its turn: what it names is
//! what the act is about.

use aquifer_api::ApiError;
use aquifer_dataset::Datasets;
use aquifer_files::subject::{
    FileSnapshotNames, OneSnapshot, SnapshotNames, Subject, SubjectError,
};

use super::errors;

/// Snapshots that a request names: of datasets, or of files.
pub(super) enum Snapshots {
    OfDatasets(Vec<SnapshotNames>),
    OfFiles(Vec<FileSnapshotNames>),
}

/// The subject of a text in this pool.
///
/// # Errors
/// There is no such dataset.
pub(super) fn subject(datasets: &Datasets, text: &str) -> Result<Subject, ApiError> {
    Subject::parse(datasets, text).map_err(api_error)
}

/// The one snapshot of a dataset that a text names.
///
/// # Errors
/// There is no such dataset, or the text names something else.
pub(super) fn one_snapshot(datasets: &Datasets, text: &str) -> Result<OneSnapshot, ApiError> {
    subject(datasets, text)?.one_snapshot(text).map_err(api_error)
}

/// The snapshots that texts name, with or without those of datasets below.
///
/// # Errors
/// Names of both kinds, of something else, or of files with what is for datasets.
pub(super) fn snapshots(
    datasets: &Datasets,
    names: &[String],
    recursive: bool,
) -> Result<Snapshots, ApiError> {
    let (mut of_datasets, mut of_files) = (Vec::new(), Vec::new());
    for text in names {
        match subject(datasets, text)? {
            Subject::FileSnapshots(of) => of_files.push(of),
            other => of_datasets.push(other.snapshots(text).map_err(api_error)?),
        }
    }
    let Some(file) = of_files.first() else { return Ok(Snapshots::OfDatasets(of_datasets)) };
    let file = file.text();
    if let Some(other) = of_datasets.first() {
        return Err(ApiError::invalid(format!(
            "{file:?} is a snapshot of files and {:?} is one of a dataset: take them with two \
             commands",
            other.text()
        )));
    }
    match recursive {
        true => Err(ApiError::invalid(format!(
            "{file:?} is a snapshot of files: -r is for datasets. A pattern such as \
             tank/vms:web01/*@NAME means several files"
        ))),
        false => Ok(Snapshots::OfFiles(of_files)),
    }
}

/// The one snapshot that each of these is.
///
/// # Errors
/// No snapshot can have one of the names.
pub(super) fn each_one(all: Vec<SnapshotNames>) -> Result<Vec<OneSnapshot>, ApiError> {
    all.into_iter().map(|of| of.one().map_err(api_error)).collect()
}

pub(super) fn api_error(error: SubjectError) -> ApiError {
    match error {
        SubjectError::Dataset(error) => errors::api_error(error),
        error => ApiError::invalid(error.to_string()),
    }
}
