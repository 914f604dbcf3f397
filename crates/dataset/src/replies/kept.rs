//! Answered calls that are kept: a bounded number, for a bounded time, and no client at the cost of
//! another.
//!
//! Invariants:
//! - Every entry is found by its order, by its call unless a later one of the same call is there,
//!   and among those of its client.
//! - The entry that [`Kept::surplus`] names is too old, or belongs to a client that has as many
//!   entries as any other. A client that makes a thousand files a second pushes out its own
//!   entries.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use aquifer_ondisk::Txg;
use aquifer_ondisk::reply::{CallId, ReplyEntry};
use aquifer_pool::intent_log::Ticket;

/// An answered call.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub entry: ReplyEntry,
    /// When it was carried out, or brought back by an import, on the world's clock.
    pub since: Duration,
    /// Record or txg that makes the call durable; `None` once that is known.
    pub waits: Option<Waits>,
    /// The answer, if that is still known.
    pub body: Option<Arc<[u8]>>,
}

/// Record or txg that the answer to a call waits for.
#[derive(Debug, Clone)]
pub(super) enum Waits {
    /// Its record.
    Record(Ticket),
    /// Its txg: an act has no record.
    Txg(Txg),
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Kept {
    entries: BTreeMap<u64, Known>,
    by_call: HashMap<CallId, u64>,
    by_client: HashMap<u128, BTreeSet<u64>>,
    /// (entries, client).
    fullest: BTreeSet<(usize, u128)>,
}

impl Kept {
    pub fn insert(&mut self, known: Known) {
        let (order, call) = (known.entry.order, known.entry.call);
        self.remove(order);
        let newest = self.by_call.entry(call).or_insert(order);
        *newest = (*newest).max(order);
        self.entries.insert(order, known);
        let own = self.by_client.entry(call.client).or_default();
        self.fullest.remove(&(own.len(), call.client));
        own.insert(order);
        self.fullest.insert((own.len(), call.client));
    }

    pub fn remove(&mut self, order: u64) -> Option<Known> {
        let known = self.entries.remove(&order)?;
        let call = known.entry.call;
        if self.by_call.get(&call) == Some(&order) {
            self.by_call.remove(&call);
        }
        if let Some(own) = self.by_client.get_mut(&call.client) {
            self.fullest.remove(&(own.len(), call.client));
            own.remove(&order);
            if own.is_empty() {
                self.by_client.remove(&call.client);
            } else {
                self.fullest.insert((own.len(), call.client));
            }
        }
        Some(known)
    }

    /// The newest answer to a call, unless it was given before `since`.
    pub fn find(&mut self, call: &CallId, since: Duration) -> Option<&mut Known> {
        let known = self.entries.get_mut(self.by_call.get(call)?)?;
        (known.since >= since).then_some(known)
    }

    /// An entry to drop: one from before `since`, or one beyond `limit`.
    pub fn surplus(&self, since: Duration, limit: usize) -> Option<u64> {
        let (oldest, known) = self.entries.first_key_value()?;
        if known.since < since {
            return Some(*oldest);
        }
        if self.entries.len() <= limit {
            return None;
        }
        let (_, client) = self.fullest.last()?;
        self.by_client.get(client)?.first().copied()
    }

    /// The highest order.
    pub fn last_order(&self) -> Option<u64> {
        self.entries.last_key_value().map(|(order, _)| *order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aquifer_ondisk::{DatasetId, ObjectId};

    const LIMIT: usize = 100;

    fn known(order: u64, client: u128, xid: u32, since: u64) -> Known {
        let call = CallId { client, xid, procedure: 8, arguments: 7 };
        let (dataset, object) = (DatasetId(1), ObjectId(0));
        let entry = ReplyEntry { order, call, status: 0, dataset, object, generation: 0 };
        Known { entry, since: Duration::from_secs(since), waits: None, body: None }
    }

    fn let_go(kept: &mut Kept, since: u64) {
        while let Some(order) = kept.surplus(Duration::from_secs(since), LIMIT) {
            assert!(kept.remove(order).is_some());
        }
        assert!(kept.entries.len() <= LIMIT);
        assert_eq!(kept.by_call.len(), kept.entries.len());
        assert_eq!(kept.by_client.values().map(BTreeSet::len).sum::<usize>(), kept.entries.len());
        assert_eq!(kept.fullest.len(), kept.by_client.len());
    }

    #[test]
    fn a_busy_client_pushes_out_only_its_own() {
        let mut kept = Kept::default();
        let quiet = known(1, 1, 1, 0);
        kept.insert(quiet.clone());
        for order in 2..1000 {
            kept.insert(known(order, 2, u32::try_from(order).unwrap(), 0));
            let_go(&mut kept, 0);
        }
        assert!(kept.find(&quiet.entry.call, Duration::ZERO).is_some());
        for order in 1000..1049 {
            kept.insert(known(order, 3, u32::try_from(order).unwrap(), 0));
            let_go(&mut kept, 0);
        }
        let of = |client: u128| kept.by_client[&client].len();
        assert_eq!((of(1), of(2), of(3)), (1, 50, 49));
        assert_eq!(kept.by_client[&2].first(), Some(&950), "the oldest went");
    }

    #[test]
    fn what_is_too_old_is_not_found_and_goes() {
        let mut kept = Kept::default();
        for order in 1..50 {
            kept.insert(known(order, 1, u32::try_from(order).unwrap(), order));
        }
        let call = |order: u64| known(order, 1, u32::try_from(order).unwrap(), 0).entry.call;
        let at = Duration::from_secs(20);
        assert!(kept.find(&call(19), at).is_none());
        assert!(kept.find(&call(20), at).is_some());
        let_go(&mut kept, 20);
        assert_eq!(kept.entries.len(), 30);
    }

    /// A call ran again since its first answer was too old: the later answer counts, also once the
    /// earlier one goes, and whichever came first.
    #[test]
    fn the_later_of_two_answers_counts() {
        for order in [[1, 2], [2, 1]] {
            let mut kept = Kept::default();
            for order in order {
                kept.insert(known(order, 1, 9, 10 * order));
            }
            let call = known(0, 1, 9, 0).entry.call;
            let found = |kept: &mut Kept| {
                kept.find(&call, Duration::from_secs(15)).map(|known| known.entry.order)
            };
            assert_eq!(found(&mut kept), Some(2));
            assert!(kept.remove(1).is_some());
            assert_eq!(found(&mut kept), Some(2));
        }
    }
}
