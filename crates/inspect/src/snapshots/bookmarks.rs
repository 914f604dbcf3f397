//! Bookmarks, as the items of a dataset name them.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use aquifer_ondisk::FormatError;
use aquifer_ondisk::bookmark::BookmarkRecord;
use aquifer_ondisk::dataset::SnapshotRecord;
use aquifer_ondisk::types::{DatasetId, Txg};

use super::invalid;
use crate::scan::Scan;

/// The bookmarks of a dataset, by the txgs of their snapshots.
#[derive(Debug, Default)]
pub(crate) struct Bookmarks {
    pub list: BTreeMap<Txg, SnapshotRecord>,
    /// Destroyed ones, with the txg in which each was.
    destroyed: BTreeMap<Txg, Txg>,
}

impl Bookmarks {
    /// An item.
    pub fn take(&mut self, txg: Txg, value: &[u8]) -> Result<(), FormatError> {
        match BookmarkRecord::decode(value)? {
            BookmarkRecord::Stands(record) => drop(self.list.insert(txg, record)),
            BookmarkRecord::Destroyed { left } => drop(self.destroyed.insert(txg, left)),
        }
        Ok(())
    }

    /// Whether one needs a node of such a life, or its nodes are being freed.
    pub(super) fn need(&self, life: Range<Txg>) -> bool {
        self.list.range(life.clone()).next().is_some()
            || self.destroyed.range(life).next().is_some()
    }

    pub(super) fn check(&self, scan: &mut Scan<'_>, dataset: DatasetId) {
        let (mut guids, mut names) = (HashSet::new(), HashSet::new());
        for (txg, of) in &self.list {
            let name = of.name.as_str();
            let root_is_later = of.objects.is_some_and(|root| root.birth > *txg);
            if *txg >= scan.txg || *txg == Txg(0) || root_is_later {
                invalid(scan, dataset, || format!("bookmark {name:?} is of txg {txg}"));
            }
            if name.is_empty() || name.contains(['/', '#', '\0']) || !names.insert(name) {
                invalid(scan, dataset, || format!("{name:?} is no name of a bookmark"));
            }
            if of.guid.0 == 0 || !guids.insert(of.guid) {
                invalid(scan, dataset, || format!("bookmark {name:?} has no guid of its own"));
            }
        }
        for (txg, left) in &self.destroyed {
            if left <= txg || *left > scan.txg {
                invalid(scan, dataset, || format!("the bookmark of {txg} was destroyed in {left}"));
            }
        }
    }
}
