//! Parts that the daemon looks after by itself: a frontend that could not start, and the files of
//! its state.

use std::sync::Arc;
use std::time::Duration;

use aquifer_api::{Problem, Severity, codes};
use tokio::time::sleep;

use super::Control;
use crate::cache::CacheError;
use crate::parts::RETRY;

impl Control {
    /// Starts the frontend again as long as it cannot start, while the daemon runs.
    pub async fn tend_frontend(&self) {
        loop {
            sleep(RETRY).await;
            if self.frontend.wants_another_offer() {
                self.refresh_exports().await;
            }
        }
    }

    /// Looks at the files of the state directory, and writes again what is spoilt, as long as the
    /// daemon runs.
    pub async fn tend_state(self: &Arc<Self>) {
        loop {
            sleep(TEND_EVERY).await;
            let this = Arc::clone(self);
            let _ = tokio::task::spawn_blocking(move || this.tend_state_once()).await;
        }
    }

    fn tend_state_once(&self) {
        let parts = &self.config.parts;
        let kept =
            |tended: Result<(), CacheError>| tended.err().map(|why| not_kept(&why.to_string()));
        parts.note(PART_HOST, kept(self.cache.mend_host_id(self.host.id)));
        // A list that could not be read at the start is not written over by itself.
        if !self.cache.is_lost() {
            parts.note(PART_LIST, kept(self.cache.mend(|| self.kept())));
        }
        self.inventory.look_after_file();
        parts.note("disks.json", self.inventory.problem().map(|why| not_kept(&why)));
        self.alerts.look_after_file();
        parts.note("alerts.json", self.alerts.problem().map(|why| not_kept(&why)));
    }
}

/// A file of the state directory cannot be read or written.
pub(super) fn not_kept(why: &str) -> Problem {
    let status = format!("A file of the daemon's state cannot be used: {why}.");
    let action = "Mend or remove what is in the way, or make room: it is tried again by itself. \
                  Pools serve on; changes of them may be refused.";
    Problem::new(codes::STATE_NOT_KEPT, Severity::Error, status, Some(action.into()))
}

pub(super) const PART_HOST: &str = "host_id";
pub(super) const PART_LIST: &str = "pools.json";
/// Between two looks at the files of the state directory.
const TEND_EVERY: Duration = Duration::from_secs(3);
