//! Alerts: every few seconds it is looked what is wrong, and what is new of it is sent.
//!
//! What is wrong with a pool is what its status says, each problem with its code. Beside that are
//! problems that a status does not show, since a pool that has them serves as ever: it fills, a
//! scrub is overdue. And some events are sent as they are: they have happened, and are over.
//!
//! Invariant: a pool that does not answer delays the look at no other.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aquifer_alerts::watch::Seen;
use aquifer_api::codes;
use aquifer_api::{
    AlertsInfo, ApiError, Event, Health, PoolStatus, Problem, ScrubState, Severity, TestAlerts,
    TestedOutlet, time,
};
use aquifer_dataset::Property;
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
            let mut seen = self.problems().await;
            let load = self.frontend.counts().map(|counts| counts.load).unwrap_or_default();
            let short = pressure.look(&self.memory(), &load);
            seen.problems.extend(short.map(|problem| (None, problem)));
            let alerts = Arc::clone(&self.alerts);
            // It writes a file.
            let looked = tokio::task::spawn_blocking(move || alerts.look(&seen));
            let _ = looked.await;
        }
    }

    /// Tells people what has happened, as long as the daemon runs.
    pub async fn tell_events(&self) {
        let tell = |event: &Event| {
            if let Some(problem) = problem_of(event) {
                self.alerts.happened(event.fields.get("pool").cloned(), problem);
            }
        };
        self.events.follow(tell).await;
    }

    /// What is wrong now, and where that is sent.
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
                Ok(Ok(status)) => [self.beside(&status), status.problems].concat(),
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
        seen.problems.extend(state_dir_full(self.cache.dir()).map(|problem| (None, problem)));
        seen
    }

    /// What is wrong with a pool beside what its status says.
    fn beside(&self, status: &PoolStatus) -> Vec<Problem> {
        let settings = self.alerts.settings();
        let limits = [settings.capacity_warning_percent, settings.capacity_error_percent];
        let interval = self.scrub_interval(&status.summary.name);
        let overdue = interval.and_then(|interval| scrub_overdue(status, interval, time::now_ns()));
        full(status, limits).into_iter().chain(overdue).collect()
    }

    /// How often a pool is scrubbed by itself.
    fn scrub_interval(&self, pool: &str) -> Option<Duration> {
        let serving = self.serving(pool).ok()?;
        let datasets = &serving.service().datasets;
        let own = datasets.by_name(pool)?;
        match datasets.value(&own, Property::Scrub).0.as_str() {
            "weekly" => Some(7 * DAY),
            "monthly" => Some(30 * DAY),
            _ => None,
        }
    }
}

/// A pool that is nearly full. `limits`: percent from which that is a warning and an error; 0:
/// never.
fn full(status: &PoolStatus, limits: [u8; 2]) -> Option<Problem> {
    let pool = &status.summary;
    let all = pool.allocated_bytes.saturating_add(pool.free_bytes);
    if pool.health == Health::Unavail || all == 0 {
        return None;
    }
    let percent = u128::from(pool.allocated_bytes) * 100 / u128::from(all);
    let reaches = |limit: u8| limit > 0 && percent >= u128::from(limit);
    let severity = match limits {
        [_, error] if reaches(error) => Severity::Error,
        [warning, _] if reaches(warning) => Severity::Warning,
        _ => return None,
    };
    let name = &pool.name;
    let status = format!(
        "The pool is {percent} % full. When it is full, clients hear that no space is left."
    );
    let action = format!(
        "See what takes the space: `aquifer list -r {name}` and `aquifer list -t snapshot \
         {name}`. Destroy what is not needed, or add disks: `aquifer pool add {name} DISK`."
    );
    Some(Problem::new(codes::POOL_FULL, severity, status, Some(action)))
}

/// A scrub that should have ended long ago.
fn scrub_overdue(status: &PoolStatus, interval: Duration, now_ns: u64) -> Option<Problem> {
    let scrub = status.scrub.as_ref()?;
    let late_ns = u64::try_from((interval * 2).as_nanos()).unwrap_or(u64::MAX);
    if now_ns.saturating_sub(scrub.begun_ns) < late_ns {
        return None;
    }
    let name = &status.summary.name;
    let why = match scrub.state {
        ScrubState::Paused => "is paused",
        ScrubState::Running => "does not come to its end",
        ScrubState::Finished | ScrubState::Stopped => "should have begun again since",
    };
    let status = format!(
        "The scrub that began {} days ago {why}: rot that no client reads is not found.",
        now_ns.saturating_sub(scrub.begun_ns) / 1_000_000_000 / DAY.as_secs()
    );
    let action = format!("To go on with it, or begin one, type `aquifer pool scrub {name}`.");
    Some(Problem::new(codes::SCRUB_OVERDUE, Severity::Warning, status, Some(action)))
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

/// What an event tells people; `None`: nothing, or what the status says as well.
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
        "snapshot.schedule_failed" => (Severity::Warning, codes::SNAPSHOT_SCHEDULE_FAILED),
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

const DAY: Duration = Duration::from_secs(24 * 3600);
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A pool that does not say for so long how it is keeps the problems that it had.
const POOL_PATIENCE: Duration = Duration::from_secs(5);
/// Seconds; corrections of a clock that is right are far below.
const JUMP_S: i64 = 5;
/// Lists and notes fit into far less.
const STATE_BYTES_MIN: u64 = 4 << 20;

#[cfg(test)]
mod tests;
