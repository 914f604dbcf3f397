//! Step 1 of an import: uberblocks vote.

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::{PoolConfig, VdevClass};
use aquifer_ondisk::uberblock::Uberblock;

use crate::error::ImportError;
use crate::import::FoundLeaf;

pub(crate) struct Vote {
    pub config: PoolConfig,
    /// The leaves that it names have no vote.
    pub uberblock: Uberblock,
}

/// Each leaf's newest uberblock votes, except for leaves that another's newest one names outdated.
pub(crate) fn vote(found: &[FoundLeaf]) -> Result<Vote, ImportError> {
    let newest = |leaf: &FoundLeaf| leaf.labels.uberblocks.first().cloned();
    let all: Vec<(Guid, Uberblock)> = found
        .iter()
        .filter_map(|leaf| Some((leaf.labels.label.leaf_guid, newest(leaf)?)))
        .collect();
    let names = Uberblock::names;
    // Whether a leaf wrote uberblocks after it fell behind, as this one tells it.
    let went_on = |(leaf, own): &(Guid, Uberblock), by: &Uberblock| {
        let named = by.outdated.iter().find(|outdated| outdated.leaf == *leaf);
        named.is_some_and(|outdated| own.sequence > outdated.since)
    };
    // Only disks that hold blocks can have been in use apart. Two sides of a log may name each
    // other when each was taken into use again while the other was away.
    let data: Vec<Guid> = found
        .iter()
        .map(|leaf| &leaf.labels.label)
        .filter(|label| label.config.class_of(label.leaf_guid) == Some(VdevClass::Data))
        .map(|label| label.leaf_guid)
        .collect();
    let blocks = || all.iter().filter(|(guid, _)| data.contains(guid));
    for one in blocks() {
        for other in blocks() {
            // One that was resilvered since is still named by one that left the pool before.
            if one.0 < other.0 && went_on(one, &other.1) && went_on(other, &one.1) {
                return Err(ImportError::SplitBrain(one.0, other.0));
            }
        }
    }
    // An older uberblock has no say about a disk of the log with a newer one. The disk came back
    // into use since then, and the disk with the older uberblock left the pool before that.
    let back_since = |leaf: Guid, by: &Uberblock| {
        let own = all.iter().filter(|(guid, _)| *guid == leaf);
        own.map(|(_, uberblock)| uberblock.sequence).max() > Some(by.sequence)
    };
    let has_vote = |leaf: Guid| {
        left_out(Rule::OutdatedNoVote)
            || !all.iter().any(|(by, uberblock)| {
                *by != leaf && names(uberblock, leaf) && !back_since(leaf, uberblock)
            })
    };
    let voters = all.iter().filter(|(guid, _)| has_vote(*guid));
    let (_, uberblock) =
        voters.max_by_key(|(_, uberblock)| uberblock.sequence).ok_or(ImportError::NoUberblock)?;
    // A disk that an interrupted act only labelled has no uberblock and no vote.
    let voting = found.iter().filter(|leaf| !leaf.labels.uberblocks.is_empty());
    let labels = voting.map(|leaf| &leaf.labels.label);
    let configs = labels.filter(|label| has_vote(label.leaf_guid)).map(|label| &label.config);
    let config = configs.max_by_key(|config| config.config_sequence);
    let config = config.ok_or(ImportError::NoUberblock)?.clone();
    let unknown: Vec<&str> =
        config.features_read.iter().chain(&config.features_write).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(ImportError::UnknownFeatures(unknown.join(", ")));
    }
    let mut uberblock = uberblock.clone();
    if left_out(Rule::OutdatedNoVote) {
        uberblock.outdated.clear();
    }
    Ok(Vote { config, uberblock })
}
