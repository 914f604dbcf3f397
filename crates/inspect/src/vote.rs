//! Which config and which uberblock count: the newest of those that no other names outdated.

use aquifer_ondisk::Guid;
use aquifer_ondisk::config::{Label, PoolConfig, VdevClass, is_known_feature};
use aquifer_ondisk::uberblock::Uberblock;

use crate::finding::{At, Findings, Kind};
use crate::labels::{Member, is_one_config};

/// The result of the election.
#[derive(Debug)]
pub(crate) struct Vote {
    pub config: PoolConfig,
    pub uberblock: Uberblock,
}

impl Vote {
    /// Whether the newest uberblock names a leaf outdated.
    pub fn is_outdated(&self, leaf: Guid) -> bool {
        names(&self.uberblock, leaf)
    }
}

fn names(by: &Uberblock, leaf: Guid) -> bool {
    by.outdated.iter().any(|outdated| outdated.leaf == leaf)
}

fn newest(member: &Member) -> Option<&Uberblock> {
    member.uberblocks.first()
}

/// Whether `newer` has uberblocks that `behind` did not know when it named it outdated, and does
/// not know that `behind` fell behind in turn. Or neither has ever heard of the other.
fn is_of_another_past(behind: &Member, newer: &Member) -> bool {
    let (Some(old), Some(new)) = (newest(behind), newest(newer)) else { return false };
    let since = |by: &Uberblock, of: &Member| {
        let named = by.outdated.iter().find(|outdated| outdated.leaf == of.label.leaf_guid)?;
        // Of a leaf that is put in as a new one, no uberblock counts that it still has.
        Some(if named.since == 0 { by.sequence } else { named.since })
    };
    let went_on = since(old, newer).is_some_and(|since| new.sequence > since);
    let knows = match since(new, behind) {
        Some(since) => old.sequence <= since,
        None => newer.label.config.class_of(behind.label.leaf_guid).is_some(),
    };
    let has = |of: &Member, leaf: &Member| {
        of.label.config.class_of(leaf.label.leaf_guid).is_some()
            || newest(of).is_some_and(|own| names(own, leaf.label.leaf_guid))
    };
    let strangers = !has(newer, behind) && !has(behind, newer);
    went_on && !knows || strangers
}

/// Elects config and uberblock. `members` are of one pool, each leaf once.
pub(crate) fn elect(members: &[Member], findings: &mut Findings) -> Option<Vote> {
    let holds_blocks = |member: &&Member| {
        let label = &member.label;
        label.config.class_of(label.leaf_guid) == Some(VdevClass::Data)
    };
    for (at, ours) in members.iter().filter(holds_blocks).enumerate() {
        for theirs in members.iter().filter(holds_blocks).skip(at + 1) {
            if is_of_another_past(ours, theirs) || is_of_another_past(theirs, ours) {
                findings.add(Kind::SplitBrain, At::nowhere(), || {
                    let (one, other) = (ours.disk.name(), theirs.disk.name());
                    format!("{one} and {other} were in use apart from each other")
                });
            }
        }
    }
    let votes = |member: &&Member| {
        let leaf = member.label.leaf_guid;
        let others = members.iter().filter(|other| other.label.leaf_guid != leaf);
        // An older uberblock says nothing about a disk that came back into use since.
        let own = newest(member).map(|uberblock| uberblock.sequence);
        let mut claims = others.filter_map(newest).filter(|by| own <= Some(by.sequence));
        !claims.any(|uberblock| names(uberblock, leaf))
    };
    let voters: Vec<&Member> = members.iter().filter(votes).collect();
    let uberblocks = voters.iter().filter_map(|member| newest(member));
    // Of equal ones the last, as `max_by_key` takes it; they must not differ anyway.
    let Some(winner) = uberblocks.max_by_key(|uberblock| uberblock.sequence) else {
        findings.add(Kind::NoUberblock, At::nowhere(), || {
            "no disk with a vote has a valid uberblock".into()
        });
        return None;
    };
    // A disk that only has labels has no uberblock and no vote.
    let labelled = voters.iter().filter(|member| newest(member).is_some());
    // A disk that says of itself alone that it is offline says nothing of the pool.
    let says_so = |label: &Label| {
        let leaves = label.config.vdevs.iter().flat_map(|vdev| &vdev.leaves);
        leaves.filter(|leaf| leaf.guid == label.leaf_guid).any(|leaf| leaf.offline)
    };
    let labels = labelled.map(|member| &member.label);
    let newest = labels.max_by_key(|label| (label.config.config_sequence, !says_so(label)))?;
    let config = &newest.config;
    let vote = Vote { config: config.clone(), uberblock: winner.clone() };
    judge_uberblock(&vote, findings);
    for voter in voters {
        judge_voter(voter, &vote, findings);
    }
    Some(vote)
}

fn judge_uberblock(vote: &Vote, findings: &mut Findings) {
    let (uberblock, config) = (&vote.uberblock, &vote.config);
    let sequence = uberblock.sequence;
    let mut invalid = |why: String| {
        findings
            .add(Kind::UberblockInvalid, At::nowhere(), || format!("uberblock {sequence}: {why}"));
    };
    let txgs: Vec<u64> = uberblock.roots.iter().flatten().map(|root| root.txg.0).collect();
    if uberblock.roots.first().copied().flatten().map(|root| root.txg) != Some(uberblock.txg) {
        invalid(format!("its txg is {}, its roots are of txgs {txgs:?}", uberblock.txg));
    }
    if !txgs.is_sorted_by(|newer, older| newer > older) {
        invalid(format!("its roots are out of order: txgs {txgs:?}"));
    }
    let (theirs, ours) = (uberblock.config_sequence, config.config_sequence);
    if theirs > ours {
        invalid(format!("it goes with config {theirs}, the newest found is {ours}"));
    }
    let features = config.features_read.iter().chain(&config.features_write);
    for feature in features.filter(|feature| !is_known_feature(feature)) {
        findings.add(Kind::FeatureUnknown, At::nowhere(), || {
            format!("the pool uses feature {feature:?}, which this software does not know")
        });
    }
}

fn judge_voter(voter: &Member, vote: &Vote, findings: &mut Findings) {
    let name = voter.disk.name();
    let winner = &vote.uberblock;
    // Its config may never have been the pool's: an act was cut off after this disk got its labels.
    // The pool has since given that sequence to another config.
    let Some(uberblock) = newest(voter) else {
        return findings.add(Kind::UberblockMissing, At::disk(name), || {
            format!("{name}: has no valid uberblock")
        });
    };
    let config = &voter.label.config;
    if config.config_sequence < vote.config.config_sequence {
        findings.add(Kind::ConfigStale, At::disk(name), || {
            let (old, new) = (config.config_sequence, vote.config.config_sequence);
            format!("{name}: has config {old}, another disk config {new}")
        });
    } else if !is_one_config(config, &vote.config, voter.label.leaf_guid) {
        findings.add(Kind::ConfigDisagrees, At::disk(name), || {
            let sequence = config.config_sequence;
            format!("{name}: its config {sequence} is not that of other disks")
        });
    }
    let (ours, newest) = (uberblock.sequence, winner.sequence);
    if ours < newest {
        findings.add(Kind::LeafBehind, At::disk(name), || {
            format!("{name}: its newest uberblock is {ours}, that of the pool {newest}")
        });
        // The last side of a lost log vdev is not named before the log has left it. The root that
        // records the move need not name it either: the log's batches prove themselves.
        if voter.label.config.class_of(voter.label.leaf_guid) == Some(VdevClass::Log) {
            return;
        }
        // A cut between two disks leaves one of them one root behind, never more.
        let mut known = winner.roots.iter().take(2).flatten();
        let known = known.any(|root| root.txg == uberblock.txg);
        if !known && uberblock.txg < winner.txg {
            findings.add(Kind::LeafLeftBehind, At::disk(name), || {
                let (txg, newest) = (uberblock.txg, winner.txg);
                format!(
                    "{name}: stands at txg {txg}, the pool at {newest}: it missed writes, \
                     and no uberblock names it outdated"
                )
            });
        }
        return;
    }
    let theirs =
        Uberblock { leaf_guid: winner.leaf_guid, label: winner.label, ..uberblock.clone() };
    if theirs != *winner {
        findings.add(Kind::UberblocksDiffer, At::disk(name), || {
            format!("{name}: its uberblock {ours} is not that of other disks")
        });
    }
}
