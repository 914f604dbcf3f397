//! Disks that do not answer: nobody waits for ever for what is done with disks that no pool in
//! service has.
//!
//! Invariant: work that was begun goes on to its end in a task of its own. A disk keeps its claim
//! until then.

use std::time::Duration;

use aquifer_api::ApiError;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{sleep, timeout};

use super::OpenDisk;

/// Work that waits for disks.
#[derive(Debug)]
pub(crate) struct Silent<T> {
    /// The paths of those that do not answer.
    pub disks: Vec<String>,
    /// The work, which goes on.
    pub rest: JoinHandle<T>,
}

impl<T> Silent<T> {
    /// In words, with what that means.
    pub fn error(&self, so: &str) -> ApiError {
        unanswering_error(&self.disks, so)
    }
}

/// Makes the error that tells people of disks that do not answer.
pub(crate) fn unanswering_error(disks: &[String], so: &str) -> ApiError {
    let verb = if disks.len() == 1 { "does" } else { "do" };
    ApiError::conflict(format!("{}: {verb} not answer: {so}", disks.join(", ")))
}

/// Works on these disks as long as they answer.
///
/// # Errors
/// All of them are silent, or some are for long, and the work has not ended.
pub(crate) async fn while_they_answer<T: Send + 'static>(
    disks: &[OpenDisk],
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Silent<T>> {
    let mut rest = tokio::spawn(work);
    let silence = async {
        let mut looks = 0;
        loop {
            sleep(PAUSE).await;
            let silent = unanswering(disks).await;
            looks = if silent.is_empty() { 0 } else { looks + 1 };
            // What can do without one of its disks needs some time to find that out.
            if !silent.is_empty() && (silent.len() == disks.len() || looks >= LOOKS_MAX) {
                return silent;
            }
        }
    };
    tokio::select! {
        biased;
        done = &mut rest => Ok(done.unwrap_or_else(again)),
        disks = silence => Err(Silent { disks, rest }),
    }
}

/// Opens disks, away from all that others wait for. A device that is gone may hang in that.
///
/// # Errors
/// It takes too long. What is opened later is closed again.
pub(crate) async fn opened_in_time<T: Send + 'static>(
    open: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    match timeout(OPEN_PATIENCE, tokio::task::spawn_blocking(open)).await {
        Ok(opened) => opened.map_err(|error| ApiError::failed(error.to_string())),
        Err(_) => Err(ApiError::conflict(format!(
            "the disks cannot be opened within {} s: one of them does not answer, and nothing was \
             written. The kernel's log may say which one",
            OPEN_PATIENCE.as_secs()
        ))),
    }
}

fn again<T>(error: JoinError) -> T {
    std::panic::resume_unwind(error.into_panic())
}

/// Those of these disks that do not answer a read within some seconds.
async fn unanswering(disks: &[OpenDisk]) -> Vec<String> {
    let ask = |disk: &OpenDisk| {
        let named = disk.named();
        // A read that was begun is never dropped.
        tokio::spawn(async move { named.disk.read(0, 1).await.is_ok() })
    };
    let mut asked: Vec<(&OpenDisk, JoinHandle<bool>)> =
        disks.iter().map(|disk| (disk, ask(disk))).collect();
    // Counted, not by the clock: a machine that stood still blames no disk.
    for _ in 0..TICKS {
        sleep(TICK).await;
        asked.retain(|(_, answer)| !answer.is_finished());
        if asked.is_empty() {
            break;
        }
    }
    asked.into_iter().map(|(disk, _)| disk.path.clone()).collect()
}

/// Many image files may be made.
const OPEN_PATIENCE: Duration = Duration::from_secs(60);
/// Before each look whether disks answer.
const PAUSE: Duration = Duration::from_secs(5);
/// A look is over after this time, so often: as long as a pool in service waits before it is
/// silent.
const TICK: Duration = Duration::from_millis(250);
const TICKS: u32 = 40;
/// After so many looks, one after the other, at which some disks are silent.
const LOOKS_MAX: u32 = 3;
