//! Disks that hold an older state than the pool's, and that nobody names: copies of themselves.
//!
//! Each uberblock says which one counted before it. A leaf that it does not name has that one, or a
//! later one. A leaf without it was put back from a copy, or belongs to a disk that lost writes. It
//! is not believed: it is *behind*, which is as good as outdated. A power cut explains that a leaf
//! lacks the newest uberblock of all, and no more than that.
//!
//! # Limits
//! The uberblock is the only witness. A copy that was made since the last one but one passes, and
//! so does a copy if no disk with a newer uberblock is there.

use std::collections::HashMap;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_meter::time;
use aquifer_ondisk::config::PoolConfig;
use aquifer_ondisk::uberblock::Uberblock;
use aquifer_ondisk::{Guid, Txg};

use super::FoundLeaf;
use crate::error::{ImportError, State};

/// How far a leaf may be behind an uberblock that does not say which one counted before it, as
/// those of earlier releases: an import without a disk passes over two numbers.
const UNTOLD_BEHIND: u64 = 3;

/// Whether a leaf that `newest` does not name, and that has no mark, lacks an uberblock that
/// counted. A leaf without any may be one that was just added: nothing of its vdev is in use then.
pub fn is_behind(leaf: &FoundLeaf, newest: &Uberblock, config: &PoolConfig) -> bool {
    let labels = &leaf.labels;
    let guid = labels.label.leaf_guid;
    if newest.names(guid) || labels.mark.is_some() || left_out(Rule::BehindIsOutdated) {
        return false;
    }
    let Some(own) = labels.uberblocks.first() else {
        let vdev = config.leaves().find(|(_, leaf)| leaf.guid == guid).map(|(vdev, _)| vdev);
        let birth = vdev.and_then(|vdev| config.vdevs.get(vdev)).map_or(Txg(0), |vdev| vdev.birth);
        return birth <= newest.txg;
    };
    let counted = match newest.counted {
        0 => newest.sequence.saturating_sub(UNTOLD_BEHIND),
        counted => counted,
    };
    own.sequence < counted
}

/// Of each leaf the newest disk, and a note on each that is passed over.
///
/// # Errors
/// Two are equally new.
pub(super) fn without_twins(
    found: Vec<FoundLeaf>,
    notes: &mut Vec<String>,
) -> Result<Vec<FoundLeaf>, ImportError> {
    let mut kept: Vec<FoundLeaf> = Vec::new();
    let mut places: HashMap<Guid, usize> = HashMap::new();
    for leaf in found {
        let guid = leaf.labels.label.leaf_guid;
        let Some(twin) = places.get(&guid).and_then(|at| kept.get_mut(*at)) else {
            places.insert(guid, kept.len());
            kept.push(leaf);
            continue;
        };
        let [own, other] = [&leaf, &*twin].map(|leaf| leaf.labels.newest_sequence());
        if own == other && leaf.disk.path != twin.disk.path {
            let [one, other] = [&twin.disk.path, &leaf.disk.path].map(String::clone);
            return Err(ImportError::Twins { one, other });
        }
        let older = match own > other && !left_out(Rule::NewestTwin) {
            true => std::mem::replace(twin, leaf),
            false => leaf,
        };
        let (older, newer) = (&older.disk.path, &twin.disk.path);
        notes.push(format!("{older}: an older copy of {newer}, not used"));
    }
    Ok(kept)
}

/// Which state of the pool a disk holds, by its newest uberblock.
pub(super) fn state_of(leaf: &FoundLeaf) -> Option<State> {
    leaf.labels.uberblocks.first().map(State::of)
}

impl State {
    /// The state that an uberblock makes real.
    pub fn of(uberblock: &Uberblock) -> State {
        State { txg: uberblock.txg, wall_ns: uberblock.wall_ns }
    }

    /// By how many txgs, and for how long, another state is newer, for people.
    pub fn behind(&self, newest: State) -> String {
        let txgs = newest.txg.0.saturating_sub(self.txg.0);
        let seconds = newest.wall_ns.saturating_sub(self.wall_ns) / 1_000_000_000;
        format!("{self}; the pool's newest is {newest}: {txgs} txgs and {seconds} s later")
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "txg {} of {}", self.txg, time::text_s(self.wall_ns / 1_000_000_000))
    }
}
