//! Mutants: changes of the engine by `cargo-mutants`, drawn by a seed, and the test that finds
//! each. `make mutants N=50 SEED=1`; with `PLANTED=all` the mistakes of
//! `crates/xtask/planted.json`.
//!
//! `cargo-mutants` lists the mutants. Building each by itself would take minutes, for the engine is
//! one line of crates with the quick simulator at its end. So all drawn mutants are woven into one
//! copy of the workspace ([`weave`]). Each function is repeated once for each of its mutants, and
//! `AQUIFER_MUTANT` chooses one when the test starts. One build serves all, and each test takes
//! only its own time.
//!
//! Invariants:
//! - The draw depends on the sources and the seed alone. The first `N` mutants that build are
//!   tried, in the order of the draw; the results of their tests exclude none.
//! - Weaving never makes a mutant count as unviable. A mutant that does not build woven, or is in
//!   no function, is built by itself.
//! - With no mutant chosen the woven tests pass; otherwise there is no report.

mod alone;
mod build;
mod draw;
mod mutant;
mod planted;
mod report;
mod run;
mod splice;
mod steps;
#[cfg(test)]
mod tests;
mod weave;

use std::collections::BTreeSet;
use std::path::Path;

use build::Workspace;
use mutant::Mutant;
use report::Report;
use weave::{Fate, Woven};

/// The requested mutants.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// The first ones of a draw.
    Drawn {
        /// Their number.
        count: usize,
        /// The seed of the draw.
        seed: u64,
    },
    /// The mistakes of `planted.json` whose file or words contain this.
    Planted(&'a str),
}

/// Draws, builds and tries mutants of the workspace at `root`, and reports the outcome of each.
///
/// # Errors
/// The reason why none can be tried: no `cargo-mutants`, or a build or a test that fails without
/// any mutant.
pub fn try_mutants(root: &Path, wanted: Wanted<'_>) -> Result<Report, String> {
    let (order, count) = match wanted {
        Wanted::Planted(only) => {
            let order = planted::read(root, only)?;
            println!("{} planted mistakes", order.len());
            let count = order.len();
            (order, count)
        }
        Wanted::Drawn { count, seed } => {
            let order = draw::drawn(root, seed)?;
            println!("{count} of {} mutants, seed {seed}", order.len());
            (order, count)
        }
    };
    let mut rooms = steps::ROOMS.to_vec();
    let others: BTreeSet<String> = order.iter().map(|mutant| mutant.room().to_string()).collect();
    rooms.extend(others.iter().map(String::as_str).filter(|room| !steps::ROOMS.contains(room)));
    let workspace = Workspace::copy(root, &rooms)?;
    let chosen = choose(&workspace, order, count)?;
    let mut report = Report::new(count, chosen.unviable);
    let programs = workspace.tests()?;
    let limits = run::baseline(&workspace, &programs, &rooms)?;
    run::try_all(&workspace, &programs, &limits, &chosen.woven, &mut report)?;
    for mutant in &chosen.alone {
        alone::try_one(&workspace, &chosen.files, mutant, &limits, &mut report)?;
    }
    report.write(&workspace.directory)?;
    Ok(report)
}

/// The mutants to try.
struct Chosen {
    /// With the number that chooses each.
    woven: Vec<(usize, Mutant)>,
    alone: Vec<Mutant>,
    unviable: Vec<Mutant>,
    /// The sources with the woven mutants.
    files: Woven,
}

/// Weaves in mutants in order until `count` build; somewhat more at once, since some never do.
fn choose(workspace: &Workspace, order: Vec<Mutant>, count: usize) -> Result<Chosen, String> {
    let mut files = Woven::default();
    let mut fates: Vec<(Mutant, Fate)> = Vec::new();
    let mut order = order.into_iter();
    loop {
        let viable = fates.iter().filter(|(_, fate)| *fate != Fate::Unviable).count();
        let missing = count.saturating_sub(viable);
        let before = fates.len();
        let more = if missing == 0 { 0 } else { missing + missing / 4 };
        fates.extend(order.by_ref().take(more).map(|mutant| (mutant, Fate::Woven)));
        if before == fates.len() {
            break;
        }
        alone::set_apart(workspace, &mut fates)?;
        files = weave::until_it_builds(workspace, &mut fates)?;
        alone::settle(workspace, &files, &mut fates)?;
    }
    let mut chosen = Chosen { woven: Vec::new(), alone: Vec::new(), unviable: Vec::new(), files };
    let mut taken = 0;
    for (number, (mutant, fate)) in (1..).zip(fates) {
        if taken == count {
            break;
        }
        taken += usize::from(fate != Fate::Unviable);
        match fate {
            Fate::Woven => chosen.woven.push((number, mutant)),
            Fate::Alone | Fate::Unsettled => chosen.alone.push(mutant),
            Fate::Unviable => chosen.unviable.push(mutant),
        }
    }
    Ok(chosen)
}
