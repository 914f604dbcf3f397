//! The unit for systemd: the rights that it removes, and that the daemon works with the remaining
//! ones.
//!
//! There are two ways. systemd itself starts the unit, in namespaces of its own, where control
//! groups can be made ([`manager`]). Elsewhere the test sets the unit's rights by hand
//! ([`service`]): user, groups, capabilities, limits, mounts. There it compares the filters of
//! system calls with the daemon's calls. Two things are not tested: the calls of other versions of
//! the C library, and the unit's dependencies on other units, which are left out.

pub mod manager;
mod service;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use aquifer_conformance::clients::Clients;
use aquifer_conformance::{Error, Result};
use aquifer_rig::netns::{NetNs, wait_for_listener};
use aquifer_rig::process::{Invocation, Process};
use aquifer_rig::server::aquifer_program;
use aquifer_rig::work::{Scratch, WorkDir};

use crate::place::{MIB, SOON, text};
use manager::Manager;
use service::{ID, Service};

/// Highest result of `systemd-analyze security`, in tenths.
const EXPOSURE_MAX: &str = "30";
/// The default.
const SOCKET: &str = "/run/aquifer/aquifer.sock";

#[test]
fn unit_exposure_is_small_and_every_setting_is_known() -> Result<()> {
    assert!(Service::shipped().unknown().is_empty(), "{:?}", Service::shipped().unknown());
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/aquifer.service");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let words = ["security", "--offline=yes", "--no-pager", &threshold, unit];
    let said = Invocation::tool("systemd-analyze", "service")?.args(words).run(SOON)?;
    eprintln!("{}", said.text().lines().last().unwrap_or_default());
    assert!(said.status.success(), "{}", said.said());
    Ok(())
}

/// On a block device of group disk, with an rpcbind that accepts registrations only from the
/// superuser, or from ports below 1024.
#[test]
fn unit_rights_serve_a_block_device_beside_rpcbind() -> Result<()> {
    let unit = Unit::prepare("unit-device")?;
    Invocation::tool("rpcbind", "clients")?.arg("-w").inside(&unit.netns).check(SOON)?;
    let Some(_device) = unit.device()? else { return Ok(()) };
    let daemon = unit.start("")?;
    unit.must(&["pool", "create", "tank", "/run/disk"])?;
    unit.write_and_read(&daemon, "a")?;
    let listed = unit.clients().rpcinfo(&["-s", "127.0.0.1"])?.text();
    assert!(listed.contains("nlockmgr") && listed.contains("100003"), "{listed}");
    assert!(unit.log().contains("portmap=Registered"), "{}", unit.log());
    assert!(daemon.terminate(SOON)?.success(), "{}", unit.log());
    let listed = unit.clients().rpcinfo(&["-s", "127.0.0.1"])?.text();
    assert!(!listed.contains("100003"), "left behind: {listed}");
    Ok(())
}

/// On an image under the state directory, with its own portmapper. The unit's filters must allow
/// every system call.
#[test]
fn unit_rights_serve_an_image_and_calls_stay_in_the_filter() -> Result<()> {
    let unit = Unit::prepare("unit-image")?;
    let image = "/var/lib/aquifer/images/a.img";
    // Without the filter: started, and started again on its pool.
    let daemon = unit.start("")?;
    unit.must(&["pool", "create", "--create-size=512M", "tank", image])?;
    unit.write_and_read(&daemon, "a")?;
    assert!(unit.log().contains("portmap=Own"), "{}", unit.log());
    assert!(daemon.terminate(SOON)?.success(), "{}", unit.log());
    let made = unit.lib().join("aquifer/images/a.img");
    let meta = fs::metadata(&made).map_err(Error::at("look at", &made))?;
    assert_eq!((meta.uid(), meta.mode() & 0o777), (ID, 0o600));

    let daemon = unit.start("strace -D -f -q -s 0 -o /var/lib/aquifer/calls")?;
    unit.must(&["create", "tank/more"])?;
    unit.write_and_read(&daemon, "b")?;
    assert!(daemon.terminate(LATE)?.success(), "{}", unit.log());
    let calls = unit.calls()?;
    judge(&Service::shipped(), &calls)
}

/// systemd itself starts the unit, with all filters, mounts and device rules in force.
#[test]
fn unit_serves_under_systemd_itself() -> Result<()> {
    let unit = Unit::prepare("unit-systemd")?;
    let (program, lib) = (&unit.program, unit.lib());
    // Files left by a daemon that ran as root.
    let state = lib.join("aquifer");
    let left = state.join("host_id");
    fs::write(&left, "00000000000000aa\n").map_err(Error::at("write", &left))?;
    for path in [&left, &state] {
        chown(path, Some(0), Some(0)).map_err(Error::at("give to root", path))?;
    }
    let Some(manager) = Manager::boot(&unit.netns, &unit.scratch, program, &lib)? else {
        return Ok(());
    };
    let device = unit.device()?;
    let pid = manager.ready()?;
    let owner = fs::metadata(&left).map_err(Error::at("look at", &left))?.uid();
    assert_eq!(owner, ID, "systemd gives the state directory to the new user");
    let ask = |words: &[&str]| manager.inside("/run/program").args(words).check(SOON);
    let image = "/var/lib/aquifer/images/a.img";
    ask(&["pool", "create", "--create-size=512M", "tank", image])?;
    if device.is_some() {
        ask(&["pool", "create", "disks", "/run/disk"])?;
    }
    ask(&["create", "-o", "sharenfs=rw", "tank/vms"])?;
    let content = vec![7; MIB as usize];
    let file = unit.scratch.join("file");
    fs::write(&file, &content).map_err(Error::at("write", &file))?;
    let url = "nfs://127.0.0.1/tank/vms/file";
    unit.clients().nfs_cp(&text(&file), url).and_then(done)?;
    assert!(unit.clients().nfs_cat(url)?.stdout == content);
    let log = manager.log()?;
    assert!(log.contains("portmap=Own"), "{log}");
    assert!(!log.contains("io_uring") && !log.contains("ermitted"), "{log}");
    let status = manager.inside("cat").arg(format!("/proc/{pid}/status")).check(SOON)?.text();
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000400"] {
        assert!(status.contains(line), "{status}");
    }
    // Block devices are allowed, and no others.
    let device = "dd if=/dev/kmsg of=/dev/null count=1 iflag=nonblock";
    let outside = manager.inside("sh").args(["-c", device]).run(SOON)?;
    let group = "/sys/fs/cgroup/system.slice/aquifer.service/cgroup.procs";
    let within = manager.inside("sh").args(["-c", &format!("echo $$ >{group} && {device}")]);
    let within = within.run(SOON)?;
    match outside.status.success() {
        true => assert!(within.stderr.contains("not permitted"), "{}", within.said()),
        false => eprintln!("SKIPPED: nobody opens /dev/kmsg here"),
    }
    manager.systemctl(&["stop", "aquifer"])?;
    let ended = manager.systemctl(&["show", "-p", "Result", "aquifer"])?;
    assert_eq!(ended.trim(), "Result=success", "{}", manager.log()?);
    assert!(manager.log()?.contains("pool exported"), "{}", manager.log()?);
    Ok(())
}

/// Compares the daemon's calls with the unit's filters.
fn judge(service: &Service, calls: &str) -> Result<()> {
    let allowed = service.allowed_calls()?;
    let families = service.words("RestrictAddressFamilies");
    assert_eq!(service.value("MemoryDenyWriteExecute"), "true");
    let mut seen = std::collections::BTreeSet::new();
    for line in calls.lines() {
        // `1234  openat(AT_FDCWD, ...) = 3`; other lines continue one, or report a signal.
        let Some((_, call)) = line.split_once(' ') else { continue };
        let Some((name, args)) = call.trim_start().split_once('(') else { continue };
        if !name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        {
            continue;
        }
        seen.insert(name);
        assert!(allowed.contains(name), "the filter denies {line}");
        match name {
            "socket" | "socketpair" => {
                let family = args.split(',').next().unwrap_or_default();
                assert!(families.contains(&family), "a family that is not allowed: {line}");
            }
            "mmap" | "mprotect" | "pkey_mprotect" => {
                let is_both = args.contains("PROT_WRITE") && args.contains("PROT_EXEC");
                assert!(!is_both, "memory to write and to execute: {line}");
            }
            "clone" | "clone3" | "unshare" => {
                assert!(!args.contains("CLONE_NEW"), "a namespace: {line}");
            }
            "personality" | "sched_setscheduler" | "sched_setattr" => {
                panic!("the unit denies {line}")
            }
            _ => {}
        }
    }
    eprintln!("{} system calls, all allowed", seen.len());
    // Otherwise nothing was traced.
    assert!(seen.contains("io_uring_setup") || seen.contains("pwrite64"), "{seen:?}");
    assert!(seen.contains("socket") && seen.contains("mmap"), "{seen:?}");
    Ok(())
}

/// The surroundings of a daemon with the rights of the unit.
struct Unit {
    netns: NetNs,
    program: PathBuf,
    scratch: Scratch,
}

impl Unit {
    fn prepare(name: &str) -> Result<Unit> {
        let scratch = WorkDir::open()?.scratch(name)?;
        let netns = NetNs::new(&scratch)?;
        let unit = Unit { netns, program: aquifer_program()?, scratch };
        // The directories that systemd makes before it starts the command.
        for directory in Service::shipped().words("StateDirectory") {
            let path = unit.scratch.dir(&format!("lib/{directory}"))?;
            let mode = Service::shipped().value("StateDirectoryMode").to_string();
            Invocation::new("chmod").arg(mode).arg(&path).check(SOON)?;
            chown(&path, Some(ID), Some(ID)).map_err(Error::at("give away", &path))?;
        }
        Ok(unit)
    }

    /// A block device `/run/disk`, with the owner that udev gives it.
    fn device(&self) -> Result<Option<Loop>> {
        let Some(device) = Loop::attach(&self.scratch.join("device"))? else { return Ok(None) };
        let numbers = device.numbers()?;
        let node = format!("mknod -m 660 /run/disk b {numbers} && chgrp disk /run/disk");
        Invocation::new("sh").args(["-c", &node]).inside(&self.netns).check(SOON)?;
        Ok(Some(device))
    }

    fn lib(&self) -> PathBuf {
        self.scratch.join("lib")
    }

    /// Starts the unit's command, and waits until its pools are in service.
    fn start(&self, tracer: &str) -> Result<Process> {
        let line = Service::shipped().start_line(&text(&self.program), &text(&self.lib()), tracer);
        let words = ["--mount", "--propagation", "private", "--", "sh", "-c", &line];
        let unshare = Invocation::tool("unshare", "guest")?.args(words).env_remove("RUST_LOG");
        let daemon = unshare.inside(&self.netns).spawn(&self.scratch.join("log"))?;
        let start = Instant::now();
        let is_ready = || {
            let said = self.aquifer(&["pool", "list"]).run(SOON)?;
            Ok::<_, Error>(said.status.success() && !said.text().contains("IMPORTING"))
        };
        while !is_ready()? {
            if !daemon.is_running() || start.elapsed() > LATE {
                return Err(Error::Failed { what: "the unit's command".into(), said: self.log() });
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(daemon)
    }

    fn aquifer(&self, words: &[&str]) -> Invocation {
        let aquifer = Invocation::new(&self.program).args(["--api-socket", SOCKET]);
        aquifer.args(words).inside(&self.netns)
    }

    fn ask(&self, words: &[&str]) -> Result<bool> {
        Ok(self.aquifer(words).run(SOON)?.status.success())
    }

    fn must(&self, words: &[&str]) -> Result<String> {
        Ok(self.aquifer(words).check(SOON)?.text())
    }

    fn clients(&self) -> Clients {
        Clients::new(Some(&self.netns), SOON)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.join("log")).unwrap_or_default()
    }

    /// A client of the well-known port writes a file and reads it; the daemon has exactly the
    /// rights of the unit.
    fn write_and_read(&self, daemon: &Process, name: &str) -> Result<()> {
        // Made by the first of two calls.
        self.ask(&["create", "-o", "sharenfs=rw", "tank/vms"])?;
        wait_for_listener(Some(&self.netns), 2049, daemon, LATE)?;
        let file = self.scratch.join("file");
        let content = vec![7; MIB as usize];
        fs::write(&file, &content).map_err(Error::at("write", &file))?;
        let url = format!("nfs://127.0.0.1/tank/vms/{name}");
        self.clients().nfs_cp(&text(&file), &url).and_then(done)?;
        let read = self.clients().nfs_cat(&url)?;
        assert!(read.stdout == content, "{}", read.said());
        let proc = |name: &str| {
            let path = format!("/proc/{}/{name}", daemon.pid());
            fs::read_to_string(&path).map_err(Error::io(path))
        };
        let (status, mounts) = (proc("status")?, proc("mountinfo")?);
        let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/"));
        assert!(root.unwrap().contains(" / / ro,"), "{mounts}");
        let line =
            |name: &str| status.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        // CAP_NET_BIND_SERVICE is bit 10.
        for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(line(set), Some(format!("{set}:\t0000000000000400")));
        }
        assert_eq!(line("NoNewPrivs"), Some("NoNewPrivs:\t1".into()));
        assert_eq!(line("Uid"), Some(format!("Uid:\t{ID}\t{ID}\t{ID}\t{ID}")));
        Ok(())
    }

    /// The traced calls, once the tracer has written all of them.
    fn calls(&self) -> Result<String> {
        let path = self.lib().join("aquifer/calls");
        let start = Instant::now();
        loop {
            let calls = fs::read_to_string(&path).map_err(Error::at("read", &path))?;
            if calls.lines().last().is_some_and(|line| line.contains("+++ exited with 0 +++")) {
                return Ok(calls);
            }
            if start.elapsed() > SOON {
                return Err(Error::Malformed("the trace of the daemon has no end".into()));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A loop device, detached when dropped.
struct Loop(String);

impl Loop {
    /// `None` where the machine has no loop devices.
    fn attach(image: &Path) -> Result<Option<Loop>> {
        let made = File::create(image).and_then(|file| file.set_len(512 * MIB));
        made.map_err(Error::at("create", image))?;
        let losetup = Invocation::new("losetup").args(["--find", "--show"]).arg(image);
        let said = losetup.run(SOON)?;
        if !said.status.success() {
            eprintln!("SKIPPED: no loop device here: {}", said.said());
            return Ok(None);
        }
        Ok(Some(Loop(said.text().trim().to_string())))
    }

    /// Major and minor.
    fn numbers(&self) -> Result<String> {
        let meta = fs::metadata(&self.0).map_err(Error::at("look at", Path::new(&self.0)))?;
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        Ok(format!("{major} {minor}"))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Invocation::new("losetup").args(["--detach", &self.0]).run(SOON);
    }
}

fn done(outcome: aquifer_rig::process::Outcome) -> Result<()> {
    match outcome.status.success() {
        true => Ok(()),
        false => Err(Error::Failed { what: "a client".into(), said: outcome.said() }),
    }
}

/// Time limit: tracing makes everything slow.
const LATE: Duration = Duration::from_secs(120);
