//! A second pool has a copy of the datastore: all of it once, then what changed. The original
//! leaves service, the copy takes its place, and an NFS client goes on with a file that it has open
//! and with the mount that it has.

use std::time::{Duration, Instant};

use aquifer_conformance::image::Task;
use aquifer_conformance::{Error, Result};
use aquifer_rig::work::WorkDir;

use crate::snapped::{mounted, on_client};
use crate::stage::Stage;
use crate::{LIFE, Machines, finished, tell};

/// The measurements of this part.
#[derive(Debug, Default)]
pub struct Copied {
    /// Bytes that the copy took first.
    pub whole_bytes: u64,
    /// How long that took.
    pub whole_in: Duration,
    /// How long it took to bring the copy up to date.
    pub changed_in: Duration,
    /// How long both commands of the change of places took.
    pub taken_over_in: Duration,
}

/// Plays this part, on a disk that holds the files of an earlier machine.
pub fn play(work: &WorkDir, machines: &Machines<'_>, stage: &Stage) -> Result<Copied> {
    let mut copied = Copied::default();
    tell::step("A second pool has a copy of it, and takes over");
    stage.make_second_pool()?;
    let replicate = || -> Result<Duration> {
        let begun = Instant::now();
        stage.aquifer(&["replicate", "-v", "tank/vms", COPY])?;
        Ok(begun.elapsed())
    };
    copied.whole_in = replicate()?;
    copied.whole_bytes = stage.used_bytes(COPY)?;
    let client = mounted(work, machines, stage)?;
    on_client(&client, "echo 'noted on the original' > /mnt/note; sync")?;
    copied.changed_in = replicate()?;

    let reader =
        "exec 3</mnt/note; echo open; while ! test -e /tmp/over; do sleep 0.1; done; cat <&3";
    tell::command("exec 3< /mnt/note");
    let reader = client.start(reader)?;
    reader.wait_output(|output| output.contains("open"), LIFE)?;
    tell::said("the client has the file open, and the original leaves service");
    let begun = Instant::now();
    stage.aquifer(&["set", "standby=on", "tank/vms"])?;
    stage.aquifer(&["set", "-f", "standby=off", COPY])?;
    copied.taken_over_in = begun.elapsed();
    on_client(&client, "echo 3 > /proc/sys/vm/drop_caches; touch /tmp/over")?;
    tell::command("cat <&3");
    let read = reader.wait(LIFE)?.output;
    tell::said(read.trim_start_matches("open\n"));
    if !read.ends_with("noted on the original\n") {
        return Err(Error::Mismatch(format!("the client read {read:?} from the copy")));
    }
    on_client(&client, "echo 'noted on the copy' >> /mnt/note; sync; cat /mnt/note")?;
    stage.list()?;
    let url = format!("nfs://127.0.0.1/{COPY}/debian.raw");
    let told = finished(&machines.start_on(&url, Task::Verify, "copy", stage)?)?;
    if !told.iter().any(|line| line == "checksums match") {
        return Err(Error::Mismatch("the copy did not verify its files".into()));
    }

    tell::said("the original takes its place again, and the copy goes");
    stage.aquifer(&["set", "standby=on", COPY])?;
    stage.aquifer(&["set", "-f", "standby=off", "tank/vms"])?;
    on_client(&client, "umount /mnt")?;
    client.power_off(LIFE)?;
    stage.aquifer(&["pool", "destroy", "-f", "backup"])?;
    Ok(copied)
}

/// The copy's dataset.
const COPY: &str = "backup/vms";
