//! How a command ends when it fails.

use std::fmt::Display;
use std::process::ExitCode;

use aquifer_api::client::ClientError;
use aquifer_api::{ApiError, ErrorKind};

use aquifer_api::shown::lines_shown;

/// A command failed.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something impossible: exit code 2.
    Usage(String),
    /// It was tried, or refused: exit code 1. It waits for a second person: exit code 4.
    Failed(ApiError),
    /// It found what it should look for, and has printed it: exit code 1.
    Told,
    /// It found a pool with a problem, and has printed it: exit code 3. Monitoring must tell that
    /// from a question that could not be asked.
    Unhealthy,
}

impl Failure {
    /// A failure of this program's own.
    pub fn failed(message: impl Display) -> Failure {
        Failure::Failed(ApiError::failed(message.to_string()))
    }

    /// A wrong command line.
    pub fn usage(message: impl Display) -> Failure {
        Failure::Usage(message.to_string())
    }

    /// Prints it: on stderr for people, on stdout for programs, which expect JSON there.
    pub fn report(self, json: bool) -> ExitCode {
        let (error, code) = match self {
            Failure::Told => return ExitCode::from(1),
            Failure::Unhealthy => return ExitCode::from(3),
            Failure::Usage(message) => (ApiError::new(ErrorKind::Invalid, message), 2),
            Failure::Failed(error) if error.kind == ErrorKind::NeedsSecond => (error, 4),
            Failure::Failed(error) => (error, 1),
        };
        if json {
            println!("{}", serde_json::json!({ "error": error }));
        } else {
            eprintln!("aquifer: {}", lines_shown(&error.to_string()));
        }
        ExitCode::from(code)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Api(error) => Failure::Failed(error),
            other => Failure::failed(other),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Failure::Failed(error)
    }
}
