//! The tree of a pool's datasets: names, and which lies above which.
//!
//! A dataset may be older or younger than the one above it, since datasets are renamed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_ondisk::DatasetId;
use aquifer_ondisk::dataset::DATASET_NAME_BYTES_MAX;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;

impl Datasets {
    /// A dataset's full name, the pool's name first, as it is on disk.
    pub fn full_name(&self, dataset: &Dataset) -> String {
        let state = self.state.lock();
        let (mut above, own) = dataset.shown_place();
        let (mut names, mut met) = (vec![own], BTreeSet::from([dataset.id]));
        while let Some(next) = state.datasets.get(&above).filter(|_| met.insert(above)) {
            let (next, name) = next.shown_place();
            names.push(name);
            above = next;
        }
        names.reverse();
        names.join("/")
    }

    /// The datasets above one, the nearest first. A hostile namespace may have a dataset below
    /// itself: each comes once.
    pub(crate) fn above(&self, dataset: &Dataset) -> Vec<Arc<Dataset>> {
        let state = self.state.lock();
        let mut above: Vec<Arc<Dataset>> = Vec::new();
        let mut met = BTreeSet::from([dataset.id]);
        let mut parent = dataset.record.lock().parent;
        while let Some(next) = state.datasets.get(&parent).filter(|_| met.insert(parent)) {
            parent = next.record.lock().parent;
            above.push(next.clone());
        }
        above
    }

    /// The dataset and all above it.
    pub(crate) fn line_of(&self, dataset: &Dataset) -> BTreeSet<DatasetId> {
        let above = self.above(dataset);
        above.iter().map(|above| above.id).chain([dataset.id]).collect()
    }

    /// A dataset and all below it.
    pub fn below(&self, dataset: &Dataset) -> Vec<Arc<Dataset>> {
        let all = self.all();
        all.into_iter().filter(|other| self.line_of(other).contains(&dataset.id)).collect()
    }
}

/// Each dataset before the one above it. A hostile namespace may have a dataset below itself: these
/// come last.
pub(crate) fn children_first(all: Vec<Arc<Dataset>>) -> Vec<Arc<Dataset>> {
    let mut left: BTreeMap<DatasetId, (Arc<Dataset>, usize)> =
        all.into_iter().map(|of| (of.id, (of, 0))).collect();
    let parent_of = |of: &Dataset| of.record.lock().parent;
    let parents: Vec<DatasetId> = left.values().map(|(of, _)| parent_of(of)).collect();
    for parent in parents {
        if let Some((_, children)) = left.get_mut(&parent) {
            *children += 1;
        }
    }
    let is_leaf = |(id, (_, children)): (&DatasetId, &(_, usize))| (*children == 0).then_some(*id);
    let mut ready: Vec<DatasetId> = left.iter().filter_map(is_leaf).collect();
    let mut ordered = Vec::with_capacity(left.len());
    while let Some((of, _)) = ready.pop().and_then(|id| left.remove(&id)) {
        let parent = parent_of(&of);
        if let Some((_, children)) = left.get_mut(&parent) {
            *children = children.saturating_sub(1);
            ready.extend((*children == 0).then_some(parent));
        }
        ordered.push(of);
    }
    ordered.extend(left.into_values().map(|(of, _)| of));
    ordered
}

/// The name above that of a new dataset, and its own last component.
///
/// # Errors
/// No dataset may be called so.
pub(crate) fn split_new(name: &str) -> Result<(&str, &str), DatasetError> {
    let bad = |why: &str| DatasetError::BadName { name: name.into(), why: why.into() };
    let (above, last) = name
        .rsplit_once('/')
        .ok_or_else(|| bad("is a pool's name: a dataset lies below one, as in tank/vms"))?;
    check_component(last).map_err(bad)?;
    Ok((above, last))
}

/// Whether one component of a dataset's name is allowed; if not, why.
fn check_component(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("has an empty component");
    }
    if name.len() > DATASET_NAME_BYTES_MAX {
        return Err("has a component of more than 255 bytes");
    }
    if name == "." || name == ".." {
        return Err("has a component '.' or '..'");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.: ".contains(c)) {
        return Err("may hold letters, digits, '-', '_', '.', ':' and ' ' only");
    }
    Ok(())
}
