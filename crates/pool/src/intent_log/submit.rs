//! Sealing a batch, writing it, and acknowledging durable batches.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::buf::pages_of;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Place;
use aquifer_ondisk::config::VdevClass;
use aquifer_ondisk::log_batch::BatchHeader;
use aquifer_sync::atomic::Ordering;
use aquifer_vdev::VdevLost;
use futures_util::future::{join, join_all};

use crate::error::PoolError;
use crate::flow::batches::Idle;
use crate::flow::limits::LOG_IDLE_MS;
use crate::intent_log::{EarlyWrite, Gathering, IntentLog, LiveBatch, Position, Waiting};
use crate::pool::Pool;

/// A batch with its place in the chain.
struct Sealed {
    sequence: u64,
    place: Place,
    pages: Vec<aquifer_blockio::Page>,
    early: Vec<EarlyWrite>,
}

/// The reason why a batch is not durable.
enum Lost {
    /// Its log vdev has no side left.
    Log,
    /// The pool cannot go on.
    Pool(PoolError),
}

impl From<PoolError> for Lost {
    fn from(error: PoolError) -> Self {
        Lost::Pool(error)
    }
}

/// Sends batches until there are none. `in_flight` already counts this sender.
pub(crate) fn spawn(pool: &Arc<Pool>) {
    let task_pool = pool.clone();
    pool.world().spawn("log batch", Box::pin(async move { task_pool.send_batches().await }));
}

impl Pool {
    async fn send_batches(self: Arc<Pool>) {
        loop {
            let sealed = match self.log.seal(&self) {
                Ok(Some(sealed)) => sealed,
                Ok(None) => break,
                Err(error) => {
                    self.suspend(error);
                    return;
                }
            };
            let sequence = sealed.sequence;
            let sent = self.send(sealed).await;
            if let Err(Lost::Pool(error)) = sent {
                self.suspend(error);
                return;
            }
            if self.log.finished(sequence, sent.is_ok()) {
                spawn(&self);
            }
        }
        if self.log.arm_idle_timer() {
            let pool = self.clone();
            self.world().spawn("log idle", Box::pin(async move { pool.idle_timer().await }));
        }
    }

    async fn send(&self, sealed: Sealed) -> Result<(), Lost> {
        let vdev = self.vdev(sealed.place)?;
        let sector = sealed.place.sector();
        let on_log_vdev = vdev.class == VdevClass::Log;
        // A log vdev without any side: the log moves home, and this batch becomes durable with its
        // txg.
        let judge = |result: Result<(), VdevLost>| match result {
            Err(_) if on_log_vdev => {
                self.log_vdev_lost(vdev.index);
                Err(Lost::Log)
            }
            other => other.map_err(|lost| Lost::Pool(lost.into())),
        };
        let mut data: Vec<u16> = sealed.early.iter().map(|early| early.run.place.vdev()).collect();
        data.sort_unstable();
        data.dedup();
        // The write makes the batch durable by itself. A flush of the whole device costs a thread
        // of the kernel, and waits for writes that nobody here waits for. Only if early data needs
        // that flush anyway does it serve both.
        let flushed = data.contains(&vdev.index) || left_out(Rule::FlushBeforeAck);
        let write = async {
            if flushed {
                vdev.write(sector, sealed.pages).await
            } else {
                vdev.write_durable(sector, sealed.pages).await
            }
        };
        let early = join_all(sealed.early.iter().map(EarlyWrite::written));
        let (written, early) = join(write, early).await;
        early.into_iter().collect::<Result<(), PoolError>>()?;
        judge(written)?;
        if !left_out(Rule::FlushBeforeAck) {
            let flushes = data.iter().map(|index| async move {
                self.vdev(Place::new(*index, 0))?.flush().await.map_err(PoolError::from)
            });
            join_all(flushes).await.into_iter().collect::<Result<(), PoolError>>()?;
        }
        // A side that failed on the way could come up alone as whole: name it before any answer.
        self.name_outdated().await?;
        // If the last side was lost meanwhile, none of them was named: the batch may be only on
        // that side.
        if on_log_vdev && !left_out(Rule::LostLogHoldsAcknowledgements) {
            judge(vdev.check())?;
        }
        Ok(())
    }

    /// A log that becomes idle writes one empty batch: its header carries the mark that proves the
    /// last real batch durable.
    async fn idle_timer(self: Arc<Pool>) {
        loop {
            let records = self.log.state.lock().batches.records();
            self.world().sleep(Duration::from_millis(LOG_IDLE_MS)).await;
            let mut state = self.log.state.lock();
            let (mark_waits, room) = (state.mark_waits(), state.room_bytes());
            let moving = state.change.is_some();
            match state.batches.timer_ends(records, mark_waits, room, moving) {
                Idle::Busy => {}
                Idle::Over => return,
                Idle::WritesMark => {
                    state.ready.push_back(Gathering::default());
                    drop(state);
                    return spawn(&self);
                }
            }
        }
    }
}

impl IntentLog {
    /// Gives the oldest gathered batch its place in the chain. `None`: nothing to send; the caller
    /// stops and no longer counts as in flight.
    fn seal(&self, pool: &Pool) -> Result<Option<Sealed>, PoolError> {
        let mut state = self.state.lock();
        if let Some(error) = &state.failure {
            return Err(error.clone());
        }
        if state.change.is_some() && !left_out(Rule::MoveHoldsBatches) {
            state.batches.sender_ends();
            return Ok(None);
        }
        let position = state.ring.place_for_next(state.next);
        let entering = position.segment != state.next.segment;
        let reuse = left_out(Rule::LogReuseBehindRoot);
        if entering && position.segment == state.tail().segment && !reuse {
            // A batch that was admitted for a larger place, before a move to this one: it is
            // written after the next root.
            state.stalled = true;
            state.batches.sender_ends();
            pool.txgs.request_close();
            return Ok(None);
        }
        let gathering = match state.ready.pop_front() {
            Some(ready) => ready,
            None if !state.gathering.records.is_empty() => std::mem::take(&mut state.gathering),
            None => {
                if left_out(Rule::SenderEndsAtOnce) {
                    // Several steps long: only one schedule in a thousand hits a gap of one step.
                    for _ in 0..8 {
                        drop(state);
                        state = self.state.lock();
                    }
                }
                state.batches.sender_ends();
                return Ok(None);
            }
        };
        let header = BatchHeader {
            pool_guid: pool.guid(),
            place: state.ring.place(position),
            chain: state.chain,
            session: state.session,
            sequence: state.next_sequence,
            previous: state.previous,
            mark: state.mark,
            records: gathering.records,
        };
        let (bytes, sum) = header.encode()?;
        let mut pages = pages_of(&bytes);
        pages.extend(gathering.pages);
        let sequence = header.sequence;
        let live =
            LiveBatch { sequence, position, previous: state.previous, max_txg: gathering.max_txg };
        state.live.push_back(live);
        let waiting = Waiting { durable: false, position, outcome: gathering.outcome };
        state.waiting.insert(sequence, waiting);
        state.flying.insert(sequence, header.place);
        state.next = Position { offset: position.offset + pages.len() as u64, ..position };
        self.sealed_bytes.fetch_add(pages.len() as u64 * 4096, Ordering::Relaxed);
        state.next_sequence += 1;
        state.previous = sum;
        state.mark_sealed = state.mark;
        let early = gathering.early;
        Ok(Some(Sealed { sequence, place: header.place, pages, early }))
    }

    /// A batch's write has ended. If the batch is durable by itself, the contiguous prefix of
    /// durable batches is acknowledged. Returns whether another sender should start.
    fn finished(&self, sequence: u64, durable: bool) -> bool {
        let mut state = self.state.lock();
        state.flying.remove(&sequence);
        if let Some(batch) = state.waiting.get_mut(&sequence).filter(|_| durable) {
            batch.durable = true;
            if left_out(Rule::ContiguousPrefix) {
                batch.outcome.set(Ok(()));
            }
        }
        let acknowledged = state.durable_prefix();
        let more = if state.change.is_some() {
            state.go_on()
        } else {
            let full = state.ready.len();
            state.batches.batch_came_back(full)
        };
        drop(state);
        acknowledged.into_iter().for_each(|outcome| outcome.set(Ok(())));
        more
    }

    fn arm_idle_timer(&self) -> bool {
        let mut state = self.state.lock();
        // The empty batch that carries the mark is itself durable, and needs no further one.
        let only_empty = state.mark == state.mark_sealed + 1
            && state.live.back().is_some_and(|batch| batch.max_txg.0 == 0);
        let mark_waits = state.mark_waits() && !only_empty;
        state.batches.arms_timer(mark_waits)
    }
}
