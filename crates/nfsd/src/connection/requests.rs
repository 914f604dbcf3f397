//! The requests of a connection: received, begun, answered.
//!
//! Invariants:
//! - A request begins only when the room for its longest reply is leased. Once it has begun it runs
//!   to its end.
//! - Requests begin in the order in which they were received, except for small WRITEs, which may
//!   begin with an earlier one to the same file; replies come in any order.
//! - A record is leased from its reception to its reply. The lease of reads, under which they were
//!   received, covers most; large ones have a lease of their own. The reply lease covers the memory
//!   set aside for each reply from its beginning on.
//! - Leases are taken in this order, and no connection waits for them in another: reads, large
//!   records, replies. So a waiting connection can always be served by one that does not wait. Slow
//!   clients hold leases too, but are closed.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use aquifer_blockio::Page;
use aquifer_nfs::traffic::{self, Meter};
use aquifer_nfs::{Answered, Nfs, Origin, PagedWrite, Security, Unanswered};
use aquifer_pool::Memory;
use aquifer_rpc::record::{begin_record, end_record};
use aquifer_rpc::tls::{Probe, starttls};
use aquifer_rpc::xdr::EncodeBuf;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, Stream};

use super::Common;
use super::holds::{Hold, Holds};
use crate::budget::{Budget, Lease};
use crate::crew::Crew;
use crate::limits::{
    HANDED_OVER_BYTES_MIN, IN_FLIGHT_BYTES, Limits, RECORD_OVERHEAD_BYTES, REPLY_ALLOWANCE_BYTES,
    REQUEST_ALLOWANCE_BYTES, USUAL_REPLY_BYTES,
};

/// The budgets of all connections.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// Bytes of the present reads, and the small records in them.
    pub reads: Arc<Budget>,
    /// Large records.
    pub records: Arc<Budget>,
    /// Replies.
    pub replies: Arc<Budget>,
    /// More memory for the process would be more for these.
    pub is_bound: bool,
}

impl Budgets {
    /// With `memory`, the read caches there give way to what is leased.
    pub(crate) fn new(limits: &Limits, memory: Option<&Arc<Memory>>) -> Self {
        let reads = limits.request_bytes_max / 8 * 3;
        let share = || memory.map(|memory| memory.share());
        Budgets {
            reads: Budget::new(reads, share()),
            records: Budget::new(limits.request_bytes_max - reads, share()),
            replies: Budget::new(limits.reply_bytes_max, share()),
            is_bound: limits.request_bytes_max < Limits::default().request_bytes_max,
        }
    }

    /// How often a connection had to wait for memory.
    pub(crate) fn waits(&self) -> u64 {
        self.reads.waits() + self.records.waits() + self.replies.waits()
    }

    /// Whether a connection waits for memory.
    pub(crate) fn is_short(&self) -> bool {
        self.reads.is_short() || self.records.is_short() || self.replies.is_short()
    }
}

/// A received record.
pub(super) struct Received {
    pub bytes: Vec<u8>,
    /// The data of a WRITE, which follows `bytes` in the record.
    pages: Option<Vec<Page>>,
    /// Length of the record, in bytes.
    len: usize,
    /// When its last byte came: from then on its client waits for us.
    at: Instant,
    /// The lease of large records covers it.
    pub is_large: bool,
}

impl Received {
    /// This as a WRITE with its data in pages, if it is one.
    fn paged(&self) -> Option<PagedWrite<'_>> {
        self.pages.as_deref().map(|pages| PagedWrite { head: &self.bytes, pages })
    }
}

/// A finished request.
pub(super) struct Done {
    /// Its reply; the reply lease covers its memory until it is sent.
    pub reply: EncodeBuf,
    pub outcome: Outcome,
    ended: Instant,
    record: Received,
    reserved: usize,
}

/// How a request ended.
pub(super) enum Outcome {
    /// It is answered; `Some` for a call of NFSv3.
    Answered(Option<traffic::Done>),
    /// It gets no answer.
    Unanswered(Unanswered),
    /// It panicked: our bug.
    Panicked(Box<dyn Any + Send>),
}

/// One request, or a batch of WRITEs.
type Serving = Pin<Box<dyn Future<Output = Vec<Done>> + Send>>;

/// The requests of one connection.
pub(super) struct Requests {
    nfs: Arc<Nfs>,
    meter: Arc<Meter>,
    origin: Origin,
    in_flight_max: usize,
    reply_bytes_max: usize,
    received: VecDeque<Received>,
    /// When the received bytes were read: one look at the clock for each read.
    pub read_at: Instant,
    in_flight: FuturesUnordered<Serving>,
    holds: Arc<Holds>,
    /// Requests in it.
    under_way: usize,
    /// Finished requests, to be taken one by one.
    ended: VecDeque<Done>,
    pub read_lease: Lease,
    pub record_lease: Lease,
    pub reply_lease: Lease,
}

/// The result of an attempt to begin the next request.
pub(super) enum Begun {
    /// There is none.
    Nothing,
    /// This many are finished already; take them by [`Requests::pop_ended`].
    Ended(usize),
    /// This many are under way.
    Waits(usize),
    /// Not now: it waits for the room of its reply, too many are under way, or too much of the
    /// connection's replies is unsent.
    Limited,
}

impl Requests {
    pub(super) fn new(common: &Common, meter: &Arc<Meter>, origin: Origin) -> Self {
        let (limits, budgets) = (&common.limits, &common.budgets);
        Requests {
            nfs: Arc::clone(&common.nfs),
            meter: Arc::clone(meter),
            origin,
            in_flight_max: limits.in_flight_max,
            reply_bytes_max: limits.connection_reply_bytes_max,
            received: VecDeque::new(),
            read_at: Instant::now(),
            in_flight: FuturesUnordered::new(),
            // The other half is for calls to other pools.
            holds: Holds::new(limits.in_flight_max / 2),
            under_way: 0,
            ended: VecDeque::new(),
            read_lease: Lease::new(&budgets.reads, REQUEST_ALLOWANCE_BYTES),
            record_lease: Lease::new(&budgets.records, 0),
            reply_lease: Lease::new(&budgets.replies, REPLY_ALLOWANCE_BYTES),
        }
    }

    /// The origin of the calls.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// From now on calls are counted there.
    pub(super) fn set_meter(&mut self, meter: &Arc<Meter>) {
        self.meter = Arc::clone(meter);
    }

    /// Takes a record of `len` bytes; the data of a WRITE may be in pages behind `bytes`.
    /// Afterwards the caller returns the room that it was read into.
    pub(super) fn receive(&mut self, bytes: Vec<u8>, pages: Option<Vec<Page>>, len: usize) {
        self.read_lease.force(len + RECORD_OVERHEAD_BYTES);
        let at = self.read_at;
        self.received.push_back(Received { bytes, pages, len, at, is_large: false });
    }

    /// Takes a record of `len` bytes that the lease of large records covers; the data of a WRITE
    /// may be in pages behind `bytes`.
    pub(super) fn receive_large(&mut self, bytes: Vec<u8>, pages: Option<Vec<Page>>, len: usize) {
        let at = self.read_at;
        self.received.push_back(Received { bytes, pages, len, at, is_large: true });
    }

    /// Whether requests wait to begin.
    pub(super) fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    /// Whether nothing is received or under way.
    pub(super) fn is_empty(&self) -> bool {
        self.received.is_empty() && self.under_way == 0 && self.ended.is_empty()
    }

    /// Takes the next request, if it asks to switch to TLS, and answers it: the reply is leased.
    pub(super) fn take_probe(&mut self) -> Option<EncodeBuf> {
        let probe = Probe::decode(&self.received.front()?.bytes)?;
        let record = self.received.pop_front()?;
        self.give_back(&record);
        let mut reply = EncodeBuf::new();
        let open = begin_record(&mut reply);
        reply.put(&starttls(probe.xid));
        end_record(&mut reply, open);
        self.reply_lease.force(reply.len());
        Some(reply)
    }

    /// Sets the client's proven identity for all requests that begin from now on.
    pub(super) fn set_security(&mut self, security: Security) {
        self.origin.security = security;
    }

    /// Begins the next request, if there is one and it may begin, or up to `most` of the next ones
    /// together. With much unsent (`is_full`) only one that another thread can carry out.
    pub(super) fn begin_next(
        &mut self,
        cx: &mut Context<'_>,
        crew: &Crew,
        (is_full, most): (bool, usize),
    ) -> Begun {
        let Some(record) = self.received.front() else { return Begun::Nothing };
        if is_full && !crew.has_idle() {
            return Begun::Limited;
        }
        let reply_bytes = IN_FLIGHT_BYTES + self.nfs.reply_bytes_max(&record.bytes);
        if is_full && reply_bytes < HANDED_OVER_BYTES_MIN {
            return Begun::Limited;
        }
        let in_use = self.reply_lease.used();
        let too_much = in_use > 0 && in_use + reply_bytes > self.reply_bytes_max;
        if self.under_way >= self.in_flight_max || too_much {
            return Begun::Limited;
        }
        let together = self.together(most.min(self.in_flight_max - self.under_way));
        let reserved = together.len() * reply_bytes;
        // Where room is short the requests begin one by one.
        let has_room = in_use + reserved <= self.reply_bytes_max && !self.reply_lease.waits();
        if together.len() > 1 && has_room && self.reply_lease.try_take(reserved) {
            let records = self.take(&together);
            return self.begin(records, reserved, crew, is_full);
        }
        if self.reply_lease.poll_take(cx, reply_bytes).is_pending() {
            return Begun::Limited;
        }
        let records = self.take(&[0]);
        self.begin(records, reply_bytes, crew, is_full)
    }

    /// Polls new requests once where they are: most finish then, and cost no task. A large READ
    /// behind others goes to another thread, if one is idle.
    fn begin(
        &mut self,
        records: Vec<Received>,
        reserved: usize,
        crew: &Crew,
        is_full: bool,
    ) -> Begun {
        let requests = records.len();
        let is_large = requests == 1 && reserved >= HANDED_OVER_BYTES_MIN;
        let of = (Arc::clone(&self.nfs), self.origin.clone(), Arc::clone(&self.holds));
        let serving = serve(of, records, reserved);
        let mut serving: Serving = Box::pin(serving);
        if is_large && (is_full || self.under_way > 0) {
            match crew.hand_over(serving) {
                Ok(handed_over) => return self.wait_for(Box::pin(handed_over), requests),
                Err(own) => serving = own,
            }
        }
        // This poll wakes no task: a waiting request is polled again when it has joined the others.
        match serving.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => {
                self.ended.extend(done);
                Begun::Ended(requests)
            }
            Poll::Pending => self.wait_for(serving, requests),
        }
    }

    fn wait_for(&mut self, serving: Serving, requests: usize) -> Begun {
        self.in_flight.push(serving);
        self.under_way += requests;
        Begun::Waits(requests)
    }

    /// The positions, among the next requests up to `most`, of the first and those that can be
    /// coalesced with it. Empty if there are none.
    fn together(&self, most: usize) -> Vec<usize> {
        let is_alone = self.received.len() == 1;
        let first = self.received.front().filter(|_| !is_alone).and_then(Received::paged);
        let Some(first) = first else { return Vec::new() };
        let goes = |record: &Received| record.paged().is_some_and(|next| first.may_take(&next));
        let next = self.received.iter().take(most).enumerate();
        next.filter(|(_, record)| goes(record)).map(|(at, _)| at).collect()
    }

    /// Takes out requests, between which there may be others.
    fn take(&mut self, places: &[usize]) -> Vec<Received> {
        if places.last().is_some_and(|last| *last < places.len()) {
            return self.received.drain(..places.len()).collect();
        }
        let mut taken: Vec<Received> =
            places.iter().rev().filter_map(|at| self.received.remove(*at)).collect();
        taken.reverse();
        taken
    }

    /// The next of those that finished as soon as they began.
    pub(super) fn pop_ended(&mut self) -> Option<Done> {
        let done = self.ended.pop_front()?;
        Some(self.settle(done))
    }

    /// The next finished request; pending too if none is under way.
    pub(super) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Done> {
        loop {
            if let Some(done) = self.pop_ended() {
                return Poll::Ready(done);
            }
            match Pin::new(&mut self.in_flight).poll_next(cx) {
                Poll::Ready(Some(done)) => {
                    self.under_way -= done.len();
                    self.ended.extend(done);
                }
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Those whose fate is open get no answer: the connection ends.
    pub(super) fn end_holds(&self) {
        self.holds.end();
    }

    /// Forgets requests that have not begun.
    pub(super) fn drop_received(&mut self) {
        for record in std::mem::take(&mut self.received) {
            self.give_back(&record);
        }
        for lease in [&mut self.read_lease, &mut self.record_lease, &mut self.reply_lease] {
            lease.cancel_wait();
        }
    }

    /// Counts a request, and reduces its lease from the reserved size to the size of the reply.
    fn settle(&mut self, done: Done) -> Done {
        if let Outcome::Answered(Some(call)) = &done.outcome {
            let took = done.ended.saturating_duration_since(done.record.at);
            let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.meter.record(self.origin.address(), call, ns);
        }
        self.give_back(&done.record);
        self.reply_lease.force(done.reply.len());
        self.reply_lease.give(done.reserved);
        done
    }

    fn give_back(&mut self, record: &Received) {
        let bytes = record.len + RECORD_OVERHEAD_BYTES;
        match record.is_large {
            true => self.record_lease.give(bytes),
            false => self.read_lease.give(bytes),
        }
    }
}

/// Carries out a request or a batch of WRITEs, for which `reserved` is leased in all.
async fn serve(
    (nfs, origin, holds): (Arc<Nfs>, Origin, Arc<Holds>),
    records: Vec<Received>,
    reserved: usize,
) -> Vec<Done> {
    let reserved = reserved / records.len();
    let answering = AssertUnwindSafe(answer(&nfs, &origin, &holds, &records));
    let (mut answered, mut panic) = match answering.catch_unwind().await {
        Ok(answered) => (answered.into_iter(), None),
        // The replies so far may end in the middle of one.
        Err(panic) => (Vec::new().into_iter(), Some(panic)),
    };
    let ended = Instant::now();
    let done = |record| {
        let (reply, outcome) = match (answered.next(), panic.take()) {
            (Some((reply, Ok(done))), _) => (reply, Outcome::Answered(done)),
            (Some((reply, Err(error))), _) => (reply, Outcome::Unanswered(error)),
            (None, Some(panic)) => (EncodeBuf::new(), Outcome::Panicked(panic)),
            (None, None) => (EncodeBuf::new(), Outcome::Answered(None)),
        };
        Done { reply, outcome, ended, record, reserved }
    };
    records.into_iter().map(done).collect()
}

async fn answer(nfs: &Nfs, origin: &Origin, holds: &Holds, records: &[Received]) -> Vec<Answered> {
    if let [record] = records {
        let mut hold = None;
        loop {
            let mut reply = EncodeBuf::with_capacity(USUAL_REPLY_BYTES);
            let pages = record.pages.as_deref();
            let done = nfs.answer_with(origin.clone(), &record.bytes, pages, &mut reply).await;
            if done != Err(Unanswered::Unsettled) || !may_ask_again(&mut hold, holds, record).await
            {
                return vec![(reply, done)];
            }
        }
    }
    let calls: Vec<_> = records.iter().filter_map(Received::paged).collect();
    Box::pin(nfs.answer_together(origin, &calls)).await
}

/// Waits until it is time to ask again how a call ended. Whether it may be asked again.
async fn may_ask_again<'h>(
    hold: &mut Option<Hold<'h>>,
    holds: &'h Holds,
    record: &Received,
) -> bool {
    if hold.is_none() {
        let xid = record.bytes.first_chunk().map_or(0, |xid| u32::from_be_bytes(*xid));
        *hold = holds.hold(xid);
    }
    match hold {
        Some(hold) => Box::pin(hold.wait()).await,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FUTURE_BYTES_MAX;

    /// The memory of a running request is charged in full.
    #[test]
    fn the_future_of_a_request_is_no_larger_than_what_is_charged() {
        fn bytes_of<R, F>(_: impl Fn((Arc<Nfs>, Origin, Arc<Holds>), R, usize) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = bytes_of(serve);
        assert!(bytes <= FUTURE_BYTES_MAX, "{bytes} bytes");
    }
}
