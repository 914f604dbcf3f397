//! One cache disk: its ring of chunks, and the index of what they hold.

use std::sync::Arc;
use std::time::Duration;

use aquifer_arc::{Memory, Share};
use aquifer_blockio::buf::{bytes_of, pages_of};
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{Page, SECTOR_BYTES, World};
use aquifer_ondisk::Guid;
use aquifer_ondisk::l2arc::{
    CHUNK_HEADER_SECTORS, CHUNK_PAYLOAD_SECTORS, CHUNK_SECTORS, CachedRun, ChunkHeader, RunForm,
    chunk_sector, chunks,
};
use aquifer_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use aquifer_sync::{Mutex, Notify};
use aquifer_vdev::Leaf;
use futures_util::future::join_all;

use crate::feed::{Feed, Filling, Taken, WAITING_MAX};
use crate::index::{ENTRY_BYTES_MAX, Index};

/// A read of the cache is waited for so long, then the pool is read.
const READ_MS: u64 = 100;
/// After so many reads in turn that failed or were late, the disk is left alone for a while. A disk
/// that is merely busy, or whose machine is, answers again.
const FAILURES_MAX: u32 = 16;
/// The first while. It doubles with each try that fails, as that of data disks does.
const REST_FIRST: Duration = Duration::from_secs(1);
/// The longest while.
const REST_MAX: Duration = Duration::from_secs(60);
/// Headers that are read at once when a pool comes into service.
const HEADERS_AT_ONCE: u64 = 32;
/// A full cache is written over at most at this rate: it wears the disk, and the rest is for reads.
const CHUNKS_PER_SECOND: u32 = 32;

/// The block that is asked for: what it is, and where it lies in the pool.
pub type Wanted = CachedRun;

/// One cache disk.
pub struct CacheDisk {
    leaf: Arc<Leaf>,
    pool: Guid,
    world: Arc<dyn World>,
    index: Index,
    /// Chunks that it uses: so many as the index may describe.
    chunks: u64,
    feed: Mutex<Feed>,
    wanted: Notify,
    is_stopped: AtomicBool,
    failures: AtomicU32,
    rest: Mutex<Rest>,
    share: Share,
    counts: Counts,
}

impl std::fmt::Debug for CacheDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheDisk").field("leaf", &self.leaf.path).finish_non_exhaustive()
    }
}

/// The disk is left alone.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// Until then, by the world's clock.
    until: Duration,
    /// For so long the next time.
    next: Duration,
}

const NO_REST: Rest = Rest { until: Duration::ZERO, next: REST_FIRST };

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    bad: AtomicU64,
    passed_over: AtomicU64,
    written_chunks: AtomicU64,
    loaded_chunks: AtomicU64,
}

/// Counters since the pool came into service, and sizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Reads that it answered.
    pub hits: u64,
    /// Reads of what it does not hold.
    pub misses: u64,
    /// Reads whose content did not verify.
    pub bad: u64,
    /// Blocks that it could not take in time.
    pub passed_over: u64,
    /// Chunks written.
    pub written_chunks: u64,
    /// Chunks that it held when the pool came into service.
    pub loaded_chunks: u64,
    /// Pages and blocks that it holds.
    pub blocks: u64,
    /// Memory of its index, in bytes.
    pub index_bytes: u64,
    /// Bytes that it can hold.
    pub capacity_bytes: u64,
}

/// Where the next chunk goes.
struct Ring {
    next: u64,
    sequence: u64,
    /// From here on nothing has been written.
    end: u64,
}

impl CacheDisk {
    /// A cache on this leaf, whose index may take so much memory.
    pub fn new(
        leaf: Arc<Leaf>,
        pool: Guid,
        world: Arc<dyn World>,
        (memory, index_bytes_max): (&Arc<Memory>, u64),
    ) -> Arc<CacheDisk> {
        let sectors = leaf.disk().map_or(0, |disk| disk.sectors());
        let described = index_bytes_max / ENTRY_BYTES_MAX / CHUNK_PAYLOAD_SECTORS;
        // Sectors are numbers of 32 bits in the index.
        let addressed = u64::from(u32::MAX) / CHUNK_SECTORS - CHUNK_SECTORS;
        Arc::new(CacheDisk {
            leaf,
            pool,
            world,
            index: Index::new(),
            chunks: chunks(sectors).min(described).min(addressed),
            feed: Mutex::default(),
            wanted: Notify::new(),
            is_stopped: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            rest: Mutex::new(NO_REST),
            share: memory.share(),
            counts: Counts::default(),
        })
    }

    /// Its leaf.
    pub fn leaf(&self) -> &Arc<Leaf> {
        &self.leaf
    }

    /// Whether it is read and written.
    pub fn is_usable(&self) -> bool {
        // The clock is read only where something has failed.
        let may_rest = self.failures.load(Ordering::Relaxed) >= FAILURES_MAX;
        self.leaf.is_online() && !(may_rest && self.rests())
    }

    /// It is tried again at once, if it answered too late or with errors.
    pub fn try_again(&self) {
        self.failures.store(0, Ordering::Relaxed);
        *self.rest.lock() = NO_REST;
    }

    fn rests(&self) -> bool {
        self.world.now() < self.rest.lock().until
    }

    /// Counters and sizes.
    pub fn stats(&self) -> CacheStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (blocks, index_bytes) = self.index.size();
        CacheStats {
            hits: of(&self.counts.hits),
            misses: of(&self.counts.misses),
            bad: of(&self.counts.bad),
            passed_over: of(&self.counts.passed_over),
            written_chunks: of(&self.counts.written_chunks),
            loaded_chunks: of(&self.counts.loaded_chunks),
            blocks,
            index_bytes,
            capacity_bytes: self.chunks * CHUNK_PAYLOAD_SECTORS * SECTOR_BYTES as u64,
        }
    }

    /// The sectors of a block, if all of them are here and `verify` accepts them.
    pub async fn read(
        &self,
        wanted: &Wanted,
        verify: &(dyn Fn(&[Page]) -> bool + Sync),
    ) -> Option<Vec<Page>> {
        if !self.is_usable() {
            return None;
        }
        let Some(pieces) = self.find(wanted) else {
            self.counts.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let reads = pieces
            .iter()
            .map(|(sector, count)| self.leaf.read_within(u64::from(*sector), *count, READ_MS));
        let read: Result<Vec<Vec<Page>>, _> = join_all(reads).await.into_iter().collect();
        let Ok(pages) = read else {
            self.has_failed();
            return None;
        };
        self.has_answered();
        let pages = pages.concat();
        if verify(&pages) || left_out(Rule::CachesAreVerified) {
            self.counts.hits.fetch_add(1, Ordering::Relaxed);
            return Some(pages);
        }
        self.forget(wanted, &pieces);
        None
    }

    fn has_answered(&self) {
        if self.failures.swap(0, Ordering::Relaxed) >= FAILURES_MAX {
            *self.rest.lock() = NO_REST;
            tracing::info!(
                class = "cache.answers", leaf = %self.leaf.path,
                "the cache disk answers reads again"
            );
        }
    }

    fn has_failed(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < FAILURES_MAX || self.rests() {
            return;
        }
        let mut rest = self.rest.lock();
        let (now, is_first) = (self.world.now(), rest.until == Duration::ZERO);
        *rest = Rest { until: now + rest.next, next: REST_MAX.min(rest.next * 2) };
        if is_first {
            tracing::warn!(
                class = "cache.failed", leaf = %self.leaf.path, error = ?self.leaf.last_error(),
                "the cache disk does not answer reads: it is left alone for a while, and the pool \
                 is read instead"
            );
        }
    }

    /// The sectors with a block: runs, each with its length. `None` if a part of it is not here.
    fn find(&self, wanted: &Wanted) -> Option<Vec<(u32, usize)>> {
        let sectors = usize::from(wanted.sectors);
        if wanted.form == RunForm::Block {
            let first = self.index.get((wanted.place, wanted.written))?;
            return Some(vec![(first, sectors)]);
        }
        let mut pieces: Vec<(u32, usize)> = Vec::new();
        for (place, _) in wanted.keys() {
            let sector = self.index.get((place, wanted.written))?;
            match pieces.last_mut() {
                Some((first, count)) if u64::from(*first) + *count as u64 == u64::from(sector) => {
                    *count += 1;
                }
                _ => pieces.push((sector, 1)),
            }
        }
        Some(pieces)
    }

    /// Forgets the places of a block of which these pieces were read: they do not hold the block.
    fn forget(&self, wanted: &Wanted, pieces: &[(u32, usize)]) {
        let read = |sector: u32| {
            pieces.iter().any(|(first, count)| {
                (u64::from(*first)..u64::from(*first) + *count as u64).contains(&sector.into())
            })
        };
        let forgotten = wanted
            .keys()
            .filter(|(place, _)| self.index.remove_if((*place, wanted.written), read))
            .count();
        // If it lies elsewhere by now, its chunk was written over during the read.
        if forgotten > 0 {
            self.counts.bad.fetch_add(1, Ordering::Relaxed);
            self.leaf.counters.checksum_errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A block was read from the pool, and is right. It is written here later, if there is room.
    pub fn offer(&self, run: CachedRun, pages: &[Page]) {
        let is_here = self.index.get((run.place, run.written)).is_some();
        if is_here || !self.is_usable() || self.chunks == 0 {
            return;
        }
        match self.feed.lock().take(run, pages) {
            Taken::Waits => {}
            Taken::Full => self.wanted.notify_one(),
            Taken::PassedOver => {
                self.counts.passed_over.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends [`CacheDisk::run`], and with it all writes.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.wanted.notify_one();
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Learns what the disk holds, then writes what is offered, until it is stopped. The caller
    /// spawns it once.
    pub async fn run(self: Arc<Self>) {
        let mut ring = self.load().await;
        loop {
            let wanted = self.wanted.notified();
            if self.is_stopped() || !self.leaf.is_online() {
                return;
            }
            let Some(filling) = self.feed.lock().next() else {
                wanted.await;
                continue;
            };
            let begun = self.world.now();
            let wears = ring.next < ring.end;
            if !self.write(&mut ring, filling).await {
                return;
            }
            self.charge();
            let turn = Duration::from_secs(1) / CHUNKS_PER_SECOND;
            let left = turn.saturating_sub(self.world.now() - begun);
            if wears && !left.is_zero() {
                self.world.sleep(left).await;
            }
        }
    }

    fn charge(&self) {
        let waiting = (WAITING_MAX as u64 + 2) * CHUNK_SECTORS * SECTOR_BYTES as u64;
        self.share.set(self.index.size().1 + waiting);
    }

    /// Reads the headers of all chunks.
    async fn load(&self) -> Ring {
        let mut ring = Ring { next: 0, sequence: 0, end: 0 };
        let mut from = 0;
        while from < self.chunks && !self.is_stopped() && self.leaf.is_online() {
            if !self.is_usable() {
                self.world.sleep(REST_FIRST).await;
                continue;
            }
            let to = (from + HEADERS_AT_ONCE).min(self.chunks);
            let headers = join_all((from..to).map(|chunk| self.header(chunk))).await;
            for header in headers.into_iter().flatten() {
                self.counts.loaded_chunks.fetch_add(1, Ordering::Relaxed);
                ring.end = header.chunk + 1;
                if header.sequence > ring.sequence {
                    ring.sequence = header.sequence;
                    ring.next = (header.chunk + 1) % self.chunks;
                }
                self.put(&header);
            }
            from = to;
        }
        self.charge();
        ring
    }

    /// The header of a chunk that was written by this pool to this disk.
    async fn header(&self, chunk: u64) -> Option<ChunkHeader> {
        let sectors = usize::try_from(CHUNK_HEADER_SECTORS).ok()?;
        let Ok(pages) = self.leaf.read_within(chunk_sector(chunk), sectors, READ_MS).await else {
            self.has_failed();
            return None;
        };
        let header = ChunkHeader::decode(&bytes_of(&pages)).ok()?;
        let is_own = (header.pool, header.leaf, header.chunk) == (self.pool, self.leaf.guid, chunk);
        is_own.then_some(header)
    }

    /// The blocks of a chunk, each with its sector.
    fn blocks(header: &ChunkHeader) -> impl Iterator<Item = (crate::index::Key, u32)> {
        let base = chunk_sector(header.chunk);
        let fits = |(_, run): &(u64, &CachedRun)| run.place.fits(u64::from(run.sectors));
        header.placed().filter(fits).flat_map(move |(first, run)| {
            run.keys().filter_map(move |(place, at)| {
                let sector = u32::try_from(base + first + at).ok()?;
                Some(((place, run.written), sector))
            })
        })
    }

    fn put(&self, header: &ChunkHeader) {
        Self::blocks(header).for_each(|(key, sector)| self.index.put(key, sector));
    }

    /// Writes a chunk, over the oldest one. Whether the disk can be written.
    async fn write(&self, ring: &mut Ring, filling: Filling) -> bool {
        let chunk = ring.next;
        if chunk < ring.end {
            self.give_up(chunk).await;
        }
        let Filling { runs, pages } = filling;
        let sequence = ring.sequence + 1;
        let (pool, leaf) = (self.pool, self.leaf.guid);
        let header = ChunkHeader { pool, leaf, chunk, sequence, runs };
        let Ok(bytes) = header.encode() else { return true };
        let mut all = pages_of(&bytes);
        all.extend(pages);
        if self.leaf.write(chunk_sector(chunk), all).await.is_err() {
            return false;
        }
        self.put(&header);
        self.counts.written_chunks.fetch_add(1, Ordering::Relaxed);
        *ring = Ring { next: (chunk + 1) % self.chunks, sequence, end: ring.end.max(chunk + 1) };
        true
    }

    /// Forgets what a chunk holds: it is about to be written over.
    async fn give_up(&self, chunk: u64) {
        let sectors = chunk_sector(chunk)..chunk_sector(chunk) + CHUNK_SECTORS;
        let lies_there = |sector: u32| sectors.contains(&u64::from(sector));
        match self.header(chunk).await {
            Some(header) => {
                for (key, _) in Self::blocks(&header) {
                    self.index.remove_if(key, lies_there);
                }
            }
            None => self.index.remove_all(lies_there),
        }
    }
}
