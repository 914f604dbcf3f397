//! Messages to a service manager: ready, alive, stopping (sd_notify(3)). Without one, nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aquifer_admin::Control;
use sd_notify::NotifyState;

/// Says when clients can connect to pools, and what is off, as long as the daemon runs. Whoever
/// waits for the unit is not kept for ever: after [`READY_LATEST`] it is ready with what works.
pub(super) async fn tell(control: &Control, ready: &Ready) {
    let begun = Instant::now();
    let mut said = String::new();
    loop {
        let status = status(control);
        if status != said {
            notify(NotifyState::Status(&status));
            said = status;
        }
        ready.tell_if(control.is_ready() || begun.elapsed() >= READY_LATEST);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether the manager knows that the daemon is ready.
#[derive(Debug, Default)]
pub(super) struct Ready(AtomicBool);

impl Ready {
    /// It is ready, if that is so: told once.
    pub fn tell_if(&self, is_ready: bool) {
        if is_ready && !self.0.swap(true, Ordering::Relaxed) {
            notify(NotifyState::Ready);
        }
    }
}

fn status(control: &Control) -> String {
    let info = control.info();
    match info.problems.first() {
        Some(problem) => problem.status.clone(),
        None if info.starting => "Pools are being imported.".into(),
        None if info.nfs.listening.is_empty() => "There is no pool, so NFS does not listen.".into(),
        None => "NFS is served.".into(),
    }
}

/// The daemon begins to stop.
pub(super) fn stopping() {
    notify(NotifyState::Stopping);
}

/// Reports as often as the manager wants it, as long as every pool's engine answers. An engine that
/// does not answer would block its clients for ever; after a restart it replays its log and serves.
pub(super) async fn report_health(control: &Control) {
    let Some(interval) = sd_notify::watchdog_enabled() else { return };
    loop {
        if control.engines_answer(interval / 2).await {
            notify(NotifyState::Watchdog);
        } else {
            tracing::error!("a pool's engine does not answer: the service manager is not told");
        }
        // Twice as often as required: a report may be late.
        tokio::time::sleep((interval / 4).max(INTERVAL_MIN)).await;
    }
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager was not reached");
    }
}

/// Less than the unit's `TimeoutStartSec`, after which systemd would kill what works.
const READY_LATEST: Duration = Duration::from_secs(120);
/// Between two looks whether clients can connect.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const INTERVAL_MIN: Duration = Duration::from_millis(10);
