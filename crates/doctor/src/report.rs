//! Findings, replays, and the report that is made of them.

use std::fmt;
use std::fmt::Write;

use aquifer_api::{Problem, Severity};
use serde::Serialize;

use crate::codes::Code;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It is as it should be.
    Ok,
    /// Good to know.
    Note,
    /// It works, and somebody should look.
    Warning,
    /// A hypervisor cannot work so.
    Error,
}

impl Level {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

impl From<Severity> for Level {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Info => Level::Note,
            Severity::Warning => Level::Warning,
            Severity::Error => Level::Error,
        }
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// Kind of the finding: a word that stays.
    pub code: String,
    /// Description of what was found, in a sentence.
    pub what: String,
    /// The command that mends it, or the next one to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The section of the documentation that says more, of a pool's problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub see: Option<String>,
}

impl Finding {
    /// One of these.
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Self {
        let (level, code) = (code.level, code.word.to_string());
        Finding { level, code, what: what.into(), command: None, see: None }
    }

    /// A problem that the daemon knows, in these words.
    pub(crate) fn of(problem: &Problem, what: String) -> Self {
        let (level, code) = (problem.severity.into(), problem.code.clone());
        let (command, see) = (problem.action.clone(), problem.see.clone());
        Finding { level, code, what, command, see }
    }

    /// With the command that mends it.
    pub(crate) fn mend(self, command: impl Into<String>) -> Self {
        Finding { command: Some(command.into()), ..self }
    }
}

/// One step of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Name of the step, in the words of the protocol.
    pub name: String,
    /// Microseconds that it took.
    pub took_us: u64,
    /// Why it failed; `None` if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Actions of one hypervisor's client, done at one export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// Name of the client.
    pub client: &'static str,
    /// The export's path.
    pub path: String,
    /// Its steps, in their order, up to the one that failed.
    pub steps: Vec<Step>,
}

impl Replay {
    /// The step that failed.
    #[must_use]
    pub fn failed(&self) -> Option<&Step> {
        self.steps.iter().find(|step| step.error.is_some())
    }

    /// Microseconds that all steps took.
    #[must_use]
    pub fn took_us(&self) -> u64 {
        self.steps.iter().map(|step| step.took_us).sum()
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The server.
    pub server: String,
    /// The worst first.
    pub findings: Vec<Finding>,
    /// Replays of clients that were done.
    pub replays: Vec<Replay>,
}

impl Report {
    pub(crate) fn add(&mut self, finding: Finding) {
        // The same may be met at several exports.
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Whether a hypervisor can work with the server as it is.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.findings.iter().all(|finding| finding.level < Level::Error)
    }

    /// The report for people; `verbose`: with each step, and what is as it should be.
    #[must_use]
    pub fn text(&self, verbose: bool) -> String {
        let mut text = format!("server: {}\n", self.server);
        for replay in &self.replays {
            let Replay { client, path, steps } = replay;
            let outcome = match replay.failed() {
                Some(failed) => format!("failed at {}", failed.name),
                None => "ok".to_string(),
            };
            let (count, took) = (steps.len(), Milliseconds(replay.took_us()));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{client:<8} {path}: {count} steps, {took} ms, {outcome}");
            for step in steps.iter().filter(|_| verbose) {
                let outcome = step.error.as_deref().unwrap_or("ok");
                let took = Milliseconds(step.took_us).to_string();
                let _ = writeln!(text, "  {took:>8} ms  {}: {outcome}", step.name);
            }
        }
        for Finding { level, code, what, command, see } in &self.findings {
            // What is well and has a next command is advice.
            if *level == Level::Ok && command.is_none() && !verbose {
                continue;
            }
            let _ = writeln!(text, "{:<8} {code}: {what}", level.word());
            if let Some(command) = command {
                let _ = writeln!(text, "         {command}");
            }
            if let Some(see) = see {
                let _ = writeln!(text, "         see: {see}");
            }
        }
        let count = |level| self.findings.iter().filter(|it| it.level == level).count();
        let (errors, warnings) = (count(Level::Error), count(Level::Warning));
        let _ = writeln!(text, "errors: {errors}, warnings: {warnings}");
        text
    }
}

/// Microseconds as milliseconds with two decimals.
struct Milliseconds(u64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;

    #[test]
    fn a_report_names_what_failed_and_what_mends_it() {
        let step = |name: &str, error: Option<&str>| Step {
            name: name.into(),
            took_us: 1_250,
            error: error.map(str::to_string),
        };
        let steps = vec![step("MNT", None), step("MKDIR", Some("NFS3ERR_ACCES"))];
        let mut report = Report { server: "store1".into(), ..Report::default() };
        report.replays.push(Replay { client: "xcp-ng", path: "/tank/vms".into(), steps });
        report.add(Finding::new(codes::EXPORT_READY, "fine"));
        assert!(report.is_well());
        report.add(Finding::new(codes::NO_POOL, "no pool").mend("aquifer pool create"));
        report.add(Finding::new(codes::NO_POOL, "no pool").mend("aquifer pool create"));
        assert!(!report.is_well());
        assert_eq!(
            report.text(false),
            "server: store1\n\
             xcp-ng   /tank/vms: 2 steps, 2.50 ms, failed at MKDIR\n\
             error    no-pool: no pool\n         aquifer pool create\n\
             errors: 1, warnings: 0\n"
        );
        let verbose = report.text(true);
        assert!(verbose.contains("1.25 ms  MKDIR: NFS3ERR_ACCES\n"), "{verbose}");
        assert!(verbose.contains("ok       export-ready: fine\n"), "{verbose}");
    }
}
