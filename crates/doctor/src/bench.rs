//! Benchmark of what a datastore gives its clients, by the names of the programs that people
//! compare with.
//!
//! What holds:
//! - The only file that is written is a new one, in a directory of the doctor's ([`Scratch`]), and
//!   it goes in the end, also after an error or a signal.
//! - A file that could fill the dataset is refused before anything is written.
//! - Every byte that is read is compared: a wrong one ends it.
//! - Every call that was sent counts with its whole time: people look for the slowest ones.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use aquifer_api::client::Client;
use aquifer_client::Error;
use aquifer_client::load::{self, Life, Mix, Order, Plan, Tally};
use aquifer_client::pages::Pages;
use aquifer_client::wire::Connection;
use aquifer_nfs::proto::v3::{NfsFh3, StableHow};
use serde::Serialize;

use crate::replay::Ground;
use crate::report::Report;
use crate::scratch::Scratch;
use crate::server::{self, Server};
use crate::session::is_stopped;
use crate::{on_thread, ports, rules, state};

/// A program that people compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Like {
    /// Its name.
    pub name: &'static str,
    runs: &'static [Run],
}

/// One of its runs: what is done, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    name: &'static str,
    kib: u32,
    read_percent: u8,
    order: Order,
    connections: usize,
    /// Calls outstanding on each connection.
    depth: usize,
}

const fn run(name: &'static str, kib: u32, read_percent: u8, order: Order, depth: usize) -> Run {
    Run { name, kib, read_percent, order, connections: 1, depth }
}

/// All of them; `docs/bench-like.md` says where their figures come from.
pub const LIKES: [Like; 6] = [
    Like {
        name: "sqlio",
        runs: &[Run { connections: 2, ..run("8K random write, 2 x 4", 8, 0, Order::Random, 4) }],
    },
    Like { name: "iometer", runs: &[run("4K random, half reads, 128", 4, 50, Order::Random, 128)] },
    Like {
        name: "crystaldiskmark",
        runs: &[
            run("SEQ1M Q8T1 read", 1024, 100, Order::Sequential, 8),
            run("SEQ1M Q1T1 read", 1024, 100, Order::Sequential, 1),
            run("RND4K Q32T1 read", 4, 100, Order::Random, 32),
            run("RND4K Q1T1 read", 4, 100, Order::Random, 1),
            run("SEQ1M Q8T1 write", 1024, 0, Order::Sequential, 8),
            run("SEQ1M Q1T1 write", 1024, 0, Order::Sequential, 1),
            run("RND4K Q32T1 write", 4, 0, Order::Random, 32),
            run("RND4K Q1T1 write", 4, 0, Order::Random, 1),
        ],
    },
    Like { name: "fio-randwrite", runs: &[run("4K random write, 256", 4, 0, Order::Random, 256)] },
    Like {
        name: "dd",
        runs: &[
            run("128K sequential write, 1", 128, 0, Order::Sequential, 1),
            run("128K sequential read, 1", 128, 100, Order::Sequential, 1),
        ],
    },
    Like {
        name: "iperf",
        runs: &[Run { connections: 4, ..run("1M read again, 4 x 4", 1024, 100, Order::Random, 4) }],
    },
];

/// Request for a benchmark.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The program.
    pub like: Like,
    /// Full name of the dataset.
    pub dataset: String,
    /// How long each run takes.
    pub seconds: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Name of the run, which says what was done.
    pub name: &'static str,
    /// Operations that were measured.
    pub ops: u64,
    /// Operations a second.
    pub ops_per_s: u64,
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// Mean time of an operation.
    pub mean_ns: u64,
    /// Half were faster.
    pub p50_ns: u64,
    /// 99 of 100 were faster.
    pub p99_ns: u64,
    /// The slowest.
    pub max_ns: u64,
}

/// Measures a dataset through NFS, from this machine.
///
/// # Errors
/// Why it cannot be, with what to do.
pub async fn measure(
    client: &Client,
    wanted: Wanted,
    stop: Arc<AtomicBool>,
) -> Result<Vec<Figures>, String> {
    let ground = find(client, &wanted.dataset).await?;
    let act = move |_: &mut Report| on_ground(&ground, &wanted, &stop);
    on_thread(Report::default(), act).await.0
}

/// Where the dataset can be written from here.
async fn find(client: &Client, dataset: &str) -> Result<Ground, String> {
    let mut report = Report::default();
    let why = |report: &Report| {
        let told = report.findings.last().map(|it| (it.what.clone(), it.command.clone()));
        let (what, command) = told.unwrap_or_else(|| (format!("{dataset} is not served"), None));
        format!("{what}; {}", command.unwrap_or_else(|| "aquifer doctor".into()))
    };
    let addresses = server::addresses(client).await;
    let Some(daemon) = state::daemon(client, &mut report).await else { return Err(why(&report)) };
    let server = Server::of(client, addresses, Some(&daemon));
    let state = state::ask(client, &daemon, &mut report).await;
    let share = state.shares.iter().find(|share| share.dataset == dataset);
    let share = share.filter(|share| share.problem.is_none() && state.is_in_service(dataset));
    let share = share.ok_or_else(|| {
        format!("{dataset} is no dataset that is exported and in service: aquifer share")
    })?;
    let looked = server.clone();
    let (open, _) = on_thread(Report::default(), move |report| ports::check(&looked, report)).await;
    if open.is_empty() {
        return Err("NFS does not answer here: aquifer doctor".into());
    }
    let mut report = Report::default();
    let ground = rules::ground(client, &server, &open, (&state, share), &mut report).await;
    match ground {
        Ok(Some(ground)) if ground.writes => Ok(ground),
        Ok(Some(ground)) => {
            Err(format!("{} may only be read from here: aquifer share", ground.path))
        }
        Ok(None) => Err(why(&report)),
        Err(rules::NotAdmitted) => Err(format!(
            "{} does not let this machine in, and it would be measured as a client: run it on a \
             host of its sharenfs, with aquifer --api https://SERVER:9443 --api-certificate FILE \
             --api-token FILE bench",
            share.path
        )),
    }
}

fn on_ground(ground: &Ground, wanted: &Wanted, stop: &AtomicBool) -> Result<Vec<Figures>, String> {
    let scratch = Scratch::make(ground.from, ground.nfs, &ground.path);
    let scratch = scratch.map_err(|wrong| format!("{}: {wrong}", ground.path))?;
    let left = format!("{}/{}", ground.path, scratch.name);
    let measured = in_scratch(ground, scratch.handle, wanted, stop);
    let removed = scratch.remove().map_err(|wrong| {
        format!("{left} could not be removed: {wrong}; aquifer doctor removes it later")
    });
    let figures = measured?;
    removed.and_then(|()| match is_stopped(stop) {
        true => Err("interrupted".to_string()),
        false => Ok(figures),
    })
}

fn in_scratch(
    ground: &Ground,
    dir: NfsFh3,
    wanted: &Wanted,
    stop: &AtomicBool,
) -> Result<Vec<Figures>, String> {
    let failed = |error: Error| error.to_string();
    let connect = || {
        let stream = ground.from.connect(ground.nfs);
        stream.map_err(Error::io("connect")).and_then(Connection::new).map_err(failed)
    };
    let mut first = connect()?;
    let free_bytes = first.space(dir).map_err(failed)?.free_bytes;
    // Also what is written over is written to another place first.
    let needed_bytes = wanted.bytes.saturating_mul(4);
    if free_bytes < needed_bytes {
        return Err(format!(
            "{} has {free_bytes} bytes free, and a file of {} needs {needed_bytes} so that nobody \
             else lacks room: give a smaller --size",
            wanted.dataset, wanted.bytes
        ));
    }
    let file = first.create(dir, "bench").map_err(failed)?;
    let bytes = usize::try_from(wanted.bytes).unwrap_or(usize::MAX);
    let mut pages = Pages::new(bytes, true);
    fill(&mut first, file, &mut pages, stop).map_err(failed)?;
    let mut figures = Vec::new();
    for run in wanted.like.runs {
        let mut connections = vec![];
        for _ in 0..run.connections {
            connections.push(connect()?);
        }
        let length = Duration::from_secs(wanted.seconds);
        let begun = Instant::now();
        let tally = pass(run, &mut connections, file, &mut pages, (length, stop));
        figures.push(of_tally(run, &tally.map_err(failed)?, begun.elapsed()));
    }
    Ok(figures)
}

/// Writes the whole file, a part after the other: between them it can end.
fn fill(
    connection: &mut Connection,
    file: NfsFh3,
    pages: &mut Pages,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let (bytes, order) = (pages.bytes() as u64, Order::Sequential);
    let mix = Mix::Data { read_percent: 0 };
    let (stable, commit_after) = (StableHow::Unstable, Some(u64::MAX));
    let plan = Plan { mix, bytes: FILL_BYTES, order, stable, depth: 4, commit_after };
    let parts = pages.bytes() / PART_BYTES;
    for mut share in pages.shares(parts.max(1), FILL_BYTES as usize)? {
        if !is_stopped(stop) {
            load::run(connection, file, &plan, &mut share, Life::Once, bytes)?;
        }
    }
    Ok(())
}

/// A run, second by second: between them it can end.
fn pass(
    run: &Run,
    connections: &mut [Connection],
    file: NfsFh3,
    pages: &mut Pages,
    (length, stop): (Duration, &AtomicBool),
) -> Result<Tally, Error> {
    let (mix, bytes) = (Mix::Data { read_percent: run.read_percent }, run.kib * 1024);
    let (stable, commit_after) = (StableHow::FileSync, None);
    let plan = Plan { mix, bytes, order: run.order, stable, depth: run.depth, commit_after };
    let (file_bytes, block) = (pages.bytes() as u64, bytes as usize);
    let mut total = Tally::default();
    let end = Instant::now() + length;
    let mut begins = true;
    while (begins || Instant::now() < end) && !is_stopped(stop) {
        begins = false;
        let life = Life::Sent { until: end.min(Instant::now() + SLICE) };
        let shares = pages.shares(run.connections, block)?;
        let plan = &plan;
        let tallies = thread::scope(|scope| {
            let each = shares.into_iter().zip(connections.iter_mut());
            let workers: Vec<_> = each
                .map(|(mut share, connection)| {
                    scope.spawn(move || {
                        load::run(connection, file, plan, &mut share, life, file_bytes)
                    })
                })
                .collect();
            let joined = workers.into_iter().map(|worker| {
                let ended = worker.join();
                ended.unwrap_or_else(|_| Err(Error::Malformed("a worker panicked".into())))
            });
            joined.collect::<Result<Vec<Tally>, Error>>()
        })?;
        tallies.iter().for_each(|tally| total.add(tally));
    }
    Ok(total)
}

fn of_tally(run: &Run, tally: &Tally, took: Duration) -> Figures {
    let mut all = tally.reads.clone();
    all += &tally.writes;
    let took_ms = took.as_millis().max(1);
    let per_s = |count: u64| u64::try_from(u128::from(count) * 1000 / took_ms).unwrap_or(u64::MAX);
    let nanoseconds = all
        .iter_recorded()
        .map(|step| u128::from(step.value_iterated_to()) * u128::from(step.count_at_value()));
    let mean = nanoseconds.sum::<u128>() / u128::from(all.len().max(1));
    Figures {
        name: run.name,
        ops: all.len(),
        ops_per_s: per_s(all.len()),
        bytes_per_s: per_s(all.len().saturating_mul(u64::from(run.kib) * 1024)),
        mean_ns: u64::try_from(mean).unwrap_or(u64::MAX),
        p50_ns: all.value_at_quantile(0.5),
        p99_ns: all.value_at_quantile(0.99),
        max_ns: all.max(),
    }
}

/// The smallest file: each connection of each run has blocks of its own.
pub const BYTES_MIN: u64 = 16 << 20;

const FILL_BYTES: u32 = 1 << 20;
const PART_BYTES: usize = 16 << 20;
const SLICE: Duration = Duration::from_secs(1);
