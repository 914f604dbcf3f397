//! Step 3 of an import: makes everything that it read durable, and the same on all sides.
//!
//! After `kill -9` such data may still lie only in a drive's cache, or only on one side of a
//! mirror. If the import acted on it first and lost it then, it would overwrite live blocks.

use std::sync::Arc;

use aquifer_blockio::buf::bytes_of;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{Page, World};
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::log_batch::BatchHeader;
use aquifer_ondisk::{Place, Txg};
use aquifer_vdev::{Leaf, Vdev};
use futures_util::future::join_all;

use crate::error::ImportError;
use crate::intent_log::Ring;
use crate::intent_log::read::{Chain, FoundBatch, extent_matches};
use crate::patience::{Patience, patiently};
use crate::sums::are_pages;

/// Batches past the chain's mark are not proven durable on all sides; with `all` none is.
pub(crate) async fn level(
    world: &dyn World,
    vdevs: &[Arc<Vdev>],
    ring: &Ring,
    chain: &Chain,
    (floor, all): (Txg, bool),
) -> Result<(), ImportError> {
    if left_out(Rule::ImportFlush) {
        return Ok(());
    }
    flush(vdevs).await?;
    let proven = if all { 0 } else { chain.mark };
    let tail = unproven(ring, chain, floor, proven);
    for run in &tail {
        run.to_differing_sides(world, vdevs).await?;
    }
    flush(vdevs).await?;
    if tail.is_empty() || left_out(Rule::RewriteTail) {
        return Ok(());
    }
    // Consider a side whose flush failed in a process that died before it could name that side. The
    // side serves data from its cache that it will never make durable, and its next flush succeeds.
    // So only a new write of these bytes is safe. One side is written after the other: at any time
    // the other copy is untouched.
    let sides = vdevs.iter().map(|vdev| vdev.leaves.len()).max().unwrap_or(0);
    for side in 0..sides {
        for run in &tail {
            run.again_to_side(world, vdevs, side).await?;
        }
        flush(vdevs).await?;
    }
    Ok(())
}

/// The data that no mark proves durable: batches past the mark, and their early data.
fn unproven<'a>(ring: &Ring, chain: &'a Chain, floor: Txg, proven: u64) -> Vec<TailRun<'a>> {
    let mut tail = Vec::new();
    for batch in chain.batches.iter().filter(|batch| batch.header.sequence > proven) {
        let place = ring.place(batch.position);
        tail.push(TailRun { place, sectors: batch.sectors(), what: What::Batch(batch) });
        if left_out(Rule::LevelEarlyTail) {
            continue;
        }
        let records = batch.header.records.iter().filter(|record| record.txg > floor);
        tail.extend(records.flat_map(|record| &record.extents).map(|extent| TailRun {
            place: extent.place,
            sectors: usize::try_from(extent.stored_sectors()).unwrap_or(0),
            what: What::Early(extent),
        }));
    }
    tail
}

/// Sectors of the unproven tail.
struct TailRun<'a> {
    place: Place,
    sectors: usize,
    what: What<'a>,
}

enum What<'a> {
    Batch(&'a FoundBatch),
    Early(&'a Extent),
}

impl TailRun<'_> {
    fn verifies(&self, pages: &[Page]) -> bool {
        match self.what {
            What::Batch(batch) => batch_matches(batch, pages),
            What::Early(extent) => extent_matches(extent, pages),
        }
    }

    /// The content of a side, if it is good.
    async fn read(&self, world: &dyn World, leaf: &Arc<Leaf>) -> Option<Vec<Page>> {
        let read = || leaf.read(self.place.sector(), self.sectors);
        let pages = patiently(world, Patience::Short, |_| true, read).await.ok()?;
        self.verifies(&pages).then_some(pages)
    }

    /// Writes the run to the sides that differ, from one on which it verifies; never over a good
    /// copy.
    async fn to_differing_sides(
        &self,
        world: &dyn World,
        vdevs: &[Arc<Vdev>],
    ) -> Result<(), ImportError> {
        let Some(vdev) = vdevs.get(usize::from(self.place.vdev())) else {
            return Ok(());
        };
        let mut good = None;
        let mut bad = Vec::new();
        for leaf in vdev.online() {
            match self.read(world, leaf).await {
                Some(pages) => good = Some(pages),
                None => bad.push(leaf),
            }
        }
        if let Some(good) = good {
            for leaf in bad {
                // A side that cannot be written fails, and the next uberblock names it.
                let _ = leaf.write(self.place.sector(), good.clone()).await;
            }
        }
        vdev.check()?;
        Ok(())
    }

    /// Writes the content of one side, the same bytes, to that side again.
    async fn again_to_side(
        &self,
        world: &dyn World,
        vdevs: &[Arc<Vdev>],
        side: usize,
    ) -> Result<(), ImportError> {
        let Some(vdev) = vdevs.get(usize::from(self.place.vdev())) else {
            return Ok(());
        };
        let leaf = vdev.leaves.get(side).filter(|leaf| leaf.is_online());
        if let Some(leaf) = leaf
            && let Some(pages) = self.read(world, leaf).await
        {
            let _ = leaf.write(self.place.sector(), pages).await;
            vdev.check()?;
        }
        Ok(())
    }
}

fn batch_matches(batch: &FoundBatch, pages: &[Page]) -> bool {
    let Some((head, payload)) = pages.split_at_checked(batch.header_sectors) else {
        return false;
    };
    let same = BatchHeader::decode(&bytes_of(head)).is_ok_and(|(header, _)| header == batch.header);
    same && are_pages(payload, batch.sums())
}

async fn flush(vdevs: &[Arc<Vdev>]) -> Result<(), ImportError> {
    // The import works without missing log vdevs; one that fails now fails the reading.
    let there = vdevs.iter().filter(|vdev| vdev.check().is_ok());
    for result in join_all(there.map(|vdev| vdev.flush())).await {
        result?;
    }
    Ok(())
}
