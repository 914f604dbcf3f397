//! Slow disks are slow while they should be, and leave nothing behind; a short run on them.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by ending")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use aquifer_bench::raw::{Io, Raw};
use aquifer_bench::slow::{Limits, SlowDisk};
use aquifer_rig::work::WorkDir;

const BYTES: u64 = 64 << 20;

/// `None` on a machine that cannot throttle; the error of the disk must say so.
fn disk(image: &Path) -> Option<SlowDisk> {
    match SlowDisk::new(image, BYTES, false, Limits::default()) {
        Ok(disk) => Some(disk),
        Err(refused) => {
            let why = refused.to_string();
            assert!(why.starts_with("slow disks are not to be had here"), "{why}");
            eprintln!("not tested: {why}");
            None
        }
    }
}

fn backing_file(device: &Path) -> Option<String> {
    let name = device.file_name().unwrap().to_str().unwrap();
    fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()
}

#[test]
fn a_slow_disk_is_slow_then_fast_then_gone() {
    let scratch = WorkDir::open().unwrap().scratch("slow").unwrap();
    let image = scratch.join("a.img");
    let Some(disk) = disk(&image) else { return };
    let probe = disk.probe(BYTES).unwrap();
    assert!(probe.writes_per_s > 20.0 && probe.write_mb_per_s > 2.0, "{probe}");
    disk.throttle(false).unwrap();
    let mut raw = Raw::open(disk.device(), BYTES).unwrap();
    let fast = raw.run(Io::Write, 8192, Duration::from_millis(500)).unwrap();
    assert!(fast.count as f64 > probe.writes_per_s, "{fast:?}, {probe}");
    drop(raw);
    disk.throttle(true).unwrap();
    let device = disk.device().to_path_buf();
    assert!(backing_file(&device).unwrap().contains("a.img"));
    drop(disk);
    let own = |found: String| found.contains(image.to_str().unwrap());
    assert!(!image.exists() && !backing_file(&device).is_some_and(own));
}

/// A killed run cannot clean up itself.
#[test]
fn a_killed_run_leaves_no_slow_disk() {
    let work = WorkDir::open().unwrap().scratch("slow-killed").unwrap();
    if disk(&work.join("probe.img")).is_none() {
        return;
    }
    let bench = PathBuf::from(env!("CARGO_BIN_EXE_aquifer-bench"));
    let mut run = Command::new(bench)
        .args(["sync", "--only", "sqlio-8k", "--disk", "256", "--targets", "ganesha-btrfs-slow"])
        .env("AQUIFER_WORK_DIR", work.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ours = || {
        let loops = fs::read_dir("/sys/block").unwrap().flatten();
        let files = loops.map(|it| backing_file(&it.path()).unwrap_or_default());
        files.filter(|file| file.contains("slow-killed-")).count()
    };
    wait_until(|| ours() == 2);
    run.kill().unwrap();
    run.wait().unwrap();
    wait_until(|| ours() == 0);
    let mut said = String::new();
    run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.starts_with("starting ganesha-btrfs-slow"), "{said}");
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not so within a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let bench = env!("CARGO_BIN_EXE_aquifer-bench");
    for (args, status, said) in [
        (["sync", "--aged"].as_slice(), 2, "--sustained"),
        (&["sync", "--only", "sqlio"], 1, "sqlio-8k"),
        (&["sync", "--only", "sustained"], 1, "--sustained SECONDS"),
        (&["sync", "--only", "esx-dd", "--targets", "tape"], 1, "ganesha-btrfs-slow"),
    ] {
        let output = Command::new(bench).args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
        assert!(text.contains(said), "{args:?}: {text}");
    }
}
