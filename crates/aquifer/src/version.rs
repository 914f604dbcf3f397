//! `aquifer version`: what was built, and what runs.

use aquifer_api::client::ClientError;
use aquifer_api::{ApiError, DaemonQuery};
use aquifer_cli::{Failure, Options, Output, client, tell};
use serde_json::{Value, json};

/// Version of a program, with the commit that it was built from.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    version: String,
    /// The commit that it was built from, if that is known.
    commit: Option<String>,
}

/// The commit that this program was built from, if that is known.
pub(crate) fn commit() -> Option<&'static str> {
    Some(env!("AQUIFER_BUILT_FROM")).filter(|commit| !commit.is_empty())
}

/// Prints what this program is, and the daemon. Fails if the daemon does not answer.
pub(crate) async fn version(options: &Options) -> Result<(), Failure> {
    let (client, output) = (client(&options.api)?, Output::of(options));
    let version = env!("CARGO_PKG_VERSION").to_string();
    let program = Version { version, commit: commit().map(str::to_string) };
    let daemon = match client.ask(&DaemonQuery).await {
        Ok(daemon) => Version { version: daemon.version, commit: daemon.commit },
        Err(error) => {
            let error = match error {
                ClientError::Api(error) => error,
                other => ApiError::failed(other.to_string()),
            };
            let answer = json!({ "program": program.json(), "daemon": null, "error": error });
            output.answer(&answer, |_| program.line("aquifer"))?;
            // The answer in JSON has the error.
            return Err(if output.json { Failure::Told } else { Failure::Failed(error) });
        }
    };
    let answer = json!({ "program": program.json(), "daemon": daemon.json() });
    output.answer(&answer, |_| program.line("aquifer") + &daemon.line("daemon"))?;
    if daemon != program {
        let note = "the daemon runs another version; `systemctl restart aquifer` on its machine \
                    starts the one that is installed there";
        tell(output, &[note.into()]);
    }
    Ok(())
}

impl Version {
    fn line(&self, name: &str) -> String {
        let version = &self.version;
        match &self.commit {
            Some(commit) => format!("{name} {version} ({commit})\n"),
            None => format!("{name} {version}\n"),
        }
    }

    fn json(&self) -> Value {
        json!({ "version": self.version, "commit": self.commit })
    }
}
