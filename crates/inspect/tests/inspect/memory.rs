//! A disk in memory whose sectors can be damaged at will.

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::{Arc, Mutex};

use aquifer_blockio::{Disk, DiskError, IoFuture, Page, PageMut};

#[derive(Clone, Default)]
struct Content {
    pages: HashMap<u64, Page>,
    unreadable: HashSet<u64>,
    reads: u64,
}

pub struct MemoryDisk {
    name: String,
    sectors: u64,
    content: Mutex<Content>,
}

impl std::fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl MemoryDisk {
    pub fn new(name: &str, sectors: u64) -> Arc<Self> {
        Arc::new(MemoryDisk { name: name.into(), sectors, content: Mutex::default() })
    }

    /// A disk of the same content under another name.
    pub fn copy(&self, name: &str) -> Arc<Self> {
        Arc::new(MemoryDisk {
            name: name.into(),
            sectors: self.sectors,
            content: Mutex::new(self.content.lock().unwrap().clone()),
        })
    }

    /// Makes a disk of another size with the same content.
    pub fn resized(&self, sectors: u64) -> Arc<Self> {
        Arc::new(MemoryDisk {
            name: self.name.clone(),
            sectors,
            content: Mutex::new(self.content.lock().unwrap().clone()),
        })
    }

    pub fn page(&self, sector: u64) -> Page {
        let content = self.content.lock().unwrap();
        content.pages.get(&sector).cloned().unwrap_or_else(Page::zeroed)
    }

    pub fn put(&self, sector: u64, bytes: &[u8]) {
        let mut content = self.content.lock().unwrap();
        for (sector, bytes) in (sector..).zip(bytes.chunks(4096)) {
            content.pages.insert(sector, Page::with_prefix(bytes));
        }
    }

    /// Flips bits of one byte.
    pub fn flip(&self, sector: u64, byte: usize, bits: u8) {
        let mut page = PageMut::with_prefix(self.page(sector).as_slice());
        page[byte] ^= bits;
        self.content.lock().unwrap().pages.insert(sector, page.freeze());
    }

    pub fn mark_unreadable(&self, sector: u64) {
        self.content.lock().unwrap().unreadable.insert(sector);
    }

    pub fn reads(&self) -> u64 {
        self.content.lock().unwrap().reads
    }

    /// Every sector that was written, in order.
    pub fn written(&self) -> Vec<u64> {
        let mut sectors: Vec<u64> = self.content.lock().unwrap().pages.keys().copied().collect();
        sectors.sort_unstable();
        sectors
    }

    fn check(&self, sector: u64, count: u64) -> Result<(), DiskError> {
        let sectors = self.sectors;
        match sector.checked_add(count) {
            Some(end) if end <= sectors => Ok(()),
            _ => Err(DiskError::OutOfRange { sector, count, sectors }),
        }
    }

    fn get(&self, sector: u64, count: u64) -> Result<Vec<Page>, DiskError> {
        self.check(sector, count)?;
        let mut content = self.content.lock().unwrap();
        content.reads += 1;
        let bad = (sector..sector + count).find(|sector| content.unreadable.contains(sector));
        if let Some(sector) = bad {
            let error = std::io::Error::other("medium error");
            return Err(DiskError::io("read", sector, &error));
        }
        let hole = Page::zeroed();
        let page = |sector| content.pages.get(&sector).unwrap_or(&hole).clone();
        Ok((sector..sector + count).map(page).collect())
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
        Box::pin(ready(self.get(sector, count as u64)))
    }
    fn write(&self, _: u64, _: Vec<Page>) -> IoFuture<'_, ()> {
        panic!("an inspection never writes");
    }
    fn write_durable(&self, _: u64, _: Vec<Page>) -> IoFuture<'_, ()> {
        panic!("an inspection never writes");
    }
    fn flush(&self) -> IoFuture<'_, ()> {
        panic!("an inspection never flushes");
    }
    fn discard(&self, _: u64, _: u64) -> IoFuture<'_, ()> {
        panic!("an inspection never discards");
    }
}
