//! Step 1 of an import: uberblocks vote.

use std::collections::HashSet;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::{PoolConfig, VdevClass, is_known_feature};
use aquifer_ondisk::uberblock::Uberblock;

use crate::error::ImportError;
use crate::import::FoundLeaf;
use crate::import::behind::{self, is_behind};

pub(crate) struct Vote {
    pub config: PoolConfig,
    /// The leaves that it names have no vote.
    pub uberblock: Uberblock,
    /// Leaves that it does not name, and that hold an older state.
    pub behind: HashSet<Guid>,
}

/// Refuses disks that were in use apart from each other.
///
/// A leaf has *gone on* if it has uberblocks that are newer than another one knew when it named it
/// outdated. It was resilvered since, and the other one is of the same past: its last uberblock
/// names the other, with all that the other has; or it does not name it, and has it in its config
/// (a cut between the uberblocks of both). Else there are two pasts. So there are if neither has
/// ever heard of the other: a leaf that left the pool stays named until it is wiped.
///
/// The number since which an import names a leaf is one that this leaf may have: an uberblock that
/// was cut off before the namer got it, and never counted. No other is of that number: who names a
/// leaf passes over it.
///
/// A leaf that its own newest uberblock names has not gone on: it was being resilvered, and has
/// that past only as far as others brought it. They may have taken in leaves since that it never
/// heard of.
///
/// A leaf that is put in as a new one is named since 0: none of the uberblocks counts that it has
/// then. A spare may still have those of the last time that it stood in, until it gets its labels.
/// So all is known of it up to the uberblock that names it.
///
/// Only disks that hold blocks can have been in use apart. Two sides of a log may name each other
/// when each was taken into use again while the other was away.
fn check_split(found: &[FoundLeaf]) -> Result<(), ImportError> {
    let of_data = found.iter().filter(|leaf| {
        let label = &leaf.labels.label;
        label.config.class_of(label.leaf_guid) == Some(VdevClass::Data)
    });
    let all: Vec<(&FoundLeaf, Witness<'_>)> = of_data
        .filter_map(|leaf| {
            let labels = &leaf.labels;
            let witness =
                (labels.label.leaf_guid, labels.uberblocks.first()?, &labels.label.config);
            Some((leaf, witness))
        })
        .collect();
    for (leaf, ours) in &all {
        for (other, theirs) in all.iter().filter(|(_, theirs)| theirs.0 != ours.0) {
            if is_of_another_past(*ours, *theirs) {
                return Err(ImportError::SplitBrain(described(leaf), described(other)));
            }
        }
    }
    Ok(())
}

/// A disk by its path, the name that its label has, and what it holds.
pub(super) fn described(leaf: &FoundLeaf) -> String {
    let (label, path) = (&leaf.labels.label, &leaf.disk.path);
    let own = label.config.disks().find(|own| own.guid == label.leaf_guid);
    let name = own.map(|own| &own.path).filter(|name| *name != path);
    let name = name.map(|name| format!(", known as {name}")).unwrap_or_default();
    let state = behind::state_of(leaf).map(|state| format!("{state}")).unwrap_or_default();
    format!("{path} ({state}{name})")
}

/// A leaf, its newest uberblock, and its config.
type Witness<'a> = (Guid, &'a Uberblock, &'a PoolConfig);

/// Whether one leaf has gone on without the other, and does not know its past; or neither has ever
/// heard of the other. See [`check_split`].
fn is_of_another_past(
    (one, behind, own): Witness<'_>,
    (other, newer, config): Witness<'_>,
) -> bool {
    let since = |by: &Uberblock, leaf: Guid| {
        let named = by.outdated.iter().find(|outdated| outdated.leaf == leaf)?;
        let is_new = named.since == 0 && !left_out(Rule::NewLeavesHaveNoPast);
        Some(if is_new { by.sequence } else { named.since })
    };
    let is_brought = newer.names(other) && !left_out(Rule::BroughtIsNoPast);
    let went_on = since(behind, other).is_some_and(|since| newer.sequence > since) && !is_brought;
    let knows = match since(newer, one) {
        Some(since) => behind.sequence <= since,
        None => left_out(Rule::SplitIsRefused) || config.class_of(one).is_some(),
    };
    // Each came to the pool after the other was gone, and does not know that.
    let strangers = since(behind, other).is_none()
        && since(newer, one).is_none()
        && config.class_of(one).is_none()
        && own.class_of(other).is_none();
    went_on && !knows || strangers && !left_out(Rule::SplitIsRefused)
}

/// Each leaf's newest uberblock votes, except for leaves that another's newest one names outdated.
/// `old_config`: the labels may hold an older config than it names.
pub(crate) fn vote(found: &[FoundLeaf], old_config: bool) -> Result<Vote, ImportError> {
    let newest = |leaf: &FoundLeaf| leaf.labels.uberblocks.first().cloned();
    let all: Vec<(Guid, Uberblock)> = found
        .iter()
        .filter_map(|leaf| Some((leaf.labels.label.leaf_guid, newest(leaf)?)))
        .collect();
    let names = Uberblock::names;
    check_split(found)?;
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
    let mut config = config.ok_or(ImportError::NoUberblock)?.clone();
    let named = uberblock.config_sequence;
    if config.config_sequence < named && !left_out(Rule::ConfigAsOfItsUberblock) {
        if !old_config {
            return Err(ImportError::OldConfig { config: config.config_sequence, named });
        }
        // The labels get it once more, as the one that the uberblock names.
        config.config_sequence = named;
    }
    let features = config.features_read.iter().chain(&config.features_write).map(String::as_str);
    let unknown: Vec<&str> = features.filter(|feature| !is_known_feature(feature)).collect();
    if !unknown.is_empty() {
        return Err(ImportError::UnknownFeatures(unknown.join(", ")));
    }
    let mut uberblock = uberblock.clone();
    if left_out(Rule::OutdatedNoVote) {
        uberblock.outdated.clear();
    }
    let behind = found.iter().filter(|leaf| is_behind(leaf, &uberblock, &config));
    let behind = behind.map(|leaf| leaf.labels.label.leaf_guid).collect();
    Ok(Vote { config, uberblock, behind })
}
