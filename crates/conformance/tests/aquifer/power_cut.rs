//! Power cuts under the real program. Its disks record each write and flush ([`recorder`]). From
//! the record, the test builds images as a cut at any moment could have left them. Unflushed writes
//! are lost, torn, or in another order. The program must start on each without help, and hold
//! everything that it promised its clients.
//!
//! Invariants: clients and disks use one clock, so for each moment the test knows what was promised
//! before it. Loads continue after a SIGKILL. They also continue after a power cut, on disks that
//! record the import and the replay as well: then cuts fall there too. After each cut `inspect
//! --deep --data` finds no error.
//!
//! A seed names one cut of one load. It determines the clients' operations, the moment, and the
//! fate of each write. The timing of the program's threads is not repeatable. So a failure, or a
//! requested seed, keeps the images of the cut.

mod image;
mod record;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use aquifer_conformance::{Error, Result};
use aquifer_rig::random::Random;

use crate::diary::Clock;
use crate::kill_loop::{KillLoop, connect, seed};
use crate::place::{Aquifer, Setup, is_long};
use crate::recorder::{self, Recorder, Tape};
use crate::{namer, writer};
use image::{Cut, Fates, Image};
use record::Record;

/// The pools whose power is cut.
const POOLS: [(&str, Setup); 4] = [
    ("one disk", SMALL),
    ("mirror", Setup { sides: 2, ..SMALL }),
    ("one disk, log", Setup { log_sides: 1, ..SMALL }),
    ("mirror, log, blocking calls", Setup { sides: 2, log_sides: 1, engine: "pread", ..SMALL }),
];

/// Little memory, so that txgs close in the middle of operations.
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
        let mut load = Load::record(load_seed, "standard", MEANWHILE)?;
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

/// A test that finds no loss must be able to find one: `sync=disabled` reports everything as
/// durable.
#[test]
fn power_cut_finds_that_a_dataset_without_sync_loses_what_it_has_acknowledged() -> Result<()> {
    must_lose("disabled:to be caught", |_| u64::MAX, &["LOST"])
}

/// A test that finds no loss must be able to find one: here a disk reports a flush and does none.
/// What the pool itself wrote can be what is lost: then the daemon may serve what is left, and
/// `inspect` finds the damage.
#[test]
fn power_cut_finds_that_a_disk_which_does_not_flush_loses_what_was_acknowledged() -> Result<()> {
    must_lose("standard", |load| load.record.ready, &["LOST", "inspect:"])
}

/// Cuts until something is lost: a check fails with a message that begins with one of `losses`.
fn must_lose(sync: &'static str, trusted: impl Fn(&Load) -> u64, losses: &[&str]) -> Result<()> {
    if !recorder::is_there() {
        return Ok(());
    }
    // The first pool: with a second side nothing need be lost.
    let mut load = Load::record(seed() % (1 << 40) * POOLS.len() as u64, sync, 0)?;
    for number in 0..CUTS_OF_A_LOAD {
        match load.cut(number, trusted(&load)).and_then(|cut| load.check(&cut)) {
            Ok(()) => {}
            Err(Error::Mismatch(what)) if losses.iter().any(|loss| what.starts_with(loss)) => {
                eprintln!("found by cut {}: {what}", number + 1);
                load.finish();
                return Ok(());
            }
            // An unreadable file is lost as well, up to the export's own directory.
            Err(Error::Failed { what, said }) if said == "Io" => {
                eprintln!("found by cut {}: {what} gives an I/O error", number + 1);
                load.finish();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    panic!("nothing was lost:\n{}", load.run.story);
}

/// The record of some seconds by clients and disks, and the daemon that starts on the images of
/// cuts.
struct Load {
    pool: &'static str,
    seed: u64,
    disk_bytes: u64,
    clock: Clock,
    run: KillLoop,
    /// Present while the load runs.
    recorder: Option<Recorder>,
    /// The record of its end, from when its daemon was ready, or its disks had lost their power.
    record: Record,
    /// The daemon's state directory as it was then.
    state: PathBuf,
    sum: Sum,
}

/// Sums over many cuts.
#[derive(Default)]
struct Sum {
    cuts: u64,
    /// Cuts after which a load continued.
    meanwhile: u64,
    /// Answers that promised something, in all loads.
    promises: u64,
    /// Of the disks, in all loads.
    changes: u64,
    flushes: u64,
    clients: writer::Tally,
    names: namer::Tally,
    fates: Fates,
}

impl Load {
    /// Lets clients work on a pool until the daemon is killed. Before that it is killed up to
    /// `meanwhile` times, or its disks lose their power, and it starts again.
    fn record(seed: u64, sync: &'static str, meanwhile: u64) -> Result<Self> {
        let (pool, setup) = POOLS[(seed % POOLS.len() as u64) as usize];
        let (setup, mut random) = (Setup { sync, ..setup }, Random::new(seed));
        let (clock, disk_bytes) = (Clock::default(), setup.disk_bytes);
        let mut recorder = None;
        let aquifer = Aquifer::start_on("power", setup, |netns, disks| {
            let blank = disks.iter().map(|_| Tape::default()).collect();
            recorder = Some(Recorder::mount(netns, disks, (disk_bytes, blank), &clock)?);
            Ok(())
        })?;
        let state = aquifer.scratch().join("state-before");
        copy_dir(&aquifer.state_dir(), &state)?;
        let record = Record::since(clock.now());
        let run = KillLoop::recorded(aquifer, random.next_u64(), &clock);
        let sum = Sum::default();
        let mut load = Self { pool, seed, disk_bytes, clock, run, recorder, record, state, sum };
        if let Err(error) = load.live(&mut random, meanwhile) {
            panic!("{error}\nin the load of SEED={}:\n{}", load.seed_of(0), load.run.story);
        }
        Ok(load)
    }

    fn live(&mut self, random: &mut Random, meanwhile: u64) -> Result<()> {
        let lives = 1 + random.below(meanwhile + 1);
        for life in 1..=lives {
            let span = Duration::from_millis(SPAN_MS / lives + random.below(SPAN_MS / lives));
            let verified = life == lives || random.below(2) == 0;
            self.run.write_until_killed(verified, span, None)?;
            if life < lives && random.below(2) == 0 {
                self.lose_power(life, random)?;
            }
            if life < lives {
                self.run.aquifer.serve()?;
            }
        }
        self.rest();
        Ok(())
    }

    /// Takes the record up to now.
    fn rest(&mut self) {
        let tapes = self.recorder.take().map(Recorder::finish).unwrap_or_default();
        self.record = Record::new(tapes, &self.run, self.record.ready, self.clock.now());
        self.sum.add(Sum::of(&self.record));
    }

    /// The load continues after a cut, with the disks of the cut and the clients' state at its
    /// moment.
    fn lose_power(&mut self, life: u64, random: &mut Random) -> Result<()> {
        self.rest();
        let cut = self.record.draw(random, u64::MAX);
        let images = self.record.images(&cut, random);
        let (aquifer, record) = (&self.run.aquifer, &self.record);
        // For people who look into a failure.
        let kept = aquifer.scratch().dir(&format!("cut-after-life{life}"))?;
        write(&images, &kept, aquifer.disks(), self.disk_bytes)?;
        restore(&self.state, &aquifer.state_dir())?;
        let told = format!("after life {life} {cut:?} of {}..{}", record.ready, record.end);
        let tapes = images.iter().map(Image::tape).collect();
        let disks = (self.disk_bytes, tapes);
        let recorder = Recorder::mount(aquifer.netns(), aquifer.disks(), disks, &self.clock)?;
        self.recorder = Some(recorder);
        self.run.rewind(cut.moment);
        self.record = Record::since(self.clock.now());
        self.sum.meanwhile += 1;
        self.tell(&told);
        Ok(())
    }

    /// Cuts the power, and panics with the story if the program breaks a promise.
    fn cut_and_check(&mut self, number: u64, trusted: u64, keep: bool) -> Result<()> {
        let cut = self.cut(number, trusted)?;
        let checked = self.check(&cut);
        if checked.is_err() || keep {
            // The images as they were cut: the daemon has changed its own.
            let kept = self.run.aquifer.scratch().join("cut");
            fs::create_dir_all(&kept).map_err(Error::at("create", &kept))?;
            self.lay(number, trusted, &kept)?;
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

    /// Puts the images of cut number `number` in the place of the daemon's disks.
    fn cut(&mut self, number: u64, trusted: u64) -> Result<Cut> {
        self.run.aquifer.kill9();
        let dir = self.run.aquifer.disks()[0].parent().map(Path::to_path_buf).unwrap_or_default();
        let (cut, fates) = self.lay(number, trusted, &dir)?;
        self.sum.fates.add(fates);
        restore(&self.state, &self.run.aquifer.state_dir())?;
        let Record { ready, end, .. } = self.record;
        let promised = self.record.promised(cut.moment);
        self.tell(&format!(
            "cut {number}: {cut:?} of {ready}..{end}: {fates:?}, {promised} promises before"
        ));
        Ok(cut)
    }

    /// Writes the images of a cut, as the seed draws it, to `dir`.
    fn lay(&self, number: u64, trusted: u64, dir: &Path) -> Result<(Cut, Fates)> {
        let mut random = Random::new(self.seed_of(number));
        let cut = self.record.draw(&mut random, trusted);
        let images = self.record.images(&cut, &mut random);
        let fates = write(&images, dir, self.run.aquifer.disks(), self.disk_bytes)?;
        Ok((cut, fates))
    }

    /// Starts the daemon on the images: it must keep its promises, and have no error.
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

    /// The seed that names a cut of this load.
    fn seed_of(&self, number: u64) -> u64 {
        self.seed * CUTS_OF_A_LOAD + number
    }

    /// The sums, with the load's own figures.
    fn finish(mut self) -> Sum {
        let (tally, names, sum) = (self.run.tally(), self.run.namer.tally, &mut self.sum);
        (sum.clients.stable, sum.clients.committed) = (tally.stable, tally.committed);
        (sum.names.made, sum.names.moved) = (names.made, names.moved);
        sum.names.removed = names.removed;
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
    /// The sums of a record, before any cut.
    fn of(record: &Record) -> Self {
        let changes = record.tapes.iter().flat_map(|tape| tape.changes());
        let changes = changes.filter(|change| change.began > 0).count() as u64;
        let flushes = record.tapes.iter().map(|tape| tape.flushes().len() as u64).sum();
        let promises = (record.promised(record.end) - record.promised(record.ready)) as u64;
        Self { promises, changes, flushes, ..Self::default() }
    }

    fn add(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.meanwhile += other.meanwhile;
        self.promises += other.promises;
        self.changes += other.changes;
        self.flushes += other.flushes;
        self.clients.add(other.clients);
        self.names.add(other.names);
        self.fates.add(other.fates);
    }

    fn told(&self) -> String {
        let Self { meanwhile, promises, changes, flushes, clients, names, fates, .. } = self;
        format!(
            "in the loads: {meanwhile} cuts; {promises} answers that promise: {} WRITEs stable, \
             {} by COMMITs; names: {} made, {} moved, {} removed; disks: {changes} writes and \
             discards, {flushes} flushes\n  \
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

/// Writes image files to `dir`, with the names of `disks`.
fn write(images: &[Image<'_>], dir: &Path, disks: &[PathBuf], bytes: u64) -> Result<Fates> {
    let mut fates = Fates::default();
    for (image, path) in images.iter().zip(disks) {
        image.write(&dir.join(path.file_name().unwrap_or_default()), bytes)?;
        fates.add(image.fates);
    }
    Ok(fates)
}

/// Restores the state directory.
fn restore(state: &Path, dir: &Path) -> Result<()> {
    fs::remove_dir_all(dir).map_err(Error::at("remove", dir))?;
    copy_dir(state, dir)
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

/// Most cuts that share a load.
const CUTS_OF_A_LOAD: u64 = 25;
/// A load lasts between this and twice this, beside its starts.
const SPAN_MS: u64 = 500;
/// Most kills and cuts within a load.
const MEANWHILE: u64 = 2;
