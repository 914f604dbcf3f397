//! Ctrl-C and SIGTERM, for commands that must clean up before they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aquifer_cli::Failure;
use tokio::signal::unix::{SignalKind, signal};

/// Has the signals set `stop` instead of ending the program. Needs a runtime.
///
/// # Errors
/// The system does not let it.
pub(crate) fn stops(stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind).map_err(Failure::failed)?;
        let stop = Arc::clone(stop);
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
        });
    }
    Ok(())
}
