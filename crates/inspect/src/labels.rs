//! Labels as they are on the disks: all four of each, and every slot of their rings.
//!
//! Nothing points at a label. So each is first checked by itself (seal, own place), then against
//! the other three, then against those of other disks.

use std::sync::Arc;

use aquifer_blockio::buf::bytes_of;
use aquifer_blockio::{Disk, DiskError, Page};
use aquifer_ondisk::config::{Label, PoolConfig};
use aquifer_ondisk::layout::{
    CONFIG_OFFSET, CONFIG_SECTORS, LABELS, RING_OFFSET, RING_SLOTS, label_sector,
};
use aquifer_ondisk::resilver_mark::ResilverMark;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::uberblock::Uberblock;
use aquifer_ondisk::{FormatError, Guid, Place};
use futures_util::future::join_all;

use crate::finding::{At, Findings, Kind};

/// A disk that holds labels of a pool.
#[derive(Debug)]
pub(crate) struct Member {
    pub disk: Arc<dyn Disk>,
    /// The newest config on it.
    pub label: Label,
    /// Labels whose config can be used.
    pub labels: u8,
    /// Every valid uberblock, newest first, once. None while the leaf is being resilvered: its
    /// uberblocks do not describe it then.
    pub uberblocks: Vec<Uberblock>,
    /// Findings on this disk, to report if it belongs to the inspected pool.
    pub findings: Findings,
}

/// One label's area.
struct Area {
    index: u8,
    /// First sector of the label.
    sector: u64,
    read: Result<Vec<Page>, DiskError>,
}

/// Reads the labels of a disk. For a disk without labels, returns the findings.
pub(crate) async fn read(disk: Arc<dyn Disk>, per_kind_max: u64) -> Result<Member, Findings> {
    let sectors = disk.sectors();
    let count = usize::try_from(RING_OFFSET + RING_SLOTS - CONFIG_OFFSET).unwrap_or(0);
    let reads = (0u8..).zip(0..LABELS).map(|(index, label)| {
        let (disk, sector) = (&disk, label_sector(label, sectors));
        async move {
            let read = disk.read(sector + CONFIG_OFFSET, count).await;
            Area { index, sector, read }
        }
    });
    let areas = join_all(reads).await;
    let mut findings = Findings::new(per_kind_max);
    let configs: Vec<Result<Label, FormatError>> = areas.iter().map(config).collect();
    let in_place = |(area, label): &(&Area, &Label)| area.index == label.index;
    let good = areas.iter().zip(&configs);
    let good = good.filter_map(|(area, config)| Some((area, config.as_ref().ok()?)));
    let good = good.filter(in_place).map(|(_, label)| label);
    // Of several with one sequence the first, as an import takes it.
    let newest = |best: Option<Label>, label: &Label| match best {
        Some(best) if best.config.config_sequence >= label.config.config_sequence => Some(best),
        _ => Some(label.clone()),
    };
    let Some(label) = good.fold(None, newest) else {
        no_label(disk.name(), &areas, &configs, &mut findings);
        return Err(findings);
    };
    let name = disk.name();
    for (area, config) in areas.iter().zip(&configs) {
        judge_config(name, area, config, &label, &mut findings);
    }
    let uberblocks = rings(name, &areas, &label, &mut findings);
    let same =
        |index: u8, config: &Label| config.index == index && config.leaf_guid == label.leaf_guid;
    let labels = (0u8..).zip(&configs);
    let labels = labels
        .filter(|(index, config)| config.as_ref().is_ok_and(|config| same(*index, config)))
        .count();
    Ok(Member { labels: u8::try_from(labels).unwrap_or(0), label, uberblocks, findings, disk })
}

fn config(area: &Area) -> Result<Label, FormatError> {
    let pages = area.read.as_deref().unwrap_or_default();
    let count = usize::try_from(CONFIG_SECTORS).unwrap_or(0);
    Label::decode(&bytes_of(pages.get(..count).unwrap_or_default()))
}

fn no_label(
    name: &str,
    areas: &[Area],
    configs: &[Result<Label, FormatError>],
    findings: &mut Findings,
) {
    for (area, config) in areas.iter().zip(configs) {
        let index = area.index;
        match (&area.read, config) {
            (Err(error), _) => findings.add(Kind::LabelUnreadable, At::disk(name), || {
                format!("{name}: label {index} cannot be read: {error}")
            }),
            (_, Err(error @ FormatError::NewerVersion { .. })) => {
                findings.add(Kind::LabelNewer, At::disk(name), || {
                    format!("{name}: label {index}: {error}")
                });
            }
            (_, Err(FormatError::BadMagic(_))) => {}
            (_, Ok(label)) => findings.add(Kind::LabelMisplaced, At::disk(name), || {
                format!("{name}: in the place of label {index} lies label {}", label.index)
            }),
            (_, Err(error)) => findings.add(Kind::LabelDamaged, At::disk(name), || {
                format!("{name}: label {index} is damaged: {error}")
            }),
        }
    }
    if findings.counts.is_empty() {
        findings.add(Kind::ForeignDisk, At::disk(name), || {
            format!("{name}: there is no label of a pool on this disk")
        });
    }
}

/// Whether two labels have one config. A disk that is offline for a while says so of itself alone,
/// in its own labels, without a sequence for that: some may have it, after a cut, and some not.
pub(crate) fn is_one_config(theirs: &PoolConfig, ours: &PoolConfig, own: Guid) -> bool {
    let told = |config: &PoolConfig| {
        let mut config = config.clone();
        let leaves = config.vdevs.iter_mut().flat_map(|vdev| &mut vdev.leaves);
        leaves.filter(|leaf| leaf.guid == own).for_each(|leaf| leaf.offline = true);
        config
    };
    theirs == ours || told(theirs) == told(ours)
}

fn judge_config(
    name: &str,
    area: &Area,
    config: &Result<Label, FormatError>,
    best: &Label,
    findings: &mut Findings,
) {
    let index = area.index;
    let run = Run::new(Place::new(0, area.sector + CONFIG_OFFSET), CONFIG_SECTORS);
    let at = At::run(run).on_disk(name);
    let label = match (&area.read, config) {
        (Err(error), _) => {
            return findings.add(Kind::LabelUnreadable, at, || {
                format!("{name}: label {index} cannot be read: {error}")
            });
        }
        (_, Err(error)) => {
            let kind = match error {
                FormatError::NewerVersion { .. } => Kind::LabelNewer,
                _ => Kind::LabelDamaged,
            };
            return findings.add(kind, at, || format!("{name}: label {index}: {error}"));
        }
        (_, Ok(label)) => label,
    };
    let (theirs, ours) = (&label.config, &best.config);
    if label.index != index {
        findings.add(Kind::LabelMisplaced, at, || {
            format!("{name}: in the place of label {index} lies label {}", label.index)
        });
    } else if label.leaf_guid != best.leaf_guid || theirs.pool_guid != ours.pool_guid {
        findings.add(Kind::LabelMisplaced, at, || {
            let (leaf, pool) = (label.leaf_guid.0, theirs.pool_guid.0);
            format!("{name}: label {index} is of leaf {leaf:016x} of pool {pool:016x}")
        });
    } else if theirs.config_sequence < ours.config_sequence {
        findings.add(Kind::ConfigStale, at, || {
            let (old, new) = (theirs.config_sequence, ours.config_sequence);
            format!("{name}: label {index} has config {old}, another one config {new}")
        });
    } else if !is_one_config(theirs, ours, best.leaf_guid) {
        findings.add(Kind::ConfigDisagrees, at, || {
            let sequence = ours.config_sequence;
            format!("{name}: label {index} has another config {sequence} than the first label")
        });
    }
}

/// All valid uberblocks of a disk, newest first. Reports other content of its rings.
fn rings(name: &str, areas: &[Area], best: &Label, findings: &mut Findings) -> Vec<Uberblock> {
    let skip = usize::try_from(RING_OFFSET - CONFIG_OFFSET).unwrap_or(0);
    let mut found: Vec<Uberblock> = Vec::new();
    let (mut torn, mut readable, mut marked) = (0u64, 0u64, 0u64);
    for area in areas {
        let Ok(pages) = &area.read else { continue };
        readable += 1;
        for (slot, page) in (0..RING_SLOTS).zip(pages.iter().skip(skip)) {
            let place = Place::new(0, area.sector + RING_OFFSET + slot);
            let at = || At::place(place, 1).on_disk(name);
            let index = area.index;
            match Uberblock::decode(page.as_slice()) {
                Ok(uberblock) if own(&uberblock, best, index, slot) => found.push(uberblock),
                Ok(uberblock) => findings.add(Kind::UberblockMisplaced, at(), || {
                    misplaced(name, index, slot, &uberblock)
                }),
                Err(error @ FormatError::NewerVersion { .. }) => {
                    findings.add(Kind::LabelNewer, at(), || {
                        format!("{name}: label {index}, ring slot {slot}: {error}")
                    });
                }
                Err(_) if page.is_zero() => {}
                Err(_) => match ResilverMark::decode(page.as_slice()) {
                    Ok(mark) if own_mark(&mark, best, index, slot) => {
                        marked = marked.max(mark.sequence);
                    }
                    _ => torn += 1,
                },
            }
        }
    }
    found.sort_by_key(|uberblock| std::cmp::Reverse(uberblock.sequence));
    let missing = compare_labels(name, &found, readable, findings);
    if torn > 0 || missing > 0 {
        findings.add(Kind::UberblockTorn, At::disk(name), || {
            format!("{name}: {torn} uberblocks are damaged, {missing} are not in every label")
        });
    }
    found.dedup_by_key(|uberblock| uberblock.sequence);
    if found.first().is_none_or(|newest| newest.sequence < marked) {
        found.clear();
    }
    found
}

fn own_mark(mark: &ResilverMark, best: &Label, index: u8, slot: u64) -> bool {
    mark.pool_guid == best.config.pool_guid
        && mark.leaf_guid == best.leaf_guid
        && mark.label == index
        && mark.sequence % RING_SLOTS == slot
}

fn own(uberblock: &Uberblock, best: &Label, index: u8, slot: u64) -> bool {
    uberblock.pool_guid == best.config.pool_guid
        && uberblock.leaf_guid == best.leaf_guid
        && uberblock.label == index
        && uberblock.sequence % RING_SLOTS == slot
}

fn misplaced(name: &str, index: u8, slot: u64, uberblock: &Uberblock) -> String {
    let Guid(leaf) = uberblock.leaf_guid;
    let (label, sequence) = (uberblock.label, uberblock.sequence);
    format!(
        "{name}: in ring slot {slot} of label {index} lies uberblock {sequence} of label {label} \
         of \
         leaf {leaf:016x} of pool {:016x}",
        uberblock.pool_guid.0
    )
}

/// Uberblocks of one sequence must be the same in all labels; counts those not in all of them.
fn compare_labels(name: &str, found: &[Uberblock], readable: u64, findings: &mut Findings) -> u64 {
    let mut missing = 0;
    for group in found.chunk_by(|a, b| a.sequence == b.sequence) {
        if (group.len() as u64) < readable {
            missing += 1;
        }
        let Some(first) = group.first() else { continue };
        let same = |other: &Uberblock| {
            let other = Uberblock { label: first.label, ..other.clone() };
            other == *first
        };
        if !group.iter().all(same) {
            findings.add(Kind::UberblocksDiffer, At::disk(name), || {
                let sequence = first.sequence;
                format!("{name}: uberblock {sequence} is not the same in all labels")
            });
        }
    }
    missing
}
