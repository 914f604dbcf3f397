//! The program that test guests run: the host's agent, NFS mounts, and the workloads of
//! `aquifer_conformance::workload`.
//!
//! Invariant: exit status 0 means that every check passed. 1 is a finding or a failure (described
//! on standard error), and 2 a wrong command line.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use aquifer_conformance::guest::agent;
use aquifer_conformance::workload::journal::{Durability, Journal};
use aquifer_conformance::workload::{bulk, fsx, lock, semantics, sparse, tree};
use aquifer_conformance::{Error, Result};

const USAGE: &str = "usage: nfstest COMMAND [--OPTION VALUE]...
  agent PORT                            serve the host at a virtio port
  mount HOST:EXPORT DIR [OPTIONS]       NFS mount by the kernel's own code, options as in nfs(5)
  fsx FILE [--seed N] [--ops N] [--length BYTES] [--map 0|1] [--direct 0|1]
  tree DIR [--seed N] [--files N]
  semantics DIR
  sparse FILE [--seed N] [--size BYTES]
  fill FILE --bytes N [--seed N]        write a file of seeded content
  hold FILE UNTIL --bytes N [--seed N]  write such a file, say 'held', sync it when UNTIL exists
  lock FILE UNTIL [--wait 0|1]          lock FILE (fcntl), say 'locked', hold it until UNTIL exists
  verify FILE --bytes N [--seed N]      verify it
  journal FILE [--first N] [--records N] [--record-bytes N] [--slots N] [--direct 0|1]
               [--pause-ms N]           prints 'ack NUMBER' for each durable record
  journal-check FILE [--acked NUMBER] [--record-bytes N] [--slots N]";

fn main() -> ExitCode {
    let result = Args::parse(std::env::args().skip(1)).and_then(|args| run(&args));
    match result {
        Ok(code) => code,
        Err(Failure::Usage(what)) => {
            eprintln!("nfstest: {what}\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Work(error)) => {
            eprintln!("nfstest: {error}");
            ExitCode::FAILURE
        }
    }
}

enum Failure {
    Usage(String),
    Work(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Work(error)
    }
}

/// A command, its words, and its options, whose values are all numbers.
struct Args {
    command: String,
    words: Vec<String>,
    options: BTreeMap<String, u64>,
}

impl Args {
    fn parse(mut args: impl Iterator<Item = String>) -> std::result::Result<Self, Failure> {
        let command = args.next().ok_or_else(|| Failure::Usage("no command".into()))?;
        let (mut words, mut options) = (Vec::new(), BTreeMap::new());
        while let Some(arg) = args.next() {
            let Some(name) = arg.strip_prefix("--") else {
                words.push(arg);
                continue;
            };
            let value = args.next().and_then(|value| value.parse().ok());
            let value = value.ok_or_else(|| Failure::Usage(format!("{arg} needs a number")))?;
            options.insert(name.to_owned(), value);
        }
        Ok(Self { command, words, options })
    }

    fn word(&self, number: usize, what: &str) -> std::result::Result<&str, Failure> {
        let word = self.words.get(number).map(String::as_str);
        word.ok_or_else(|| Failure::Usage(format!("{} needs {what}", self.command)))
    }

    fn path(&self) -> std::result::Result<PathBuf, Failure> {
        self.word(0, "a path").map(PathBuf::from)
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        self.options.get(name).copied().unwrap_or(default)
    }

    fn size(&self, name: &str, default: usize) -> std::result::Result<usize, Failure> {
        let Some(value) = self.options.get(name) else {
            return Ok(default);
        };
        usize::try_from(*value).map_err(|_| Failure::Usage(format!("--{name} {value}")))
    }
}

fn run(args: &Args) -> std::result::Result<ExitCode, Failure> {
    let started = Instant::now();
    let seed = args.number("seed", 1);
    match args.command.as_str() {
        "agent" => agent::serve(&args.path()?)?,
        "mount" => {
            let options = args.words.get(2).map(String::as_str).unwrap_or_default();
            mount(args.word(0, "HOST:EXPORT")?, Path::new(args.word(1, "a directory")?), options)?;
        }
        "fsx" => {
            let counts = fsx::run(&fsx::Config {
                path: args.path()?,
                seed,
                operations: args.number("ops", 1000),
                length_max: args.size("length", 256 << 10)?,
                mapped: args.number("map", 1) == 1,
                direct: args.number("direct", 0) == 1,
            })?;
            println!("{counts:?}");
        }
        "tree" => tree::run(&args.path()?, seed, args.number("files", 1000))?,
        "semantics" => return Ok(check_semantics(&args.path()?)?),
        "sparse" => sparse::run(&args.path()?, seed, args.number("size", 5 << 40))?,
        "fill" => bulk::fill(&args.path()?, seed, args.number("bytes", 0))?,
        "hold" => {
            let until = Path::new(args.word(1, "a path to wait for")?);
            bulk::fill_and_hold(&args.path()?, seed, args.number("bytes", 0), || {
                println!("held");
                while !until.exists() {
                    std::thread::sleep(Duration::from_millis(100));
                }
            })?;
        }
        "lock" => {
            let until = Path::new(args.word(1, "a path to wait for")?);
            let waits = args.number("wait", 1) == 1;
            lock::hold(&args.path()?, waits, || {
                println!("locked after {} ms", started.elapsed().as_millis());
                while !until.exists() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            })?;
        }
        "verify" => bulk::verify(&args.path()?, seed, args.number("bytes", 0))?,
        "journal" => write_journal(args)?,
        "journal-check" => {
            let checked = journal(args)?.check(args.options.get("acked").copied())?;
            println!("verified {} newest {:?}", checked.verified, checked.newest);
        }
        other => return Err(Failure::Usage(format!("no command {other}"))),
    }
    println!("{} done in {} ms", args.command, started.elapsed().as_millis());
    Ok(ExitCode::SUCCESS)
}

fn check_semantics(directory: &Path) -> Result<ExitCode> {
    let failed = semantics::run(directory, |name, result| match result {
        Ok(()) => println!("ok {name}"),
        Err(error) => println!("FAIL {name}: {error}"),
    })?;
    println!("semantics: {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn journal(args: &Args) -> std::result::Result<Journal, Failure> {
    let record_bytes = args.size("record-bytes", 4096)?;
    Ok(Journal { path: args.path()?, record_bytes, slots: args.number("slots", 0) })
}

fn write_journal(args: &Args) -> std::result::Result<(), Failure> {
    let direct = args.number("direct", 0) == 1;
    let durability = if direct { Durability::Direct } else { Durability::Fsync };
    let pause = Duration::from_millis(args.number("pause-ms", 0));
    let (first, records) = (args.number("first", 0), args.number("records", 100));
    journal(args)?.write(first, records, durability, pause, |number| {
        println!("ack {number}");
        // Printed at once: the host kills the server when it has seen enough. If nobody reads any
        // more, nobody relies on the record either.
        let _ = std::io::stdout().flush();
    })?;
    Ok(())
}

/// Mounts without mount.nfs: the kernel itself asks the server's portmapper and mountd, but needs
/// the address among the options.
fn mount(source: &str, directory: &Path, options: &str) -> Result<()> {
    let malformed = |what: &str| Error::Malformed(format!("{what} of mount {source}"));
    let (host, _) = source.split_once(':').ok_or_else(|| malformed("source"))?;
    let mut all = format!("addr={host}");
    for option in options.split(',').filter(|option| !option.is_empty()) {
        all.push(',');
        all.push_str(option);
    }
    std::fs::create_dir_all(directory).map_err(Error::at("create", directory))?;
    let data = CString::new(all.clone()).map_err(|_| malformed("options"))?;
    let flags = rustix::mount::MountFlags::empty();
    let mounted = rustix::mount::mount(source, directory, "nfs", flags, data.as_c_str());
    mounted.map_err(|errno| Error::io(format!("mount {source} ({all})"))(errno.into()))
}
