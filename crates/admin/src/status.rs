//! The state of a pool in the API's form: the engine's numbers in an administrator's terms, and
//! what to do.

use std::collections::BTreeMap;

use aquifer_api::{
    CacheDiskInfo, CacheDiskState, Count, DamagedFile, DiskInfo, DiskIo, DrillInfo, DroppedLog,
    Health, LeafIo, LeafState, LeafStatus, PoolIo, PoolStatus, PoolSummary, Problem,
    ReplicationInfo, ResilverInfo, ScanState, ScrubInfo, SlowInfo, SpareInfo, SpareState,
    SyncDisabled, VdevClass, VdevIo, VdevKind, VdevStatus, guid_text,
};
use aquifer_blockio::ms;
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::{Stands, VdevClass as Class};
use aquifer_vdev::{IoCount, IoCounts, IoKind, Slow};

use aquifer_pool as pool;

use crate::control::{free_space, sum};
use crate::devices::SECTOR;

mod problems;
#[cfg(test)]
mod tests;

/// A vdev's name: a mirror's number, a single disk's path.
pub(crate) fn vdev_name(index: usize, kind: VdevKind, first_path: &str) -> String {
    match kind {
        VdevKind::Mirror => format!("mirror-{index}"),
        VdevKind::Single => first_path.to_string(),
    }
}

/// A mirror has several disks, however it was made.
pub(crate) fn kind_of(disks: usize) -> VdevKind {
    if disks > 1 { VdevKind::Mirror } else { VdevKind::Single }
}

/// The class of a vdev; `None` for the place of a removed one, which is not shown.
pub(crate) fn class_of(class: Class) -> Option<VdevClass> {
    match class {
        Class::Data => Some(VdevClass::Data),
        Class::Log => Some(VdevClass::Log),
        Class::Hole => None,
    }
}

/// The visible vdevs of a pool in service, with their numbers.
pub fn shown(
    status: &pool::PoolStatus,
) -> impl Iterator<Item = (usize, VdevClass, &pool::VdevStatus)> {
    let each = status.vdevs.iter().enumerate();
    each.filter_map(|(index, vdev)| Some((index, class_of(vdev.class)?, vdev)))
}

/// The health of a vdev. For each disk, whether it is online.
pub(crate) fn health_of(leaves: impl Iterator<Item = bool>) -> Health {
    let (mut all, mut any) = (true, false);
    for is_online in leaves {
        all &= is_online;
        any |= is_online;
    }
    match (any, all) {
        (true, true) => Health::Online,
        (true, false) => Health::Degraded,
        (false, _) => Health::Unavail,
    }
}

fn vdev_health(vdev: &pool::VdevStatus) -> Health {
    let is_online = |leaf: &pool::LeafStatus| leaf.state == aquifer_vdev::LeafState::Online;
    match health_of(vdev.leaves.iter().map(is_online)) {
        Health::Online if vdev.leaves.iter().any(|leaf| leaf.trouble.is_degraded) => {
            Health::Degraded
        }
        health => health,
    }
}

/// The health of a pool with these vdevs. A pool works without a log vdev: the log then lies on the
/// others.
pub(crate) fn pool_health(vdevs: impl Iterator<Item = (VdevClass, Health)>) -> Health {
    worst(vdevs.map(|vdev| match vdev {
        (VdevClass::Log, Health::Unavail) => Health::Degraded,
        (_, health) => health,
    }))
}

fn worst(vdevs: impl Iterator<Item = Health>) -> Health {
    let rank = |health: &Health| match health {
        Health::Online => 0,
        Health::Degraded => 1,
        Health::Importing => 2,
        Health::Suspended => 3,
        Health::Unavail => 4,
    };
    vdevs.max_by_key(rank).unwrap_or(Health::Unavail)
}

/// Why clients wait for a pool whose disks do not answer.
const SILENT: &str = "its disks do not answer";

/// The line of the list for a pool in service.
pub fn summary(status: &pool::PoolStatus) -> PoolSummary {
    let health = match status.suspended {
        Some(_) => Health::Suspended,
        None => pool_health(shown(status).map(|(_, class, vdev)| (class, vdev_health(vdev)))),
    };
    PoolSummary {
        name: status.name.clone(),
        guid: guid_text(status.guid.0),
        health,
        size_bytes: status.space.total * SECTOR,
        allocated_bytes: status.space.taken * SECTOR,
        free_bytes: status.space.free() * SECTOR,
        freeing_bytes: 0,
        damaged_files: 0,
        reason: status.suspended.clone().or_else(|| status.silent.then(|| SILENT.into())),
    }
}

/// The line of the list for a pool that is not in service.
pub(crate) fn absent(name: &str, guid: &str, health: Health, reason: Option<&str>) -> PoolSummary {
    PoolSummary {
        name: name.into(),
        guid: guid.into(),
        health,
        size_bytes: 0,
        allocated_bytes: 0,
        free_bytes: 0,
        freeing_bytes: 0,
        damaged_files: 0,
        reason: reason.map(Into::into),
    }
}

/// The status of a pool that is not in service.
pub(crate) fn absent_status(summary: PoolSummary, dropped_log: Option<DroppedLog>) -> PoolStatus {
    problems::told(PoolStatus {
        summary,
        txg: 0,
        held_bytes: 0,
        closed_metaslabs: 0,
        vdevs: Vec::new(),
        spares: Vec::new(),
        caches: Vec::new(),
        import_notes: Vec::new(),
        notes: Vec::new(),
        damaged: Vec::new(),
        sync_disabled: Vec::new(),
        dropped_log,
        scan: None,
        scrub: None,
        drill: None,
        replications: Vec::new(),
        status: None,
        action: None,
        problems: Vec::new(),
    })
}

/// Facts about a pool in service beside its engine's numbers.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    pub import_notes: Vec<String>,
    pub notes: Vec<String>,
    pub damaged: Vec<DamagedFile>,
    pub sync_disabled: Vec<SyncDisabled>,
    pub dropped_log: Option<DroppedLog>,
    pub freeing_bytes: u64,
    pub scrub: Option<ScrubInfo>,
    pub drill: Option<DrillInfo>,
    /// Copies of its datasets.
    pub replications: Vec<ReplicationInfo>,
    /// Descriptions of the disks.
    pub disks: BTreeMap<Guid, DiskInfo>,
}

/// The status of a pool in service.
pub(crate) fn status(status: &pool::PoolStatus, beside: Beside) -> PoolStatus {
    let Beside { import_notes, notes, damaged, sync_disabled, .. } = beside;
    let Beside { dropped_log, scrub, drill, disks, replications, .. } = beside;
    let damaged_files = u64::try_from(damaged.len()).unwrap_or(u64::MAX);
    let told = problems::told(PoolStatus {
        summary: PoolSummary {
            damaged_files,
            freeing_bytes: beside.freeing_bytes,
            ..summary(status)
        },
        txg: status.txg.0,
        held_bytes: status.space.held * SECTOR,
        closed_metaslabs: u64::try_from(status.closed_metaslabs).unwrap_or(u64::MAX),
        vdevs: shown(status).map(|shown| of_vdev(shown, status, &disks)).collect(),
        spares: status.spares.iter().map(|of| spare(of, &disks)).collect(),
        caches: status.caches.iter().map(|of| cache_disk(of, &disks)).collect(),
        import_notes,
        notes,
        damaged,
        sync_disabled,
        dropped_log,
        scan: status.resilver.as_ref().map(scan),
        scrub,
        drill,
        replications,
        status: None,
        action: None,
        problems: Vec::new(),
    });
    match status.read_only {
        true => problems::read_only(told),
        false => told,
    }
}

/// A status with more problems.
pub(crate) fn with_more(status: PoolStatus, more: Vec<Problem>) -> PoolStatus {
    problems::with_more(status, more)
}

fn scan(resilver: &pool::ResilverStatus) -> ResilverInfo {
    ResilverInfo {
        disk: resilver.path.clone(),
        state: match resilver.succeeded {
            None => ScanState::Running,
            Some(true) => ScanState::Done,
            Some(false) => ScanState::Failed,
        },
        total_bytes: resilver.total_bytes,
        copied_bytes: resilver.copied_bytes,
        unread_blocks: resilver.unread_blocks,
        took_ms: ms(resilver.took),
    }
}

/// The work of the disks of a pool in service.
pub(crate) fn io(status: &pool::PoolStatus) -> PoolIo {
    let summary = summary(status);
    let of_leaf = |leaf: &pool::LeafStatus| LeafIo {
        path: leaf.path.clone(),
        guid: guid_text(leaf.guid.0),
        state: state_of(leaf),
        io: disk_io(&leaf.io),
    };
    let of_vdev = |(index, class, vdev): (usize, VdevClass, &pool::VdevStatus)| VdevIo {
        name: name_of(index, vdev),
        class,
        kind: kind_of(vdev.leaves.len()),
        io: disk_io(&vdev.io),
        leaves: vdev.leaves.iter().map(of_leaf).collect(),
    };
    PoolIo {
        name: summary.name,
        uptime_ns: u64::try_from(status.uptime.as_nanos()).unwrap_or(u64::MAX),
        allocated_bytes: summary.allocated_bytes,
        free_bytes: summary.free_bytes,
        io: disk_io(&sum(status.vdevs.iter().map(|vdev| &vdev.io))),
        txgs: (&status.syncs).into(),
        stable_writes: (&status.stable_writes).into(),
        stable_writes_in_sync: (&status.stable_writes_in_sync).into(),
        vdevs: shown(status).map(of_vdev).collect(),
    }
}

/// A vdev's name.
pub fn name_of(index: usize, vdev: &pool::VdevStatus) -> String {
    let first = vdev.leaves.first().map(|leaf| leaf.path.as_str()).unwrap_or_default();
    vdev_name(index, kind_of(vdev.leaves.len()), first)
}

fn of_vdev(
    (index, class, vdev): (usize, VdevClass, &pool::VdevStatus),
    status: &pool::PoolStatus,
    disks: &BTreeMap<Guid, DiskInfo>,
) -> VdevStatus {
    let of_leaf = |leaf: &pool::LeafStatus| {
        let disk = disks.get(&leaf.guid).cloned();
        LeafStatus { disk, ..of_leaf(leaf, status) }
    };
    VdevStatus {
        name: name_of(index, vdev),
        class,
        kind: kind_of(vdev.leaves.len()),
        size_bytes: vdev.sectors * SECTOR,
        health: vdev_health(vdev),
        leaves: vdev.leaves.iter().map(of_leaf).collect(),
    }
}

fn of_leaf(leaf: &pool::LeafStatus, status: &pool::PoolStatus) -> LeafStatus {
    let path_of = |guid: Guid| {
        let mut leaves = status.vdevs.iter().flat_map(|vdev| &vdev.leaves);
        leaves.find(|leaf| leaf.guid == guid).map(|leaf| leaf.path.clone())
    };
    let (spare_for, replaces) = match leaf.stands {
        Stands::ForItself => (None, None),
        Stands::SpareFor(whom) => (path_of(whom), None),
        Stands::Replaces(whom) => (None, path_of(whom)),
    };
    LeafStatus {
        spare_for,
        replaces,
        path: leaf.path.clone(),
        guid: guid_text(leaf.guid.0),
        state: state_of(leaf),
        read_errors: leaf.read_errors,
        write_errors: leaf.write_errors,
        checksum_errors: leaf.checksum_errors,
        repaired: leaf.repaired,
        last_error: leaf.last_error.clone(),
        own_past: leaf.own_past,
        slow: leaf.trouble.slow.as_ref().map(slow),
        trim: leaf.free_space.trim.as_ref().map(free_space::shown),
        initialize: leaf.free_space.initialize.as_ref().map(free_space::shown),
        cannot_discard: leaf.free_space.cannot_discard,
        disk: None,
    }
}

fn spare(spare: &pool::SpareStatus, disks: &BTreeMap<Guid, DiskInfo>) -> SpareInfo {
    SpareInfo {
        path: spare.path.clone(),
        guid: guid_text(spare.guid.0),
        state: match (spare.present, &spare.stands_for) {
            (false, _) => SpareState::Missing,
            (true, None) => SpareState::Avail,
            (true, Some(_)) => SpareState::InUse,
        },
        stands_for: spare.stands_for.clone(),
        disk: disks.get(&spare.guid).cloned(),
    }
}

fn cache_disk(cache: &pool::CacheStatus, disks: &BTreeMap<Guid, DiskInfo>) -> CacheDiskInfo {
    let pool::CacheStatus { leaf, usable, stats } = cache;
    CacheDiskInfo {
        path: leaf.path.clone(),
        guid: guid_text(leaf.guid.0),
        state: match (usable, leaf.state) {
            (true, _) => CacheDiskState::Online,
            (false, pool::LeafState::Missing) => CacheDiskState::Missing,
            (false, _) => CacheDiskState::Faulted,
        },
        read_errors: leaf.read_errors,
        write_errors: leaf.write_errors,
        checksum_errors: leaf.checksum_errors,
        capacity_bytes: stats.capacity_bytes,
        held_bytes: stats.blocks * SECTOR,
        index_bytes: stats.index_bytes,
        hits: stats.hits,
        misses: stats.misses,
        written_bytes: leaf.io.writes.bytes,
        passed_over: stats.passed_over,
        disk: disks.get(&leaf.guid).cloned(),
    }
}

fn slow(slow: &Slow) -> SlowInfo {
    let Slow { kind, thousandths, own_ns, others_ns } = *slow;
    let at = match kind {
        IoKind::Read => "reads",
        IoKind::Write => "writes",
        IoKind::DurableWrite => "durable writes",
        IoKind::Flush => "flushes",
    };
    SlowInfo { at: at.into(), thousandths, own_ns, others_ns }
}

fn disk_io(counts: &IoCounts) -> DiskIo {
    let of = |count: &IoCount| Count { bytes: count.bytes, latency: (&count.latency).into() };
    DiskIo {
        reads: of(&counts.reads),
        writes: of(&counts.writes),
        durable_writes: of(&counts.durable_writes),
        flushes: of(&counts.flushes),
    }
}

fn state_of(leaf: &pool::LeafStatus) -> LeafState {
    use aquifer_vdev::LeafState as Engine;
    match leaf.state {
        Engine::Online if leaf.trouble.is_degraded => LeafState::Degraded,
        Engine::Online => LeafState::Online,
        Engine::Failed | Engine::Outdated if leaf.offline => LeafState::Offline,
        Engine::Failed | Engine::Outdated if leaf.trouble.is_faulted => LeafState::Faulted,
        Engine::Failed => LeafState::Failed,
        Engine::Outdated => LeafState::Outdated,
        Engine::Missing => LeafState::Missing,
        Engine::Resilvering => LeafState::Resilvering,
    }
}
