//! Why a daemon does not serve.

use std::fmt::Display;

/// It does not serve.
#[derive(Debug)]
pub enum Failure {
    /// The configuration or the command line asks for what cannot be.
    Usage(String),
    /// It was tried.
    Failed(String),
}

impl Failure {
    /// It was tried.
    pub fn failed(message: impl Display) -> Failure {
        Failure::Failed(message.to_string())
    }

    /// Makes a [`Failure::Usage`]: the configuration or the command line asks for what cannot be.
    pub fn usage(message: impl Display) -> Failure {
        Failure::Usage(message.to_string())
    }
}
