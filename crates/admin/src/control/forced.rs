//! Export by force: a pool leaves within a bounded time, also if its disks or an act on it hang. An
//! export whose disks fall silent ends so, too.
//!
//! Nothing acknowledged is lost: it is on the disks, and the next import replays the log. What
//! cannot be ended stays behind as a [`Remnant`](super::serving::Remnant), which holds its disks
//! until they have answered: a late write must not meet another instance.

use std::sync::Arc;
use std::time::Duration;

use aquifer_api::{ApiError, PoolDone, guid_text};
use aquifer_ondisk::Guid;
use tokio::time::timeout;

use super::history::Leaving;
use super::serving::{Serving, close};
use super::turns::Held;
use super::{Control, Listed, State};

impl Control {
    pub(super) async fn export_by_force(
        &self,
        name: &str,
        leaving: &Leaving,
    ) -> Result<PoolDone, ApiError> {
        let _act = self.act_by_force(name).await?;
        let Listed { state, .. } = self.listed(name)?;
        self.pools.write().remove(name);
        // First of all off the list: whatever happens next, it does not come back by itself.
        let mut notes = Vec::from_iter(self.store().err().map(|error| error.to_string()));
        match state {
            State::Serving(serving) => {
                notes.extend(self.refresh_exports().await);
                notes.extend(self.end_locks_of(&serving));
                if let Some(noting) = leaving.take() {
                    self.note_end(noting, Ok(()), Vec::new());
                }
                notes.extend(self.let_go_by_force(name, serving).await);
            }
            State::Importing => notes.push(format!(
                "{name}: was being imported; it is taken off the list, and let go as soon as its \
                 disks answer"
            )),
            State::Unavail(_) => {
                notes.push(format!("{name}: was not in service; it is only taken off the list"))
            }
        }
        Ok(PoolDone::new(name, notes))
    }

    /// The turn of the pool. An act that has it gives up.
    async fn act_by_force(&self, name: &str) -> Result<Held, ApiError> {
        self.check_goes_on()?;
        let turn = self.turns.of(name);
        if let Ok(held) = timeout(TURN_PATIENCE, turn.take(BY_FORCE)).await {
            return Ok(held);
        }
        if let State::Serving(serving) = self.listed(name)?.state {
            tracing::warn!(pool = name, "an act does not end: its pool is abandoned");
            serving.abandon();
        }
        timeout(TURN_PATIENCE, turn.take(BY_FORCE)).await.map_err(|_| {
            ApiError::conflict(format!(
                "pool {name:?}: `{}` is in progress and does not end: try again later, or restart \
                 the daemon",
                turn.act().unwrap_or_default()
            ))
        })
    }

    /// Ends a pool that is off the list and has no clients, cleanly if its disks answer in time.
    async fn let_go_by_force(&self, name: &str, serving: Arc<Serving>) -> Vec<String> {
        let exported = timeout(EXPORT_PATIENCE, serving.export()).await;
        let unclean = exported.unwrap_or_else(|_| Some(SILENT.into()));
        tracing::info!(
            class = "pool.exported",
            pool = name,
            clean = unclean.is_none(),
            forced = true,
            "pool exported"
        );
        let Some(error) = unclean else {
            self.release_frontend().await;
            close(serving.let_go().await).await;
            return Vec::new();
        };
        self.leave_behind(serving, &error).await
    }

    /// Leaves a pool that is off the list and has no clients. Returns what that means, for people.
    pub(super) async fn leave_behind(&self, serving: Arc<Serving>, why: &str) -> Vec<String> {
        let name = serving.name().to_string();
        let remnant = serving.leave();
        self.note_remnant(remnant.clone());
        // A stopped server has its files, and with them its disks.
        self.release_frontend().await;
        let is_over = remnant.over_within(LEFT_PATIENCE).await;
        let mut notes = vec![format!(
            "{name}: {why}; it is let go without the mark of a clean export, and the next \
             import replays its log"
        )];
        if !is_over {
            let disks = remnant.holds().join(", ");
            tracing::warn!(
                class = "pool.left",
                pool = name,
                disks,
                "disks of a pool are left behind"
            );
            notes.push(format!(
                "{name}: left behind: {disks} owe answers. Until they have come, or this daemon \
                 has ended, the pool cannot be imported here"
            ));
        }
        notes
    }

    /// Refuses a pool whose disks still belong to an instance that was left.
    pub(super) fn check_not_left(&self, guid: Guid) -> Result<(), ApiError> {
        let guid = guid_text(guid.0);
        let left = self.remnants().into_iter().find(|remnant| remnant.guid == guid);
        left.map_or(Ok(()), |left| {
            Err(ApiError::conflict(format!(
                "pool {:?} was exported by force, and {} still owe answers to what they were given \
                 before: import it once they have answered, or after a restart of this daemon",
                left.name,
                left.holds().join(", ")
            )))
        })
    }
}

const BY_FORCE: &str = "pool export --force";
/// Why a pool is not exported cleanly.
pub(super) const SILENT: &str = "its disks do not answer";
/// How long an export by force waits for another act, twice.
const TURN_PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits for a clean end.
const EXPORT_PATIENCE: Duration = Duration::from_secs(10);
/// How long it waits until what was left has ended.
const LEFT_PATIENCE: Duration = Duration::from_secs(3);
