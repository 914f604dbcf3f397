//! Disks in service (`make bench-disks`): how fast a scrub, a new side and a returning side go on
//! slow disks, and what clients notice of it.
//!
//! Each figure is compared with the disk alone, or with the same clients without the work beside
//! them, in the same run.

use std::path::Path;
use std::time::{Duration, Instant};

use aquifer_rig::work::{Scratch, WorkDir};
use serde_json::Value;

use crate::figures::{Figure, Figures, number};
use crate::l2arc;
use crate::load::Life;
use crate::measure::{self, Sample};
use crate::raw::{Io, Raw};
use crate::slow::{Limits, SlowDisk};
use crate::target::{Setup, Target};
use crate::workload;
use crate::{Error, Result};

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the server is set up.
    pub setup: Setup,
    /// How long clients are measured.
    pub length: Duration,
    /// Scrub, new and returning side, and the clients beside a scrub.
    pub steps: bool,
    /// New sides of pools of different fill.
    pub fills: bool,
    /// Random reads beside a cache disk.
    pub l2arc: bool,
}

/// Measures all of it, on mirrors of two slow disks, each with a third one beside.
///
/// # Errors
/// The server's, and [`Error::Failed`] where disks cannot be slow.
pub fn run(options: &Options) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if options.steps {
        let mut bench = Disks::new(&options.setup, options.length)?;
        bench.new_side("new side, young pool")?;
        bench.scrub_alone()?;
        bench.scrub_beside_clients()?;
        bench.wear()?;
        bench.new_side("new side, pool written over at random")?;
        bench.returning_side()?;
        figures.append(&mut bench.figures.0);
    }
    if options.fills {
        figures.append(&mut fills(options)?);
    }
    if options.l2arc {
        figures.append(&mut l2arc::run(&options.setup, options.length)?);
    }
    Ok(figures)
}

/// The time that a new side takes on a pool 10 % full, against one 50 % full.
fn fills(options: &Options) -> Result<Vec<Figure>> {
    let mut took = Vec::new();
    let mut figures = Vec::new();
    for percent in [50, 10] {
        let bytes = options.setup.image_bytes / 100 * percent;
        let file_bytes = usize::try_from(bytes >> 20).unwrap_or_default() << 20;
        let setup = Setup { file_bytes, ..options.setup.clone() };
        let mut bench = Disks::new(&setup, options.length)?;
        took.push(bench.new_side(&format!("new side, pool {percent} % full"))?);
        figures.append(&mut bench.figures.0);
    }
    if let [half, tenth] = took.as_slice() {
        figures.push(Figure {
            what: "new side, pool 10 % full: time".into(),
            value: *tenth,
            unit: "s",
            ratio: tenth / half,
            to: "that of one 50 % full",
        });
    }
    Ok(figures)
}

/// Dropped in this order: the server has the third disk open.
struct Disks {
    target: Target,
    third: SlowDisk,
    _beside: Scratch,
    length: Duration,
    figures: Figures,
}

impl Disks {
    fn new(setup: &Setup, length: Duration) -> Result<Disks> {
        let work = WorkDir::open()?;
        eprintln!("making a mirror of two slow disks, and a third disk");
        let target = Target::start("aquifer-slow", setup, work.scratch("bench")?)?;
        let beside = work.scratch("third")?;
        let third = beside.join("c.img");
        let third = SlowDisk::new(&third, setup.image_bytes, true, Limits::default())?;
        Ok(Disks { target, third, _beside: beside, length, figures: Figures::default() })
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        self.target.ask(words, PATIENCE)
    }

    fn status(&self) -> Result<Value> {
        self.target.json(&["pool", "status", "tank"], PATIENCE)
    }

    /// Bytes per second that one disk reads in pieces of 512 KiB.
    fn disk_reads(&self) -> Result<f64> {
        let device = self.target.device(0)?;
        let count = Raw::open(device, RAW_BYTES)?.run(Io::Read, BIG_BYTES, RAW_LENGTH)?.count;
        Ok(count as f64 * BIG_BYTES as f64 / RAW_LENGTH.as_secs_f64())
    }

    fn scrub_alone(&mut self) -> Result<()> {
        self.target.throttle(true)?;
        let raw = self.disk_reads()?;
        let begun = Instant::now();
        self.ask(&["pool", "scrub", "-w", "tank"])?;
        let took = begun.elapsed().as_secs_f64();
        let bytes = number(&self.status()?, "/scrub/examined_bytes")?;
        let rate = bytes / took;
        self.figures.add(
            "scrub, idle",
            (rate / 1e6, "MB/s"),
            (rate / raw, "a disk's sequential reads"),
        );
        Ok(())
    }

    fn clients(&mut self) -> Result<Sample> {
        measure::sample(&mut self.target, &workload::stable_4k_32(), 1, self.length)
    }

    fn scrub_beside_clients(&mut self) -> Result<()> {
        let alone = self.clients()?;
        // A measurement lifts the limits at its end.
        self.target.throttle(true)?;
        let raw = self.disk_reads()?;
        self.ask(&["pool", "scrub", "tank"])?;
        let begun = Instant::now();
        let beside = self.clients()?;
        let bytes = number(&self.status()?, "/scrub/examined_bytes")?;
        let rate = bytes / begun.elapsed().as_secs_f64();
        // It may have ended by itself.
        let _ = self.ask(&["pool", "scrub", "-s", "tank"]);
        let (own, with) = (&alone.latency, &beside.latency);
        let p99 = with.p99_us / own.p99_us;
        self.figures.add(
            "32 stable 4 KiB writes beside a scrub: p99",
            (with.p99_us / 1e3, "ms"),
            (p99, ALONE),
        );
        let ops = beside.ops_per_s / alone.ops_per_s;
        self.figures.add(
            "32 stable 4 KiB writes beside a scrub",
            (beside.ops_per_s, "/s"),
            (ops, ALONE),
        );
        let gap = beside.gap_ms as f64;
        let gaps = gap / (alone.gap_ms as f64).max(1.0);
        self.figures.add(
            "32 stable 4 KiB writes beside a scrub: longest gap",
            (gap, "ms"),
            (gaps, ALONE),
        );
        self.figures.add(
            "scrub beside them",
            (rate / 1e6, "MB/s"),
            (rate / raw, "a disk's sequential reads"),
        );
        Ok(())
    }

    /// Writes as many pages as the file has, anywhere in it: about a third of them stay where they
    /// were, between places that are free.
    fn wear(&mut self) -> Result<()> {
        self.target.throttle(false)?;
        let pages = u32::try_from(self.target.file_bytes() / 4096).unwrap_or(u32::MAX);
        self.target.pass(&workload::wear(), 1, Life::Calls(pages), &mut |_| Ok(()))?;
        self.target.compare()
    }

    /// Returns the seconds that it took.
    fn new_side(&mut self, what: &str) -> Result<f64> {
        // What clients wrote last goes to its place on fast disks.
        std::thread::sleep(TXG_LENGTH);
        self.target.throttle(true)?;
        self.third.throttle(true)?;
        let raw = self.target.probes().first().map_or(1.0, |probe| probe.write_mb_per_s * 1e6);
        let first = self.target.device(0)?.to_path_buf();
        let new = self.third.device().to_path_buf();
        let begun = Instant::now();
        self.ask(&["pool", "attach", "-f", "tank", shown(&first)?, shown(&new)?])?;
        self.ask(&["pool", "wait", "tank"])?;
        let took = begun.elapsed().as_secs_f64();
        let bytes = number(&self.status()?, "/scan/copied_bytes")?;
        let rate = bytes / took;
        self.figures.add(what, (rate / 1e6, "MB/s"), (rate / raw, "a disk's sequential writes"));
        self.ask(&["pool", "detach", "tank", shown(&new)?])?;
        self.third.throttle(false)?;
        Ok(took)
    }

    fn returning_side(&mut self) -> Result<()> {
        let second = self.target.device(1)?.to_path_buf();
        self.ask(&["pool", "offline", "tank", shown(&second)?])?;
        let missed = self.clients()?;
        self.target.throttle(true)?;
        let before = written_bytes(&second)?;
        let begun = Instant::now();
        self.ask(&["pool", "online", "tank", shown(&second)?])?;
        self.ask(&["pool", "wait", "tank"])?;
        let took = begun.elapsed().as_secs_f64();
        let bytes = written_bytes(&second)? - before;
        // Those before the window, too.
        let away = missed.seconds + self.target.warm_up().as_secs_f64();
        let ratio = bytes / (missed.ops_per_s * away * 4096.0);
        self.figures.add(
            "side that was away: written to it",
            (bytes / 1e6, "MB"),
            (ratio, "what clients wrote"),
        );
        self.figures.add(
            "side that was away: back after",
            (took, "s"),
            (took / away, "the time it was away"),
        );
        Ok(())
    }
}

/// Bytes that a device was given to write so far, by the kernel's count.
fn written_bytes(device: &Path) -> Result<f64> {
    let name = device.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stat = Path::new("/sys/class/block").join(name).join("stat");
    let text = std::fs::read_to_string(&stat).map_err(Error::at("read", &stat))?;
    let sectors = text.split_whitespace().nth(6).and_then(|count| count.parse::<f64>().ok());
    sectors.map(|sectors| sectors * 512.0).ok_or(Error::Malformed(text))
}

fn shown(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::Malformed(format!("{}", path.display())))
}

const ALONE: &str = "the same without it";
const BIG_BYTES: usize = 512 << 10;
const RAW_BYTES: u64 = 512 << 20;
const RAW_LENGTH: Duration = Duration::from_secs(3);
/// Longer than a txg stays open.
const TXG_LENGTH: Duration = Duration::from_secs(18);
const PATIENCE: Duration = Duration::from_secs(1800);
