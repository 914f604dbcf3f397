//! Work done from time to time in each pool: schedules, scrubs that are due, growth.
//!
//! # Invariants
//! - Each pool has a round of its own. One whose disks do not answer delays no other; it is left
//!   out until its last round has ended.
//! - A round has the turn of its pool, as any act.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::snapshots::holds::tend_holds;
use super::{Control, add, scrub};

/// The rounds that go on, with their pools.
#[derive(Debug, Default)]
pub(super) struct Rounds(Arc<Mutex<BTreeSet<(Round, String)>>>);

/// Kind of work that a round does in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Round {
    /// Takes away the holds that have ended, and takes and prunes the snapshots that are due.
    Snapshots,
    /// Begins a scrub that is due, and uses disks that have become larger.
    Disks,
    /// Lets a new disk replace one that is gone.
    Replacing,
}

impl Rounds {
    /// Begins one, unless the last one of this pool goes on.
    fn begin(&self, round: Round, pool: &str) -> Option<Going> {
        let (all, of) = (Arc::clone(&self.0), (round, pool.to_string()));
        let is_new = all.lock().insert(of.clone());
        is_new.then(|| Going { all, of })
    }
}

/// A round goes on, as long as this lives.
struct Going {
    all: Arc<Mutex<BTreeSet<(Round, String)>>>,
    of: (Round, String),
}

impl Drop for Going {
    fn drop(&mut self) {
        self.all.lock().remove(&self.of);
    }
}

impl Control {
    /// Begins a round in each pool in service, and waits for none.
    pub fn begin_round(self: &Arc<Self>, round: Round) {
        for pool in self.names_in_service() {
            let Some(going) = self.rounds.begin(round, &pool) else { continue };
            let control = Arc::clone(self);
            tokio::spawn(async move {
                control.round(round, &pool).await;
                drop(going);
            });
        }
    }

    async fn round(&self, round: Round, pool: &str) {
        match round {
            Round::Snapshots => {
                if let Ok((_act, serving)) = self.act(pool, "holds that end").await {
                    tend_holds(&serving).await;
                }
                self.snapshots_due_of(pool).await;
            }
            Round::Disks => {
                if let Ok((_act, serving)) = self.act(pool, "a scrub that is due").await {
                    scrub::begin_due(&serving).await;
                }
                if let Ok((_act, serving)) = self.act(pool, "growth of disks").await {
                    add::expand_grown(&serving).await;
                }
            }
            Round::Replacing => self.replace_gone_in(pool).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_goes_on_is_not_begun_again() {
        let rounds = Rounds::default();
        let going = rounds.begin(Round::Disks, "tank").unwrap();
        assert!(rounds.begin(Round::Disks, "tank").is_none());
        let others = [(Round::Disks, "dozer"), (Round::Snapshots, "tank")];
        assert!(others.iter().all(|(round, pool)| rounds.begin(*round, pool).is_some()));
        drop(going);
        assert!(rounds.begin(Round::Disks, "tank").is_some());
    }
}
