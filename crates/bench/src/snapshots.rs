//! Snapshots and clones (`make bench-snapshots`): what acts take, what clients notice of them, and
//! what is the same with many of them.
//!
//! Acts are commands of the command line: a process that starts, asks the daemon and ends. A figure
//! names the time of a command that only asks. All reads are compared with what was written, also
//! after rollbacks.

mod aged;
mod beside;
mod files;
mod many;
mod send;
mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aquifer_rig::process::Invocation;
use aquifer_rig::work::WorkDir;
use serde_json::Value;

use crate::figures::{Figure, Figures, median, number};
use crate::load::{Life, Order, Plan};
use crate::measure::{self, Sample};
use crate::pattern::PAGE_BYTES;
use crate::target::{Setup, Target};
use crate::{Error, Result, workload};

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the server is set up.
    pub setup: Setup,
    /// How long clients are measured.
    pub length: Duration,
    /// How many snapshots; there are a tenth of it of clones.
    pub many: usize,
    /// Bytes that are written of sparse files, in pages at random places.
    pub sparse: u64,
    /// The percentage to which the pool is filled before, and aged.
    pub aged: Option<u8>,
    /// How often an act is measured.
    pub rounds: usize,
    /// Only these parts, if any are named.
    pub only: Vec<String>,
}

/// A part, which leaves nothing behind.
type Part = fn(&mut Bench) -> Result<()>;

const PARTS: [(&str, Part); 14] = [
    ("acts", Bench::acts),
    ("each-second", Bench::each_second),
    ("held", Bench::held),
    ("destroy", Bench::destroy),
    ("many", Bench::many),
    ("clones", Bench::clones),
    ("send", Bench::send),
    ("send-beside", Bench::send_beside),
    ("files", Bench::files),
    ("template", Bench::template),
    ("many-of-file", Bench::many_of_file),
    ("thinned", Bench::thinned),
    ("ranges", Bench::ranges),
    ("datasets", Bench::datasets),
];

/// Measures all of it, on a mirror of two images.
///
/// # Errors
/// The server's; no part of that name.
pub fn run(options: &Options) -> Result<Vec<Figure>> {
    let names = PARTS.map(|(name, _)| name);
    if let Some(other) = options.only.iter().find(|only| !names.contains(&only.as_str())) {
        return Err(Error::Malformed(format!("no part {other:?}; there are {names:?}")));
    }
    let target = Target::start("aquifer", &options.setup, WorkDir::open()?.scratch("bench")?)?;
    let &Options { length, many, sparse, rounds, .. } = options;
    let mut bench = Bench { target, length, many, sparse, rounds, figures: Figures::default() };
    let mut ballast = options.aged.map(|percent| bench.age(percent)).transpose()?;
    for (name, part) in PARTS {
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            part(&mut bench)?;
        }
    }
    if let Some(ballast) = &mut ballast {
        bench.on(ballast, |bench| bench.target.compare())?;
    }
    Ok(bench.figures.0)
}

struct Bench {
    target: Target,
    length: Duration,
    many: usize,
    sparse: u64,
    rounds: usize,
    figures: Figures,
}

impl Bench {
    fn ask(&self, words: &[&str]) -> Result<String> {
        self.target.ask(words, PATIENCE)
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        self.target.json(words, PATIENCE)
    }

    /// Milliseconds of a command.
    fn ms(&self, words: &[&str]) -> Result<f64> {
        let begun = Instant::now();
        self.ask(words)?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }

    /// Destroys all snapshots and their clones, and waits until all is freed.
    fn clear(&self) -> Result<()> {
        self.ask(&["destroy", "-Rf", &format!("{DATASET}@%")])?;
        self.until_freed().map(drop)
    }

    /// Bytes that are taken, without those that two more txgs hold back for rewinding.
    fn used_bytes(&self) -> Result<f64> {
        let status = self.json(&["pool", "status", "tank"])?;
        Ok(number(&status, "/allocated_bytes")? - number(&status, "/held_bytes")?)
    }

    /// Waits until the background has freed what it will; the bytes that are taken then.
    fn until_freed(&self) -> Result<f64> {
        let (begun, steady) = (Instant::now(), STEADY.min(self.length * 2));
        let (mut least, mut since) = (self.used_bytes()?, Instant::now());
        while since.elapsed() < steady {
            std::thread::sleep(LOOK);
            let (now, freeing) = (self.used_bytes()?, self.freeing_bytes()?);
            if now < least || freeing > 0.0 && begun.elapsed() < PATIENCE / 10 {
                (least, since) = (now.min(least), Instant::now());
            }
        }
        Ok(least)
    }

    /// Bytes that the background is still to free.
    fn freeing_bytes(&self) -> Result<f64> {
        number(&self.json(&["pool", "status", "tank"])?, "/freeing_bytes")
    }

    /// Has all that clients wrote on disk.
    fn settle(&self) -> Result<()> {
        self.ask(&["snapshot", SETTLER])?;
        self.ask(&["destroy", "-f", SETTLER]).map(drop)
    }

    /// Waits until the server does almost nothing, if clients are measured for seconds.
    fn rest(&self) -> Result<()> {
        if self.length < REST { Ok(()) } else { measure::rest(&self.target) }
    }

    /// A second, if clients are measured for some of them.
    fn gap(&self) -> Duration {
        Duration::from_secs(1).min(self.length / 3)
    }

    fn clients(&mut self) -> Result<Sample> {
        measure::sample(&mut self.target, &workload::stable_4k_32(), 1, self.length)
    }

    /// Measures clients while another thread acts after each `gap`, as long as `act` gives words.
    fn clients_beside(
        &mut self,
        gap: Duration,
        act: impl FnMut(usize) -> Option<Vec<String>> + Send,
    ) -> Result<(Sample, Vec<f64>)> {
        let command = self.target.command()?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let acting = scope.spawn(|| acting(&command, gap, act, &over));
            let sample = self.clients();
            over.store(true, Ordering::Relaxed);
            let took = acting.join().map_err(|_| Error::Malformed("acts panicked".into()))?;
            Ok((sample?, took?))
        })
    }

    /// Writes over each page of the file once, in any order; the bytes that disks were given to
    /// write and read for it, for each byte of a client.
    fn write_over(&mut self) -> Result<(f64, f64)> {
        self.settle()?;
        let before = self.device_bytes()?;
        let pages = u32::try_from(self.target.file_bytes() / PAGE_BYTES).unwrap_or(u32::MAX);
        self.target.pass(&each_page(), 1, Life::Calls(pages), &mut |_| Ok(()))?;
        self.settle()?;
        let after = self.device_bytes()?;
        let bytes = self.target.file_bytes() as f64;
        Ok(((after.0 - before.0) / bytes, (after.1 - before.1) / bytes))
    }

    /// Returns how many bytes disks were given to write and to read so far.
    fn device_bytes(&self) -> Result<(f64, f64)> {
        let pools = self.json(&["iostat", "tank"])?;
        let of = |kind: &str| number(&pools, &format!("/0/io/{kind}/bytes"));
        Ok((of("writes")? + of("durable_writes")?, of("reads")?))
    }

    /// Snapshot, clone and rollback of a dataset with a big file, and of one without.
    fn acts(&mut self) -> Result<()> {
        self.ask(&["create", SMALL])?;
        let (mut asks, mut small, mut big) = (Vec::new(), Vec::new(), Vec::new());
        let (mut clones, mut rollbacks) = (Vec::new(), Vec::new());
        for round in 0..self.rounds {
            asks.push(self.ms(&["list", DATASET])?);
            small.push(self.ms(&["snapshot", &format!("{SMALL}@a{round}")])?);
            big.push(self.ms(&["snapshot", &format!("{DATASET}@a{round}")])?);
            let (from, to) = (format!("{DATASET}@a{round}"), format!("tank/a{round}"));
            clones.push(self.ms(&["clone", &from, &to])?);
            let content = self.target.content();
            let some = Life::Calls(ROLLED_BACK);
            self.target.pass(&workload::stable_4k_32(), 1, some, &mut |_| Ok(()))?;
            rollbacks.push(self.ms(&["rollback", "-f", &from])?);
            self.target.holds(content);
        }
        self.target.compare()?;
        let ask = median(asks);
        let small = median(small);
        let add = |what: &str, ms: f64, figures: &mut Figures| {
            figures.add(what, (ms, "ms"), (ms / ask, "a command that only asks"));
        };
        add("snapshot of an empty dataset", small, &mut self.figures);
        add("snapshot of a dataset with a big file", median(big), &mut self.figures);
        add("clone of it", median(clones), &mut self.figures);
        add("rollback of it, 1,000 pages", median(rollbacks), &mut self.figures);
        self.ask(&["destroy", "-rf", SMALL])?;
        self.clear()
    }

    /// A snapshot each second under stable writes.
    fn each_second(&mut self) -> Result<()> {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for round in 0..SAMPLES {
            alone.push(self.clients()?);
            let take = |number| {
                let name = format!("{DATASET}@s{round}-{number}");
                Some(vec!["snapshot".into(), name])
            };
            beside.push(self.clients_beside(self.gap(), take)?.0);
        }
        self.compared("32 stable 4 KiB writes, a snapshot a second", &alone, &beside);
        self.clear()
    }

    /// Measures the cost of a snapshot that holds every page that is overwritten.
    fn held(&mut self) -> Result<()> {
        // Both overwrite pages of a file that was written over before.
        self.write_over()?;
        let free = self.write_over()?;
        self.ask(&["snapshot", HELD])?;
        let held = self.write_over()?;
        let of = (held.0 / free.0, WITHOUT);
        self.figures.add("bytes written for each byte, pages held", (held.0, ""), of);
        let read = (held.1 - free.1, "more bytes read for each byte");
        self.figures.add("bytes read for each byte, pages held", (held.1, ""), read);
        self.clear()
    }

    /// A snapshot that holds every page is destroyed under stable writes, and without.
    fn destroy(&mut self) -> Result<()> {
        let alone = [self.clients()?];
        self.hold_all()?;
        let destroy = |number| (number == 0).then(|| DESTROY.map(String::from).to_vec());
        let (sample, took) = self.clients_beside(self.gap(), destroy)?;
        let answered = median(took);
        let gap = ("ms", answered / 1e3, "a second");
        self.figures.add("destroy beside them: answered", (answered, gap.0), (gap.1, gap.2));
        self.compared("32 stable 4 KiB writes, a big snapshot destroyed", &alone, &[sample]);
        self.until_freed()?;
        self.hold_all()?;
        let before = self.used_bytes()?;
        let begun = Instant::now();
        self.ask(&DESTROY)?;
        let least = self.target.file_bytes() as f64 * 0.95;
        while before - self.used_bytes()? < least {
            if begun.elapsed() > PATIENCE {
                let said = format!("of {least} bytes not all are free after {PATIENCE:?}");
                return Err(Error::Failed { what: "destroy".into(), said });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let took = begun.elapsed().as_secs_f64();
        let rate = self.target.file_bytes() as f64 * 0.95 / PAGE_BYTES as f64 / took;
        let of = (rate / 100_000.0, "100,000 extents a second");
        self.figures.add("destroy, nothing beside: extents freed", (rate, "/s"), of);
        self.until_freed().map(drop)
    }

    /// A snapshot that shows every page, none of which the head has any more.
    fn hold_all(&mut self) -> Result<()> {
        self.ask(&["snapshot", HELD])?;
        self.write_over().map(drop)
    }

    /// Many clones of a dataset, and reads beside them.
    fn clones(&mut self) -> Result<()> {
        let reads = random_reads()?;
        let few = self.rate(&reads)?;
        self.ask(&["snapshot", HELD])?;
        self.settle()?;
        let before = self.used_bytes()?;
        let count = (self.many / 10).max(1);
        let begun = Instant::now();
        for number in 0..count.min(100) {
            self.ask(&["clone", HELD, &format!("tank/c{number}")])?;
        }
        let took = begun.elapsed().as_secs_f64();
        self.settle()?;
        let each = (self.used_bytes()? - before) / count.min(100) as f64 / 1024.0;
        self.figures.add("100 clones, one after the other", (took, "s"), (took, "a second"));
        self.figures.add("space of each", (each, "KiB"), (each / 32.0, "32 KiB"));
        for number in count.min(100)..count {
            self.ask(&["clone", HELD, &format!("tank/c{number}")])?;
        }
        let many = self.rate(&reads)?;
        self.figures.add("4 KiB reads beside many clones", (many, "/s"), (many / few, ALONE));
        self.clear()
    }

    /// Calls a second.
    fn rate(&mut self, plan: &Plan) -> Result<f64> {
        let one = |_| measure::sample(&mut self.target, plan, 1, self.length);
        let samples = (0..SAMPLES).map(one).collect::<Result<Vec<Sample>>>()?;
        Ok(median(samples.iter().map(|sample| sample.ops_per_s).collect()))
    }

    /// Rate, 99 % and longest gap of samples against those without what is beside them.
    fn compared(&mut self, what: &str, alone: &[Sample], beside: &[Sample]) {
        let of = |samples: &[Sample], get: fn(&Sample) -> f64| {
            median(samples.iter().map(get).collect::<Vec<f64>>())
        };
        let rate = |sample: &Sample| sample.ops_per_s;
        let p99 = |sample: &Sample| sample.latency.p99_us / 1e3;
        let max = |sample: &Sample| sample.latency.max_us / 1e3;
        let add = |figures: &mut Figures, what, unit, get| {
            let (own, with) = (of(alone, get), of(beside, get));
            figures.add(what, (with, unit), (with / own, ALONE));
        };
        add(&mut self.figures, what.to_string(), "/s", rate);
        add(&mut self.figures, format!("{what}: p99"), "ms", p99);
        add(&mut self.figures, format!("{what}: longest"), "ms", max);
    }
}

/// Acts after each gap until it is over; milliseconds of each.
fn acting(
    command: &Invocation,
    gap: Duration,
    mut act: impl FnMut(usize) -> Option<Vec<String>>,
    over: &AtomicBool,
) -> Result<Vec<f64>> {
    let mut took = Vec::new();
    for number in 0.. {
        std::thread::sleep(gap);
        if over.load(Ordering::Relaxed) {
            break;
        }
        let Some(words) = act(number) else { break };
        let begun = Instant::now();
        command.clone().args(words).check(PATIENCE)?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(took)
}

/// Each page once, in any order.
fn each_page() -> Plan {
    Plan { order: Order::Shuffled, ..workload::wear() }
}

fn random_reads() -> Result<Plan> {
    let all = workload::all().into_iter();
    let found = all.map(|workload| (workload.name, workload.plan));
    let mut found = found.filter(|(name, _)| *name == "read-4k-rand");
    found.next().map(|(_, plan)| plan).ok_or_else(|| Error::Malformed("no such workload".into()))
}

const DATASET: &str = "tank/bench";
const SMALL: &str = "tank/small";
const HELD: &str = "tank/bench@held";
const DESTROY: [&str; 3] = ["destroy", "-f", HELD];
/// The root of the pool has no files, so a snapshot of it only ends the txg.
const SETTLER: &str = "tank@settle";
const ALONE: &str = "the same without it";
const WITHOUT: &str = "the same without a snapshot";
/// How often acts are measured, if nothing else is wanted.
pub const ROUNDS: usize = 20;
/// Shorter measurements wait for no rest.
const REST: Duration = Duration::from_secs(1);
/// How often clients are measured, with and without.
const SAMPLES: usize = 3;
/// Pages that a rollback takes back.
const ROLLED_BACK: u32 = 1000;
/// So long nothing more is freed when all is.
const STEADY: Duration = Duration::from_millis(1500);
const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(600);
