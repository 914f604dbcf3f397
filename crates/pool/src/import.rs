//! Bringing a pool into service: finds the newest whole root and the end of the log, and replays.
//!
//! Nothing is allocated, replayed or answered before these steps, in this order:
//!
//! 1. Uberblocks vote on the newest root.
//! 2. The chain of the intent log is read from that root's head to its end.
//! 3. The chain is made durable, and the same on all sides.
//! 4. One uberblock fixes the end that was found, and a new session.
//! 5. Replay.

mod behind;
pub(crate) mod leaves;
mod level;
mod log_device;
mod read_only;
mod replay;
mod root;
mod vote;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use aquifer_arc::Memory;
use aquifer_blockio::World;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::config::PoolConfig;
use aquifer_ondisk::pool_root::LogRoot;
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::uberblock::{Host, LogEnd, ROOTS, Uberblock};
use aquifer_ondisk::{Guid, Txg};
use aquifer_sync::atomic::Ordering;
use aquifer_vdev::Vdev;
use aquifer_vdev::label_io::{self, DiskLabels, LabelError};

use crate::caches::assemble_caches;
use crate::capacity::Capacity;
use crate::create::NamedDisk;
use crate::error::{ImportError, PoolError};
use crate::host::check_host;
use crate::import::behind::without_twins;
use crate::import::leaves::{
    assemble_spares, assemble_vdevs, bring_online, lacks_session, name_unused,
};
use crate::import::log_device::{do_without_log, lost_log_devices};
use crate::import::vote::vote;
use crate::intent_log::ahead::Ahead;
use crate::intent_log::read::{Chain, ChainRules, Reader};
use crate::intent_log::{LiveBatch, Position, Ring, Start};
use crate::limits::{Limits, MEMORY_CAP_BYTES_DEFAULT, Scale};
use crate::pool::{BoxFuture, Parts, Pool};
use crate::tree::VdevTree;

pub use behind::is_behind;

/// The administrator's options of an import.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// The memory of this process, which all pools share.
    pub memory: Arc<Memory>,
    /// Go back this many txgs; drops them and the log.
    pub rewind: u64,
    /// End the log where it is damaged or cannot be read, and drop the rest.
    pub discard_log: bool,
    /// Import without a missing log device, and without the data that only it holds.
    pub missing_log: bool,
    /// Import read-only, without data vdevs of which no disk can be used: what does not lie on them
    /// can be read. See [`Pool::is_read_only`].
    pub missing_vdev: bool,
    /// Blocks that cannot be read while the log is replayed count as damaged: changes of them are
    /// given up.
    pub discard_unreadable: bool,
    /// For simulators: see [`Scale`].
    pub scale: Scale,
    /// This machine: uberblocks name it.
    pub host: Option<Host>,
    /// Import although another host seems to use the pool.
    pub take_over: bool,
    /// If of a vdev only disks are there that were taken offline by order: go back to what they
    /// hold.
    pub use_offline: bool,
    /// Import although the labels hold an older config than the newest uberblock names.
    pub old_config: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions {
            memory: Memory::new(MEMORY_CAP_BYTES_DEFAULT),
            rewind: 0,
            discard_log: false,
            missing_log: false,
            missing_vdev: false,
            discard_unreadable: false,
            scale: Scale::REAL,
            host: None,
            take_over: false,
            use_offline: false,
            old_config: false,
        }
    }
}

/// A disk of some pool, as a scan found it.
#[derive(Debug, Clone)]
pub struct FoundLeaf {
    /// The disk.
    pub disk: NamedDisk,
    /// Its labels.
    pub labels: DiskLabels,
}

/// The disk of a leaf, if it was found.
pub(crate) fn of_leaf(found: &[FoundLeaf], guid: Guid) -> Option<&FoundLeaf> {
    found.iter().find(|found| found.labels.label.leaf_guid == guid)
}

/// The report of an import, for people.
#[derive(Debug, Clone, Default)]
pub struct ImportReport {
    /// Notes for people.
    pub notes: Vec<String>,
    /// Batches of the log to replay.
    pub log_batches: usize,
    /// The log that the import dropped.
    pub dropped_log: Option<DroppedLog>,
}

/// The log or its end was dropped: changes acknowledged in `from` or a later txg may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedLog {
    /// The first txg that was not on disk.
    pub from: Txg,
    /// When the previous txg was written: Unix time in nanoseconds.
    pub since_ns: u64,
    /// A rewind also dropped txgs that were on disk.
    pub rewound: bool,
}

/// Reads the labels of disks and groups them by pool. Disks without labels are left out. Others
/// that cannot be used are returned with the reason.
pub async fn scan(
    disks: Vec<NamedDisk>,
) -> (BTreeMap<Guid, Vec<FoundLeaf>>, Vec<(NamedDisk, LabelError)>) {
    let mut pools: BTreeMap<Guid, Vec<FoundLeaf>> = BTreeMap::new();
    let mut refused = Vec::new();
    for disk in disks {
        match label_io::read_labels(&disk.disk).await {
            Ok(labels) => {
                let guid = labels.label.config.pool_guid;
                pools.entry(guid).or_default().push(FoundLeaf { disk, labels });
            }
            Err(LabelError::NoLabel) => {}
            Err(error) => refused.push((disk, error)),
        }
    }
    (pools, refused)
}

/// Imports the pool on these disks (all of one pool), up to the point where the layer above
/// replays: [`Pool::replay`] must follow, then [`Pool::run`].
pub fn import(
    world: Arc<dyn World>,
    found: Vec<FoundLeaf>,
    options: &ImportOptions,
) -> BoxFuture<'_, Result<(Arc<Pool>, ImportReport), ImportError>> {
    Box::pin(async move {
        let mut report = ImportReport::default();
        for leaf in found.iter().filter(|leaf| leaf.labels.damaged > 0) {
            let (path, damaged) = (&leaf.disk.path, leaf.labels.damaged);
            report.notes.push(format!("{path}: {damaged} of 4 labels are damaged"));
        }
        let found = without_twins(found, &mut report.notes)?;
        let mut vote = vote(&found, options.old_config)?;
        if options.use_offline {
            bring_online(&mut vote.config, &found, &mut report.notes);
        }
        check_host(&vote.uberblock, options, world.wall_ns())?;
        let vdevs = assemble_vdevs(&world, &vote, &found, (options.missing_vdev, &mut report))?;
        let back = usize::try_from(options.rewind).unwrap_or(usize::MAX);
        let mut uberblock = vote.uberblock.clone();
        let apart = name_unused(&vote.config.name, &mut uberblock, &vdevs);
        if back > 0 {
            rewind(&mut uberblock, back, world.random().max(1), &mut report)?;
        }
        let roots =
            root::read_roots(&*world, (&vote.config, &vdevs), &uberblock, options.scale).await?;
        let newest = &roots.newest;
        let (from, since_ns) = (uberblock.txg.next(), newest.root.wall_ns);
        if back > 0 {
            report.dropped_log = Some(DroppedLog { from, since_ns, rewound: true });
        }
        if options.missing_vdev {
            let tree = tree_of(&world, vote.config, (vdevs, &found), options);
            return Ok((
                read_only::pool(world, tree, &uberblock, roots, options, &mut report)?,
                report,
            ));
        }
        let lost = lost_log_devices(&newest.root.log, &vdevs, &vote, &found);
        if uberblock.restart_chain == 0 && !lost.is_empty() {
            let chain = world.random().max(1);
            do_without_log(&mut uberblock, &lost, options, (chain, since_ns), &mut report)?;
        }
        let log_root = if uberblock.restart_chain == 0 {
            newest.root.log.clone()
        } else {
            root::restarted(&newest.root, uberblock.restart_chain)
        };
        let ring = Ring::new(&log_root.segments);
        let reader = Reader {
            world: &*world,
            vdevs: &vdevs,
            ring: &ring,
            rules: chain_rules(&uberblock, &log_root, options),
            memory: &options.memory,
            ahead: Ahead::default(),
        };
        let chain = read_log(&reader, &log_root, lacks_session(&vote, &vdevs, &found)).await?;
        note_log(&chain, DroppedLog { from, since_ns, rewound: false }, &mut report);
        fix_end(&mut uberblock, &chain, log_root.chain, apart);
        let tree = tree_of(&world, vote.config, (vdevs, &found), options);
        let parts = build(world, tree, &uberblock, roots, &ring, &chain, options)?;
        let pool = Pool::assemble(parts);
        pool.level_labels(&found).await;
        pool.begin_session(&uberblock).await?;
        claim_logged_places(&pool, &chain, uberblock.floor).await?;
        pool.load_for_sync().await?;
        pool.spread_records(&mut pool.space.lock());
        pool.set_capacity();
        *pool.import.found.lock() = Some(chain);
        Ok((pool, report))
    })
}

/// Returns the rules that the chain of the log must obey.
fn chain_rules(uberblock: &Uberblock, root: &LogRoot, options: &ImportOptions) -> ChainRules {
    ChainRules {
        pool_guid: uberblock.pool_guid,
        chain: root.chain,
        fixed: uberblock.log_end,
        session: uberblock.session,
        mark: uberblock.mark,
        floor: uberblock.floor,
        discard: options.discard_log,
    }
}

/// The vdev tree, with the disks beside the vdevs.
fn tree_of(
    world: &Arc<dyn World>,
    config: PoolConfig,
    (vdevs, found): (Vec<Arc<Vdev>>, &[FoundLeaf]),
    options: &ImportOptions,
) -> VdevTree {
    let spares = assemble_spares(world, &config, found);
    let caches = assemble_caches(world, &config, found, &options.memory);
    VdevTree { config, vdevs, spares, caches }
}

/// Reads the log, and makes it durable and the same on all sides.
async fn read_log(
    reader: &Reader<'_>,
    root: &LogRoot,
    lacks_session: bool,
) -> Result<Chain, ImportError> {
    let what = (reader.rules.floor, lacks_session);
    loop {
        let online = online_leaves(reader.vdevs);
        let chain = reader.read(root).await?;
        level::level(reader.world, reader.vdevs, reader.ring, &chain, what).await?;
        // A leaf that failed on the way may have been the only one with the end of the chain.
        // Acknowledged batches are on the others too, so read these again.
        if online_leaves(reader.vdevs) == online {
            return Ok(chain);
        }
    }
}

/// Notes the result of reading the log; `dropped` is the possible loss if its end was discarded.
fn note_log(chain: &Chain, dropped: DroppedLog, report: &mut ImportReport) {
    report.log_batches = chain.batches.len();
    if chain.discarded {
        report.dropped_log.get_or_insert(dropped);
    }
    if !chain.batches.is_empty() {
        let (count, end) = (chain.batches.len(), &chain.end);
        report.notes.push(format!("intent log: {count} batches to replay; it ends at: {end}"));
    }
}

impl Pool {
    /// Writes the first uberblock of this session, which fixes the end of the log. What is
    /// acknowledged from now on may lie on one vdev alone. So a copy of that from before this
    /// import must lack an uberblock that counted: there are two.
    async fn begin_session(&self, uberblock: &Uberblock) -> Result<(), PoolError> {
        self.write_uberblock(|next| {
            *next = Uberblock { sequence: next.sequence, ..uberblock.clone() }
        })
        .await?;
        if self.tree().vdevs.len() > 1 && !left_out(Rule::ImportIsOnDiskTwice) {
            self.write_uberblock(|_| {}).await?;
        }
        Ok(())
    }

    /// Writes the config to disks in use with an older label: an act of the administrator was
    /// interrupted, or labels are damaged. A disk that cannot be written fails, and the next
    /// uberblock names it.
    async fn level_labels(&self, found: &[FoundLeaf]) {
        let tree = self.tree();
        for leaf in tree.online() {
            let of = of_leaf(found, leaf.guid);
            let whole = of.is_some_and(|found| {
                found.labels.damaged == 0 && found.labels.label.config == tree.config
            });
            if !whole {
                let _ = label_io::write_config(leaf, &tree.config).await;
            }
        }
    }
}

fn online_leaves(vdevs: &[Arc<Vdev>]) -> usize {
    vdevs.iter().map(|vdev| vdev.online().count()).sum()
}

/// Goes back to an older root: drops the later ones, and the log.
fn rewind(
    uberblock: &mut Uberblock,
    back: usize,
    chain: u64,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let root = uberblock.roots.get(back).copied().flatten();
    let root = root.ok_or(ImportError::NoSuchRewind(back as u64))?;
    let from = uberblock.txg;
    report.notes.push(format!(
        "rewound from txg {from} to txg {}: changes after it, and the intent log, are dropped",
        root.txg
    ));
    uberblock.roots.rotate_left(back);
    for dropped in uberblock.roots.iter_mut().skip(ROOTS - back) {
        *dropped = None;
    }
    uberblock.txg = root.txg;
    uberblock.floor = Txg(u64::MAX);
    uberblock.session_first_txg = uberblock.session_first_txg.max(from);
    uberblock.restart_chain = chain;
    uberblock.mark = 0;
    uberblock.log_end = LogEnd::default();
    Ok(())
}

/// Step 4: fixes the end that was found, a new session, and a first txg above all known ones.
fn fix_end(uberblock: &mut Uberblock, chain: &Chain, chain_id: u64, apart: u64) {
    let last = chain.next_sequence - 1;
    if !left_out(Rule::FixLogEnd) {
        uberblock.log_end = LogEnd { chain: chain_id, sequence: last, checksum: chain.previous };
    }
    uberblock.session += 1 + apart;
    uberblock.mark = last;
    uberblock.clean = false;
    let seen = uberblock.txg.max(chain.max_txg).max(uberblock.session_first_txg);
    uberblock.session_first_txg =
        if left_out(Rule::SessionFirstTxg) { uberblock.txg.next() } else { Txg(seen.0 + 4) };
    if uberblock.floor == Txg(u64::MAX) {
        uberblock.floor = seen;
    }
}

fn build(
    world: Arc<dyn World>,
    tree: VdevTree,
    uberblock: &Uberblock,
    roots: root::FoundRoots,
    ring: &Ring,
    chain: &Chain,
    options: &ImportOptions,
) -> Result<Parts, ImportError> {
    let newest = roots.newest;
    let held = tree.online().map(|leaf| leaf.uberblock_sequence.load(Ordering::Relaxed));
    // One without any was just added.
    let counted = held.filter(|sequence| *sequence > 0).min().unwrap_or(0);
    let copies = u64::from(roots.ring.copies());
    let segments = |runs: &[Run]| runs.iter().map(|run| run.sectors / SEGMENT_SECTORS).sum::<u64>();
    let total = tree.data().map(|vdev| vdev.geometry.sectors()).sum();
    let log_segments = segments(&newest.root.log_home);
    let record_segments = segments(&newest.root.record_segments) / copies;
    let limits = Limits::new(options.memory.cap_bytes(), log_segments, options.scale);
    let capacity = Capacity::new(&limits, total, record_segments);
    let live: VecDeque<LiveBatch> = chain
        .batches
        .iter()
        .map(|batch| LiveBatch {
            sequence: batch.header.sequence,
            position: batch.position,
            previous: batch.previous,
            max_txg: Txg(u64::MAX),
        })
        .collect();
    let head = chain.batches.first().map_or(chain.next, |batch| batch.position);
    let log = Start {
        chain: if uberblock.restart_chain == 0 {
            newest.root.log.chain
        } else {
            uberblock.restart_chain
        },
        session: uberblock.session,
        ring: ring.clone(),
        home: Ring::new(&newest.root.log_home),
        next: chain.next,
        next_sequence: chain.next_sequence,
        previous: chain.previous,
        mark: chain.next_sequence - 1,
        head,
        live,
        restarting: uberblock.restart_chain != 0,
    };
    Ok(Parts {
        world,
        tree,
        memory: options.memory.clone(),
        limits,
        capacity,
        space: roots.space,
        log,
        uberblock: uberblock.clone(),
        counted,
        host: options.host.clone(),
        records: roots.ring,
        roots: newest.root.trees,
        committed: uberblock.txg,
        open: uberblock.session_first_txg,
        discards_unreadable: options.discard_unreadable,
    })
}

/// Claims the places that log records name: they hold data that is in no root, so nothing else may
/// use them.
async fn claim_logged_places(
    pool: &Arc<Pool>,
    chain: &Chain,
    floor: Txg,
) -> Result<(), ImportError> {
    if left_out(Rule::ClaimLoggedPlaces) {
        return Ok(());
    }
    let mut claimed = HashSet::new();
    let records = chain.batches.iter().flat_map(|batch| &batch.header.records);
    for record in records.filter(|record| record.txg > floor) {
        for extent in &record.extents {
            let run = Run::new(extent.place, extent.stored_sectors());
            if !claimed.insert(run) {
                continue;
            }
            let unloaded = pool.space.lock().unloaded_for(run);
            if let Some(id) = unloaded {
                pool.load_metaslab(id).await?;
            }
            let reserved = pool.space.lock().reserve(run);
            reserved.map_err(|error| ImportError::Replay(error.to_string()))?;
        }
    }
    Ok(())
}

/// The position at which an empty log begins.
pub(crate) const LOG_START: Position = Position::START;
