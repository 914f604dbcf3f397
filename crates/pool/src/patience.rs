//! Reads that fail, and are tried again.
//!
//! A disk that gives an error (a cable, a controller that starts over, a device that is busy) may
//! hold what it does not give. Only content that is wrong on every copy is damage. So a read is
//! tried again after a while: for a client as long as it may well wait, for a sync, an import or a
//! replay, which would give up acknowledged changes, much longer. What a sync still cannot read
//! then suspends the pool, and nothing is lost: the log holds the changes, and the next import
//! tries again. If the disk never gives it back, an administrator may order (`discard_unreadable`
//! of [`ImportOptions`](crate::import::ImportOptions)) that it counts as damaged from then on
//! until the log is replayed and on disk.

use std::time::Duration;

use aquifer_blockio::World;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_vdev::ReadError;

use crate::error::PoolError;
use crate::pool::{BoxFuture, Pool};

/// How long somebody may wait for a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// A client.
    Short,
    /// A sync, an import or a replay.
    Long,
}

/// The first pause; each is twice as long as the one before.
const PAUSE_MS: u64 = 10;
/// Pauses of [`Patience::Short`]: 30 ms in all.
const SHORT_PAUSES: u32 = 2;
/// Pauses of [`Patience::Long`]: 10 s in all. Less than a hypervisor waits.
const LONG_PAUSES: u32 = 10;

/// After so many failures: waits before the next try, unless there were enough.
async fn pause(world: &dyn World, failures: u32, patience: Patience) -> bool {
    let pauses = match patience {
        Patience::Short => SHORT_PAUSES,
        Patience::Long => LONG_PAUSES,
    };
    let goes_on = failures <= pauses && !left_out(Rule::UnreadableIsNoDamage);
    if goes_on {
        world.sleep(Duration::from_millis(PAUSE_MS << (failures - 1))).await;
    }
    goes_on
}

/// Reads, and reads again after a pause while an error may pass, until there were enough.
pub(crate) async fn patiently<T, E, R: Future<Output = Result<T, E>>>(
    world: &dyn World,
    patience: Patience,
    may_pass: impl Fn(&E) -> bool,
    mut read: impl FnMut() -> R,
) -> Result<T, E> {
    let mut failures = 0;
    loop {
        let error = match read().await {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        failures += 1;
        if !may_pass(&error) || !pause(world, failures, patience).await {
            return Err(error);
        }
    }
}

impl Pool {
    /// After `failures` reads that failed with `error`: waits before the next, or says that there
    /// is none.
    pub(crate) fn wait_to_read_again(
        &self,
        error: ReadError,
        failures: u32,
        patience: Patience,
    ) -> BoxFuture<'_, Result<(), PoolError>> {
        // Rare, and large: not a part of every read's future.
        Box::pin(self.wait_or_fail(error, failures, patience))
    }

    async fn wait_or_fail(
        &self,
        error: ReadError,
        failures: u32,
        patience: Patience,
    ) -> Result<(), PoolError> {
        let passes = matches!(error, ReadError::Unreadable { .. });
        if !passes {
            return Err(error.into());
        }
        let patience = if self.log.is_replaying() { Patience::Long } else { patience };
        if pause(&*self.world, failures, patience).await {
            return Ok(());
        }
        if patience == Patience::Long && self.discards_unreadable() {
            return Err(PoolError::GivenUp(error));
        }
        Err(error.into())
    }
}
