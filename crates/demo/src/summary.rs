//! The results of the demo, in plain words, and the next commands to type.

use std::path::Path;
use std::time::Duration;

use aquifer_conformance::{Error, Result};

use crate::copied::Copied;
use crate::pulled::Pulled;
use crate::snapped::Snapped;
use crate::tell::seconds;

/// The measurements of this run.
#[derive(Debug, Default)]
pub struct Figures {
    /// The system on the image.
    pub system: &'static str,
    image_bytes: u64,
    copy: Duration,
    /// Time from QEMU's start to the system's first program.
    pub boot: Duration,
    /// How long the server was away each time: killed, one second of pause, serving again.
    pub away: Vec<Duration>,
    written_bytes: u64,
    packages: Option<String>,
    /// Measurements of snapshot, rollback and clones.
    pub snapped: Snapped,
    /// Measurements of a copy and its takeover.
    pub copied: Copied,
    /// Measurements of a pulled disk; `None` where that cannot be shown.
    pub pulled: Option<Pulled>,
    /// Bytes of one disk that were overwritten with garbage.
    pub rotten_bytes: u64,
    /// Blocks that were read wrong from it and rewritten.
    pub repaired: u64,
    /// Bytes that the scrub repaired after that.
    pub scrubbed_bytes: u64,
}

impl Figures {
    /// Notes that the image at `source` was copied into the datastore in `took`.
    pub fn copied(&mut self, source: &Path, took: Duration) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(source).map_err(Error::at("stat", source))?;
        // The allocated part of the image, without its holes.
        self.image_bytes = metadata.blocks() * 512;
        self.copy = took;
        Ok(())
    }

    /// Notes that the guest wrote this much, and whether it read the same back.
    pub fn written(&mut self, files: u32, bytes: u64, right: bool) -> Result<()> {
        if !right {
            return Err(Error::Mismatch("the guest did not read back what it wrote".into()));
        }
        self.written_bytes = u64::from(files) * bytes;
        Ok(())
    }

    /// Notes the second machine's report on its checks.
    pub fn verified(&mut self, told: &[String]) -> Result<()> {
        if !told.iter().any(|line| line == "checksums match") {
            return Err(Error::Mismatch("the second machine did not verify the files".into()));
        }
        self.packages = told.iter().find(|line| line.ends_with("packages match")).cloned();
        Ok(())
    }
}

/// Prints the summary.
pub fn print(figures: &Figures, took: Duration) {
    let mib = |bytes: u64| bytes >> 20;
    let rate = figures.image_bytes as f64 / figures.copy.as_secs_f64() / 1e6;
    let away: Vec<String> = figures.away.iter().map(|&away| seconds(away)).collect();
    let packages = figures
        .packages
        .as_deref()
        .map_or_else(String::new, |packages| format!(", and of Debian's own files:\n  {packages}"));
    let snapped = snapped(&figures.snapped) + &copied(&figures.copied);
    let pulled = figures.pulled.as_ref().map_or_else(String::new, pulled);
    println!(
        "
What you have seen ({} in all)
- A pool on two disks, mirrored, every block with a checksum; a dataset of it served over NFS.
- A {} system of {} MiB copied onto it in {} ({rate:.0} MB/s, every write synchronous).
- A virtual machine booted from nfs:// in {} (QEMU without hardware acceleration), wrote {} MiB,
  and did not notice that the server was killed with SIGKILL {} times (away for {}):
  it waited, went on, and read back all of it with the right checksums.{snapped}{pulled}
- An inspection of every block of the disks, by code that shares nothing with the engine: no error.
- {} MiB of garbage over one side of the mirror: a second machine, from a server that had nothing
  in memory, verified every file{packages}.
  {} damaged blocks were read from the other side and repaired on the way. A scrub found and
  repaired the rest, {} MiB, and named the files.",
        seconds(took),
        figures.system,
        mib(figures.image_bytes),
        seconds(figures.copy),
        seconds(figures.boot),
        mib(figures.written_bytes),
        figures.away.len(),
        away.join(", "),
        mib(figures.rotten_bytes),
        figures.repaired,
        mib(figures.scrubbed_bytes),
    );
    println!("{NEXT}");
}

fn snapped(snapped: &Snapped) -> String {
    let Snapped { taken_in, rolled_back_in, cloned_in, clones, clone_bytes, destroyed_in } =
        snapped;
    format!(
        "
- A snapshot of the running machine's disk, taken by mkdir on an NFS client in {} ms. The machine
  then removed its own system; the rollback took {} ms, and it booted with every record there that
  was durable before the snapshot. {clones} clones in {} ms, {} KiB each: two booted at once and
  found every checksum right. Snapshot and clones were destroyed in {} ms.",
        taken_in.as_millis(),
        rolled_back_in.as_millis(),
        cloned_in.as_millis(),
        clone_bytes >> 10,
        destroyed_in.as_millis(),
    )
}

fn copied(copied: &Copied) -> String {
    let Copied { whole_bytes, whole_in, changed_in, taken_over_in } = copied;
    format!(
        "
- A copy of the datastore in a second pool: {} MiB in {}, then what had changed, in {} ms. The
  original left service and the copy took its place, in {} ms. An NFS client went on with a file
  that it had open, and wrote to it. A machine booted from the copy and found all checksums right.",
        whole_bytes >> 20,
        seconds(*whole_in),
        changed_in.as_millis(),
        taken_over_in.as_millis(),
    )
}

fn pulled(pulled: &Pulled) -> String {
    let Pulled { spare_after, back_after, missed_bytes, used_bytes, longest, acked } = pulled;
    format!(
        "
- One of the disks was pulled while a machine made {acked} durable writes, one after the other: the
  longest time between two was {}. The spare stood in after {}. When the disk came back it got
  the {} MiB that it had missed, of {} MiB in use, and held everything after {}.",
        seconds(*longest),
        seconds(*spare_after),
        missed_bytes >> 20,
        used_bytes >> 20,
        seconds(*back_after),
    )
}

const NEXT: &str = "
What to type next, on a machine whose disks you can spare (ports 111 and 2049 free)
  aquifer serve &
  aquifer pool create tank mirror /dev/sdb /dev/sdc
  aquifer create tank/vms
  aquifer set sharenfs=rw=@192.168.1.0/24 tank/vms
and on the hypervisors, with this machine's address for HOST
  XCP-ng    xe sr-create name-label=aquifer type=nfs shared=true content-type=user \\
              device-config:server=HOST device-config:serverpath=/tank/vms \\
              device-config:nfsversion=3
  ESXi      esxcli storage nfs add -H HOST -s /tank/vms -v aquifer
  Proxmox   pvesm add nfs aquifer --server HOST --export /tank/vms --content images \\
              --options vers=3,hard
  Linux     mount -t nfs -o vers=3,hard HOST:/tank/vms /mnt
QEMU's own nfs:// driver, which this demo used, does not understand a restarted server: give it a
dataset with sync=always. Kernel mounts are safe without.";
