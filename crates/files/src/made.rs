//! What a changing operation has made, and what its answer waits for.
//!
//! Every operation that changes something returns before its record is durable: its caller puts the
//! answer together while the disks write, and then waits. Whatever is dropped without that wait is
//! made all the same; it was only never promised.

use std::sync::Arc;
use std::time::Duration;

use aquifer_pool::Pool;
use aquifer_pool::intent_log::Ticket;

use crate::error::FsError;
use crate::types::{Around, Stability};

/// What an answer waits for: a record of the intent log, or nothing.
#[must_use = "an answer waits for what it promises"]
#[derive(Debug, Default)]
pub struct Promised {
    ticket: Option<Ticket>,
    writes: Option<StableWrites>,
}

/// Stable writes, whose time is counted.
#[derive(Debug)]
pub(crate) struct StableWrites {
    /// Where they are counted.
    pub pool: Arc<Pool>,
    /// When they began, in the world's time.
    pub begun: Duration,
    /// How many.
    pub count: usize,
}

impl Promised {
    pub(crate) fn new(ticket: Option<Ticket>) -> Self {
        Promised { ticket, writes: None }
    }

    pub(crate) fn of_writes(ticket: Option<Ticket>, writes: StableWrites) -> Self {
        Promised { writes: ticket.is_some().then_some(writes), ticket }
    }

    /// This, or what a record before it promised if this is nothing. Records become durable in
    /// their order: the later one is enough.
    pub(crate) fn or(self, earlier: Option<Ticket>) -> Self {
        Promised { ticket: self.ticket.or(earlier), ..self }
    }

    /// Waits until the change may be answered.
    ///
    /// # Errors
    /// What its record met on the way to the disks: the change may not be answered as made.
    pub async fn kept(self) -> Result<(), FsError> {
        if let Some(ticket) = self.ticket {
            ticket.durable().await?;
        }
        if let Some(StableWrites { pool, begun, count }) = self.writes {
            pool.note_stable_writes(begun, count);
        }
        Ok(())
    }
}

/// A change that was made, or why it was not. It may be answered once it is [kept](Made::kept).
#[must_use = "a change may be answered once it is kept"]
#[derive(Debug)]
pub struct Made<T, A = Around> {
    /// The answer.
    pub result: Result<T, FsError>,
    /// The attributes around the change.
    pub around: A,
    /// What the answer waits for.
    pub promised: Promised,
}

impl<T, A> Made<T, A> {
    /// `Ok` with what is around the change that was made; else `around` is what there is to say of
    /// objects that did not change.
    pub(crate) fn new(made: Result<(T, A, Promised), FsError>, around: impl FnOnce() -> A) -> Self {
        match made {
            Ok((value, around, promised)) => Made { result: Ok(value), around, promised },
            Err(error) => Made::failed(error, around()),
        }
    }

    pub(crate) fn failed(error: FsError, around: A) -> Self {
        Made { result: Err(error), around, promised: Promised::default() }
    }

    /// Waits until the change may be answered, and gives its answer: an error if its record did not
    /// become durable.
    pub async fn kept(self) -> (Result<T, FsError>, A) {
        let kept = self.promised.kept().await;
        (self.result.and_then(|value| kept.map(|()| value)), self.around)
    }
}

/// A batch of writes that was made.
#[derive(Debug)]
pub struct Written {
    /// How durable the data is once the batch is kept: at least what was asked for.
    pub stability: Stability,
    /// What is around each write.
    pub arounds: Vec<Around>,
    /// What the answers wait for.
    pub promised: Promised,
}
