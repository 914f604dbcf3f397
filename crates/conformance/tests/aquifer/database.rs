//! A database in a guest, on a disk in the datastore, while servers are killed: no committed
//! transaction is missing afterwards, and the disk's file system is sound.
//!
//! Each guest has ext4 on its disk and SQLite with `synchronous=FULL` on that, and reports each
//! commit. In the end guest and server are cut off together, and the disk is checked from outside
//! ([`database::check_image`]).

use std::fmt::Debug;
use std::path::Path;
use std::thread;
use std::time::Duration;

use aquifer_conformance::clients::Call;
use aquifer_conformance::guest::initramfs::program_files;
use aquifer_conformance::guest::{Guest, GuestConfig, Job};
use aquifer_conformance::image::{self, Boot, DATABASE, Task, Userland};
use aquifer_conformance::qemu::{Disk, Machine};
use aquifer_conformance::{Error, Result, database, workload};
use aquifer_rig::process::Invocation;
use aquifer_rig::random::Random;
use aquifer_rig::work::WorkDir;

use crate::kill::more;
use crate::kill_loop::seed;
use crate::place::{Aquifer, EXPORT, LONG, MIB, SOON, Setup, V3, is_long, text};

/// QEMU's own driver never sends again the writes that a restart lost: `sync=always` makes it safe.
/// The guest does not know about NFS.
#[test]
fn guest_database_by_qemus_driver_survives_kill_9() -> Result<()> {
    by_qemus_driver("wal")?;
    if is_long() {
        by_qemus_driver("truncate")?;
    }
    Ok(())
}

fn by_qemus_driver(mode: &'static str) -> Result<()> {
    let work = WorkDir::open()?;
    let setup = Setup { sync: "always", ..Setup::default() };
    let mut aquifer = Aquifer::start(&format!("database-{mode}"), setup)?;
    let image = aquifer.scratch().join("disk.raw");
    image::build(&work, Userland::Database, DISK_BYTES, &image)?;
    put(&aquifer, &image, "disk.raw")?;
    let boot = Boot::prepare(&work, aquifer.scratch())?;
    let (netns, logs) = (aquifer.netns().clone(), aquifer.scratch().dir("machine")?);
    let disk = Disk::raw(aquifer.url("disk.raw"));
    let machine = boot.start(disk, Task::Database { mode }, Some(&netns), &logs, 2 * LONG)?;
    wait_acked(&machine, COMMITS_BETWEEN)?;
    let mut killer = Killer::new();
    while killer.kills < kills() {
        killer.kill(&mut aquifer, || acked(&machine))?;
        let before = acked(&machine).unwrap_or(0);
        wait_acked(&machine, before + COMMITS_BETWEEN + 7 * killer.kills)?;
    }
    // The last time, the whole rack goes down.
    killer.wait();
    aquifer.kill9();
    machine.power_cut();
    let last = acked(&machine).ok_or_else(nothing)?;
    aquifer.serve()?;
    judge(&aquifer, "disk.raw", DATABASE, last, mode)?;
    aquifer.finish()
}

/// A hypervisor with the datastore mounted by its kernel, the case for `sync=standard`: the client
/// sends again writes that were UNSTABLE when the server died. The disks are files on that mount.
/// One is written through the page cache and one around it (QEMU's `cache=writeback` and
/// `cache=none`).
#[test]
fn guest_database_on_a_kernel_mount_survives_kill_9() -> Result<()> {
    if !is_long() {
        return Ok(());
    }
    let mut aquifer = Aquifer::start("database-kernel", Setup::default())?;
    let image = aquifer.scratch().join("disk.raw");
    Invocation::tool("mkfs.ext4", "build")?
        .args(["-q", "-F", &text(&image), &format!("{}k", DISK_BYTES / 1024)])
        .check(SOON)?;
    for disk in DISKS {
        put(&aquifer, &image, disk.name)?;
    }
    let guest = boot_hypervisor(&aquifer)?;
    guest.mount(EXPORT, "/mnt", V3)?;
    let jobs = DISKS.iter().map(|disk| start_database(&guest, disk)).collect::<Result<Vec<_>>>()?;
    let mut killer = Killer::new();
    let acked = || jobs.iter().map(|job| workload::acked(&job.output())).collect::<Vec<_>>();
    while killer.kills < kills() {
        for job in &jobs {
            more(job, COMMITS_BETWEEN + 7 * killer.kills)?;
        }
        killer.kill(&mut aquifer, acked)?;
    }
    for job in &jobs {
        more(job, COMMITS_BETWEEN)?;
    }
    killer.wait();
    aquifer.kill9();
    let last = acked();
    drop(jobs);
    guest.power_cut();
    aquifer.serve()?;
    for (disk, last) in DISKS.iter().zip(last) {
        judge(&aquifer, disk.name, "/database", last.ok_or_else(nothing)?, disk.mode)?;
    }
    aquifer.finish()
}

/// Kills servers at moments drawn from the seed.
struct Killer {
    random: Random,
    kills: u64,
}

impl Killer {
    fn new() -> Self {
        eprintln!("seed {}", seed());
        Self { random: Random::new(seed()), kills: 0 }
    }

    /// A random pause, so that a kill does not always follow a commit.
    fn wait(&mut self) {
        thread::sleep(Duration::from_millis(self.random.below(250)));
    }

    /// Kills the server, perhaps its next start too. Leaves clients without a server for a while,
    /// and starts it again.
    fn kill<T: Debug>(&mut self, aquifer: &mut Aquifer, acked: impl Fn() -> T) -> Result<()> {
        self.wait();
        aquifer.kill9();
        self.kills += 1;
        let before = acked();
        if self.random.below(3) == 0 {
            aquifer.serve_for(Duration::from_millis(self.random.below(300)))?;
            self.kills += 1;
        }
        thread::sleep(Duration::from_millis(self.random.below(900)));
        let took = aquifer.serve()?;
        eprintln!("kill {}: {before:?} committed, serving again after {took:?}", self.kills);
        Ok(())
    }
}

/// A disk on a kernel mount.
struct LoopDisk {
    name: &'static str,
    device: &'static str,
    direct: &'static str,
    mode: &'static str,
}

const DISKS: [LoopDisk; 2] = [
    LoopDisk { name: "cached.raw", device: "loop0", direct: "off", mode: "wal" },
    LoopDisk { name: "direct.raw", device: "loop1", direct: "on", mode: "truncate" },
];

fn boot_hypervisor(aquifer: &Aquifer) -> Result<Guest> {
    let mut config = GuestConfig { netns: Some(aquifer.netns().clone()), ..GuestConfig::default() };
    config.modules.push("loop");
    config.files = database::files()?;
    config.files.extend(program_files("losetup", "guest")?);
    config.life = 4 * LONG;
    Guest::boot(&WorkDir::open()?, aquifer.scratch(), &config)
}

fn start_database<'a>(guest: &'a Guest, disk: &LoopDisk) -> Result<Job<'a>> {
    let LoopDisk { name, device, direct, mode } = disk;
    let prepare = format!(
        "/usr/sbin/losetup --direct-io={direct} /dev/{device} /mnt/{name} && \
         [ $(cat /sys/block/{device}/loop/dio) = $([ {direct} = on ] && echo 1 || echo 0) ] && \
         mkdir /{device} && mount -t ext4 /dev/{device} /{device}"
    );
    guest.check(&prepare, SOON)?;
    guest
        .start(&format!("PATH=$PATH:/usr/bin exec {} /{device}/database {mode}", database::PROGRAM))
}

/// Copies a local image into the datastore.
fn put(aquifer: &Aquifer, image: &Path, name: &str) -> Result<()> {
    let (local, url) = (text(image), aquifer.url(name));
    aquifer.clients().image_convert(("raw", &local), ("raw", &url)).done()?;
    aquifer.clients().image_compare(("raw", &local), ("raw", &url)).done().map(|_| ())
}

/// Checks a disk of a guest that is gone.
fn judge(aquifer: &Aquifer, name: &str, path: &str, acked: u64, mode: &str) -> Result<()> {
    let copy = aquifer.scratch().join("copy.raw");
    aquifer.clients().image_convert(("raw", &aquifer.url(name)), ("raw", &text(&copy))).done()?;
    let checked = database::check_image(&copy, path, acked, aquifer.scratch())?;
    eprintln!("{name} ({mode}): {} commits told, {checked:?}, 0 lost", acked + 1);
    Ok(())
}

/// Waits until the machine has reported transaction `number`, or a later one.
fn wait_acked(machine: &Machine, number: u64) -> Result<()> {
    machine.wait_console(&format!("{}ack {number}", image::MARK), LONG).map(|_| ())
}

fn acked(machine: &Machine) -> Option<u64> {
    workload::acked(&(image::told(&machine.console()).join("\n") + "\n"))
}

fn nothing() -> Error {
    Error::Malformed("nothing was committed".into())
}

fn kills() -> u64 {
    if is_long() { 15 } else { 4 }
}

const DISK_BYTES: u64 = 96 * MIB;
/// Fewest commits from one kill to the next.
const COMMITS_BETWEEN: u64 = 25;
