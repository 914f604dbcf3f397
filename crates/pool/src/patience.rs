//! Failed reads, which are repeated.
//!
//! A disk that gives an error may still hold the data: the cause may be a cable, a controller that
//! restarts, or a busy device. Only content that is wrong on every copy is damage. So a failed read
//! is repeated after a pause. For a client this goes on as long as the client can reasonably wait.
//! A sync, an import or a replay would otherwise give up acknowledged changes, so they try much
//! longer. If a sync still cannot read, the pool is suspended, and nothing is lost: the log holds
//! the changes, and the next import tries again. A pool is also suspended by the read that finds
//! the last disk of a vdev gone: its clients wait until the disk is back. If the disk never returns
//! the data, an administrator may give an order (`discard_unreadable` of
//! [`ImportOptions`](crate::import::ImportOptions)). The data then counts as damaged until the log
//! is replayed and on disk.

use std::time::Duration;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{DiskError, World};
use aquifer_vdev::ReadError;

use crate::error::PoolError;
use crate::pool::{BoxFuture, Pool};

/// How long a read may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// For a client.
    Short,
    /// For a sync, an import or a replay.
    Long,
}

/// The first pause in milliseconds; each is twice as long as the previous one.
const PAUSE_MS: u64 = 10;
/// Pauses of [`Patience::Short`]: 30 ms in all.
const SHORT_PAUSES: u32 = 2;
/// Pauses of [`Patience::Long`]: 10 s in all. Less than a hypervisor waits.
const LONG_PAUSES: u32 = 10;

/// After this many failures, waits before the next try, or returns false if there were enough.
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

/// Reads, and reads again after a pause while an error may be transient, until there were enough
/// tries.
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
    /// After `failures` reads that failed with `error`: waits before the next one, or returns the
    /// error if there is none.
    pub(crate) fn wait_to_read_again(
        &self,
        error: ReadError,
        failures: u32,
        patience: Patience,
    ) -> BoxFuture<'_, Result<(), PoolError>> {
        // Rare, and large: boxed, so that it is not a part of every read's future.
        Box::pin(self.wait_or_fail(error, failures, patience))
    }

    /// Whether the vdev of an error has a disk left.
    fn vdev_is_there(&self, error: &ReadError) -> bool {
        let (ReadError::Unreadable { vdev, .. } | ReadError::Corrupt { vdev, .. }) = error;
        self.tree().vdevs.get(usize::from(*vdev)).is_some_and(|vdev| vdev.check().is_ok())
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
        if self.is_read_only() {
            // It may lie on a vdev that is missing for good.
            let waits = self.vdev_is_there(&error) && pause(&*self.world, failures, patience).await;
            return if waits { Ok(()) } else { Err(error.into()) };
        }
        let patience = if self.log.is_replaying() { Patience::Long } else { patience };
        if pause(&*self.world, failures, patience).await {
            return Ok(());
        }
        if patience == Patience::Long && self.discards_unreadable() {
            return Err(PoolError::GivenUp(error));
        }
        // A pool without its disks comes back, and the data with it. A read may be the first to
        // find that they are gone. The error is that of one side; another may still answer.
        if let ReadError::Unreadable { vdev, sector, error: DiskError::Gone, .. } = error
            && !self.log.is_replaying()
            && let Some(vdev) = self.tree().vdevs.get(usize::from(vdev)).cloned()
            && let Err(lost) = vdev.check_present(sector).await
        {
            self.suspend(lost.into());
        }
        self.txgs.check()?;
        Err(error.into())
    }
}
