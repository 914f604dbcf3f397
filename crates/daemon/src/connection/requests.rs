//! The requests of a connection: received, begun, answered.
//!
//! Invariants:
//! - A request is begun only when the room for its longest reply is leased, and when it is begun it
//!   runs to its end.
//! - Requests are begun in the order in which they were received; replies come in any order.
//! - The request lease covers every record from its reception to its reply, the reply lease what is
//!   set aside for each reply from its beginning on.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use aquifer_nfs::limits::SMALL_REPLY_BYTES_MAX;
use aquifer_nfs::{Nfs, NoCall};
use aquifer_rpc::xdr::EncodeBuf;
use futures_util::stream::{FuturesUnordered, Stream};
use futures_util::FutureExt;

use crate::budget::{Budget, Lease};
use crate::limits::{
    IN_FLIGHT_BYTES, Limits, RECORD_OVERHEAD_BYTES, REPLY_ALLOWANCE_BYTES,
    REQUEST_ALLOWANCE_BYTES,
};

/// A request that has come to its end.
pub(super) struct Done {
    /// Its reply; what is leased for it is covered by the reply lease until it is sent.
    pub reply: EncodeBuf,
    pub outcome: Outcome,
    record_bytes: usize,
    reserved: usize,
}

/// How a request ended.
pub(super) enum Outcome {
    /// It is answered.
    Answered,
    /// It was no call.
    NoCall(NoCall),
    /// It panicked: our bug.
    Panicked(Box<dyn Any + Send>),
}

type Serving = Pin<Box<dyn Future<Output = Done>>>;

/// The requests of one connection.
pub(super) struct Requests {
    nfs: Arc<Nfs>,
    peer: SocketAddr,
    in_flight_max: usize,
    reply_bytes_max: usize,
    received: VecDeque<Vec<u8>>,
    in_flight: FuturesUnordered<Serving>,
    pub request_lease: Lease,
    pub reply_lease: Lease,
}

/// What came of an attempt to begin the next request.
pub(super) enum Begun {
    /// There is none.
    Nothing,
    /// It is done already.
    Done(Done),
    /// It is under way.
    Waits,
    /// Not now: so much room for replies must be leased first.
    NeedsRoom(usize),
    /// Not now: too many are under way, or too much of the connection's replies is unsent.
    Limited,
}

impl Requests {
    pub(super) fn new(
        nfs: Arc<Nfs>,
        peer: SocketAddr,
        limits: &Limits,
        (requests, replies): (&Arc<Budget>, &Arc<Budget>),
    ) -> Self {
        Requests {
            nfs,
            peer,
            in_flight_max: limits.in_flight_max,
            reply_bytes_max: limits.connection_reply_bytes_max,
            received: VecDeque::new(),
            in_flight: FuturesUnordered::new(),
            request_lease: Lease::new(requests, REQUEST_ALLOWANCE_BYTES),
            reply_lease: Lease::new(replies, REPLY_ALLOWANCE_BYTES),
        }
    }

    /// Takes a record whose bytes are not leased yet; they are with the caller's room for reading.
    pub(super) fn receive(&mut self, record: Vec<u8>) {
        self.request_lease.force(record.len() + RECORD_OVERHEAD_BYTES);
        self.received.push_back(record);
    }

    /// Whether a record may be received whole before room for its reply is leased: the order of
    /// leases would be broken by a large request with a large reply. There is none in the
    /// protocols; such a record is no call.
    pub(super) fn may_be_large(&self, head: &[u8]) -> bool {
        self.nfs.reply_bytes_max(head) <= SMALL_REPLY_BYTES_MAX
    }

    /// Whether requests wait to be begun.
    pub(super) fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    /// Whether nothing is received or under way.
    pub(super) fn is_empty(&self) -> bool {
        self.received.is_empty() && self.in_flight.is_empty()
    }

    /// Begins the next request, if there is one and it may.
    pub(super) fn begin_next(&mut self) -> Begun {
        let Some(record) = self.received.front() else { return Begun::Nothing };
        let reply_bytes = IN_FLIGHT_BYTES + self.nfs.reply_bytes_max(record);
        let in_use = self.reply_lease.used();
        let too_much = in_use > 0 && in_use + reply_bytes > self.reply_bytes_max;
        if self.in_flight.len() >= self.in_flight_max || too_much {
            return Begun::Limited;
        }
        if !self.reply_lease.try_take(reply_bytes) {
            return Begun::NeedsRoom(reply_bytes);
        }
        match self.received.pop_front() {
            Some(record) => self.begin(record, reply_bytes),
            None => Begun::Nothing,
        }
    }

    /// Polls a new request once where it stands: most are done then, and cost no task.
    fn begin(&mut self, record: Vec<u8>, reserved: usize) -> Begun {
        let serving = serve(Arc::clone(&self.nfs), self.peer, record, reserved);
        let mut serving: Serving = Box::pin(serving);
        // Nobody is woken by this poll: a request that waits is polled again when it has joined
        // the others.
        match serving.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Begun::Done(self.settle(done)),
            Poll::Pending => {
                self.in_flight.push(serving);
                Begun::Waits
            }
        }
    }

    /// The next request that is done; pending too if none is under way.
    pub(super) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Done> {
        match Pin::new(&mut self.in_flight).poll_next(cx) {
            Poll::Ready(Some(done)) => Poll::Ready(self.settle(done)),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Forgets requests that have not begun.
    pub(super) fn drop_received(&mut self) {
        for record in std::mem::take(&mut self.received) {
            self.request_lease.give(record.len() + RECORD_OVERHEAD_BYTES);
        }
        self.request_lease.cancel_wait();
        self.reply_lease.cancel_wait();
    }

    /// From what was leased to what is used: the reply that is to be sent.
    fn settle(&mut self, done: Done) -> Done {
        self.request_lease.give(done.record_bytes + RECORD_OVERHEAD_BYTES);
        self.reply_lease.force(done.reply.len());
        self.reply_lease.give(done.reserved);
        done
    }
}

async fn serve(nfs: Arc<Nfs>, peer: SocketAddr, record: Vec<u8>, reserved: usize) -> Done {
    let mut reply = EncodeBuf::new();
    let answered = AssertUnwindSafe(nfs.answer(peer, &record, &mut reply)).catch_unwind().await;
    let outcome = match answered {
        Ok(Ok(())) => Outcome::Answered,
        Ok(Err(error)) => Outcome::NoCall(error),
        Err(panic) => {
            // What is in it may be half a reply.
            reply = EncodeBuf::new();
            Outcome::Panicked(panic)
        }
    };
    Done { reply, outcome, record_bytes: record.len(), reserved }
}
