//! `make demo`: the main job on real input, told in plain words.
//!
//! The story begins with a mirrored pool on two image files, the real daemon, and a Linux system
//! put on the datastore. A virtual machine boots from `nfs://` and works while its server is
//! killed. It is snapshotted, destroys itself, is rolled back and cloned. A second pool has a copy
//! of the datastore, and takes over. A disk is pulled while a machine works, a spare stands in and
//! the disk comes back. Then a disk rots, and is scrubbed.
//!
//! Invariants: every printed figure was measured in this run. Everything runs in a network
//! namespace of its own and is gone when the program ends. A step that fails ends the program with
//! status 1.

mod copied;
mod disaster;
mod interrupt;
mod pulled;
mod snapped;
mod stage;
mod summary;
mod tell;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use aquifer_conformance::clients::{Call, Clients};
use aquifer_conformance::image::{self, Boot, Task, Userland};
use aquifer_conformance::qemu::{Disk, Machine};
use aquifer_conformance::{Error, Result};
use aquifer_rig::work::{Scratch, WorkDir};

use aquifer_rig::removable::Removable;
use interrupt::Interrupt;
use pulled::Pulled;
use stage::Stage;
use summary::Figures;

fn main() -> ExitCode {
    let stays = std::io::stdout().is_terminal() && std::env::var_os("CI").is_none();
    let interrupt = Interrupt::watch();
    match play(&interrupt, stays) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nThe demo failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn play(interrupt: &Interrupt, stays: bool) -> Result<()> {
    let begun = Instant::now();
    let work = WorkDir::open()?;
    let scratch = work.scratch("demo")?;
    let mut figures = Figures::default();

    tell::step("A datastore: two image files, mirrored, and a spare");
    let mut stage = Stage::new(&scratch)?;
    interrupt.clears(scratch.path(), stage.socket());
    stage.start_empty()?;
    stage.make_pool()?;

    tell::step("A Linux system is put on it");
    let source = scratch.join("debian.raw");
    figures.system = build_system(&work, &source)?;
    let url = stage.url("debian.raw");
    let clients = Clients::new(Some(stage.netns()), LIFE);
    tell::command(&format!("qemu-img convert -O raw debian.raw {url}"));
    let converted =
        clients.image_convert(("raw", &source.to_string_lossy()), ("raw", &url)).done()?;
    figures.copied(&source, converted.took)?;

    let machines = Machines { boot: Boot::prepare(&work, &scratch)?, scratch: &scratch, url };
    killed_under_a_machine(&machines, &mut stage, &mut figures)?;
    figures.snapped = snapped::play(&work, &machines, &stage)?;
    figures.copied = copied::play(&work, &machines, &stage)?;

    if let Some(slot) = stage.slot() {
        figures.pulled = Some(pulled_under_a_machine(&machines, &stage, slot)?);
    } else {
        tell::said("no disk is pulled: that needs /dev/fuse, which this machine has not");
    }

    tell::step("The pool is checked from its disks alone");
    stage.stop()?;
    stage.inspect()?;

    tell::step("A disk rots");
    figures.rotten_bytes = disaster::rot(stage.second_disk())?;
    tell::said(&format!("{} MiB of b.img are garbage now", figures.rotten_bytes >> 20));
    stage.start()?;
    let machine = machines.start(Task::Verify, "last", &stage)?;
    figures.verified(&finished(&machine)?)?;
    figures.repaired = stage.repaired()?;
    figures.scrubbed_bytes = stage.scrub()?;

    summary::print(&figures, begun.elapsed());
    if stays {
        stage.invite();
        interrupt.wait();
        tell::said("stopping");
    }
    stage.stop()
}

/// The parameters that virtual machines start with.
struct Machines<'scratch> {
    boot: Boot,
    scratch: &'scratch Scratch,
    url: String,
}

impl Machines<'_> {
    fn start(&self, task: Task, name: &str, stage: &Stage) -> Result<Machine> {
        self.start_on(&self.url, task, name, stage)
    }

    /// Starts a machine with another disk.
    fn start_on(&self, url: &str, task: Task, name: &str, stage: &Stage) -> Result<Machine> {
        tell::command(&format!("qemu-system-x86_64 -accel tcg -drive file={url},format=raw ..."));
        let netns = Some(stage.netns());
        self.boot.start(Disk::raw(url), task, netns, &self.scratch.join(name), LIFE)
    }
}

/// A machine writes while its server dies and returns again and again.
fn killed_under_a_machine(
    machines: &Machines<'_>,
    stage: &mut Stage,
    figures: &mut Figures,
) -> Result<()> {
    tell::step("A virtual machine boots from it, and the server is killed in the middle");
    let started = Instant::now();
    let task = Task::Write { files: FILES, bytes: FILE_BYTES, seed: 2026 };
    let machine = machines.start(task, "first", stage)?;
    machine.wait_console(&format!("{}up", image::MARK), LIFE)?;
    figures.boot = started.elapsed();
    tell::said(&format!("the machine is up after {}", tell::seconds(figures.boot)));
    for number in KILLED_AFTER_FILES {
        machine.wait_console(&format!("{}wrote file {number} of", image::MARK), LIFE)?;
        tell::said(&format!("the machine has written file {number} of {FILES}"));
        stage.server_dies_and_returns(figures)?;
    }
    let told = finished(&machine)?;
    stage.list()?;
    figures.written(FILES, FILE_BYTES, told.iter().any(|line| line == "checksums match"))
}

/// A machine writes while a disk is pulled and comes back; another finds all of it.
fn pulled_under_a_machine(
    machines: &Machines<'_>,
    stage: &Stage,
    slot: &Removable,
) -> Result<Pulled> {
    tell::step("A disk is pulled while a machine writes, and a spare stands in");
    let endless = Task::Journal { records: u64::MAX, slots: SLOTS, pause_ms: 20 };
    let machine = machines.start(endless, "second", stage)?;
    machine.wait_console(&format!("{}ack 9", image::MARK), LIFE)?;
    let pulled = pulled::play(stage, slot, &machine)?;
    machine.power_cut();
    let acked = pulled::acked(&machine).unwrap_or_default();
    tell::said(&format!("the machine's plug is pulled too, after {acked} writes"));
    let machine = machines.start(Task::JournalCheck { acked, slots: SLOTS }, "third", stage)?;
    finished(&machine)?;
    Ok(pulled)
}

/// Waits for the end of a machine's task; returns its lines.
fn finished(machine: &Machine) -> Result<Vec<String>> {
    let told = image::finish(machine, LIFE)?;
    for line in told.iter().filter(|line| !line.contains("ed file")) {
        tell::said(line);
    }
    Ok(told)
}

/// Debian, or a smaller system where debootstrap finds no packages.
fn build_system(work: &WorkDir, image: &std::path::Path) -> Result<&'static str> {
    match image::build(work, Userland::Debian, IMAGE_BYTES, image) {
        Ok(()) => Ok("Debian"),
        Err(error @ (Error::MissingTool { .. } | Error::Failed { .. })) => {
            tell::said(&format!("no Debian ({error}): a system of one static program instead"));
            image::build(work, Userland::Busybox, IMAGE_BYTES, image)?;
            Ok("busybox")
        }
        Err(error) => Err(error),
    }
}

/// Far more than any step takes, even under software emulation.
const LIFE: Duration = Duration::from_secs(300);
const IMAGE_BYTES: u64 = 1 << 30;
const FILES: u32 = 12;
const FILE_BYTES: u64 = 8 << 20;
const KILLED_AFTER_FILES: [u32; 2] = [3, 7];
/// Records that the machine's journal has room for.
const SLOTS: u64 = 4096;
