//! Runs of seeds, one after the other: a run has all threads of its process for itself.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use aquifer_sim::seeds::{seeds, story};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::bed::Base;
use crate::schedule::{Chance, seed, trace};

/// For each thread: futures of the engine are large, and not optimised here.
const STACK_BYTES: usize = 1 << 20;
/// A run that takes longer does not end.
const STEPS_MAX: usize = 3_000_000;

/// A seed that failed.
#[derive(Debug)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// After this many steps.
    pub steps: u64,
    /// The failure.
    pub why: String,
}

/// A story with several threads: `work` begins as the first of them.
pub type Scenario = fn();

/// Runs a scenario on these disks, with the seeds that the environment names, or `default_seeds` of
/// them.
///
/// # Panics
/// One of them fails.
pub fn permute(bases: &[&Base], scenario: Scenario, default_seeds: u64) {
    let _alone = alone_with(bases);
    let seeds = seeds(default_seeds);
    let count = seeds.end - seeds.start;
    if let Err(Failure { seed, steps, why }) = run(seeds, scenario) {
        panic!("seed {seed}, {steps} steps: {why}");
    }
    let (hash, steps) = trace();
    let last = if story() > 0 { format!(", the last of {hash:016x}") } else { String::new() };
    println!("{count} schedules{last}, {steps} steps in the last");
}

/// Runs one seed twice.
///
/// # Panics
/// They differ.
pub fn is_repeated(bases: &[&Base], scenario: Scenario, seed: u64) {
    let _alone = alone_with(bases);
    let once = || {
        run(seed..seed + 1, scenario).unwrap();
        trace()
    };
    // By then everything exists that a process makes once.
    once();
    assert_eq!(once(), once(), "seed {seed} tells two stories");
}

/// Runs that many seeds without a rule: one of them must fail.
///
/// # Panics
/// None does.
pub fn must_be_found(
    bases: &[&Base],
    rule: aquifer_blockio::sabotage::Rule,
    scenario: Scenario,
    seeds: u64,
) {
    use aquifer_blockio::sabotage::leave_out;
    let _alone = alone_with(bases);
    leave_out(&[rule]);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let ran = run(0..seeds, scenario);
    std::panic::set_hook(hook);
    leave_out(&[]);
    match ran {
        Err(Failure { seed, steps, why }) => {
            println!("{rule:?} left out: found by seed {seed} in {steps} steps: {why}");
        }
        Ok(()) => panic!("{rule:?} left out: {seeds} schedules do not find it"),
    }
}

/// Only one run at a time, because pages and rules belong to the process. Makes the disks before
/// the run begins.
fn alone_with(bases: &[&Base]) -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for base in bases {
        LazyLock::force(base);
    }
    alone
}

fn run(seeds: Range<u64>, scenario: Scenario) -> Result<(), Failure> {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let runner = Runner::new(Chance::new(seeds), config);
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(scenario)));
    ran.map(drop).map_err(|what| Failure { seed: seed(), steps: trace().1, why: said(&*what) })
}

fn said(what: &(dyn Any + Send)) -> String {
    let text = what.downcast_ref::<String>().map(String::as_str);
    text.or(what.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_string()
}
