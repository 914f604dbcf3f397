//! The outcome of each mutant.

use std::fmt;
use std::fs;
use std::path::Path;

use super::mutant::Mutant;
use super::run::Outcome;

/// All outcomes.
#[derive(Debug)]
pub struct Report {
    wanted: usize,
    unviable: Vec<Mutant>,
    tried: Vec<(Mutant, Outcome)>,
}

/// Percentage that must be found.
const CAUGHT_PERCENT_MIN: usize = 90;

impl Report {
    /// A report on this many mutants to try, and on those that do not build.
    pub fn new(wanted: usize, unviable: Vec<Mutant>) -> Report {
        Report { wanted, unviable, tried: Vec::new() }
    }

    /// Notes and prints the outcome of a mutant.
    pub fn add(&mut self, mutant: &Mutant, outcome: Outcome) {
        self.tried.push((mutant.clone(), outcome.clone()));
        let (tried, wanted, name) = (self.tried.len(), self.wanted, &mutant.name);
        println!("{tried:>4}/{wanted} {}: {name}", said(&outcome));
    }

    /// Whether enough mutants were found.
    pub fn is_good(&self) -> bool {
        let missed = self.missed().count();
        (self.tried.len() - missed) * 100 >= self.tried.len() * CAUGHT_PERCENT_MIN
    }

    /// Also writes the report beside the build.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), String> {
        let mut text = self.to_string();
        for (mutant, outcome) in &self.tried {
            text += &format!("\n{}: {}", said(outcome), mutant.name);
        }
        for mutant in &self.unviable {
            text += &format!("\ndoes not build: {}", mutant.name);
        }
        let path = directory.join("report.txt");
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn missed(&self) -> impl Iterator<Item = &Mutant> {
        let missed = |entry: &&(Mutant, Outcome)| matches!(entry.1, Outcome::Missed);
        self.tried.iter().filter(missed).map(|(mutant, _)| mutant)
    }
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Caught { by, why } => format!("caught by {by} [{why}]"),
        Outcome::Hung { by } => format!("hangs in {by}"),
        Outcome::Missed => "MISSED".to_string(),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mutant in self.missed() {
            writeln!(f, "\nmissed: {}\n{}", mutant.name, mutant.diff)?;
        }
        let missed = self.missed().count();
        let hung = |entry: &&(Mutant, Outcome)| matches!(entry.1, Outcome::Hung { .. });
        let hung = self.tried.iter().filter(hung).count();
        let (tried, unviable) = (self.tried.len(), self.unviable.len());
        let caught = tried - missed;
        writeln!(f, "{tried} mutants: {caught} caught ({hung} of them hang), {missed} missed;")?;
        let permille = (caught * 1000).checked_div(tried).unwrap_or(1000);
        write!(f, "{}.{} %; {unviable} more do not build", permille / 10, permille % 10)
    }
}
