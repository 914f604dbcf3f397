//! Writing out a txg.
//!
//! Order: changes of the layer above, then bitmap slots, then the record, then a flush of every
//! leaf, then the uberblock and its flush. Nothing after the first step allocates: every sector for
//! the pool's own bookkeeping is reserved (slots at fixed places, records in their ring).

mod copies;
pub(crate) mod pace;

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_blockio::buf::pages_of;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::pool_root::PoolRoot;
use aquifer_ondisk::txg_record::{
    RECORD_HEADER_BYTES, RECORD_SECTORS_MAX, RUN_BYTES, RecordPointer, SlotEntry, TxgRecord,
};
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{BlockPointer, Place, Txg};
use aquifer_space::SpaceError;
use aquifer_sync::atomic::Ordering;
use aquifer_sync::{Mutex, Notify};

use crate::error::{Contradiction, PoolError};
use crate::flow::limits::SYNC_WRITE_SECTORS_MAX;
use crate::patience::Patience;
use crate::pool::{BoxFuture, Pool, Roots};

use copies::Copies;

/// The interface with which the layer above writes its changes of one txg.
#[derive(Debug)]
pub struct SyncContext {
    pool: Arc<Pool>,
    txg: Txg,
    /// Writes that may still grow: one per vdev, and another for its second copies.
    gathering: Mutex<BTreeMap<Stream, (u64, Vec<Page>)>>,
    flight: Arc<Flight>,
    used_sectors: Mutex<u64>,
    /// Runs of earlier txgs that the sync freed. Until the commit readers find them below the
    /// earlier root.
    freed: Mutex<Vec<(Run, Txg)>>,
    copies: Copies,
}

/// Runs that leave the cache before others have their turn.
const UNCACHED_AT_ONCE: usize = 1024;

/// A vdev, and whether this is for second copies: they are elsewhere and grow separately.
type Stream = (u16, bool);

#[derive(Debug)]
struct Flight {
    state: Mutex<FlightState>,
    landed: Notify,
}

#[derive(Debug, Default)]
struct FlightState {
    writes: usize,
    error: Option<PoolError>,
}

impl SyncContext {
    fn new(pool: Arc<Pool>, txg: Txg) -> Self {
        let copies = Copies::of(&pool.tree().config, txg);
        SyncContext {
            pool,
            copies,
            txg,
            gathering: Mutex::new(BTreeMap::new()),
            flight: Arc::new(Flight {
                state: Mutex::new(FlightState::default()),
                landed: Notify::new(),
            }),
            used_sectors: Mutex::new(0),
            freed: Mutex::default(),
        }
    }

    /// The txg being written.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Whether records that were not replayed yet may name present blocks: then only the replayed
    /// changes themselves may remove anything.
    pub fn is_replay(&self) -> bool {
        self.pool.log.is_replaying() && !left_out(Rule::ReplayReapsNothing)
    }

    /// Allocates `min` to `want` sectors.
    pub fn allocate(&self, min: u64, want: u64) -> Result<Run, PoolError> {
        let run = self.pool.space.lock().allocate(self.txg, min, want)?;
        *self.used_sectors.lock() += run.sectors;
        Ok(run)
    }

    /// A second place for the node at `first`; null if it may do without.
    fn allocate_second(&self, first: Place) -> Result<Place, PoolError> {
        let run = match self.pool.space.lock().allocate_second(self.txg, first) {
            Err(SpaceError::NoSpace(_)) if !self.copies.is_bare() => return Ok(Place::NULL),
            allocated => allocated?,
        };
        *self.used_sectors.lock() += run.sectors;
        Ok(run.place)
    }

    /// Frees a block.
    pub fn free(&self, run: Run, written: Txg) {
        if written < self.txg {
            self.freed.lock().push((run, written));
        } else {
            // This txg may use the place again, with the same key in the cache.
            self.pool.uncache(run, written);
        }
        self.pool.space.lock().free(self.txg, run);
    }

    /// The txg is on disk: the cache needs nothing of what it freed.
    async fn uncache_freed(&self) {
        let freed = std::mem::take(&mut *self.freed.lock());
        for (at, (run, written)) in freed.into_iter().enumerate() {
            self.pool.uncache(run, written);
            if at % UNCACHED_AT_ONCE == UNCACHED_AT_ONCE - 1 {
                self.pool.turn_of_others().await;
            }
        }
    }

    /// Sectors that can still be allocated now.
    pub fn free_sectors(&self) -> u64 {
        self.pool.space.free_sectors()
    }

    /// Number of frees that this txg can still take without its record becoming too large.
    pub fn frees_left(&self) -> usize {
        let runs = self.pool.space.lock().open_runs(self.txg);
        self.pool.txg_runs_max().saturating_sub(runs)
    }

    /// Queues pages for their place. Neighbours are joined into larger writes.
    pub fn write(&self, place: Place, pages: Vec<Page>) {
        self.gather(place, pages, false);
    }

    fn gather(&self, place: Place, pages: Vec<Page>, second: bool) {
        let stream = (place.vdev(), second);
        let mut gathering = self.gathering.lock();
        let mut full = None;
        if let Some((start, gathered)) = gathering.get_mut(&stream) {
            let joins = *start + gathered.len() as u64 == place.sector();
            if joins && gathered.len() + pages.len() <= SYNC_WRITE_SECTORS_MAX {
                gathered.extend(pages);
                return;
            }
            full = Some((*start, std::mem::take(gathered)));
        }
        gathering.insert(stream, (place.sector(), pages));
        drop(gathering);
        if let Some((start, pages)) = full {
            self.submit(Place::new(place.vdev(), start), pages);
        }
    }

    fn submit(&self, place: Place, pages: Vec<Page>) {
        if pages.is_empty() {
            return;
        }
        self.flight.state.lock().writes += 1;
        self.pool.flow.sync_hands_out(pages.len() as u64);
        let (flight, pool) = (self.flight.clone(), self.pool.clone());
        let task = async move {
            let count = pages.len();
            let permit = pool.sync_window.enter(&pool.flow, count).await;
            let begun = pool.world.now();
            let result = match pool.vdev(place) {
                Ok(vdev) => vdev.write(place.sector(), pages).await.map_err(PoolError::from),
                Err(error) => Err(error),
            };
            let took = pool.world.now().saturating_sub(begun);
            pool.sync_window.leave(&pool.flow, permit, (count, took));
            {
                let mut pending = pool.pending.lock();
                (0..count as u64).for_each(|at| {
                    pending.remove(&place.plus(at));
                });
            }
            let mut state = flight.state.lock();
            state.writes -= 1;
            state.error = state.error.take().or(result.err());
            flight.landed.notify_one();
        };
        self.pool.world.spawn("sync write", Box::pin(task));
    }

    async fn drain(&self) -> Result<(), PoolError> {
        let gathered = std::mem::take(&mut *self.gathering.lock());
        for ((vdev, _), (start, pages)) in gathered {
            self.submit(Place::new(vdev, start), pages);
        }
        loop {
            let landed = self.flight.landed.notified();
            {
                let state = self.flight.state.lock();
                if state.writes == 0 {
                    return state.error.clone().map_or(Ok(()), Err);
                }
            }
            landed.await;
        }
    }

    /// Reads a node, even one that this sync has just written.
    pub async fn read_node(&self, pointer: &BlockPointer) -> Result<Page, PoolError> {
        self.step().await;
        self.pool.read_node(pointer, Patience::Long).await
    }

    /// Allocates a place for a node, queues the node, and returns its pointer. Some nodes get a
    /// second place: see [`copies`]. `is_root`: the node is known to be a whole tree.
    pub fn write_node(
        &self,
        kind: BlockKind,
        (level, is_root): (u8, bool),
        page: Page,
    ) -> Result<BlockPointer, PoolError> {
        let twice = self.copies.are_two(kind, level, is_root);
        let first = self.allocate(1, 1)?.place;
        let second = if twice { self.allocate_second(first)? } else { Place::NULL };
        let pointer = BlockPointer {
            places: [first, second],
            logical_bytes: 4096,
            stored_bytes: 4096,
            kind,
            level,
            compression: 0,
            birth: self.txg,
            written: self.txg,
            checksum: checksum128(page.as_slice()),
        };
        for (place, second) in pointer.copies().zip([false, true]) {
            self.pool.pending.lock().insert(place, page.clone());
            self.gather(place, vec![page.clone()], second);
        }
        self.pool.cache_node(&pointer, page);
        Ok(pointer)
    }

    /// Frees a node.
    pub fn free_node(&self, pointer: &BlockPointer) {
        for place in pointer.copies() {
            self.free(Run::new(place, pointer.sectors()), pointer.written);
        }
    }
}

impl Pool {
    /// Closes the open txg and commits it.
    pub(crate) fn sync_one(&self) -> BoxFuture<'_, Result<Txg, PoolError>> {
        Box::pin(async move {
            let _turn = self.sync_turn.lock().await;
            // After an export the disks belong to others.
            self.txgs.check()?;
            // The space that this txg may take must be available. So bitmaps are read before it
            // closes, and again for changes that entered it meanwhile. Without a layer above, as
            // when a pool is created, a txg takes nothing.
            let takes = self.trees.get().is_some();
            if takes {
                self.load_for_sync().await?;
            }
            let (txg, closed) = self.close_txg().await;
            let begun = self.world.now();
            self.flow.txg_closed(begun, closed);
            if takes {
                self.load_for(txg).await?;
            }
            let context = SyncContext::new(self.arc()?, txg);
            let roots = match self.trees.get().map(std::sync::Weak::upgrade) {
                Some(Some(trees)) => trees.sync(&context).await?,
                // Its changes would be missing from a txg that claims to hold them.
                Some(None) => return Err(Contradiction::NoTrees.into()),
                None => self.roots(),
            };
            context.drain().await?;
            self.log.wait_early_writes(txg).await;
            self.flow.sync_landed(self.world.now());
            let used = *context.used_sectors.lock();
            let reserved = self.txgs.reserved_for(txg);
            if used > reserved + self.slop_sectors() / 4 {
                tracing::error!(%txg, used, reserved, "a txg took more than was admitted for it");
                debug_assert!(used <= reserved + self.slop_sectors() / 4);
            }
            let (pointer, window_start) = self.write_record(txg, &roots).await?;
            if !left_out(Rule::FlushBeforeUberblock) {
                self.flush_all().await?;
            }
            let floor = self.log.floor_for(txg);
            let chain = self.log.restart_done();
            self.write_uberblock(|uberblock| {
                uberblock.txg = txg;
                uberblock.floor = floor;
                if chain {
                    uberblock.restart_chain = 0;
                }
                uberblock.roots.rotate_right(1);
                let [newest, ..] = &mut uberblock.roots;
                *newest = Some(pointer);
            })
            .await?;
            *self.roots.lock() = roots;
            self.records.lock().note_root(window_start);
            self.log.root_on_disk(&self.flow);
            if !self.log.is_replaying() {
                // That was for what the log brought: from here on nothing is given up so lightly.
                self.import.discards_unreadable.store(false, Ordering::Relaxed);
            }
            self.move_on()?;
            self.measure_devices();
            if let Some(trees) = self.trees.get().and_then(std::sync::Weak::upgrade) {
                trees.committed(txg);
            }
            // From here on new readers find this root: none of them can reach the blocks that it
            // freed.
            self.readers.retire(txg);
            context.uncache_freed().await;
            self.release_frees(txg);
            self.unload_bitmaps();
            self.txgs.done(txg);
            self.settle_dirty();
            self.flow.txg_synced(self.world.now());
            self.note_sync(txg, begun);
            Ok(txg)
        })
    }

    /// Writes slots and record of `txg`; returns the record's pointer and its window's start.
    async fn write_record(
        &self,
        txg: Txg,
        roots: &Roots,
    ) -> Result<(RecordPointer, Txg), PoolError> {
        let (allocated, freed) = self.space.lock().close_txg(txg)?;
        let own_bytes = ((allocated.len() + freed.len()) * RUN_BYTES) as u64;
        let refreshed = self.refresh_slots(txg, own_bytes).await?;
        let mut entries = Vec::new();
        for (entry, write) in refreshed {
            entries.push(entry);
            if let Some(write) = write {
                self.write_slot(write).await?;
            }
        }
        let window_start = self.window_start(txg);
        let mut parts = split_parts(allocated, freed, entries);
        let usual_copies = self.tree().config.record_copies(txg);
        let (segments, copies) = {
            let ring = self.records.lock();
            (ring.runs(), ring.copies())
        };
        let root = PoolRoot {
            txg,
            wall_ns: self.world.wall_ns(),
            trees: *roots,
            log: self.log.root_for(txg),
            log_home: self.log.home().runs(),
            record_segments: segments,
            record_copies: (copies != usual_copies).then_some(copies),
            record_next: Place::NULL,
            allocated_sectors: self.space.lock().used_per_vdev(),
        };
        let mut previous = self.newest_record().await;
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            let record = self.record(txg, window_start, previous, part);
            previous = Some(self.write_part(record).await?);
        }
        let mut record = self.record(txg, window_start, previous, last);
        record.root = Some(root);
        Ok((self.write_part(record).await?, window_start))
    }

    fn record(
        &self,
        txg: Txg,
        window_start: Txg,
        previous: Option<RecordPointer>,
        part: Part,
    ) -> TxgRecord {
        TxgRecord {
            pool_guid: self.guid(),
            txg,
            place: Place::NULL,
            window_start,
            previous,
            slots: part.slots,
            allocated: part.allocated,
            freed: part.freed,
            root: None,
        }
    }

    async fn write_part(&self, mut record: TxgRecord) -> Result<RecordPointer, PoolError> {
        let sectors = record.encode()?.len() / 4096;
        let places = {
            let mut ring = self.records.lock();
            let places = ring.take(record.txg, sectors as u64)?;
            if let Some(root) = &mut record.root {
                root.record_next = ring.next();
            }
            places
        };
        record.place = places[0];
        let bytes = record.encode()?;
        assert_eq!(bytes.len() / 4096, sectors, "a record's size does not depend on its place");
        let pages = pages_of(&bytes);
        for place in places.into_iter().filter(|place| !place.is_null()) {
            self.vdev(place)?.write(place.sector(), pages.clone()).await?;
        }
        Ok(RecordPointer {
            txg: record.txg,
            places,
            sectors: u32::try_from(sectors).unwrap_or(u32::MAX),
            checksum: checksum128(&bytes),
        })
    }

    /// The oldest record that names a current slot: an import reads the slot's entry there, and
    /// applies the runs of later records.
    fn window_start(&self, txg: Txg) -> Txg {
        let oldest = self.space.lock().stale_metaslabs().first().map(|(as_of, _)| *as_of);
        oldest.unwrap_or(txg).min(txg)
    }
}

#[derive(Debug, Default)]
struct Part {
    slots: Vec<SlotEntry>,
    allocated: Vec<Run>,
    freed: Vec<Run>,
}

/// Distributes a txg's entries over parts of at most 1 MiB. The last part also has the root.
fn split_parts(allocated: Vec<Run>, freed: Vec<Run>, slots: Vec<SlotEntry>) -> Vec<Part> {
    // Half a part's bytes for runs and slots leaves ample room for the root and for group headers.
    let runs_max = RECORD_SECTORS_MAX * 4096 / 2 / RUN_BYTES;
    let slots_max = (RECORD_SECTORS_MAX * 4096 / 4 - RECORD_HEADER_BYTES) / 44;
    let (mut allocated, mut freed, mut slots) = (
        allocated.into_iter().peekable(),
        freed.into_iter().peekable(),
        slots.into_iter().peekable(),
    );
    let mut parts = Vec::new();
    while allocated.peek().is_some() || freed.peek().is_some() || slots.peek().is_some() {
        let taken: Vec<Run> = allocated.by_ref().take(runs_max).collect();
        let left = runs_max - taken.len();
        parts.push(Part {
            allocated: taken,
            freed: freed.by_ref().take(left).collect(),
            slots: slots.by_ref().take(slots_max).collect(),
        });
    }
    parts
}

#[cfg(test)]
mod tests;
