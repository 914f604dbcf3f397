//! A server over a real pool on an image file, whose disk can be stopped.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aquifer_blockio::{
    Disk, FileDisk, IoFuture, OpenOptions, Page, TokioWorld, World, create_image,
};
use aquifer_files::{FileHandle, Service};
use aquifer_nfs::{Export, Exports, Nfs, Volume};
use aquifer_nfsd::{Config, LockKeeper, Portmap, Server};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::BoxFuture;
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_pool::import::{ImportOptions, scan};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::client::Client;

/// A server and all its parts.
pub struct Fixture {
    pub server: Option<Server>,
    pub pool: Option<Service>,
    pub gate: Gate,
    /// Whether the dataset [`PANICS`] makes requests panic.
    pub panics: Arc<AtomicBool>,
    /// The keeper of the next server's locks.
    pub keeper: Option<Arc<LockKeeper>>,
    disk: Arc<dyn Disk>,
    runtime: Runtime,
    _image: tempfile::TempDir,
}

/// A configuration for tests: one port of 127.0.0.1, two runtimes.
pub fn config() -> Config {
    Config {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        portmap: Portmap::Off,
        threads: 2,
        ..Config::default()
    }
}

/// The name of the dataset that makes a request panic: a bug of ours, by agreement.
pub const PANICS: &str = "tank/panics";

impl Fixture {
    /// `/vms` is `tank/vms`; `/panics` is a dataset that makes every request for it panic.
    pub fn new() -> Self {
        let exports = vec![Export::new("/vms", "tank/vms"), Export::new("/panics", PANICS)];
        Self::with(config(), exports)
    }

    pub fn with(config: Config, exports: Vec<Export>) -> Self {
        let image = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let gate = Gate::default();
        let disk = gated_image(&image.path().join("disk"), 1 << 30, &gate);
        let panics = Arc::default();
        let (server, pool, keeper, _image) = (None, None, None, image);
        let mut this = Fixture { server, pool, gate, panics, keeper, disk, runtime, _image };
        this.create();
        this.open();
        this.serve(config, exports);
        this
    }

    fn named(&self) -> NamedDisk {
        NamedDisk { path: "disk".into(), disk: Arc::clone(&self.disk) }
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(TokioWorld::new(self.runtime.handle().clone()))
    }

    fn create(&self) {
        let vdev = VdevSpec { redundancy: Redundancy::Single, disks: vec![self.named()] };
        let spec =
            PoolSpec { name: "tank".into(), vdevs: vec![vdev], logs: Vec::new(), force: false };
        self.runtime.block_on(create(self.world(), spec)).unwrap();
    }

    /// Brings the pool into service.
    pub fn open(&mut self) {
        let pool = self.runtime.block_on(async {
            let (mut pools, _) = scan(vec![self.named()]).await;
            let (_, found) = pools.pop_first().unwrap();
            let pool = Service::open(self.world(), found, &ImportOptions::default()).await;
            let pool = pool.unwrap();
            for dataset in ["tank/vms", "tank/iso", PANICS] {
                if pool.files.root(dataset).is_none() {
                    pool.datasets.create(dataset, &[]).await.unwrap();
                }
            }
            pool
        });
        self.pool = Some(pool);
    }

    /// Starts the server.
    pub fn serve(&mut self, config: Config, exports: Vec<Export>) {
        let files = Arc::clone(&self.pool().files);
        let volume = Volume::new(Arc::clone(&files));
        let panics = Arc::clone(&self.panics);
        let root_of = move |dataset: &str| {
            let bug = dataset == PANICS && panics.load(Ordering::Relaxed);
            assert!(!bug, "a bug, as the test wants it");
            Some(volume.root(files.root(dataset)?))
        };
        let exports = Exports::new(exports, root_of).unwrap();
        let keeper = self.keeper.clone();
        let nfs = match &keeper {
            Some(keeper) => Nfs::with_locks(exports, keeper.locks().clone()),
            None => Nfs::new(exports),
        };
        let server = self.runtime.block_on(Server::start_with(config, Arc::new(nfs), keeper));
        self.server = Some(server.unwrap());
    }

    pub fn pool(&self) -> &Service {
        self.pool.as_ref().unwrap()
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn address(&self) -> SocketAddr {
        self.server().addresses()[0]
    }

    /// A client with a connection.
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// A client that has mounted `/vms`, and the handle of that.
    pub fn mounted(&self) -> (Client, aquifer_nfs::proto::v3::NfsFh3) {
        let mut client = self.client();
        let root = client.mount("/vms").unwrap();
        (client, root)
    }

    pub fn root(&self) -> FileHandle {
        self.pool().files.root("tank/vms").unwrap()
    }

    pub fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        // One kind of future for the runtime: it compiles a scheduler for each.
        let mut output = None;
        let work: BoxFuture<'_, ()> = Box::pin(async { output = Some(future.await) });
        self.runtime.block_on(work);
        output.unwrap()
    }

    /// Stops the server and takes the pool out of service.
    pub fn stop(&mut self) -> Option<aquifer_nfsd::Stopped> {
        let server = self.server.take()?;
        let stopped = self.runtime.block_on(server.stop());
        if let Some(pool) = self.pool.take() {
            let _ = self.runtime.block_on(pool.pool.export());
        }
        drop(server);
        Some(stopped)
    }

    /// Waits until `holds`, or fails.
    #[track_caller]
    pub fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if holds(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("not within 10 s: {what}; {:?}", self.server().load());
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.gate.open();
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// A sparse image of `bytes` behind a gate.
fn gated_image(path: &Path, bytes: u64, gate: &Gate) -> Arc<dyn Disk> {
    create_image(path, bytes / 4096).unwrap();
    let disk = FileDisk::open(path, OpenOptions::exclusive()).unwrap();
    Arc::new(Gated { disk, gate: gate.clone() })
}

/// Lets a disk's operations through, or not.
#[derive(Clone, Debug)]
pub struct Gate {
    closed: watch::Sender<bool>,
    waiting: Arc<AtomicU64>,
}

impl Default for Gate {
    fn default() -> Self {
        Gate { closed: watch::Sender::new(false), waiting: Arc::default() }
    }
}

impl Gate {
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    pub fn open(&self) {
        self.closed.send_replace(false);
    }

    /// Operations that have come to the closed gate.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    async fn pass(&self) {
        if *self.closed.borrow() {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let mut closed = self.closed.subscribe();
            let _ = closed.wait_for(|closed| !closed).await;
        }
    }
}

#[derive(Debug)]
struct Gated {
    disk: FileDisk,
    gate: Gate,
}

impl Disk for Gated {
    fn sectors(&self) -> u64 {
        self.disk.sectors()
    }

    fn name(&self) -> &str {
        self.disk.name()
    }

    fn read(&self, sector: u64, count: usize) -> IoFuture<'_, Vec<Page>> {
        Box::pin(async move {
            self.gate.pass().await;
            self.disk.read(sector, count).await
        })
    }

    fn write(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.gate.pass().await;
            self.disk.write(sector, pages).await
        })
    }

    fn write_durable(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.gate.pass().await;
            self.disk.write_durable(sector, pages).await
        })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.gate.pass().await;
            self.disk.flush().await
        })
    }

    fn discard(&self, sector: u64, count: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.gate.pass().await;
            self.disk.discard(sector, count).await
        })
    }
}
