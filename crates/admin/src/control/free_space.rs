//! Trim and initialize: begun, suspended and ended.

use aquifer_api::{ApiError, FreeWork, FreeWorkAct, FreeWorkInfo, FreeWorkRequest};
use aquifer_api::{FreeWorkState, PoolDone};
use aquifer_pool as pool;
use aquifer_pool::FreeWorkError;

use super::Control;

impl Control {
    /// Begins, resumes, suspends or ends work on the free space of disks.
    ///
    /// # Errors
    /// The pool is not in service; a disk is none of its data; the work goes on already, or none
    /// does.
    pub async fn work_on_free_space(
        &self,
        name: &str,
        request: FreeWorkRequest,
    ) -> Result<PoolDone, ApiError> {
        let (_act, serving) = self.act(name, "pool trim or initialize").await?;
        let pool = serving.service().pool.clone();
        let (work, verb) = match request.work {
            FreeWork::Trim => (pool::FreeWork::Trim, "trim"),
            FreeWork::Initialize => (pool::FreeWork::Initialize, "initialize"),
        };
        let FreeWorkRequest { act, disks, rate, .. } = request;
        let done = serving.run(async move {
            let done = match act {
                FreeWorkAct::Start => pool.start_free_work(work, &disks, rate),
                FreeWorkAct::Suspend => pool.end_free_work(work, &disks, true),
                FreeWorkAct::Cancel => pool.end_free_work(work, &disks, false),
                FreeWorkAct::Forget => pool.forget_free_work(work, &disks),
            };
            // From then on it outlives a restart.
            let is_on_disk = if done.is_ok() { pool.sync().await.map(drop) } else { Ok(()) };
            (done, is_on_disk)
        });
        let (done, is_on_disk) = done.await.map_err(|error| ApiError::failed(error.to_string()))?;
        is_on_disk.map_err(|error| ApiError::failed(error.to_string()))?;
        done.map_err(|error| {
            ApiError::invalid(match error {
                FreeWorkError::NoDisk(disk) => {
                    format!("{disk} is no disk that holds data of {name}")
                }
                FreeWorkError::Active(disk) => format!(
                    "{disk}: {verb} goes on already; `aquifer pool {verb} -c {name}` cancels it"
                ),
                FreeWorkError::NotActive(what) => format!("{what}: no {verb} goes on"),
            })
        })?;
        Ok(PoolDone::new(name, Vec::new()))
    }
}

/// Work in the API's form.
pub(crate) fn shown(status: &pool::FreeWorkStatus) -> FreeWorkInfo {
    use aquifer_pool::FreeWorkState as Engine;
    FreeWorkInfo {
        state: match status.state {
            Engine::Running => FreeWorkState::Running,
            Engine::Waiting => FreeWorkState::Waiting,
            Engine::Suspended => FreeWorkState::Suspended,
            Engine::Canceled => FreeWorkState::Canceled,
            Engine::Finished => FreeWorkState::Finished,
            Engine::Unsupported => FreeWorkState::Unsupported,
            Engine::Failed => FreeWorkState::Failed,
        },
        passed_bytes: status.passed_bytes,
        total_bytes: status.total_bytes,
        done_bytes: status.done_bytes,
        skipped_bytes: status.skipped_bytes,
        begun_ns: status.begun_ns,
        ended_ns: status.ended_ns,
        last_error: status.last_error.clone(),
    }
}
