//! A whole run: one workload after the other, and in each the targets take turns, round by round.

use std::time::Duration;

use aquifer_rig::work::WorkDir;
use serde::Serialize;

use crate::depth1::Depth1;
use crate::idle::{self, Idle};
use crate::measure::{self, Sample};
use crate::restart::Restart;
use crate::slow::Probe;
use crate::system::load_average;
use crate::target::{BASELINES, Setup, Target};
use crate::workload::{self, Workload};
use crate::{Error, Result};

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
    /// Number of connections.
    pub connections: usize,
    /// Number of connections of [`workload::IDLE`].
    pub idle: usize,
}

/// All figures of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// Size of the file on each target: it fits each server's cache.
    pub file_bytes: usize,
    /// Number of connections, if it is the same for all workloads.
    pub connections: Option<usize>,
    /// Load averages of the machine, before anything was started and at the end.
    pub load_average: [String; 2],
    /// Targets that the others are compared with.
    pub baselines: Vec<String>,
    /// The measured performance of slow disks alone, by target.
    pub probes: Vec<(String, Vec<Probe>)>,
    /// The figures of each workload.
    pub workloads: Vec<OfWorkload>,
    /// One write outstanding, compared with the disk alone.
    pub depth1: Vec<Depth1>,
    /// Waiting after a kill.
    pub restart: Vec<Restart>,
    /// Memory of idle connections, by target.
    pub idle: Vec<(String, Option<Idle>)>,
    /// Targets that were left out because the program lacks the feature, with the reasons.
    pub left_out: Vec<(String, String)>,
    /// Targets that failed, with their errors: a run with any has failed.
    pub failures: Vec<(String, String)>,
}

/// One workload's figures.
#[derive(Clone, Debug, Serialize)]
pub struct OfWorkload {
    /// Its name.
    pub name: String,
    /// A description for people.
    pub what: String,
    /// By target, one sample for each round.
    pub targets: Vec<(String, Vec<Sample>)>,
}

/// Runs all workloads.
///
/// # Errors
/// No target can be set up as requested, or a name is unknown. A target that fails later is left
/// out from there on and named in [`Results::failures`].
pub fn run(options: &Options) -> Result<Results> {
    let workloads = chosen(workload::all(), &[workload::IDLE], &options.only)?;
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
        connections: Some(options.connections),
        load_average: [before, String::new()],
        baselines: BASELINES.map(String::from).to_vec(),
        ..Results::default()
    };
    // First of all: later a server could reuse memory that was freed.
    if is_wanted(workload::IDLE, &options.only) {
        eprintln!("{}", workload::IDLE);
        for target in &mut targets {
            match idle::measure(target, options.idle, options.setup.file_bytes as u64) {
                Ok(idle) => results.idle.push((target.name().into(), idle)),
                Err(error) => results.failures.push((target.name().into(), error.to_string())),
            }
        }
    }
    for workload in &workloads {
        eprintln!("{}: {}", workload.name, workload.what);
        let turns = Turns {
            rounds: options.rounds,
            length: options.length,
            connections: options.connections,
        };
        let measured = turns.take(workload, &mut targets, &mut results.failures);
        results.workloads.push(measured);
    }
    results.load_average[1] = load_average();
    Ok(results)
}

/// The turns of targets.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// Turns of each target.
    pub rounds: usize,
    /// The length of one measurement.
    pub length: Duration,
    /// Number of connections, where the workload does not say.
    pub connections: usize,
}

impl Turns {
    /// Measures a workload on each target in turn, and removes a target that fails.
    pub fn take(
        self,
        workload: &Workload,
        targets: &mut Vec<Target>,
        failures: &mut Vec<(String, String)>,
    ) -> OfWorkload {
        let mut samples: Vec<(String, Vec<Sample>)> =
            targets.iter().map(|target| (target.name().into(), Vec::new())).collect();
        let connections = workload.connections.unwrap_or(self.connections);
        for _ in 0..self.rounds {
            targets.retain_mut(|target| {
                match measure::sample(target, &workload.plan, connections, self.length) {
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
}

/// The workloads of `all` that `only` names, in the order in which they run. `others` are valid
/// names, too.
///
/// # Errors
/// [`Error::Malformed`] with all names, if one is unknown.
pub fn chosen(mut all: Vec<Workload>, others: &[&str], only: &[String]) -> Result<Vec<Workload>> {
    let names = all.iter().map(|workload| workload.name).chain(others.iter().copied());
    let names: Vec<&str> = names.collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Error::Malformed(format!("no workload {unknown}: {names:?}")));
    }
    all.retain(|workload| is_wanted(workload.name, only));
    Ok(all)
}

/// Whether `only` contains the name, or is empty.
#[must_use]
pub fn is_wanted(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|wanted| wanted == name)
}
