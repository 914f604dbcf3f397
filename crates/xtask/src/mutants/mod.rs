//! Mutants: what `cargo-mutants` would change in the engine, drawn by a seed, and which test finds
//! each. `make mutants N=50 SEED=1`; with `PLANTED=all` the mistakes of
//! `crates/xtask/planted.json`.
//!
//! `cargo-mutants` lists the mutants; building each alone would take minutes, for the engine is one
//! line of crates and the quick simulator is at its end. So all that are drawn are woven into one
//! copy of the workspace ([`weave`]): each function once more for each of its mutants, chosen by
//! `AQUIFER_MUTANT` when the test starts. One build serves all, and each test takes what it takes.
//!
//! Invariants:
//! - The draw depends on the sources and the seed alone. The first `N` that build are tried, in the
//!   order of the draw; none is left out for what its tests say.
//! - A mutant does not count as unviable because of the weaving: what does not build woven, or lies
//!   in no function, is built alone.
//! - With no mutant chosen the woven tests pass; else nothing is reported.

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

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// The first ones of a draw.
    Drawn {
        /// How many.
        count: usize,
        /// Of the draw.
        seed: u64,
    },
    /// The mistakes of `planted.json` whose file or words hold this.
    Planted(&'a str),
}

/// Draws, builds and tries mutants of the workspace at `root`, and tells what became of each.
///
/// # Errors
/// What keeps them from being tried at all: no `cargo-mutants`, a build or a test that fails
/// without any mutant.
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

/// The mutants that are tried.
struct Chosen {
    /// By the number that chooses each.
    woven: Vec<(usize, Mutant)>,
    alone: Vec<Mutant>,
    unviable: Vec<Mutant>,
    /// The sources into which they are woven.
    files: Woven,
}

/// Weaves the first mutants in until `count` build; somewhat more at once, as some never do.
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
