//! Content of an aged pool beside its slots, which leaves little of it free, in small holes.
//!
//! Most of it belongs to nobody: it stays allocated for good, as if leaked. The rest are pages
//! below a node of their own, with holes between them. All that is written later goes there.

use aquifer_blockio::Page;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::codec::{Reader, Writer, checksum64};
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{BlockPointer, Place, Txg};
use aquifer_pool::{Demand, Patience, Pool, PoolError, SpaceClass, Span, SyncContext, Visitor};
use aquifer_sim::Rng;

use super::{SLOTS, Slots, content, demand, version_of};

/// Sectors that are left free beside what the pool keeps back: 5 of 100 are then free.
const ROOM_SECTORS: u64 = 1300;
/// Sectors that a sync takes while the pool is filled, less and less.
const STEPS_SECTORS: [u64; 3] = [2000, 200, 20];
/// Sectors of a hole, at most. A resilver bridges most of them.
const HOLE_SECTORS_MAX: u64 = 18;
/// The tree that leads to it.
pub const TREE: usize = 1;

/// As it is on disk.
#[derive(Debug, Clone)]
pub struct Filler {
    root: BlockPointer,
    written: Txg,
    leaked_sectors: u64,
    pages: Vec<Place>,
}

fn of(at: u64) -> Page {
    content(SLOTS + at, 1)
}

/// A new pool that is being filled.
#[derive(Debug, Default)]
pub struct Filling {
    runs: Vec<Run>,
    /// Work of the next sync.
    next: Option<Step>,
}

#[derive(Debug)]
enum Step {
    /// It takes so many sectors.
    Take(u64),
    /// It frees some of all that was taken.
    Age(Rng),
}

impl Slots {
    /// Fills the pool, which is new, with what an aged one holds.
    pub async fn fill(&self, rng: Rng) -> Result<(), PoolError> {
        for sectors in STEPS_SECTORS {
            let demand = Demand { sectors, class: SpaceClass::Replay, ..demand(0) };
            loop {
                let hold = match self.pool.admit(demand).await {
                    Ok(admission) => self.pool.hold(admission)?,
                    Err(PoolError::NoSpace) => break,
                    Err(error) => return Err(error),
                };
                self.state.lock().unwrap().filling.next = Some(Step::Take(sectors));
                drop(hold);
                self.pool.sync().await?;
            }
        }
        self.state.lock().unwrap().filling.next = Some(Step::Age(rng));
        self.pool.sync().await?;
        let root = self.pool.roots()[TREE].unwrap();
        self.state.lock().unwrap().filler = Some(Filler::below(&self.pool, root).await?);
        Ok(())
    }

    /// Reads the filler, if there is one.
    pub async fn check_filler(&self) -> Result<(), PoolError> {
        let filler = self.state.lock().unwrap().filler.clone();
        match filler {
            Some(filler) => filler.check(&self.pool).await,
            None => Ok(()),
        }
    }
}

impl Filling {
    /// The part of a sync. Returns the node, once the pool is aged.
    pub fn sync(&mut self, sync: &SyncContext) -> Result<Option<BlockPointer>, PoolError> {
        match self.next.take() {
            Some(Step::Take(mut sectors)) => {
                while sectors > 0 {
                    let run = sync.allocate(1, sectors)?;
                    sectors -= run.sectors;
                    self.runs.push(run);
                }
                Ok(None)
            }
            Some(Step::Age(mut rng)) => {
                age(sync, std::mem::take(&mut self.runs), &mut rng).map(Some)
            }
            None => Ok(None),
        }
    }
}

/// Frees holes, writes pages between them, and returns the node that leads to these.
fn age(sync: &SyncContext, mut runs: Vec<Run>, rng: &mut Rng) -> Result<BlockPointer, PoolError> {
    rng.shuffle(&mut runs);
    let room = sync.pool().slop_sectors() + ROOM_SECTORS;
    let (mut pages, mut leaked_sectors, mut freed) = (Vec::new(), 0, 0);
    for run in runs {
        let mut at = 0;
        while at < run.sectors && freed < room {
            let hole = (1 + rng.below(HOLE_SECTORS_MAX)).min(run.sectors - at);
            sync.free(Run::new(run.place.plus(at), hole), sync.txg());
            (at, freed) = (at + hole, freed + hole);
            if at < run.sectors {
                let place = run.place.plus(at);
                sync.write(place, vec![of(pages.len() as u64)]);
                pages.push(place);
                at += 1;
            }
        }
        leaked_sectors += run.sectors - at;
    }
    let mut w = Writer::new();
    for word in [pages.len() as u64, leaked_sectors, sync.txg().0] {
        w.u64(word);
    }
    pages.iter().for_each(|place| w.u64(place.0));
    sync.write_node(BlockKind::Namespace, (0, true), Page::with_prefix(w.as_bytes()))
}

impl Filler {
    /// That to which a node leads.
    pub async fn below(pool: &Pool, root: BlockPointer) -> Result<Filler, PoolError> {
        let page = pool.read_node(&root, Patience::Short).await?;
        let mut r = Reader::new(page.as_slice(), "filler");
        let (count, leaked_sectors, written) = (r.u64()?, r.u64()?, Txg(r.u64()?));
        let pages = (0..count).map(|_| r.u64().map(Place)).collect::<Result<_, _>>()?;
        Ok(Filler { root, written, leaked_sectors, pages })
    }

    pub fn sectors(&self) -> u64 {
        self.leaked_sectors + self.pages.len() as u64 + self.root.copies().count() as u64
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        let sum = |at| checksum64(of(at).as_slice());
        (0..).zip(&self.pages).map(move |(at, place)| Extent {
            page: at,
            pages: 1,
            birth: self.written,
            written: self.written,
            place: *place,
            counted: false,
            stored: Stored::Plain([sum(at)].into_iter().collect()),
        })
    }

    /// Reads all of it.
    pub async fn check(&self, pool: &Pool) -> Result<(), PoolError> {
        for extent in self.extents() {
            let pages = pool.read_extent(&extent).await?;
            version_of(SLOTS + extent.page, &pages[0]);
        }
        Ok(())
    }

    /// Shows what was written after `since` from `start` on. Returns where it goes on, if it was
    /// told to stop.
    pub fn walk(
        &self,
        since: Txg,
        start: WalkPosition,
        to: &mut dyn Visitor,
    ) -> Option<WalkPosition> {
        let at = |within| WalkPosition { tree: TREE as u8, within, ..WalkPosition::default() };
        if self.written <= since {
            return None;
        }
        let _ = to.node(&self.root, None, &Span { from: at(0), to: at(u64::MAX) });
        for extent in self.extents().filter(|extent| at(extent.page + 1) > start) {
            if to.extent(&extent, &at(extent.page)).is_break() {
                return Some(at(extent.page + 1));
            }
        }
        None
    }
}
