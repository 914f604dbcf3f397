//! Mutants that cannot be woven in: each is built by itself.

use super::build::Workspace;
use super::mutant::Mutant;
use super::report::Report;
use super::run::{self, Limits};
use super::splice::body_around;
use super::weave::{Fate, Woven};
use crate::tidy::lexer::code_of;

/// Sets apart the mutants outside of any function, or in a function that runs at compile time.
///
/// # Errors
/// A source that cannot be read.
pub fn set_apart(workspace: &Workspace, fates: &mut [(Mutant, Fate)]) -> Result<(), String> {
    for (mutant, fate) in fates.iter_mut().filter(|(_, fate)| *fate == Fate::Woven) {
        let code = code_of(&workspace.original(&mutant.file)?);
        if body_around(&code, mutant.replaced.start).is_none() {
            *fate = Fate::Unsettled;
        }
    }
    Ok(())
}

/// Finds out which of the mutants set apart build.
///
/// # Errors
/// Cargo fails for another reason.
pub fn settle(
    workspace: &Workspace,
    files: &Woven,
    fates: &mut [(Mutant, Fate)],
) -> Result<(), String> {
    for (mutant, fate) in fates.iter_mut().filter(|(_, fate)| *fate == Fate::Unsettled) {
        put(workspace, mutant)?;
        let builds = workspace.check(&[mutant.room()])?.is_empty();
        *fate = if builds { Fate::Alone } else { Fate::Unviable };
        workspace.write(&mutant.file, &files.text(workspace, &mutant.file)?)?;
    }
    Ok(())
}

/// Builds one mutant and tries it.
///
/// # Errors
/// Tests that cannot be run.
pub fn try_one(
    workspace: &Workspace,
    files: &Woven,
    mutant: &Mutant,
    limits: &Limits,
    report: &mut Report,
) -> Result<(), String> {
    put(workspace, mutant)?;
    let outcome = match workspace.tests() {
        Ok(programs) => run::try_one(workspace, &programs, limits, mutant, 0)?,
        // A constant that the compiler itself compares with another one.
        Err(_) => run::Outcome::Caught { by: "the compiler".to_string(), why: String::new() },
    };
    workspace.write(&mutant.file, &files.text(workspace, &mutant.file)?)?;
    report.add(mutant, outcome);
    Ok(())
}

/// The source with the mutant in its place; without the mutants that were woven into it.
fn put(workspace: &Workspace, mutant: &Mutant) -> Result<(), String> {
    let original = workspace.original(&mutant.file)?;
    let mut text = mutant.applied(&original, 0..original.len());
    if mutant.file.ends_with("src/lib.rs") {
        text += super::splice::SWITCH;
    }
    workspace.write(&mutant.file, &text)
}
