//! Faults between the engine and a disk, for tests with the real program. Only debug builds have
//! them, and the tests run those.
//!
//! Invariants:
//! - Faults belong to a disk, not to its name or an open handle: they stay when it is opened again.
//!   A new image file is another disk, also with the inode of one that was removed.
//! - A share is exact and in turn: of `1/100`, the first operation of each hundred is hit.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use aquifer_api::{InjectRequest, Share};
use aquifer_blockio::{Disk, DiskError, FileDisk, IoFuture, Page, PageMut};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;

use super::Identity;

/// The faults of all disks that this process has opened.
static FAULTS: LazyLock<Mutex<HashMap<Known, Arc<Faults>>>> = LazyLock::new(Mutex::default);

/// A disk, and the birth of an image file: inodes are used again.
type Known = (Identity, Option<SystemTime>);

/// The faults of a disk.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Operations that hang wait for a change of it.
    wanted: watch::Sender<InjectRequest>,
    turns: [AtomicU64; 5],
}

/// Kind of an operation.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Read,
    Write,
    Flush,
    Discard,
}

/// Place of the turns of rot, behind those of the kinds.
const ROT: usize = 4;

impl Faults {
    /// Those of a disk at `path`.
    pub fn of(disk: Identity, path: &Path) -> Arc<Faults> {
        let new = || {
            let (wanted, turns) = (watch::Sender::default(), Default::default());
            Arc::new(Faults { wanted, turns })
        };
        let image = fs::metadata(path).ok().filter(|meta| meta.is_file());
        let born = image.and_then(|meta| meta.created().ok());
        FAULTS.lock().entry((disk, born)).or_insert_with(new).clone()
    }

    /// Those that are wanted now.
    #[cfg(test)]
    pub fn wanted(&self) -> InjectRequest {
        self.wanted.borrow().clone()
    }

    /// Changes them.
    pub fn change(&self, by: InjectRequest) {
        self.wanted.send_modify(|now| {
            let old = if by.clear { InjectRequest::default() } else { std::mem::take(now) };
            *now = InjectRequest {
                disk: String::new(),
                clear: false,
                read_errors: by.read_errors.or(old.read_errors),
                write_errors: by.write_errors.or(old.write_errors),
                flush_errors: by.flush_errors.or(old.flush_errors),
                discard_errors: by.discard_errors.or(old.discard_errors),
                rot: by.rot.or(old.rot),
                delay_ms: by.delay_ms.or(old.delay_ms),
                hang: by.hang || old.hang,
                vanish: by.vanish || old.vanish,
            };
        });
    }

    /// Whether it is the turn of one of those that are hit.
    fn hits(&self, turns: usize, share: Option<Share>) -> bool {
        let Some((Share { part, of }, turns)) = share.zip(self.turns.get(turns)) else {
            return false;
        };
        turns.fetch_add(1, Ordering::Relaxed) % of.max(1) < part
    }

    /// Lets an operation meet the faults that are wanted, before it is carried out.
    async fn meet(&self, kind: Kind, sector: u64) -> Result<(), DiskError> {
        let mut changes = self.wanted.subscribe();
        let delay = changes.borrow().delay_ms;
        if let Some(ms) = delay {
            sleep(Duration::from_millis(ms)).await;
        }
        // The sender is ours: it does not go away.
        let _ = changes.wait_for(|wanted| !wanted.hang).await;
        let wanted = self.wanted.borrow().clone();
        if wanted.vanish {
            return Err(DiskError::Gone);
        }
        let (operation, share) = match kind {
            Kind::Read => ("read", wanted.read_errors),
            Kind::Write => ("write", wanted.write_errors),
            Kind::Flush => ("flush", wanted.flush_errors),
            Kind::Discard => ("discard", wanted.discard_errors),
        };
        match self.hits(kind as usize, share) {
            true => Err(DiskError::io(operation, sector, &std::io::Error::other("injected"))),
            false => Ok(()),
        }
    }

    /// Returns the pages that were read, perhaps with a wrong bit.
    fn rotten(&self, mut pages: Vec<Page>) -> Vec<Page> {
        let share = self.wanted.borrow().rot;
        if self.hits(ROT, share)
            && let Some(page) = pages.first_mut()
        {
            let mut copy = PageMut::zeroed();
            copy.copy_from_slice(&page[..]);
            if let Some(byte) = copy.first_mut() {
                *byte ^= 1;
            }
            *page = copy.freeze();
        }
        pages
    }
}

/// A disk with its faults.
#[derive(Debug)]
pub(crate) struct Injected {
    disk: Arc<FileDisk>,
    faults: Arc<Faults>,
}

impl Injected {
    /// A disk as the engine sees it.
    pub fn before(disk: Arc<FileDisk>) -> Arc<dyn Disk> {
        match Identity::of_opened(&disk) {
            Ok(identity) => {
                let faults = Faults::of(identity, Path::new(disk.name()));
                Arc::new(Injected { faults, disk })
            }
            Err(_) => disk,
        }
    }
}

impl Disk for Injected {
    fn sectors(&self) -> u64 {
        self.disk.sectors()
    }

    fn grow(&self) -> IoFuture<'_, u64> {
        self.disk.grow()
    }

    fn name(&self) -> &str {
        self.disk.name()
    }

    fn read(&self, sector: u64, count: usize) -> IoFuture<'_, Vec<Page>> {
        Box::pin(async move {
            self.faults.meet(Kind::Read, sector).await?;
            Ok(self.faults.rotten(self.disk.read(sector, count).await?))
        })
    }

    fn write(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.faults.meet(Kind::Write, sector).await?;
            self.disk.write(sector, pages).await
        })
    }

    fn write_durable(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.faults.meet(Kind::Write, sector).await?;
            self.disk.write_durable(sector, pages).await
        })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.faults.meet(Kind::Flush, 0).await?;
            self.disk.flush().await
        })
    }

    fn discard(&self, sector: u64, count: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.faults.meet(Kind::Discard, sector).await?;
            self.disk.discard(sector, count).await
        })
    }
}
