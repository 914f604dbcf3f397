//! `aquifer audit`: whether the lines of an audit are the chain that was written. No daemon is
//! asked.

use std::path::PathBuf;

use aquifer_audit::verify;
use aquifer_cli::{Failure, Output};
use clap::Subcommand;
use serde_json::json;

/// Acts on audit lines.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Say where the chain of lines is broken first, if it is.
    Verify {
        /// Files of lines, the oldest first.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// Verifies files.
pub(crate) fn audit(output: Output, command: AuditCommand) -> Result<(), Failure> {
    let AuditCommand::Verify { files } = command;
    let found = verify(&files).map_err(|broken| Failure::failed(format!("broken: {broken}")))?;
    let answer = json!({
        "lines": found.lines,
        "first": found.first,
        "last": found.last,
        "sum": found.sum,
        "dropped": found.dropped,
    });
    output.answer(&answer, |_| {
        let mut text = format!(
            "{} lines, {} to {}: no link is broken\nthe last one has the sum {}\n",
            found.lines, found.first, found.last, found.sum
        );
        if found.first > 1 {
            text.push_str("lines before these are in another file\n");
        }
        if found.dropped > 0 {
            text.push_str(&format!("{} lines found no room, as lines say here\n", found.dropped));
        }
        text
    })
}
