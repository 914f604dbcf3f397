//! Sealing a batch, sending it, and acknowledging what is durable.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::buf::pages_of;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Place;
use aquifer_ondisk::log_batch::BatchHeader;
use futures_util::future::{join, join_all};

use crate::error::PoolError;
use crate::intent_log::{EarlyWrite, Gathering, IntentLog, LiveBatch, Position, Waiting};
use crate::limits::{LOG_BATCHES_IN_FLIGHT_MAX, LOG_IDLE_MS};
use crate::pool::Pool;

/// A batch with its place in the chain.
struct Sealed {
    sequence: u64,
    place: Place,
    pages: Vec<aquifer_blockio::Page>,
    early: Vec<EarlyWrite>,
}

/// Sends batches until none is left to send. `in_flight` already counts this.
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
            if let Err(error) = self.send(sealed).await {
                self.suspend(error);
                return;
            }
            if self.log.finished(sequence) {
                spawn(&self);
            }
        }
        if self.log.arm_idle_timer() {
            let pool = self.clone();
            self.world().spawn("log idle", Box::pin(async move { pool.idle_timer().await }));
        }
    }

    async fn send(&self, sealed: Sealed) -> Result<(), PoolError> {
        // Alone, a batch is written so that it is durable by itself: a flush of the whole device
        // costs a thread of the kernel's and waits for writes that nobody here waits for.
        if sealed.early.is_empty() && !left_out(Rule::FlushBeforeAck) {
            let vdev = self.vdev(sealed.place)?;
            vdev.write_durable(sealed.place.sector(), sealed.pages).await?;
            return self.name_outdated().await;
        }
        let mut vdevs = vec![sealed.place.vdev()];
        vdevs.extend(sealed.early.iter().map(|early| early.run.place.vdev()));
        vdevs.sort_unstable();
        vdevs.dedup();
        let write = self.vdev(sealed.place)?.write(sealed.place.sector(), sealed.pages);
        let early = join_all(sealed.early.iter().map(EarlyWrite::written));
        let (written, early) = join(write, early).await;
        written?;
        early.into_iter().collect::<Result<(), PoolError>>()?;
        if !left_out(Rule::FlushBeforeAck) {
            let flushes = vdevs.iter().map(|vdev| async move {
                self.vdev(Place::new(*vdev, 0))?.flush().await.map_err(PoolError::from)
            });
            join_all(flushes).await.into_iter().collect::<Result<(), PoolError>>()?;
        }
        // A side that failed on the way could come up alone as whole: name it before any answer.
        self.name_outdated().await
    }

    /// A log going idle writes one empty batch: its header carries the mark that proves the last
    /// real one durable.
    async fn idle_timer(self: Arc<Pool>) {
        loop {
            let before = self.log.state.lock().activity;
            self.world().sleep(Duration::from_millis(LOG_IDLE_MS)).await;
            let mut state = self.log.state.lock();
            if state.failure.is_some() || state.mark_sealed >= state.mark {
                state.idle_timer = false;
                return;
            }
            if state.activity == before && state.in_flight == 0 {
                let room = state.room_bytes();
                state.idle_timer = false;
                // Never at the expense of records: they need the space more than the mark.
                if room > 4096 * 512 {
                    state.in_flight += 1;
                    state.ready.push_back(Gathering::default());
                    drop(state);
                    spawn(&self);
                }
                return;
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
        let gathering = match state.ready.pop_front() {
            Some(ready) => ready,
            None if !state.gathering.records.is_empty() => std::mem::take(&mut state.gathering),
            None => {
                state.in_flight -= 1;
                return Ok(None);
            }
        };
        let position = state.ring.place_for_next(state.next);
        let entering = position.segment != state.next.segment;
        let reuse = left_out(Rule::LogReuseBehindRoot);
        if entering && position.segment == state.tail().segment && !reuse {
            return Err(PoolError::Contradiction("the intent log met its own head".into()));
        }
        let header = BatchHeader {
            pool_guid: pool.config().pool_guid,
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
        state.next = Position { offset: position.offset + pages.len() as u64, ..position };
        state.next_sequence += 1;
        state.previous = sum;
        state.mark_sealed = state.mark;
        let early = gathering.early;
        Ok(Some(Sealed { sequence, place: header.place, pages, early }))
    }

    /// A batch is durable by itself: acknowledges the contiguous prefix. Returns whether another
    /// sender should start.
    fn finished(&self, sequence: u64) -> bool {
        let mut state = self.state.lock();
        if let Some(batch) = state.waiting.get_mut(&sequence) {
            batch.durable = true;
            if left_out(Rule::ContiguousPrefix) {
                batch.outcome.set(Ok(()));
            }
        }
        let mut acknowledged = Vec::new();
        while let Some(first) = state.waiting.first_entry() {
            if !first.get().durable {
                break;
            }
            let (sequence, batch) = first.remove_entry();
            state.mark = sequence;
            acknowledged.push(batch.outcome);
        }
        let more = !state.ready.is_empty() && state.in_flight < LOG_BATCHES_IN_FLIGHT_MAX;
        if more {
            state.in_flight += 1;
        }
        drop(state);
        acknowledged.into_iter().for_each(|outcome| outcome.set(Ok(())));
        more
    }

    fn arm_idle_timer(&self) -> bool {
        let mut state = self.state.lock();
        let arm = !state.idle_timer && state.mark_sealed < state.mark && state.failure.is_none();
        // The empty batch that carries the mark is durable itself, and needs no further one.
        let only_empty = state.mark == state.mark_sealed + 1
            && state.live.back().is_some_and(|batch| batch.max_txg.0 == 0);
        state.idle_timer |= arm && !only_empty;
        arm && !only_empty
    }
}
