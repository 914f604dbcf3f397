//! How far copies are behind.

use aquifer_api::{ReplicationInfo, ReplicationState};

use super::Page;

/// The part of the page about copies.
pub(crate) fn copies(all: &[ReplicationInfo]) -> String {
    let mut page = Page::default();
    let each = || {
        all.iter().flat_map(|of| of.copies.iter().map(move |copy| (of, copy))).map(|(of, copy)| {
            let target = match of.target.split_once(':') {
                Some((peer, _)) => format!("{peer}:{}", copy.copy),
                None => copy.copy.clone(),
            };
            (of, copy, target)
        })
    };
    let name = "aquifer_replication_behind_seconds";
    page.family(name, "gauge", "Age of the newest snapshot that a copy is known to have.");
    for (_, copy, target) in each() {
        let labels = [("dataset", copy.dataset.as_str()), ("target", &target)];
        copy.behind_s.iter().for_each(|behind_s| page.sample(name, &labels, *behind_s));
    }
    let name = "aquifer_replication_failed";
    page.family(name, "gauge", "Whether the last run could not bring a copy up to date.");
    for (_, copy, target) in each() {
        let labels = [("dataset", copy.dataset.as_str()), ("target", &target)];
        page.sample(name, &labels, u64::from(copy.state == ReplicationState::Failed));
    }
    // Its dataset is gone, or its pool.
    for of in all.iter().filter(|of| of.copies.is_empty()) {
        let labels = [("dataset", of.dataset.as_str()), ("target", &of.target)];
        page.sample(name, &labels, u64::from(of.state == ReplicationState::Failed));
    }
    page.text
}
