//! Alerts: every few seconds it is looked what is wrong, and what is new of it is sent.
//!
//! What is wrong with a pool is what its status says, each problem with its code; what is wrong
//! with the server stands in its own list. And some events are sent as they are: they have
//! happened, and are over.
//!
//! Invariant: a pool that does not answer delays the look at no other.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aquifer_alerts::watch::Seen;
use aquifer_api::codes;
use aquifer_api::{AlertsInfo, ApiError, Event, Problem, Severity, TestAlerts, TestedOutlet};
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::Control;
use pressure::Pressure;

mod pressure;

impl Control {
    /// Looks what is wrong, as long as the daemon runs.
    pub async fn watch_problems(&self) {
        let mut clock = Clock::now();
        let mut pressure = Pressure::default();
        loop {
            sleep(LOOK_EVERY).await;
            clock = clock.checked();
            let load = self.frontend.counts().map(|counts| counts.load).unwrap_or_default();
            *self.memory_short.lock() = pressure.look(&self.memory(), &load);
            let seen = self.problems().await;
            let alerts = Arc::clone(&self.alerts);
            // It writes a file.
            let looked = tokio::task::spawn_blocking(move || alerts.look(&seen));
            let _ = looked.await;
        }
    }

    /// Tells people what has happened, as long as the daemon runs.
    pub async fn tell_events(&self) {
        self.events.follow(|| self.tell_new_events()).await;
    }

    /// Tells them what has happened until now.
    pub(super) fn tell_new_events(&self) {
        self.events.catch_up(&self.followers.tells, |(), event| self.tell_event(event));
    }

    fn tell_event(&self, event: &Event) {
        if let Some(problem) = problem_of(event) {
            self.alerts.happened(event.fields.get("pool").cloned(), problem);
        }
    }

    /// Lists what is wrong now, and where that is sent.
    pub fn alerts(&self) -> AlertsInfo {
        self.alerts.info()
    }

    /// Sends a message that says it is a test.
    ///
    /// # Errors
    /// There is no outlet of this name, or none at all.
    pub async fn test_alerts(&self, request: TestAlerts) -> Result<Vec<TestedOutlet>, ApiError> {
        let alerts = Arc::clone(&self.alerts);
        let outlet = request.outlet.clone();
        let tested = tokio::task::spawn_blocking(move || alerts.test(outlet.as_deref()));
        let tested = tested.await.map_err(|error| ApiError::failed(error.to_string()))?;
        match (tested, request.outlet) {
            (Some(tested), _) if !tested.is_empty() => Ok(tested),
            (None, Some(name)) => Err(ApiError::not_found(format!(
                "there is no outlet {name:?}; these are: {}",
                self.alerts.outlets().join(", ")
            ))),
            _ => Err(ApiError::invalid(
                "alerts are sent nowhere; add [[alerts.mail]], [[alerts.webhook]] or \
                 [[alerts.command]] to the configuration, and restart",
            )),
        }
    }

    async fn problems(&self) -> Seen {
        let names: Vec<String> = self.pools.read().keys().cloned().collect();
        let looks = names.iter().map(|name| timeout(POOL_PATIENCE, self.pool_status(name)));
        let mut seen = Seen { problems: Vec::new(), unanswered: BTreeSet::new() };
        for (name, status) in names.iter().zip(join_all(looks).await) {
            let mut of_pool = match status {
                Ok(Ok(status)) => status.problems,
                // It has just left the list.
                Ok(Err(_)) => continue,
                Err(_) => {
                    seen.unanswered.insert(name.clone());
                    continue;
                }
            };
            // What passes by itself alarms nobody.
            of_pool.retain(|problem| problem.severity > Severity::Info);
            seen.problems.extend(of_pool.into_iter().map(|problem| (Some(name.clone()), problem)));
        }
        seen.problems.extend(self.server_problems().into_iter().map(|problem| (None, problem)));
        seen
    }

    /// Lists the problems of the server beside its pools, the worst first.
    pub(super) fn server_problems(&self) -> Vec<Problem> {
        let mut all = self.frontend.problems();
        all.extend(self.config.parts.problems());
        all.extend(state_dir_full(self.cache.dir()));
        all.extend(self.memory_short.lock().clone());
        let now_s = self.began.elapsed().as_secs();
        all.extend(self.alarms.problems(now_s));
        all.extend(self.overwritten.problems(now_s));
        all.extend(self.waiting.problems());
        all.sort_by_key(|problem| Reverse(problem.severity));
        all
    }
}

/// The state directory has no room: what it keeps is old then.
fn state_dir_full(dir: &Path) -> Option<Problem> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    (free < STATE_BYTES_MIN).then(|| {
        let status = format!("{}, where the daemon keeps its state, is full.", dir.display());
        let action = "Make room there. Pools serve on; changes of them may be refused.";
        Problem::new(codes::STATE_DIR_FULL, Severity::Warning, status, Some(action.into()))
    })
}

/// Returns the problem of which an event tells people; `None`: there is none, or the status tells
/// of it as well.
fn problem_of(event: &Event) -> Option<Problem> {
    let (severity, code) = match event.class.as_str() {
        "daemon.bug" => (Severity::Error, codes::DAEMON_BUG),
        "snapshot.unreadable" => (Severity::Error, codes::SNAPSHOT_UNREADABLE),
        "txg.slow" => (Severity::Warning, codes::TXG_SLOW),
        "clock.jumped" => (Severity::Warning, codes::CLOCK_JUMPED),
        "locks.given_away" => (Severity::Warning, codes::LOCKS_GIVEN_AWAY),
        "spare.taken" => (Severity::Warning, codes::SPARE_TAKEN),
        "disk.not_replaced" => (Severity::Warning, codes::DISK_NOT_REPLACED),
        "disk.resilver_failed" => (Severity::Warning, codes::DISK_RESILVER_FAILED),
        "exports.too_many" => (Severity::Warning, codes::EXPORTS_TOO_MANY),
        "pool.history_damaged" => (Severity::Warning, codes::POOL_HISTORY_DAMAGED),
        "disk.autoreplaced" => (Severity::Info, codes::DISK_AUTOREPLACED),
        "disk.resilvered" => (Severity::Info, codes::DISK_RESILVERED),
        "pool.resumed" => (Severity::Info, codes::POOL_RESUMED),
        "scrub.finished" => (Severity::Info, codes::SCRUB_FINISHED),
        _ => return None,
    };
    let fields = event.fields.iter().filter(|(name, _)| *name != "pool");
    let fields: Vec<String> = fields.map(|(name, value)| format!("{name}={value}")).collect();
    let mut status = event.message.clone();
    if !fields.is_empty() {
        status = format!("{status} ({})", fields.join(", "));
    }
    Some(Problem::new(code, severity, status, None))
}

/// The clock of the machine, against one that only goes on.
struct Clock {
    wall: SystemTime,
    steady: Instant,
}

impl Clock {
    fn now() -> Clock {
        Clock { wall: SystemTime::now(), steady: Instant::now() }
    }

    /// Tells if it has jumped since. Times of snapshots, holds and files go by it.
    fn checked(self) -> Clock {
        let now = Clock::now();
        let passed = now.steady.saturating_duration_since(self.steady);
        let ahead = match now.wall.duration_since(self.wall) {
            Ok(wall) => seconds(wall) - seconds(passed),
            Err(back) => -seconds(back.duration()) - seconds(passed),
        };
        if ahead.abs() >= JUMP_S {
            tracing::warn!(class = "clock.jumped", seconds = ahead, "the clock has jumped");
        }
        now
    }
}

fn seconds(span: Duration) -> i64 {
    i64::try_from(span.as_secs()).unwrap_or(i64::MAX / 4)
}

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A pool that does not say for so long how it is keeps the problems that it had.
const POOL_PATIENCE: Duration = Duration::from_secs(5);
/// Seconds; corrections of a clock that is right are far below.
const JUMP_S: i64 = 5;
/// Lists and notes fit into far less.
const STATE_BYTES_MIN: u64 = 4 << 20;

#[cfg(test)]
mod tests;
