//! Reads: one copy after the other, until one verifies.
//!
//! A leaf that does not answer soon is not waited for alone: the next one is asked as well, and the
//! first good copy counts. No leaf fails for that. While it is late, others are asked first; so
//! they are if it is much slower than they are. One whose reads fail too often fails.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use aquifer_blockio::{DiskError, Page};

use super::{Good, ReadError, Vdev};
use crate::io::{Begun, IoKind};
use crate::leaf::{Io, Leaf, LeafState, bytes_of};
use crate::ticks::Waiting;

/// The shortest and the longest patience with a read.
const PATIENCE_MS: (u64, u64) = (100, 500);

/// Where is read, and what is good.
struct Wanted<'v> {
    sector: u64,
    count: usize,
    verify: &'v (dyn Fn(&[Page]) -> bool + Sync),
}

/// Bad and unreadable copies that were found so far.
#[derive(Default)]
struct Found {
    /// Leaves whose copy is bad or cannot be read.
    bad: Vec<Arc<Leaf>>,
    unreadable: Option<DiskError>,
}

/// A leaf that was asked and has not answered.
struct Asked<'a> {
    leaf: &'a Arc<Leaf>,
    begun: Begun,
    io: Io<Vec<Page>>,
}

impl Vdev {
    /// Reads `count` sectors that `verify` accepts, and returns the leaves that hold a bad copy.
    pub async fn read_good(
        &self,
        sector: u64,
        count: usize,
        verify: &(dyn Fn(&[Page]) -> bool + Sync),
    ) -> Result<Good, ReadError> {
        let begun = self.io.begin();
        let wanted = Wanted { sector, count, verify };
        let mut found = Found::default();
        let leaves = self.in_turn(sector);
        let pages = match leaves.as_slice() {
            [] => {
                found.unreadable = Some(DiskError::Gone);
                None
            }
            [only] => {
                let begun = only.io.begin();
                let read = only.get(sector, count).await;
                found.judge(only, &wanted, only.has_read(count, begun, read))
            }
            several => read_first(several, &wanted, &mut found).await,
        };
        let pages = match pages {
            Some(pages) => Some(pages),
            None => self.read_resilvered(&wanted).await,
        };
        let vdev = self.index;
        match (pages, found.unreadable) {
            (Some(pages), _) => {
                let good = Good { pages, bad: found.bad };
                self.io.end(IoKind::Read, bytes_of(count), begun, Ok(good))
            }
            (None, Some(error)) => Err(ReadError::Unreadable { vdev, sector, count, error }),
            (None, None) => Err(ReadError::Corrupt { vdev, sector, count }),
        }
    }

    /// Online leaves in the order in which they are asked.
    fn in_turn(&self, sector: u64) -> Vec<&Arc<Leaf>> {
        let mut leaves: Vec<&Arc<Leaf>> = self.online().collect();
        if leaves.len() > 1 {
            // Neighbouring reads go to the same leaf for 1 MiB, so that each can read ahead.
            let turn = usize::try_from(sector / 256).unwrap_or(0) % leaves.len();
            leaves.rotate_left(turn);
            leaves.sort_by_key(|leaf| (leaf.is_late(), leaf.pace.is_read_last(sector)));
        }
        leaves
    }

    /// A leaf that is being resilvered may hold it already, or hold it still. One that failed for
    /// other reads may hold it, too, and so may one that a drill has taken away.
    async fn read_resilvered(&self, wanted: &Wanted<'_>) -> Option<Vec<Page>> {
        for leaf in self.may_hold() {
            if let Ok(pages) = leaf.read(wanted.sector, wanted.count).await
                && (wanted.verify)(&pages)
            {
                return Some(pages);
            }
        }
        None
    }
}

impl Vdev {
    /// Leaves that do not count, and may hold what those that do have lost.
    pub(crate) fn may_hold(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.leaves.iter().filter(|leaf| {
            leaf.state() == LeafState::Resilvering
                || !leaf.is_online() && (leaf.is_faulted() || leaf.is_in_drill())
        })
    }
}

impl Found {
    /// The pages, if they are good. If not, notes why.
    fn judge(
        &mut self,
        leaf: &Arc<Leaf>,
        wanted: &Wanted<'_>,
        read: Result<Vec<Page>, DiskError>,
    ) -> Option<Vec<Page>> {
        let (sector, count) = (wanted.sector, wanted.count);
        match read {
            Ok(pages) if (wanted.verify)(&pages) => return Some(pages),
            Ok(_) => {
                leaf.note_mismatch(sector, count);
            }
            Err(error) => {
                leaf.tell_failed_read(sector, count, &error);
                leaf.has_failed_a_read(&error);
                self.unreadable = Some(error);
            }
        }
        self.bad.push(leaf.clone());
        None
    }
}

/// The first good copy. Leaves that are still being read then are left.
async fn read_first(
    leaves: &[&Arc<Leaf>],
    wanted: &Wanted<'_>,
    found: &mut Found,
) -> Option<Vec<Page>> {
    let mut others = leaves.iter();
    let mut asked: Vec<Asked<'_>> = Vec::with_capacity(1);
    loop {
        let Some((leaf, read)) = first_answer(&mut asked, wanted, others.len() > 0).await else {
            let leaf = others.next()?;
            let io = leaf.begin_read(wanted.sector, wanted.count);
            asked.push(Asked { leaf, begun: leaf.io.begin(), io });
            continue;
        };
        if let Some(pages) = found.judge(leaf, wanted, read) {
            asked.into_iter().for_each(|late| late.leaf.leave_read(late.begun, late.io));
            return Some(pages);
        }
    }
}

/// The next answer of those that were asked. `None`, if nobody is asked, or if the last one does
/// not answer soon and there are others.
async fn first_answer<'a>(
    asked: &mut Vec<Asked<'a>>,
    wanted: &Wanted<'_>,
    are_others: bool,
) -> Option<(&'a Arc<Leaf>, Result<Vec<Page>, DiskError>)> {
    let mut waiting: Option<Waiting> = None;
    poll_fn(|context| {
        for at in 0..asked.len() {
            let Some(one) = asked.get_mut(at) else { break };
            if let Poll::Ready(read) = one.io.as_mut().poll(context) {
                let Asked { leaf, begun, .. } = asked.swap_remove(at);
                return Poll::Ready(Some((leaf, leaf.has_read(wanted.count, begun, read))));
            }
        }
        let Some(newest) = asked.last() else { return Poll::Ready(None) };
        if !are_others {
            return Poll::Pending;
        }
        let waiting = match &mut waiting {
            Some(waiting) => {
                waiting.renew(context);
                waiting
            }
            none => none.insert(Waiting::new(&newest.leaf.ticks, context)),
        };
        let waited_ms = waiting.waited_ms();
        let is_late = newest.leaf.is_too_long(waited_ms, &[IoKind::Read], PATIENCE_MS);
        if is_late { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}
