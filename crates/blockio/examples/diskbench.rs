//! Measures both engines on one disk, side by side and interleaved.
//!
//! ```text
//! diskbench FOLDER [--mib N] [--seconds S] [--rounds N] [--only TEXT] [--engine uring|pread]
//! diskbench --destroy DEVICE [...]
//! ```
//!
//! In FOLDER it makes and fills an image file, and removes it at the end. It overwrites a DEVICE
//! (or an existing image file), and fills it only if a case reads. Every case runs once for each
//! engine and round, the engines in turn, each on a current-thread runtime. It prints medians over
//! the rounds with the spread. CPU is user and system time of the whole process (kernel workers of
//! io_uring included) for each operation.
//!
//! Every page carries its sector number; every read checks it.

use std::cell::Cell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aquifer_blockio::{Disk, Engine, FileDisk, OpenOptions, Page, PageMut, create_image};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

type Fallible<T> = Result<T, Box<dyn Error>>;

fn main() -> Fallible<()> {
    let options = Options::parse()?;
    let made = match options.destroy {
        true => None,
        false => {
            let path = options.path.join(format!("diskbench-{}.img", std::process::id()));
            create_image(&path, options.mib * 256)?;
            Some(Remove(path))
        }
    };
    let path = made.as_ref().map_or(options.path.as_path(), |image| image.0.as_path());
    let chosen: Vec<_> = CASES.iter().filter(|case| case.name.contains(&options.only)).collect();
    if made.is_some() || chosen.iter().any(|case| case.what == What::Read) {
        fill(path, options.mib * 256)?;
    }
    println!(
        "{:<26} {:>6} {:>24} {:>10} {:>10} {:>10}",
        "case", "engine", "ops/s (min..max)", "MB/s", "us p50/p99", "CPU us/op"
    );
    for case in chosen {
        let mut results: Vec<(Engine, Vec<Figures>)> =
            options.engines.iter().map(|engine| (*engine, Vec::new())).collect();
        for round in 0..options.rounds {
            for (engine, figures) in &mut results {
                figures.push(run(path, *engine, case, &options, round)?);
            }
            // The other engine goes first in the next round.
            results.reverse();
        }
        results.sort_by_key(|(engine, _)| *engine == Engine::Pread);
        for (engine, figures) in results {
            report(case, engine, &figures);
        }
    }
    Ok(())
}

struct Options {
    path: PathBuf,
    destroy: bool,
    mib: u64,
    seconds: f64,
    rounds: u64,
    only: String,
    engines: Vec<Engine>,
}

impl Options {
    fn parse() -> Fallible<Self> {
        let mut options = Options {
            path: PathBuf::new(),
            destroy: false,
            mib: 1024,
            seconds: 2.0,
            rounds: 5,
            only: String::new(),
            engines: vec![Engine::Uring, Engine::Pread],
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument}: a value is missing"));
            match argument.as_str() {
                "--destroy" => {
                    options.destroy = true;
                    options.path = value()?.into();
                }
                "--mib" => options.mib = value()?.parse()?,
                "--seconds" => options.seconds = value()?.parse()?,
                "--rounds" => options.rounds = value()?.parse()?,
                "--only" => options.only = value()?,
                "--engine" => match value()?.as_str() {
                    "uring" => options.engines = vec![Engine::Uring],
                    "pread" => options.engines = vec![Engine::Pread],
                    other => return Err(format!("{other}: no engine").into()),
                },
                folder => options.path = folder.into(),
            }
        }
        match options.path.as_os_str().is_empty() {
            true => Err("usage: diskbench FOLDER | diskbench --destroy DEVICE".into()),
            false => Ok(options),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    Read,
    Write,
    WriteFlush,
    WriteDurable,
}

struct Case {
    name: &'static str,
    what: What,
    pages: u64,
    depth: usize,
    sequential: bool,
}

const fn random(name: &'static str, what: What, depth: usize) -> Case {
    Case { name, what, pages: 1, depth, sequential: false }
}

const fn sequential(name: &'static str, what: What, pages: u64, depth: usize) -> Case {
    Case { name, what, pages, depth, sequential: true }
}

const CASES: &[Case] = &[
    random("read 4K depth 1", What::Read, 1),
    random("read 4K depth 32", What::Read, 32),
    random("read 4K depth 128", What::Read, 128),
    random("write 4K depth 1", What::Write, 1),
    random("write 4K depth 32", What::Write, 32),
    random("write 4K depth 128", What::Write, 128),
    random("write+flush 4K depth 1", What::WriteFlush, 1),
    random("write+flush 4K depth 32", What::WriteFlush, 32),
    random("durable 4K depth 1", What::WriteDurable, 1),
    random("durable 4K depth 32", What::WriteDurable, 32),
    sequential("durable 128K depth 1", What::WriteDurable, 32, 1),
    sequential("seq read 128K depth 8", What::Read, 32, 8),
    sequential("seq write 128K depth 8", What::Write, 32, 8),
    sequential("seq read 1M depth 4", What::Read, 256, 4),
    sequential("seq write 1M depth 4", What::Write, 256, 4),
];

struct Figures {
    operations: u64,
    seconds: f64,
    cpu_us: f64,
    p50_us: f64,
    p99_us: f64,
}

fn run(
    path: &Path,
    engine: Engine,
    case: &'static Case,
    options: &Options,
    round: u64,
) -> Fallible<Figures> {
    let disk = FileDisk::open(path, OpenOptions::exclusive().with_engine(engine))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let sectors = disk.sectors().min(options.mib * 256);
    let patience = Duration::from_secs_f64(options.seconds);
    let (begin, cpu) = (Instant::now(), cpu_us());
    let next = Rc::new(Cell::new(0));
    let mut latencies = local.block_on(&runtime, async {
        let tasks: Vec<_> = (0..case.depth)
            .map(|task| {
                let (disk, next) = (Arc::clone(&disk), Rc::clone(&next));
                let seed = round << 32 | task as u64;
                let work = work(disk, case, sectors, next, seed, begin + patience);
                tokio::task::spawn_local(work)
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await??);
        }
        Ok::<_, Box<dyn Error>>(all)
    })?;
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_us() - cpu);
    latencies.sort_by(f64::total_cmp);
    let at = |part: usize| latencies.get(latencies.len() * part / 100).copied().unwrap_or(0.0);
    Ok(Figures {
        operations: latencies.len() as u64,
        seconds,
        cpu_us: cpu / latencies.len().max(1) as f64,
        p50_us: at(50),
        p99_us: at(99),
    })
}

/// One of `depth` tasks. Returns the time of each of its operations, in microseconds.
async fn work(
    disk: Arc<dyn Disk>,
    case: &'static Case,
    sectors: u64,
    next: Rc<Cell<u64>>,
    seed: u64,
    end: Instant,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut latencies = Vec::new();
    let slots = sectors / case.pages;
    loop {
        let slot = match case.sequential {
            true => next.replace(next.get() + 1) % slots,
            false => random.next_u64() % slots,
        };
        let sector = slot * case.pages;
        let pages = match case.what {
            What::Read => Vec::new(),
            _ => (sector..sector + case.pages).map(page).collect(),
        };
        let begin = Instant::now();
        if begin >= end {
            return Ok(latencies);
        }
        match case.what {
            What::Read => {
                let pages = disk.read(sector, usize::try_from(case.pages)?).await?;
                for (at, page) in (sector..).zip(pages) {
                    check(at, &page)?;
                }
            }
            What::Write => disk.write(sector, pages).await?,
            What::WriteDurable => disk.write_durable(sector, pages).await?,
            What::WriteFlush => {
                disk.write(sector, pages).await?;
                disk.flush().await?;
            }
        }
        latencies.push(begin.elapsed().as_secs_f64() * 1e6);
    }
}

fn page(sector: u64) -> Page {
    let mut page = PageMut::zeroed();
    let head = sector.to_le_bytes();
    page.iter_mut().zip(head.iter().cycle().take(64)).for_each(|(to, from)| *to = *from);
    page.freeze()
}

fn check(sector: u64, page: &Page) -> Fallible<()> {
    match page.first_chunk() == Some(&sector.to_le_bytes()) {
        true => Ok(()),
        false => Err(format!("sector {sector} holds something else").into()),
    }
}

/// Writes every page once, so that no case allocates space in the file system below.
fn fill(path: &Path, sectors: u64) -> Fallible<()> {
    let disk = FileDisk::open(path, OpenOptions::exclusive())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let sectors = sectors.min(disk.sectors());
        for start in (0..sectors).step_by(1024) {
            let pages = (start..sectors.min(start + 1024)).map(page).collect();
            disk.write(start, pages).await?;
        }
        disk.flush().await?;
        Ok(())
    })
}

fn report(case: &Case, engine: Engine, figures: &[Figures]) {
    let engine = match engine {
        Engine::Uring => "uring",
        Engine::Pread => "pread",
    };
    let median = |of: &dyn Fn(&Figures) -> f64| {
        let mut values: Vec<f64> = figures.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
        (at(0), at(values.len() / 2), at(values.len().saturating_sub(1)))
    };
    let (min, rate, max) = median(&|figures| figures.operations as f64 / figures.seconds);
    let (_, cpu, _) = median(&|figures| figures.cpu_us);
    let (_, p50, _) = median(&|figures| figures.p50_us);
    let (_, p99, _) = median(&|figures| figures.p99_us);
    let rates = format!("{rate:.0} ({min:.0}..{max:.0})");
    let megabytes = rate * case.pages as f64 * 4096.0 / 1e6;
    let latency = format!("{p50:.0}/{p99:.0}");
    println!(
        "{:<26} {engine:>6} {rates:>24} {megabytes:>10.0} {latency:>10} {cpu:>10.1}",
        case.name
    );
}

/// User and system time of this process so far, in microseconds.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Removes the image when the benchmark ends.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
