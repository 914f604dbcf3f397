//! Clients of a pool, and their knowledge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_ondisk::config::VdevClass;
use aquifer_ondisk::extent::Extent;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::{DroppedLog, ImportOptions, import, scan};
use aquifer_pool::{Pool, PoolError, Trees};
use aquifer_sim::{Corruption, CutPlan, Rng, Sim, SimDisk, Stop};
use aquifer_vdev::LeafState;
use aquifer_vdev::label_io::LabelError;
use futures_util::future::join3;

use crate::Kind;
use crate::slots::{How, SLOTS, Slots, content, version_of};

/// The clients' knowledge: versions that were written, and the newest acknowledged one.
#[derive(Clone, Default)]
pub struct Model {
    /// The content of each slot as its client knows it.
    current: BTreeMap<u64, u64>,
    issued: BTreeMap<u64, u64>,
    acknowledged: BTreeMap<u64, u64>,
    /// The version found at the last check, and the newest one issued by then. Versions in between
    /// were lost, and never come back.
    settled: BTreeMap<u64, (u64, u64)>,
    /// Committed by an explicit sync: kept even without the log.
    synced: BTreeMap<u64, u64>,
    /// Pages of the log that durable records use.
    pub logged_pages: usize,
    /// Disks of the log: once they are lost, nothing is acknowledged until the log is elsewhere.
    pub log_disks: Vec<SimDisk>,
    /// When all sides of a log vdev were first found lost, and whether anything was acknowledged
    /// much later.
    lost_at: Option<Duration>,
    acknowledged_after_loss: bool,
    /// Disks of the log that were gone at the last acknowledgement.
    gone_when_acknowledged: Vec<bool>,
    /// Log vdevs that had no side left when this life began, and still have none: the import has
    /// dealt with that.
    lost_before: BTreeSet<usize>,
}

impl Model {
    /// The administrator went back to an older root: the content found there counts from now on.
    pub fn rewound(&mut self) {
        self.acknowledged.clear();
        self.synced.clear();
        self.settled.clear();
    }

    /// The administrator imported without a missing log device.
    pub fn log_dropped(&mut self) {
        self.acknowledged = self.synced.clone();
    }

    /// Forgets a loss that has been dealt with.
    fn forget_loss(&mut self) {
        (self.lost_at, self.acknowledged_after_loss) = (None, false);
    }

    /// The pool is imported for this life.
    pub fn imported(&mut self, pool: &Pool) {
        self.forget_loss();
        self.lost_before = lost_logs(pool);
    }

    /// Whether an import may now ask for a log device. It may if nothing was acknowledged since one
    /// was lost, or if one went after the last acknowledgement.
    pub fn may_miss_log(&self) -> bool {
        let gone_before = |at: usize| self.gone_when_acknowledged.get(at) == Some(&true);
        let mut gone = self.log_disks.iter().enumerate().filter(|(_, disk)| disk.is_gone());
        self.may_lose_log() || gone.any(|(at, _)| !gone_before(at))
    }

    /// Whether a disk of the log may be lost between two lives.
    pub fn may_lose_log(&self) -> bool {
        !self.acknowledged_after_loss
    }

    /// Checks whether a log vdev is lost; called at every acknowledgement.
    fn watch_log(&mut self, pool: &Pool, now: Duration) {
        self.gone_when_acknowledged = self.log_disks.iter().map(SimDisk::is_gone).collect();
        if !self.gone_when_acknowledged.contains(&true) {
            return;
        }
        let lost = lost_logs(pool);
        self.lost_before.retain(|vdev| lost.contains(vdev));
        if lost.is_subset(&self.lost_before) {
            // The lost vdev came back: the next loss is another one.
            self.forget_loss();
            return;
        }
        let since = *self.lost_at.get_or_insert(now);
        self.acknowledged_after_loss |= now > since + LATE;
    }
}

/// Log vdevs without a usable side.
fn lost_logs(pool: &Pool) -> BTreeSet<usize> {
    let vdevs = pool.status().vdevs;
    let lost = vdevs.iter().enumerate().filter(|(_, vdev)| {
        vdev.class == VdevClass::Log
            && vdev.leaves.iter().all(|leaf| leaf.state != LeafState::Online)
    });
    lost.map(|(at, _)| at).collect()
}

/// An acknowledgement that was on its way to a client when the device was lost arrives within this
/// time.
const LATE: Duration = Duration::from_millis(5);

pub struct Open {
    pub pool: Arc<Pool>,
    pub slots: Arc<Slots>,
    /// The log that the import dropped.
    pub dropped: Option<DroppedLog>,
}

pub async fn open(
    world: Arc<dyn World>,
    disks: Vec<NamedDisk>,
    options: &ImportOptions,
) -> Result<Open, String> {
    // An act adds and removes disks of the log alone.
    open_beside(world, disks, options, |path| path.starts_with("log")).await
}

/// Opens the pool as [`open`] does, where a disk for which `may_be_torn` holds may be labelled in
/// part: an act adds or removes it. A missing disk is refused too; any other refusal is damage
/// without a cause.
pub async fn open_beside(
    world: Arc<dyn World>,
    disks: Vec<NamedDisk>,
    options: &ImportOptions,
    may_be_torn: impl Fn(&str) -> bool,
) -> Result<Open, String> {
    let (mut pools, refused) = scan(disks).await;
    let damaged = refused
        .iter()
        .find(|(disk, why)| !matches!(why, LabelError::Disk(_)) && !may_be_torn(&disk.path));
    if let Some((disk, why)) = damaged {
        return Err(format!("{}: {why}", disk.path));
    }
    let (_, found) = pools.pop_first().ok_or("no pool found")?;
    let (pool, report) = import(world, found, options).await.map_err(|e| format!("import: {e}"))?;
    if crate::story() > 0 {
        let (committed, open) = (pool.committed_txg(), pool.open_txg());
        println!("imported: committed {committed}, open {open}: {:?}", report.notes);
    }
    let slots = Slots::open(pool.clone()).await.map_err(|e| e.to_string())?;
    let trees: Arc<dyn Trees> = slots.clone();
    pool.attach(Arc::downgrade(&trees));
    pool.replay(slots.as_ref()).await.map_err(|e| e.to_string())?;
    Ok(Open { pool, slots, dropped: report.dropped_log })
}

/// Imports for a life: checks what is there, and lets txgs go.
pub async fn begin(
    world: &Arc<dyn World>,
    disks: Vec<NamedDisk>,
    options: &ImportOptions,
    model: &Mutex<Model>,
    may_be_torn: impl Fn(&str) -> bool,
) -> Result<Open, String> {
    let open = open_beside(world.clone(), disks, options, may_be_torn).await?;
    check(&open, model).await?;
    world.spawn("txg", open.pool.clone().run());
    Ok(open)
}

/// Whether a life went back to an older root: there may be none.
pub fn went_back(ended: Result<(), String>) -> Result<bool, String> {
    match ended {
        Err(why) if why.contains("cannot go back") => Ok(false),
        ended => ended.map(|()| true),
    }
}

/// The behaviour of all clients of a life.
#[derive(Clone, Copy)]
struct Habits {
    /// Their number.
    clients: u64,
    /// Every write is stable, and there are no other operations.
    tails: bool,
    /// Pages of a stable write.
    log_pages: usize,
    /// Longest rest after each write; zero: none.
    rest_ms_max: u64,
}

struct Client<'a> {
    world: &'a dyn World,
    open: &'a Open,
    model: &'a Mutex<Model>,
    client: u64,
    rng: Rng,
    habits: Habits,
}

impl Client<'_> {
    async fn run(mut self, ops: u64) -> Result<(), PoolError> {
        for _ in 0..ops {
            let slot = self.rng.below(SLOTS / self.habits.clients) * self.habits.clients;
            let slot = slot + self.client;
            let version = self.write(slot).await?;
            if self.habits.rest_ms_max > 0 {
                let rest = self.rng.below(self.habits.rest_ms_max);
                self.world.sleep(Duration::from_millis(rest)).await;
            }
            match self.rng.below(40) {
                _ if self.habits.tails => {}
                0 => self.sync().await?,
                1 => self.world.sleep(Duration::from_millis(self.rng.below(40))).await,
                2 => self.open.pool.request_txg(),
                _ => {}
            }
            let read = self.open.slots.read(slot).await?.unwrap();
            assert_eq!(version_of(slot, &read), version, "slot {slot} read back");
        }
        Ok(())
    }

    /// Writes the next version of a slot.
    async fn write(&mut self, slot: u64) -> Result<u64, PoolError> {
        let (open, log_pages) = (self.open, self.habits.log_pages);
        let how = match self.rng.below(10) {
            _ if self.habits.tails => How::Stable,
            0..=2 => How::Unstable,
            3..=7 => How::Stable,
            _ => How::Early,
        };
        let version = {
            let mut model = self.model.lock().unwrap();
            let issued = model.issued.entry(slot).or_default();
            *issued += 1;
            *issued
        };
        let written = open.slots.write(slot, content(slot, version), how, log_pages).await?;
        self.model.lock().unwrap().current.insert(slot, version);
        if let Some(ticket) = written {
            ticket.durable().await?;
            let mut model = self.model.lock().unwrap();
            model.acknowledged.insert(slot, version);
            model.watch_log(&open.pool, self.world.now());
            model.logged_pages += 1 + if how == How::Stable { log_pages } else { 0 };
        }
        Ok(version)
    }

    /// Commits the writes of this client.
    async fn sync(&self) -> Result<(), PoolError> {
        let before = {
            let model = self.model.lock().unwrap();
            let mine =
                model.current.iter().filter(|(of, _)| *of % self.habits.clients == self.client);
            mine.map(|(slot, version)| (*slot, *version)).collect::<Vec<_>>()
        };
        self.open.pool.sync().await?;
        let mut model = self.model.lock().unwrap();
        model.synced.extend(before.iter().copied());
        model.acknowledged.extend(before);
        Ok(())
    }
}

/// Runs several clients at once, each writing slots of its own.
pub async fn workload(
    world: Arc<dyn World>,
    open: &Open,
    model: Arc<Mutex<Model>>,
    disks: &[SimDisk],
    kind: Kind,
    mut rng: Rng,
) -> Result<(), PoolError> {
    let tails = kind == Kind::Tails;
    let (ops, clients) = match kind {
        Kind::Tails => (3, 4),
        Kind::Sparse => (4, 24),
        _ => (10 + rng.below(60), [1, 2, 4, 24][rng.index(4)]),
    };
    let rest_ms_max = if kind == Kind::Sparse { 400 } else { 0 };
    // To make the log wrap, each record is about a quarter of a segment, all of one size. Old
    // batches of an earlier life then fit the new chain in place and size. Commits are slow, so
    // that the log fills meanwhile.
    let mut log_pages = if tails { TAIL_PAGES } else { 1 };
    if let Kind::Wraps { record_pages } = kind {
        log_pages = record_pages;
        open.slots.slow_down(Duration::from_millis([0, 5, 60][rng.index(3)]));
    }
    let habits = Habits { clients, tails, log_pages, rest_ms_max };
    let tasks = (0..clients).map(|client| {
        let rng = Rng::stream(rng.next_u64(), "client");
        let client = Client { world: &*world, open, model: &model, client, rng, habits };
        client.run(ops)
    });
    let clients = futures_util::future::join_all(tasks);
    let Kind::SlowReaders { rot } = kind else {
        return clients.await.into_iter().collect();
    };
    let readers = (0..3).map(|_| {
        let disks = if rot { disks } else { &[] };
        slow_reader(&*world, open, disks, Rng::stream(rng.next_u64(), "slow reader"))
    });
    let readers: Vec<_> = readers.collect();
    let churn = churn(&*world, open, Rng::stream(rng.next_u64(), "churn"));
    let (written, read, churned) =
        join3(clients, futures_util::future::join_all(readers), churn).await;
    written.into_iter().chain(read).chain([churned]).collect()
}

/// One txg after the other, with allocations all over the disk.
async fn churn(world: &dyn World, open: &Open, mut rng: Rng) -> Result<(), PoolError> {
    for _ in 0..80 {
        match open.slots.churn(2000).await {
            Ok(()) | Err(PoolError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        open.pool.request_txg();
        world.sleep(Duration::from_millis(rng.below(5))).await;
    }
    Ok(())
}

/// Looks up the places of slots, and reads there much later. Meanwhile the side of the mirror that
/// it asks first may rot.
async fn slow_reader(
    world: &dyn World,
    open: &Open,
    disks: &[SimDisk],
    mut rng: Rng,
) -> Result<(), PoolError> {
    for _ in 0..12 {
        let reading = open.pool.reading();
        let slots: Vec<u64> = (0..8).map(|_| rng.below(SLOTS)).collect();
        let places: Vec<(u64, Extent)> =
            slots.iter().filter_map(|slot| Some((*slot, open.slots.committed(*slot)?))).collect();
        for (_, extent) in &places {
            let (vdev, sector) = (usize::from(extent.place.vdev()), extent.place.sector());
            let side = usize::try_from(sector / 256 % 2).unwrap();
            if let Some(disk) = disks.get(2 * vdev + side).filter(|_| rng.below(8) == 0) {
                disk.corrupt(sector, Corruption::FlipBits(3));
            }
        }
        for _ in 0..rng.below(8) {
            world.sleep(Duration::from_millis(rng.below(10))).await;
        }
        for (slot, extent) in places {
            let pages = open.pool.read_extent(&extent).await?;
            version_of(slot, &pages[0]);
        }
        drop(reading);
        world.sleep(Duration::from_millis(rng.below(10))).await;
    }
    Ok(())
}

/// Bad copies that were found.
pub fn mismatches(pool: &Pool) -> u64 {
    let vdevs = pool.status().vdevs;
    vdevs.iter().flat_map(|vdev| &vdev.leaves).map(|leaf| leaf.checksum_errors).sum()
}

/// Fails if there were any. Where nothing rots, a wrong checksum is content that a side lacks.
pub fn sound(open: &Open) -> Result<(), String> {
    match mismatches(&open.pool) {
        0 => Ok(()),
        found => Err(format!("{found} copies had a wrong checksum")),
    }
}

/// Names of the disks that are the pool's.
pub fn members(open: &Open) -> Vec<String> {
    let vdevs = open.pool.status().vdevs;
    vdevs.iter().flat_map(|vdev| &vdev.leaves).map(|leaf| leaf.path.clone()).collect()
}

/// Ends a life: by a power cut, or the process alone.
pub fn end(sim: &mut Sim, rng: &mut Rng) {
    match rng.below(4) {
        0 => sim.kill(),
        _ => {
            sim.power_cut_any();
        }
    }
    sim.plan_cut(CutPlan::Never);
}

/// The end of a life that was simulated. The error of the outer `Result` is one that the engine
/// told.
pub fn told(end: Result<Result<(), String>, Stop>) -> Result<Result<(), Stop>, String> {
    match end {
        Ok(Ok(())) => Ok(Ok(())),
        Ok(Err(what)) => Err(what),
        Err(stop) => Ok(Err(stop)),
    }
}

/// Pages of a record, so large that no two records fit in a batch.
const TAIL_PAGES: usize = 120;

pub async fn check(open: &Open, model: &Mutex<Model>) -> Result<(), String> {
    open.slots.check_filler().await.map_err(|error| format!("filler: {error}"))?;
    for slot in 0..SLOTS {
        let page = open.slots.read(slot).await.map_err(|e| format!("slot {slot}: {e}"))?;
        let found = page.map_or(0, |page| version_of(slot, &page));
        let mut model = model.lock().unwrap();
        if crate::story() > 0 {
            println!(
                "check slot {slot}: found {found}, acknowledged {:?}",
                model.acknowledged.get(&slot)
            );
        }
        let acknowledged = model.acknowledged.get(&slot).copied().unwrap_or(0);
        let issued = model.issued.get(&slot).copied().unwrap_or(0);
        if found < acknowledged || found > issued {
            return Err(format!(
                "slot {slot}: found version {found}, acknowledged {acknowledged}, issued {issued}"
            ));
        }
        let (before, lost) = model.settled.insert(slot, (found, issued)).unwrap_or_default();
        if found > before && found <= lost {
            return Err(format!(
                "slot {slot}: version {found} came back, which {before} had shown to be lost"
            ));
        }
        // The version found now stays: no later cut may take it back.
        model.acknowledged.insert(slot, found);
        model.current.insert(slot, found);
    }
    Ok(())
}

/// Committed space is that of this layer, and the pool's own.
pub fn check_space(open: &Open) -> Result<(), String> {
    let closed = open.pool.status().closed_metaslabs;
    if closed > 0 {
        return Err(format!("{closed} metaslabs are closed to allocation"));
    }
    let own = open.pool.own_sectors();
    let (used, wanted) = (open.pool.used_sectors(), own + open.slots.sectors());
    if used == wanted { Ok(()) } else { Err(format!("{used} sectors used, {wanted} referred to")) }
}
