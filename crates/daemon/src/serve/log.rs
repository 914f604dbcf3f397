//! The daemon's log, on stderr: the journal keeps it.
//!
//! Invariants:
//! - One event is one line, whatever text a client puts into it. If stderr is the journal, the line
//!   begins with its priority (sd-daemon(3)), and has no time: the journal notes that.
//! - Acts of one caller, and of one host, are so many lines in a minute ([`Acts`]). All of them are
//!   events: what follows events misses none.

use std::ffi::OsStr;
use std::fmt;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::Arc;

use aquifer_admin::events::EventRing;
use aquifer_api::shown::shown;
use rustix::fs::fstat;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::{Format, Full, Writer, debug_fn};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::acts::Acts;
use super::events;
use crate::failure::Failure;

/// Logs entries that pass `filter`, and notes events.
pub(super) fn to_stderr(filter: &str, events: &Arc<EventRing>) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(Failure::usage)?;
    let ansi = std::io::stderr().is_terminal();
    let stream = std::env::var_os("JOURNAL_STREAM");
    let logger = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .fmt_fields(fields())
        .event_format(Lines::new(is_journal(stream.as_deref(), std::io::stderr())));
    let events = events::Events(Arc::clone(events)).with_filter(filter_fn(events::is_event));
    tracing_subscriber::registry().with(logger.with_filter(filter)).with(events).init();
    Ok(())
}

/// Whether `stream` is the journal: `JOURNAL_STREAM` has its device and inode (systemd.exec(5)). A
/// program inherits the variable, also if its stderr goes elsewhere.
fn is_journal(variable: Option<&OsStr>, stream: impl AsFd) -> bool {
    let numbers = variable.and_then(OsStr::to_str).and_then(|text| text.split_once(':'));
    let Some((device, inode)) = numbers else { return false };
    let Ok(stream) = fstat(stream) else { return false };
    device.parse() == Ok(stream.st_dev) && inode.parse() == Ok(stream.st_ino)
}

/// Which events have lines, and their format.
struct Lines {
    format: LineFormat,
    acts: Acts,
}

/// The format of a line: for a person, or for the journal.
enum LineFormat {
    Timed(Format),
    Journal(Format<Full, ()>),
}

impl Lines {
    fn new(journal: bool) -> Lines {
        let format = Format::default();
        let format = match journal {
            true => LineFormat::Journal(format.without_time()),
            false => LineFormat::Timed(format),
        };
        Lines { format, acts: Acts::default() }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(left_out) = self.acts.tells(event) else { return Ok(()) };
        let level = *event.metadata().level();
        if left_out > 0 {
            if let LineFormat::Journal(_) = self.format {
                write!(to, "<{}>", priority(level))?;
            }
            writeln!(to, "{left_out} more acts of the next line's caller have no line")?;
        }
        match &self.format {
            LineFormat::Timed(format) => format.format_event(context, to, event),
            LineFormat::Journal(format) => {
                write!(to, "<{}>", priority(level))?;
                format.format_event(context, to, event)
            }
        }
    }
}

/// The priority of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
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
            .fmt_fields(fields())
            .event_format(Lines::new(false));
        let name = "pve1\n ERROR pool suspended pool=tank\x1b[2J";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info!(client = %name, path = name, freed = 3, "has restarted {name}");
        });
        let text = String::from_utf8(kept.0.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\x1b') && text.contains("freed=3"), "{text}");
        assert!(text.contains("client=pve1? ERROR pool suspended pool=tank?[2J"), "{text}");
    }

    #[test]
    fn acts_of_one_caller_are_a_bounded_number_of_lines() {
        let kept = Kept::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(kept.clone())
            .with_ansi(false)
            .fmt_fields(fields())
            .event_format(Lines::new(true));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for at in 0..100 {
                let caller = format!("token ci from 10.0.0.{at}");
                tracing::info!(class = "api.act", %caller, "an act was asked for");
                let who = format!("host fd00::{at}");
                tracing::warn!(class = "snapshot.refused", who, "refused over NFS");
                tracing::info!(class = "disk.failed", "others have all their lines");
            }
        });
        let text = String::from_utf8(kept.0.lock().clone()).unwrap();
        let lines = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        assert_eq!((lines("api.act"), lines("snapshot.refused")), (30, 20), "{text}");
        assert_eq!((lines("disk.failed"), text.lines().count()), (100, 150), "{text}");
    }

    #[test]
    fn lines_for_the_journal_begin_with_their_priority() {
        let kept = Kept::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(kept.clone())
            .with_ansi(false)
            .fmt_fields(fields())
            .event_format(Lines::new(true));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::error!(pool = "tank", "suspended");
            tracing::warn!("slow\n<0>faked");
            tracing::info!("imported");
            tracing::debug!("looked");
        });
        let text = String::from_utf8(kept.0.lock().clone()).unwrap();
        let starts = ["<3>ERROR ", "<4> WARN ", "<6> INFO ", "<7>DEBUG "];
        assert_eq!(text.lines().count(), starts.len(), "{text}");
        for (line, start) in text.lines().zip(starts) {
            assert!(line.starts_with(start), "{text}");
        }
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        let (here, other) = (std::io::stderr(), std::fs::File::open("/").unwrap());
        let stat = fstat(&here).unwrap();
        let right = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert!(is_journal(Some(OsStr::new(&right)), &here));
        assert!(!is_journal(Some(OsStr::new(&right)), &other));
        for wrong in ["", ":", "1:2:3", "x:y", &right.replace(':', " ")] {
            assert!(!is_journal(Some(OsStr::new(wrong)), &here), "{wrong}");
        }
        assert!(!is_journal(None, &here));
    }
}
