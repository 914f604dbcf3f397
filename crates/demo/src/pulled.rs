//! A disk is pulled while a machine works, the spare takes its place, and the disk comes back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use aquifer_conformance::qemu::Machine;
use aquifer_conformance::{Error, Result, image};
use aquifer_rig::removable::Removable;

use crate::stage::{Stage, Word};
use crate::tell;

/// The measurements of this part.
#[derive(Debug, Default)]
pub struct Pulled {
    /// From the pull until the spare stood in.
    pub spare_after: Duration,
    /// From the return until the disk held everything.
    pub back_after: Duration,
    /// Bytes that the disk had missed.
    pub missed_bytes: u64,
    /// Bytes that the pool held.
    pub used_bytes: u64,
    /// The longest time between two writes of the machine, and how many there were.
    pub longest: Duration,
    pub acked: u64,
}

/// Pulls the first disk out of `slot` and puts it back, while `machine` writes a journal.
pub fn play(stage: &Stage, slot: &Removable, machine: &Machine) -> Result<Pulled> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| watch(machine, &over));
        let played = pull(stage, slot, machine);
        over.store(true, Ordering::Relaxed);
        let (longest, acked) = watch.join().unwrap_or_default();
        played.map(|pulled| Pulled { longest, acked, ..pulled })
    })
}

fn pull(stage: &Stage, slot: &Removable, machine: &Machine) -> Result<Pulled> {
    let mut pulled = Pulled::default();
    let begun = Instant::now();
    slot.vanish();
    tell::said("a.img is pulled out: each read and write of it gives an error");
    wait_for("the pool to notice", machine, || stage.is("/health", "DEGRADED"))?;
    let before = acked(machine);
    wait_for("a write after the pull", machine, || Ok(acked(machine) > before))?;
    tell::said("the machine goes on; the spare stands in once the disk is away for a minute");
    wait_for("the spare to stand in", machine, || stage.is("/spares/0/state", "INUSE"))?;
    pulled.spare_after = begun.elapsed();
    stage.waits(&[Word::Text("wait"), Word::Text("tank")])?;
    stage.aquifer(&["pool", "status", "tank"])?;

    let begun = Instant::now();
    slot.come_back();
    tell::said("a.img is put back");
    let [online, wait, tank] = ["online", "-w", "tank"].map(Word::Text);
    let online = stage.waits(&[online, wait, tank, stage.first_disk()])?;
    pulled.back_after = begun.elapsed();
    if !online.success() {
        return Err(Error::Mismatch("the disk did not come back".into()));
    }
    let status = stage.status()?;
    let count = |pointer: &str| status.pointer(pointer).and_then(|count| count.as_u64());
    pulled.missed_bytes = count("/scan/copied_bytes").unwrap_or_default();
    pulled.used_bytes = count("/allocated_bytes").unwrap_or_default();
    wait_for("the spare to be given back", machine, || stage.is("/spares/0/state", "AVAIL"))?;
    stage.aquifer(&["pool", "status", "tank"])?;
    Ok(pulled)
}

/// Waits for something while the machine runs.
pub fn wait_for(
    what: &str,
    machine: &Machine,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > LIMIT || !machine.is_running() {
            return Err(Error::Timeout { what: what.into(), limit: LIMIT, said: machine.said() });
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// The number of the newest record that the machine knows to be durable.
pub fn acked(machine: &Machine) -> Option<u64> {
    let told = image::told(&machine.console());
    told.iter().rev().find_map(|line| line.strip_prefix("ack ")?.parse().ok())
}

/// Watches the machine's writes: the longest time between two, and how many there were.
fn watch(machine: &Machine, over: &AtomicBool) -> (Duration, u64) {
    let first = acked(machine).unwrap_or(0);
    let (mut last, mut at, mut longest) = (first, Instant::now(), Duration::ZERO);
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
        let now = acked(machine).unwrap_or(0);
        longest = longest.max(at.elapsed());
        if now > last {
            (last, at) = (now, Instant::now());
        }
    }
    (longest, last - first)
}

const LIMIT: Duration = Duration::from_secs(240);
