//! Snapshots that are taken and pruned by schedule.

use std::sync::Arc;

use aquifer_api::ApiError;
use aquifer_files::file_snapshots::Scheduled;
use aquifer_ondisk::inode::Time;

use super::super::Control;
use super::super::datasets::act_on;
use super::super::serving::Serving;
use super::files::api_error;

impl Control {
    /// Takes and prunes the snapshots of a pool that are due, by the properties `snapshots` and
    /// `filesnapshots` of its datasets.
    pub(in super::super) async fn snapshots_due_of(&self, pool: &str) {
        let serving = {
            let Ok((_act, serving)) = self.act(pool, ROUND).await else { return };
            // The pool told of a failure, once.
            let _ = take_due(&serving).await;
            serving
        };
        // Many names may be looked up: no act waits for that.
        let found = find_files(&serving).await;
        let before = Arc::downgrade(&serving);
        drop(serving);
        let Ok(found) = found else { return };
        let Ok((_act, serving)) = self.act(pool, ROUND).await else { return };
        if std::ptr::eq(before.as_ptr(), &*serving) {
            let _ = tend_files(&serving, found).await;
        }
    }
}

/// Takes and prunes what is due of the datasets of a pool.
pub(in super::super) async fn take_due(serving: &Serving) -> Result<(), ApiError> {
    let datasets = serving.service().datasets.clone();
    let due = async move {
        let now = Time::from_ns(datasets.pool().world().wall_ns());
        datasets.snapshots_if_due(now).await
    };
    act_on(serving, due).await
}

/// The schedule of files of a dataset is set: takes and prunes what is due of the files of its
/// pool. Returns what somebody should know.
pub(in super::super) async fn take_due_of_files(serving: &Serving, dataset: &str) -> Vec<String> {
    let failed = |error: ApiError| {
        format!("not all first snapshots of files can be taken now: {}", error.message)
    };
    let found = match find_files(serving).await {
        Ok(found) => found,
        Err(error) => return vec![failed(error)],
    };
    let datasets = &serving.service().datasets;
    let unmet = datasets.by_name(dataset).map(|dataset| found.unmet(datasets, &dataset));
    let unmet = unmet.unwrap_or_default().into_iter();
    let mut notes: Vec<String> =
        unmet.map(|pattern| format!("no file matches {pattern:?} yet")).collect();
    notes.extend(tend_files(serving, found).await.err().map(failed));
    notes
}

async fn find_files(serving: &Serving) -> Result<Scheduled, ApiError> {
    let files = serving.service().files.clone();
    let done = serving.run(async move { files.scheduled().await }).await;
    done.map_err(|error| ApiError::failed(error.to_string()))
}

async fn tend_files(serving: &Serving, found: Scheduled) -> Result<(), ApiError> {
    let (files, pool) = (serving.service().files.clone(), serving.service().pool.clone());
    let tend = async move {
        let now = Time::from_ns(pool.world().wall_ns());
        files.tend_scheduled(found, now).await
    };
    let done = serving.run(tend).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(api_error)
}

/// Description of the schedules' work, in words.
const ROUND: &str = "snapshots by schedule";
