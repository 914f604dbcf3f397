//! How the kernel passes a program's calls on to the recorder.

use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use aquifer_rig::work::WorkDir;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::ReadWriteFlags;

use super::*;

/// Page-aligned, as O_DIRECT requires.
fn aligned(memory: &mut Vec<u8>, fill: u8) -> &mut [u8] {
    memory.resize(3 * SECTOR_BYTES, fill);
    let skip = memory.as_ptr().align_offset(SECTOR_BYTES);
    &mut memory[skip..skip + SECTOR_BYTES]
}

#[test]
fn recorder_keeps_writes_flushes_and_discards_with_their_order() -> Result<()> {
    if !is_there() {
        return Ok(());
    }
    let scratch = WorkDir::open()?.scratch("recorder")?;
    let netns = NetNs::new(&scratch)?;
    let path = scratch.dir("disks")?.join("disk0");
    let clock = Clock::default();
    let blank = (1 << 20, vec![Tape::default()]);
    let recorder = Recorder::mount(&netns, std::slice::from_ref(&path), blank, &clock)?;
    assert!(!path.exists(), "only the namespace sees it");
    let user = thread::spawn({
        let path = path.clone();
        move || {
            netns.enter_mounts().unwrap();
            let direct = OFlags::DIRECT.bits().cast_signed();
            let file = File::options().read(true).write(true).custom_flags(direct).open(path);
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().len(), 1 << 20);
            let mut memory = Vec::new();
            let bytes = aligned(&mut memory, 7);
            file.write_all_at(bytes, 0).unwrap();
            file.sync_data().unwrap();
            let slices = [IoSlice::new(bytes)];
            let written = rustix::io::pwritev2(&file, &slices, 8192, ReadWriteFlags::DSYNC);
            assert_eq!(written.unwrap(), SECTOR_BYTES);
            file.write_all_at(bytes, 4096).unwrap();
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, punch, 0, SECTOR_BYTES as u64).unwrap();
            let mut memory = Vec::new();
            let found = aligned(&mut memory, 1);
            let found = [0, 4096, 8192].map(|at| {
                file.read_exact_at(found, at).unwrap();
                found[99]
            });
            assert_eq!(found, [0, 7, 7]);
        }
    });
    user.join().unwrap();
    let tapes = recorder.finish();
    let (changes, flushes) = (tapes[0].changes(), tapes[0].flushes());
    let firsts: Vec<u64> = changes.iter().map(|change| change.first).collect();
    assert_eq!(firsts, [0, 2, 1, 0], "two writes, one through, a discard");
    let through: Vec<bool> = changes.iter().map(|change| change.through).collect();
    assert_eq!(through, [false, true, false, false], "RWF_DSYNC, for which no fsync comes");
    assert_eq!(flushes.len(), 1);
    let durable = tapes[0].durable_before(clock.now(), u64::MAX);
    let flushed = changes.iter().map(|change| change.ended.unwrap() < durable);
    assert_eq!(Vec::from_iter(flushed), [true, false, false, false]);
    assert_eq!(tapes[0].durable_before(flushes[0].began, u64::MAX), 0, "it has not ended");
    Ok(())
}
