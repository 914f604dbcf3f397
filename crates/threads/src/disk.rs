//! A disk in memory. Its operations run beside everything else.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::{Disk, DiskError, IoFuture, Page, World};
use aquifer_sim::Image;
use aquifer_sync::{Mutex, MutexGuard};

use crate::world::Threads;

/// The longest that an operation takes, in microseconds.
const LONGEST_US: u64 = 200;

/// A disk that loses nothing.
#[derive(Clone)]
pub struct MemoryDisk {
    name: Arc<str>,
    sectors: u64,
    world: Threads,
    content: Arc<Mutex<Image>>,
}

impl MemoryDisk {
    /// A disk with this content.
    pub fn new(world: &Threads, name: &str, content: Image) -> MemoryDisk {
        let sectors = content.sectors();
        let content = Arc::new(Mutex::new(content));
        MemoryDisk { name: name.into(), sectors, world: world.clone(), content }
    }

    /// The content, locked so that it does not change.
    pub(crate) fn content(&self) -> MutexGuard<'_, Image> {
        self.content.lock()
    }

    /// An operation is a thread of its own: dropping its future does not cancel it.
    fn begin<T: Send + 'static>(
        &self,
        (sector, count): (u64, u64),
        act: impl FnOnce(&Mutex<Image>) -> T + Send + 'static,
    ) -> IoFuture<'_, T> {
        Box::pin(async move {
            if sector.checked_add(count).is_none_or(|end| end > self.sectors) {
                return Err(DiskError::OutOfRange { sector, count, sectors: self.sectors });
            }
            let disk = self.clone();
            let done = shuttle::future::spawn(async move {
                disk.take_time().await;
                let done = act(&disk.content);
                disk.take_time().await;
                done
            });
            // Only the end of the run cancels it.
            done.await.map_err(|_| DiskError::Gone)
        })
    }

    /// Half of the time it is as fast as any other thread.
    async fn take_time(&self) {
        match self.world.below(4) {
            0 => self.world.sleep(Duration::from_micros(self.world.below(LONGEST_US))).await,
            1 => shuttle::future::yield_now().await,
            _ => {}
        }
    }
}

fn write(content: &Mutex<Image>, sector: u64, pages: Vec<Page>) {
    for (at, page) in (sector..).zip(pages) {
        content.lock().set(at, page);
    }
}

impl Disk for MemoryDisk {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self, sector: u64, count: usize) -> IoFuture<'_, Vec<Page>> {
        let end = sector.saturating_add(count as u64);
        self.begin((sector, count as u64), move |content| {
            let content = content.lock();
            let page = |at| content.get(at).cloned().unwrap_or_else(Page::zeroed);
            (sector..end).map(page).collect()
        })
    }

    fn write(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        self.begin((sector, pages.len() as u64), move |content| write(content, sector, pages))
    }

    fn write_durable(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        self.write(sector, pages)
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        self.begin((0, 0), |_| ())
    }

    fn discard(&self, sector: u64, count: u64) -> IoFuture<'_, ()> {
        self.begin((sector, count), |_| ())
    }
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
