//! Early writes: data that goes to its final place at once. These are large stable writes, and runs
//! that would only fill memory. An early write is an allocation of its record's txg, and that txg's
//! commit waits for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Txg;
use aquifer_ondisk::config::VdevClass;
use aquifer_ondisk::types::Run;
use aquifer_sync::{Mutex, Notify};
use aquifer_vdev::{IoCount, IoCounts};

use crate::error::PoolError;
use crate::flow::{Devices, Times};
use crate::intent_log::{IntentLog, Outcome, Ticket};
use crate::pool::Pool;
use crate::txg::TxHold;

/// An early write in progress.
#[derive(Debug, Clone)]
pub struct EarlyWrite {
    pub(crate) run: Run,
    pub(crate) written: Ticket,
}

impl EarlyWrite {
    /// Its place.
    pub fn run(&self) -> Run {
        self.run
    }

    /// Waits until it is written, which does not mean durable.
    pub async fn written(&self) -> Result<(), PoolError> {
        self.written.durable().await
    }
}

#[derive(Debug, Default)]
pub(crate) struct EarlyWrites {
    flying: Mutex<BTreeMap<Txg, usize>>,
    landed: Notify,
}

impl EarlyWrites {
    pub fn fail(&self) {
        self.landed.notify_one();
    }
}

impl Pool {
    /// Whether large data should go to its final place at once, instead of into the log.
    pub fn early_pays(&self) -> bool {
        self.flow.goes_early()
    }

    /// Gives the flow the devices' times; called once a txg.
    pub(crate) fn measure_devices(&self) {
        if self.flow.log_is_at_home() {
            return;
        }
        let mut devices = Devices::default();
        let Devices { writes, flushes, logged } = &mut devices;
        for vdev in &self.tree().vdevs {
            let IoCounts { writes: w, flushes: f, durable_writes: d, .. } = vdev.io.look();
            match vdev.class {
                VdevClass::Data => {
                    add(writes, &w);
                    add(flushes, &f);
                }
                VdevClass::Log => add(logged, &d),
                VdevClass::Hole => {}
            }
        }
        self.flow.devices_took(devices);
    }

    /// Takes space in the held txg and starts writing `pages` there at once. The run may be shorter
    /// than requested: its sectors hold the first pages.
    pub fn write_early(&self, hold: &TxHold, pages: &[Page]) -> Result<EarlyWrite, PoolError> {
        let run = self.space.lock().allocate(hold.txg(), 1, pages.len() as u64)?;
        let count = usize::try_from(run.sectors).unwrap_or(usize::MAX);
        let pages: Vec<Page> = pages.iter().take(count).cloned().collect();
        let outcome = Arc::new(Outcome::default());
        let early = EarlyWrite { run, written: Ticket(outcome.clone()) };
        let (pool, txg) = (hold.pool().clone(), hold.txg());
        *pool.log.early.flying.lock().entry(txg).or_default() += 1;
        let task = async move {
            let result = match pool.vdev(run.place) {
                Ok(vdev) => vdev.write(run.place.sector(), pages).await.map_err(PoolError::from),
                Err(error) => Err(error),
            };
            if let Err(error) = &result {
                pool.suspend(error.clone());
            }
            outcome.set(result);
            let mut flying = pool.log.early.flying.lock();
            if let Some(count) = flying.get_mut(&txg) {
                *count -= 1;
            }
            drop(flying);
            pool.log.early.landed.notify_one();
        };
        self.world.spawn("early write", Box::pin(task));
        Ok(early)
    }
}

fn add(times: &mut Times, count: &IoCount) {
    times.count += count.latency.count();
    times.ns += count.latency.total_ns();
    times.bytes += count.bytes;
}

impl IntentLog {
    /// Waits until no early write of `txg` is in progress.
    pub(crate) async fn wait_early_writes(&self, txg: Txg) {
        loop {
            let landed = self.early.landed.notified();
            let none = self.early.flying.lock().get(&txg).is_none_or(|count| *count == 0);
            if none || left_out(Rule::CommitWaitsForEarlyWrites) {
                break;
            }
            landed.await;
        }
        self.early.flying.lock().remove(&txg);
    }
}
