//! What is wrong with a pool, and what to type: sentences for people, from its status alone.
//!
//! Each problem is one sentence, and one line of what to do. The worst comes first. A pool without
//! a problem is healthy: monitoring goes by that.

use std::collections::BTreeSet;
use std::path::Path;

use aquifer_api::{
    DamagedFile, Health, LeafState, LeafStatus, PoolStatus, ResilverInfo, ScanState, VdevClass,
    VdevStatus,
};

#[cfg(test)]
mod tests;

/// One problem of a pool.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// What is wrong.
    status: String,
    /// What to do, if something can be done.
    action: Option<String>,
}

impl Problem {
    fn new(status: impl Into<String>, action: impl Into<String>) -> Problem {
        Problem { status: status.into(), action: Some(action.into()) }
    }
}

/// The status with what is wrong, and what to do.
pub(super) fn told(mut pool: PoolStatus) -> PoolStatus {
    let problems = problems(&pool);
    let joined = |lines: Vec<String>| (!lines.is_empty()).then(|| lines.join("\n"));
    pool.action = joined(problems.iter().filter_map(|problem| problem.action.clone()).collect());
    pool.status = joined(problems.into_iter().map(|problem| problem.status).collect());
    pool
}

/// All problems of a pool, the worst first.
fn problems(pool: &PoolStatus) -> Vec<Problem> {
    let mut all = match pool.summary.health {
        Health::Suspended => vec![suspended(pool)],
        Health::Unavail if pool.vdevs.is_empty() => vec![unavailable(pool)],
        Health::Importing => {
            vec![Problem { status: "The pool is being imported.".into(), action: None }]
        }
        _ => {
            let mut all = disks(pool);
            all.extend(logs(pool));
            all.extend(damaged(pool));
            all
        }
    };
    all.extend(dropped(pool));
    all.extend(closed(pool));
    all.extend(met_errors(pool));
    all
}

fn suspended(pool: &PoolStatus) -> Problem {
    let name = &pool.summary.name;
    let reason = pool.summary.reason.as_deref().unwrap_or("it cannot go on");
    Problem::new(
        format!(
            "The pool is suspended, and changes nothing, so that nothing acknowledged is lost: \
             {reason}."
        ),
        format!(
            "Attach disks that are missing: the pool then comes back by itself. To look for them \
             at once, type `aquifer pool clear {name}`. `aquifer pool export --force {name}` takes \
             it out of service."
        ),
    )
}

fn unavailable(pool: &PoolStatus) -> Problem {
    let name = &pool.summary.name;
    Problem::new(
        pool.summary.reason.clone().unwrap_or_else(|| "The pool is not in service.".into()),
        format!(
            "Attach what is missing: the pool then comes by itself. To look for it at once, type \
             `aquifer pool clear {name}`. `aquifer pool export {name}` takes it off the list."
        ),
    )
}

/// Disks that hold data and are not up to date: one problem for each reason.
fn disks(pool: &PoolStatus) -> Vec<Problem> {
    let each = [Away::Missing, Away::Outdated, Away::Offline, Away::Resilvering];
    let problem = |away| {
        let leaves = of_class(pool, VdevClass::Data).flat_map(|vdev| &vdev.leaves);
        let found = leaves.filter(|leaf| why_away(pool, leaf) == Some(away));
        let disks: Vec<&str> = found.map(|leaf| leaf.path.as_str()).collect();
        (!disks.is_empty()).then(|| disks_away(&pool.summary.name, &disks, away))
    };
    each.into_iter().filter_map(problem).collect()
}

fn why_away(pool: &PoolStatus, leaf: &LeafStatus) -> Option<Away> {
    // One that is about to be resilvered is not yet shown so.
    let is_tried = |scan: &ResilverInfo| scan.state == ScanState::Running && scan.disk == leaf.path;
    match leaf.state {
        LeafState::Online => None,
        LeafState::Missing => Some(Away::Missing),
        LeafState::Offline => Some(Away::Offline),
        LeafState::Resilvering => Some(Away::Resilvering),
        LeafState::Outdated if pool.scan.as_ref().is_some_and(is_tried) => Some(Away::Resilvering),
        LeafState::Failed | LeafState::Outdated => Some(Away::Outdated),
    }
}

/// Why a disk that holds data is not up to date.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Away {
    Missing,
    Outdated,
    Offline,
    Resilvering,
}

fn disks_away(pool: &str, disks: &[&str], away: Away) -> Problem {
    let (online, replace) = commands(pool, disks);
    let (what, action) = match away {
        Away::Missing => (
            format!("{} missing", be(disks, "is", "are")),
            format!(
                "Attach what is missing, then type {online}. To put a new disk in its place, type \
                 {replace}."
            ),
        ),
        Away::Outdated => (
            format!(
                "{} tried again by itself",
                be(disks, "missed writes and is", "missed writes and are")
            ),
            format!(
                "Check disk and cable. To try at once, type {online}. To put a new disk in its \
                 place, type {replace}."
            ),
        ),
        Away::Offline => (
            format!("{} taken offline by the administrator", be(disks, "was", "were")),
            format!("To use it again, type {online}."),
        ),
        Away::Resilvering => (
            format!("{} being resilvered", be(disks, "is", "are")),
            format!("Keep the other disks in. `aquifer pool wait {pool}` returns when it is done."),
        ),
    };
    Problem::new(format!("{what}; the pool runs on the other disks."), action)
}

/// Log devices that are not in use.
fn logs(pool: &PoolStatus) -> Vec<Problem> {
    let is_elsewhere = of_class(pool, VdevClass::Log).any(|log| log.health != Health::Unavail);
    let lost = if pool.dropped_log.is_some() { "" } else { ", and nothing is lost" };
    let name = &pool.summary.name;
    let problem = |log: &VdevStatus| {
        let away = log.leaves.iter().filter(|leaf| leaf.state != LeafState::Online);
        let disks: Vec<&str> = away.map(|leaf| leaf.path.as_str()).collect();
        let (online, replace) = commands(name, &disks);
        let where_it_is = match (log.health, is_elsewhere) {
            (Health::Unavail, false) => "the log is on the data disks",
            (Health::Unavail, true) => "the log is on the other one",
            _ => "the log runs on the other side of the mirror",
        };
        let (what, when) = match log.leaves.iter().any(|leaf| leaf.state == LeafState::Offline) {
            true => (
                be(&disks, "was", "were") + " taken offline by the administrator",
                "To use it again",
            ),
            false => (be(&disks, "is", "are") + " not in use", "When it is back"),
        };
        let status = format!("Log device {what}; {where_it_is}{lost}.");
        let mut action =
            format!("{when}, type {online}. To put a new one in its place, type {replace}.");
        if log.health == Health::Unavail {
            let vdev = typed(&log.name);
            action.push_str(&format!(" To do without, type `aquifer pool remove {name} {vdev}`."));
        }
        Problem::new(status, action)
    };
    let away = of_class(pool, VdevClass::Log).filter(|log| log.health != Health::Online);
    away.map(problem).collect()
}

/// Files with losses.
fn damaged(pool: &PoolStatus) -> Option<Problem> {
    let (files, command) = match &pool.damaged[..] {
        [] => return None,
        [DamagedFile { dataset, file, .. }] => (
            "1 file is damaged and gives".to_string(),
            format!("{} {}", typed(dataset), typed(file)),
        ),
        many => (format!("{} files are damaged and give", many.len()), "DATASET FILE".to_string()),
    };
    Some(Problem::new(
        format!("{files} I/O errors: no disk has a good copy of some bytes."),
        format!(
            "Restore or remove what `errors` names. To take a file as it is on disk, type \
             `aquifer clear {command}`."
        ),
    ))
}

/// Changes that an import has dropped.
fn dropped(pool: &PoolStatus) -> Option<Problem> {
    pool.dropped_log.as_ref()?;
    let name = &pool.summary.name;
    Some(Problem::new(
        "An import dropped changes that were acknowledged, see `lost`.",
        format!(
            "Check the guests there as after a power cut. Then type `aquifer pool clear {name}`."
        ),
    ))
}

/// Metaslabs that are not used.
fn closed(pool: &PoolStatus) -> Option<Problem> {
    let (name, places) = (&pool.summary.name, places(pool));
    let what = match pool.closed_metaslabs {
        0 => return None,
        1 => "1 metaslab is closed: its bitmap is damaged, and its free space".to_string(),
        many => format!("{many} metaslabs are closed: bitmaps are damaged, and their free space"),
    };
    Some(Problem::new(
        format!("{what} is not used."),
        format!(
            "`aquifer pool export {name}` and `aquifer inspect{places} {name}` say how far the \
             damage goes."
        ),
    ))
}

/// Errors of disks that are in use.
fn met_errors(pool: &PoolStatus) -> Option<Problem> {
    let leaves = pool.vdevs.iter().flat_map(|vdev| &vdev.leaves);
    let erred = leaves.filter(|leaf| {
        let errors = leaf.read_errors + leaf.write_errors + leaf.checksum_errors;
        leaf.state == LeafState::Online && errors > 0
    });
    let erred: Vec<&LeafStatus> = erred.collect();
    let disks: Vec<&str> = erred.iter().map(|leaf| leaf.path.as_str()).collect();
    if disks.is_empty() {
        return None;
    }
    let repaired = match erred.iter().map(|leaf| leaf.repaired).sum::<u64>() {
        0 => String::new(),
        1 => "; 1 bad copy was rewritten from a good one".to_string(),
        many => format!("; {many} bad copies were rewritten from good ones"),
    };
    let (_, replace) = commands(&pool.summary.name, &disks);
    Some(Problem::new(
        format!(
            "{} errors since the import or the last clear{repaired}.",
            be(&disks, "had", "had")
        ),
        format!(
            "Check disk and cable, and keep a backup. If the numbers rise, put another disk in \
             its place: {replace}."
        ),
    ))
}

fn of_class(pool: &PoolStatus, class: VdevClass) -> impl Iterator<Item = &VdevStatus> {
    pool.vdevs.iter().filter(move |vdev| vdev.class == class)
}

/// The disks, with the verb for one or for several.
fn be(disks: &[&str], one: &str, several: &str) -> String {
    let verb = if disks.len() == 1 { one } else { several };
    format!("{} {verb}", disks.join(", "))
}

/// The commands that bring a disk back, and that replace it: of the one, or of any of several.
fn commands(pool: &str, disks: &[&str]) -> (String, String) {
    let disk = match disks {
        [disk] => typed(disk),
        _ => "DISK".to_string(),
    };
    (
        format!("`aquifer pool online {pool} {disk}`"),
        format!("`aquifer pool replace {pool} {disk} NEW`"),
    )
}

/// Where a search must look beside the usual places, as options: image files are found only so.
fn places(pool: &PoolStatus) -> String {
    let leaves = pool.vdevs.iter().flat_map(|vdev| &vdev.leaves);
    let paths = leaves.map(|leaf| Path::new(&leaf.path)).filter(|path| !path.starts_with("/dev"));
    let places: BTreeSet<&Path> = paths.filter_map(Path::parent).collect();
    places.iter().map(|place| format!(" -d {}", typed(&place.to_string_lossy()))).collect()
}

/// A word as a shell takes it.
fn typed(word: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+=:@%,".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
