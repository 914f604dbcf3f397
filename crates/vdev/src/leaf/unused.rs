//! Sectors of a leaf in which nothing lives: discarded, or written over.
//!
//! What comes with such a request (`kept`) is dropped once the disk has answered, however late:
//! until then nobody else may use these sectors.

use std::sync::Arc;

use aquifer_blockio::{DiskError, Page};
use aquifer_sync::atomic::{AtomicU64, Ordering};

use super::work::Longest;
use super::{Act, Io, Leaf, bytes_of};

/// Discards since import.
#[derive(Debug, Default)]
pub struct Discarded {
    /// Discards that were carried out.
    pub count: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Discards that failed.
    pub errors: AtomicU64,
}

/// How long a discard is waited for.
const PATIENCE_MS: u64 = 10_000;

impl Leaf {
    /// Tells the disk that the content of sectors is no longer needed. A discard that fails or does
    /// not end is no failure of the leaf: nothing is lost by it.
    ///
    /// # Errors
    /// The disk's own; it has not answered for 10 s.
    pub async fn discard<K: Send + 'static>(
        self: &Arc<Self>,
        sector: u64,
        count: u64,
        kept: K,
    ) -> Result<(), DiskError> {
        let leaf = self.clone();
        let io: Io<()> = Box::pin(async move {
            let disk = leaf.disk.as_ref().ok_or(DiskError::Gone)?;
            let done = leaf.answered(disk.discard(sector, count)).await;
            drop(kept);
            done
        });
        let done = self.wait_for(io, Longest::Ms(PATIENCE_MS)).await;
        let Discarded { count: discards, bytes, errors } = &self.discarded;
        match &done {
            Ok(()) => {
                discards.fetch_add(1, Ordering::Relaxed);
                bytes.fetch_add(count * bytes_of(1), Ordering::Relaxed);
            }
            Err(DiskError::Late { .. }) => {}
            Err(_) => {
                errors.fetch_add(1, Ordering::Relaxed);
            }
        }
        done
    }

    /// Whether discards have an effect, as far as the disk has shown.
    pub fn can_discard(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.can_discard())
    }

    /// Writes over sectors that hold nothing. A failure fails the leaf, as that of any write.
    ///
    /// # Errors
    /// The disk's own.
    pub async fn write_over<K: Send + 'static>(
        self: &Arc<Self>,
        sector: u64,
        pages: Vec<Page>,
        kept: K,
    ) -> Result<(), DiskError> {
        let act = Act::Write(sector, pages);
        let (kind, bytes, io) = (act.kind(), act.bytes(), self.begin(act));
        let io: Io<()> = Box::pin(async move {
            let done = io.await;
            drop(kept);
            done
        });
        self.alone(kind, bytes, io).await
    }
}
