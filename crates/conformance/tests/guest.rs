//! The Linux kernel's NFS client in a guest, against nfs-ganesha. This proves the harness, and is
//! the model for the same tests against Aquifer.
//!
//! Slow (a guest each); select with `cargo test guest_` or leave out with `--skip guest_`. Needs
//! root and `scripts/setup-deps.sh guest peer clients`.

use std::fs;
use std::time::{Duration, Instant};

use aquifer_conformance::guest::{Guest, GuestConfig};
use aquifer_conformance::workload::acked;
use aquifer_conformance::workload::journal::Journal;
use aquifer_conformance::{Error, Result};
use aquifer_rig::peer::ganesha::{EXPORT, Ganesha};
use aquifer_rig::work::{Scratch, WorkDir};

const SOON: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(200);
const V3: &str = "vers=3,proto=tcp,mountproto=tcp,nolock,hard";

/// A server, and a guest that has mounted it on /mnt.
fn mounted(scratch: &Scratch, options: &str) -> Result<(Guest, Ganesha)> {
    let ganesha = Ganesha::start(scratch, &scratch.dir("export")?)?;
    let netns = Some(ganesha.netns().clone());
    let mut config = GuestConfig { netns, ..GuestConfig::default() };
    if options.starts_with("vers=4") {
        config.modules.push("nfsv4");
    }
    let guest = Guest::boot(&WorkDir::open()?, scratch, &config)?;
    eprintln!("guest took its first command after {:?}", guest.boot_time());
    guest.mount(EXPORT, "/mnt", options)?;
    Ok((guest, ganesha))
}

#[test]
fn guest_boots_runs_commands_and_powers_off() -> Result<()> {
    let work = WorkDir::open()?;
    let scratch = work.scratch("guest-boot")?;
    let guest = Guest::boot(&work, &scratch, &GuestConfig::default())?;
    eprintln!("boot time {:?}", guest.boot_time());
    assert!(guest.boot_time() < Duration::from_secs(15), "{:?}", guest.boot_time());
    let step = guest.run("echo out; echo err >&2; exit 7", SOON)?;
    assert_eq!((step.status, step.output.as_str()), (7, "out\nerr\n"));
    let killed = guest.run("kill -9 $$", SOON)?;
    assert_eq!(killed.status, 128 + 9);
    let steps = guest.script("# a comment\ntrue\n\nfalse\necho never", SOON)?;
    let statuses: Vec<i32> = steps.iter().map(|step| step.status).collect();
    assert_eq!(statuses, [0, 1]);
    let large = guest.check("seq 100000", SOON)?;
    assert!(large.output.ends_with("\n100000\n") && large.output.lines().count() == 100_000);
    guest.power_off(SOON)
}

#[test]
#[ignore = "the harness in front of a peer: make conformance"]
fn guest_jobs_run_together_report_early_and_can_be_stopped() -> Result<()> {
    let work = WorkDir::open()?;
    let scratch = work.scratch("guest-jobs")?;
    let guest = Guest::boot(&work, &scratch, &GuestConfig::default())?;
    let endless = guest.start("echo started; while :; do sleep 1; done")?;
    assert_eq!(endless.wait_output(|output| !output.is_empty(), SOON)?, "started\n");
    guest.check("true", SOON)?;
    endless.signal(15)?;
    assert_eq!(endless.wait(SOON)?.status, 128 + 15);
    let timeout = guest.run("echo so far; sleep 1000", Duration::from_secs(1));
    assert!(
        matches!(&timeout, Err(Error::Timeout { said, .. }) if said.starts_with("so far")),
        "{timeout:?}"
    );
    assert_eq!(guest.run("pidof sleep", SOON)?.status, 1, "killed at the limit");
    let early = guest.start("exit 3")?.wait_output(|output| output.contains("never"), SOON);
    assert!(matches!(early, Err(Error::Failed { .. })), "{early:?}");
    Ok(())
}

#[test]
fn guest_that_panics_or_lives_too_long_is_an_error_not_a_hang() -> Result<()> {
    let work = WorkDir::open()?;
    let scratch = work.scratch("guest-panic")?;
    let begun = Instant::now();
    let guest = Guest::boot(&work, &scratch, &GuestConfig::default())?;
    let boot = begun.elapsed();
    let panic = guest.run("echo c >/proc/sysrq-trigger; sleep 100", SOON);
    assert!(matches!(panic, Err(Error::Failed { .. })), "{panic:?}");
    assert!(guest.console().contains("Kernel panic"), "{}", guest.console());
    assert!(guest.power_off(SOON).is_err());
    // Long enough to boot, however slow the machine is at the moment.
    let life = Duration::from_secs(12).max(3 * boot);
    let short = GuestConfig { life, ..GuestConfig::default() };
    let guest = Guest::boot(&work, &scratch, &short)?;
    let killed = guest.run("sleep 10000", life + SOON);
    assert!(matches!(killed, Err(Error::Failed { .. })), "{killed:?}");
    Ok(())
}

#[test]
#[ignore = "the harness in front of a peer: make conformance"]
fn guest_fsx_v3() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("guest-fsx")?;
    let (guest, _ganesha) = mounted(&scratch, V3)?;
    for seed in 1..=3 {
        let fsx = format!("nfstest fsx /mnt/fsx{seed} --seed {seed} --ops 1500 --direct 1");
        eprintln!("{}", guest.check(&fsx, LONG)?.output);
    }
    guest.power_off(SOON)
}

#[test]
fn guest_finds_a_server_that_changes_content() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("guest-corrupt")?;
    let (guest, ganesha) = mounted(&scratch, V3)?;
    guest.check("nfstest fill /mnt/file --bytes 3000000 --seed 9", SOON)?;
    guest.check("nfstest verify /mnt/file --bytes 3000000 --seed 9", SOON)?;
    let path = ganesha.directory().join("file");
    let mut content = fs::read(&path).map_err(Error::at("read", &path))?;
    content[2_345_678] ^= 0x10;
    fs::write(&path, content).map_err(Error::at("write", &path))?;
    guest.check("echo 3 >/proc/sys/vm/drop_caches", SOON)?;
    let step = guest.run("nfstest verify /mnt/file --bytes 3000000 --seed 9", SOON)?;
    assert_eq!(step.status, 1, "{step:?}");
    assert!(step.output.contains("wrong at offset 2345678"), "{step:?}");
    Ok(())
}

#[test]
#[ignore = "the harness in front of a peer: make conformance"]
fn guest_directory_of_many_files_v3() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("guest-tree")?;
    let (guest, _ganesha) = mounted(&scratch, V3)?;
    eprintln!("{}", guest.check("nfstest tree /mnt/many --files 1500", LONG)?.output);
    guest.power_off(SOON)
}

#[test]
#[ignore = "the harness in front of a peer: make conformance"]
fn guest_semantics_v3() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("guest-semantics")?;
    let (guest, _ganesha) = mounted(&scratch, V3)?;
    let step = guest.run("mkdir /mnt/s && nfstest semantics /mnt/s", LONG)?;
    eprintln!("{}", step.output);
    assert_eq!(step.status, 0, "{}", step.output);
    guest.power_off(SOON)
}

#[test]
#[ignore = "the harness in front of a peer: make conformance"]
fn guest_semantics_v4() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("guest-semantics4")?;
    let (guest, _ganesha) = mounted(&scratch, "vers=4.2,proto=tcp,hard")?;
    let step = guest.run("mkdir /mnt/s && nfstest semantics /mnt/s", LONG)?;
    eprintln!("{}", step.output);
    assert_eq!(step.status, 0, "{}", step.output);
    guest.power_off(SOON)
}

#[test]
#[ignore = "the harness in front of a peer: make conformance"]
fn guest_sparse_file_of_5_tib_v3() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("guest-sparse")?;
    let (guest, _ganesha) = mounted(&scratch, V3)?;
    eprintln!("{}", guest.check("nfstest sparse /mnt/huge", LONG)?.output);
    guest.power_off(SOON)
}

#[test]
#[ignore = "the harness in front of a peer: make conformance"]
fn guest_journal_survives_killed_servers_v3() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("guest-journal")?;
    let (guest, mut ganesha) = mounted(&scratch, &format!("{V3},timeo=10"))?;
    let append = guest.start("nfstest journal /mnt/append --records 600")?;
    let ring = guest.start("nfstest journal /mnt/ring --records 600 --slots 16 --direct 1")?;
    for kill in 1..=3 {
        let enough = kill * 100;
        append.wait_output(|output| acked(output) >= Some(enough), LONG)?;
        ganesha.kill9();
        let at_kill = acked(&append.output());
        ganesha.restart()?;
        append.wait_output(|output| acked(output) > at_kill, LONG)?;
        eprintln!("kill {kill}: {at_kill:?} acknowledged before, more after");
    }
    let (append, ring) = (append.wait(LONG)?.success()?, ring.wait(LONG)?.success()?);
    assert_eq!(acked(&append.output), Some(599));
    assert_eq!(acked(&ring.output), Some(599));
    guest.check("echo 3 >/proc/sys/vm/drop_caches", SOON)?;
    guest.check("nfstest journal-check /mnt/append --acked 599", SOON)?;
    guest.check("nfstest journal-check /mnt/ring --acked 599 --slots 16", SOON)?;
    // The file on the server's side is the same.
    let path = ganesha.directory().join("append");
    let journal = Journal { path, record_bytes: 4096, slots: 0 };
    assert_eq!(journal.check(Some(599))?.newest, Some(599));
    // A checker that cannot fail would prove nothing.
    let file = fs::File::options().write(true).open(&journal.path);
    let file = file.map_err(Error::at("open", &journal.path))?;
    file.set_len(599 * 4096).map_err(Error::at("truncate", &journal.path))?;
    guest.check("echo 3 >/proc/sys/vm/drop_caches", SOON)?;
    let lost = guest.run("sleep 4; nfstest journal-check /mnt/append --acked 599", SOON)?;
    assert!(lost.status == 1 && lost.output.contains("record 599 "), "{lost:?}");
    Ok(())
}
