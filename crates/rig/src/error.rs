//! Errors of the harness: few kinds, each with the words needed to act on it.
//!
//! A finding about the server under test is [`Error::Mismatch`]; every other error is a problem of
//! the harness, the machine or a program that it ran.

use std::path::Path;
use std::time::Duration;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call of the harness failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The action, with the path or program.
        what: String,
        /// The system's error.
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
    /// An event did not happen in time.
    #[error("{what}: not within {limit:?}; last output: {said}")]
    Timeout {
        /// The expected event.
        what: String,
        /// The time limit.
        limit: Duration,
        /// The end of the other side's output.
        said: String,
    },
    /// Bytes from the guest, a tool or a file of the system are not in the expected form.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The server under test is wrong: its content, attribute or status is not the expected one.
    #[error("mismatch: {0}")]
    Mismatch(String),
}

/// A client's call, or its load, failed: a test that waits for that asks why, not where.
#[cfg(feature = "wire")]
impl From<aquifer_client::Error> for Error {
    fn from(error: aquifer_client::Error) -> Self {
        use aquifer_client::Error as Call;
        match error {
            Call::Io { what, source } => Error::Io { what, source },
            Call::Failed { what, said } => Error::Failed { what, said },
            Call::Malformed(what) => Error::Malformed(what),
            Call::Mismatch(what) => Error::Mismatch(what),
        }
    }
}

impl Error {
    /// Maps an I/O error to [`Error::Io`], with the action.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// As [`Error::io`], for a call on `path`.
    pub fn at(verb: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        Self::io(format!("{verb} {}", path.display()))
    }
}
