//! One side of a mirror is overwritten with garbage, range by range, while clients read and write.
//!
//! Invariants: reads are right at every moment, since every read is verified and the other side is
//! whole. Bad copies that were read are repaired. A daemon that is killed in the middle starts on
//! these disks. Blocks that are not read stay damaged on that side: there is no scrub yet.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use aquifer_conformance::clients::{Call, Clients};
use aquifer_conformance::{Error, Result, pattern};
use rustix::fs::OFlags;
use serde_json::Value;

use crate::place::{Aquifer, MIB, Setup, is_long, text};

#[test]
fn client_reads_stay_right_while_one_side_of_a_mirror_rots() -> Result<()> {
    let disk_bytes = if is_long() { 2048 * MIB } else { 320 * MIB };
    // The cache holds only a small part of the data that is read.
    let setup = Setup { disk_bytes, memory: "64M", sync: "always", ..Setup::default() };
    let mut aquifer = Aquifer::start("rot", setup)?;
    let clients = aquifer.clients();
    for file in 0..FILES {
        let local = aquifer.scratch().join("local");
        aquifer_conformance::workload::bulk::fill(&local, file, FILE_BYTES)?;
        clients.nfs_cp(&text(&local), &aquifer.url(&format!("file{file}"))).done()?;
    }
    // All but the last segment: two of the four labels stay, so the pool still recognises the side.
    let bad = aquifer.disks()[0].clone();
    let seen = rot_under_load(&aquifer, &bad, disk_bytes - SEGMENT_BYTES)?;
    eprintln!("{} files read while it rotted; {}", seen.files_read, counters(&aquifer)?);
    aquifer.kill9();
    // Its log too, which must be replayed now.
    garbage(&bad, 0, disk_bytes - SEGMENT_BYTES)?;
    aquifer.serve()?;
    read_all(&aquifer, &clients)?;
    let image = aquifer.url("written.raw");
    for (at, byte) in seen.written.iter().enumerate() {
        let read = format!("read -P {byte} {at}M 1M");
        clients.image_io("raw", &image, &[&read]).done()?;
    }
    let first = side(&aquifer, 0)?;
    // In use, and named: so many bad copies are no accident.
    assert_eq!(first["state"], "DEGRADED", "{first}");
    assert!(count(&first, "checksum_errors")? > 0, "{first}");
    assert!(count(&first, "repaired")? > 0, "{first}");
    assert_eq!(count(&side(&aquifer, 1)?, "checksum_errors")?, 0);
    eprintln!("read again: {}", counters(&aquifer)?);
    aquifer.stop()?;
    aquifer.serve()?;
    read_all(&aquifer, &clients)?;
    eprintln!("and once more: {}", counters(&aquifer)?);
    assert_eq!(count(&side(&aquifer, 0)?, "checksum_errors")?, 0, "not repaired by reading");
    aquifer.stop()?;
    let report = aquifer.inspect(aquifer.disks())?;
    eprintln!("{} copies on that side are still bad", report["errors"]);
    for finding in report["findings"].as_array().into_iter().flatten() {
        let message = finding["message"].as_str().unwrap_or_default();
        let expected = message.contains(&text(&bad)) && message.contains("another copy is good");
        assert!(finding["severity"] != "error" || expected, "{finding:#}");
    }
    without_the_side(aquifer, &bad, disk_bytes)
}

/// The labels are overwritten too: the pool runs on the other side alone, without an error.
fn without_the_side(mut aquifer: Aquifer, bad: &Path, disk_bytes: u64) -> Result<()> {
    for at in [0, disk_bytes - SEGMENT_BYTES] {
        garbage(bad, at, SEGMENT_BYTES)?;
    }
    aquifer.serve()?;
    assert_eq!(aquifer.status()?["health"], "DEGRADED");
    let clients = aquifer.clients();
    read_all(&aquifer, &clients)?;
    let url = aquifer.url("alone");
    clients.image_create("raw", &url, 8 * MIB).done()?;
    clients.image_io("raw", &url, &["write -P 0x33 0 8M", "flush"]).done()?;
    aquifer.kill9();
    aquifer.serve()?;
    clients.image_io("raw", &url, &["read -P 0x33 0 8M"]).done()?;
    let good = aquifer.disks()[1].clone();
    aquifer.stop()?;
    let report = aquifer.inspect(&[good])?;
    assert_eq!(report["errors"], 0, "{report:#}");
    aquifer.serve()?;
    aquifer.finish_unjudged()
}

/// Overwrites `0..end` of a disk. Meanwhile two readers verify all files, and a writer writes
/// durable pages and reads them back.
fn rot_under_load(aquifer: &Aquifer, bad: &Path, end: u64) -> Result<Seen> {
    let clients = aquifer.clients();
    let image = aquifer.url("written.raw");
    clients.image_create("raw", &image, 16 * MIB).done()?;
    let (over, read) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (over, read, clients) = (&over, &read, &clients);
                scope.spawn(move || -> Result<()> {
                    for file in (reader..).step_by(2) {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        read_file(aquifer, clients, file % FILES)?;
                        read.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        let writer = scope.spawn(|| -> Result<[u32; 16]> {
            let mut written = [0; 16];
            for round in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let (byte, at) = (round % 255 + 1, round as usize % 16);
                let io = ["write", "read"].map(|verb| format!("{verb} -P {byte} {at}M 1M"));
                clients.image_io("raw", &image, &[&io[0], "flush", &io[1]]).done()?;
                written[at] = byte;
            }
            Ok(written)
        });
        let rotted = (0..end).step_by(STEP_BYTES).try_for_each(|at| {
            garbage(bad, at, (end - at).min(STEP_BYTES as u64))?;
            thread::sleep(STEP_PAUSE);
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap()?;
        }
        let written = writer.join().unwrap()?;
        rotted.map(|()| Seen { files_read: read.load(Ordering::Relaxed), written })
    })
}

/// The clients' work while a side rotted.
struct Seen {
    files_read: u64,
    /// The content of each MiB of the written image.
    written: [u32; 16],
}

fn read_all(aquifer: &Aquifer, clients: &Clients) -> Result<()> {
    (0..FILES).try_for_each(|file| read_file(aquifer, clients, file))
}

fn read_file(aquifer: &Aquifer, clients: &Clients, file: u64) -> Result<()> {
    let name = format!("file{file}");
    let content = clients.nfs_cat(&aquifer.url(&name)).done()?.stdout;
    if let Some(wrong) = pattern::first_difference(file, 0, &content) {
        return Err(Error::Mismatch(format!("{name} at {wrong}")));
    }
    if content.len() as u64 != FILE_BYTES {
        return Err(Error::Mismatch(format!("{name}: {} bytes", content.len())));
    }
    Ok(())
}

fn garbage(disk: &Path, at: u64, bytes: u64) -> Result<()> {
    let bytes = usize::try_from(bytes).unwrap();
    let mut memory = vec![0; bytes + ALIGNED];
    let aligned = memory.as_ptr().align_offset(ALIGNED);
    let garbage = &mut memory[aligned..aligned + bytes];
    pattern::fill(0xbad, at, garbage);
    // Past the page cache, as the daemon writes. If one of two writes to a place goes by the cache,
    // Linux gives EIO to either.
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let mut options = File::options();
    options.write(true);
    let file = options.clone().custom_flags(direct).open(disk).or_else(|_| options.open(disk));
    let file = file.map_err(Error::at("open", disk))?;
    let written = file.write_all_at(garbage, at).and_then(|()| file.sync_data());
    written.map_err(Error::at("write", disk))
}

/// Bytes to which memory and places of direct writes are aligned.
const ALIGNED: usize = 4096;

/// One side in `pool status`.
fn side(aquifer: &Aquifer, number: usize) -> Result<Value> {
    let status = aquifer.status()?;
    let side = status.pointer(&format!("/vdevs/0/leaves/{number}"));
    side.cloned().ok_or_else(|| Error::Malformed(status.to_string()))
}

fn counters(aquifer: &Aquifer) -> Result<String> {
    let bad = side(aquifer, 0)?;
    let numbers = ["checksum_errors", "repaired"].map(|name| (name, count(&bad, name)));
    Ok(format!("{numbers:?}"))
}

fn count(leaf: &Value, name: &str) -> Result<u64> {
    leaf.get(name).and_then(Value::as_u64).ok_or_else(|| Error::Malformed(leaf.to_string()))
}

const FILES: u64 = 4;
const FILE_BYTES: u64 = 25_000_001;
/// Labels lie in the first and the last segment of a disk.
const SEGMENT_BYTES: u64 = 4 * MIB;
const STEP_BYTES: usize = 4 << 20;
const STEP_PAUSE: Duration = Duration::from_millis(60);
