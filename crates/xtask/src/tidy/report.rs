//! The findings, in the order of files and lines.

use std::collections::BTreeSet;
use std::fmt;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    warning: bool,
    what: String,
}

/// All findings.
#[derive(Debug, Default)]
pub struct Report {
    findings: BTreeSet<Finding>,
}

impl Report {
    /// Adds an error, which must be fixed. Line 0: the whole file.
    pub fn error(&mut self, path: &str, line: usize, what: impl Into<String>) {
        self.add(path, line, false, what.into());
    }

    /// Adds a warning, which should be looked at.
    pub fn warning(&mut self, path: &str, line: usize, what: impl Into<String>) {
        self.add(path, line, true, what.into());
    }

    fn add(&mut self, path: &str, line: usize, warning: bool, what: String) {
        self.findings.insert(Finding { path: path.to_string(), line, warning, what });
    }

    /// The number of errors.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| !finding.warning).count()
    }

    /// Errors as `path:line: what`, for the rules' own tests.
    #[cfg(test)]
    pub fn lines(&self) -> Vec<String> {
        let errors = self.findings.iter().filter(|finding| !finding.warning);
        errors.map(ToString::to_string).collect()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.what)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let kind = if finding.warning { "warning" } else { "error" };
            writeln!(f, "{kind}: {finding}")?;
        }
        let errors = self.errors();
        write!(f, "tidy: {errors} errors, {} warnings", self.findings.len() - errors)
    }
}
