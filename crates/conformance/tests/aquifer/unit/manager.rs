//! systemd itself, in namespaces of its own, with one unit.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use aquifer_conformance::{Error, Result};
use aquifer_rig::netns::NetNs;
use aquifer_rig::process::{Invocation, Process};
use aquifer_rig::work::Scratch;

use super::service::ID;
use crate::place::{SOON, text};

/// The daemon's log, as a path in the manager's mounts.
const LOG: &str = "/run/service.log";

/// A running systemd; killed when dropped, with everything that it started.
pub struct Manager {
    process: Option<Process>,
    init: String,
    group: PathBuf,
}

impl Manager {
    /// Starts systemd with the shipped unit, for `program` and with `lib` for `/var/lib`. `None`
    /// where control groups cannot be made.
    pub fn boot(
        netns: &NetNs,
        scratch: &Scratch,
        program: &Path,
        lib: &Path,
    ) -> Result<Option<Manager>> {
        let systemd = Path::new("/lib/systemd/systemd");
        if !systemd.exists() {
            return Err(Error::MissingTool { tool: "systemd".into(), group: "service" });
        }
        let etc = scratch.dir("etc")?;
        for (name, line) in [
            ("passwd", format!("aquifer:x:{ID}:{ID}::/:/usr/sbin/nologin\n")),
            ("group", format!("aquifer:x:{ID}:\n")),
        ] {
            let system = fs::read_to_string(Path::new("/etc").join(name)).unwrap_or_default();
            let others = system.lines().filter(|line| !line.starts_with("aquifer:"));
            let others: String = others.map(|line| format!("{line}\n")).collect();
            write(&etc.join(name), &format!("{others}{line}"))?;
        }
        let unit = scratch.join("aquifer.service");
        write(&unit, &unit_text())?;
        let boot = scratch.join("boot.sh");
        write(&boot, include_str!("boot.sh"))?;
        let words = [program, lib, etc.as_path(), unit.as_path()].map(text);
        Manager::start(netns, scratch, &boot, &words)
    }

    /// Starts a script that becomes systemd, as the first process in namespaces of its own. `None`
    /// where control groups cannot be made.
    pub fn start(
        netns: &NetNs,
        scratch: &Scratch,
        script: &Path,
        words: &[String],
    ) -> Result<Option<Manager>> {
        let Some(group) = make_group() else {
            eprintln!("SKIPPED: no control groups (version 2) can be made here");
            return Ok(None);
        };
        let line = format!(
            "echo $$ >{}/cgroup.procs && exec unshare --mount --pid --uts --ipc --cgroup --fork \
             --kill-child --propagation private -- sh {} {}",
            text(&group),
            text(script),
            words.join(" ")
        );
        let start = Invocation::new("sh").args(["-c", &line]).inside(netns);
        let process = start.spawn(&scratch.join("systemd.log"))?;
        let mut manager = Manager { process: Some(process), init: String::new(), group };
        manager.init = manager.wait_for("systemd to begin", |manager| {
            let pid = manager.process.as_ref()?.pid();
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
            children.split_whitespace().next().map(str::to_owned)
        })?;
        Ok(Some(manager))
    }

    /// Waits until the unit's daemon has reported that it is ready; returns its process id.
    pub fn ready(&self) -> Result<String> {
        self.wait_for("the unit to be ready", |manager| {
            let shown = manager.systemctl(&["show", "-p", "ActiveState,MainPID", "aquifer"]);
            let shown = shown.ok()?;
            let pid = shown.lines().find_map(|line| line.strip_prefix("MainPID="))?.to_owned();
            shown.contains("ActiveState=active").then_some(pid)
        })
    }

    /// A process in the network of the manager.
    pub fn pid(&self) -> Result<u32> {
        self.process.as_ref().map(Process::pid).ok_or_else(|| Error::Malformed("it ended".into()))
    }

    /// The output of `systemctl WORDS`.
    pub fn systemctl(&self, words: &[&str]) -> Result<String> {
        Ok(self.inside("systemctl").args(words).check(SOON)?.text())
    }

    /// A program among the manager's processes.
    pub fn inside(&self, program: &str) -> Invocation {
        let nsenter = Invocation::new("nsenter").args(["-t", &self.init, "-m", "-n", "-p", "--"]);
        nsenter.arg(program)
    }

    /// The daemon's log.
    pub fn log(&self) -> Result<String> {
        Ok(self.inside("cat").arg(LOG).run(SOON)?.text())
    }

    /// Waits until `look` finds something.
    pub fn wait_for<T>(&self, what: &str, look: impl Fn(&Manager) -> Option<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            let runs = self.process.as_ref().is_some_and(Process::is_running);
            if !runs || start.elapsed() > SOON {
                let said = self.process.as_ref().map(Process::said).unwrap_or_default();
                return Err(Error::Timeout { what: what.into(), limit: SOON, said });
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // Its children go with it; then their groups can be removed.
        self.process = None;
        let start = Instant::now();
        while self.group.exists() && start.elapsed() < SOON {
            let rmdir = ["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"];
            let _ = Invocation::new("find").arg(&self.group).args(rmdir).run(SOON);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Only the shipped unit, with its program at the path that `boot.sh` uses, and its log in a file.
fn unit_text() -> String {
    let shipped = include_str!("../../../../../dist/aquifer.service");
    let lines = shipped
        .lines()
        .filter(|line| !line.starts_with("After=") && *line != "Wants=network-online.target");
    let lines = lines.map(|line| match line {
        "[Unit]" => "[Unit]\nDefaultDependencies=no".to_string(),
        "[Service]" => format!("[Service]\nStandardError=append:{LOG}"),
        line => line.replace("/usr/bin/aquifer", "/run/program"),
    });
    lines.map(|line| line + "\n").collect()
}

/// A control group of our own, in the hierarchy of version 2.
fn make_group() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let root = words.find_map(|line| match line.as_slice() {
        [_, path, "cgroup2", ..] => Some(PathBuf::from(path)),
        _ => None,
    })?;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let group = root.join(format!("aquifer-unit-{}-{number}", std::process::id()));
    fs::create_dir(&group).ok().map(|()| group)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::at("write", path))
}
