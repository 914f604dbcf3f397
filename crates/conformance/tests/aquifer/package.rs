//! The Debian package: installed, upgraded with a pool in service, removed and purged, in a Debian
//! of its own.
//!
//! `make deb-test` builds two versions of the package, names their directory in `AQUIFER_DEBS`, and
//! runs this. Invariant: nothing is installed on this machine. The Debian is below an overlay, in
//! namespaces of its own; its systemd is the real one.

mod pulse;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use aquifer_conformance::{Error, Result, image};
use aquifer_rig::netns::NetNs;
use aquifer_rig::process::{Invocation, Outcome};
use aquifer_rig::server::aquifer_program;
use aquifer_rig::work::{Scratch, WorkDir};

use crate::kill_loop::{connect, seed};
use crate::place::{DATASET, LONG, SOON, text};
use crate::unit::manager::Manager;
use crate::writer::{Plan, Size, Writer};
use pulse::Pulse;

/// The longest time between two answers that an upgrade may cause.
const PAUSE_MAX: Duration = Duration::from_secs(3);
const UPGRADES: u32 = 4;
const STATE: &str = "/var/lib/aquifer";
const IMAGE: &str = "/var/lib/aquifer/images/a.img";
const CONFIG: &str = "/etc/aquifer/aquifer.toml";

/// A Debian with the packages in its root directory.
struct Debian {
    scratch: Scratch,
    base: PathBuf,
    script: PathBuf,
}

impl Debian {
    fn lay(name: &str) -> Result<Debian> {
        let debs = std::env::var("AQUIFER_DEBS").unwrap_or_default();
        assert!(!debs.is_empty(), "AQUIFER_DEBS names no directory: make deb-test");
        let work = WorkDir::open()?;
        let base = image::debian(&work, "debian-package", &["systemd", "libcap2-bin"])?;
        let scratch = work.scratch(name)?;
        let script = scratch.join("enter.sh");
        write(&script, include_str!("package/enter.sh"))?;
        let root = scratch.dir("upper/files/root")?;
        for version in ["old", "new"] {
            let (from, to) = (Path::new(&debs).join(version), root.join(format!("{version}.deb")));
            let mut found = fs::read_dir(&from).map_err(Error::at("look into", &from))?;
            let deb = found.next().and_then(|entry| entry.ok()).map(|entry| entry.path());
            let deb = deb.unwrap_or_else(|| panic!("no package in {}", from.display()));
            fs::copy(&deb, &to).map_err(Error::at("copy", &deb))?;
        }
        Ok(Debian { scratch, base, script })
    }

    /// A path of the Debian, seen from outside, with what was changed since it was laid.
    fn file(&self, path: &str) -> PathBuf {
        self.scratch.join("upper/files").join(path.trim_start_matches('/'))
    }

    /// A command in the Debian, with no system running.
    fn run(&self, command: &str) -> Result<Outcome> {
        let words = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--", "sh"];
        let unshare = Invocation::tool("unshare", "guest")?.args(words);
        let enter = unshare.arg(&self.script).arg(&self.base).arg(self.scratch.join("upper"));
        enter.args(["sh", "-c", command]).env("DEBIAN_FRONTEND", "noninteractive").run(SOON)
    }

    fn must(&self, command: &str) -> Result<String> {
        let said = self.run(command)?;
        assert!(said.status.success(), "{command}: {}", said.said());
        Ok(said.text())
    }

    /// Takes systemd's programs away, as in a container: the user is made in another way then.
    fn without_systemd(&self) -> Result<()> {
        self.must("dpkg --purge --force-depends systemd 2>&1 && ! command -v systemctl").map(drop)
    }

    /// Boots it.
    fn boot(&self, netns: &NetNs) -> Result<Option<Manager>> {
        let (base, upper) = (text(&self.base), text(&self.scratch.join("upper")));
        Manager::start(netns, &self.scratch, &self.script, &[base, upper, "boot".into()])
    }
}

fn write(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).map_err(Error::at("write", path))
}

/// Installed, upgraded, removed, purged and installed again, with and without systemd's programs,
/// which start nothing in a chroot.
#[test]
#[ignore = "needs packages: make deb-test"]
fn package_comes_and_goes_in_a_chroot() -> Result<()> {
    for bare in [false, true] {
        let debian = Debian::lay("package-chroot")?;
        if bare {
            debian.without_systemd()?;
        }
        come_and_go(&debian)?;
    }
    Ok(())
}

fn come_and_go(debian: &Debian) -> Result<()> {
    without_complaint(&debian.run("dpkg -i /root/old.deb")?);
    let version = debian.must("aquifer --version")?;
    assert!(version.starts_with("aquifer 0.1.0 ("), "{version}");
    let owners = debian.must(&format!(
        "stat -c '%U:%G %a %n' {STATE} {STATE}/images {CONFIG} /usr/bin/aquifer && \
         getent passwd aquifer | cut -d: -f6,7 && dpkg-query -W -f '${{Conffiles}}' aquifer"
    ))?;
    for line in [
        "aquifer:aquifer 700 /var/lib/aquifer\n",
        "aquifer:aquifer 700 /var/lib/aquifer/images\n",
        "root:root 644 /etc/aquifer/aquifer.toml\n",
        "root:root 755 /usr/bin/aquifer\n",
        "/var/lib/aquifer:/usr/sbin/nologin\n",
        " /etc/aquifer/aquifer.toml ",
    ] {
        assert!(owners.contains(line), "{line}: {owners}");
    }
    // minbase's dpkg leaves out what nobody reads in a container; the package has it.
    let files = debian.must("dpkg -c /root/new.deb")?;
    for path in [
        "/usr/lib/systemd/system/aquifer.service\n",
        "/usr/share/man/man1/aquifer-pool-create.1.gz\n",
        "/usr/share/bash-completion/completions/aquifer\n",
        "/usr/share/zsh/vendor-completions/_aquifer\n",
        "/usr/share/fish/vendor_completions.d/aquifer.fish\n",
        "/usr/share/doc/aquifer/copyright\n",
        "/usr/share/doc/aquifer/THIRD-PARTY\n",
        "/usr/share/doc/aquifer/docs/operations.md\n",
        "/usr/share/doc/aquifer/changelog.Debian.gz\n",
    ] {
        assert!(files.contains(path), "{path}: {files}");
    }
    // The unit is enabled, and starts with the machine.
    let enabled = "/etc/systemd/system/multi-user.target.wants/aquifer.service";
    debian.must(&format!("test -L {enabled}"))?;
    // What the administrator changed stays, and what they disabled.
    debian.must(&format!("echo '# ours' >>{CONFIG} && rm {enabled}"))?;
    debian.must(&format!(
        "echo pool >{IMAGE} && chown aquifer: {IMAGE} && touch {STATE}/pools.json"
    ))?;
    without_complaint(&debian.run("dpkg -i /root/new.deb </dev/null")?);
    debian.must(&format!("tail -n 1 {CONFIG} | grep -q ours && ! test -L {enabled}"))?;

    debian.must("dpkg -r aquifer && ! test -e /usr/bin/aquifer")?;
    debian.must(&format!("test -e {CONFIG} && test -e {STATE}/pools.json"))?;
    let said = debian.run("dpkg -P aquifer")?;
    assert!(said.status.success(), "{}", said.said());
    assert!(said.stderr.contains("stays: there are disk images"), "{}", said.said());
    debian.must(&format!(
        "! test -e /etc/aquifer && ! test -e {STATE}/pools.json && grep -q pool {IMAGE}"
    ))?;
    let left = debian.must(
        "find /etc /usr /lib/systemd -name '*aquifer*' -not -path '/etc/*passwd*'; \
         find /var/lib/systemd -name '*aquifer*'",
    )?;
    assert_eq!(left, "", "left behind");
    // The user stays, so that nobody else gets its images.
    debian.must(&format!("dpkg -i /root/new.deb && stat -c %U {IMAGE} | grep -qx aquifer"))?;
    debian.must(&format!("rm {IMAGE} && dpkg -P aquifer && ! test -e {STATE}"))?;
    Ok(())
}

/// Programs of systemd name on stderr what they make.
fn without_complaint(said: &Outcome) {
    let mut lines = said.stderr.lines();
    let complaint = lines.find(|line| !line.starts_with("Creat"));
    assert!(said.status.success() && complaint.is_none(), "{}", said.said());
}

/// Recipe of the container image, carried out without a container engine: its steps, its user with
/// one capability, its entry point, its check of health, its signal.
#[test]
#[ignore = "needs packages: make deb-test"]
fn package_in_a_container_serves() -> Result<()> {
    let recipe = include_str!("../../../../dist/Containerfile").replace("\\\n", "");
    let said = |word: &str| {
        let mut lines = recipe.lines().filter_map(|line| line.strip_prefix(word));
        lines.next_back().unwrap_or_else(|| panic!("no {word}")).trim().to_string()
    };
    let command = |list: &str| list.trim_matches(['[', ']']).replace(['"', ','], "");
    let (run, user, entry) = (said("RUN "), said("USER "), command(&said("ENTRYPOINT ")));
    let health = said("HEALTHCHECK ");
    let health = command(health.split_once("CMD ").unwrap().1);
    let signal = said("STOPSIGNAL SIG");
    let debian = Debian::lay("package-container")?;
    debian.without_systemd()?;
    // The slim image leaves documentation out; the recipe keeps ours.
    let mut steps = recipe.lines().filter_map(|line| line.strip_prefix("RUN "));
    let keeps = steps.find(|run| run.contains("path-include")).unwrap();
    let slim = "printf 'path-exclude=%s\\n' '/usr/share/doc/*' '/usr/share/man/*' \
                >/etc/dpkg/dpkg.cfg.d/docker";
    debian.must(&format!("{slim}; {keeps}"))?;
    debian.must("dpkg -i /root/new.deb")?;
    debian.must("ls /usr/share/doc/aquifer/docs/runbook.md /usr/share/man/man*/aquifer*")?;
    let as_user = format!(
        "setpriv --reuid={user} --regid={user} --clear-groups --inh-caps=-all \
         --bounding-set=-all,+net_bind_service"
    );
    // In one go: each command has a /run of its own.
    let log = debian.must(&format!(
        "{run}; {as_user} {entry} >/root/log 2>&1 & pid=$!; tries=0
         until {as_user} {health} >/dev/null 2>&1; do
             sleep 0.1; tries=$((tries + 1)); [ $tries -lt 300 ] || break
         done
         set -e
         {as_user} aquifer pool create --create-size=512M tank {IMAGE} && {as_user} {health}
         kill -s {signal} $pid && wait $pid; echo ended $?; ! {as_user} {health} && cat /root/log"
    ))?;
    for words in ["tank", "ONLINE", "ended 0", "portmap=Own", "pool exported"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    Ok(())
}

/// Upgrades under load: clients wait for a moment and find all that was acknowledged.
#[test]
#[ignore = "needs packages: make deb-test"]
fn package_upgrade_restarts_a_pool_in_service() -> Result<()> {
    let debian = Debian::lay("package-upgrade")?;
    let netns = NetNs::new(&debian.scratch)?;
    let Some(manager) = debian.boot(&netns)? else { return Ok(()) };
    let up = |manager: &Manager| manager.systemctl(&["is-system-running"]).ok();
    let _ = manager.wait_for("the Debian to come up", |manager| {
        up(manager).filter(|said| !said.contains("starting")).or_else(|| {
            // Exit code 1 says that a unit failed, which nobody needs here.
            let said = manager.inside("systemctl").arg("is-system-running").run(SOON).ok()?;
            said.text().contains("degraded").then(|| said.text())
        })
    })?;
    install(&manager, "old")?;
    manager.ready()?;
    let ask = |words: &[&str]| manager.inside("aquifer").args(words).check(SOON);
    ask(&["pool", "create", "--create-size=2G", "tank", IMAGE])?;
    ask(&["create", "-o", "sharenfs=insecure", DATASET])?;
    upgrade_under_load(&manager)?;
    keeps_the_old_daemon(&debian, &manager)?;
    stays_stopped(&manager)?;
    levels_in_the_journal(&manager)?;

    let dpkg = |word: &str| manager.inside("dpkg").args([word, "aquifer"]).check(SOON);
    let is_active = || {
        let state = manager.inside("systemctl").args(["is-active", "aquifer"]).run(SOON)?;
        Ok::<_, Error>(state.status.success())
    };
    dpkg("-r")?;
    assert!(!is_active()?);
    // Installed again, it serves the pool again.
    install(&manager, "new")?;
    manager.ready()?;
    assert!(ask(&["pool", "list", "-H"])?.text().starts_with("tank\t"));
    dpkg("-P")?;
    assert!(!is_active()?);
    let left = manager.inside("find").args([STATE, "-mindepth", "1"]).check(SOON)?.text();
    assert_eq!(left, format!("{STATE}/images\n{IMAGE}\n"));
    drop(manager);
    // Inspected where only root writes.
    let image = text(&debian.scratch.join("a.img"));
    Invocation::new("cp").arg(debian.file(IMAGE)).arg(&image).check(LONG)?;
    let inspect = Invocation::new(aquifer_program()?).args(["inspect", "--deep", "--data", &image]);
    let found = inspect.check(LONG)?.text();
    assert!(found.contains("exported"), "{found}");
    Ok(())
}

fn install(manager: &Manager, version: &str) -> Result<Outcome> {
    let dpkg = manager.inside("dpkg").args(["-i", &format!("/root/{version}.deb")]);
    dpkg.env("DEBIAN_FRONTEND", "noninteractive").check(SOON)
}

/// Three clients that keep a ledger, and one whose answers are timed.
fn upgrade_under_load(manager: &Manager) -> Result<()> {
    let pid = manager.pid()?;
    let mut writers: Vec<Writer> =
        (1..=3).map(|number| Writer::new(number, seed() + u64::from(number))).collect();
    let plans = [(100, Size::Page), (50, Size::Mixed), (10, Size::Any)];
    let plans = plans.map(|(stable_percent, size)| Plan {
        depth: 8,
        stable_percent,
        size,
        commit_after: 20,
    });
    let (ends, verified) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut pulse = Pulse::default();
    thread::scope(|scope| -> Result<()> {
        let (ends, verified) = (&ends, &verified);
        let mut clients = Vec::new();
        for (writer, plan) in writers.iter_mut().zip(plans) {
            clients.push(scope.spawn(move || {
                persist(ends, || writer.live(&mut connect(pid)?, Some(plan), verified))
            }));
        }
        let beats = &mut pulse;
        clients.push(scope.spawn(move || persist(ends, || beats.live(&mut connect(pid)?))));
        let upgraded = upgrade_often(manager, verified);
        ends.store(true, Ordering::SeqCst);
        // Only a connection that breaks ends a client.
        let stopped = manager.systemctl(&["stop", "aquifer"]);
        let ended: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        upgraded.and(stopped.map(|_| ()))?;
        ended.into_iter().collect()
    })?;
    manager.systemctl(&["start", "aquifer"])?;
    for writer in &mut writers {
        writer.live(&mut connect(pid)?, None, &verified)?;
    }
    pulse.verify(&mut connect(pid)?)?;
    let (pause, beats) = (pulse.pause(), pulse.beats());
    let stable: u64 = writers.iter().map(|writer| writer.tally.stable).sum();
    let committed: u64 = writers.iter().map(|writer| writer.tally.committed).sum();
    let units: u64 = writers.iter().map(|writer| writer.tally.verified).sum();
    eprintln!(
        "{UPGRADES} upgrades under load: {stable} WRITEs stable, {committed} committed, {units} \
         units verified, 0 lost; {beats} durable writes one after the other, longest time between \
         two answers {pause:?}"
    );
    assert!(stable > 0 && committed > 0 && beats > u64::from(UPGRADES), "nothing was written");
    assert!(pause <= PAUSE_MAX, "clients waited for {pause:?}");
    Ok(())
}

fn upgrade_often(manager: &Manager, verified: &AtomicU32) -> Result<()> {
    for upgrade in 0..UPGRADES {
        // All are at work.
        let wanted = 3 * (upgrade + 1);
        manager.wait_for("clients to write", |_| {
            (verified.load(Ordering::SeqCst) >= wanted).then_some(())
        })?;
        thread::sleep(Duration::from_secs(1));
        let before = manager.ready()?;
        install(manager, if upgrade % 2 == 0 { "new" } else { "old" })?;
        assert_ne!(manager.ready()?, before, "the daemon was not restarted");
    }
    Ok(())
}

/// Lives again and again, as a client does whose server goes away and comes back.
fn persist(ends: &AtomicBool, mut live: impl FnMut() -> Result<()>) -> Result<()> {
    loop {
        match live() {
            Err(Error::Io { .. }) if ends.load(Ordering::SeqCst) => return Ok(()),
            Err(Error::Io { .. }) => thread::sleep(Duration::from_millis(5)),
            ended => return ended,
        }
    }
}

/// A configuration that the new program refuses does not end the service.
fn keeps_the_old_daemon(debian: &Debian, manager: &Manager) -> Result<()> {
    let before = manager.ready()?;
    let break_it = format!("cp {CONFIG} /root/good && echo 'nonsense = 1' >>{CONFIG}");
    manager.inside("sh").args(["-c", &break_it]).check(SOON)?;
    let said = install(manager, "new")?.said();
    assert!(said.contains("the old daemon still serves") && said.contains("nonsense"), "{said}");
    assert_eq!(manager.ready()?, before);
    manager.inside("cp").args(["/root/good", CONFIG]).check(SOON)?;
    assert!(debian.file(CONFIG).exists());
    install(manager, "new")?;
    assert_ne!(manager.ready()?, before);
    Ok(())
}

/// An upgrade starts no daemon that the administrator stopped.
fn stays_stopped(manager: &Manager) -> Result<()> {
    manager.systemctl(&["stop", "aquifer"])?;
    install(manager, "old")?;
    let state = manager.inside("systemctl").args(["is-active", "aquifer"]).run(SOON)?.text();
    assert_eq!(state.trim(), "inactive");
    manager.systemctl(&["start", "aquifer"])?;
    manager.ready().map(|_| ())
}

/// The journal has the daemon's levels as priorities, and no prefix in its lines.
fn levels_in_the_journal(manager: &Manager) -> Result<()> {
    let journal = |more: &[&str]| {
        let all = manager.inside("journalctl").args(["--no-pager", "-o", "cat", "-u", "aquifer"]);
        Ok::<_, Error>(all.args(more).check(SOON)?.text())
    };
    let (all, info) = (journal(&["_COMM=aquifer"])?, journal(&["-p", "6..6", "_COMM=aquifer"])?);
    assert!(info.contains("INFO ") && info.contains("the API answers"), "{all}");
    assert!(!all.contains("<6>") && !all.contains("T00:00"), "{all}");
    let errors = journal(&["-p", "3", "_COMM=aquifer"])?;
    assert!(!errors.contains(" INFO "), "{errors}");
    let stray = info.lines().find(|line| !line.starts_with(" INFO "));
    assert_eq!(stray, None, "a line of another level");
    Ok(())
}
