//! Weaves mutants into the copy of the workspace, as many as it builds with.

use std::collections::{BTreeMap, BTreeSet};

use super::build::{Refusal, Workspace};
use super::mutant::Mutant;
use super::splice::{SWITCH, Spliced, splice};

/// The state of a mutant before it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is woven in.
    Woven,
    /// It cannot be woven in; it is not known yet whether it builds by itself.
    Unsettled,
    /// It is built and tried by itself.
    Alone,
    /// It does not build.
    Unviable,
}

/// Sources with woven mutants.
#[derive(Debug, Default)]
pub struct Woven {
    files: BTreeMap<String, Spliced>,
}

impl Woven {
    /// A source with its woven mutants.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn text(&self, workspace: &Workspace, file: &str) -> Result<String, String> {
        match self.files.get(file) {
            Some(spliced) => Ok(spliced.text.clone()),
            None => workspace.original(file),
        }
    }
}

/// Weaves in the mutants until the copy builds; removes those that do not build.
///
/// # Errors
/// A build that fails for another reason.
pub fn until_it_builds(
    workspace: &Workspace,
    fates: &mut [(Mutant, Fate)],
) -> Result<Woven, String> {
    let rooms: BTreeSet<String> = fates.iter().map(|(mutant, _)| mutant.room().into()).collect();
    let rooms: Vec<&str> = rooms.iter().map(String::as_str).collect();
    loop {
        let woven = weave(workspace, fates)?;
        let refusals = workspace.check(&rooms)?;
        if refusals.is_empty() {
            return Ok(woven);
        }
        for refusal in &refusals {
            if !blame(&woven, refusal, fates) {
                return Err(format!("no mutant is to blame for this: {}", refusal.message));
            }
        }
    }
}

fn weave(workspace: &Workspace, fates: &[(Mutant, Fate)]) -> Result<Woven, String> {
    let mut by_file: BTreeMap<String, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for file in &workspace.sources {
        by_file.entry(file.clone()).or_default();
    }
    for (number, (mutant, fate)) in (1..).zip(fates) {
        let inside = by_file.entry(mutant.file.clone()).or_default();
        if *fate == Fate::Woven {
            inside.push((number, mutant));
        }
    }
    let mut woven = Woven::default();
    for (file, mutants) in by_file {
        let mut spliced = splice(&workspace.original(&file)?, &mutants);
        if file.ends_with("src/lib.rs") {
            spliced.text += SWITCH;
        }
        workspace.write(&file, &spliced.text)?;
        woven.files.insert(file, spliced);
    }
    Ok(woven)
}

/// Finds the mutants to blame. If the compiler refuses a mutant's own lines, it does not build. If
/// the compiler refuses only the weaving, its mutants are tried by themselves.
fn blame(woven: &Woven, refusal: &Refusal, fates: &mut [(Mutant, Fate)]) -> bool {
    let mut set = |number: usize, to: Fate| {
        if let Some((_, fate)) = number.checked_sub(1).and_then(|at| fates.get_mut(at)) {
            *fate = if *fate == Fate::Unviable { Fate::Unviable } else { to };
        }
    };
    for (file, lines) in &refusal.places {
        let Some(spliced) = woven.files.get(file) else { continue };
        let is_in = |range: &std::ops::Range<usize>| {
            range.contains(lines.start()) || range.contains(lines.end())
        };
        // A line is shared only where one copy ends and the next begins: it then belongs to the
        // later one.
        let own = spliced
            .copies
            .iter()
            .rfind(|(_, copy)| copy.contains(lines.start()) && lines.end() <= &copy.end);
        if let Some((number, _)) = own {
            set(*number, Fate::Unviable);
            return true;
        }
        if let Some((_, numbers)) = spliced.functions.iter().find(|(range, _)| is_in(range)) {
            numbers.iter().for_each(|number| set(*number, Fate::Unsettled));
            return true;
        }
    }
    false
}
