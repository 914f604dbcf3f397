//! A daemon with a directory of its own, and commands that ask it.
//!
//! What holds: a daemon ends with its test. It is killed when it is dropped, and by the kernel when
//! the tests end in any other way.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use aquifer_rig::process::Invocation;
pub use aquifer_rig::process::Process as Daemon;
use serde_json::Value;
use tempfile::TempDir;

pub const AQUIFER: &str = env!("CARGO_BIN_EXE_aquifer");
pub const MIB: u64 = 1 << 20;
/// For the end of a daemon.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A directory for one test: images, socket, state, log.
pub struct Place {
    dir: TempDir,
}

/// The output of a command.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// As the command line takes it.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }

    /// A sparse image file of the smallest size.
    pub fn image(&self, name: &str) -> String {
        self.sized_image(name, 256 * MIB)
    }

    pub fn sized_image(&self, name: &str, bytes: u64) -> String {
        fs::File::create(self.path(name)).unwrap().set_len(bytes).unwrap();
        self.text(name)
    }

    pub fn write(&self, name: &str, at: u64, bytes: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(self.path(name)).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    pub fn socket(&self) -> PathBuf {
        self.path("run/aquifer.sock")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Starts a daemon that listens on any port, and waits until its pools are in service.
    pub fn serve(&self) -> Daemon {
        self.spawn_serving(&[])
    }

    /// As `serve`, with more on its command line.
    pub fn spawn_serving(&self, words: &[&str]) -> Daemon {
        let daemon = self.spawn_as("state", &[], &[], words);
        self.wait_for(|| {
            let said = self.ask(&["pool", "list", "--json"]);
            said.code == 0 && !said.out.contains("IMPORTING")
        });
        daemon
    }

    #[track_caller]
    pub fn wait_for(&self, holds: impl Fn() -> bool) {
        let limit = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < limit, "waited for 30 s; the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a daemon on this state directory, and does not wait.
    pub fn spawn(&self, state: &str) -> Daemon {
        self.spawn_with(state, &[])
    }

    /// As `spawn`, with more in its environment.
    pub fn spawn_with(&self, state: &str, environment: &[(&str, String)]) -> Daemon {
        self.spawn_as(state, environment, &[], &[])
    }

    /// As `spawn`, with options before the program (for setpriv) and behind `serve`.
    pub fn spawn_as(
        &self,
        state: &str,
        environment: &[(&str, String)],
        privileges: &[&str],
        options: &[&str],
    ) -> Daemon {
        let mut words = vec!["--nfs-addr", "127.0.0.1:0", "--no-portmap"];
        if !options.contains(&"--memory") {
            words.extend(["--memory", "64M"]);
        }
        // A test that takes a disk away for good does not wait for it as people do.
        if !options.contains(&"--wait-for-disks") && !options.contains(&"--config") {
            words.extend(["--wait-for-disks", "10"]);
        }
        let program = match privileges {
            [] => Invocation::new(AQUIFER),
            // Who changes the user loses that signal.
            _ => Invocation::new("setpriv")
                .args(["--pdeathsig", "KILL"])
                .args(privileges)
                .arg(AQUIFER),
        };
        let serve = program.arg("serve").arg("--api-socket").arg(self.socket());
        let serve = serve.arg("--state-dir").arg(self.path(state)).args(words).args(options);
        let set = |serve: Invocation, (name, value): &(&str, String)| serve.env(name, value);
        let serve = environment.iter().fold(serve.env_remove("RUST_LOG"), set);
        serve.spawn(&self.path("log")).unwrap()
    }

    /// Head and body of the API's answer to a GET.
    pub fn get(&self, path: &str) -> (String, String) {
        self.request(&format!("GET {path} HTTP/1.0\r\nHost: aquifer\r\n\r\n"))
    }

    /// Head and body of the API's answer to a POST.
    pub fn post(&self, path: &str, body: &Value) -> (String, String) {
        let body = body.to_string();
        self.request(&format!(
            "POST {path} HTTP/1.0\r\nHost: aquifer\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    fn request(&self, text: &str) -> (String, String) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_string(), body.to_string())
    }

    /// Runs a command.
    pub fn ask(&self, words: &[&str]) -> Said {
        self.ask_with_input(words, "")
    }

    pub fn ask_with_input(&self, words: &[&str], input: &str) -> Said {
        let typed = self.path("typed");
        fs::write(&typed, input).unwrap();
        let mut command = self.command(words);
        let output = command.stdin(fs::File::open(typed).unwrap()).output().unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// A command of ours, which asks this daemon.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(AQUIFER);
        command.arg("--api-socket").arg(self.socket()).args(words).current_dir(self.dir.path());
        command
    }

    /// Runs a command that must work; returns its output.
    #[track_caller]
    pub fn must(&self, words: &[&str]) -> String {
        let said = self.ask(words);
        assert_eq!(said.code, 0, "{words:?}: {said:?}\n{}", self.log());
        said.out
    }

    #[track_caller]
    pub fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.must(&words)).unwrap()
    }

    /// Runs a command that must fail, with exit code 1 and this message.
    #[track_caller]
    pub fn refuses(&self, words: &[&str], message: &str) {
        let said = self.ask(words);
        assert_eq!(said.err, format!("aquifer: {message}\n"), "{words:?}");
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{words:?}");
    }

    /// The state that `pool list` shows of a pool.
    #[track_caller]
    pub fn health(&self, pool: &str) -> String {
        let pools = self.json(&["pool", "list", pool]);
        pools[0]["health"].as_str().unwrap().to_string()
    }

    /// The pool's state, the states of its disks, in order.
    #[track_caller]
    pub fn states(&self, pool: &str) -> (String, Vec<String>) {
        let status = self.json(&["pool", "status", pool]);
        let vdevs = status["vdevs"].as_array().unwrap().iter();
        let leaves = vdevs.flat_map(|vdev| vdev["leaves"].as_array().unwrap());
        let state = |value: &Value| value.as_str().unwrap().to_string();
        (state(&status["health"]), leaves.map(|leaf| state(&leaf["state"])).collect())
    }
}

/// Whether a tool is there; says so if not.
pub fn has(tool: &str) -> bool {
    let there = Invocation::tool(tool, "build").is_ok();
    if !there {
        eprintln!("SKIPPED: no {tool} here");
    }
    there
}

/// A loop device, detached when it is dropped.
pub struct Loop(pub String);

impl Loop {
    /// `None`, and a message, where there are none.
    pub fn new(image: &str) -> Option<Loop> {
        if !has("losetup") {
            return None;
        }
        let made = Command::new("losetup").args(["--find", "--show", image]).output().unwrap();
        if !made.status.success() {
            eprintln!("SKIPPED: no loop devices here: {made:?}");
            return None;
        }
        Some(Loop(String::from_utf8(made.stdout).unwrap().trim().to_string()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}
