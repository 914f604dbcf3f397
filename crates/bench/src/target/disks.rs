//! The disks of targets: image files, and loop devices over them that can be slow.

use std::path::Path;

use aquifer_rig::process::Invocation;
use aquifer_rig::work::Scratch;

use super::{PATIENCE, Setup};
use crate::slow::{Limits, Probe, SlowDisk};
use crate::{Error, Result};

/// Two disks that can be slow, but are not yet, and their performance when they were.
pub(super) fn slow(setup: &Setup, scratch: &Scratch) -> Result<(Vec<SlowDisk>, Vec<Probe>)> {
    let (bytes, sparse) = (setup.image_bytes, setup.sparse_disks);
    let new = |name| SlowDisk::new(&scratch.join(name), bytes, sparse, Limits::default());
    let disks = vec![new("a.img")?, new("b.img")?];
    let probes: Result<Vec<Probe>> = std::thread::scope(|scope| {
        let probe = |disk: &'_ SlowDisk| disk.probe(setup.image_bytes);
        let probing: Vec<_> = disks.iter().map(|disk| scope.spawn(move || probe(disk))).collect();
        let gone = |_| Error::Malformed("a probe panicked".into());
        probing.into_iter().map(|thread| thread.join().map_err(gone)?).collect()
    });
    let probes = probes?;
    disks.iter().try_for_each(|disk| disk.throttle(false))?;
    Ok((disks, probes))
}

/// An image file, sparse or written.
pub(crate) fn image(path: &Path, bytes: u64, written: bool) -> Result<()> {
    let file = std::fs::File::create(path).map_err(Error::at("create", path))?;
    file.set_len(bytes).map_err(Error::at("resize", path))?;
    if written {
        let count = format!("count={}", bytes >> 20);
        let output = format!("of={}", path.display());
        let dd = Invocation::tool("dd", "build")?.args(["if=/dev/zero", "bs=1M"]);
        dd.args([&count, &output]).args(["oflag=direct", "conv=notrunc,fsync"]).check(PATIENCE)?;
    }
    Ok(())
}
