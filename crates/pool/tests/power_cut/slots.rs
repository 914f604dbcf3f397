//! The smallest possible layer above a pool: an array of pages below one tree node. An aged pool
//! has a filler beside it.

mod filler;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::{Page, PageMut};
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::codec::{Reader, Writer, checksum64};
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::log_batch::LogRecord;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{BlockPointer, DatasetId, ObjectId, Place, Txg};
use aquifer_pool::intent_log::Ticket;

use aquifer_pool::Patience;
use aquifer_pool::{
    BoxFuture, Demand, Lane, Pool, PoolError, Replay, Roots, SpaceClass, Span, SyncContext, Trees,
    Visitor,
};

use filler::{Filler, Filling};

pub const SLOTS: u64 = 96;

/// Content of a slot: its number, its version, and bytes that follow from both.
pub fn content(slot: u64, version: u64) -> Page {
    let mut page = PageMut::zeroed();
    for (at, chunk) in (0u64..).zip(page.chunks_mut(8)) {
        let word = match at {
            0 => slot,
            1 => version,
            _ => (slot << 32 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at as u32),
        };
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    page.freeze()
}

pub fn version_of(slot: u64, page: &Page) -> u64 {
    let mut r = Reader::new(page.as_slice(), "slot");
    let (found, version) = (r.u64().unwrap(), r.u64().unwrap());
    assert_eq!(found, slot, "slot {slot} holds another slot's content");
    assert_eq!(page.as_slice(), content(slot, version).as_slice(), "slot {slot} is mangled");
    version
}

#[derive(Clone, Copy, Debug)]
struct Committed {
    place: Place,
    written: Txg,
    sum: u64,
}

impl Committed {
    fn extent(self, slot: u64) -> Extent {
        Extent {
            page: slot,
            pages: 1,
            birth: self.written,
            written: self.written,
            place: self.place,
            counted: false,
            stored: Stored::Plain([self.sum].into_iter().collect()),
        }
    }
}

#[derive(Clone, Debug)]
enum Dirty {
    Page(Page),
    Placed(Page, Extent),
}

#[derive(Default)]
struct State {
    committed: BTreeMap<u64, Committed>,
    dirty: BTreeMap<Txg, BTreeMap<u64, Dirty>>,
    root: Option<BlockPointer>,
    /// Sectors that the sync of a txg allocates and frees.
    churn: BTreeMap<Txg, u64>,
    /// Number of runs that the next sync allocates, to free every other sector of them; and the
    /// others.
    scatter: u64,
    scattered: Vec<Run>,
    filler: Option<Filler>,
    filling: Filling,
}

pub struct Slots {
    pool: Arc<Pool>,
    state: Mutex<State>,
    /// Extra time that a sync may take.
    delay_max: Mutex<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// Not logged: may be lost until its txg is on disk.
    Unstable,
    /// Logged with its payload.
    Stable,
    /// Written to its final place, logged as a pointer.
    Early,
}

fn demand(log_pages: usize) -> Demand {
    let log_bytes = (1 + log_pages as u64) * 4096;
    Demand { dirty_bytes: 4096, sectors: 4, log_bytes, class: SpaceClass::Write, lane: Lane::Bulk }
}

fn record(slot: u64, txg: Txg) -> LogRecord {
    LogRecord {
        kind: 1,
        txg,
        dataset: DatasetId(1),
        object: ObjectId(slot + 1),
        page_sums: Vec::new(),
        extents: Vec::new(),
        body: Vec::new(),
    }
}

/// The slots that a root leads to.
async fn below(pool: &Pool, root: &BlockPointer) -> Result<BTreeMap<u64, Committed>, PoolError> {
    let page = pool.read_node(root, Patience::Short).await?;
    let mut r = Reader::new(page.as_slice(), "slots");
    let mut slots = BTreeMap::new();
    for _ in 0..r.u64()? {
        let slot = r.u64()?;
        let entry = Committed { place: Place(r.u64()?), written: Txg(r.u64()?), sum: r.u64()? };
        slots.insert(slot, entry);
    }
    Ok(slots)
}

impl Slots {
    pub async fn open(pool: Arc<Pool>) -> Result<Arc<Slots>, PoolError> {
        let mut state = State { root: pool.roots()[0], ..State::default() };
        if let Some(root) = &state.root {
            state.committed = below(&pool, root).await?;
        }
        if let Some(root) = pool.roots()[filler::TREE] {
            state.filler = Some(Filler::below(&pool, root).await?);
        }
        Ok(Arc::new(Slots { pool, state: Mutex::new(state), delay_max: Mutex::default() }))
    }

    /// From now on every sync takes up to `max` longer.
    pub fn slow_down(&self, max: Duration) {
        *self.delay_max.lock().unwrap() = max;
    }

    /// Lets the next sync allocate and free sectors, so that the allocator goes round the disk in a
    /// short life.
    pub async fn churn(&self, sectors: u64) -> Result<(), PoolError> {
        let demand = Demand { sectors, log_bytes: 0, ..demand(0) };
        let hold = self.pool.hold(self.pool.admit(demand).await?)?;
        *self.state.lock().unwrap().churn.entry(hold.txg()).or_default() += sectors;
        Ok(())
    }

    /// Lets the next sync have a record of this many runs, and the one after it too.
    pub async fn scatter(&self, runs: u64) -> Result<(), PoolError> {
        let demand = Demand { sectors: 2 * runs, log_bytes: 0, ..demand(0) };
        let _hold = self.pool.hold(self.pool.admit(demand).await?)?;
        self.state.lock().unwrap().scatter = runs;
        Ok(())
    }

    fn sync_scattered(&self, sync: &SyncContext) -> Result<(), PoolError> {
        let mut state = self.state.lock().unwrap();
        for run in std::mem::take(&mut state.scattered) {
            sync.free(run, sync.txg());
        }
        for _ in 0..std::mem::take(&mut state.scatter) {
            let run = sync.allocate(1, 2)?;
            sync.free(Run::new(run.place, 1), sync.txg());
            state.scattered.extend((run.sectors == 2).then(|| Run::new(run.place.plus(1), 1)));
        }
        Ok(())
    }

    /// Writes a slot; a stable write takes `log_pages` pages of the log.
    pub async fn write(
        &self,
        slot: u64,
        page: Page,
        how: How,
        log_pages: usize,
    ) -> Result<Option<Ticket>, PoolError> {
        let admission = self.pool.admit(demand(log_pages)).await?;
        let hold = self.pool.hold(admission)?;
        let sum = checksum64(page.as_slice());
        let mut record = record(slot, hold.txg());
        let (dirty, early) = if how == How::Early {
            let early = self.pool.write_early(&hold, std::slice::from_ref(&page))?;
            let extent = Extent {
                page: slot,
                pages: 1,
                birth: hold.txg(),
                written: hold.txg(),
                place: early.run().place,
                counted: false,
                stored: Stored::Plain([sum].into_iter().collect()),
            };
            record.extents.push(extent.clone());
            (Dirty::Placed(page.clone(), extent), Some(early))
        } else {
            record.page_sums = vec![sum; log_pages];
            (Dirty::Page(page.clone()), None)
        };
        let mut state = self.state.lock().unwrap();
        self.replace(&mut state, hold.txg(), slot, dirty);
        let ticket = match how {
            How::Unstable => None,
            How::Stable => {
                Some(self.pool.log().append(&hold, record, vec![page; log_pages], Vec::new()))
            }
            How::Early => {
                Some(self.pool.log().append(&hold, record, Vec::new(), early.into_iter().collect()))
            }
        };
        Ok(ticket)
    }

    fn replace(&self, state: &mut State, txg: Txg, slot: u64, dirty: Dirty) {
        let before = state.dirty.entry(txg).or_default().insert(slot, dirty);
        if let Some(Dirty::Placed(_, extent)) = before {
            // Allocated and freed in one txg: freed by the same path as all others.
            self.pool.free_unsynced(txg, Run::new(extent.place, 1));
        }
    }

    pub async fn read(&self, slot: u64) -> Result<Option<Page>, PoolError> {
        let _reading = self.pool.reading();
        let extent = {
            let state = self.state.lock().unwrap();
            let dirty = state.dirty.values().rev().find_map(|dirty| dirty.get(&slot));
            match dirty {
                Some(Dirty::Page(page) | Dirty::Placed(page, _)) => return Ok(Some(page.clone())),
                None => state.committed.get(&slot).map(|entry| entry.extent(slot)),
            }
        };
        let Some(extent) = extent else { return Ok(None) };
        Ok(self.pool.read_extent(&extent).await?.into_iter().next())
    }

    /// The place of a slot that no open txg has changed.
    pub fn committed(&self, slot: u64) -> Option<Extent> {
        let state = self.state.lock().unwrap();
        let changed = state.dirty.values().any(|dirty| dirty.contains_key(&slot));
        state.committed.get(&slot).filter(|_| !changed).map(|entry| entry.extent(slot))
    }

    /// Sectors of this layer's committed state.
    pub fn sectors(&self) -> u64 {
        let state = self.state.lock().unwrap();
        let nodes = state.root.map_or(0, |root| root.copies().count() as u64);
        let filler = state.filler.as_ref().map_or(0, Filler::sectors);
        (state.committed.len() + state.scattered.len()) as u64 + nodes + filler
    }
}

impl Trees for Slots {
    fn sync<'a>(&'a self, sync: &'a SyncContext) -> BoxFuture<'a, Result<Roots, PoolError>> {
        Box::pin(async move {
            let (dirty, mut committed, root) = {
                let state = self.state.lock().unwrap();
                let dirty = state.dirty.get(&sync.txg()).cloned().unwrap_or_default();
                (dirty, state.committed.clone(), state.root)
            };
            let delay_max = *self.delay_max.lock().unwrap();
            if !delay_max.is_zero() {
                let world = self.pool.world();
                let part = u32::try_from(world.random() % 100).unwrap();
                world.sleep(delay_max * part / 100).await;
            }
            let mut roots = self.pool.roots();
            let mut churn =
                self.state.lock().unwrap().churn.remove(&sync.txg()).unwrap_or_default();
            self.sync_scattered(sync)?;
            if let Some(root) = self.state.lock().unwrap().filling.sync(sync)? {
                roots[filler::TREE] = Some(root);
            }
            while churn > 0 {
                let run = sync.allocate(1, churn)?;
                sync.free(run, sync.txg());
                churn -= run.sectors;
            }
            if dirty.is_empty() {
                return Ok(roots);
            }
            for (slot, dirty) in dirty {
                let entry = match dirty {
                    Dirty::Page(page) => {
                        let run = sync.allocate(1, 1)?;
                        sync.write(run.place, vec![page.clone()]);
                        let sum = checksum64(page.as_slice());
                        Committed { place: run.place, written: sync.txg(), sum }
                    }
                    Dirty::Placed(page, extent) => Committed {
                        place: extent.place,
                        written: extent.written,
                        sum: checksum64(page.as_slice()),
                    },
                };
                if let Some(old) = committed.insert(slot, entry) {
                    sync.free(Run::new(old.place, 1), old.written);
                }
                sync.pace().await;
            }
            let mut w = Writer::new();
            w.u64(committed.len() as u64);
            for (slot, entry) in &committed {
                w.u64(*slot);
                w.u64(entry.place.0);
                w.u64(entry.written.0);
                w.u64(entry.sum);
            }
            let new =
                sync.write_node(BlockKind::Namespace, (0, true), Page::with_prefix(w.as_bytes()))?;
            if let Some(old) = root {
                sync.free_node(&old);
            }
            roots[0] = Some(new);
            let mut state = self.state.lock().unwrap();
            state.committed = committed;
            state.root = Some(new);
            Ok(roots)
        })
    }

    fn walk<'a>(
        &'a self,
        roots: Roots,
        since: Txg,
        start: WalkPosition,
        to: &'a mut dyn Visitor,
    ) -> BoxFuture<'a, Result<Option<WalkPosition>, PoolError>> {
        Box::pin(async move {
            let at = |within| WalkPosition { within, ..WalkPosition::default() };
            if let Some(root) = roots[0].filter(|root| root.birth > since && start < at(u64::MAX)) {
                let span = Span { from: at(0), to: at(u64::MAX) };
                let _ = to.node(&root, None, &span);
                for (slot, entry) in below(&self.pool, &root).await? {
                    if entry.written <= since || at(slot + 1) <= start {
                        continue;
                    }
                    if to.extent(&entry.extent(slot), &at(slot)).is_break() {
                        return Ok(Some(at(slot + 1)));
                    }
                }
            }
            let filler = self.state.lock().unwrap().filler.clone();
            Ok(filler.and_then(|filler| filler.walk(since, start, to)))
        })
    }

    fn committed(&self, txg: Txg) {
        self.state.lock().unwrap().dirty.retain(|of, _| *of > txg);
    }
}

impl Replay for Slots {
    fn prepare(&self, _: &mut dyn Iterator<Item = &LogRecord>) -> Result<(), PoolError> {
        Ok(())
    }

    fn replay<'a>(
        &'a self,
        record: &'a LogRecord,
        pages: &'a [Page],
    ) -> BoxFuture<'a, Result<(), PoolError>> {
        Box::pin(async move {
            let slot = record.object.0 - 1;
            let dirty = match record.extents.first() {
                None => Dirty::Page(pages[0].clone()),
                Some(extent) => {
                    let read = self.pool.read_extent(extent).await?;
                    Dirty::Placed(read[0].clone(), extent.clone())
                }
            };
            // Large enough that a replay takes several txgs.
            let demand = Demand { dirty_bytes: 1 << 20, ..demand(1) };
            let hold = self.pool.hold_for_replay(demand);
            if let Some(extent) = record.extents.first() {
                self.pool.adopt(&hold, Run::new(extent.place, 1));
            }
            let mut state = self.state.lock().unwrap();
            self.replace(&mut state, hold.txg(), slot, dirty);
            Ok(())
        })
    }
}
