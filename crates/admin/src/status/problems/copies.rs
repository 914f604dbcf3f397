//! Copies that are not what the properties `replicate` and `pull` want.

use aquifer_api::codes;
use aquifer_api::{CopyInfo, PoolStatus, Problem, ReplicationInfo, ReplicationState};

use super::warning;
use super::words::typed;

/// Copies that are too far behind: one problem for each replication.
pub(super) fn behind(pool: &PoolStatus) -> Vec<Problem> {
    pool.replications.iter().filter_map(of_one).collect()
}

fn of_one(of: &ReplicationInfo) -> Option<Problem> {
    let limit_s = of.every_s?.saturating_mul(PERIODS).saturating_add(GRACE_S);
    let has_failed = of.state == ReplicationState::Failed;
    let is_late = |copy: &&CopyInfo| match copy.behind_s {
        Some(behind_s) => behind_s > limit_s,
        // A first copy takes as long as it takes.
        None => has_failed,
    };
    let late: Vec<&CopyInfo> = of.copies.iter().filter(is_late).collect();
    let first = late.first()?;
    let more = match late.len() {
        1 => String::new(),
        many => format!(" and {} more", many - 1),
    };
    let what = match first.behind_s {
        Some(behind_s) => format!("is {behind_s} s behind, and is to be {limit_s} at most"),
        None => "is not there".to_string(),
    };
    let why = match &of.error {
        Some(error) => format!(": {}", error.replace('\n', "; ")),
        None => String::new(),
    };
    let (dataset, target) = (typed(&of.dataset), typed(&of.target));
    let (now, end) = match of.source() {
        None => (format!("{dataset} {target}"), format!("replicate=off {dataset}")),
        Some(_) => (format!("--pull {dataset} {target}"), format!("pull=off {target}")),
    };
    Some(warning(
        codes::REPLICATION_BEHIND,
        format!("The copy of {}{more} at {} {what}{why}.", of.named(first), of.target),
        format!(
            "`aquifer replicate` shows how it stands, `aquifer replicate {now}` tries now. \
             `aquifer set {end}` ends it."
        ),
    ))
}

/// A run that takes as long as the time between two is no failure.
const PERIODS: u64 = 3;
/// Runs that fail are tried again after a minute.
const GRACE_S: u64 = 120;
