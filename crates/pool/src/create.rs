//! Creating a pool: labels, the first txg record, the first uberblock.

use std::collections::VecDeque;
use std::sync::Arc;

use aquifer_arc::Memory;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{Disk, World};
use aquifer_ondisk::config::{
    FEATURE_LOGICAL_SPACE, FEATURE_TAILS_BY_FILE, Label, LeafConfig, POOL_NAME_BYTES_MAX,
    PoolConfig, Redundancy, VdevClass, VdevConfig,
};
use aquifer_ondisk::layout::{Geometry, LEAF_SEGMENTS_MIN, LEAVES_MAX, leaf_segments};
use aquifer_ondisk::uberblock::{LogEnd, ROOTS, Uberblock};
use aquifer_ondisk::{Guid, Place, Txg};
use aquifer_space::Allocator;
use aquifer_vdev::label_io::{self, LabelError};
use aquifer_vdev::{Leaf, Vdev};

use crate::capacity::Capacity;
use crate::error::ActError;
use crate::intent_log::{Position, Ring, Start};
use crate::limits::{Limits, MEMORY_CAP_BYTES_MIN, Scale};
use crate::pool::{BoxFuture, Pool};
use crate::record::{RecordRing, runs_of};
use crate::tree::{VdevTree, allocator, data};

#[cfg(test)]
mod tests;

/// A disk with its path.
#[derive(Debug, Clone)]
pub struct NamedDisk {
    /// Path.
    pub path: String,
    /// The disk.
    pub disk: Arc<dyn Disk>,
}

/// One top-level vdev of a new pool.
#[derive(Debug, Clone)]
pub struct VdevSpec {
    /// Its redundancy.
    pub redundancy: Redundancy,
    /// Its disks.
    pub disks: Vec<NamedDisk>,
}

/// The parameters of a new pool.
#[derive(Debug, Clone)]
pub struct PoolSpec {
    /// Name.
    pub name: String,
    /// Data vdevs.
    pub vdevs: Vec<VdevSpec>,
    /// Log vdevs.
    pub logs: Vec<VdevSpec>,
    /// Also accept disks with labels of another pool.
    pub force: bool,
}

/// Checks the name of a pool: a letter first, then letters, digits, `-`, `_`, `.`, `:`.
pub fn check_pool_name(name: &str) -> Result<(), ActError> {
    let bad = |why: &str| Err(ActError::BadConfig(format!("pool name {name:?}: {why}")));
    let first = name.chars().next();
    if !first.is_some_and(|first| first.is_ascii_alphabetic()) {
        return bad("must begin with a letter");
    }
    if name.len() > POOL_NAME_BYTES_MAX {
        return bad("is longer than 255 bytes");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c)) {
        return bad("may hold letters, digits, '-', '_', '.' and ':' only");
    }
    let reserved = ["mirror", "raidz", "raidz1", "raidz2", "raidz3", "log", "cache", "spare"];
    if reserved.contains(&name) {
        return bad("is a word of the command line");
    }
    Ok(())
}

/// Creates a pool on these disks. When this returns the pool is on disk, exported.
pub fn create(
    world: Arc<dyn World>,
    spec: PoolSpec,
) -> BoxFuture<'static, Result<PoolConfig, ActError>> {
    Box::pin(async move {
        check_pool_name(&spec.name)?;
        check_disks(&spec).await?;
        let (config, vdevs) = plan(&world, &spec);
        check_labels(&config)?;
        format(world, config.clone(), vdevs).await?;
        Ok(config)
    })
}

/// The pool's vdevs and its config.
fn plan(world: &Arc<dyn World>, spec: &PoolSpec) -> (PoolConfig, Vec<Arc<Vdev>>) {
    let classes = [(VdevClass::Data, &spec.vdevs), (VdevClass::Log, &spec.logs)];
    let specs =
        classes.into_iter().flat_map(|(class, specs)| specs.iter().map(move |s| (class, s)));
    let mut vdevs = Vec::new();
    let mut configs = Vec::new();
    for (index, (class, spec)) in (0u16..).zip(specs) {
        let (config, leaves) = new_vdev(world, class, Txg(1), spec);
        vdevs.push(Arc::new(Vdev::new(index, &config, leaves, world.clone())));
        configs.push(config);
    }
    let config = PoolConfig {
        config_sequence: 1,
        pool_guid: Guid(world.random().max(1)),
        name: spec.name.clone(),
        features_read: Vec::new(),
        features_write: vec![FEATURE_LOGICAL_SPACE.into(), FEATURE_TAILS_BY_FILE.into()],
        vdevs: configs,
        spares: Vec::new(),
        caches: Vec::new(),
    };
    (config, vdevs)
}

/// A vdev of new disks, and its config.
pub(crate) fn new_vdev(
    world: &Arc<dyn World>,
    class: VdevClass,
    birth: Txg,
    spec: &VdevSpec,
) -> (VdevConfig, Vec<Arc<Leaf>>) {
    let guid = || Guid(world.random().max(1));
    let new_leaf = |named: &NamedDisk| {
        let disk = Some(named.disk.clone());
        Arc::new(Leaf::new(guid(), named.path.clone(), disk, world.clone()))
    };
    let leaves: Vec<Arc<Leaf>> = spec.disks.iter().map(new_leaf).collect();
    let smallest = spec.disks.iter().map(|named| leaf_segments(named.disk.sectors())).min();
    // The last segment of a leaf holds its end labels.
    let segments = smallest.unwrap_or(1) - 1;
    let mut config = VdevConfig::new(guid(), class, spec.redundancy, segments, birth);
    let of = |(leaf, named): (&Arc<Leaf>, &NamedDisk)| {
        LeafConfig::new(leaf.guid, named.disk.sectors(), named.path.clone())
    };
    config.leaves = leaves.iter().zip(&spec.disks).map(of).collect();
    (config, leaves)
}

async fn check_disks(spec: &PoolSpec) -> Result<(), ActError> {
    let bad = |why: String| Err(ActError::BadConfig(why));
    if spec.vdevs.is_empty() {
        return bad("a pool needs at least one disk".into());
    }
    let all: Vec<VdevSpec> = spec.vdevs.iter().chain(&spec.logs).cloned().collect();
    if all.iter().map(|vdev| vdev.disks.len()).sum::<usize>() > LEAVES_MAX {
        return bad(format!("a pool has at most {LEAVES_MAX} disks"));
    }
    check_new_disks(&all, spec.force).await
}

/// Checks that vdevs can be made of these disks. `force` also accepts disks with labels of another
/// pool.
pub(crate) async fn check_new_disks(specs: &[VdevSpec], force: bool) -> Result<(), ActError> {
    let bad = |why: String| Err(ActError::BadConfig(why));
    let disks: Vec<&NamedDisk> = specs.iter().flat_map(|vdev| &vdev.disks).collect();
    for vdev in specs {
        match (vdev.redundancy, vdev.disks.len()) {
            (Redundancy::Single, 1) => {}
            (Redundancy::Mirror, 2..) => {}
            (Redundancy::Single, n) => return bad(format!("a single vdev of {n} disks")),
            (Redundancy::Mirror, _) => return bad("a mirror needs at least two disks".into()),
        }
    }
    for (at, named) in disks.iter().enumerate() {
        let refuse = |reason: String| Err(ActError::BadDisk { path: named.path.clone(), reason });
        if disks.iter().take(at).any(|other| other.path == named.path) {
            return refuse("is given twice".into());
        }
        let segments = leaf_segments(named.disk.sectors());
        if segments < LEAF_SEGMENTS_MIN {
            let (has, needs) = (segments * 4, LEAF_SEGMENTS_MIN * 4);
            return refuse(format!("is too small: {has} MiB, a pool needs disks of {needs} MiB"));
        }
        match label_io::read_labels(&named.disk).await {
            Err(LabelError::NoLabel | LabelError::Damaged(_)) => {}
            Err(error @ LabelError::Disk(_)) => return refuse(error.to_string()),
            Err(LabelError::Newer(_)) if force => {}
            Err(error) => return refuse(format!("{error}; -f takes it nevertheless")),
            Ok(_) if force => {}
            Ok(labels) => {
                let name = &labels.label.config.name;
                return refuse(format!("belongs to pool {name:?}; -f takes it nevertheless"));
            }
        }
    }
    Ok(())
}

/// Checks that a vdev of its own can be made of one disk; otherwise as [`check_new_disks`].
pub(crate) async fn check_new_disk(disk: &NamedDisk, force: bool) -> Result<(), ActError> {
    let spec = VdevSpec { redundancy: Redundancy::Single, disks: vec![disk.clone()] };
    check_new_disks(&[spec], force).await
}

/// Checks that every label can be written, before any disk is touched.
pub(crate) fn check_labels(config: &PoolConfig) -> Result<(), ActError> {
    for (_, leaf) in config.leaves() {
        let label = Label { leaf_guid: leaf.guid, index: 0, config: config.clone() };
        label.encode().map_err(|error| ActError::BadDisk {
            path: leaf.path.clone(),
            reason: error.to_string(),
        })?;
    }
    Ok(())
}

/// Copies of the records of a new pool: two, if a bad sector or a lost vdev could take the only
/// one.
fn record_copies(config: &PoolConfig) -> u8 {
    let is_spread = config.is_spread(Txg(1)) && !left_out(Rule::RootsOnTwoVdevs);
    config.record_copies(Txg(1)).max(if is_spread { 2 } else { 1 })
}

/// Space of a new pool, and the segments that it keeps for records and log.
struct Reserved {
    space: Allocator,
    records: Vec<Place>,
    log: Vec<Place>,
}

fn reserve(vdevs: &[Arc<Vdev>], record_copies: u8) -> Result<Reserved, crate::PoolError> {
    let mut space = allocator(vdevs);
    let geometries: Vec<Geometry> = data(vdevs).map(|vdev| vdev.geometry).collect();
    let metaslabs = geometries.iter().map(Geometry::metaslabs).sum();
    let (record_segments, total) = (Limits::record_segments(metaslabs), space.space_use().total);
    let mut take = |count: u64, rotor: usize, from_end: bool| {
        (0..count)
            .map(|_| space.allocate_segment(Txg(1), rotor, from_end).map(|run| run.place))
            .collect::<Result<Vec<Place>, _>>()
    };
    let mut records = Vec::new();
    for copy in 0..usize::from(record_copies) {
        // Second copies are far from the first: on another disk, or at the other end of this one.
        records.extend(take(record_segments, copy, copy > 0)?);
    }
    let mut log = Vec::new();
    for at in 0..Limits::log_segments(total) {
        let rotor = usize::try_from(at).unwrap_or(0) % geometries.len();
        log.extend(take(1, rotor, false)?);
    }
    Ok(Reserved { space, records, log })
}

/// Writes labels, first txg record and first uberblock.
async fn format(
    world: Arc<dyn World>,
    config: PoolConfig,
    vdevs: Vec<Arc<Vdev>>,
) -> Result<Arc<Pool>, ActError> {
    let copies = record_copies(&config);
    let Reserved { space, records, log } = reserve(&vdevs, copies)?;
    let total = space.space_use().total;
    let segments = |runs: &[Place]| runs.len() as u64;
    let limits = Limits::new(MEMORY_CAP_BYTES_MIN, segments(&log), Scale::REAL);
    let capacity = Capacity::new(&limits, total, segments(&records) / u64::from(copies));
    let first = records.first().copied().unwrap_or(Place::NULL);
    let ring = RecordRing::new(&runs_of(&records), copies, first)?;
    let start = Start {
        chain: world.random().max(1),
        session: 0,
        ring: Ring::new(&runs_of(&log)),
        home: Ring::new(&runs_of(&log)),
        next: Position::START,
        next_sequence: 1,
        previous: 0,
        mark: 0,
        head: Position::START,
        live: VecDeque::new(),
        restarting: false,
    };
    let uberblock = Uberblock {
        pool_guid: config.pool_guid,
        leaf_guid: Guid(0),
        label: 0,
        clean: true,
        sequence: 0,
        txg: Txg(0),
        wall_ns: 0,
        session: 0,
        session_first_txg: Txg(1),
        config_sequence: config.config_sequence,
        mark: 0,
        log_end: LogEnd::default(),
        restart_chain: 0,
        floor: Txg(0),
        roots: [None; ROOTS],
        outdated: Vec::new(),
        host: None,
        counted: 0,
    };
    for vdev in &vdevs {
        for leaf in &vdev.leaves {
            let disk = leaf.disk().ok_or(aquifer_blockio::DiskError::Gone)?;
            label_io::erase_labels(disk).await?;
            label_io::write_config(leaf, &config).await?;
        }
    }
    let pool = Pool::assemble(crate::pool::Parts {
        world,
        tree: VdevTree { config, vdevs, spares: Vec::new(), caches: Arc::new([]) },
        memory: Memory::new(limits.memory_cap_bytes),
        limits,
        capacity,
        space,
        log: start,
        uberblock,
        counted: 0,
        host: None,
        records: ring,
        roots: Default::default(),
        committed: Txg(0),
        discards_unreadable: false,
        open: Txg(1),
    });
    pool.sync_one().await?;
    Ok(pool)
}
