//! Reading blocks: every byte is verified, and comes from memory if it is there.
//!
//! A reader that takes a root itself holds a [`Reading`](crate::Reading) while it reads below that
//! root. A sync, import and replay need none, since nothing is released while they run.

use std::sync::Arc;

use aquifer_arc::{Class, Key};
use aquifer_blockio::Page;
use aquifer_blockio::buf::bytes_of;
use aquifer_ondisk::codec::{checksum64, checksum128};
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::l2arc::{CachedRun, RunForm};
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{BlockPointer, Corruption, Place, Txg};
use aquifer_vdev::{Leaf, ReadError, Vdev};
use futures_util::TryFutureExt;
use futures_util::future::join_all;

use crate::error::{Contradiction, PoolError};
use crate::patience::Patience;
use crate::pool::Pool;
use crate::sums::are_pages;

/// An entry of the cache: verified and decompressed.
#[derive(Debug, Clone)]
pub enum Cached {
    /// A node or a plain page.
    Page(Page),
    /// All pages of a compressed extent.
    Extent(Arc<Vec<Page>>),
}

/// An extent, and a slot for each of its visible pages.
pub type Shown<'e, 's> = (&'e Extent, &'s mut [Option<Page>]);

const PAGE_CHARGE_BYTES: u32 = 4096 + 64;
/// From this many short extents on, they are searched for together, as in a large read of data that
/// was written page by page. Each longer extent is searched for as a run.
const SHORT_EXTENTS_MIN: usize = 8;
const SHORT_PAGES_MAX: u8 = 7;

/// The one who waits for content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A client.
    Client,
    /// Work that no client waits for.
    Behind,
}

impl Pool {
    /// Reads a tree node of one sector.
    pub async fn read_node(
        &self,
        pointer: &BlockPointer,
        patience: Patience,
    ) -> Result<Page, PoolError> {
        let [first, _] = pointer.places;
        let key = key(first, pointer.written);
        if let Some(Cached::Page(page)) = self.cache.get(&key) {
            return Ok(page);
        }
        if let Some(page) = self.pending.lock().get(&first) {
            return Ok(page.clone());
        }
        let verify = |pages: &[Page]| {
            pages.first().is_some_and(|page| checksum128(page.as_slice()) == pointer.checksum)
        };
        // Large, and cheap beside a disk: boxed, so that it is not a part of every future that may
        // need it.
        let run =
            CachedRun { place: first, written: pointer.written, sectors: 1, form: RunForm::Block };
        let copies = Box::pin(self.read_copies(pointer.places, &verify, patience));
        let copies = copies.map_ok(|page| vec![page]);
        let page = one(self.read_through_caches(run, &verify, copies).await?)?;
        self.cache.insert(key, Cached::Page(page.clone()), PAGE_CHARGE_BYTES, Class::Node);
        Ok(page)
    }

    async fn read_copies(
        &self,
        places: [Place; 2],
        verify: &(dyn Fn(&[Page]) -> bool + Sync),
        patience: Patience,
    ) -> Result<Page, PoolError> {
        let [first, second] = places;
        if second.is_null() {
            return one(self.read_verified(first, 1, verify, patience).await?);
        }
        // The other place may have the data if one place cannot give it at the moment.
        match self.read_verified(first, 1, verify, Patience::Short).await {
            Ok(pages) => one(pages),
            // Rare, and large: boxed, so that it is not a part of every read's future.
            Err(error) => Box::pin(self.read_second(places, verify, patience, error)).await,
        }
    }

    /// Reads the block from the second place, after the first failed.
    async fn read_second(
        &self,
        [first, second]: [Place; 2],
        verify: &(dyn Fn(&[Page]) -> bool + Sync),
        patience: Patience,
        error: PoolError,
    ) -> Result<Page, PoolError> {
        let page = match self.read_verified(second, 1, verify, patience).await {
            Ok(pages) => one(pages)?,
            // The second copy is damaged; the first one may be right.
            Err(_) if !error.is_damage() => {
                return one(self.read_verified(first, 1, verify, patience).await?);
            }
            Err(error) => return Err(error),
        };
        // The second copy is good: rewrite the bad first one.
        let vdev = self.vdev(first)?.clone();
        let leaves = vdev.online().cloned().collect();
        self.spawn_repair(vdev, first.sector(), vec![page.clone()], leaves)?;
        Ok(page)
    }

    /// Reads sectors that `verify` accepts. Bad copies are rewritten from the good one, later. A
    /// read that fails is repeated: see [`crate::patience`].
    pub(crate) async fn read_verified(
        &self,
        place: Place,
        count: usize,
        verify: &(dyn Fn(&[Page]) -> bool + Sync),
        patience: Patience,
    ) -> Result<Vec<Page>, PoolError> {
        let vdev = self.vdev(place)?;
        let mut failures = 0;
        let good = loop {
            match vdev.read_good(place.sector(), count, verify).await {
                Ok(good) => break good,
                Err(error) => {
                    failures += 1;
                    self.wait_to_read_again(error, failures, patience).await?;
                }
            }
        };
        if !good.bad.is_empty() {
            self.spawn_repair(vdev.clone(), place.sector(), good.pages.clone(), good.bad)?;
        }
        Ok(good.pages)
    }

    /// Rewrites bad copies in a task of its own. Its write must end under the protection of
    /// [`Pool::reading`], and the reader may be cancelled at any time.
    fn spawn_repair(
        &self,
        vdev: Arc<Vdev>,
        sector: u64,
        pages: Vec<Page>,
        leaves: Vec<Arc<Leaf>>,
    ) -> Result<(), PoolError> {
        let repairing = self.arc()?.repairing();
        let task = async move {
            for leaf in leaves {
                vdev.repair(&leaf, sector, &pages).await;
            }
            drop(repairing);
        };
        self.world.spawn("repair", Box::pin(task));
        Ok(())
    }

    /// Reads the visible pages of an extent entry.
    pub async fn read_extent(&self, extent: &Extent) -> Result<Vec<Page>, PoolError> {
        let mut pages = vec![None; extent.pages.into()];
        if !self.cached_extent(extent, &mut pages) {
            self.read_missing(Reader::Client, extent, &mut pages).await?;
        }
        Ok(pages.into_iter().flatten().collect())
    }

    /// Fills `pages`, one for each visible page of an extent entry, from memory. Returns whether
    /// all of them were there.
    fn cached_extent(&self, extent: &Extent, pages: &mut [Option<Page>]) -> bool {
        let first = key(extent.place, extent.written);
        match &extent.stored {
            Stored::Plain(_) => {
                let mut found = 0;
                self.cache.get_run(&first, pages.len() as u64, |at, cached| {
                    let slot = usize::try_from(at).ok().and_then(|at| pages.get_mut(at));
                    if let (Cached::Page(page), Some(slot)) = (cached, slot) {
                        *slot = Some(page.clone());
                        found += 1;
                    }
                });
                found == pages.len()
            }
            Stored::Compressed { offset_pages, .. } => match self.cache.get(&first) {
                Some(Cached::Extent(all)) => show(&all, *offset_pages, pages),
                _ => false,
            },
        }
    }

    /// Fills the slots of each of these from memory. Returns the extents with missing pages.
    pub fn cached_extents<'e, 's>(&self, shown: Vec<Shown<'e, 's>>) -> Vec<Shown<'e, 's>> {
        let are_many = shown.len() >= SHORT_EXTENTS_MIN;
        let (mut short, mut missing) = (Vec::new(), Vec::new());
        for (extent, slots) in shown {
            if are_many && is_short(extent) {
                short.push((extent, slots));
            } else if !self.cached_extent(extent, slots) {
                missing.push((extent, slots));
            }
        }
        self.cached_pages(&mut short);
        missing.extend(short.into_iter().filter(|(_, slots)| slots.iter().any(Option::is_none)));
        missing
    }

    /// Fills the slots of plain extents, which are searched for page by page, from memory.
    fn cached_pages(&self, shown: &mut [Shown<'_, '_>]) {
        let (mut keys, mut slots) = (Vec::new(), Vec::new());
        for (extent, shown) in shown {
            for (at, slot) in (0..).zip(shown.iter_mut()) {
                keys.push(key(extent.place.plus(at), extent.written));
                slots.push(slot);
            }
        }
        self.cache.get_each(&keys, |at, cached| {
            if let (Cached::Page(page), Some(slot)) = (cached, slots.get_mut(at)) {
                **slot = Some(page.clone());
            }
        });
    }

    /// Reads the pages that [`Pool::cached_extents`] did not find.
    pub async fn read_missing(
        &self,
        reader: Reader,
        extent: &Extent,
        pages: &mut [Option<Page>],
    ) -> Result<(), PoolError> {
        if reader == Reader::Client {
            self.flow.client_asks();
        }
        let complete = match &extent.stored {
            Stored::Plain(sums) => {
                self.read_plain(extent.place, extent.written, sums, pages).await?;
                pages.iter().all(Option::is_some)
            }
            Stored::Compressed { offset_pages, .. } => {
                let all = self.read_compressed(extent).await?;
                show(&all, *offset_pages, pages)
            }
        };
        match complete {
            true => Ok(()),
            false => Err(Corruption::ExtentPages.into()),
        }
    }

    async fn read_plain(
        &self,
        place: Place,
        written: Txg,
        sums: &[u64],
        pages: &mut [Option<Page>],
    ) -> Result<(), PoolError> {
        // One read from the first to the last missing page: an extent is at most 64 KiB.
        let Some(first) = pages.iter().position(Option::is_none) else { return Ok(()) };
        let last = pages.iter().rposition(Option::is_none).unwrap_or(first);
        let wanted = sums.get(first..=last).unwrap_or_default();
        let run = CachedRun {
            place: place.plus(first as u64),
            written,
            sectors: u8::try_from(wanted.len()).unwrap_or(u8::MAX),
            form: RunForm::Pages,
        };
        let pages_read = self.read_pages(run.place, wanted);
        let verify = |pages: &[Page]| are_pages(pages, wanted);
        let read = self.read_through_caches(run, &verify, pages_read).await?;
        for ((at, slot), page) in (0u64..).zip(pages.iter_mut()).skip(first).zip(read) {
            let key = key(place.plus(at), written);
            let cached = Cached::Page(page.clone());
            self.cache.insert(key, cached, PAGE_CHARGE_BYTES, Class::Data);
            *slot = Some(page);
        }
        Ok(())
    }

    async fn read_pages(&self, place: Place, sums: &[u64]) -> Result<Vec<Page>, PoolError> {
        let verify = |pages: &[Page]| are_pages(pages, sums);
        match self.read_verified(place, sums.len(), &verify, Patience::Short).await {
            Ok(pages) => return Ok(pages),
            Err(error) if sums.len() == 1 => return Err(error),
            Err(_) => {}
        }
        // Each copy may be bad in another page: read each page by itself, from where it is good.
        let singles = (0u64..).zip(sums).map(|(at, sum)| async move {
            let verify = |pages: &[Page]| are_pages(pages, [*sum]);
            one(self.read_verified(place.plus(at), 1, &verify, Patience::Short).await?)
        });
        join_all(singles).await.into_iter().collect()
    }

    /// The sectors of an extent as they lie on disk, from a copy that verifies.
    async fn read_stored(&self, extent: &Extent) -> Result<Vec<Page>, PoolError> {
        match &extent.stored {
            Stored::Plain(sums) => self.read_pages(extent.place, sums).await,
            Stored::Compressed { stored_sectors, checksum, .. } => {
                let verify = |pages: &[Page]| checksum64(&bytes_of(pages)) == *checksum;
                let count = usize::from(*stored_sectors);
                self.read_verified(extent.place, count, &verify, Patience::Short).await
            }
        }
    }

    async fn read_compressed(&self, extent: &Extent) -> Result<Arc<Vec<Page>>, PoolError> {
        let Stored::Compressed {
            algorithm,
            total_pages,
            stored_sectors,
            stored_bytes,
            checksum,
            ..
        } = &extent.stored
        else {
            return Err(Contradiction::NotCompressed.into());
        };
        let (sector, count) = (extent.place.sector(), usize::from(*stored_sectors));
        let run = CachedRun {
            place: extent.place,
            written: extent.written,
            sectors: u8::try_from(count).unwrap_or(u8::MAX),
            form: RunForm::Block,
        };
        let verify = |pages: &[Page]| checksum64(&bytes_of(pages)) == *checksum;
        let stored = self.read_through_caches(run, &verify, self.read_stored(extent)).await?;
        let bytes = bytes_of(&stored);
        let bytes = bytes.get(..usize::from(*stored_bytes)).unwrap_or_default();
        let total = usize::from(*total_pages);
        let pages = crate::transform::decompress(*algorithm, bytes, total)
            .ok_or(ReadError::Corrupt { vdev: extent.place.vdev(), sector, count })?;
        let pages = Arc::new(pages);
        let key = key(extent.place, extent.written);
        let charge = u32::from(*total_pages) * PAGE_CHARGE_BYTES;
        self.cache.insert(key, Cached::Extent(pages.clone()), charge, Class::Data);
        Ok(pages)
    }

    /// Caches a page that was just written: it is likely to be read. If it replaces an older page,
    /// it takes that page's place in the cache, in the policy and in memory.
    pub fn cache_page(&self, place: Place, written: Txg, page: Page, old: Option<(Place, Txg)>) {
        let new = key(place, written);
        let (charge, class) = (PAGE_CHARGE_BYTES, Class::Data);
        match old {
            None => self.cache.insert(new, Cached::Page(page), charge, class),
            Some((place, written)) => {
                let value = |old| match old {
                    Some(Cached::Page(old)) => Cached::Page(page.in_place_of(old)),
                    _ => Cached::Page(page),
                };
                self.cache.replace(&key(place, written), new, value, charge, class);
            }
        }
    }

    pub(crate) fn cache_node(&self, pointer: &BlockPointer, page: Page) {
        let [first, _] = pointer.places;
        let key = key(first, pointer.written);
        self.cache.insert(key, Cached::Page(page), PAGE_CHARGE_BYTES, Class::Node);
    }

    /// Removes freed blocks from the cache.
    pub(crate) fn uncache(&self, run: Run, written: Txg) {
        for at in 0..run.sectors {
            self.cache.remove(&key(run.place.plus(at), written));
        }
    }

    /// The content of the cache, and its hits and misses.
    pub fn cache_stats(&self) -> aquifer_arc::Stats {
        self.cache.stats()
    }
}

/// The cache's key of a block.
fn key(place: Place, written: Txg) -> Key {
    Key { place: place.0, written: written.0 }
}

fn is_short(extent: &Extent) -> bool {
    matches!(extent.stored, Stored::Plain(_)) && extent.pages <= SHORT_PAGES_MAX
}

/// Fills `pages` from those of a compressed extent, which are visible from `offset` on. Returns
/// whether there were enough.
fn show(all: &[Page], offset: u8, pages: &mut [Option<Page>]) -> bool {
    let shown = all.get(offset.into()..).unwrap_or_default();
    for (slot, page) in pages.iter_mut().zip(shown) {
        *slot = Some(page.clone());
    }
    shown.len() >= pages.len()
}

fn one(pages: Vec<Page>) -> Result<Page, PoolError> {
    pages.into_iter().next().ok_or_else(|| Contradiction::NoSector.into())
}
