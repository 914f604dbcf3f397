//! A disk that reports a smaller size: an image that was cut off, a wrong jumper; or one that
//! grows.

use std::sync::atomic::{AtomicU64, Ordering};

use aquifer_blockio::{Disk, IoFuture, Page};

use crate::disk::SimDisk;

/// The first sectors of a disk.
#[derive(Debug)]
pub struct SmallerDisk {
    disk: SimDisk,
    sectors: AtomicU64,
    /// As soon as anybody looks.
    grown: AtomicU64,
}

impl SmallerDisk {
    /// The first `sectors` of `disk`.
    pub fn new(disk: SimDisk, sectors: u64) -> Self {
        SmallerDisk { disk, sectors: AtomicU64::new(sectors), grown: AtomicU64::new(sectors) }
    }

    /// Has so many sectors as soon as [`Disk::grow`] looks.
    pub fn grows_to(&self, sectors: u64) {
        self.grown.store(sectors, Ordering::SeqCst);
    }
}

impl Disk for SmallerDisk {
    fn sectors(&self) -> u64 {
        self.sectors.load(Ordering::SeqCst)
    }

    fn grow(&self) -> IoFuture<'_, u64> {
        let grown = self.grown.load(Ordering::SeqCst);
        self.sectors.fetch_max(grown, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(self.sectors())))
    }

    fn name(&self) -> &str {
        self.disk.name()
    }

    fn read(&self, sector: u64, count: usize) -> IoFuture<'_, Vec<Page>> {
        self.disk.read(sector, count)
    }

    fn write(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        self.disk.write(sector, pages)
    }

    fn write_durable(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        self.disk.write_durable(sector, pages)
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        self.disk.flush()
    }

    fn discard(&self, sector: u64, count: u64) -> IoFuture<'_, ()> {
        self.disk.discard(sector, count)
    }

    fn can_discard(&self) -> bool {
        self.disk.can_discard()
    }
}
