//! Stable writes on slow disks with and without a fast log (`make bench-sync`): a run.
//!
//! Invariant: disks are slow only while a measurement runs. Creating pools, and filling, aging and
//! comparing files use the same disks without limits. That would otherwise take hours, and is not
//! measured. Each workload begins with new pools of its own: the random writes of the previous one
//! would leave holes for the next.

use std::time::Duration;

use aquifer_rig::work::WorkDir;

use crate::run::{self, Results, Turns, chosen, is_wanted};
use crate::system::load_average;
use crate::target::{SLOW_BASELINES, Setup, Target, is_not_offered};
use crate::{Error, Result, depth1, idle, restart, workload};

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How servers are set up.
    pub setup: Setup,
    /// Names of targets.
    pub targets: Vec<String>,
    /// Names of workloads; empty means all.
    pub only: Vec<String>,
    /// Turns of each target.
    pub rounds: usize,
    /// The length of one measurement.
    pub length: Duration,
    /// How long [`workload::SQLIO`] also runs, once on each target.
    pub sustained: Option<Duration>,
    /// Also run that on an aged pool.
    pub aged: bool,
}

/// Runs all workloads.
///
/// # Errors
/// No target can be set up as requested, or a name is unknown. A target that fails later is left
/// out from there on and named in [`Results::failures`]. A target whose feature the program lacks
/// is named in [`Results::left_out`].
pub fn run(options: &Options) -> Result<Results> {
    let others = [workload::DEPTH1, workload::RESTART, workload::SUSTAINED];
    let workloads = chosen(workload::slow(), &others, &options.only)?;
    let lasting =
        is_wanted(workload::SUSTAINED, &options.only).then_some(options.sustained).flatten();
    if options.only.iter().any(|name| name == workload::SUSTAINED) && lasting.is_none() {
        return Err(Error::Malformed("sustained: for how long? Add --sustained SECONDS".into()));
    }
    idle::allow_connections()?;
    let mut results = Results {
        file_bytes: options.setup.file_bytes,
        load_average: [load_average(), String::new()],
        baselines: SLOW_BASELINES.map(String::from).to_vec(),
        ..Results::default()
    };
    if is_wanted(workload::DEPTH1, &options.only) {
        match depth1::run(&options.setup, options.rounds, DEPTH1) {
            Ok(measured) => results.depth1 = measured,
            Err(error) => results.failures.push((workload::DEPTH1.into(), error.to_string())),
        }
    }
    if is_wanted(workload::RESTART, &options.only) {
        let mut targets = Vec::new();
        for name in options.targets.iter().filter(|name| name.starts_with("aquifer")) {
            targets.extend(start(name, &options.setup, &mut results)?);
        }
        eprintln!("{}: {}", workload::RESTART, restart::WHAT);
        match restart::run(&mut targets, options.rounds) {
            Ok(measured) => results.restart = measured,
            Err(error) => results.failures.push((workload::RESTART.into(), error.to_string())),
        }
    }
    let turns = Turns { rounds: options.rounds, length: options.length, connections: 1 };
    for workload in &workloads {
        let mut targets = Vec::new();
        for name in &options.targets {
            targets.extend(start(name, &options.setup, &mut results)?);
        }
        eprintln!("{}: {}", workload.name, workload.what);
        let measured = turns.take(workload, &mut targets, &mut results.failures);
        results.workloads.push(measured);
    }
    if let Some(length) = lasting {
        sustained(options, length, false, &mut results)?;
        if options.aged {
            sustained(options, length, true, &mut results)?;
        }
    }
    results.load_average[1] = load_average();
    Ok(results)
}

/// Starts a target, unless the program lacks its feature.
fn start(name: &str, setup: &Setup, results: &mut Results) -> Result<Option<Target>> {
    eprintln!("starting {name}");
    let work = WorkDir::open()?;
    let target = match Target::start(name, setup, work.scratch("bench")?) {
        Err(error) if is_not_offered(&error) => {
            eprintln!("{name} is left out: {error}");
            note_once(&mut results.left_out, name, error.to_string());
            return Ok(None);
        }
        started => started?,
    };
    for probe in target.probes() {
        eprintln!("  {probe}");
    }
    note_once(&mut results.probes, name, target.probes().to_vec());
    Ok(Some(target))
}

/// Notes something about a target once, although the target is started for each workload.
fn note_once<T>(told: &mut Vec<(String, T)>, name: &str, what: T) {
    if !told.iter().any(|(known, _)| known == name) {
        told.push((name.to_owned(), what));
    }
}

/// Runs the targets one after the other, each on disks of its own, which are gone before the next
/// begins.
fn sustained(options: &Options, length: Duration, aged: bool, results: &mut Results) -> Result<()> {
    let (name, setup) = match aged {
        false => ("sustained-young", options.setup.clone()),
        true => ("sustained-aged", Setup { aged: true, ..options.setup.clone() }),
    };
    let sqlio = workload::slow().into_iter().find(|workload| workload.name == workload::SQLIO);
    let sqlio = sqlio.ok_or_else(|| Error::Malformed(format!("no {}", workload::SQLIO)))?;
    let turns = Turns { rounds: 1, length, connections: 1 };
    let mut all =
        run::OfWorkload { name: name.into(), what: sqlio.what.into(), targets: Vec::new() };
    for target in &options.targets {
        let started = match start(target, &setup, results) {
            Ok(started) => started,
            // A peer may not support so full a file system: that is no failure of ours.
            Err(error) if aged && !target.starts_with("aquifer") => {
                eprintln!("{target} is left out: {error}");
                results.left_out.push((format!("{target} ({name})"), error.to_string()));
                None
            }
            Err(error) => return Err(error),
        };
        let Some(started) = started else { continue };
        eprintln!("{name}: file of {} MiB, {length:?}", started.file_bytes() >> 20);
        let mut alone = vec![started];
        let measured = turns.take(&sqlio, &mut alone, &mut results.failures);
        all.targets.extend(measured.targets);
    }
    results.workloads.push(all);
    Ok(())
}

const DEPTH1: Duration = Duration::from_secs(1);
