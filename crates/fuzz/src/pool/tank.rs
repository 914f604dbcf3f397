//! The small pool: its written content, and the content that a read may return.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::{Disk, World};
use aquifer_files::history::{Asked, Outcome};
use aquifer_files::{
    CreateHow, Credentials, FileHandle, FileKind, Files, Service, SetAttributes, Stability,
    dataset_below,
};
use aquifer_inspect::{Options, inspect};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_pool::import::{ImportOptions, scan};
use aquifer_sim::{DiskConfig, Image, Sim, SimConfig, SimDisk, Stop};

/// The result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    Refused,
    /// In service, but some content could not be read, or is of an earlier txg.
    Partly,
    /// All content is there, as last acknowledged.
    Whole,
}

/// A machine with the disk.
pub struct Machine {
    sim: Sim,
    disk: SimDisk,
    /// Whether every content that is read must have been written.
    is_honest: bool,
}

impl Machine {
    pub fn new(image: Image, is_honest: bool) -> Machine {
        let config = SimConfig {
            steps_max: SIM_STEPS_MAX,
            time_max: Duration::from_secs(3600),
            ..SimConfig::default()
        };
        let mut sim = Sim::with_config(3, config);
        let disk = sim.add_disk("disk", image, DiskConfig::default());
        Machine { sim, disk, is_honest }
    }

    /// The content of the disk, durable or not.
    pub fn image(&mut self) -> Image {
        self.sim.kill();
        self.sim.run_until(self.disk.flush()).unwrap().unwrap();
        self.disk.durable_image()
    }

    pub fn inspect(&mut self) {
        let disks = vec![Arc::new(self.disk.clone()) as Arc<dyn Disk>];
        let options = Options { data: true, deep: true, rewind: 2, ..Options::default() };
        let report = self.sim.run_until(inspect(disks, &options)).unwrap();
        std::hint::black_box(report.to_string());
    }

    /// Imports, reads everything, exports.
    pub fn import_and_read(&mut self, options: &ImportOptions) -> Opened {
        let world: Arc<dyn World> = Arc::new(self.sim.world());
        let (named, is_honest) = (named(&self.disk), self.is_honest);
        let life = async {
            let (mut pools, _) = scan(named).await;
            let Some((_, found)) = pools.pop_first() else { return Opened::Refused };
            let Ok(service) = Service::open(world, found, options).await else {
                return Opened::Refused;
            };
            let mut reader = Reader { is_honest, is_whole: true, entries: 0 };
            reader.datasets(&service).await;
            reader.history(&service).await;
            // The service continues, whatever was read.
            act(&service);
            // The pool may have been suspended meanwhile: that is a valid outcome, too.
            let exported = service.pool.export().await;
            match reader.is_whole && exported.is_ok() {
                true => Opened::Whole,
                false => Opened::Partly,
            }
        };
        let opened = self.sim.run_until(life);
        self.sim.kill();
        match opened {
            Ok(opened) => opened,
            // It waits for the administrator: on failing disks for ever.
            Err(Stop::TimeLimit(_)) => Opened::Partly,
            Err(stop) => panic!("{stop}"),
        }
    }
}

/// Reads everything.
struct Reader {
    is_honest: bool,
    is_whole: bool,
    entries: usize,
}

impl Reader {
    async fn datasets(&mut self, service: &Service) {
        for dataset in DATASETS {
            match service.files.root(dataset) {
                Some(root) => self.tree(&service.files, root).await,
                None => self.is_whole = false,
            }
        }
        self.is_whole &= self.entries == DATASETS.len() * ENTRIES;
    }

    async fn history(&mut self, service: &Service) {
        let Ok(noted) = service.datasets.history().list().await else {
            self.is_whole = false;
            return;
        };
        self.is_whole &= noted.len() >= ACTS;
        for act in noted {
            self.expect(act.record.act == ACT, || format!("an act {:?}", act.record.act));
        }
    }

    async fn tree(&mut self, files: &Files, root: FileHandle) {
        let (mut dirs, mut seen) = (vec![root], BTreeSet::new());
        while let Some(dir) = dirs.pop() {
            if !seen.insert(dir.encode()) {
                continue;
            }
            let (mut cookie, mut eof) = (0, false);
            while !eof && self.entries < ENTRIES_MAX {
                let list = files.readdir(&Credentials::root(), dir, cookie, 16, true).await;
                let Ok((list, end, _)) = list else {
                    self.is_whole = false;
                    break;
                };
                eof = end;
                assert!(eof || !list.is_empty(), "a listing goes on");
                for entry in list {
                    assert!(entry.cookie > cookie, "cookies rise");
                    cookie = entry.cookie;
                    if entry.name == b"." || entry.name == b".." {
                        continue;
                    }
                    // The tree of a dataset is read by its own root.
                    if dataset_below(entry.handle).is_some() {
                        continue;
                    }
                    self.entries += 1;
                    let name = String::from_utf8_lossy(&entry.name).into_owned();
                    self.expect(is_name(&name), || format!("a name {name:?}"));
                    let found = files.lookup(&Credentials::root(), dir, &entry.name).await;
                    self.is_whole &= found.0.is_ok();
                    match entry.kind {
                        FileKind::Directory => dirs.push(entry.handle),
                        _ => self.file(files, entry.handle, &name).await,
                    }
                }
            }
        }
    }

    async fn file(&mut self, files: &Files, file: FileHandle, name: &str) {
        let cred = Credentials::root();
        let Ok(attributes) = files.getattr(file).await else {
            self.is_whole = false;
            return;
        };
        if let Ok((target, _)) = files.readlink(&cred, file).await {
            self.expect(target == TARGET, || format!("a link to {target:?}"));
        }
        if attributes.kind != FileKind::Regular {
            return;
        }
        let pages = attributes.size.div_ceil(4096);
        self.expect(pages <= PAGES, || format!("{name} of {pages} pages"));
        let far = [pages.saturating_sub(1), pages / 2, 1 << 48, u64::MAX >> 12];
        for page in (0..pages.min(PAGES)).chain(far) {
            let Ok(read) = files.read(&cred, file, page << 12, 4096).await else {
                self.is_whole = false;
                continue;
            };
            if read.count == 0 {
                continue;
            }
            let newest = version(name, page, true);
            for (bytes, range) in read.into_pieces() {
                let bytes = &bytes.as_slice()[range];
                self.is_whole &= bytes == &content(name, page, newest)[..bytes.len()];
                let right = (0..=2).any(|at| bytes == &content(name, page, at)[..bytes.len()]);
                self.expect(right, || format!("{name}, page {page}: other bytes"));
            }
        }
    }

    /// Checks a property that holds if the disk may be wrong but nobody lies.
    fn expect(&self, is_so: bool, what: impl FnOnce() -> String) {
        assert!(is_so || !self.is_honest, "{}", what());
    }
}

/// A pool with two datasets, whose newest changes are only in the log.
pub fn made() -> Image {
    let mut machine = Machine::new(Image::new(SECTORS), true);
    let (world, disks): (Arc<dyn World>, _) = (Arc::new(machine.sim.world()), named(&machine.disk));
    let vdevs = vec![VdevSpec { redundancy: Redundancy::Single, disks }];
    let spec = PoolSpec { name: "tank".into(), vdevs, logs: Vec::new(), force: false };
    machine.sim.run_until(create(world.clone(), spec)).unwrap().unwrap();
    for is_last in [false, true] {
        let (world, disks) = (world.clone(), named(&machine.disk));
        let life = async move {
            let (mut pools, _) = scan(disks).await;
            let (_, found) = pools.pop_first().unwrap();
            let service = Service::open(world, found, &ImportOptions::default()).await.unwrap();
            if !is_last {
                let plain = [("compression".to_owned(), "off".to_owned())];
                service.datasets.create(DATASETS[1], &plain).await.unwrap();
            }
            for dataset in DATASETS {
                fill(&service.files, service.files.root(dataset).unwrap(), is_last).await;
            }
            (0..ACTS).for_each(|_| act(&service));
            if !is_last {
                service.pool.export().await.unwrap();
            }
        };
        machine.sim.run_until(life).unwrap();
        machine.sim.kill();
    }
    machine.disk.durable_image()
}

fn act(service: &Service) {
    let (who, host) = ("uid 0".into(), "store".into());
    let history = service.datasets.history();
    let begun = history.begin(Asked { who, host, act: ACT.into() });
    history.finish(begun, Outcome::Done, String::new(), Vec::new());
}

async fn fill(files: &Files, root: FileHandle, is_last: bool) {
    let (cred, set) = (Credentials::root(), SetAttributes::default());
    if is_last {
        files.symlink(&cred, root, b"link", TARGET, &set).await.kept().await.0.unwrap();
    } else {
        let many = files.mkdir(&cred, root, b"many", &set).await.kept().await.0.unwrap().handle;
        for at in 0..MANY {
            let how = CreateHow::Guarded(set);
            files
                .create(&cred, many, format!("many {at}").as_bytes(), how)
                .await
                .kept()
                .await
                .0
                .unwrap();
        }
    }
    for name in FILES {
        let how = CreateHow::Unchecked(set);
        let file =
            files.create(&cred, root, name.as_bytes(), how).await.kept().await.0.unwrap().handle;
        for page in 0..PAGES {
            let version = version(name, page, is_last);
            if version == 0 || version == 1 && is_last {
                continue;
            }
            let data = content(name, page, version);
            let written = files.write(&cred, file, page << 12, &data, Stability::FileSync).await;
            written.0.unwrap();
        }
    }
}

/// The version of a page that was written last: 0 none, 1 before the export, 2 after it.
fn version(name: &str, page: u64, is_last: bool) -> u8 {
    match (name, is_last) {
        _ if name.starts_with("many") => 0,
        ("sparse", _) if !page.is_multiple_of(3) => 0,
        (_, true) if page.is_multiple_of(4) => 2,
        _ => 1,
    }
}

/// The content of a version of a page: zeros, or words that identify it; half of the contents are
/// compressible.
fn content(name: &str, page: u64, version: u8) -> Vec<u8> {
    if version == 0 {
        return vec![0; 4096];
    }
    let seed = (u64::from(version) << 32 | page) ^ u64::from(name.as_bytes()[0]) << 40;
    let word = |at: u64| match at % 2 {
        0 => seed,
        _ => (seed ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    (0..512).flat_map(|at| word(at).to_le_bytes()).collect()
}

fn is_name(name: &str) -> bool {
    FILES.contains(&name) || name.starts_with("many") || name == "link"
}

fn named(disk: &SimDisk) -> Vec<NamedDisk> {
    vec![NamedDisk { path: "disk".into(), disk: Arc::new(disk.clone()) }]
}

const DATASETS: [&str; 2] = ["tank", "tank/plain"];
const FILES: [&str; 3] = ["full", "sparse", "other"];
const TARGET: &[u8] = b"full";
const ACT: &str = "set quota=1G tank/plain";
const ACTS: usize = 8;
const MANY: usize = 40;
/// The files, their directory, the link, and those in the directory.
const ENTRIES: usize = FILES.len() + 2 + MANY;
const ENTRIES_MAX: usize = 1000;
const PAGES: u64 = 20;
/// The smallest possible disk.
pub const SECTORS: u64 = 80 * 1024;
/// Twenty times what an import without changes takes.
const SIM_STEPS_MAX: u64 = 400_000;
