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

use crate::error::{ImportError, State};
use crate::import::behind::state_of;
use crate::import::vote::{Vote, described};
use crate::import::{FoundLeaf, ImportReport, of_leaf};

/// The vdevs of the config, with their usable disks.
pub(crate) fn assemble_vdevs(
    world: &Arc<dyn World>,
    vote: &Vote,
    found: &[FoundLeaf],
    (is_read_only, report): (bool, &mut ImportReport),
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
            let why = why_unusable(&vdev, config, vote, found);
            if !is_read_only {
                return Err(why);
            }
            let names: Vec<&str> = vdev.leaves.iter().map(|leaf| leaf.path.as_str()).collect();
            let (index, names) = (vdev.index, names.join(", "));
            report.notes.push(format!(
                "vdev {index} has no usable disk ({names}): what lies there alone cannot be read"
            ));
        }
        vdevs.push(Arc::new(if is_read_only { vdev.read_only() } else { vdev }));
    }
    Ok(vdevs)
}

/// Why a vdev has no disk that an import may use.
fn why_unusable(vdev: &Vdev, config: &VdevConfig, vote: &Vote, found: &[FoundLeaf]) -> ImportError {
    let of = |leaf| of_leaf(found, leaf);
    let text = |of: Vec<String>| of.join(", ");
    let behind = vdev.leaves.iter().filter(|leaf| vote.behind.contains(&leaf.guid));
    let behind: Vec<String> = behind.filter_map(|leaf| Some(age(of(leaf.guid)?, vote))).collect();
    if !behind.is_empty() {
        return ImportError::Behind { vdev: vdev.index, disks: text(behind) };
    }
    let is_offline = |leaf: &&LeafConfig| leaf.offline && !vote.uberblock.names(leaf.guid);
    let offline = config.leaves.iter().filter(is_offline);
    let offline: Vec<String> = offline.filter_map(|leaf| Some(described(of(leaf.guid)?))).collect();
    if !offline.is_empty() {
        return ImportError::TakenOffline { vdev: vdev.index, disks: text(offline) };
    }
    let names = vdev.leaves.iter().map(|leaf| leaf.path.clone()).collect();
    ImportError::VdevMissing { vdev: vdev.index, leaves: text(names) }
}

/// A disk that is behind, and by how much.
pub(crate) fn age(leaf: &FoundLeaf, vote: &Vote) -> String {
    let newest = State::of(&vote.uberblock);
    let holds = match state_of(leaf) {
        Some(state) => state.behind(newest),
        None => "no state of the pool".to_string(),
    };
    format!("{} (an older copy: it holds {holds})", leaf.disk.path)
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
    let disk = of_leaf(found, leaf.guid);
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
    let disk = of_leaf(found, leaf.guid);
    let path = disk.map_or(&leaf.path, |found| &found.disk.path).clone();
    let segments = disk.map(|found| leaf_segments(found.disk.disk.sectors()));
    // The last segment of a leaf holds its end labels.
    let fits = segments.is_some_and(|segments| segments > vdev.segments);
    let is_marked =
        disk.is_some_and(|found| found.labels.mark.is_some()) && !left_out(Rule::MarkHasNoVote);
    let is_behind = vote.behind.contains(&leaf.guid);
    let is_outdated = vote.uberblock.names(leaf.guid) || is_marked || is_behind;
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
    let age = disk.filter(|_| is_behind).map(|found| age(found, vote)).unwrap_or_default();
    let of = if is_behind { &age } else { &path };
    let note = unused.map(|why| format!("{of}: {why}"));
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

/// Where only disks of a vdev are there that were taken offline by order, takes them into use: the
/// administrator wants what they hold.
pub(crate) fn bring_online(config: &mut PoolConfig, found: &[FoundLeaf], notes: &mut Vec<String>) {
    let of = |leaf| of_leaf(found, leaf);
    let mut changed = false;
    for vdev in config.vdevs.iter_mut().filter(|vdev| vdev.class == VdevClass::Data) {
        if vdev.leaves.iter().any(|leaf| !leaf.offline && of(leaf.guid).is_some()) {
            continue;
        }
        for leaf in vdev.leaves.iter_mut().filter(|leaf| leaf.offline) {
            let Some(found) = of(leaf.guid) else { continue };
            notes.push(format!("{}: was offline, in use again by order", described(found)));
            (leaf.offline, changed) = (false, true);
        }
    }
    config.config_sequence += u64::from(changed);
}

/// Whether a disk in use has no uberblock of the newest session. A power cut in the last import
/// explains that, and then nothing was logged since. But it may be a copy from before that import,
/// which lacks all that was logged.
pub(crate) fn lacks_session(vote: &Vote, vdevs: &[Arc<Vdev>], found: &[FoundLeaf]) -> bool {
    let in_use = |guid| vdevs.iter().flat_map(|vdev| vdev.online()).any(|leaf| leaf.guid == guid);
    let is_before = |leaf: &&FoundLeaf| {
        let newest = leaf.labels.uberblocks.first();
        newest.is_some_and(|newest| newest.session < vote.uberblock.session)
    };
    let mut before = found.iter().filter(is_before);
    before.any(|leaf| in_use(leaf.labels.label.leaf_guid)) && !left_out(Rule::OldSessionIsLevelled)
}
