//! A copy of the workspace that may be changed, and cargo's messages about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::programs;

/// The copy, in `target/mutants`. Unchanged files are not written again, so a second build is
/// short.
#[derive(Debug)]
pub struct Workspace {
    /// The directory of copy, build and reports.
    pub directory: PathBuf,
    tree: PathBuf,
    root: PathBuf,
    rooms: Vec<String>,
    /// Sources of these crates: mutants are woven into them, and only the weaving writes them.
    pub sources: Vec<String>,
}

/// An error of the compiler.
#[derive(Debug)]
pub struct Refusal {
    /// The message.
    pub message: String,
    /// Sources and lines, the most specific first.
    pub places: Vec<(String, RangeInclusive<usize>)>,
}

/// Test programs by crate and name; `lib` are the unit tests.
pub type Programs = BTreeMap<(String, String), PathBuf>;

impl Workspace {
    /// Copies the workspace at `root`; these crates will be built.
    ///
    /// # Errors
    /// No git, or files that cannot be copied.
    pub fn copy(root: &Path, rooms: &[&str]) -> Result<Workspace, String> {
        let directory = root.join("target/mutants");
        let rooms: Vec<String> = rooms.iter().map(|room| room.to_string()).collect();
        let (tree, root) = (directory.join("tree"), root.to_path_buf());
        let mut copy = Workspace { tree, root, directory, rooms, sources: Vec::new() };
        let mut files = BTreeSet::new();
        for file in listed(&copy.root)? {
            let is_in = |room: &String| file.starts_with(&format!("crates/{room}/src/"));
            if copy.rooms.iter().any(is_in) && file.ends_with(".rs") {
                files.insert(copy.tree.join(&file));
                copy.sources.push(file);
                continue;
            }
            let root = &copy.root;
            let bytes = fs::read(root.join(&file)).map_err(|error| format!("{file}: {error}"))?;
            copy.write_bytes(&file, &bytes)?;
            files.insert(copy.tree.join(file));
        }
        remove_others(&copy.tree, &files)?;
        Ok(copy)
    }

    /// A source as it is in the workspace itself.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn original(&self, file: &str) -> Result<String, String> {
        fs::read_to_string(self.root.join(file)).map_err(|error| format!("{file}: {error}"))
    }

    /// Writes a source into the copy.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, file: &str, text: &str) -> Result<(), String> {
        self.write_bytes(file, text.as_bytes())
    }

    fn write_bytes(&self, file: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.tree.join(file);
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(&self.tree);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, bytes));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The compiler's errors in these crates; empty if they build.
    ///
    /// # Errors
    /// Cargo fails for another reason.
    pub fn check(&self, rooms: &[&str]) -> Result<Vec<Refusal>, String> {
        let (built, messages) = self.cargo(&["check"], rooms)?;
        let refusals: Vec<Refusal> = messages.iter().filter_map(refusal).collect();
        match (built, refusals.is_empty()) {
            (false, true) => Err("cargo check failed without a reason".to_string()),
            _ => Ok(refusals),
        }
    }

    /// Builds all tests.
    ///
    /// # Errors
    /// They do not build.
    pub fn tests(&self) -> Result<Programs, String> {
        let rooms: Vec<&str> = self.rooms.iter().map(String::as_str).collect();
        let (built, messages) = self.cargo(&["test", "--no-run", "--tests"], &rooms)?;
        if !built {
            let refusals = messages.iter().filter_map(refusal).map(|refusal| refusal.message);
            return Err(format!("tests do not build: {:?}", refusals.collect::<Vec<_>>()));
        }
        let programs = messages.iter().filter_map(|message| programs::program(&self.tree, message));
        Ok(programs.map(|program| ((program.room, program.name), program.executable)).collect())
    }

    /// The directory in which the tests of a crate run.
    pub fn directory_of(&self, room: &str) -> PathBuf {
        self.tree.join("crates").join(room)
    }

    fn cargo(&self, what: &[&str], rooms: &[&str]) -> Result<(bool, Vec<Value>), String> {
        let mut command = programs::cargo_command();
        command.args(what).args(["--quiet", "--message-format=json"]);
        command.args(rooms.iter().flat_map(|room| ["-p".to_string(), format!("aquifer-{room}")]));
        command.env("CARGO_TARGET_DIR", self.directory.join("build"));
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("RUSTFLAGS", "--cap-lints=warn");
        // The check runs again and again, each time with a little less; tests are built once.
        command.env("CARGO_INCREMENTAL", if what == ["check"] { "1" } else { "0" });
        programs::cargo(&self.tree, &mut command)
    }
}

/// The files that git tracks or would add.
fn listed(root: &Path) -> Result<Vec<String>, String> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    let text = String::from_utf8(output.stdout).map_err(|error| format!("git: {error}"))?;
    let files = text.split('\0').filter(|file| root.join(file).is_file());
    Ok(files.map(str::to_string).collect())
}

fn remove_others(directory: &Path, files: &BTreeSet<PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            remove_others(&path, files)?;
        } else if !files.contains(&path) && !path.ends_with("Cargo.lock") {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

fn refusal(message: &Value) -> Option<Refusal> {
    let message = message.get("message").filter(|message| message["level"] == "error")?;
    let mut places = Vec::new();
    for span in message["spans"].as_array()? {
        let line = |end: &str| usize::try_from(span[end].as_u64()?).ok();
        let file = span["file_name"].as_str()?.to_string();
        places.push((span["is_primary"] != true, (file, line("line_start")?..=line("line_end")?)));
    }
    places.sort_by_key(|(secondary, _)| *secondary);
    let places: Vec<_> = places.into_iter().map(|(_, place)| place).collect();
    // The last message only counts the errors before it.
    let text = message["rendered"].as_str().unwrap_or_default().to_string();
    (!places.is_empty()).then_some(Refusal { message: text, places })
}
