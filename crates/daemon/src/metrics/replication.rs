//! How far copies are behind.

use std::collections::BTreeMap;

use aquifer_api::{ReplicationInfo, ReplicationState};

use super::Page;

/// The part of the page about copies. One that two replications name is one: a page that says a
/// thing twice is refused as a whole.
pub(crate) fn copies(all: &[ReplicationInfo]) -> String {
    let mut copies: BTreeMap<(String, String), Known> = BTreeMap::new();
    for of in all {
        for copy in &of.copies {
            let named = (of.named(copy), of.named_there(&copy.copy));
            let known = copies.entry(named).or_default();
            known.behind_s = known.behind_s.or(copy.behind_s);
            known.has_failed |= copy.state == ReplicationState::Failed;
        }
        // Its dataset is gone, or its pool.
        if of.copies.is_empty() {
            let known = copies.entry((of.dataset.clone(), of.target.clone())).or_default();
            known.has_failed |= of.state == ReplicationState::Failed;
        }
    }
    let mut page = Page::default();
    let name = "aquifer_replication_behind_seconds";
    page.family(name, "gauge", "Age of the newest snapshot that a copy is known to have.");
    for ((dataset, target), known) in &copies {
        let labels = [("dataset", dataset.as_str()), ("target", target)];
        known.behind_s.iter().for_each(|behind_s| page.sample(name, &labels, *behind_s));
    }
    let name = "aquifer_replication_failed";
    page.family(name, "gauge", "Whether the last run could not bring a copy up to date.");
    for ((dataset, target), known) in &copies {
        let labels = [("dataset", dataset.as_str()), ("target", target)];
        page.sample(name, &labels, u64::from(known.has_failed));
    }
    page.text
}

/// State of a copy, as far as it is known.
#[derive(Debug, Default)]
struct Known {
    behind_s: Option<u64>,
    has_failed: bool,
}
