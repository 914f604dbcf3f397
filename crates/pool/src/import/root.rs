//! Reading txg records: the newest root, the free space as of it, and the places that recent roots
//! still need.

use std::collections::HashSet;
use std::sync::Arc;

use aquifer_blockio::buf::bytes_of;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{Page, World};
use aquifer_ondisk::Txg;
use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::config::PoolConfig;
use aquifer_ondisk::layout::REWIND_TXGS;
use aquifer_ondisk::pool_root::{LogRoot, PoolRoot};
use aquifer_ondisk::txg_record::{RecordPointer, TxgRecord};
use aquifer_ondisk::uberblock::Uberblock;
use aquifer_space::Allocator;
use aquifer_vdev::{ReadError, Vdev};

use crate::error::{ImportError, PoolError};
use crate::import::LOG_START;
use crate::intent_log::Ring;
use crate::limits::Scale;
use crate::patience::{Patience, patiently};
use crate::record::RecordRing;
use crate::tree::allocator;

pub(crate) struct NewestRoot {
    pub root: PoolRoot,
}

pub(crate) struct FoundRoots {
    pub newest: NewestRoot,
    pub space: Allocator,
    pub ring: RecordRing,
}

/// The log of a root whose log an uberblock has restarted: at home, empty.
pub(crate) fn restarted(root: &PoolRoot, chain: u64) -> LogRoot {
    let ring = Ring::new(&root.log_home);
    LogRoot {
        chain,
        head_sequence: 1,
        head_place: ring.place(LOG_START),
        previous_checksum: 0,
        segments: root.log_home.clone(),
    }
}

/// Reads the live records and rebuilds free space as of the newest root.
pub(crate) async fn read_roots(
    world: &dyn World,
    (config, vdevs): (&PoolConfig, &[Arc<Vdev>]),
    uberblock: &Uberblock,
    scale: Scale,
) -> Result<FoundRoots, ImportError> {
    let read_part = |pointer: RecordPointer| read_part(world, vdevs, pointer);
    let [Some(pointer), older @ ..] = uberblock.roots else {
        return Err(ImportError::NoUberblock);
    };
    let unreadable = |txg: Txg, reason: String| ImportError::RootUnreadable { txg, reason };
    let last = read_part(pointer).await.map_err(|why| unreadable(pointer.txg, why))?;
    let Some(root) = last.root.clone() else {
        return Err(unreadable(pointer.txg, "its record has no root".into()));
    };
    // Two older roots stay whole: their records and windows are needed too.
    let mut windows = vec![last.window_start];
    let mut back_to = last.window_start;
    for old in older.iter().flatten() {
        match read_part(*old).await {
            Ok(record) => {
                windows.push(record.window_start);
                back_to = back_to.min(record.window_start).min(old.txg);
            }
            Err(error) => tracing::warn!(txg = %old.txg, error, "an older root is damaged"),
        }
    }
    let needed_from = last.window_start;
    let mut parts = vec![(pointer, last)];
    while let Some(previous) = parts.last().and_then(|(_, record)| record.previous) {
        if previous.txg < back_to {
            break;
        }
        match read_part(previous).await {
            Ok(record) => parts.push((previous, record)),
            Err(error) if previous.txg >= needed_from => {
                return Err(unreadable(pointer.txg, error));
            }
            Err(_) => break,
        }
    }
    parts.reverse();
    let as_of = if left_out(Rule::CopiesAsOfTheirTxg) { Txg(u64::MAX) } else { root.txg };
    let copies = root.record_copies.unwrap_or_else(|| config.record_copies(as_of));
    let mut ring = RecordRing::new(&root.record_segments, copies, root.record_next)?;
    ring.take_sectors_of_each(scale.record_segment_sectors);
    for (pointer, record) in &parts {
        ring.note(record.txg, pointer.copies(), pointer.sectors.into());
    }
    windows.into_iter().rev().for_each(|window| ring.note_root(window));
    let mut space = rebuild_space(vdevs, &parts, needed_from)?;
    space.was_used(&root.allocated_sectors);
    Ok(FoundRoots { newest: NewestRoot { root }, space, ring })
}

fn rebuild_space(
    vdevs: &[Arc<Vdev>],
    parts: &[(RecordPointer, TxgRecord)],
    needed_from: Txg,
) -> Result<Allocator, ImportError> {
    let mut space = allocator(vdevs);
    // The newest entry of a metaslab names its current slot.
    let mut seen = HashSet::new();
    for slot in parts.iter().rev().flat_map(|(_, record)| record.slots.iter().rev()) {
        if seen.insert((slot.vdev, slot.metaslab)) {
            space.set_entry(*slot).map_err(PoolError::from)?;
        }
    }
    for (_, record) in parts.iter().filter(|(_, record)| record.txg >= needed_from) {
        for run in &record.allocated {
            space.replay_run(record.txg, *run, true).map_err(PoolError::from)?;
        }
        for run in &record.freed {
            space.replay_run(record.txg, *run, false).map_err(PoolError::from)?;
        }
    }
    if left_out(Rule::HoldBackFrees) {
        return Ok(space);
    }
    let mut recent: Vec<Txg> = parts.iter().map(|(_, record)| record.txg).collect();
    recent.dedup();
    for txg in recent.iter().rev().take(usize::try_from(REWIND_TXGS).unwrap_or(0)) {
        for (_, record) in parts.iter().filter(|(_, record)| record.txg == *txg) {
            space.hold(*txg, &record.freed);
        }
    }
    Ok(space)
}

/// Reads a part of a record, and repeats failed reads.
async fn read_part(
    world: &dyn World,
    vdevs: &[Arc<Vdev>],
    pointer: RecordPointer,
) -> Result<TxgRecord, String> {
    let read = || read_copies(vdevs, &pointer);
    let read = patiently(world, Patience::Long, |(_, may_pass)| *may_pass, read).await;
    read.map_err(|(error, _)| error)
}

/// The first good copy; otherwise the reason why there is none, and whether the error may be
/// transient.
async fn read_copies(
    vdevs: &[Arc<Vdev>],
    pointer: &RecordPointer,
) -> Result<TxgRecord, (String, bool)> {
    let (mut error, mut may_pass) = (String::new(), false);
    let verify = |pages: &[Page]| checksum128(&bytes_of(pages)) == pointer.checksum;
    for place in pointer.copies() {
        let Some(vdev) = vdevs.get(usize::from(place.vdev())) else {
            continue;
        };
        let count = usize::try_from(pointer.sectors).unwrap_or(0);
        match vdev.read(place.sector(), count, &verify).await {
            Ok(pages) => match TxgRecord::decode(&bytes_of(&pages)) {
                Ok(record) if record.txg == pointer.txg => return Ok(record),
                Ok(record) => error = format!("a record of txg {}", record.txg),
                Err(problem) => error = problem.to_string(),
            },
            Err(problem) => {
                may_pass |= matches!(problem, ReadError::Unreadable { .. });
                error = problem.to_string();
            }
        }
    }
    Err((error, may_pass))
}
