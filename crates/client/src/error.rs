//! Why a call, or a load, failed.

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The action.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The server did not do it.
    #[error("{what} failed: {said}")]
    Failed {
        /// The procedure.
        what: String,
        /// Its status.
        said: String,
    },
    /// The server's bytes are not in the expected form.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The server is wrong: its content or attribute is not the expected one.
    #[error("mismatch: {0}")]
    Mismatch(String),
}

impl Error {
    /// Maps an I/O error to [`Error::Io`], with the action.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
