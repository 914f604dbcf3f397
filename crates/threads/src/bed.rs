//! A pool in service, within a run.

use std::sync::{Arc, LazyLock};

use aquifer_blockio::Disk;
use aquifer_checker::bed::Shape;
use aquifer_checker::lives::SCALE;
use aquifer_files::Service;
use aquifer_inspect::{Options, inspect};
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::{ImportOptions, scan};
use aquifer_sim::Image;

use crate::disk::MemoryDisk;
use crate::world::Threads;

/// The dataset of [`base`].
pub const DATASET: &str = aquifer_checker::lives::DATASET;

/// Disks that are made once.
pub type Base = LazyLock<Vec<Image>>;

/// The disks of a pool with a dataset, after `make` has made something in it. Not within
/// a run.
pub fn base(shape: Shape, make: impl AsyncFnOnce(&Service)) -> Vec<Image> {
    aquifer_checker::bed::created(shape, async |service| {
        service.datasets.create(DATASET, &[]).await.unwrap();
        make(service).await;
    })
}

/// See the module's head.
pub struct Bed {
    /// Time and tasks.
    pub world: Threads,
    /// The pool.
    pub service: Service,
    disks: Vec<MemoryDisk>,
}

impl Bed {
    /// Imports the pool on these disks.
    pub async fn open(images: &[Image]) -> Bed {
        let world = Threads::new();
        let disk = |(at, image): (usize, &Image)| {
            MemoryDisk::new(&world, &format!("d{at}"), image.clone())
        };
        let disks: Vec<MemoryDisk> = images.iter().enumerate().map(disk).collect();
        let service = Bed::import(&world, &disks).await;
        Bed { world, service, disks }
    }

    async fn import(world: &Threads, disks: &[MemoryDisk]) -> Service {
        let name = |disk: &MemoryDisk| NamedDisk {
            path: disk.name().to_string(),
            disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
        };
        let (mut pools, _) = scan(disks.iter().map(name).collect()).await;
        let (_, found) = pools.pop_first().unwrap();
        let options = ImportOptions { scale: SCALE, ..ImportOptions::default() };
        Service::open(Arc::new(world.clone()), found, &options).await.unwrap()
    }

    /// Exports the pool, and imports it again.
    pub async fn again(self) -> Bed {
        let Bed { world, service, disks } = self;
        service.pool.export().await.unwrap();
        drop(service);
        let service = Bed::import(&world, &disks).await;
        Bed { world, service, disks }
    }

    /// The content of the disks at one moment, as if the process were killed then, and what `and`
    /// returns for that moment.
    pub fn as_killed<T>(&self, and: impl FnOnce() -> T) -> (Vec<Image>, T) {
        let contents: Vec<_> = self.disks.iter().map(MemoryDisk::content).collect();
        (contents.iter().map(|content| (**content).clone()).collect(), and())
    }

    /// Exports the pool and inspects the disks.
    ///
    /// # Panics
    /// The inspection finds an error.
    pub async fn close(self) {
        self.close_and_look(true).await;
    }

    /// Exports the pool and inspects the disks as [`Bed::close`] does, without reading the content
    /// of the files: for a pool that is nearly full.
    pub async fn close_full(self) {
        self.close_and_look(false).await;
    }

    async fn close_and_look(self, data: bool) {
        let Bed { world, service, disks } = self;
        service.pool.export().await.unwrap();
        drop(service);
        let disks = disks.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
        let options = Options { data, ..Options::default() };
        let report = inspect(disks, &options).await;
        assert!(report.is_clean(), "inspect: {report}");
        // No thread is in the middle of an operation when the run ends.
        world.rest().await;
    }
}
