//! What can go wrong in the harness: few kinds, each with the words needed to act on it.
//!
//! A finding about the server under test is [`Error::Mismatch`]; everything else is trouble of the
//! harness, the machine or a program it ran.

use std::path::Path;
use std::time::Duration;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a harness call did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, with the path or program.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A program that the harness runs is not installed.
    #[error("{tool} is not installed; run: scripts/setup-deps.sh {group}")]
    MissingTool {
        /// The program's name.
        tool: String,
        /// The package group of `scripts/setup-deps.sh` that has it.
        group: &'static str,
    },
    /// A program ended with a failure, or too early.
    #[error("{what} failed: {said}")]
    Failed {
        /// The program or step, with its exit status.
        what: String,
        /// The end of what it printed.
        said: String,
    },
    /// Something did not happen in time.
    #[error("{what}: not within {limit:?}; last output: {said}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// The end of what the other side had printed.
        said: String,
    },
    /// Bytes from the guest, a tool or a file of the system are not in the expected form.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The server under test is wrong: content, attribute or status is not what it must be.
    #[error("mismatch: {0}")]
    Mismatch(String),
}

impl Error {
    /// Maps an I/O error to [`Error::Io`], with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// As [`Error::io`], for a call on `path`.
    pub fn at(verb: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        Self::io(format!("{verb} {}", path.display()))
    }
}
