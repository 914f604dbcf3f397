//! Small writes that a client has outstanding to one file, made together: as one change, with one
//! record.
//!
//! To the client it is as if they had been made one after the other in the same instant; each has
//! its own answer. What keeps one of them from being made keeps all of them from being made
//! together: then whoever asked makes them one by one.

use aquifer_blockio::{Page, SECTOR_BYTES};
use aquifer_pool::Lane;
use aquifer_pool::intent_log::RECORD_PAGES_MAX;

use crate::core::{Files, Target, unchanged};
use crate::error::FsError;
use crate::ops::early::STABLE_PAGES_MIN;
use crate::ops::write::{Data, Piece, Written};
use crate::types::{Around, Credentials, FileHandle, Stability};

/// Most writes that are made together.
pub const TOGETHER_MAX: usize = 32;

/// Most pages of a write that is made together with others. Such small ones never go to their place
/// early, however many they are.
pub const TOGETHER_PAGES_MAX: usize = 4;

const _: () = assert!(TOGETHER_PAGES_MAX < STABLE_PAGES_MIN, "no more than each by itself");
const _: () = assert!(TOGETHER_MAX * TOGETHER_PAGES_MAX <= RECORD_PAGES_MAX, "one record");

/// Writes that were made together, and are not to be answered yet.
pub struct Together {
    /// What is around each, if they become durable.
    pub arounds: Vec<Around>,
    target: Target,
    written: Written,
}

impl Together {
    /// How durable they will be: at least what was asked for.
    pub fn stability(&self) -> Stability {
        self.written.stability
    }
}

impl Files {
    /// Makes up to [`TOGETHER_MAX`] writes, each of up to [`TOGETHER_PAGES_MAX`] whole pages at a
    /// multiple of 4 KiB, as one change. They may be answered once they are
    /// [kept](Files::keep_together). `None` if they cannot be made together, for whatever reason;
    /// then nothing has changed.
    pub async fn write_together(
        &self,
        cred: &Credentials,
        file: FileHandle,
        writes: &[(u64, &[Page])],
        stability: Stability,
    ) -> Option<Together> {
        let fits = |(offset, pages): &(u64, &[Page])| {
            let small = (1..=TOGETHER_PAGES_MAX).contains(&pages.len());
            small && offset.is_multiple_of(SECTOR_BYTES as u64)
        };
        if !(1..=TOGETHER_MAX).contains(&writes.len()) || !writes.iter().all(fits) {
            return None;
        }
        let target = self.target(file).await.ok()?;
        if self.lane(&target) == Lane::Sparse {
            // After a rest the first write waits for nobody, however many there are behind it.
            return None;
        }
        let piece = |&(offset, pages)| Piece { offset, data: Data::Pages(pages) };
        let pieces: Vec<Piece<'_>> = writes.iter().map(piece).collect();
        let mut arounds = vec![Around::default(); pieces.len()];
        let written =
            self.write_pieces(cred, &target, &pieces, stability, &mut arounds).await.ok()?;
        Some(Together { arounds, target, written })
    }

    /// Waits until writes are as durable as [`Together::stability`] says.
    ///
    /// # Errors
    /// What they met on their way to the disks, and what is around each of them then.
    pub async fn keep_together(&self, made: &Together) -> Result<(), (FsError, Around)> {
        let durable = self.durable(&made.written, made.arounds.len()).await;
        durable.map(drop).map_err(|error| (error, unchanged(&made.target)))
    }
}
