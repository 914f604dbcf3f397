//! A pool on simulated disks, in service for one life after the other.

use std::future::Future;
use std::sync::Arc;

use aquifer_blockio::{Disk, World};
use aquifer_files::file_snapshots::{FileNameError, OfFiles};
use aquifer_files::{
    CreateHow, Credentials, FileHandle, Files, FsError, Service, SetAttributes, Stability,
};
use aquifer_inspect::{Kind, Options, Report, inspect};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_pool::import::{ImportOptions, scan};
use aquifer_sim::{Corruption, CutMode, DiskConfig, Image, Sim, SimDisk};

use crate::by_text;

/// See the module's head.
pub struct Bed {
    pub sim: Sim,
    pub disks: Vec<SimDisk>,
    /// The options of each import.
    pub options: ImportOptions,
    world: Arc<dyn World>,
}

fn named(disks: &[SimDisk]) -> Vec<NamedDisk> {
    let name = |disk: &SimDisk| NamedDisk {
        path: disk.name().to_string(),
        disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
    };
    disks.iter().map(name).collect()
}

impl Bed {
    /// A new pool `tank` of one vdev with this many disks, each of this many sectors.
    pub fn new(sides: usize, sectors: u64) -> Bed {
        let mut sim = Sim::new(11);
        let disk = |sim: &mut Sim, at: usize| {
            sim.add_disk(&format!("d{at}"), Image::new(sectors), DiskConfig::default())
        };
        let disks: Vec<SimDisk> = (0..sides).map(|at| disk(&mut sim, at)).collect();
        let redundancy = if sides > 1 { Redundancy::Mirror } else { Redundancy::Single };
        let vdevs = vec![VdevSpec { redundancy, disks: named(&disks) }];
        Bed::made(sim, disks, vdevs, Vec::new())
    }

    /// A new pool `tank` of one disk, in which files of some extents are huge already.
    pub fn of_small_steps() -> Bed {
        let mut bed = Bed::new(1, 65536);
        let scale = &mut bed.options.scale;
        (scale.node_bytes, scale.cut_extents_max, scale.reap_entries_max) = (400, 4, 12);
        bed
    }

    /// A new pool `tank` with this many vdevs of one disk each.
    pub fn apart(vdevs: usize, sectors: u64) -> Bed {
        Bed::of_vdevs(vdevs, 1, sectors)
    }

    /// A new pool `tank` with this many vdevs of as many sides each.
    pub fn of_vdevs(vdevs: usize, sides: usize, sectors: u64) -> Bed {
        let mut sim = Sim::new(11);
        let disk = |at| sim.add_disk(&format!("d{at}"), Image::new(sectors), DiskConfig::default());
        let disks: Vec<SimDisk> = (0..vdevs * sides).map(disk).collect();
        let redundancy = if sides > 1 { Redundancy::Mirror } else { Redundancy::Single };
        let vdev = |disks: &[SimDisk]| VdevSpec { redundancy, disks: named(disks) };
        let vdevs = disks.chunks(sides).map(vdev).collect();
        Bed::made(sim, disks, vdevs, Vec::new())
    }

    /// A new pool `tank` of one disk for data and one for the log, with this many sectors each.
    pub fn with_log(sectors: u64, data: DiskConfig, log: DiskConfig) -> Bed {
        let mut sim = Sim::new(11);
        let disks = vec![
            sim.add_disk("data", Image::new(sectors), data),
            sim.add_disk("log", Image::new(sectors), log),
        ];
        let vdev =
            |at: usize| VdevSpec { redundancy: Redundancy::Single, disks: named(&disks[at..=at]) };
        let (vdevs, logs) = (vec![vdev(0)], vec![vdev(1)]);
        Bed::made(sim, disks, vdevs, logs)
    }

    fn made(mut sim: Sim, disks: Vec<SimDisk>, vdevs: Vec<VdevSpec>, logs: Vec<VdevSpec>) -> Bed {
        let world: Arc<dyn World> = Arc::new(sim.world());
        let spec = PoolSpec { name: "tank".into(), vdevs, logs, force: false };
        sim.run_until(create(world.clone(), spec)).unwrap().unwrap();
        Bed { sim, disks, options: ImportOptions::default(), world }
    }

    /// Imports the pool, runs `work`, and exports the pool.
    pub fn life<T, F: Future<Output = T>>(&mut self, work: impl FnOnce(Service) -> F) -> T {
        let (world, disks) = (self.world.clone(), self.disks.clone());
        let options = self.options.clone();
        let life = async move {
            let service = open_with(world, &disks, &options).await;
            // The pool has only weak references to its layers: they must live for the last txg.
            let result = work(service.clone()).await;
            service.pool.export().await.unwrap();
            result
        };
        self.sim.run_until(life).unwrap()
    }

    /// Imports the pool and runs `work`; then kills the process.
    pub fn short_life<T, F: Future<Output = T>>(&mut self, work: impl FnOnce(Service) -> F) -> T {
        let (world, disks) = (self.world.clone(), self.disks.clone());
        let options = self.options.clone();
        let life = async move { work(open_with(world, &disks, &options).await).await };
        let result = self.sim.run_until(life).unwrap();
        self.sim.kill();
        result
    }

    /// Imports the pool and runs `work`; then cuts the power, which loses all that was not flushed.
    pub fn cut_life<T, F: Future<Output = T>>(&mut self, work: impl FnOnce(Service) -> F) -> T {
        let (world, disks) = (self.world.clone(), self.disks.clone());
        let options = self.options.clone();
        let life = async move { work(open_with(world, &disks, &options).await).await };
        let result = self.sim.run_until(life).unwrap();
        self.sim.power_cut(CutMode::AllLost);
        result
    }

    pub fn world(&self) -> Arc<dyn World> {
        self.world.clone()
    }

    pub fn inspect(&mut self) -> Report {
        let disks = self.disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
        let options = Options { data: true, ..Options::default() };
        self.sim.run_until(inspect(disks, &options)).unwrap()
    }

    pub fn assert_clean(&mut self) {
        let report = self.inspect();
        assert!(report.is_clean(), "{report}");
    }

    /// Fails on an error or warning of any other kind.
    pub fn assert_only(&mut self, allowed: &[Kind]) {
        let report = self.inspect();
        let other = report.findings.iter().find(|finding| {
            finding.severity() > aquifer_inspect::Severity::Info && !allowed.contains(&finding.kind)
        });
        assert!(other.is_none(), "{report}");
    }

    /// The newest leaf or inner node of an object's tree (0: the object table) that begins with
    /// this page or key.
    pub fn find_node(&self, object: u64, level: u8, first: u64) -> u64 {
        let found = self.search_node(object, level, first);
        found.unwrap_or_else(|| panic!("no node of object {object}"))
    }

    pub fn search_node(&self, object: u64, level: u8, first: u64) -> Option<u64> {
        let image = self.disks[0].durable_image();
        let mut found: Option<(u64, u64)> = None;
        image.for_each(|sector, page| {
            let bytes = page.as_slice();
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let extents = bytes[6] == 1 && level == 0;
            let first_key = match bytes[6] {
                // An inode begins with version, kind and flags.
                2 if level == 0 => word(64 + 4),
                _ if extents => word(64) & ((1 << 48) - 1),
                _ => word(64),
            };
            if &bytes[..4] == b"AQTN"
                && bytes[7] == level
                && (word(24), first_key) == (object, first)
                && bytes[6] != 4
                && found.is_none_or(|(written, _)| written < word(32))
            {
                found = Some((word(32), sector));
            }
        });
        found.map(|(_, sector)| sector)
    }

    /// The last leaf of a dead tree.
    pub fn find_dead_leaf(&self) -> u64 {
        let mut found: Option<([u64; 6], u64)> = None;
        self.disks[0].durable_image().for_each(|sector, page| {
            let bytes = page.as_slice();
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            // The first key, and when it was written.
            let key = [word(64), word(72), word(80), word(88), word(96), word(32)];
            let is_leaf = &bytes[..4] == b"AQTN" && bytes[6..8] == [5, 0];
            if is_leaf && found.is_none_or(|(last, _)| last < key) {
                found = Some((key, sector));
            }
        });
        found.expect("no dead tree").1
    }

    /// The newest first leaf of the history, which holds the counters.
    pub fn find_history_leaf(&self) -> u64 {
        let image = self.disks[0].durable_image();
        let mut found: Option<(u64, u64)> = None;
        image.for_each(|sector, page| {
            let bytes = page.as_slice();
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            // A leaf of items. Its second item is of dataset 0 and class 1, which the namespace
            // does not have.
            let is_leaf = &bytes[..4] == b"AQTN" && bytes[6..8] == [4, 0];
            let second = 64 + 18 + 26;
            if is_leaf
                && (word(64), word(72), word(second)) == (0, 0, 0)
                && word(second + 8) >> 56 == 1
                && found.is_none_or(|(written, _)| written < word(32))
            {
                found = Some((word(32), sector));
            }
        });
        found.expect("no history").1
    }

    /// Damages the content of a sector in every copy of it: on all sides, and elsewhere.
    pub fn rot(&mut self, sector: u64) {
        let image = self.disks[0].durable_image();
        let content = image.get(sector).unwrap().clone();
        let mut copies = Vec::new();
        image.for_each(|at, page| {
            if page.as_slice() == content.as_slice() {
                copies.push(at);
            }
        });
        for (disk, at) in self.disks.iter().flat_map(|disk| copies.iter().map(move |at| (disk, at)))
        {
            disk.corrupt(*at, Corruption::Garbage);
        }
    }
}

pub async fn open(world: Arc<dyn World>, disks: &[SimDisk]) -> Service {
    open_with(world, disks, &ImportOptions::default()).await
}

async fn open_with(world: Arc<dyn World>, disks: &[SimDisk], options: &ImportOptions) -> Service {
    let (mut pools, _) = scan(named(disks)).await;
    let (_, found) = pools.pop_first().unwrap();
    Service::open(world, found, options).await.unwrap()
}

pub fn root() -> Credentials {
    Credentials::root()
}

pub async fn make(service: &Service, directory: FileHandle, name: &str) -> FileHandle {
    let how = CreateHow::Guarded(SetAttributes::default());
    let made = service.files.create(&root(), directory, name.as_bytes(), how).await.kept().await;
    made.0.unwrap().handle
}

pub async fn find(service: &Service, dataset: &str, name: &str) -> Result<FileHandle, FsError> {
    let top = service.files.root(dataset).ok_or(FsError::Stale)?;
    let found = service.files.lookup(&root(), top, name.as_bytes()).await.0;
    found.map(|attributes| attributes.handle)
}

pub async fn write(
    service: &Service,
    file: FileHandle,
    page: u64,
    data: &[u8],
    stability: Stability,
) -> Result<(), FsError> {
    service.files.write(&root(), file, page * 4096, data, stability).await.0.map(drop)
}

pub async fn read(service: &Service, file: FileHandle, page: u64) -> Result<Vec<u8>, FsError> {
    let data = service.files.read(&root(), file, page * 4096, 4096).await?;
    let pieces = data.into_pieces();
    Ok(pieces.flat_map(|(page, range)| page.as_slice()[range].to_vec()).collect())
}

/// Content of which no two pages are equal and nothing compresses.
/// The snapshots of files that a text names.
pub async fn snapshots_named(files: &Files, text: &str) -> Result<OfFiles, FileNameError> {
    files.file_snapshots(&by_text::named(files, text)?).await
}

pub fn noise(seed: u64, pages: usize) -> Vec<u8> {
    let mut bytes = vec![0; pages * 4096];
    aquifer_sim::Rng::stream(seed, "noise").fill(&mut bytes);
    bytes
}

/// Writes so many txgs. Nothing goes on in the background then.
pub async fn settle(service: &Service, txgs: u64) {
    for _ in 0..txgs {
        service.pool.sync().await.unwrap();
    }
    assert!(!service.datasets.has_background_work());
}

/// The acts in the pool's history: who asked for each, and its words.
pub async fn acts(service: &Service) -> Vec<(String, String)> {
    let noted = service.datasets.history().list().await.unwrap();
    noted.into_iter().map(|noted| (noted.record.who.clone(), noted.record.act.clone())).collect()
}
