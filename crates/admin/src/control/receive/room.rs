//! The memory of parts of streams: from the moment a body is awaited until it was taken in.
//!
//! Invariant: parts hold no more than [`Room`] has, and no more than the memory of the process is
//! charged for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aquifer_api::ApiError;
use aquifer_api::send::PART_BYTES_MAX;
use aquifer_pool::{Memory, Share};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The part of the memory that parts may take.
const OF_MEMORY: u64 = 16;
/// One part of each stream goes in always.
const BYTES_MIN: u64 = (super::STREAMS_MAX * PART_BYTES_MAX) as u64;
/// A permit is of so many bytes.
const UNIT: u64 = 4096;
/// Room comes when a part before was taken in. A client waits for its answer no longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Memory for parts.
#[derive(Debug)]
pub(super) struct Room {
    free: Arc<Semaphore>,
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    share: Share,
    bytes: AtomicU64,
}

/// Memory of one part.
#[derive(Debug)]
pub(super) struct Lease {
    held: Arc<Held>,
    bytes: u64,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    /// A part of this memory.
    pub fn new(memory: &Arc<Memory>) -> Room {
        let bytes = (memory.cap_bytes() / OF_MEMORY).max(BYTES_MIN);
        let permits = usize::try_from(bytes / UNIT).unwrap_or(usize::MAX);
        let held = Held { share: memory.share(), bytes: AtomicU64::new(0) };
        let free = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Room { free, held: Arc::new(held) }
    }

    /// Memory for a part of so many bytes, perhaps after a wait.
    ///
    /// # Errors
    /// There is none for a long time.
    pub async fn lease(&self, bytes: usize) -> Result<Lease, ApiError> {
        let bytes = (bytes.min(PART_BYTES_MAX) as u64).next_multiple_of(UNIT);
        let permits = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        let permit = timeout(PATIENCE, self.free.clone().acquire_many_owned(permits)).await;
        let Ok(Ok(permit)) = permit else {
            return Err(ApiError::conflict(
                "the memory for streams that come is taken: the disks do not keep up with the \
                 streams that come now. Send again later",
            ));
        };
        let now = self.held.bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.held.share.grow_to(now);
        Ok(Lease { held: self.held.clone(), bytes, _permit: permit })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.held.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.held.share.settle(|| self.held.bytes.load(Ordering::SeqCst));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn parts_hold_no_more_than_there_is_and_give_it_back() {
        let memory = Memory::new(64 << 20);
        let room = Room::new(&memory);
        let mut leases = Vec::new();
        for _ in 0..super::super::STREAMS_MAX {
            leases.push(room.lease(PART_BYTES_MAX).await.unwrap());
        }
        assert!(memory.charged_bytes() >= BYTES_MIN);
        // Nothing is left: the next one waits until one is over.
        assert_eq!(room.free.available_permits(), 0);
        let (waits, ()) = tokio::join!(room.lease(PART_BYTES_MAX), async { drop(leases.pop()) });
        leases.push(waits.unwrap());
        drop(leases);
        assert!(memory.charged_bytes() < BYTES_MIN / 4, "{}", memory.charged_bytes());
    }
}
