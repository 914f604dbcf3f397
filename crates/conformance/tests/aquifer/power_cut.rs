//! The power goes under the program: its disks remember each write and flush ([`recorder`]), and
//! from what they remember images are cut as they were at any moment, with what was not flushed
//! lost, torn, or written in another order. The program must come up on each, without help, and
//! hold what its clients had been told.
//!
//! What holds: clients and disks go by one clock, so that for each moment it is known what had been
//! promised before it. Parts of the loads end with SIGKILL and a start on the same disks: then cuts
//! fall in the import and replay too. After each cut `inspect --deep --data` finds no error.
//!
//! A seed names one cut of one load: it draws what the clients do, the moment, and what becomes of
//! each write. What the program's threads do meanwhile is not repeated: a failure, and a seed that
//! is asked for, leave the images as they were cut.

mod image;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use aquifer_conformance::pattern::Random;
use aquifer_conformance::{Error, Result};

use crate::diary::Clock;
use crate::kill_loop::{KillLoop, connect, seed};
use crate::place::{Aquifer, Setup, is_long};
use crate::recorder::{self, Recorder, Tape};
use crate::{namer, writer};
use image::{Cut, Fates, Image, Mode};

/// Pools whose power is cut.
const POOLS: [(&str, Setup); 4] = [
    ("one disk", SMALL),
    ("mirror", Setup { sides: 2, ..SMALL }),
    ("one disk, log", Setup { log_sides: 1, ..SMALL }),
    ("mirror, log, blocking calls", Setup { sides: 2, log_sides: 1, engine: "pread", ..SMALL }),
];

/// Little memory, so that txgs close in the midst of things.
const SMALL: Setup = Setup { sides: 1, memory: "96M", disk_bytes: 400 << 20, ..Setup::DEFAULT };

#[test]
fn program_holds_what_it_has_acknowledged_after_each_power_cut() -> Result<()> {
    if !recorder::is_there() {
        return Ok(());
    }
    let start = Instant::now();
    let asked = std::env::var("AQUIFER_SEED").is_ok();
    let cuts = std::env::var("AQUIFER_CUTS").ok().and_then(|cuts| cuts.parse().ok());
    let cuts: u64 = if asked { 1 } else { cuts.unwrap_or(if is_long() { 200 } else { 20 }) };
    let each = cuts.div_ceil(POOLS.len() as u64).min(CUTS_OF_A_LOAD);
    let first = if asked { seed() } else { seed() % (1 << 40) * CUTS_OF_A_LOAD };
    let mut all = Sum::default();
    let mut load_seed = first / CUTS_OF_A_LOAD;
    while all.cuts < cuts {
        let mut load = Load::record(load_seed, "standard")?;
        let begin = if asked { first % CUTS_OF_A_LOAD } else { 0 };
        for number in begin..begin + each.min(cuts - all.cuts) {
            load.cut_and_check(number, u64::MAX, asked)?;
        }
        all.add(load.finish());
        load_seed += 1;
    }
    let seconds = start.elapsed().as_secs();
    eprintln!("in all: {} power cuts, 0 lost, {seconds} s\n  {}", all.cuts, all.told());
    assert!(asked || all.promises > 0 && all.clients.verified > 0, "{}", all.told());
    Ok(())
}

/// What finds no loss must be able to: `sync=disabled` says of everything that it is durable.
#[test]
fn power_cut_finds_that_a_dataset_without_sync_loses_what_it_has_acknowledged() -> Result<()> {
    must_lose("disabled:to be caught", |_| u64::MAX)
}

/// And so does a disk that says "flushed" and does nothing.
#[test]
fn power_cut_finds_that_a_disk_which_does_not_flush_loses_what_was_acknowledged() -> Result<()> {
    must_lose("standard", |load| load.ready)
}

fn must_lose(sync: &'static str, trusted: impl Fn(&Load) -> u64) -> Result<()> {
    if !recorder::is_there() {
        return Ok(());
    }
    // The first pool: with another side nothing need be lost.
    let mut load = Load::record(seed() % (1 << 40) * POOLS.len() as u64, sync)?;
    for number in 0..CUTS_OF_A_LOAD {
        match load.cut(number, trusted(&load)).and_then(|cut| load.check(&cut)) {
            Ok(()) => {}
            Err(Error::Mismatch(what)) if what.starts_with("LOST") => {
                eprintln!("found by cut {}: {what}", number + 1);
                load.finish();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    panic!("nothing was lost:\n{}", load.run.story);
}

/// What clients and disks remember of some seconds, and the daemon that wakes on what is cut of it.
struct Load {
    pool: &'static str,
    seed: u64,
    disk_bytes: u64,
    run: KillLoop,
    tapes: Vec<Tape>,
    /// The dataset was there.
    ready: u64,
    end: u64,
    /// When something was promised, in order.
    promises: Vec<u64>,
    /// What the daemon keeps elsewhere, as it was then.
    state: PathBuf,
    sum: Sum,
}

/// Of many cuts.
#[derive(Default)]
struct Sum {
    cuts: u64,
    /// Answers that promised something, of all loads.
    promises: u64,
    /// Of the disks, of all loads.
    changes: u64,
    flushes: u64,
    clients: writer::Tally,
    names: namer::Tally,
    fates: Fates,
}

impl Load {
    /// Has clients work on a pool, and the daemon killed, once or twice.
    fn record(seed: u64, sync: &'static str) -> Result<Self> {
        let (pool, setup) = POOLS[(seed % POOLS.len() as u64) as usize];
        let (setup, mut random) = (Setup { sync, ..setup }, Random::new(seed));
        let (clock, mut recorder) = (Clock::default(), None);
        let aquifer = Aquifer::start_on("power", setup, |netns, disks| {
            recorder = Some(Recorder::mount(netns, disks, setup.disk_bytes, &clock)?);
            Ok(())
        })?;
        let state = aquifer.scratch().join("state-before");
        copy_dir(&aquifer.state_dir(), &state)?;
        let ready = clock.now();
        let mut run = KillLoop::recorded(aquifer, random.next_u64(), &clock);
        // A dataset that loses what it has acknowledged shall do so when the power goes.
        let lives = if sync == "standard" { 1 + random.below(2) } else { 1 };
        for life in 0..lives {
            let span = Duration::from_millis(200 + random.below(SPAN_MS / lives));
            run.write_until_killed(true, span)?;
            if life + 1 < lives {
                run.aquifer.serve()?;
            }
        }
        // Before the daemon: that is gone.
        let tapes = recorder.map(Recorder::finish).unwrap_or_default();
        let mut promises = run.namer.promises();
        run.writers.iter().for_each(|writer| promises.extend(writer.promises()));
        promises.sort_unstable();
        let sum = Sum { promises: promises.len() as u64, ..Sum::default() };
        let (disk_bytes, end) = (setup.disk_bytes, clock.now());
        Ok(Self { pool, seed, disk_bytes, run, tapes, ready, end, promises, state, sum })
    }

    /// Cuts the power, and panics with the story if the program does not hold what it must.
    fn cut_and_check(&mut self, number: u64, trusted: u64, keep: bool) -> Result<()> {
        let cut = self.cut(number, trusted)?;
        let checked = self.check(&cut);
        if checked.is_err() || keep {
            // As they were cut: the daemon has changed them.
            let kept = self.run.aquifer.scratch().join("cut");
            fs::create_dir_all(&kept).map_err(Error::at("create", &kept))?;
            self.draw(number, trusted, &kept)?;
            self.run.aquifer.keep();
            self.tell(&format!("images and state as they were cut: {}", kept.display()));
        }
        match checked {
            Err(error) => panic!("{error}\nSEED={}:\n{}", self.seed_of(number), self.run.story),
            Ok(()) if keep => eprintln!("SEED={}:\n{}", self.seed_of(number), self.run.story),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Lays images as cut number `number` leaves them where the daemon's disks are.
    fn cut(&mut self, number: u64, trusted: u64) -> Result<Cut> {
        self.run.aquifer.kill9();
        let dir = self.run.aquifer.disks()[0].parent().map(Path::to_path_buf).unwrap_or_default();
        let (cut, fates) = self.draw(number, trusted, &dir)?;
        self.sum.fates.add(fates);
        let state_dir = self.run.aquifer.state_dir();
        fs::remove_dir_all(&state_dir).map_err(Error::at("remove", &state_dir))?;
        copy_dir(&self.state, &state_dir)?;
        let promised = self.promises.partition_point(|at| *at <= cut.moment);
        self.tell(&format!(
            "cut {number}: at {} of {}..{}, {:?} (disk {}): {fates:?}, {promised} promises before",
            cut.moment, self.ready, self.end, cut.mode, cut.loser,
        ));
        Ok(cut)
    }

    /// Images in `dir`, of what the seed draws.
    fn draw(&self, number: u64, trusted: u64, dir: &Path) -> Result<(Cut, Fates)> {
        let mut random = Random::new(self.seed_of(number));
        let moment = self.moment(&mut random);
        let mode = Mode::ALL[random.index(Mode::ALL.len())];
        let cut = Cut { moment, mode, loser: random.index(self.tapes.len()), trusted };
        let mut fates = Fates::default();
        for (disk, (path, tape)) in self.run.aquifer.disks().iter().zip(&self.tapes).enumerate() {
            let image = Image::after(&cut, tape, disk, &mut random);
            image.write(&dir.join(path.file_name().unwrap_or_default()), self.disk_bytes)?;
            fates.add(image.fates);
        }
        Ok((cut, fates))
    }

    /// A quarter of all just after something was promised, half between a write and the end of the
    /// flush after it, the others anywhere.
    fn moment(&self, random: &mut Random) -> u64 {
        let anywhere = self.ready + random.below(self.end - self.ready + 1);
        match random.below(4) {
            0 => self.promises.get(random.index(self.promises.len())).copied().unwrap_or(anywhere),
            1 | 2 => {
                let tape = &self.tapes[random.index(self.tapes.len())];
                let from = tape.changes().iter().find(|change| change.began >= anywhere);
                let from = from.map_or(anywhere, |change| change.began);
                let flush = tape.flushes().iter().find(|flush| flush.ended > from);
                let until = flush.map_or(self.end, |flush| flush.ended);
                from + random.below(until - from + 1)
            }
            _ => anywhere,
        }
    }

    /// Wakes the daemon on what was cut: it must hold what it must, and be without an error.
    fn check(&mut self, cut: &Cut) -> Result<()> {
        let served = self.run.aquifer.serve();
        let took = served.map_err(|error| Error::Mismatch(format!("LOST: no service: {error}")))?;
        let pid = self.run.aquifer.daemon()?.pid();
        let ready = AtomicU32::new(0);
        for writer in &self.run.writers {
            let mut then = writer.as_of(cut.moment);
            then.live(&mut connect(pid)?, None, &ready)?;
            self.sum.clients.add(then.tally);
        }
        let mut names = self.run.namer.as_of(cut.moment);
        names.live(&mut connect(pid)?, None, &ready)?;
        self.sum.names.add(names.tally);
        self.run.aquifer.stop()?;
        self.run.aquifer.inspect_clean()?;
        self.sum.cuts += 1;
        self.tell(&format!("  served after {took:?}"));
        Ok(())
    }

    /// Names a cut of this load.
    fn seed_of(&self, number: u64) -> u64 {
        self.seed * CUTS_OF_A_LOAD + number
    }

    /// What came of it, with the load's own figures.
    fn finish(mut self) -> Sum {
        let (tally, names, sum) = (self.run.tally(), self.run.namer.tally, &mut self.sum);
        (sum.clients.stable, sum.clients.committed) = (tally.stable, tally.committed);
        (sum.names.made, sum.names.moved) = (names.made, names.moved);
        sum.names.removed = names.removed;
        sum.changes = self.tapes.iter().map(|tape| tape.changes().len() as u64).sum();
        sum.flushes = self.tapes.iter().map(|tape| tape.flushes().len() as u64).sum();
        let seed = self.seed_of(0);
        eprintln!(
            "{} (seeds from {seed}): {} power cuts\n  {}",
            self.pool,
            self.sum.cuts,
            self.sum.told()
        );
        self.run.aquifer.kill9();
        self.run.aquifer.judged();
        self.sum
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.run.story, "{what}").unwrap();
    }
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.promises += other.promises;
        self.changes += other.changes;
        self.flushes += other.flushes;
        self.clients.add(other.clients);
        self.names.add(other.names);
        self.fates.add(other.fates);
    }

    fn told(&self) -> String {
        let Self { promises, changes, flushes, clients, names, fates, .. } = self;
        format!(
            "{promises} answers that promise: {} WRITEs stable, {} by COMMITs; names: {} made, {} \
             moved, {} removed; disks: {changes} writes and discards, {flushes} flushes\n  \
             after cuts: {} units verified, {} newer than promised; {} names; calls without an \
             answer: {} carried out, {} not; sectors not durable: {fates:?}",
            clients.stable,
            clients.committed,
            names.made,
            names.moved,
            names.removed,
            clients.verified,
            clients.newer,
            names.verified,
            names.done,
            names.undone,
        )
    }
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::at("create", to))?;
    for entry in fs::read_dir(from).map_err(Error::at("list", from))? {
        let entry = entry.map_err(Error::at("list", from))?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_dir(&path, &to)?;
        } else if path.is_file() {
            fs::copy(&path, &to).map_err(Error::at("copy", &path))?;
        }
    }
    Ok(())
}

/// Cuts that share a load, at most.
const CUTS_OF_A_LOAD: u64 = 25;
/// The longest of a load, beside the start.
const SPAN_MS: u64 = 1000;
