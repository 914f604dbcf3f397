//! The rule by which a pool is imported without an order.
//!
//! A pool that was suspended needs, of each vdev, a disk that held everything then: its list entry
//! says which did. Such a disk still has the newest uberblock that surely reached it, or a later
//! one of this host. Without it, it is an older copy, or was in service elsewhere. Any other pool
//! needs what an import needs.

use std::path::PathBuf;

use aquifer_api::{ApiError, guid_text};
use aquifer_ondisk::Guid;
use aquifer_pool::Pool;
use aquifer_pool::import::FoundLeaf;

use super::Control;
use crate::cache::{CachedPool, WholeDisk, WholeNote};
use crate::devices::{Search, all_paths, is_complete, is_importable, older_copies};

#[cfg(test)]
mod tests;

/// Whether the disks that were found are enough.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Enough {
    /// All that are wanted are there.
    All,
    /// The pool can do without what is missing.
    Some,
    /// Too few are there; the text says what the pool waits for.
    No(String),
}

impl Control {
    /// The disks to import of those that were found, and the pool as it is listed meanwhile.
    pub(super) fn prepare(
        &self,
        mut leaves: Vec<FoundLeaf>,
        cached: &CachedPool,
    ) -> Result<(Vec<FoundLeaf>, CachedPool), ApiError> {
        let Some(whole) = &cached.whole else { return Ok((leaves, cached.clone())) };
        if let Enough::No(waits) = enough(&leaves, cached, self.host.id) {
            return Err(ApiError::conflict(waits));
        }
        leaves.retain(|leaf| misfit(leaf, whole, self.host.id).is_none());
        let whole = Some(without_others(whole, &leaves));
        Ok((leaves, CachedPool { whole, ..cached.clone() }))
    }
}

/// The disks of a suspended pool that hold everything.
pub(super) fn whole_note(pool: &Pool) -> WholeNote {
    let whole = pool.whole();
    let leaves = pool.leaves();
    let disk = |guid: &Guid| {
        let leaf = leaves.iter().find(|leaf| leaf.guid == *guid)?;
        Some(WholeDisk { guid: guid_text(guid.0), path: PathBuf::from(&leaf.path) })
    };
    let of_vdev = |guids: &Vec<Guid>| guids.iter().filter_map(disk).collect();
    WholeNote { vdevs: whole.vdevs.iter().map(of_vdev).collect(), sequence: whole.sequence }
}

/// The note, when an import does without all others: they may fall behind.
fn without_others(whole: &WholeNote, taken: &[FoundLeaf]) -> WholeNote {
    let is_taken =
        |disk: &&WholeDisk| taken.iter().any(|leaf| disk.is(leaf.labels.label.leaf_guid));
    let of_vdev = |disks: &Vec<WholeDisk>| disks.iter().filter(is_taken).cloned().collect();
    WholeNote { vdevs: whole.vdevs.iter().map(of_vdev).collect(), ..*whole }
}

/// Why a disk that held everything does not do so any more, if so.
fn misfit(leaf: &FoundLeaf, whole: &WholeNote, host: u64) -> Option<&'static str> {
    if !whole.vdevs.iter().flatten().any(|disk| disk.is(leaf.labels.label.leaf_guid)) {
        return None;
    }
    let Some(newest) = leaf.labels.uberblocks.first() else {
        return Some("has no valid uberblock");
    };
    let by_other = newest.host.as_ref().is_some_and(|by| by.id != host);
    if by_other || newest.clean {
        Some("was used by another host since")
    } else if newest.sequence < whole.sequence {
        Some("holds an older state, as a copy made before does")
    } else {
        None
    }
}

/// Whether an import of these disks may begin without an order, and what is missing if not.
pub(super) fn enough(leaves: &[FoundLeaf], cached: &CachedPool, host: u64) -> Enough {
    let Some(whole) = &cached.whole else {
        return match (is_importable(leaves), is_complete(leaves)) {
            (true, true) => Enough::All,
            (true, false) => Enough::Some,
            (false, _) => Enough::No(missing(leaves, cached)),
        };
    };
    // A side that failed a moment before the others is not named yet: it may come with them.
    let (mut is_all, mut lacking) = (is_complete(leaves), Vec::new());
    for vdev in whole.vdevs.iter().filter(|vdev| !vdev.is_empty()) {
        let (mut any, mut why) = (false, Vec::new());
        for disk in vdev {
            let found = leaves.iter().find(|leaf| disk.is(leaf.labels.label.leaf_guid));
            match found.map(|leaf| (leaf, misfit(leaf, whole, host))) {
                Some((_, None)) => any = true,
                Some((leaf, Some(misfit))) => why.push(format!("{} {misfit}", leaf.disk.path)),
                None => why.push(format!("{} is missing", disk.path.display())),
            }
        }
        is_all &= why.is_empty();
        if !any {
            lacking.push(why.join(", "));
        }
    }
    match (lacking.is_empty(), is_all) {
        (true, true) => Enough::All,
        (true, false) => Enough::Some,
        (false, _) => Enough::No(lacking.join("; ")),
    }
}

/// Describes what keeps a pool that was never in service from being imported.
fn missing(leaves: &[FoundLeaf], cached: &CachedPool) -> String {
    let found = Search::paths(leaves);
    let expected = if leaves.is_empty() { cached.disks.clone() } else { all_paths(leaves) };
    let text = |paths: &mut dyn Iterator<Item = &PathBuf>| {
        paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    };
    match leaves.is_empty() {
        true => format!("none of its disks was found: {}", text(&mut expected.iter())),
        false => {
            let older = older_copies(leaves);
            let lacks = |path: &&PathBuf| !found.contains(path) || older.contains(path);
            let missing = &mut expected.iter().filter(lacks);
            format!("disks are missing or outdated: {}", text(missing))
        }
    }
}
