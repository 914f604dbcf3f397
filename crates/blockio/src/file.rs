//! `FileDisk`: an image file or a block device as a [`Disk`].
//!
//! Invariants:
//! - Every range is checked here, before an engine sees it.
//! - All parts of an operation are handed to the engine in the first poll of its future.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crate::backing::{Backing, BackingKind, byte_of};
use crate::discard::Discards;
use crate::disk::{Disk, DiskError, IoFuture};
use crate::foreign::{self, Ends, Foreign};
use crate::open::{self, DiskNumbers, OpenError, OpenOptions};
use crate::pread::{self, PreadOperation};
use crate::request::{Kind, Request};
use crate::uring::{self, UringOperation};
use crate::{Page, PageMut, SECTOR_BYTES};

/// How operations reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Through one io_uring for each thread and runtime, made when first needed. A task in that
    /// runtime serves it; the runtime must have its I/O driver enabled.
    Uring,
    /// By one blocking system call each, on tokio's blocking pool. Outside of a runtime (where the
    /// other engine does the same), on the calling thread.
    Pread,
}

/// Possible remains of a dropped disk: operations that the kernel has not answered, and the claim
/// that keeps others away meanwhile.
#[derive(Debug, Clone)]
pub struct Remains(Weak<Backing>);

impl Remains {
    /// Whether nothing stays: no operation of it can change the disk any more.
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// An opened image file or block device.
#[derive(Debug)]
pub struct FileDisk {
    backing: Arc<Backing>,
    engine: Engine,
    discards: Arc<Discards>,
}

impl FileDisk {
    /// Opens the image file or block device at `path`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let engine = open::choose_engine(options.engine);
        let backing = Arc::new(open::open(path, options.access)?);
        Ok(FileDisk {
            discards: Arc::new(Discards::new(Arc::clone(&backing), engine)),
            backing,
            engine,
        })
    }

    /// Reopens, for reading and writing, what this disk was opened as, which is now at `path`. A
    /// new handle knows nothing of flushes that failed on this one. The disk stays exclusive: by a
    /// claim of the new handle if it is another disk by now, else by that of this handle, which
    /// lasts as long as either.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_again(&self, path: &Path) -> Result<Self, OpenError> {
        let (backing, engine) = (open::open_again(path, &self.backing)?, self.engine);
        let backing = Arc::new(backing);
        let discards = Arc::new(Discards::new(Arc::clone(&backing), engine));
        Ok(FileDisk { backing, engine, discards })
    }

    /// Returns what may stay of the disk when it is dropped.
    pub fn remains(&self) -> Remains {
        Remains(Arc::downgrade(&self.backing))
    }

    pub(crate) fn stat(&self) -> io::Result<rustix::fs::Stat> {
        Ok(rustix::fs::fstat(self.backing.as_fd())?)
    }

    pub(crate) fn file_system(&self) -> io::Result<rustix::fs::StatVfs> {
        Ok(rustix::fs::fstatvfs(self.backing.as_fd())?)
    }

    pub(crate) fn name_at_opening(&self) -> &str {
        &self.backing.name
    }

    /// Whether it is a file or a device.
    pub fn kind(&self) -> BackingKind {
        self.backing.kind
    }

    /// The numbers that identify it.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn numbers(&self) -> io::Result<DiskNumbers> {
        Ok(DiskNumbers::of_opened(&self.backing)?)
    }

    /// Whether transfers bypass the kernel's page cache. `false` where the file system cannot.
    pub fn is_direct(&self) -> bool {
        self.backing.direct
    }

    /// Foreign content on the disk, as far as it is recognised. Blocks the thread while it reads
    /// some 3 MiB.
    ///
    /// # Errors
    /// If those cannot be read.
    pub fn foreign_content(&self) -> Result<Vec<Foreign>, DiskError> {
        let ends = Ends::read(&self.backing).map_err(|e| error("read", 0, &e))?;
        Ok(foreign::recognise(&ends))
    }

    /// The engine in use.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    fn check(&self, sector: u64, count: u64) -> Result<(), DiskError> {
        let sectors = self.backing.sectors();
        match sector.checked_add(count) {
            Some(end) if end <= sectors => Ok(()),
            _ => Err(DiskError::OutOfRange { sector, count, sectors }),
        }
    }

    fn check_write(&self, sector: u64, count: usize) -> Result<(), DiskError> {
        self.check(sector, count as u64)?;
        match self.backing.writable {
            true => Ok(()),
            false => Err(error("write", sector, &io::ErrorKind::ReadOnlyFilesystem.into())),
        }
    }

    fn start(&self, sector: u64, kind: Kind) -> Operation {
        let request = Request { backing: Arc::clone(&self.backing), start: byte_of(sector), kind };
        start(self.engine, request)
    }

    async fn read_pages(&self, sector: u64, count: usize) -> io::Result<Vec<Page>> {
        // All of it is filled before anybody sees it: a failed read returns no pages.
        let fresh = PageMut::unfilled_many;
        if count <= PART_PAGES {
            return self.start(sector, Kind::Read(fresh(count))).await;
        }
        let mut parts = Vec::new();
        let mut at = 0;
        while at < count {
            let part = PART_PAGES.min(count - at);
            parts.push(self.start(sector + at as u64, Kind::Read(fresh(part))));
            at += part;
        }
        let mut pages = Vec::with_capacity(count);
        for part in parts {
            pages.append(&mut part.await?);
        }
        Ok(pages)
    }

    async fn write_pages(&self, sector: u64, pages: Vec<Page>, durable: bool) -> io::Result<()> {
        if pages.len() <= PART_PAGES {
            let write = self.start(sector, Kind::Write { pages, durable });
            return write.await.map(drop);
        }
        let mut parts = Vec::new();
        let mut at = sector;
        for part in pages.chunks(PART_PAGES) {
            let pages = part.to_vec();
            parts.push(self.start(at, Kind::Write { pages, durable }));
            at += part.len() as u64;
        }
        // Waits for all parts: when this ends, even with an error, no part is under way.
        let mut result = Ok(());
        for part in parts {
            result = result.and(part.await.map(drop));
        }
        result
    }

    async fn write_checked(
        &self,
        sector: u64,
        pages: Vec<Page>,
        durable: bool,
    ) -> Result<(), DiskError> {
        self.check_write(sector, pages.len())?;
        if pages.is_empty() {
            return Ok(());
        }
        let written = self.write_pages(sector, pages, durable).await;
        written.map_err(|e| error("write", sector, &e))
    }

    async fn flush_checked(&self) -> io::Result<()> {
        self.backing.trusted()?;
        self.start(0, Kind::Flush).await?;
        // Another flush may have failed meanwhile, and taken the kernel's only report of it.
        self.backing.trusted()
    }
}

impl Disk for FileDisk {
    fn sectors(&self) -> u64 {
        self.backing.sectors()
    }

    fn grow(&self) -> IoFuture<'_, u64> {
        let grown = self.backing.grow().map_err(|e| error("look at its size", 0, &e));
        Box::pin(std::future::ready(grown))
    }

    fn name(&self) -> &str {
        &self.backing.name
    }

    fn read(&self, sector: u64, count: usize) -> IoFuture<'_, Vec<Page>> {
        Box::pin(async move {
            self.check(sector, count as u64)?;
            if count == 0 {
                return Ok(Vec::new());
            }
            let read = self.read_pages(sector, count).await;
            read.map_err(|e| error("read", sector, &e))
        })
    }

    fn write(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        Box::pin(self.write_checked(sector, pages, false))
    }

    fn write_durable(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        Box::pin(self.write_checked(sector, pages, true))
    }

    /// Once a flush has failed, this fails until the disk is reopened.
    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let flushed = self.flush_checked().await;
            flushed.map_err(|e| error("flush", 0, &e))
        })
    }

    /// Neighbouring discards that wait at the same time are joined; one batch runs at a time.
    fn discard(&self, sector: u64, count: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.check(sector, count)?;
            if !self.backing.writable {
                let refused = io::ErrorKind::ReadOnlyFilesystem.into();
                return Err(error("discard", sector, &refused));
            }
            if count == 0 || !self.backing.discards() {
                return Ok(());
            }
            let discarded = self.discards.discard(byte_of(sector), byte_of(count)).await;
            discarded.map_err(|e| error("discard", sector, &e))
        })
    }

    fn can_discard(&self) -> bool {
        self.backing.discards()
    }
}

/// A request that an engine has taken.
pub(crate) enum Operation {
    Uring(UringOperation),
    Pread(PreadOperation),
}

impl Future for Operation {
    type Output = io::Result<Vec<Page>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Operation::Uring(operation) => Pin::new(operation).poll(cx),
            Operation::Pread(operation) => Pin::new(operation).poll(cx),
        }
    }
}

/// Passes `request` to `engine`, or to the other one if that cannot do it.
pub(crate) fn start(engine: Engine, request: Request) -> Operation {
    let by_ioctl =
        matches!(request.kind, Kind::Discard { .. }) && request.backing.kind == BackingKind::Block;
    if engine == Engine::Pread || by_ioctl {
        return Operation::Pread(pread::start(request));
    }
    match uring::start(request) {
        Ok(operation) => Operation::Uring(operation),
        Err(request) => Operation::Pread(pread::start(request)),
    }
}

fn error(operation: &'static str, sector: u64, error: &io::Error) -> DiskError {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM) => DiskError::Gone,
        _ => DiskError::io(operation, sector, error),
    }
}

/// Pages of one system call: IOV_MAX, and 4 MiB.
const PART_PAGES: usize = 1024;
const _: () = assert!(PART_PAGES * SECTOR_BYTES == 4 << 20);
