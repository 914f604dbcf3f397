//! Hostile neighbours: the service of an admitted host while others attack the daemon.
//!
//! There is one daemon, and around it machines that are addresses of its network namespace
//! ([`place`]). A host that the export names reads and writes at a steady pace and holds locks
//! ([`admitted`]). The administrator asks the API, and a watcher reads memory and log ([`watch`]).
//! Meanwhile attackers ([`attackers`]) run one attack after the other. A calm phase precedes each
//! attack. All calm phases together are the figures that attacks are compared with. [`verdict`]
//! compares the figures with the limits.

mod admitted;
mod attackers;
mod grounds;
mod http;
mod place;
pub mod verdict;
mod watch;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use aquifer_rig::netns::enter_network;
use serde::Serialize;

use crate::pages::{Pages, Share};
use crate::pattern::PAGE_BYTES;
use crate::system::{Usage, load_average};
use crate::{Error, Result, idle};
use admitted::{Served, Work};
use attackers::Field;
pub use attackers::{ATTACKS, Attack};
pub use grounds::Lab;
use grounds::Made;
use place::{HOST, PROMISED_BYTES, Place};
use verdict::{Broken, Figures, Percentiles};

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `aquifer`.
    pub aquifer: PathBuf,
    /// The length of each attack.
    pub length: Duration,
    /// The length of the calm phase before each.
    pub calm: Duration,
    /// Names of attacks; empty means all.
    pub only: Vec<String>,
    /// Size of the pool's only disk, an image file.
    pub image_bytes: u64,
    /// Size of the file that the host reads and writes.
    pub file_bytes: usize,
    /// The dataset of insiders.
    pub lab: Lab,
}

/// All figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// The length of each attack, in seconds.
    pub seconds: f64,
    /// Locks that the host holds.
    pub locks: usize,
    /// Most memory that the daemon may take, in bytes.
    pub promised_bytes: u64,
    /// Load averages of the machine, before anything was started and at the end.
    pub load_average: [String; 2],
    /// The figures without an attack: all calm phases together.
    pub calm: Figures,
    /// The 99th percentiles of each calm phase, in microseconds: reads and writes.
    pub calms_p99_us: Vec<(f64, f64)>,
    /// The figures of each attack.
    pub attacks: Vec<Figures>,
    /// The limits that were broken.
    pub broken: Vec<Broken>,
}

/// Runs all attacks.
///
/// # Errors
/// The daemon cannot be set up, a name is unknown, the daemon ends, or it returns other data than
/// was written.
pub fn run(options: &Options) -> Result<Results> {
    let chosen = chosen(&options.only)?;
    idle::allow_connections()?;
    let before = load_average();
    eprintln!("starting aquifer");
    let place = Place::start(&options.aquifer, options.image_bytes, options.lab)?;
    let pid = place.pid()?;
    let mut pages = Pages::new(options.file_bytes, true);
    let mut shares = pages.shares(WORK.len(), PAGE_BYTES)?;
    for share in &mut shares {
        alone(pid, || admitted::fill(place.file, share))?;
    }
    alone(pid, || admitted::take_locks(&place.locked))?;
    let (mut calms, mut attacks) = (Vec::new(), Vec::new());
    for attack in &chosen {
        let calm = phase(&place, None, options.calm, &mut shares)?;
        calms.push(calm);
        eprintln!("{}: {}", attack.name, attack.what);
        attacks.push(phase(&place, Some(attack), options.length, &mut shares)?.figures());
        std::thread::sleep(SETTLE);
    }
    for share in &mut shares {
        alone(pid, || admitted::compare(place.file, share))?;
    }
    let calms_p99_us = calms.iter().map(|calm| calm.figures().p99_us()).collect();
    let calm = calms.into_iter().reduce(Phase::with).map(|calm| calm.figures());
    let calm = calm.ok_or_else(|| Error::Malformed("no attack".into()))?;
    let mut results = Results {
        seconds: options.length.as_secs_f64(),
        locks: admitted::LOCKS,
        promised_bytes: PROMISED_BYTES,
        load_average: [before, load_average()],
        calm,
        calms_p99_us,
        attacks,
        broken: Vec::new(),
    };
    results.broken = verdict::judge(&results);
    Ok(results)
}

/// The attacks with these names, or all.
fn chosen(only: &[String]) -> Result<Vec<Attack>> {
    let known = |name: &String| ATTACKS.iter().any(|attack| attack.name == *name);
    if let Some(unknown) = only.iter().find(|name| !known(name)) {
        let names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        return Err(Error::Malformed(format!("no attack {unknown}: {names:?}")));
    }
    let is_wanted = |attack: &&Attack| only.is_empty() || only.iter().any(|it| it == attack.name);
    Ok(ATTACKS.iter().filter(is_wanted).copied().collect())
}

/// The observations of a phase.
struct Phase {
    attack: Option<Attack>,
    length: Duration,
    served: Served,
    kept: admitted::Kept,
    listed: usize,
    local: watch::Answers,
    remote: watch::Answers,
    acts: watch::Answers,
    mounts: watch::Answers,
    missing: Vec<String>,
    seen: watch::Seen,
    sent: (u64, u64),
    cores: (f64, f64),
}

/// Runs a phase, with an attack or without.
fn phase(
    place: &Place,
    attack: Option<&Attack>,
    length: Duration,
    shares: &mut [Share<'_>],
) -> Result<Phase> {
    let pid = place.pid()?;
    let over = AtomicBool::new(false);
    let field = Field::new(place, &over);
    let made = Made::now(place.socket())?;
    let counts = Instant::now() + WARM_UP;
    std::thread::scope(|scope| {
        let (over, field) = (&over, &field);
        let working: Vec<_> = WORK
            .into_iter()
            .zip(shares)
            .map(|work| inside(scope, pid, move || admitted::work(place.file, work, counts, over)))
            .collect();
        let monitor = inside(scope, pid, move || admitted::monitor(over));
        let locks = inside(scope, pid, move || admitted::watch_locks(&place.locked, over));
        let remote = inside(scope, pid, move || Ok(watch::ask_remotely(&place.api, over)));
        let local = scope.spawn(move || Ok(watch::ask_locally(place.socket(), over)));
        let acts = scope.spawn(move || Ok(grounds::act(place.socket(), over)));
        let mounts = inside(scope, pid, move || Ok(grounds::mount_anew(place.file, over)));
        let seen = scope.spawn(move || watch::look(pid, place.log(), over));
        let before = Usage::now(Some(pid));
        let crew: Vec<_> = attack
            .into_iter()
            .flat_map(Attack::crew)
            .map(|attacker| {
                inside(scope, pid, move || {
                    lowest_priority()?;
                    attacker(field);
                    Ok(())
                })
            })
            .collect();
        std::thread::sleep(WARM_UP + length);
        let after = Usage::now(Some(pid));
        over.store(true, Ordering::Relaxed);
        // Joins all of them, even if one failed.
        let working: Vec<_> = working.into_iter().map(joined).collect();
        let (locks, monitor) = (joined(locks), joined(monitor));
        let (remote, local, seen) = (joined(remote), joined(local), joined(seen));
        let (acts, mounts) = (joined(acts), joined(mounts));
        let crew: Vec<_> = crew.into_iter().map(joined).collect();
        let mut served = Served::default();
        for worked in working {
            served.add(&worked?);
        }
        monitor?;
        crew.into_iter().collect::<Result<()>>()?;
        let listed =
            watch::ask_once(place.socket(), "/v1/locks").map_err(Error::io("ask /v1/locks"))?;
        let name = String::from_utf8_lossy(admitted::NAME);
        let (before, after) = (before?, after?);
        let cores = |busy: fn(&Usage) -> Duration| {
            let busy = busy(&after).saturating_sub(busy(&before));
            busy.as_secs_f64() / (WARM_UP + length).as_secs_f64()
        };
        Ok(Phase {
            attack: attack.copied(),
            length,
            served,
            kept: locks?,
            listed: watch::locks_held(&listed, &HOST.to_string(), &name),
            local: local?,
            remote: remote?,
            acts: acts?,
            mounts: mounts?,
            missing: made.missing(place.socket())?,
            seen: seen?,
            sent: field.counts(),
            cores: (cores(|usage| usage.process), cores(|usage| usage.own)),
        })
    })
}

impl Phase {
    /// Adds the observations of another phase.
    fn with(mut self, other: Phase) -> Phase {
        self.served.add(&other.served);
        self.length += other.length;
        self.kept.held_least = self.kept.held_least.min(other.kept.held_least);
        self.kept.asked += other.kept.asked;
        self.kept.refused += other.kept.refused;
        self.listed = self.listed.min(other.listed);
        self.local.add(&other.local);
        self.remote.add(&other.remote);
        self.acts.add(&other.acts);
        self.mounts.add(&other.mounts);
        self.missing.extend(other.missing);
        self.seen.add(&other.seen);
        self.cores.0 = self.cores.0.midpoint(other.cores.0);
        self.cores.1 = self.cores.1.midpoint(other.cores.1);
        self
    }

    fn figures(&self) -> Figures {
        let seconds = self.length.as_secs_f64();
        let per_second = |count: u64| count as f64 / seconds;
        let calls = self.served.reads.len() + self.served.writes.len();
        Figures {
            name: self.attack.map_or("calm", |attack| attack.name).into(),
            what: self.attack.map_or("nobody attacks", |attack| attack.what).into(),
            is_control: self.attack.is_some_and(|attack| attack.is_control()),
            sent_per_s: per_second(self.sent.0),
            answered_per_s: per_second(self.sent.1),
            calls_per_s: per_second(calls),
            calls_again: self.served.again,
            reads: Percentiles::of(&self.served.reads),
            writes: Percentiles::of(&self.served.writes),
            locks_held: self.kept.held_least.min(self.listed),
            new_locks: self.kept.asked,
            new_locks_refused: self.kept.refused,
            resident_bytes: self.seen.resident_most,
            connections_most: self.local.connections_most,
            log_lines_in_worst_minute: self.seen.lines_worst_minute(),
            api_local: Percentiles::of(&self.local.times),
            api_remote: Percentiles::of(&self.remote.times),
            api_failed: self.local.failed + self.remote.failed,
            acts: Percentiles::of(&self.acts.times),
            acts_failed: self.acts.failed,
            mounts: Percentiles::of(&self.mounts.times),
            mounts_failed: self.mounts.failed,
            missing: self.missing.clone(),
            server_cores: self.cores.0,
            own_cores: self.cores.1,
        }
    }
}

/// Runs `work` in the network of process `pid`, and nothing else meanwhile.
fn alone<T: Send>(pid: u32, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        joined(scope.spawn(move || enter_network(pid).and_then(|()| work())))
    })
}

/// Runs `work` on a thread in the network of process `pid`.
fn inside<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    pid: u32,
    work: impl FnOnce() -> Result<T> + Send + 'scope,
) -> ScopedJoinHandle<'scope, Result<T>> {
    scope.spawn(move || enter_network(pid).and_then(|()| work()))
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| Error::Malformed("a thread panicked".into()))?
}

/// On Linux this sets the priority of the calling thread, whatever this program's priority is.
fn lowest_priority() -> Result<()> {
    let set = rustix::process::setpriority_process(None, 19);
    set.map_err(|errno| Error::io("set the priority of an attacker")(errno.into()))
}

/// The purposes of the host's connections.
const WORK: [Work; 2] = [Work::Read, Work::Write];
/// Time before a phase counts.
const WARM_UP: Duration = Duration::from_millis(500);
/// Time between an attack and the next calm phase.
const SETTLE: Duration = Duration::from_secs(2);
