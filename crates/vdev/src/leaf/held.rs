//! Sectors of a leaf that writes wait for.
//!
//! A write that bridges free sectors between blocks writes zeros there. If one of them is allocated
//! meanwhile, its content must not land first. So who bridges them *holds* them: then looks whether
//! they are free, and writes. A write to held sectors goes to the disk once the other has ended.
//!
//! The order makes it safe. Sectors that are found free are allocated later, and are written later
//! still: that write finds them held.

use std::ops::Range;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{DiskError, Page};
use aquifer_sync::atomic::{AtomicUsize, Ordering};
use aquifer_sync::{Mutex, Notify};

use super::{Act, Io, Leaf};

/// Sectors that are held of a leaf.
#[derive(Debug, Default)]
pub(super) struct Holds {
    ranges: Mutex<Vec<Range<u64>>>,
    /// Their number, for those who find none.
    count: AtomicUsize,
    ended: Notify,
}

/// Sectors that are held as long as this lives.
#[derive(Debug)]
pub struct Held {
    leaf: Arc<Leaf>,
    sectors: Range<u64>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let holds = &self.leaf.holds;
        let mut ranges = holds.ranges.lock();
        if let Some(at) = ranges.iter().position(|range| *range == self.sectors) {
            ranges.swap_remove(at);
            holds.count.store(ranges.len(), Ordering::Release);
        }
        drop(ranges);
        holds.ended.notify_waiters();
    }
}

impl Holds {
    /// Waits while any of these sectors are held.
    pub async fn let_pass(&self, sectors: Range<u64>) {
        // Who was given a sector that was free has had the allocator's lock after it was held.
        while self.count.load(Ordering::Acquire) > 0 && !left_out(Rule::WritesWaitForHolds) {
            let ended = self.ended.notified();
            let meets = |held: &Range<u64>| held.start < sectors.end && sectors.start < held.end;
            if !self.ranges.lock().iter().any(meets) {
                return;
            }
            ended.await;
        }
    }
}

impl Leaf {
    /// Holds sectors: other writes to them wait until it is dropped.
    pub fn hold(self: &Arc<Self>, sectors: Range<u64>) -> Held {
        let mut ranges = self.holds.ranges.lock();
        ranges.push(sectors.clone());
        self.holds.count.store(ranges.len(), Ordering::Release);
        drop(ranges);
        Held { leaf: self.clone(), sectors }
    }

    /// As [`Leaf::write`], also to sectors that are held. They stay held until the disk has
    /// answered, however late.
    pub async fn write_held(
        self: &Arc<Self>,
        sector: u64,
        pages: Vec<Page>,
        held: Vec<Held>,
    ) -> Result<(), DiskError> {
        let (leaf, act) = (self.clone(), Act::Write(sector, pages));
        let (kind, bytes) = (act.kind(), act.bytes());
        let io: Io<()> = Box::pin(async move {
            let done = leaf.answered(leaf.put(act)).await;
            drop(held);
            done
        });
        self.alone(kind, bytes, io).await
    }
}
