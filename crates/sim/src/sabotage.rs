//! Leaves out rules of the design; the simulator must find that.
//!
//! Tables name rules, each with the seeds within which the loss must show: some ten times what it
//! took when the entry was written. Where such seeds are rare, they begin shortly before the first:
//! CI looks at each rule each time. `AQUIFER_RULE=SlotsInTurn` looks at one alone, and with it
//! `AQUIFER_FIRST_SEED=100000` looks for another seed of it.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use aquifer_blockio::sabotage::{Rule, leave_out};

/// Rules are left out in the whole process. Tests that do so, and tests that must not see it, wait
/// for each other.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs the seeds of each rule without it, until one finds that it is missing.
///
/// # Panics
/// Of a rule, none of them does. All are tried first.
pub fn must_be_found(table: &[(Rule, Range<u64>)], run: impl Fn(u64) -> Result<(), String>) {
    let _alone = alone();
    let table = table.iter().map(|(rule, seeds)| (std::slice::from_ref(rule), seeds.clone()));
    let missed = missed(table, run);
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Runs the seeds of each entry without its rules, until one finds that these are missing. Returns
/// the entries of which none does. The caller is [`alone`].
pub fn missed<'a>(
    table: impl IntoIterator<Item = (&'a [Rule], Range<u64>)>,
    run: impl Fn(u64) -> Result<(), String>,
) -> Vec<&'a [Rule]> {
    let only = std::env::var("AQUIFER_RULE").unwrap_or_default();
    let wanted =
        |rules: &[Rule]| only.is_empty() || rules.iter().any(|rule| format!("{rule:?}") == only);
    let first = std::env::var("AQUIFER_FIRST_SEED").ok().filter(|_| !only.is_empty());
    let first: Option<u64> = first.and_then(|first| first.parse().ok());
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let is_missed = |(rules, seeds): &(&[Rule], Range<u64>)| {
        let seeds = first.map_or(seeds.clone(), |first| first..u64::MAX);
        leave_out(rules);
        let found = seeds.clone().find_map(|seed| Some((seed, loss(&run, seed)?)));
        let Some((seed, why)) = found else { return true };
        println!("{rules:?} left out: found by seed {seed}, after {}: {why}", seed - seeds.start);
        false
    };
    let table = table.into_iter().filter(|(rules, _)| wanted(rules));
    let missed = table.filter(is_missed).map(|(rules, _)| rules).collect();
    leave_out(&[]);
    std::panic::set_hook(hook);
    missed
}

/// Returns the loss that a seed finds.
fn loss(run: &impl Fn(u64) -> Result<(), String>, seed: u64) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        Ok(done) => done.err(),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or(panic.downcast_ref::<&str>().copied());
            Some(format!("an assertion: {}", said.unwrap_or("?")))
        }
    }
}
