//! The result of a changing operation, and the promise that its answer waits for.
//!
//! Every changing operation returns before its record is durable. Its caller prepares the answer
//! while the disks write, and then waits. A change whose result is dropped without that wait is
//! made all the same; it was only never promised.

use std::sync::Arc;
use std::time::Duration;

use aquifer_pool::Pool;
use aquifer_pool::intent_log::Ticket;

use crate::error::FsError;
use crate::types::{Around, Stability};

/// The promise behind an answer: a record of the intent log, or nothing.
#[must_use = "an answer waits for what it promises"]
#[derive(Debug, Default)]
pub struct Promised {
    ticket: Option<Ticket>,
    writes: Option<StableWrites>,
}

/// Stable writes that the pool's latency counters will count.
#[derive(Debug)]
pub(crate) struct StableWrites {
    /// The pool that counts them.
    pub pool: Arc<Pool>,
    /// When they began, in the world's time.
    pub begun: Duration,
    /// Their number.
    pub count: usize,
}

impl Promised {
    pub(crate) fn new(ticket: Option<Ticket>) -> Self {
        Promised { ticket, writes: None }
    }

    pub(crate) fn of_writes(ticket: Option<Ticket>, writes: StableWrites) -> Self {
        Promised { writes: ticket.is_some().then_some(writes), ticket }
    }

    /// This promise, or `earlier` if this one is empty. Records become durable in their order: the
    /// later one is enough.
    pub(crate) fn or(self, earlier: Option<Ticket>) -> Self {
        Promised { ticket: self.ticket.or(earlier), ..self }
    }

    /// Waits until the change may be answered.
    ///
    /// # Errors
    /// The record did not become durable: the caller must not answer that the change was made.
    pub async fn kept(self) -> Result<(), FsError> {
        if let Some(ticket) = &self.ticket {
            ticket.durable().await?;
        }
        self.note();
        Ok(())
    }

    /// As [`Promised::kept`], but gives up while the disks do not answer.
    ///
    /// # Errors
    /// The same, or the record may become durable later.
    pub async fn kept_or_silent(self) -> Result<(), FsError> {
        if let Some(ticket) = &self.ticket {
            ticket.or_silent().await?;
        }
        self.note();
        Ok(())
    }

    fn note(self) {
        if let Some(StableWrites { pool, begun, count }) = self.writes {
            pool.note_stable_writes(begun, count);
        }
    }
}

/// A change that was made, or the reason why it was not. The caller may answer once it is
/// [kept](Made::kept).
#[must_use = "a change may be answered once it is kept"]
#[derive(Debug)]
pub struct Made<T, A = Around> {
    /// The answer.
    pub result: Result<T, FsError>,
    /// The attributes before and after the change.
    pub around: A,
    /// The promise that the answer waits for.
    pub promised: Promised,
}

impl<T, A> Made<T, A> {
    /// `Ok` with the attributes around the change. On an error `around` gives those of the
    /// unchanged objects.
    pub(crate) fn new(made: Result<(T, A, Promised), FsError>, around: impl FnOnce() -> A) -> Self {
        match made {
            Ok((value, around, promised)) => Made { result: Ok(value), around, promised },
            Err(error) => Made::failed(error, around()),
        }
    }

    pub(crate) fn failed(error: FsError, around: A) -> Self {
        Made { result: Err(error), around, promised: Promised::default() }
    }

    /// Waits until the change may be answered. Returns its answer: an error if its record did not
    /// become durable.
    pub async fn kept(self) -> (Result<T, FsError>, A) {
        let kept = self.promised.kept().await;
        (self.result.and_then(|value| kept.map(|()| value)), self.around)
    }
}

/// A batch of writes that was made.
#[derive(Debug)]
pub struct Written {
    /// How durable the data is once the batch is kept: at least as durable as requested.
    pub stability: Stability,
    /// The attributes before and after each write.
    pub arounds: Vec<Around>,
    /// The promise that the answers wait for.
    pub promised: Promised,
}
