//! The daemon's log, on stderr: the journal keeps it.
//!
//! Invariant: one event is one line, whatever text a client puts into it.

use std::io::IsTerminal;
use std::sync::Arc;

use aquifer_admin::events::EventRing;
use aquifer_api::shown::shown;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::events;
use crate::failure::Failure;

/// Logs entries that pass `filter`, and notes events.
pub(super) fn to_stderr(filter: &str, events: &Arc<EventRing>) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(Failure::usage)?;
    let ansi = std::io::stderr().is_terminal();
    let logger = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .fmt_fields(fields());
    let events = events::Events(Arc::clone(events)).with_filter(filter_fn(events::is_event));
    tracing_subscriber::registry().with(logger.with_filter(filter)).with(events).init();
    Ok(())
}

/// The format of message and fields.
fn fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    debug_fn(|to, field, value| {
        let value = shown(&format!("{value:?}"));
        match field.name() {
            "message" => write!(to, "{value}"),
            name => write!(to, "{name}={value}"),
        }
    })
    .delimited(" ")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use parking_lot::Mutex;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'w> MakeWriter<'w> for Kept {
        type Writer = Kept;

        fn make_writer(&'w self) -> Kept {
            self.clone()
        }
    }

    /// A client chooses its name so that it would look like a line of its own in the journal.
    #[test]
    fn what_a_client_says_begins_no_line() {
        let kept = Kept::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(kept.clone())
            .with_ansi(false)
            .without_time()
            .fmt_fields(fields());
        let name = "pve1\n ERROR pool suspended pool=tank\x1b[2J";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info!(client = %name, path = name, freed = 3, "has restarted {name}");
        });
        let text = String::from_utf8(kept.0.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\x1b') && text.contains("freed=3"), "{text}");
        assert!(text.contains("client=pve1? ERROR pool suspended pool=tank?[2J"), "{text}");
    }
}
