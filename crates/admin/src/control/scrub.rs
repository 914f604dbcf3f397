//! Scrub: started, paused and stopped.

use aquifer_api::{
    ApiError, PoolDone, RepairedFile, ScrubAct, ScrubInfo, ScrubRequest, ScrubState,
};
use aquifer_files::{Files, ScrubError};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::scrub::{ScrubRecord, ScrubState as Recorded};

use super::Control;
use super::serving::Serving;

impl Control {
    /// Begins, resumes, pauses or stops the scrub of a pool.
    ///
    /// # Errors
    /// It is not in service; a scrub goes on already, or none does.
    pub async fn scrub_pool(
        &self,
        name: &str,
        request: ScrubRequest,
    ) -> Result<PoolDone, ApiError> {
        let (_act, serving) = self.act(name, "pool scrub").await?;
        let files = serving.service().files.clone();
        let scrub = async move {
            match request.act {
                ScrubAct::Start => files.start_scrub().await,
                ScrubAct::Pause => files.end_scrub(true).await,
                ScrubAct::Stop => files.end_scrub(false).await,
            }
        };
        let done = serving.run(scrub).await;
        done.map_err(|error| ApiError::failed(error.to_string()))?.map_err(
            |error| match error {
                ScrubError::Active => ApiError::invalid(format!(
                    "{name}: is being scrubbed already; `aquifer pool scrub -s {name}` stops it"
                )),
                ScrubError::NotActive => {
                    ApiError::invalid(format!("{name}: is not being scrubbed"))
                }
                ScrubError::Pool(error) => ApiError::failed(error.to_string()),
            },
        )?;
        Ok(PoolDone::new(name, Vec::new()))
    }
}

/// Begins the scrub of a pool if it is due, by the property `scrub`.
pub(super) async fn begin_due(serving: &Serving) {
    let files = serving.service().files.clone();
    let begun = serving.run(async move {
        let now = Time::from_ns(files.datasets().pool().world().wall_ns());
        files.scrub_if_due(now).await
    });
    if let Ok(Err(error)) = begun.await {
        tracing::warn!(pool = serving.name(), %error, "a scrub is due and does not begin");
    }
}

/// The newest scrub of a pool.
pub(super) fn shown(files: &Files) -> Option<ScrubInfo> {
    let mut info = without_files(files.scrub_status()?);
    let repaired = files.repaired_files();
    let each = repaired.files.into_iter().map(|found| RepairedFile {
        dataset: found.dataset,
        file: found.file,
        bytes: found.bytes,
        ranges: found.ranges,
        more: found.more,
    });
    (info.repaired_files, info.more_repaired_files) = (each.collect(), repaired.beside);
    Some(info)
}

/// A scrub in the API's form.
fn without_files(record: ScrubRecord) -> ScrubInfo {
    let ended = matches!(record.state, Recorded::Finished | Recorded::Canceled);
    ScrubInfo {
        state: match record.state {
            Recorded::Active => ScrubState::Running,
            Recorded::Paused => ScrubState::Paused,
            Recorded::Finished => ScrubState::Finished,
            Recorded::Canceled => ScrubState::Stopped,
        },
        begun_ns: record.begun.since_1970_ns(),
        ended_ns: ended.then(|| record.ended.since_1970_ns()),
        active_ms: record.active_ms,
        total_bytes: record.total_bytes,
        examined_bytes: record.examined_bytes,
        repaired_bytes: record.repaired_bytes,
        unreadable_blocks: record.unreadable_blocks,
        repaired_files: Vec::new(),
        more_repaired_files: 0,
    }
}
