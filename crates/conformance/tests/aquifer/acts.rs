//! `kill -9` in each act on the disks of a pool, at several moments, while clients write.
//!
//! Invariants: after each restart every unit that the ledger's clients were promised is there, and
//! every file that libnfs has copied. An act that was answered is there. One that was cut off is
//! there or not, and the pool goes on from either. `inspect --deep --data` finds no error in what a
//! killed daemon leaves.

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use aquifer_conformance::clients::{Call, Clients};
use aquifer_conformance::{Error, Result, pattern};
use aquifer_rig::random::Random;
use serde_json::Value;

use crate::kill_loop::{Acting, KillLoop, seed};
use crate::place::{Aquifer, SOON, Setup, is_long, text};

/// An act, and how the pool comes to where it can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Attach,
    Detach,
    Replace,
    Offline,
    Online,
    Remove,
    Add,
    Trim,
    Initialize,
    Scrub,
}

const ACTS: [Act; 10] = [
    Act::Attach,
    Act::Detach,
    Act::Replace,
    Act::Offline,
    Act::Online,
    Act::Remove,
    Act::Add,
    Act::Trim,
    Act::Initialize,
    Act::Scrub,
];

/// A kill comes so many milliseconds after the act's command at most: while it is on its way, while
/// it is carried out, while what it began goes on.
const MOMENTS_MS: [u64; 3] = [50, 200, 800];

#[test]
fn client_finds_all_that_was_acknowledged_after_kills_in_each_act() -> Result<()> {
    let mut random = Random::new(seed());
    let setup = Setup { memory: "96M", disk_bytes: 1 << 30, spares: 5, ..Setup::DEFAULT };
    let aquifer = Aquifer::start("acts", setup)?;
    let mut run = KillLoop::on(aquifer, random.next_u64());
    let mut copier = Copier::start(&run.aquifer)?;
    let (mut kills, mut answered) = (0, 0);
    // On a busy machine all other kills may come before their answers.
    let surely_answered = random.index(ACTS.len());
    for (at, act) in ACTS.into_iter().enumerate() {
        let moments = match is_long() {
            true => MOMENTS_MS.repeat(12),
            false => vec![MOMENTS_MS[random.index(MOMENTS_MS.len())]],
        };
        for moment in moments {
            let span = Duration::from_millis(random.below(moment));
            let is_answered = at == surely_answered || random.below(4) == 0;
            let killed = act.is_killed(&mut run, span, is_answered, random.below(4) > 0);
            let checked = killed.and_then(|done| copier.check(&run.aquifer).map(|()| done));
            kills += 1;
            match checked {
                Ok(done) => answered += u32::from(done),
                Err(error) => panic!("{act:?}: {error}\nseed {}:\n{}", seed(), run.story),
            }
        }
    }
    let copied = copier.finish(&run.aquifer)?;
    let (_, tally, _) = run.finish()?;
    eprintln!(
        "{kills} kills in acts, {answered} of them answered; libnfs: {copied} files; {tally:?}"
    );
    assert!(answered > 0 && copied > 0 && tally.verified > 0);
    Ok(())
}

impl Act {
    /// Kills the daemon `span` after the act's command, or after its answer, and starts it again.
    /// Returns whether the act was answered.
    fn is_killed(
        self,
        run: &mut KillLoop,
        span: Duration,
        is_answered: bool,
        verified: bool,
    ) -> Result<bool> {
        let words = self.prepared(&run.aquifer)?;
        let command = run.aquifer.command().args(["pool"]).args(&words);
        let act = Acting { command, is_answered };
        let said = run.write_until_killed(verified, span, Some(act))?;
        run.aquifer.inspect_clean()?;
        run.aquifer.serve()?;
        let done = said.is_some_and(|said| said.status.success());
        run.tell(&format!("{words:?}, killed after {span:?}, answered: {done}"));
        let status = run.aquifer.status()?;
        if done && !self.is_there(&status, &words) {
            return Err(Error::Mismatch(format!("{words:?} was answered, and: {status:#}")));
        }
        Ok(done)
    }

    /// Brings the pool to where the act can begin; returns the words of its command.
    fn prepared(self, aquifer: &Aquifer) -> Result<Vec<String>> {
        let [first, second] = [0, 1].map(|at| text(&aquifer.disks()[at]));
        let other = text(&aquifer.disks()[2]);
        let log = text(&aquifer.disks()[3]);
        let mut status = settled(aquifer)?;
        let is_in = |status: &Value, path: &str| leaf(status, path).is_some();
        let must = |words: &[&str]| {
            aquifer.must(&[&["pool"], words].concat())?;
            settled(aquifer)
        };
        let words: Vec<&str> = match self {
            Act::Attach => {
                if is_in(&status, &other) {
                    must(&["detach", "tank", &other])?;
                }
                vec!["attach", "-f", "tank", &first, &other]
            }
            Act::Detach => {
                if !is_in(&status, &other) {
                    must(&["attach", "-f", "tank", &first, &other])?;
                }
                vec!["detach", "tank", &other]
            }
            Act::Replace => {
                if is_in(&status, &second) && is_in(&status, &other) {
                    status = must(&["detach", "tank", &other])?;
                }
                match is_in(&status, &second) {
                    true => vec!["replace", "-f", "tank", &second, &other],
                    false => vec!["replace", "-f", "tank", &other, &second],
                }
            }
            Act::Offline => vec!["offline", "tank", &first],
            Act::Online => {
                aquifer.must(&["pool", "offline", "tank", &first])?;
                vec!["online", "tank", &first]
            }
            Act::Remove => {
                if !is_in(&status, &log) {
                    must(&["add", "-f", "tank", "log", &log])?;
                }
                vec!["remove", "tank", &log]
            }
            Act::Add => return added(aquifer, &status),
            Act::Trim => vec!["trim", "-r", "64M", "tank"],
            Act::Initialize => vec!["initialize", "tank"],
            Act::Scrub => vec!["scrub", "tank"],
        };
        // One that an earlier kill has left goes on.
        if matches!(self, Act::Trim | Act::Initialize | Act::Scrub) {
            let ends = if self == Act::Scrub { "-s" } else { "-c" };
            aquifer.ask(&["pool", words[0], ends, "tank"], SOON)?;
        }
        Ok(words.into_iter().map(str::to_owned).collect())
    }

    /// Whether a pool shows what the act did.
    fn is_there(self, status: &Value, words: &[String]) -> bool {
        let last = words.last().map_or("", String::as_str);
        let is_in = || leaf(status, last).is_some();
        let is_offline = || leaf(status, last).is_some_and(|leaf| leaf["state"] == "OFFLINE");
        let works = |kind: &str| {
            let with_data = vdevs(status).filter(|vdev| vdev["class"] == "data");
            let mut states = with_data.flat_map(of_vdev).map(|leaf| &leaf[kind]["state"]);
            states.all(|state| state.is_string() && state != "canceled")
        };
        match self {
            Act::Attach | Act::Replace => is_in(),
            Act::Detach | Act::Remove => !is_in(),
            Act::Offline => is_offline(),
            Act::Online => !is_offline(),
            Act::Add => is_in() || spares(status).any(|spare| spare == last),
            Act::Trim => works("trim"),
            Act::Initialize => works("initialize"),
            Act::Scrub => {
                ["running", "finished"].map(Value::from).contains(&status["scrub"]["state"])
            }
        }
    }
}

/// The words that add a disk: as a spare, or with data.
fn added(aquifer: &Aquifer, status: &Value) -> Result<Vec<String>> {
    let is_spare = |path: &String| spares(status).any(|spare| spare == path);
    let others = aquifer.disks()[3..].iter().map(|disk| text(disk));
    let unused = |path: &String| leaf(status, path).is_none() && !is_spare(path);
    let free: Vec<String> = others.filter(unused).collect();
    let with_data = free.len() > 2 && spares(status).next().is_some();
    let disk = match (free.into_iter().next(), spares(status).next()) {
        (Some(free), _) => free,
        (None, Some(spare)) => {
            aquifer.must(&["pool", "remove", "tank", spare])?;
            spare.to_owned()
        }
        (None, None) => return Err(Error::Malformed(format!("no disk is left: {status:#}"))),
    };
    let words: &[&str] = if with_data { &[] } else { &["spare"] };
    let words = [&["add", "-f", "tank"][..], words, &[disk.as_str()]].concat();
    Ok(words.into_iter().map(str::to_owned).collect())
}

/// The pool, once all its disks hold everything and none is being replaced.
fn settled(aquifer: &Aquifer) -> Result<Value> {
    let begun = Instant::now();
    loop {
        let status = aquifer.status()?;
        let offline = leaves(&status).find(|leaf| leaf["state"] == "OFFLINE");
        if let Some(path) = offline.and_then(|leaf| leaf["path"].as_str()) {
            // It may just leave the pool, since another one has taken its place.
            aquifer.ask(&["pool", "online", "tank", path], SOON)?;
        }
        let rests = |leaf: &Value| leaf["state"] == "ONLINE" && leaf["replaces"].is_null();
        if leaves(&status).all(rests) {
            return Ok(status);
        }
        if begun.elapsed() > SOON {
            return Err(Error::Mismatch(format!("does not settle: {status:#}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn vdevs(status: &Value) -> impl Iterator<Item = &Value> {
    status["vdevs"].as_array().into_iter().flatten()
}

fn of_vdev(vdev: &Value) -> impl Iterator<Item = &Value> {
    vdev["leaves"].as_array().into_iter().flatten()
}

fn leaves(status: &Value) -> impl Iterator<Item = &Value> {
    vdevs(status).flat_map(of_vdev)
}

fn leaf<'a>(status: &'a Value, path: &str) -> Option<&'a Value> {
    leaves(status).find(|leaf| leaf["path"] == path)
}

fn spares(status: &Value) -> impl Iterator<Item = &str> {
    let spares = status["spares"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    spares.filter_map(|spare| spare["path"].as_str())
}

/// A client that copies files with libnfs, one after the other, through all kills. libnfs ignores
/// the write verifier, so its files need `sync=always`.
struct Copier {
    stop: Arc<AtomicBool>,
    /// So many were copied, as libnfs says, from the first on.
    copied: Arc<AtomicU64>,
    checked: u64,
    thread: JoinHandle<Result<()>>,
}

impl Copier {
    fn start(aquifer: &Aquifer) -> Result<Self> {
        let of_copies = ["-o", "sync=always", "-o", "sharenfs=insecure", "tank/copies"];
        aquifer.must(&[&["create"][..], &of_copies].concat())?;
        let (local, clients) = (aquifer.scratch().join("local"), aquifer.clients());
        let (stop, copied) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counter) = (Arc::clone(&stop), Arc::clone(&copied));
        let thread = thread::spawn(move || {
            let mut number = 0;
            while !stopped.load(Ordering::SeqCst) {
                fs::write(&local, content(number)).map_err(Error::at("write", &local))?;
                // Of one that fails nothing is promised. It is copied again.
                let said = clients.nfs_cp(&text(&local), &copy(number))?;
                if said.status.success() {
                    number += 1;
                    counter.store(number, Ordering::SeqCst);
                } else {
                    thread::sleep(Duration::from_millis(20));
                }
            }
            Ok(())
        });
        Ok(Self { stop, copied, checked: 0, thread })
    }

    /// Checks that what was copied since the last check is there.
    fn check(&mut self, aquifer: &Aquifer) -> Result<()> {
        let copied = self.copied.load(Ordering::SeqCst);
        check_copies(&aquifer.clients(), self.checked..copied)?;
        self.checked = copied;
        Ok(())
    }

    /// All of it is there. Returns how many files that is.
    fn finish(self, aquifer: &Aquifer) -> Result<u64> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| Error::Malformed("the copier panicked".into()))??;
        let copied = self.copied.load(Ordering::SeqCst);
        check_copies(&aquifer.clients(), 0..copied)?;
        Ok(copied)
    }
}

fn check_copies(clients: &Clients, numbers: Range<u64>) -> Result<()> {
    for number in numbers {
        let found = clients.nfs_cat(&copy(number)).done()?.stdout;
        if found != content(number) {
            return Err(Error::Mismatch(format!("LOST: copy{number}, {} bytes", found.len())));
        }
    }
    Ok(())
}

/// The URL of a file of this number.
fn copy(number: u64) -> String {
    format!("nfs://127.0.0.1/tank/copies/copy{number}")
}

/// The content of a file of this number.
fn content(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; COPY_BYTES];
    pattern::fill(number + 1, 0, &mut bytes);
    bytes
}

/// Small, so that the pool has room for all of them.
const COPY_BYTES: usize = 10_001;
