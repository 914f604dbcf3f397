//! Discards of one disk, gathered: waiting ones are sorted and joined, and go out batch by batch.
//!
//! A discard is expensive and never urgent. Thousands of small ones at once would fill the queues
//! that clients' reads and writes need, and each is a transaction of the file system below.
//!
//! Invariants:
//! - At most one batch runs at a time, with at most `AT_ONCE` system calls under way.
//! - A discard ends when the range that holds it ends. It is carried out even if nobody waits.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::backing::Backing;
use crate::file::{self, Engine, Operation};
use crate::pread;
use crate::request::{Kind, Request};

#[derive(Debug)]
pub(crate) struct Discards {
    backing: Arc<Backing>,
    engine: Engine,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    running: bool,
    waiting: Vec<Wanted>,
}

/// One requested discard.
#[derive(Debug)]
struct Wanted {
    start: u64,
    bytes: u64,
    /// Gets the error number, if any.
    answer: oneshot::Sender<Result<(), i32>>,
}

impl Discards {
    pub(crate) fn new(backing: Arc<Backing>, engine: Engine) -> Self {
        let state = Mutex::new(State { running: false, waiting: Vec::new() });
        Discards { backing, engine, state }
    }

    /// Discards a range that lies within the backing.
    pub(crate) async fn discard(self: &Arc<Self>, start: u64, bytes: u64) -> io::Result<()> {
        let Ok(runtime) = Handle::try_current() else {
            return pread::run(self.request(start, bytes)).map(drop);
        };
        let (answer, answered) = oneshot::channel();
        let idle = {
            let mut state = self.state.lock();
            state.waiting.push(Wanted { start, bytes, answer });
            !std::mem::replace(&mut state.running, true)
        };
        if idle {
            let run = Run { discards: Arc::clone(self), ended: false };
            runtime.spawn(run.all());
        }
        match answered.await {
            Ok(result) => result.map_err(io::Error::from_raw_os_error),
            // The runtime that ran the batch is shutting down.
            Err(_) => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    fn request(&self, start: u64, bytes: u64) -> Request {
        Request { backing: Arc::clone(&self.backing), start, kind: Kind::Discard { bytes } }
    }

    /// All waiting discards. `None`, and no longer running, if there are none.
    fn next_batch(&self) -> Option<Vec<Wanted>> {
        let mut state = self.state.lock();
        let batch = std::mem::take(&mut state.waiting);
        state.running = !batch.is_empty();
        state.running.then_some(batch)
    }

    fn start(&self, joined: &Joined) -> Operation {
        file::start(self.engine, self.request(joined.start, joined.bytes))
    }
}

/// The task that carries out batches until none is left.
struct Run {
    discards: Arc<Discards>,
    /// No discard was left: `running` now belongs to a newer task.
    ended: bool,
}

impl Run {
    async fn all(mut self) {
        while let Some(batch) = self.discards.next_batch() {
            let mut ranges = join(batch).into_iter();
            loop {
                let started: Vec<_> = ranges
                    .by_ref()
                    .take(AT_ONCE)
                    .map(|joined| (self.discards.start(&joined), joined))
                    .collect();
                if started.is_empty() {
                    break;
                }
                for (operation, joined) in started {
                    joined.answer(&operation.await.map(drop));
                }
            }
        }
        self.ended = true;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // Dropped with its runtime: dropping the senders tells the waiting callers, and the next
        // discard starts a new task.
        let waiting = {
            let mut state = self.discards.state.lock();
            state.running = false;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }
}

/// A range made of neighbouring or overlapping discards.
struct Joined {
    start: u64,
    bytes: u64,
    answers: Vec<oneshot::Sender<Result<(), i32>>>,
}

impl Joined {
    fn answer(self, result: &io::Result<()>) {
        let result = match result {
            Ok(()) => Ok(()),
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::EIO)),
        };
        for answer in self.answers {
            // A caller that no longer waits does not matter.
            let _ = answer.send(result);
        }
    }
}

/// Sorts a batch and joins ranges that touch.
fn join(mut batch: Vec<Wanted>) -> Vec<Joined> {
    batch.sort_by_key(|wanted| wanted.start);
    let mut ranges: Vec<Joined> = Vec::new();
    for wanted in batch {
        match ranges.last_mut() {
            Some(last) if wanted.start <= last.start + last.bytes => {
                let end = (last.start + last.bytes).max(wanted.start + wanted.bytes);
                last.bytes = end - last.start;
                last.answers.push(wanted.answer);
            }
            _ => ranges.push(Joined {
                start: wanted.start,
                bytes: wanted.bytes,
                answers: vec![wanted.answer],
            }),
        }
    }
    ranges
}

/// System calls of one batch that are under way at once.
const AT_ONCE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_joined_and_all_are_answered() {
        let mut answered = Vec::new();
        let mut wanted = |start, bytes| {
            let (answer, receiver) = oneshot::channel();
            answered.push(receiver);
            Wanted { start, bytes, answer }
        };
        // In disorder: neighbours, a duplicate, one inside another, and a gap.
        let batch = vec![
            wanted(30, 10),
            wanted(0, 10),
            wanted(10, 5),
            wanted(35, 1),
            wanted(0, 10),
            wanted(16, 4),
        ];
        let joined = join(batch);
        let ranges: Vec<_> = joined.iter().map(|it| (it.start, it.bytes)).collect();
        assert_eq!(ranges, [(0, 15), (16, 4), (30, 10)]);
        for range in joined {
            range.answer(&Ok(()));
        }
        assert!(answered.iter_mut().all(|answer| answer.try_recv() == Ok(Ok(()))));
    }
}
