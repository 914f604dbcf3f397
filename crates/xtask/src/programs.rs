//! The test programs that cargo built, from its messages.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A program of tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The directory of its crate below `crates`.
    pub room: String,
    /// Its name; `lib` are the unit tests of a library.
    pub name: String,
    /// Where it lies.
    pub executable: PathBuf,
}

/// Runs cargo at `root` and takes its messages; whether it succeeded, and what it said.
///
/// # Errors
/// Cargo does not run, or does not speak JSON.
pub fn cargo(root: &Path, command: &mut Command) -> Result<(bool, Vec<Value>), String> {
    command.current_dir(root);
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    Ok((output.status.success(), messages.map_err(|error| format!("cargo: {error}"))?))
}

/// A cargo command.
pub fn cargo_command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The program that a message tells of, if it tells of one.
pub fn program(root: &Path, message: &Value) -> Option<Program> {
    let is_test = message.pointer("/profile/test")? == true;
    let executable = message.get("executable")?.as_str().filter(|_| is_test)?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let room = manifest.strip_prefix(root.join("crates")).ok()?.parent()?.to_str()?.to_string();
    let is_library = message.pointer("/target/kind/0")? == "lib";
    let name = if is_library { "lib" } else { message.pointer("/target/name")?.as_str()? };
    Some(Program { room, name: name.to_string(), executable: PathBuf::from(executable) })
}
