//! Labels on a disk: reading them, writing configs and uberblocks.
//!
//! An uberblock goes to the same ring slot of all four labels. A config goes to all four in two
//! pairs, L0 with L2 and L1 with L3, with a flush after each pair. Each pair has one label at
//! either end of the leaf. So a power cut leaves one pair whole.

use std::sync::Arc;

use aquifer_blockio::buf::{bytes_of, pages_of};
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{Disk, DiskError, Page};
use aquifer_ondisk::config::{Label, PoolConfig};
use aquifer_ondisk::layout::{
    CONFIG_OFFSET, CONFIG_SECTORS, LABELS, RING_OFFSET, RING_SLOTS, label_sector,
};
use aquifer_ondisk::resilver_mark::ResilverMark;
use aquifer_ondisk::uberblock::Uberblock;
use aquifer_ondisk::{FormatError, Guid, Txg};
use futures_util::future::join_all;

use crate::leaf::Leaf;

/// The content of one disk's labels.
#[derive(Debug, Clone)]
pub struct DiskLabels {
    /// The newest readable config.
    pub label: Label,
    /// Every valid uberblock of this leaf, newest first, duplicates left out. None, if the newest
    /// entry is a mark: they do not describe what the leaf holds.
    pub uberblocks: Vec<Uberblock>,
    /// The newest entry of the ring, if that is a mark: the leaf is being resilvered.
    pub mark: Option<ResilverMark>,
    /// How many of the four labels have a damaged config.
    pub damaged: u8,
    /// Of what was written up to this txg the leaf holds all, by its uberblocks: the lesser txg of
    /// the newest one at either end. A disk that was copied while it was in use has the beginning
    /// of an earlier moment than the end.
    pub kept: Txg,
}

/// Why a disk's labels could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// No label of a pool.
    #[error("no pool label on this disk")]
    NoLabel,
    /// Labels are there, all damaged.
    #[error("all labels of this disk are damaged: {0}")]
    Damaged(FormatError),
    /// From a newer version.
    #[error("the pool on this disk was written by newer software: {0}")]
    Newer(FormatError),
    /// The disk cannot be read.
    #[error("the disk cannot be read: {0}")]
    Disk(#[from] DiskError),
}

/// Reads and checks the labels of a disk.
pub async fn read_labels(disk: &Arc<dyn Disk>) -> Result<DiskLabels, LabelError> {
    let sectors = disk.sectors();
    let read = |index| disk.read(label_sector(index, sectors) + CONFIG_OFFSET, label_sectors());
    labels_in(&join_all((0..LABELS).map(read)).await)
}

impl DiskLabels {
    /// The sequence of the newest entry of its ring, uberblock or mark; 0, if there is none.
    pub fn newest_sequence(&self) -> u64 {
        let uberblock = self.uberblocks.first().map_or(0, |uberblock| uberblock.sequence);
        uberblock.max(self.mark.map_or(0, |mark| mark.sequence))
    }

    /// Whether they are those of this leaf of this pool.
    pub fn are_of(&self, pool: Guid, leaf: Guid) -> bool {
        (self.label.config.pool_guid, self.label.leaf_guid) == (pool, leaf)
    }
}

/// Reads and checks the labels of a leaf. A leaf that is not in use and hangs is left.
pub async fn read_labels_of(leaf: &Arc<Leaf>) -> Result<DiskLabels, LabelError> {
    let sectors = leaf.disk().ok_or(DiskError::Gone)?.sectors();
    let read = |index| leaf.read(label_sector(index, sectors) + CONFIG_OFFSET, label_sectors());
    labels_in(&join_all((0..LABELS).map(read)).await)
}

fn label_sectors() -> usize {
    usize::try_from(RING_OFFSET + RING_SLOTS - CONFIG_OFFSET).unwrap_or(0)
}

/// Finds what is in the areas of labels, in order.
fn labels_in(areas: &[Result<Vec<Page>, DiskError>]) -> Result<DiskLabels, LabelError> {
    let (mut best, mut error, mut failed, mut damaged): (Option<Label>, _, _, _) =
        (None, None, None, 0);
    for (index, area) in (0u8..).zip(areas) {
        match area.as_ref().map(|pages| read_config(pages, index)) {
            Ok(Ok(label)) => {
                let newer =
                    |best: &Label| label.config.config_sequence > best.config.config_sequence;
                if best.as_ref().is_none_or(newer) {
                    best = Some(label);
                }
            }
            Ok(Err(problem)) => {
                damaged += 1;
                // "Newer" outranks "damaged", which outranks "not there".
                let rank = |problem: &FormatError| match problem {
                    FormatError::NewerVersion { .. } => 2,
                    FormatError::BadMagic(_) => 0,
                    _ => 1,
                };
                if error.as_ref().is_none_or(|old| rank(&problem) > rank(old)) {
                    error = Some(problem);
                }
            }
            Err(problem) => {
                damaged += 1;
                failed = Some(problem.clone());
            }
        }
    }
    let Some(label) = best else {
        return Err(match (error, failed) {
            (Some(newer @ FormatError::NewerVersion { .. }), _) => LabelError::Newer(newer),
            (Some(FormatError::BadMagic(_)), None) => LabelError::NoLabel,
            (_, Some(failed)) => LabelError::Disk(failed),
            (Some(problem), None) => LabelError::Damaged(problem),
            (None, None) => LabelError::NoLabel,
        });
    };
    let (pool, leaf) = (label.config.pool_guid, label.leaf_guid);
    let mut marks: Vec<ResilverMark> = Vec::new();
    let mut ends: Vec<Vec<Uberblock>> = Vec::new();
    for end in areas.chunks(2) {
        let rings = || end.iter().flatten().map(|pages| ring_of(pages));
        marks.extend(rings().flat_map(|slots| marks_in(slots, pool, leaf)));
        ends.push(rings().flat_map(|slots| ring(slots, pool, leaf)).collect());
    }
    let kept = kept(&ends);
    let mut uberblocks: Vec<Uberblock> = ends.into_iter().flatten().collect();
    uberblocks.sort_by_key(|uberblock| std::cmp::Reverse(uberblock.sequence));
    uberblocks.dedup_by_key(|uberblock| uberblock.sequence);
    let newest = uberblocks.first().map_or(0, |uberblock| uberblock.sequence);
    let mark = marks.into_iter().max_by_key(|mark| mark.sequence);
    let mark = mark.filter(|mark| mark.sequence > newest);
    if mark.is_some() && !left_out(Rule::MarkHasNoVote) {
        uberblocks.clear();
    }
    Ok(DiskLabels { label, uberblocks, mark, damaged, kept })
}

/// See [`DiskLabels::kept`]. An end without uberblocks says nothing: the disk has become larger, or
/// the end cannot be read.
fn kept(ends: &[Vec<Uberblock>]) -> Txg {
    let newest = |end: &Vec<Uberblock>| {
        end.iter().max_by_key(|uberblock| uberblock.sequence).map(|uberblock| uberblock.txg)
    };
    ends.iter().filter_map(newest).min().unwrap_or_default()
}

/// The ring in the area of a label.
fn ring_of(pages: &[Page]) -> &[Page] {
    let skip = usize::try_from(RING_OFFSET - CONFIG_OFFSET).unwrap_or(0);
    pages.get(skip..).unwrap_or_default()
}

fn marks_in(pages: &[Page], pool: Guid, leaf: Guid) -> impl Iterator<Item = ResilverMark> {
    (0..).zip(pages).filter_map(move |(slot, page)| {
        let mark = ResilverMark::decode(page.as_slice()).ok()?;
        let own =
            mark.pool_guid == pool && mark.leaf_guid == leaf && mark.sequence % RING_SLOTS == slot;
        own.then_some(mark)
    })
}

fn read_config(pages: &[Page], index: u8) -> Result<Label, FormatError> {
    let count = usize::try_from(CONFIG_SECTORS).unwrap_or(0);
    let label = Label::decode(&bytes_of(pages.get(..count).unwrap_or_default()))?;
    if label.index != index {
        return Err(FormatError::invalid("label config: place", label.index));
    }
    Ok(label)
}

fn ring(pages: &[Page], pool: Guid, leaf: Guid) -> impl Iterator<Item = Uberblock> {
    (0..).zip(pages).filter_map(move |(slot, page)| {
        let uberblock = Uberblock::decode(page.as_slice()).ok()?;
        let own = uberblock.pool_guid == pool
            && uberblock.leaf_guid == leaf
            && uberblock.sequence % RING_SLOTS == slot;
        own.then_some(uberblock)
    })
}

/// The newest uberblock of this pool in the first ring of a leaf, whichever host wrote it. The leaf
/// is left if it does not answer for so long.
pub async fn newest_uberblock(
    leaf: &Arc<Leaf>,
    pool: Guid,
    longest_ms: Option<u64>,
) -> Result<Option<Uberblock>, DiskError> {
    let sectors = leaf.disk().ok_or(DiskError::Gone)?.sectors();
    let count = usize::try_from(RING_SLOTS).unwrap_or(0);
    let sector = label_sector(0, sectors) + RING_OFFSET;
    let pages = match longest_ms {
        Some(longest_ms) => leaf.read_within(sector, count, longest_ms).await?,
        None => leaf.read(sector, count).await?,
    };
    Ok(ring(&pages, pool, leaf.guid).max_by_key(|uberblock| uberblock.sequence))
}

/// Writes the config to all four labels of a leaf, durable when it returns. The one place that
/// does: whatever the writer knew when it began, a leaf keeps the newest config that it was given.
/// Returns whether this one was written: `false`, if the leaf was given a newer one.
pub async fn write_config(leaf: &Arc<Leaf>, config: &PoolConfig) -> Result<bool, DiskError> {
    let sectors = leaf.disk().ok_or(DiskError::Gone)?.sectors();
    let mut given = leaf.config_given.lock().await;
    if config.config_sequence < *given && !left_out(Rule::NewerConfigStays) {
        return Ok(false);
    }
    *given = config.config_sequence;
    for pair in [[0u8, 2], [1, 3]] {
        for index in pair {
            let label = Label { leaf_guid: leaf.guid, index, config: config.clone() };
            let bytes = label.encode().map_err(|_| DiskError::Gone)?;
            let sector = label_sector(index.into(), sectors) + CONFIG_OFFSET;
            leaf.write(sector, pages_of(&bytes)).await?;
        }
        leaf.flush().await?;
    }
    Ok(true)
}

/// Writes an uberblock to all four labels of a leaf and flushes it. Everything that the uberblock
/// points at must be durable before.
pub async fn write_uberblock(leaf: &Arc<Leaf>, uberblock: &Uberblock) -> Result<(), DiskError> {
    let sectors = leaf.disk().ok_or(DiskError::Gone)?.sectors();
    let slot = uberblock.sequence % RING_SLOTS;
    let writes = (0u8..4).map(|index| async move {
        let bytes = uberblock.encode_for(leaf.guid, index).map_err(|_| DiskError::Gone)?;
        let sector = label_sector(index.into(), sectors) + RING_OFFSET + slot;
        leaf.write(sector, pages_of(&bytes)).await
    });
    for result in join_all(writes).await {
        result?;
    }
    leaf.flush().await
}

/// Writes the mark of a leaf that is about to be resilvered to all four labels, durable when it
/// returns.
pub async fn write_mark(leaf: &Arc<Leaf>, mark: &ResilverMark) -> Result<(), DiskError> {
    let sectors = leaf.disk().ok_or(DiskError::Gone)?.sectors();
    let slot = mark.sequence % RING_SLOTS;
    for label in 0..4 {
        let bytes = ResilverMark { label, ..*mark }.encode().map_err(|_| DiskError::Gone)?;
        let sector = label_sector(label.into(), sectors) + RING_OFFSET + slot;
        leaf.write(sector, pages_of(&bytes)).await?;
    }
    leaf.flush().await
}

/// Blanks all labels, so that the disk belongs to no pool.
pub async fn erase_labels(disk: &Arc<dyn Disk>) -> Result<(), DiskError> {
    let blank = Page::zeroed();
    let count = label_sectors();
    for index in 0..LABELS {
        let sector = label_sector(index, disk.sectors()) + CONFIG_OFFSET;
        disk.write(sector, vec![blank.clone(); count]).await?;
    }
    disk.flush().await
}
