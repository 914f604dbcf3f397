//! A whole run: workloads one after the other, and within each the targets in turn, round by round.

use std::time::Duration;

use aquifer_conformance::work::WorkDir;
use serde::Serialize;

use crate::idle::{self, Idle};
use crate::measure::{self, Sample};
use crate::system::load_average;
use crate::target::{Setup, Target};
use crate::workload::{self, Workload};
use crate::{Error, Result};

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How servers are set up.
    pub setup: Setup,
    /// Names of targets.
    pub targets: Vec<String>,
    /// Names of workloads; none means all.
    pub only: Vec<String>,
    /// How often each target has its turn.
    pub rounds: usize,
    /// How long one measurement takes.
    pub length: Duration,
    /// Connections at once.
    pub connections: usize,
}

/// All figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Size of the file on each target: all of it fits each server's cache.
    pub file_bytes: usize,
    /// Connections at once.
    pub connections: usize,
    /// Load averages of the machine, before anything was started and at the end.
    pub load_average: [String; 2],
    /// By workload.
    pub workloads: Vec<OfWorkload>,
    /// Memory of idle connections, by target.
    pub idle: Vec<(String, Option<Idle>)>,
    /// Targets that failed, with what they said: a run with any has failed.
    pub failures: Vec<(String, String)>,
}

/// One workload's figures.
#[derive(Clone, Debug, Serialize)]
pub struct OfWorkload {
    /// Its name.
    pub name: String,
    /// What it is.
    pub what: String,
    /// By target, each a sample for each round.
    pub targets: Vec<(String, Vec<Sample>)>,
}

/// Runs.
///
/// # Errors
/// If no target can be set up as asked, or a name is unknown. A target that fails later is left out
/// from there on and named in [`Results::failures`].
pub fn run(options: &Options) -> Result<Results> {
    let workloads = chosen(&options.only)?;
    idle::allow_connections()?;
    let before = load_average();
    let work = WorkDir::open()?;
    let mut targets = Vec::new();
    for name in &options.targets {
        eprintln!("starting {name}");
        let scratch = work.scratch("bench")?;
        targets.push(Target::start(name, &options.setup, scratch)?);
    }
    let mut results = Results {
        file_bytes: options.setup.file_bytes,
        connections: options.connections,
        load_average: [before, String::new()],
        workloads: Vec::new(),
        idle: Vec::new(),
        failures: Vec::new(),
    };
    // First: later a server would give them memory that others have left.
    if options.only.is_empty() || options.only.iter().any(|name| name == workload::IDLE) {
        eprintln!("{}", workload::IDLE);
        for target in &targets {
            match idle::measure(target, IDLE_CONNECTIONS, options.setup.file_bytes as u64) {
                Ok(idle) => results.idle.push((target.name().into(), idle)),
                Err(error) => results.failures.push((target.name().into(), error.to_string())),
            }
        }
    }
    for workload in &workloads {
        eprintln!("{}: {}", workload.name, workload.what);
        let measured = take_turns(workload, options, &mut targets, &mut results.failures);
        results.workloads.push(measured);
    }
    results.load_average[1] = load_average();
    Ok(results)
}

fn take_turns(
    workload: &Workload,
    options: &Options,
    targets: &mut Vec<Target>,
    failures: &mut Vec<(String, String)>,
) -> OfWorkload {
    let mut samples: Vec<(String, Vec<Sample>)> =
        targets.iter().map(|target| (target.name().into(), Vec::new())).collect();
    for _ in 0..options.rounds {
        targets.retain_mut(|target| {
            let (connections, length) = (options.connections, options.length);
            match measure::sample(target, &workload.plan, connections, length) {
                Ok(sample) => {
                    let own = samples.iter_mut().find(|(name, _)| name == target.name());
                    own.into_iter().for_each(|(_, samples)| samples.push(sample.clone()));
                    true
                }
                Err(error) => {
                    eprintln!("{} is out: {error}", target.name());
                    failures.push((target.name().into(), error.to_string()));
                    false
                }
            }
        });
    }
    OfWorkload { name: workload.name.into(), what: workload.what.into(), targets: samples }
}

/// The workloads of these names, in the order in which they run.
fn chosen(only: &[String]) -> Result<Vec<Workload>> {
    let mut all = workload::all();
    let known = |name: &String| name == workload::IDLE || all.iter().any(|it| it.name == name);
    if let Some(unknown) = only.iter().find(|name| !known(name)) {
        let names: Vec<_> = all.iter().map(|workload| workload.name).collect();
        let idle = workload::IDLE;
        return Err(Error::Malformed(format!("no workload {unknown}: {names:?} {idle:?}")));
    }
    all.retain(|workload| only.is_empty() || only.iter().any(|name| name == workload.name));
    Ok(all)
}

const IDLE_CONNECTIONS: usize = 1000;
