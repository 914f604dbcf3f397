//! Problems of a pool, and what to type: sentences for people, from its status alone.
//!
//! Each problem is one sentence, and one line of what to do. The worst comes first. A pool without
//! a problem is healthy: monitoring goes by that.

use std::cmp::Reverse;

use aquifer_api::codes::{self, Code};
use aquifer_api::{
    CacheDiskInfo, CacheDiskState, DamagedFile, DiskInfo, DrillInfo, DrillState, DrillStep, Health,
    LeafState, LeafStatus, PoolStatus, Problem, ResilverInfo, ScanState, Severity, SlowInfo,
    SpareInfo, VdevClass, VdevStatus,
};

mod copies;
#[cfg(test)]
mod tests;
mod words;

use words::{
    be, clear, commands, leaves, ms, of_class, one_of, paths, places, repaired, to_find, typed,
};

/// Data, redundancy or service is lost, or is about to be.
fn error(code: Code, status: impl Into<String>, action: impl Into<String>) -> Problem {
    problem(code, Severity::Error, status, action)
}

/// Somebody should look.
fn warning(code: Code, status: impl Into<String>, action: impl Into<String>) -> Problem {
    problem(code, Severity::Warning, status, action)
}

fn problem(
    code: Code,
    severity: Severity,
    status: impl Into<String>,
    action: impl Into<String>,
) -> Problem {
    Problem::new(code, severity, status, Some(action.into()))
}

/// The status with what is wrong, and what to do.
pub(super) fn told(pool: PoolStatus) -> PoolStatus {
    let problems = problems(&pool);
    with_more(pool, problems)
}

/// Adds more problems to a status: the worst comes first.
pub(super) fn with_more(mut pool: PoolStatus, more: Vec<Problem>) -> PoolStatus {
    let mut problems = std::mem::take(&mut pool.problems);
    problems.extend(more);
    problems.sort_by_key(|problem| Reverse(problem.severity));
    let joined = |lines: Vec<String>| (!lines.is_empty()).then(|| lines.join("\n"));
    pool.action = joined(problems.iter().filter_map(|problem| problem.action.clone()).collect());
    pool.status = joined(problems.iter().map(|problem| problem.status.clone()).collect());
    pool.problems = problems;
    pool
}

/// The status of a pool that is imported read-only: nothing helps a disk there, and nothing is
/// changed by an act.
pub(super) fn read_only(pool: PoolStatus) -> PoolStatus {
    let name = &pool.summary.name;
    let only = error(
        codes::POOL_READ_ONLY,
        "The pool is imported read-only, without vdevs that are missing: nothing on its disks \
         changes. What lay there alone gives I/O errors.",
        format!(
            "Copy the files to another pool. To bring this one into service, attach the disks, \
             then `aquifer pool export {name}` and `aquifer pool import {name}`."
        ),
    );
    with_more(PoolStatus { problems: Vec::new(), ..pool }, vec![only])
}

/// All problems of a pool, the worst first.
fn problems(pool: &PoolStatus) -> Vec<Problem> {
    let mut all = match pool.summary.health {
        Health::Suspended => vec![suspended(pool)],
        Health::Unavail if pool.vdevs.is_empty() => vec![unavailable(pool)],
        Health::Importing => {
            let status = "The pool is being imported.";
            vec![Problem::new(codes::POOL_IMPORTING, Severity::Info, status, None)]
        }
        _ => {
            let mut all = silent(pool);
            all.extend(disks(pool));
            all.extend(logs(pool));
            all.extend(expects_to_fail(pool));
            all.extend(spare_expects_to_fail(pool));
            all.extend(cache_disks(pool));
            all.extend(degraded(pool));
            all.extend(slow(pool));
            all.extend(damaged(pool));
            all
        }
    };
    all.extend(dropped(pool));
    all.extend(closed(pool));
    all.extend(met_errors(pool));
    all.extend(copies::behind(pool));
    all
}

fn suspended(pool: &PoolStatus) -> Problem {
    let name = &pool.summary.name;
    let reason = pool.summary.reason.as_deref().unwrap_or("it cannot go on");
    error(
        codes::POOL_SUSPENDED,
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

/// The disks of a pool in service do not answer.
fn silent(pool: &PoolStatus) -> Vec<Problem> {
    let Some(reason) = &pool.summary.reason else { return Vec::new() };
    let name = &pool.summary.name;
    vec![error(
        codes::POOL_SILENT,
        format!(
            "Changes wait, and clients ask again later: {reason}. Nothing is lost; what is in \
             memory is read."
        ),
        format!(
            "The pool goes on when a disk answers. Look at cables, controller and the kernel's \
             log. `aquifer pool export --force {name}` takes it out of service without them."
        ),
    )]
}

fn unavailable(pool: &PoolStatus) -> Problem {
    let name = &pool.summary.name;
    error(
        codes::POOL_UNAVAILABLE,
        pool.summary.reason.clone().unwrap_or_else(|| "The pool is not in service.".into()),
        format!(
            "Attach what is missing: the pool then comes by itself. To look for it at once, type \
             `aquifer pool clear {name}`. `aquifer pool export {name}` takes it off the list."
        ),
    )
}

/// Disks that hold data and are not up to date: one problem for each reason.
fn disks(pool: &PoolStatus) -> Vec<Problem> {
    let each = [
        Away::OwnPast,
        Away::Missing,
        Away::Outdated,
        Away::Faulted,
        Away::Offline,
        Away::Drill,
        Away::Resilvering,
    ];
    let problem = |away| {
        let leaves = of_class(pool, VdevClass::Data).flat_map(|vdev| &vdev.leaves);
        let found: Vec<&LeafStatus> =
            leaves.filter(|leaf| why_away(pool, leaf) == Some(away)).collect();
        (!found.is_empty()).then(|| disks_away(&pool.summary.name, &found, away))
    };
    each.into_iter().filter_map(problem).collect()
}

fn why_away(pool: &PoolStatus, leaf: &LeafStatus) -> Option<Away> {
    // One that is about to be resilvered is not yet shown so.
    let is_tried = |scan: &ResilverInfo| scan.state == ScanState::Running && scan.disk == leaf.path;
    let is_drilled = |drill: &DrillInfo| {
        let is_away = drill.phases.last().is_some_and(|last| last.phase == DrillStep::Away);
        drill.state == DrillState::Running && is_away && drill.disk == leaf.path
    };
    match leaf.state {
        LeafState::Online | LeafState::Degraded => None,
        _ if leaf.own_past && !leaf.state.is_in_use() => Some(Away::OwnPast),
        LeafState::Failed | LeafState::Outdated if pool.drill.as_ref().is_some_and(is_drilled) => {
            Some(Away::Drill)
        }
        LeafState::Missing => Some(Away::Missing),
        LeafState::Offline => Some(Away::Offline),
        LeafState::Resilvering => Some(Away::Resilvering),
        LeafState::Outdated | LeafState::Faulted if pool.scan.as_ref().is_some_and(is_tried) => {
            Some(Away::Resilvering)
        }
        LeafState::Faulted => Some(Away::Faulted),
        LeafState::Failed | LeafState::Outdated => Some(Away::Outdated),
    }
}

/// Why a disk that holds data is not up to date.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Away {
    OwnPast,
    Missing,
    Outdated,
    Faulted,
    Offline,
    Drill,
    Resilvering,
}

fn disks_away(pool: &str, leaves: &[&LeafStatus], away: Away) -> Problem {
    let disks = &paths(leaves);
    let (online, replace) = commands(pool, disks);
    let find = to_find(leaves);
    let (what, action) = match away {
        Away::OwnPast => two_pasts(pool, leaves, disks),
        Away::Missing => (
            format!("{} missing", be(disks, "is", "are")),
            format!(
                "Attach what is missing, then type {online}. To put a new disk in its place, type \
                 {replace}.{find}"
            ),
        ),
        Away::Outdated => (
            format!(
                "{} tried again by itself",
                be(disks, "missed writes and is", "missed writes and are")
            ),
            format!(
                "Check disk and cable. To try at once, type {online}. To put a new disk in its \
                 place, type {replace}.{find}"
            ),
        ),
        Away::Faulted => (
            format!(
                "{} tried again by itself",
                be(disks, "had too many errors and is", "had too many errors and are")
            ),
            format!(
                "Check disk and cable. To try at once, type {}. To put a new disk in its place, \
                 type {replace}.{find}",
                clear(pool, disks)
            ),
        ),
        Away::Offline => (
            format!("{} taken offline by the administrator", be(disks, "was", "were")),
            format!("To use it again, type {online}."),
        ),
        Away::Drill => (
            format!("A drill has taken {} away", disks.join(", ")),
            format!(
                "It comes back by itself. To end the drill now, type `aquifer pool drill --stop \
                 {pool}`."
            ),
        ),
        Away::Resilvering => (
            format!("{} being resilvered", be(disks, "is", "are")),
            format!("Keep the other disks in. `aquifer pool wait {pool}` returns when it is done."),
        ),
    };
    let (code, severity) = match away {
        Away::OwnPast => (codes::DISK_OUTDATED, Severity::Error),
        Away::Missing => (codes::DISK_MISSING, Severity::Error),
        Away::Outdated => (codes::DISK_OUTDATED, Severity::Error),
        Away::Faulted => (codes::DISK_FAULTED, Severity::Error),
        Away::Offline => (codes::DISK_OFFLINE, Severity::Warning),
        Away::Drill => (codes::DISK_DRILL, Severity::Info),
        Away::Resilvering => (codes::DISK_RESILVERING, Severity::Info),
    };
    problem(code, severity, format!("{what}; the pool runs on the other disks."), action)
}

/// Changes on disks that were in use apart from the pool, and the two ways from there.
fn two_pasts(pool: &str, leaves: &[&LeafStatus], disks: &[&str]) -> (String, String) {
    let disk = one_of(disks);
    let why = leaves.iter().filter_map(|leaf| leaf.last_error.as_deref());
    (
        format!(
            "{} in use apart from the pool, with changes that are not here ({})",
            be(disks, "was", "were"),
            why.collect::<Vec<_>>().join("; ")
        ),
        format!(
            "To drop what only {disk} has, type `aquifer pool online -f {pool} {disk}`. To keep \
             that instead, and drop what was written here since, type `aquifer pool export \
             {pool}`, then `aquifer pool import -d {disk} {pool}`."
        ),
    )
}

/// Log devices that are not in use.
fn logs(pool: &PoolStatus) -> Vec<Problem> {
    let is_elsewhere = of_class(pool, VdevClass::Log).any(|log| log.health != Health::Unavail);
    let lost = if pool.dropped_log.is_some() { "" } else { ", and nothing is lost" };
    let name = &pool.summary.name;
    let problem = |log: &VdevStatus| {
        let away = log.leaves.iter().filter(|leaf| !leaf.state.is_in_use());
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
        warning(codes::LOG_AWAY, status, action)
    };
    let away = of_class(pool, VdevClass::Log).filter(|log| log.health != Health::Online);
    away.map(problem).collect()
}

/// Disks whose SMART health says that they will fail.
fn expects_to_fail(pool: &PoolStatus) -> Option<Problem> {
    let has_failed = |leaf: &&LeafStatus| is_failing(leaf.disk.as_ref());
    let leaves: Vec<&LeafStatus> = leaves(pool).filter(has_failed).collect();
    let disks = &paths(&leaves);
    let (_, replace) = commands(&pool.summary.name, disks);
    (!disks.is_empty()).then(|| {
        warning(
            codes::DISK_FAILING,
            be(disks, FAILS_SOON.0, FAILS_SOON.1),
            format!("Replace it before it does: {replace}.{}", to_find(&leaves)),
        )
    })
}

fn cache_disks(pool: &PoolStatus) -> Option<Problem> {
    let out = |cache: &&CacheDiskInfo| cache.state != CacheDiskState::Online;
    let caches = pool.caches.iter().filter(out);
    let disks: Vec<&str> = caches.map(|cache| cache.path.as_str()).collect();
    let (name, disk) = (&pool.summary.name, one_of(&disks));
    (!disks.is_empty()).then(|| {
        warning(
            codes::CACHE_UNUSABLE,
            be(
                &disks,
                "is a cache disk that is missing or does not answer",
                "are cache disks that are missing or do not answer",
            ) + " Nothing is lost: the pool is read instead.",
            format!(
                "Try it again with `aquifer pool clear {name}`, or take it out: `aquifer pool \
                 remove {name} {disk}`."
            ),
        )
    })
}

fn spare_expects_to_fail(pool: &PoolStatus) -> Option<Problem> {
    let has_failed = |spare: &&SpareInfo| is_failing(spare.disk.as_ref());
    let spares = pool.waiting_spares().filter(has_failed);
    let disks: Vec<&str> = spares.map(|spare| spare.path.as_str()).collect();
    let (name, disk) = (&pool.summary.name, one_of(&disks));
    (!disks.is_empty()).then(|| {
        warning(
            codes::SPARE_FAILING,
            be(&disks, FAILS_SOON.0, FAILS_SOON.1),
            format!(
                "Let another spare wait: `aquifer pool add {name} spare NEW`, then `aquifer pool \
                 remove {name} {disk}`."
            ),
        )
    })
}

/// Of one disk, and of several.
const FAILS_SOON: (&str, &str) = (
    "expects to fail soon, by its own SMART health.",
    "expect to fail soon, by their own SMART health.",
);

fn is_failing(disk: Option<&DiskInfo>) -> bool {
    let disk = disk.filter(|disk| !disk.gone);
    disk.and_then(|disk| disk.smart.as_ref()).is_some_and(|smart| !smart.passed)
}

/// Disks in use that had too many bad copies.
fn degraded(pool: &PoolStatus) -> Option<Problem> {
    let is_degraded = |leaf: &&LeafStatus| leaf.state == LeafState::Degraded;
    let leaves: Vec<&LeafStatus> = leaves(pool).filter(is_degraded).collect();
    let (name, disks) = (&pool.summary.name, &paths(&leaves));
    let (_, replace) = commands(name, disks);
    let repaired = repaired(&leaves);
    (!disks.is_empty()).then(|| {
        warning(
            codes::DISK_DEGRADED,
            format!(
                "{} too many bad copies within ten minutes{repaired}.",
                be(disks, "is in use, and had", "are in use, and had")
            ),
            format!(
                "Check disk, cable and memory. `aquifer pool scrub {name}` mends every bad copy, \
                 {} counts from 0 again. If it comes again, put another disk in its place: \
                 {replace}.{}",
                clear(name, disks),
                to_find(&leaves)
            ),
        )
    })
}

/// Disks that are much slower than their kind: one problem for each.
fn slow(pool: &PoolStatus) -> Vec<Problem> {
    let problem = |leaf: &LeafStatus| {
        let SlowInfo { at, thousandths, own_ns, others_ns } = leaf.slow.as_ref()?;
        let part = match thousandths {
            500 => "half",
            _ => "one in a hundred",
        };
        let (_, replace) = commands(&pool.summary.name, &[&leaf.path]);
        Some(warning(
            codes::DISK_SLOW,
            format!(
                "{} is much slower than the other disks: {part} of its {at} took {} or more, and \
                 of theirs {}.",
                leaf.path,
                ms(*own_ns),
                ms(*others_ns)
            ),
            format!(
                "Check cable, controller and SMART health (`aquifer pool status -v {}`). To put \
                 another disk in its place, type {replace}.{}",
                pool.summary.name,
                to_find(&[leaf])
            ),
        ))
    };
    leaves(pool).filter_map(problem).collect()
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
    Some(error(
        codes::FILE_DAMAGED,
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
    Some(error(
        codes::LOG_DROPPED,
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
    Some(warning(
        codes::METASLAB_CLOSED,
        format!("{what} is not used."),
        format!(
            "`aquifer pool export {name}` and `aquifer inspect{places} {name}` say how far the \
             damage goes."
        ),
    ))
}

/// Errors of disks that are in use.
fn met_errors(pool: &PoolStatus) -> Option<Problem> {
    let erred = leaves(pool).filter(|leaf| {
        let errors = leaf.read_errors + leaf.write_errors + leaf.checksum_errors;
        leaf.state == LeafState::Online && errors > 0
    });
    let erred: Vec<&LeafStatus> = erred.collect();
    let disks = paths(&erred);
    if disks.is_empty() {
        return None;
    }
    let repaired = repaired(&erred);
    let (_, replace) = commands(&pool.summary.name, &disks);
    Some(warning(
        codes::DISK_ERRORS,
        format!(
            "{} errors since the import or the last clear{repaired}.",
            be(&disks, "had", "had")
        ),
        format!(
            "Check disk and cable, and keep a backup. If the numbers rise, put another disk in \
             its place: {replace}.{}",
            to_find(&erred)
        ),
    ))
}
