//! The disks that an import takes into use.
//!
//! Invariant: the import's first uberblock names every leaf that is not in use as outdated.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{Disk, World};
use aquifer_ondisk::config::{LeafConfig, PoolConfig, VdevClass, VdevConfig};
use aquifer_ondisk::layout::leaf_segments;
use aquifer_ondisk::uberblock::{Outdated, Uberblock};
use aquifer_sync::atomic::Ordering;
use aquifer_vdev::{Leaf, Vdev};

use crate::error::ImportError;
use crate::import::vote::Vote;
use crate::import::{FoundLeaf, ImportReport};

/// The vdevs of the config, with their usable disks.
pub(crate) fn assemble_vdevs(
    world: &Arc<dyn World>,
    vote: &Vote,
    found: &[FoundLeaf],
    report: &mut ImportReport,
) -> Result<Vec<Arc<Vdev>>, ImportError> {
    let mut vdevs = Vec::new();
    for (index, config) in (0u16..).zip(&vote.config.vdevs) {
        let leaves = config
            .leaves
            .iter()
            .map(|leaf| Arc::new(take_leaf(world, vote, found, (config, leaf), report)))
            .collect();
        let vdev = Vdev::new(index, config, leaves, world.clone());
        if vdev.class == VdevClass::Data && vdev.check().is_err() {
            let names: Vec<&str> = vdev.leaves.iter().map(|leaf| leaf.path.as_str()).collect();
            let leaves = names.join(", ");
            return Err(ImportError::VdevMissing { vdev: index, leaves });
        }
        vdevs.push(Arc::new(vdev));
    }
    Ok(vdevs)
}

/// The spares of the config that are no leaf of a vdev, present or not.
pub(crate) fn assemble_spares(
    world: &Arc<dyn World>,
    config: &PoolConfig,
    found: &[FoundLeaf],
) -> Vec<Arc<Leaf>> {
    let in_use = |spare: &LeafConfig| config.leaves().any(|(_, leaf)| leaf.guid == spare.guid);
    let free = config.spares.iter().filter(|spare| !in_use(spare));
    free.map(|spare| {
        let (path, disk) = place_of(spare, found);
        Leaf::out_of_use(spare.guid, path, disk, world.clone())
    })
    .collect()
}

/// Where a leaf of the config is, or was last seen, and its disk, if it was found.
pub(crate) fn place_of(leaf: &LeafConfig, found: &[FoundLeaf]) -> (String, Option<Arc<dyn Disk>>) {
    let disk = found.iter().find(|found| found.labels.label.leaf_guid == leaf.guid);
    let path = disk.map_or(&leaf.path, |found| &found.disk.path).clone();
    (path, disk.map(|found| found.disk.disk.clone()))
}

/// A leaf of the config: in use if it is present, has missed no writes, and is as large as its
/// vdev.
fn take_leaf(
    world: &Arc<dyn World>,
    vote: &Vote,
    found: &[FoundLeaf],
    (vdev, leaf): (&VdevConfig, &LeafConfig),
    report: &mut ImportReport,
) -> Leaf {
    let disk = found.iter().find(|found| found.labels.label.leaf_guid == leaf.guid);
    let path = disk.map_or(&leaf.path, |found| &found.disk.path).clone();
    let segments = disk.map(|found| leaf_segments(found.disk.disk.sectors()));
    // The last segment of a leaf holds its end labels.
    let fits = segments.is_some_and(|segments| segments > vdev.segments);
    let is_marked =
        disk.is_some_and(|found| found.labels.mark.is_some()) && !left_out(Rule::MarkHasNoVote);
    let is_outdated = vote.uberblock.names(leaf.guid) || is_marked;
    let unused = match segments {
        Some(_) if leaf.offline => Some("taken offline, not used"),
        Some(_) if is_outdated && vdev.class == VdevClass::Data && fits => {
            Some("outdated, resilvered")
        }
        _ if is_outdated => Some("outdated, not used"),
        None => Some("missing, marked outdated"),
        Some(_) if !fits => Some("has become smaller, marked outdated"),
        Some(_) => None,
    };
    let note = unused.map(|why| format!("{path}: {why}"));
    let newest = disk.and_then(|found| found.labels.uberblocks.first());
    let sequence = newest.map_or(0, |uberblock| uberblock.sequence);
    let disk = disk.map(|found| found.disk.disk.clone());
    let built = Leaf::new(leaf.guid, path, disk, world.clone());
    built.uberblock_sequence.store(sequence, Ordering::Relaxed);
    if unused.is_some() {
        built.set_outdated();
        if leaf.offline {
            built.take_offline();
        } else if !fits {
            built.keep_out();
        }
    }
    report.notes.extend(note);
    built
}

/// Names each leaf that is not in use, whatever the reason. It misses all writes from now on, and
/// the next import must not take it for whole. It may have one uberblock more than the vote knows,
/// which never counted: that number is passed over, so that it is not given out twice. And so is
/// the next one: the other leaf may have that one more, and take ours for one that never counted.
/// And if it is in use elsewhere without these, its sessions must have other numbers than here:
/// returns by how much this one is to be more than the next.
pub(crate) fn name_unused(pool: &str, uberblock: &mut Uberblock, vdevs: &[Arc<Vdev>]) -> u64 {
    if left_out(Rule::UnusedIsNamed) {
        return 0;
    }
    let mut apart = 0;
    let since = uberblock.sequence + 1;
    let known = uberblock.outdated.len();
    let leaves = vdevs.iter().flat_map(|vdev| &vdev.leaves);
    for leaf in leaves.filter(|leaf| !leaf.is_online()) {
        if !uberblock.names(leaf.guid) {
            tracing::warn!(
                class = "disk.missing", pool, leaf = %leaf.path, state = ?leaf.state(),
                "the pool comes up without a disk, which misses what is written from now on"
            );
            uberblock.outdated.push(Outdated { leaf: leaf.guid, since });
            apart += leaf.guid.0 >> 32;
        }
    }
    if uberblock.outdated.len() > known {
        let more = u64::from(!left_out(Rule::NamingPassesOver));
        uberblock.sequence = since + more;
    }
    if left_out(Rule::SessionOfItsOwn) { 0 } else { apart }
}
