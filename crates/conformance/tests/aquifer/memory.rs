//! The daemon's resident memory under load stays within its limit.
//!
//! The limit is `--memory` for engine and NFS together, what a pool's table of calls and a few
//! connections take beside it, and what the daemon takes without load.

use std::fs;
use std::path::Path;
use std::thread;

use aquifer_conformance::clients::{Bench, Call};
use aquifer_conformance::workload::bulk;
use aquifer_conformance::{Error, Result};

use crate::place::{Aquifer, MIB, Setup, is_long, text};

/// All at once: three clients copy more than the cap in and out, and a fourth writes and reads
/// small pages with many requests outstanding.
#[test]
fn client_load_keeps_the_daemon_within_its_memory() -> Result<()> {
    let setup = Setup {
        sides: 1,
        disk_bytes: 16 << 30,
        memory: "128M",
        sync: "standard",
        ..Setup::default()
    };
    let aquifer = Aquifer::start("memory", setup)?;
    let clients = aquifer.clients();
    report(&aquifer, "idle")?;
    // The program itself, its threads, a pool without load.
    let idle = status_bytes(&aquifer, "VmHWM")?;
    let bytes = if is_long() { 1024 * MIB } else { 160 * MIB };
    let local = aquifer.scratch().join("local");
    bulk::fill(&local, SEED, bytes)?;
    let small = aquifer.url("small.raw");
    clients.image_create("raw", &small, 256 * MIB).done()?;
    for round in [Round::Write("copy"), Round::Read("copy"), Round::Write("more")] {
        thread::scope(|scope| -> Result<()> {
            let copy = |number| copy(&aquifer, round, number, &local, bytes);
            let copies: Vec<_> = (0..3).map(|n| scope.spawn(move || copy(n))).collect();
            let write = matches!(round, Round::Write(_));
            let bench = Bench {
                count: 40_000,
                depth: 64,
                bytes: 4096,
                write,
                flush_every: 0,
                pattern: 0x5a,
            };
            let rate = clients.image_bench("raw", &small, bench)?;
            eprintln!("{round:?}: {rate:.0} small requests/s beside the copies");
            copies.into_iter().try_for_each(|copy| copy.join().unwrap())
        })?;
        report(&aquifer, &format!("{round:?}"))?;
    }
    let (peak, given, beside) = (status_bytes(&aquifer, "VmHWM")?, 128 * MIB, 8 * MIB);
    let most = idle + given + beside + RESERVE_BYTES;
    assert!(peak <= most, "{} MiB, idle it was {}", peak / MIB, idle / MIB);
    aquifer.finish()
}

/// A round of the copying clients, with the prefix of their files' names.
#[derive(Clone, Copy, Debug)]
enum Round {
    Write(&'static str),
    Read(&'static str),
}

/// Copies `local` to the server, or copies it back and verifies it.
fn copy(aquifer: &Aquifer, round: Round, number: u32, local: &Path, bytes: u64) -> Result<()> {
    let (Round::Write(name) | Round::Read(name)) = round;
    let url = aquifer.url(&format!("{name}{number}"));
    match round {
        Round::Write(_) => aquifer.clients().nfs_cp(&text(local), &url).done().map(|_| ()),
        Round::Read(_) => {
            let back = aquifer.scratch().join(&format!("back{number}"));
            aquifer.clients().nfs_cp(&url, &text(&back)).done()?;
            bulk::verify(&back, SEED, bytes)?;
            fs::remove_file(&back).map_err(Error::at("remove", &back))
        }
    }
}

fn report(aquifer: &Aquifer, when: &str) -> Result<()> {
    let [now, peak] = ["VmRSS", "VmHWM"].map(|field| status_bytes(aquifer, field));
    eprintln!("{when}: resident {} MiB, at most {} MiB", now? / MIB, peak? / MIB);
    Ok(())
}

/// A field of `/proc/PID/status` (proc(5)), which is in KiB.
fn status_bytes(aquifer: &Aquifer, field: &str) -> Result<u64> {
    let path = format!("/proc/{}/status", aquifer.daemon()?.pid());
    let status = fs::read_to_string(&path).map_err(Error::at("read", Path::new(&path)))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.ok_or(Error::Malformed(path))? << 10)
}

const SEED: u64 = 11;
/// Parts of the program that only load needs, and what the allocator keeps.
const RESERVE_BYTES: u64 = 8 * MIB;
