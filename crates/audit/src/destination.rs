//! A destination of lines: its queue, and the thread that empties it.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::line::Entry;
use crate::queue::Queue;

/// Lines that are written at once.
const BATCH: usize = 64;
/// Between two tries.
const RETRY: Duration = Duration::from_secs(2);
/// A write that takes longer is a problem.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that waiting lines have at the end.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Writer of lines.
pub(crate) trait Sink: Send + 'static {
    /// Writes these, all or none: after an error it is called with the same ones again.
    ///
    /// # Errors
    /// Why it cannot.
    fn write(&mut self, entries: &[Arc<Entry>]) -> io::Result<()>;
}

#[derive(Debug)]
pub(crate) struct Destination {
    name: &'static str,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    /// A write is under way since then.
    writes_since: Option<Instant>,
    error: Option<String>,
    ends: bool,
    has_ended: bool,
}

impl Destination {
    pub fn start(name: &'static str, sink: impl Sink) -> io::Result<Destination> {
        let shared: Arc<Shared> = Arc::default();
        let own = Arc::clone(&shared);
        thread::Builder::new().name(name.into()).spawn(move || own.work(sink))?;
        Ok(Destination { name, shared })
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn put(&self, entry: &Arc<Entry>) {
        self.shared.state.lock().queue.put(entry);
        self.shared.changed.notify_all();
    }

    /// Why it does not work now, if it does not.
    pub fn problem(&self) -> Option<String> {
        let state = self.shared.state.lock();
        let is_late = state.writes_since.is_some_and(|since| since.elapsed() >= PATIENCE);
        let late = || is_late.then(|| "it does not answer".to_string());
        let why = state.error.clone().or_else(late)?;
        Some(match state.queue.dropped() {
            0 => why,
            dropped => format!("{why}; {dropped} lines found no room"),
        })
    }

    /// Ends the destination: lines that wait have a moment to go out.
    pub fn end(&self) {
        let mut state = self.shared.state.lock();
        state.ends = true;
        self.shared.changed.notify_all();
        let until = Instant::now() + END_PATIENCE;
        while !state.has_ended {
            if self.shared.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
    }
}

impl Shared {
    fn work(&self, mut sink: impl Sink) {
        loop {
            let batch = {
                let mut state = self.state.lock();
                while state.queue.is_empty() && !state.ends {
                    self.changed.wait(&mut state);
                }
                state.queue.take(BATCH)
            };
            if batch.is_empty() || !self.write(&mut sink, &batch) {
                break;
            }
        }
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Tries until these are written, or the end comes. Returns whether they are.
    fn write(&self, sink: &mut impl Sink, batch: &[Arc<Entry>]) -> bool {
        loop {
            self.state.lock().writes_since = Some(Instant::now());
            let written = sink.write(batch);
            let mut state = self.state.lock();
            state.writes_since = None;
            state.error = written.err().map(|error| error.to_string());
            if state.error.is_none() {
                return true;
            }
            let until = Instant::now() + RETRY;
            while !state.ends && !self.changed.wait_until(&mut state, until).timed_out() {}
            if state.ends {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Kind;

    /// Fails as long as it is told to, and keeps what comes.
    #[derive(Default, Clone)]
    struct Fickle(Arc<Mutex<(bool, Vec<Arc<Entry>>)>>);

    impl Sink for Fickle {
        fn write(&mut self, entries: &[Arc<Entry>]) -> io::Result<()> {
            let mut inner = self.0.lock();
            if inner.0 {
                return Err(io::Error::other("it is full"));
            }
            inner.1.extend(entries.iter().cloned());
            Ok(())
        }
    }

    fn wait_for(what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < end, "{what}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn what_fails_holds_nobody_up_and_a_gap_is_a_line() {
        let sink = Fickle::default();
        sink.0.lock().0 = true;
        let to = Destination::start("audit test", sink.clone()).unwrap();
        let began = Instant::now();
        for at in 0..20_000 {
            to.put(&Arc::new(Entry { act: at.to_string(), ..Entry::default() }));
        }
        assert!(began.elapsed() < Duration::from_secs(10), "nobody waits");
        wait_for("a problem", || to.problem().is_some_and(|why| why.contains("it is full")));
        assert!(to.problem().unwrap().contains("lines found no room"));
        sink.0.lock().0 = false;
        wait_for("it works", || to.problem().is_none() && to.shared.state.lock().queue.is_empty());
        to.end();
        let written = sink.0.lock().1.clone();
        let gaps = written.iter().filter(|of| of.kind == Kind::Gap);
        let (count, missing) =
            gaps.fold((0, 0), |(count, all), gap| (count + 1, all + gap.dropped));
        // The thread takes its first lines while others come: there may be a gap before and after.
        assert!((1..=2).contains(&count) && missing > 10_000, "{count} gaps, {missing} lines");
        assert_eq!(written.len() as u64 - count + missing, 20_000, "each is there, or counted");
    }
}
