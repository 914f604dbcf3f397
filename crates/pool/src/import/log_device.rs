//! Log devices that an import does without.

use std::sync::Arc;

use aquifer_meter::time;
use aquifer_ondisk::pool_root::LogRoot;
use aquifer_ondisk::uberblock::{LogEnd, Uberblock};
use aquifer_vdev::{Leaf, Vdev};

use super::leaves::age;
use super::vote::Vote;
use super::{DroppedLog, FoundLeaf, ImportOptions, ImportReport, of_leaf};
use crate::error::ImportError;
use crate::intent_log::Ring;

/// Disks of log vdevs that hold the root's log and have no usable disk.
pub(super) fn lost_log_devices(
    log: &LogRoot,
    vdevs: &[Arc<Vdev>],
    vote: &Vote,
    found: &[FoundLeaf],
) -> Vec<String> {
    let ring = Ring::new(&log.segments);
    let on = ring.vdevs();
    let lost = vdevs.iter().filter(|vdev| on.contains(&vdev.index) && vdev.check().is_err());
    let text = |leaf: &Arc<Leaf>| {
        let behind = of_leaf(found, leaf.guid).filter(|_| vote.behind.contains(&leaf.guid));
        behind.map_or_else(|| leaf.path.clone(), |found| age(found, vote))
    };
    let mut paths: Vec<String> = lost.flat_map(|vdev| vdev.leaves.iter().map(text)).collect();
    // A root may name a vdev that a newer config does not have, but only if that vdev was never on
    // disk.
    if on.iter().any(|index| usize::from(*index) >= vdevs.len()) {
        paths.push("a disk that no label names".into());
    }
    paths
}

/// Lets the log begin with a new chain at home, because its device is missing.
pub(super) fn do_without_log(
    uberblock: &mut Uberblock,
    lost: &[String],
    options: &ImportOptions,
    (chain, since_ns): (u64, u64),
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let devices = lost.join(", ");
    let from = uberblock.txg.next();
    if uberblock.clean {
        report.notes.push(format!(
            "log device missing: {devices}; the pool was exported, so nothing is lost"
        ));
    } else if options.missing_log {
        report.notes.push(format!("log device missing: {devices}; the log begins on the others"));
        report.dropped_log = Some(DroppedLog { from, since_ns, rewound: false });
    } else {
        let since = time::text_s(since_ns / 1_000_000_000);
        return Err(ImportError::LogMissing { devices, from, since });
    }
    uberblock.restart_chain = chain;
    uberblock.mark = 0;
    uberblock.log_end = LogEnd::default();
    Ok(())
}
