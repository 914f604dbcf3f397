//! `aquifer-bench`: compares servers (`make bench`), loads any server, or is the null server.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use aquifer_bench::load::{DEPTH_MAX, Mix, Order, Plan};
use aquifer_bench::null::{Behaviour, Fault};
use aquifer_bench::pattern::PAGE_BYTES;
use aquifer_bench::run::{self, OfWorkload, Options, Results};
use aquifer_bench::system::load_average;
use aquifer_bench::target::{BASELINES, NAMES, SLOW_NAMES, Setup, Target};
use aquifer_bench::{
    Error, Result, attacks, disks, figures, measure, null, report, snapshots, sync,
};
use aquifer_nfs::proto::v3::StableHow;
use clap::{Parser, Subcommand};

/// Measures NFSv3 servers side by side. Needs root.
#[derive(Debug, Parser)]
#[command(version, disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
struct Args {
    /// How often each target has its turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long one measurement takes.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Only these workloads.
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',')]
    only: Vec<String>,
    /// Whom to measure; aquifer@PROGRAM is another build.
    #[arg(long, value_delimiter = ',', default_values_t = NAMES.map(String::from))]
    targets: Vec<String>,
    /// Connections, each with the workload's calls outstanding.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Connections of the workload idle.
    #[arg(long, default_value_t = 1000)]
    idle: usize,
    /// Size of the file that is worked on, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    file: usize,
    /// Print everything as JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stable writes on slow disks, with and without a fast log; and one write outstanding.
    Sync(SyncArgs),
    /// Scrub, new and returning sides on slow disks, and what clients notice of them.
    Disks(DisksArgs),
    /// Snapshots and clones: what they take, and what clients notice of them.
    Snapshots(SnapshotsArgs),
    /// Attack Aquifer from all sides, and see what a client that is let in is served meanwhile.
    Attacks(AttacksArgs),
    /// Load a server that runs on this machine. A file bench.img is made in its export.
    Load(LoadArgs),
    /// Be the server that stores nothing.
    Null {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:2049")]
        listen: SocketAddr,
        /// Size of its file.
        #[arg(long, default_value_t = 256 << 20)]
        file_bytes: u64,
    },
}

#[derive(Debug, clap::Args)]
struct SyncArgs {
    /// How often each target has its turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long one measurement takes.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Only these: sqlio-8k, iometer-4k, esx-dd, write-4k-stable-32, depth1, restart,
    /// sustained.
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',')]
    only: Vec<String>,
    /// Whom to measure on slow disks.
    #[arg(long, value_delimiter = ',', default_values_t = SLOW_NAMES.map(String::from))]
    targets: Vec<String>,
    /// Memory that Aquifer is given, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: u64,
    /// Size of the file that is worked on, in MiB; if not given, twice the memory.
    #[arg(long, value_name = "MIB")]
    file: Option<usize>,
    /// Size of each slow disk, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 3072)]
    disk: u64,
    /// Slow disks take room only where they are written: for disks larger than what is free.
    #[arg(long)]
    sparse: bool,
    /// Run sqlio-8k for so many seconds, too, once on each target, with a pool of its own.
    #[arg(long, value_name = "SECONDS")]
    sustained: Option<u64>,
    /// And again on pools that are 80 % full and were written over twice.
    #[arg(long, requires = "sustained")]
    aged: bool,
    /// Print everything as JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct DisksArgs {
    /// How long clients are measured.
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Memory that Aquifer is given, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: u64,
    /// Size of the file that is scrubbed and worked on, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    file: usize,
    /// Size of each slow disk, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 6144)]
    disk: u64,
    /// Only this: steps (scrub, new and returning side), fills (pools 10 and 50 % full), l2arc
    /// (reads beside a cache disk).
    #[arg(long, value_parser = ["steps", "fills", "l2arc"])]
    only: Option<String>,
    /// Print everything as JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct SnapshotsArgs {
    /// How long clients are measured.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Size of the file that is worked on, in MiB; if not given, 1024, with --aged 256.
    #[arg(long, value_name = "MIB")]
    file: Option<usize>,
    /// Amount written of sparse files, in MiB; if not given, as much as the file has.
    #[arg(long, value_name = "MIB")]
    sparse: Option<usize>,
    /// Size of each image, in MiB; if not given, 6144, with --aged 12288.
    #[arg(long, value_name = "MIB")]
    disk: Option<u64>,
    /// How many snapshots; there are a tenth of it of clones and datasets.
    #[arg(long, default_value_t = 10_000)]
    many: usize,
    /// Before, fill the pool to so many percent, and write over random pages of it.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=95))]
    aged: Option<u8>,
    /// Only these: acts, each-second, held, destroy, many, clones, send, files, template,
    /// many-of-file, thinned, ranges, datasets.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Print everything as JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct AttacksArgs {
    /// How long each attack lasts. The calm before each lasts a fifth of it, at least 5 s.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Only these: elsewhere, idle, garbage, calls, guest, names, datagrams, api, tls, addresses,
    /// readers, snapshots, tokens, senders, inside, all.
    #[arg(long, value_name = "ATTACK", value_delimiter = ',')]
    only: Vec<String>,
    /// Print everything as JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct LoadArgs {
    /// Port of NFS and MOUNT on 127.0.0.1.
    port: u16,
    /// Export to mount.
    export: String,
    /// Share of reads, in percent.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    read: u8,
    /// KiB of one READ or WRITE: 4 to 1024.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(4..=1024))]
    size: u32,
    /// Calls outstanding on each connection.
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// One block after the other instead of any.
    #[arg(long)]
    sequential: bool,
    /// Stability that WRITE asks for: unstable, data-sync or file-sync.
    #[arg(long, default_value = "file-sync", value_parser = stable)]
    stable: StableHow,
    /// A COMMIT after so many writes.
    #[arg(long)]
    commit_after: Option<u64>,
    /// Connections.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Size of the file, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    file: usize,
    /// Seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The server is `aquifer-bench null`: it stores nothing.
    #[arg(long)]
    null: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match &args.command {
        Some(Command::Attacks(attacks)) => return self::attacks(attacks),
        Some(Command::Disks(disks)) => return self::disks(disks),
        Some(Command::Snapshots(snapshots)) => return self::snapshots(snapshots),
        _ => {}
    }
    let json = args.json || matches!(&args.command, Some(Command::Sync(sync)) if sync.json);
    let results = match args.command {
        Some(Command::Null { listen, file_bytes }) => serve_null(listen, file_bytes),
        Some(Command::Sync(ref sync)) => slow(sync).map(Some),
        Some(Command::Load(ref load)) => self::load(load).map(Some),
        Some(Command::Attacks(_) | Command::Disks(_) | Command::Snapshots(_)) => Ok(None),
        None => compare(&args).map(Some),
    };
    match results {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(results)) => {
            match serde_json::to_string_pretty(&results) {
                Ok(text) if json => println!("{text}"),
                _ => print!("{}", report::text(&results)),
            }
            if results.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("aquifer-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn disks(args: &DisksArgs) -> ExitCode {
    let is_wanted = |what| args.only.as_deref().is_none_or(|only| only == what);
    let ran = setup(args.file, args.disk << 20).and_then(|setup| {
        disks::run(&disks::Options {
            setup: Setup { memory_bytes: Some(args.memory << 20), sparse_disks: true, ..setup },
            length: Duration::try_from_secs_f64(args.seconds).unwrap_or(Duration::from_secs(1)),
            steps: is_wanted("steps"),
            fills: is_wanted("fills"),
            l2arc: is_wanted("l2arc"),
        })
    });
    shown(ran, args.json)
}

fn snapshots(args: &SnapshotsArgs) -> ExitCode {
    let (file, disk) = if args.aged.is_some() { (256, 12 << 10) } else { (1 << 10, 6 << 10) };
    let file = args.file.unwrap_or(file);
    let ran = setup(file, args.disk.unwrap_or(disk) << 20).and_then(|setup| {
        snapshots::run(&snapshots::Options {
            setup,
            sparse: (args.sparse.unwrap_or(file) as u64) << 20,
            aged: args.aged,
            length: Duration::try_from_secs_f64(args.seconds).unwrap_or(Duration::from_secs(1)),
            many: args.many,
            rounds: snapshots::ROUNDS,
            only: args.only.clone(),
        })
    });
    shown(ran, args.json)
}

fn shown(ran: Result<Vec<figures::Figure>>, json: bool) -> ExitCode {
    match ran {
        Ok(figures) => {
            match serde_json::to_string_pretty(&figures) {
                Ok(text) if json => println!("{text}"),
                _ => print!("{}", figures::text(&figures)),
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("aquifer-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Also fails if a limit is broken.
fn attacks(args: &AttacksArgs) -> ExitCode {
    let length = Duration::try_from_secs_f64(args.seconds).unwrap_or(Duration::from_secs(30));
    let ran = setup(0, ATTACKED_BYTES).and_then(|setup| {
        attacks::run(&attacks::Options {
            aquifer: setup.aquifer,
            length,
            calm: (length / 5).max(Duration::from_secs(5)),
            only: args.only.clone(),
            image_bytes: setup.image_bytes,
            file_bytes: 64 << 20,
            lab: attacks::Lab { files: 5000, snapshots: 200 },
        })
    });
    match ran {
        Ok(results) => {
            match serde_json::to_string_pretty(&results) {
                Ok(text) if args.json => println!("{text}"),
                _ => print!("{}", attacks::verdict::text(&results)),
            }
            if results.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("aquifer-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &Args) -> Result<Results> {
    // A few more: those of the harness itself.
    let connections = (args.idle > 4000).then_some(args.idle + 64);
    run::run(&Options {
        setup: Setup { connections, ..setup(args.file, IMAGE_BYTES)? },
        targets: args.targets.clone(),
        only: args.only.clone(),
        rounds: args.rounds,
        length: Duration::try_from_secs_f64(args.seconds).unwrap_or(Duration::from_secs(1)),
        connections: args.connections,
        idle: args.idle,
    })
}

fn slow(args: &SyncArgs) -> Result<Results> {
    let twice = usize::try_from(args.memory * 2).unwrap_or(usize::MAX);
    let setup = setup(args.file.unwrap_or(twice), args.disk << 20)?;
    sync::run(&sync::Options {
        setup: Setup { memory_bytes: Some(args.memory << 20), sparse_disks: args.sparse, ..setup },
        targets: args.targets.clone(),
        only: args.only.clone(),
        rounds: args.rounds,
        length: Duration::try_from_secs_f64(args.seconds).unwrap_or(Duration::from_secs(1)),
        sustained: args.sustained.map(Duration::from_secs),
        aged: args.aged,
    })
}

/// The programs beside this one, and this much space.
fn setup(file_mib: usize, image_bytes: u64) -> Result<Setup> {
    let bench = std::env::current_exe().map_err(Error::io("find this program"))?;
    let beside = || bench.with_file_name("aquifer");
    Ok(Setup {
        aquifer: std::env::var_os("AQUIFER_BIN").map_or_else(beside, PathBuf::from),
        bench: bench.clone(),
        file_bytes: file_mib << 20,
        image_bytes,
        sparse_disks: false,
        written_images: true,
        memory_bytes: None,
        connections: None,
        aged: false,
    })
}

fn load(args: &LoadArgs) -> Result<Results> {
    let before = load_average();
    let bytes = args.size * 1024;
    if !usize::try_from(bytes).is_ok_and(|bytes| bytes.is_multiple_of(PAGE_BYTES)) {
        return Err(Error::Malformed("sizes are multiples of 4 KiB".into()));
    }
    let plan = Plan {
        mix: Mix::Data { read_percent: args.read },
        bytes,
        order: if args.sequential { Order::Sequential } else { Order::Random },
        stable: args.stable,
        depth: args.depth.clamp(1, DEPTH_MAX),
        commit_after: args.commit_after,
    };
    let mut target = Target::at(args.port, &args.export, args.file << 20, !args.null)?;
    let length = Duration::try_from_secs_f64(args.seconds).unwrap_or(Duration::from_secs(1));
    let sample = measure::sample(&mut target, &plan, args.connections, length)?;
    let targets = vec![(target.name().to_owned(), vec![sample])];
    let workload = OfWorkload { name: "load".into(), what: format!("{plan:?}"), targets };
    Ok(Results {
        file_bytes: args.file << 20,
        connections: Some(args.connections),
        load_average: [before, load_average()],
        baselines: BASELINES.map(String::from).to_vec(),
        workloads: vec![workload],
        ..Results::default()
    })
}

fn serve_null(listen: SocketAddr, file_bytes: u64) -> Result<Option<Results>> {
    let listener = TcpListener::bind(listen).map_err(Error::io(format!("listen at {listen}")))?;
    null::serve(&listener, Behaviour { file_bytes, fault: Fault::None }).map(|()| None)
}

fn stable(text: &str) -> std::result::Result<StableHow, String> {
    match text {
        "unstable" => Ok(StableHow::Unstable),
        "data-sync" => Ok(StableHow::DataSync),
        "file-sync" => Ok(StableHow::FileSync),
        other => Err(format!("{other:?} is none of unstable, data-sync, file-sync")),
    }
}

/// Size of the image file that the attacks need.
const ATTACKED_BYTES: u64 = 1 << 30;

/// Size of each image file: many times the working set, since no block is overwritten in place.
const IMAGE_BYTES: u64 = 4 << 30;
