//! A running machine's disk is snapshotted from inside an NFS mount. The machine destroys itself,
//! is rolled back, and becomes the template of a hundred others.

use std::thread;
use std::time::{Duration, Instant};

use aquifer_conformance::guest::{Guest, GuestConfig};
use aquifer_conformance::image::Task;
use aquifer_conformance::{Error, Result};
use aquifer_rig::work::WorkDir;

use crate::pulled::{acked, wait_for};
use crate::stage::Stage;
use crate::{LIFE, Machines, SLOTS, finished, tell};

/// The measurements of this part.
#[derive(Debug, Default)]
pub struct Snapped {
    /// How long `mkdir` took, on the NFS client.
    pub taken_in: Duration,
    /// How long the rollback took.
    pub rolled_back_in: Duration,
    /// How long all clones took, each with a command of its own.
    pub cloned_in: Duration,
    pub clones: u32,
    /// Bytes that the clones take before anything is written to them.
    pub clone_bytes: u64,
    /// How long destroying the snapshot with all clones took.
    pub destroyed_in: Duration,
}

/// Plays this part, on a disk that holds the files of an earlier machine.
pub fn play(work: &WorkDir, machines: &Machines<'_>, stage: &Stage) -> Result<Snapped> {
    let mut snapped = Snapped::default();
    tell::step("A running machine's disk is snapshotted from inside an NFS mount");
    let client = mounted(work, machines, stage)?;
    let endless = Task::Journal { records: u64::MAX, slots: SLOTS, pause_ms: 20 };
    let machine = machines.start(endless, "snapped", stage)?;
    wait_for("the machine's first writes", &machine, || Ok(acked(&machine) > Some(9)))?;
    let before = acked(&machine).unwrap_or_default();
    let begun = Instant::now();
    on_client(&client, &format!("mkdir {LIST}/before"))?;
    snapped.taken_in = begun.elapsed();
    on_client(&client, &format!("ls {LIST}/before"))?;
    let after = acked(&machine);
    wait_for("a write after the snapshot", &machine, || Ok(acked(&machine) > after))?;
    machine.power_cut();

    tell::step("The machine destroys itself, and is rolled back");
    finished(&machines.start(Task::Wreck, "wreck", stage)?)?;
    let begun = Instant::now();
    stage.aquifer(&["rollback", "tank/vms@before"])?;
    snapped.rolled_back_in = begun.elapsed();
    tell::said("the same file, the same handle: the NFS client goes on");
    on_client(&client, "ls -l /mnt")?;
    let check = Task::JournalCheck { acked: before, slots: SLOTS };
    finished(&machines.start(check, "back", stage)?)?;

    tell::step("A hundred machines of one");
    clone(machines, stage, &mut snapped)?;
    on_client(&client, "umount /mnt")?;
    client.power_off(LIFE)?;
    let begun = Instant::now();
    stage.aquifer(&["destroy", "-R", "-f", "tank/vms@before"])?;
    snapped.destroyed_in = begun.elapsed();
    stage.list()?;
    Ok(snapped)
}

/// A second machine, whose kernel has the datastore mounted: as a hypervisor has it.
pub fn mounted(work: &WorkDir, machines: &Machines<'_>, stage: &Stage) -> Result<Guest> {
    stage.aquifer(&["set", "snapcontrol=127.0.0.1", "tank/vms"])?;
    // Only the superuser of a host takes snapshots.
    stage.netns().connect_from_low_ports()?;
    let config =
        GuestConfig { netns: Some(stage.netns().clone()), memory_mib: 256, ..Default::default() };
    let client = Guest::boot(work, machines.scratch, &config)?;
    tell::command("mount -t nfs -o vers=3,nolock server:/tank/vms /mnt");
    client.mount("/tank/vms", "/mnt", "vers=3,proto=tcp,mountproto=tcp,nolock,hard")?;
    Ok(client)
}

/// Makes the clones, and has two of them used at once.
fn clone(machines: &Machines<'_>, stage: &Stage, snapped: &mut Snapped) -> Result<()> {
    tell::command("for n in $(seq 100); do aquifer clone tank/vms@before tank/vm-$n; done");
    let begun = Instant::now();
    for number in 1..=CLONES {
        let clone = format!("tank/vm-{number}");
        let shared = ["-o", "sharenfs=rw=127.0.0.1,insecure", "-o", "sync=always"];
        let words = [&["clone"][..], &shared, &["tank/vms@before", &clone]].concat();
        stage.quietly(&words)?;
    }
    (snapped.clones, snapped.cloned_in) = (CLONES, begun.elapsed());
    snapped.clone_bytes = stage.used_bytes("tank/vm-1")?;
    tell::said(&format!("{CLONES} clones in {} ms", snapped.cloned_in.as_millis()));
    let told: Vec<Result<Vec<String>>> = thread::scope(|scope| {
        let each = [1, CLONES].map(|number| {
            scope.spawn(move || {
                let url = format!("nfs://127.0.0.1/tank/vm-{number}/debian.raw");
                let name = format!("clone-{number}");
                finished(&machines.start_on(&url, Task::Verify, &name, stage)?)
            })
        });
        let ended = each.into_iter().map(|one| {
            one.join().unwrap_or_else(|_| Err(Error::Mismatch("a machine's thread ended".into())))
        });
        ended.collect()
    });
    for told in told {
        if !told?.iter().any(|line| line == "checksums match") {
            return Err(Error::Mismatch("a clone did not verify its files".into()));
        }
    }
    Ok(())
}

/// Runs a command on the NFS client, and shows what it said.
pub fn on_client(client: &Guest, command: &str) -> Result<()> {
    tell::command(command);
    let step = client.check(command, LIFE)?;
    tell::said(&step.output);
    Ok(())
}

const CLONES: u32 = 100;
/// Where snapshots are, on the NFS client.
const LIST: &str = "/mnt/.aquifer/snapshot";
