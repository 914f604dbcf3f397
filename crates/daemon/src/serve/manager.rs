//! Messages to a service manager: ready, alive, stopping (sd_notify(3)). Without one, nothing.

use std::time::Duration;

use aquifer_admin::Control;
use sd_notify::NotifyState;

/// Pools are in service and clients are admitted.
pub(super) fn ready() {
    tell(NotifyState::Ready);
}

/// The daemon begins to stop.
pub(super) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Reports as often as the manager wants it, as long as every pool's engine answers. An engine that
/// does not answer would block its clients for ever; after a restart it replays its log and serves.
pub(super) async fn report_health(control: &Control) {
    let Some(interval) = sd_notify::watchdog_enabled() else { return };
    loop {
        if control.engines_answer(interval / 2).await {
            tell(NotifyState::Watchdog);
        } else {
            tracing::error!("a pool's engine does not answer: the service manager is not told");
        }
        // Twice as often as required: a report may be late.
        tokio::time::sleep((interval / 4).max(INTERVAL_MIN)).await;
    }
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager was not reached");
    }
}

const INTERVAL_MIN: Duration = Duration::from_millis(10);
