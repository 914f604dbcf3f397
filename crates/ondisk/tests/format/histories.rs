//! Records of the history, of every kind.

use aquifer_ondisk::history::{
    HISTORY_CHANGES_MAX, HistoryChange, HistoryCounters, HistoryRecord, Outcome,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::strategy::time;

/// Texts that may be too long, as callers give them, then cut as before a write.
pub fn history() -> impl Strategy<Value = HistoryRecord> {
    let outcome = select(vec![Outcome::Begun, Outcome::Done, Outcome::Failed, Outcome::Forbidden]);
    let change = ("\\PC{0,80}", "\\PC{0,200}", "\\PC{0,200}")
        .prop_map(|(what, before, after)| HistoryChange { what, before, after });
    let texts = ("\\PC{0,80}", "\\PC{0,80}", "\\PC{0,300}", "\\PC{0,200}");
    let changes = vec(change, 0..=HISTORY_CHANGES_MAX + 1);
    (outcome, 0..HistoryCounters::LIMIT, time(), texts, changes).prop_map(
        |(outcome, order, began, (who, host, act, result), changes)| {
            let (cut, more) = (false, false);
            let mut record =
                HistoryRecord { outcome, cut, more, order, began, who, host, act, result, changes };
            record.shorten();
            record
        },
    )
}

pub fn counters() -> impl Strategy<Value = HistoryCounters> {
    let next = 0..HistoryCounters::LIMIT;
    (next.clone(), next.clone(), next).prop_map(|(order, act, attempt)| HistoryCounters {
        order,
        act,
        attempt,
    })
}
