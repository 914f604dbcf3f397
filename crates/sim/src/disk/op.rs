//! The table of disk operations in flight.
//!
//! Invariants:
//! - An operation stays in the table until it has completed and its future has taken the result or
//!   is gone. Dropping the future does not cancel it.
//! - A ticket names one operation for ever; a stale ticket finds nothing.

use std::task::{Poll, Waker};

use aquifer_blockio::{DiskError, Page};

use crate::trace::Action;

/// A request to a disk.
pub(crate) enum Request {
    Read { count: usize },
    Write { pages: Vec<Page>, durable: bool },
    Flush,
    Discard { count: u64 },
}

impl Request {
    pub(crate) fn action(&self) -> Action {
        match self {
            Request::Read { .. } => Action::Read,
            Request::Write { durable: false, .. } => Action::Write,
            Request::Write { durable: true, .. } => Action::WriteDurable,
            Request::Flush => Action::Flush,
            Request::Discard { .. } => Action::Discard,
        }
    }

    /// Number of sectors.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Request::Read { count } => *count as u64,
            Request::Write { pages, .. } => pages.len() as u64,
            Request::Flush => 0,
            Request::Discard { count } => *count,
        }
    }
}

/// The data of an operation while it is in flight.
pub(crate) enum Body {
    /// The sectors' content at submission, and how many writes had completed by then.
    Read {
        pages: Vec<Page>,
        seen: u64,
    },
    Write {
        pages: Vec<Page>,
        durable: bool,
    },
    /// The last write that had completed at submission.
    Flush {
        covered: u64,
    },
    /// Content of the sectors after the discard, from the first on.
    Discard {
        pages: Vec<Page>,
    },
    /// Decided before its time, because the device vanished.
    Void,
}

/// How the operation will end: decided at its submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    Normal,
    Error,
    /// Stored, and the flush that should make it durable fails.
    Unflushed,
    Phantom,
    Misdirected(u64),
    Gone,
}

/// Pages for a read, none for other operations.
pub(crate) type IoResult = Result<Vec<Page>, DiskError>;

pub(crate) struct Op {
    pub(crate) id: u64,
    pub(crate) disk: usize,
    pub(crate) sector: u64,
    pub(crate) count: u64,
    pub(crate) action: Action,
    pub(crate) body: Body,
    pub(crate) plan: Plan,
    /// The number of the event that ends it.
    pub(crate) event: u64,
    pub(crate) waker: Option<Waker>,
    pub(crate) abandoned: bool,
    pub(crate) result: Option<IoResult>,
}

impl Op {
    /// The sector and pages that a write or discard in flight would store; nothing for other
    /// operations.
    pub(crate) fn would_store(&self) -> Option<(u64, &[Page])> {
        match (&self.body, self.plan) {
            (
                Body::Write { pages, .. } | Body::Discard { pages },
                Plan::Normal | Plan::Error | Plan::Unflushed,
            ) => Some((self.sector, pages)),
            (Body::Write { pages, .. }, Plan::Misdirected(to)) => Some((to, pages)),
            _ => None,
        }
    }
}

/// Names one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    slot: usize,
    id: u64,
}

#[derive(Default)]
pub(crate) struct Ops {
    slots: Vec<Option<Op>>,
    free: Vec<usize>,
    last_id: u64,
}

impl Ops {
    /// The slot that the next operation will get.
    pub(crate) fn next_slot(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    /// Puts the operation into `next_slot` and gives it an id of its own.
    pub(crate) fn insert(&mut self, mut op: Op) -> Ticket {
        self.last_id += 1;
        op.id = self.last_id;
        let slot = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(op),
            None => self.slots.push(Some(op)),
        }
        Ticket { slot, id: self.last_id }
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Op> {
        self.slots.get(slot)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Op> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Takes the operation out while it completes; its slot stays reserved.
    pub(crate) fn take(&mut self, slot: usize) -> Option<Op> {
        self.slots.get_mut(slot)?.take()
    }

    /// Puts a completed operation back until its future polls; returns the waker to be woken.
    pub(crate) fn completed(&mut self, slot: usize, mut op: Op, result: IoResult) -> Option<Waker> {
        if op.abandoned {
            self.free.push(slot);
            return op.waker;
        }
        let waker = op.waker.take();
        op.event = 0;
        op.body = Body::Void;
        op.result = Some(result);
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(op);
        }
        waker
    }

    /// The operations of one disk that have not completed, with their slots.
    pub(crate) fn in_flight(&self, disk: usize) -> impl Iterator<Item = (usize, &Op)> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter_map(|(slot, op)| op.as_ref().map(|op| (slot, op)))
            .filter(move |(_, op)| op.disk == disk && op.result.is_none())
    }

    /// The future polls. The second part is a waker to be dropped outside the lock.
    pub(crate) fn poll(
        &mut self,
        ticket: Ticket,
        waker: &Waker,
    ) -> (Poll<IoResult>, Option<Waker>) {
        let Some(op) = self.find(ticket) else {
            // The machine was restarted below the future.
            return (Poll::Ready(Err(DiskError::Gone)), None);
        };
        if let Some(result) = op.result.take() {
            self.remove(ticket);
            return (Poll::Ready(result), None);
        }
        if op.waker.as_ref().is_some_and(|held| held.will_wake(waker)) {
            return (Poll::Pending, None);
        }
        (Poll::Pending, op.waker.replace(waker.clone()))
    }

    /// The future is dropped: the operation goes on without it.
    pub(crate) fn abandon(&mut self, ticket: Ticket) -> Option<Waker> {
        let op = self.find(ticket)?;
        op.abandoned = true;
        let waker = op.waker.take();
        if op.result.is_some() {
            self.remove(ticket);
        }
        waker
    }

    /// Forgets all operations. They are returned to be dropped outside the lock.
    pub(crate) fn clear(&mut self) -> Vec<Option<Op>> {
        self.free.clear();
        std::mem::take(&mut self.slots)
    }

    fn find(&mut self, ticket: Ticket) -> Option<&mut Op> {
        self.get_mut(ticket.slot).filter(|op| op.id == ticket.id)
    }

    fn remove(&mut self, ticket: Ticket) {
        self.take(ticket.slot);
        self.free.push(ticket.slot);
    }
}
