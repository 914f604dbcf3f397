//! Now and then the dataset has a `refreservation`. What it keeps free is never less than what a
//! walk over its head finds that snapshots show; and no more than that when there are none.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Mutex;

use aquifer_dataset::{Dataset, DatasetError};
use aquifer_files::Service;
use aquifer_object::{btree, extent_tree};
use aquifer_ondisk::extent::PAGE_LIMIT;
use aquifer_ondisk::inode::FileKind;
use aquifer_ondisk::tree_node::Objects;
use aquifer_pool::Pool;
use aquifer_sim::Rng;

use super::{Model, tell};

/// More than the dataset ever refers to.
const RESERVED_BYTES: u64 = 4 << 20;

/// Whether an act found no room.
pub(super) fn is_full(error: &impl Display) -> bool {
    let said = error.to_string();
    said.contains("out of space") || said.contains("refreservation=")
}

/// Sets the property, or takes it away.
pub(super) async fn set(
    service: &Service,
    model: &Mutex<Model>,
    rng: &mut Rng,
) -> Result<(), String> {
    let name = model.lock().unwrap().dataset.clone();
    let bytes = RESERVED_BYTES.to_string();
    let value = (rng.below(4) > 0).then_some(bytes.as_str());
    let done = service.datasets.set(&name, "refreservation", value).await;
    tell(&format!("refreservation {value:?}: {done:?}"));
    match done {
        Ok(()) | Err(DatasetError::BadProperty { .. }) => Ok(()),
        Err(error) if is_full(&error) => Ok(()),
        Err(error) => Err(format!("refreservation: {error}")),
    }
}

/// Own bytes of the head that no snapshot shows, by a walk.
async fn unshown_bytes(service: &Service, dataset: &Dataset) -> Result<u64, String> {
    let pool = service.pool.as_ref();
    let failed = |error: aquifer_pool::PoolError| error.to_string();
    let _reading = pool.reading();
    let root = dataset.committed_objects();
    let mut scan = btree::Scan::<Objects, Pool>::new(pool, root, 0, None).map_err(failed)?;
    // Several entries may be of one extent.
    let mut sectors: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    while let Some(inode) = scan.next().await.map_err(failed)? {
        if inode.kind != FileKind::Regular {
            continue;
        }
        let found = extent_tree::lookup_range(pool, inode.root, 0, PAGE_LIMIT - 1).await;
        for extent in found.map_err(failed)? {
            let is_own = extent.birth > inode.clone_floor();
            if is_own && !dataset.is_shown(inode.object, extent.birth) {
                let key = (extent.place.0, extent.birth.0);
                sectors.insert(key, extent.stored_sectors());
            }
        }
    }
    Ok(sectors.into_values().sum::<u64>() * 4096)
}

/// Compares what is kept with what a walk finds, unless it changes all the time.
pub(super) async fn check(service: &Service, name: &str) -> Result<(), String> {
    let Some(dataset) = service.datasets.by_name(name) else { return Ok(()) };
    for _ in 0..3 {
        let reserved = dataset.properties().refreservation_bytes;
        let now = || (service.pool.committed_txg(), dataset.lacking_bytes(), dataset.refer_bytes());
        let before = now();
        if reserved != RESERVED_BYTES || before.1 == 0 {
            return Ok(());
        }
        let unshown = unshown_bytes(service, &dataset).await?;
        if now() != before || dataset.has_promises() {
            continue;
        }
        let kept = before.1;
        if kept < reserved.saturating_sub(unshown) {
            return Err(format!("{kept} bytes are kept, and no snapshot shows {unshown}"));
        }
        return Ok(());
    }
    Ok(())
}

/// Nothing shows any of it any more.
pub(super) async fn check_end(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    // What a head has of the snapshot as which it began again stays shown.
    if model.lock().unwrap().lines {
        return Ok(());
    }
    let name = model.lock().unwrap().dataset.clone();
    // What was replayed counts as promised until it is on disk.
    service.pool.sync().await.map_err(|error| error.to_string())?;
    let Some(dataset) = service.datasets.by_name(&name) else { return Ok(()) };
    let reserved = dataset.properties().refreservation_bytes;
    let own = dataset.own_bytes() - dataset.dead_bytes();
    let (kept, right) = (dataset.lacking_bytes(), reserved.saturating_sub(own));
    if kept == right {
        return Ok(());
    }
    Err(format!("{kept} bytes are kept, not {right}, when no snapshot is left"))
}
