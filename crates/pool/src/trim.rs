//! Work on the space in which nothing lives: discarding it (trim), writing over it (initialize).
//!
//! # Why it destroys nothing
//! The sectors are **lent** by the allocator. They are free in the newest root and in the two
//! before it, read by nobody, and given to no change as long as the loan lasts. It lasts until the
//! disk has answered, however late. So no write waits for a discard, none is overtaken by one, and
//! an import that goes back finds its blocks. An export waits for all loans: after it the disks may
//! be another's.
//!
//! # Why nobody waits for it
//! Loans are small, and a pool that needs its space lends nothing. Beside clients the work keeps
//! the share of all background work ([`Pool::in_background`]).

mod auto;
mod job;
mod kept;
mod open;

use std::sync::{Arc, Weak};

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_sync::atomic::AtomicBool;
use aquifer_sync::{Mutex, Notify};

use crate::pool::Pool;

pub use job::{FreeWork, FreeWorkError, FreeWorkState, FreeWorkStatus};

/// Sectors that are discarded together at least: 64 KiB. Smaller discards cost more than they free.
pub(crate) const TRIM_SECTORS_MIN: u64 = 16;

/// Sectors that are lent at most: 64 MiB.
const LENT_SECTORS_MAX: u64 = 16_384;

/// State that a pool keeps of work on its free space.
#[derive(Debug, Default)]
pub(crate) struct Trims {
    /// Whether released space is discarded.
    autotrim: AtomicBool,
    released: auto::Released,
    jobs: job::Jobs,
    kept: kept::Kept,
    open: open::Open,
    loans: Mutex<Vec<Known>>,
    /// Something was released, or the pool ends.
    pub wanted: Notify,
}

/// The piece of which a loan is, the least length of its runs, and the loan.
#[derive(Debug)]
struct Known(Run, u64, Weak<Loan>);

/// Sectors that no change gets while this lives. Sides of a mirror that come to the same piece at
/// the same time share it.
#[derive(Debug)]
struct Loan {
    pool: Weak<Pool>,
    within: Run,
    runs: Vec<Run>,
    /// Frees that are held back: only where the simulator leaves out a rule.
    held: Vec<Run>,
}

impl Loan {
    /// Iterates over the runs that are worked on.
    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().chain(&self.held)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut loans = pool.acts.trims.loans.lock();
        loans.retain(|Known(within, ..)| *within != self.within);
        if !left_out(Rule::LentIsNotAllocated) {
            pool.space.lock().give_back(&self.runs);
        }
    }
}

/// The answer to one who wants to borrow.
enum Lending {
    Lent(Arc<Loan>),
    /// A part of it is lent already.
    Busy,
    /// The free space there is not known.
    Unknown,
    /// The pool needs its space, or enough is lent.
    Refused,
}

impl Pool {
    /// Sectors that may be lent at once. So much more free space than they may need has been loaded
    /// for syncs.
    pub(crate) fn lent_sectors_max(&self) -> u64 {
        LENT_SECTORS_MAX.min(self.slop_sectors() / 4)
    }

    /// Sectors of a loan at most: a part of a segment, so that it crosses no metaslab.
    fn loan_sectors(&self) -> u64 {
        let most = (self.lent_sectors_max() / 2).clamp(TRIM_SECTORS_MIN, SEGMENT_SECTORS);
        1 << most.ilog2()
    }

    /// Whether something is lent.
    pub(crate) fn lends(&self) -> bool {
        self.space.lock().lent_sectors() > 0
    }

    /// Lends the free runs of at least `min` sectors in `within`.
    fn lend(&self, within: Run, min: u64) -> Lending {
        let loan = {
            let mut loans = self.acts.trims.loans.lock();
            if let Some(Known(of, least, loan)) = loans.iter().find(|known| known.meets(within)) {
                let is_same = *of == within && *least == min;
                return loan.upgrade().filter(|_| is_same).map_or(Lending::Busy, Lending::Lent);
            }
            let mut space = self.space.lock();
            if space.lent_sectors() + within.sectors > self.lent_sectors_max() {
                return Lending::Refused;
            }
            let Some(runs) = space.lend(within, min) else { return Lending::Unknown };
            let held = match left_out(Rule::DiscardAfterRelease) {
                true => space.held_in(within),
                false => Vec::new(),
            };
            if left_out(Rule::LentIsNotAllocated) {
                space.give_back(&runs);
            }
            let loan = Arc::new(Loan { pool: self.this.clone(), within, runs, held });
            loans.push(Known(within, min, Arc::downgrade(&loan)));
            loan
        };
        // Looked at once the loan is counted: what is admitted from here on knows of it.
        let needed = self.txgs.reserved_sectors() + self.slop_sectors();
        if self.space.free_sectors() < needed || self.txgs.failure().is_some() {
            return Lending::Refused;
        }
        Lending::Lent(loan)
    }
}

impl Known {
    fn meets(&self, other: Run) -> bool {
        let Known(own, ..) = self;
        own.place.vdev() == other.place.vdev()
            && own.place.sector() < other.end_sector()
            && other.place.sector() < own.end_sector()
    }
}
