//! A pool whose disks do not answer, and give no error either.
//!
//! A last side is waited for ([`aquifer_vdev`]): its disk may answer in a minute, and an error
//! would suspend the pool. Clients are not that patient. So somebody listens once a second
//! ([`Pool::listen`]). If what was owed at one time is still owed [`SILENT_AFTER`] times later, the
//! pool is *silent*. Until it answers, changes are refused before they begin, and callers that wait
//! for the disks may give up ([`Ticket::or_silent`](crate::intent_log::Ticket::or_silent),
//! [`Pool::silence`]).
//!
//! Invariants:
//! - Silence ends nothing: all that was begun goes on, and is durable once the disks have answered.
//!   Who gave up knows nothing of the outcome.
//! - Time is counted in listens of this process, not by the clock: a machine that stood still
//!   blames no disk.

use std::collections::HashMap;

use aquifer_sync::atomic::{AtomicBool, Ordering};
use aquifer_sync::{Mutex, Notify};

use crate::error::PoolError;
use crate::pool::Pool;

/// After this many listens without an answer, one a second, a pool is silent. Clients hear
/// "later" before they send the same again (XCP-ng: after 20 s), lose a lock (ESXi: 35 s), or fail
/// a guest's disk (Windows: 60 s).
pub const SILENT_AFTER: u32 = 10;

/// Parts of the pool that may owe an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owing {
    /// The intent log: its oldest batch.
    Log,
    /// The vdev with this number.
    Vdev(u16),
}

/// Whether the disks answer.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Parts that owed an answer at the last listen: how far each was, and for how many listens.
    owed: Mutex<HashMap<Owing, (u64, u32)>>,
    is_silent: AtomicBool,
    begins: Notify,
}

impl Silence {
    /// Notes what owes an answer now. Whether one has been owed for too long.
    fn note(&self, owing: impl Iterator<Item = (Owing, u64)>) -> bool {
        let mut owed = self.owed.lock();
        let before = std::mem::take(&mut *owed);
        for (what, at) in owing {
            let listens = match before.get(&what) {
                Some((was, listens)) if *was == at => listens.saturating_add(1),
                _ => 0,
            };
            owed.insert(what, (at, listens));
        }
        owed.values().any(|(_, listens)| *listens >= SILENT_AFTER)
    }
}

impl Pool {
    /// Looks whether the disks answer. Call it once a second.
    pub fn listen(&self) {
        // An export waits for the disks too.
        if self.txgs.failure().is_some_and(|error| !matches!(error, PoolError::Exported)) {
            self.silence.is_silent.store(false, Ordering::Release);
            return;
        }
        let tree = self.tree();
        let vdevs = tree.vdevs.iter();
        let vdevs = vdevs.filter_map(|vdev| Some((Owing::Vdev(vdev.index), vdev.owes()?)));
        let log = self.log.owes().map(|batch| (Owing::Log, batch));
        let is_silent = self.silence.note(vdevs.chain(log));
        let was_silent = self.silence.is_silent.swap(is_silent, Ordering::AcqRel);
        let pool = self.name();
        match (was_silent, is_silent) {
            (false, true) => tracing::error!(
                class = "pool.silent", %pool, silent_s = SILENT_AFTER,
                "the disks do not answer: changes wait"
            ),
            (true, false) => {
                tracing::info!(class = "pool.answers", %pool, "the disks answer again");
            }
            _ => {}
        }
        if is_silent {
            // Each time: what was admitted before may have begun to wait since.
            self.log.let_go();
            self.silence.begins.notify_waiters();
        }
    }

    /// Whether the disks have owed answers for so long that nobody should begin to wait for them.
    pub fn is_silent(&self) -> bool {
        self.silence.is_silent.load(Ordering::Relaxed)
    }

    /// The disks for which a silent pool waits, by their paths.
    pub fn silent_disks(&self) -> Vec<String> {
        let tree = self.tree();
        let owing = tree.vdevs.iter().filter(|vdev| vdev.owes().is_some());
        owing.flat_map(|vdev| vdev.online()).map(|leaf| leaf.path.clone()).collect()
    }

    /// Waits until the pool is silent.
    pub async fn silence(&self) {
        let mut begins = std::pin::pin!(self.silence.begins.notified());
        begins.as_mut().enable();
        if !self.is_silent() {
            begins.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_is_not_silent_and_each_thing_is_counted_alone() {
        let silence = Silence::default();
        let mut log = 0;
        for _ in 0..2 * SILENT_AFTER {
            log += 1;
            assert!(!silence.note([(Owing::Log, log)].into_iter()), "it moves");
        }
        for listen in 0..=SILENT_AFTER {
            let owing = [(Owing::Log, log), (Owing::Vdev(1), 7)].into_iter();
            // The log was where it is one listen before.
            assert_eq!(silence.note(owing), listen + 1 >= SILENT_AFTER, "{listen}");
        }
        assert!(silence.note([(Owing::Vdev(1), 7)].into_iter()), "the vdev still owes");
        assert!(!silence.note([(Owing::Vdev(1), 8)].into_iter()), "it has answered");
        assert!(!silence.note([].into_iter()));
    }
}
