//! Pools on simulated machines: their shapes, their disks, and the inspection of those disks.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::world::Task;
use aquifer_blockio::{Disk, World};
use aquifer_files::Service;
use aquifer_inspect::{Options, inspect};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_pool::import::{ImportOptions, scan};
use aquifer_sim::seeds::story;
use aquifer_sim::{DiskConfig, Image, Rng, Sim, SimDisk};

/// Sectors of each disk.
pub const SECTORS: u64 = 65536;

/// The disks of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// One disk.
    Single,
    /// Two sides.
    Mirror,
    /// Three sides.
    ThreeWay,
    /// Two disks, none a copy.
    TwoSingles,
    /// Two vdevs of two sides each.
    TwoMirrors,
    /// A disk that is nearly full.
    FullSingle,
    /// A mirror that is nearly full.
    FullMirror,
    /// A disk, and another for the log.
    SingleLog,
    /// A mirror, and another for the log.
    MirrorLogMirror,
}

impl Shape {
    /// All its disks.
    pub fn disks(self) -> usize {
        match self {
            Shape::Single | Shape::FullSingle => 1,
            Shape::Mirror | Shape::TwoSingles | Shape::FullMirror | Shape::SingleLog => 2,
            Shape::ThreeWay => 3,
            Shape::MirrorLogMirror | Shape::TwoMirrors => 4,
        }
    }

    /// Sides of each vdev.
    pub fn sides(self) -> usize {
        match self {
            Shape::ThreeWay => 3,
            Shape::Mirror | Shape::FullMirror | Shape::MirrorLogMirror | Shape::TwoMirrors => 2,
            _ => 1,
        }
    }

    /// Disks that hold blocks; those of the log follow.
    pub fn data_disks(self) -> usize {
        match self {
            Shape::SingleLog => 1,
            Shape::MirrorLogMirror => 2,
            other => other.disks(),
        }
    }

    /// Vdevs that hold blocks.
    pub fn data_vdevs(self) -> usize {
        self.data_disks() / self.sides()
    }

    /// Whether its data lies on two sides.
    pub fn is_mirror(self) -> bool {
        self.sides() > 1
    }

    /// Which disk may fail: a side of a mirror, or the log's.
    pub fn fickle(self, rng: &mut Rng) -> Option<usize> {
        match self {
            Shape::SingleLog => Some(1),
            _ => Some(rng.index(self.disks())).filter(|_| self.is_mirror()),
        }
    }

    /// Whether it is nearly full.
    pub fn is_full(self) -> bool {
        matches!(self, Shape::FullSingle | Shape::FullMirror)
    }

    /// The spec of a pool of this shape on these disks.
    pub fn spec(self, disks: Vec<NamedDisk>) -> PoolSpec {
        let redundancy = if self.is_mirror() { Redundancy::Mirror } else { Redundancy::Single };
        let vdevs = |disks: &[NamedDisk]| -> Vec<VdevSpec> {
            let vdev = |disks: &[NamedDisk]| VdevSpec { redundancy, disks: disks.to_vec() };
            disks.chunks(self.sides()).map(vdev).collect()
        };
        let (data, logs) = disks.split_at(self.data_disks());
        PoolSpec { name: "tank".into(), vdevs: vdevs(data), logs: vdevs(logs), force: false }
    }
}

/// A world whose wall clock never gives the same time twice. It notes which call asked.
pub struct Ticking {
    world: Arc<dyn World>,
    last_ns: AtomicU64,
    asked: Mutex<HashMap<Asker, Vec<u64>>>,
}

/// Asker for the time: a client, and its call's transaction id.
pub type Asker = (u64, u32);

thread_local! {
    static ASKER: Cell<Option<Asker>> = const { Cell::new(None) };
}

/// Does work for a call: times that it asks for are noted.
pub fn for_asker<T>(asker: Asker, work: impl FnOnce() -> T) -> T {
    ASKER.set(Some(asker));
    let done = work();
    ASKER.set(None);
    done
}

impl Ticking {
    /// A world with another wall clock.
    pub fn new(world: Arc<dyn World>) -> Ticking {
        Ticking { world, last_ns: AtomicU64::new(0), asked: Mutex::default() }
    }

    /// The times that a call got so far.
    pub fn told(&self, asker: Asker) -> Vec<u64> {
        self.asked.lock().unwrap().get(&asker).cloned().unwrap_or_default()
    }
}

impl World for Ticking {
    fn now(&self) -> Duration {
        self.world.now()
    }

    fn wall_ns(&self) -> u64 {
        let now = self.world.wall_ns();
        let last = self.last_ns.load(Ordering::Relaxed);
        let next = now.max(last + 1);
        self.last_ns.store(next, Ordering::Relaxed);
        if let Some(asker) = ASKER.get() {
            self.asked.lock().unwrap().entry(asker).or_default().push(next);
        }
        next
    }

    fn sleep(&self, delay: Duration) -> Task {
        self.world.sleep(delay)
    }

    fn random(&self) -> u64 {
        self.world.random()
    }

    fn spawn(&self, name: &'static str, task: Task) {
        self.world.spawn(name, task);
    }
}

/// Disks by their names.
pub fn named(disks: &[SimDisk]) -> Vec<NamedDisk> {
    let name = |disk: &SimDisk| NamedDisk {
        path: disk.name().to_string(),
        disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
    };
    disks.iter().map(name).collect()
}

/// Imports the pool on these disks.
///
/// # Errors
/// It cannot be imported.
pub async fn open(
    world: Arc<dyn World>,
    disks: &[SimDisk],
    options: &ImportOptions,
) -> Result<Service, String> {
    open_found(world, named(disks), options).await
}

/// Imports the pool on disks as a life finds them.
///
/// # Errors
/// It cannot be imported.
pub async fn open_found(
    world: Arc<dyn World>,
    disks: Vec<NamedDisk>,
    options: &ImportOptions,
) -> Result<Service, String> {
    let (mut pools, _) = scan(disks).await;
    let (_, found) = pools.pop_first().ok_or("no pool found")?;
    let service = Service::open(world, found, options).await.map_err(|e| format!("import: {e}"))?;
    if story() > 0 {
        let (txg, notes) = (service.pool.committed_txg(), &service.report.notes);
        println!("imported at txg {txg}: {notes:?}");
    }
    Ok(service)
}

/// The disks of a new pool, after `make` has filled it.
pub fn created(shape: Shape, make: impl AsyncFnOnce(&Service)) -> Vec<Image> {
    created_by(u64::MAX - 7, shape, make)
}

/// Makes the disks of a new pool, after `make` has filled it, on a machine of this seed: another
/// seed makes another pool.
pub fn created_by(seed: u64, shape: Shape, make: impl AsyncFnOnce(&Service)) -> Vec<Image> {
    let mut sim = Sim::new(seed);
    let disks: Vec<SimDisk> = (0..shape.disks())
        .map(|at| sim.add_disk(&format!("d{at}"), Image::new(SECTORS), DiskConfig::default()))
        .collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let spec = shape.spec(named(&disks));
    sim.run_until(async {
        create(world.clone(), spec).await.unwrap();
        let service = open(world, &disks, &ImportOptions::default()).await.unwrap();
        make(&service).await;
        service.pool.export().await.unwrap();
    })
    .unwrap();
    disks.iter().map(SimDisk::durable_image).collect()
}

/// The disks of a pool with more datasets.
pub fn with_datasets(images: &[Image], names: &[&str]) -> Vec<Image> {
    let mut sim = Sim::new(u64::MAX - 9);
    let disks = disks_of(&mut sim, images);
    let world: Arc<dyn World> = Arc::new(sim.world());
    sim.run_until(async {
        let service = open(world, &disks, &ImportOptions::default()).await.unwrap();
        for name in names {
            service.datasets.create(name, &[]).await.unwrap();
        }
        // So that a rewind finds them.
        for _ in 0..3 {
            service.pool.sync().await.unwrap();
        }
        service.pool.export().await.unwrap();
    })
    .unwrap();
    disks.iter().map(SimDisk::durable_image).collect()
}

/// Disks that hold these images.
pub fn disks_of(sim: &mut Sim, images: &[Image]) -> Vec<SimDisk> {
    let images = images.iter().enumerate();
    images
        .map(|(at, image)| sim.add_disk(&format!("d{at}"), image.clone(), DiskConfig::default()))
        .collect()
}

/// Whether a disk went away while an import read it.
pub fn is_loss_at_import(what: &str) -> bool {
    let import = what.starts_with("import: ");
    what.contains("the device is gone")
        || import && what.contains("the log device is missing")
        || import && what.contains("no disk left")
}

/// Inspects the disks as they are now.
///
/// # Errors
/// The inspection found an error.
pub async fn inspected(disks: &[SimDisk], data: bool, rewind: u8) -> Result<(), String> {
    inspected_as(disks, Options { data, rewind, ..Options::default() }).await
}

/// Inspects the disks as they are now, with every copy of everything.
///
/// # Errors
/// The inspection found an error.
pub async fn copies_inspected(disks: &[SimDisk]) -> Result<(), String> {
    inspected_as(disks, Options { data: true, deep: true, ..Options::default() }).await
}

async fn inspected_as(disks: &[SimDisk], options: Options) -> Result<(), String> {
    let disks = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    let report = inspect(disks, &options).await;
    if report.is_clean() { Ok(()) } else { Err(format!("inspect: {report}")) }
}
