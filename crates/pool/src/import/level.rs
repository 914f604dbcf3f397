//! Step 3 of an import: what it read is made durable, and the same on all sides.
//!
//! After `kill -9` what was read may still lie in a drive's cache only, or on one side of a mirror
//! only. Acting on it first and losing it then would overwrite live blocks.

use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_blockio::buf::bytes_of;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Txg;
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::log_batch::BatchHeader;
use aquifer_vdev::Vdev;
use futures_util::future::join_all;

use crate::error::ImportError;
use crate::intent_log::Ring;
use crate::intent_log::read::{Chain, FoundBatch, extent_matches};

pub(crate) async fn level(
    vdevs: &[Arc<Vdev>],
    ring: &Ring,
    chain: &Chain,
    floor: Txg,
) -> Result<(), ImportError> {
    if left_out(Rule::ImportFlush) {
        return Ok(());
    }
    flush(vdevs).await?;
    for batch in chain.batches.iter().filter(|batch| batch.header.sequence > chain.mark) {
        let place = ring.place(batch.position);
        let verify = |pages: &[Page]| batch_matches(batch, pages);
        level_run(vdevs, place.vdev(), place.sector(), batch.sectors(), &verify).await?;
        if left_out(Rule::LevelEarlyTail) {
            continue;
        }
        let records = batch.header.records.iter().filter(|record| record.txg > floor);
        for extent in records.flat_map(|record| &record.extents) {
            level_extent(vdevs, extent).await?;
        }
    }
    flush(vdevs).await
}

async fn level_extent(vdevs: &[Arc<Vdev>], extent: &Extent) -> Result<(), ImportError> {
    let verify = |pages: &[Page]| extent_matches(extent, pages);
    let count = usize::try_from(extent.stored_sectors()).unwrap_or(0);
    level_run(vdevs, extent.place.vdev(), extent.place.sector(), count, &verify).await
}

/// Writes a run to the sides on which it differs, from one on which it verifies; never over a good
/// copy.
async fn level_run(
    vdevs: &[Arc<Vdev>],
    vdev: u16,
    sector: u64,
    count: usize,
    verify: &(dyn Fn(&[Page]) -> bool + Sync),
) -> Result<(), ImportError> {
    let Some(vdev) = vdevs.get(usize::from(vdev)) else {
        return Ok(());
    };
    let mut good = None;
    let mut bad = Vec::new();
    for leaf in vdev.online() {
        match leaf.read(sector, count).await {
            Ok(pages) if verify(&pages) => good = Some(pages),
            _ => bad.push(leaf),
        }
    }
    if let Some(good) = good {
        for leaf in bad {
            // A side that cannot be written fails, and the uberblock that follows names it.
            let _ = leaf.write(sector, good.clone()).await;
        }
    }
    vdev.check()?;
    Ok(())
}

fn batch_matches(batch: &FoundBatch, pages: &[Page]) -> bool {
    let Some((head, payload)) = pages.split_at_checked(batch.header_sectors) else {
        return false;
    };
    let same = BatchHeader::decode(&bytes_of(head)).is_ok_and(|(header, _)| header == batch.header);
    same && payload.iter().zip(batch.sums()).all(|(page, sum)| checksum64(page.as_slice()) == sum)
}

async fn flush(vdevs: &[Arc<Vdev>]) -> Result<(), ImportError> {
    // Log vdevs that are not there were done without; one that fails now fails the reading.
    let there = vdevs.iter().filter(|vdev| vdev.check().is_ok());
    for result in join_all(there.map(|vdev| vdev.flush())).await {
        result?;
    }
    Ok(())
}
