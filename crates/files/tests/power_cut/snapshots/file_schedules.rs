//! A schedule takes snapshots of files and prunes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use aquifer_blockio::World;
use aquifer_dataset::{Dataset, FileSnapshot, Property};
use aquifer_files::Service;
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::inode::Time;

use super::files::{FileSet, gone};
use super::schedules::QUARTER_NS;
use super::{DATASET, Model, Tree, tell};

/// Schedule for the snapshots of files, which keeps `KEPT` of each file.
const SCHEDULE: &str = "* frequently=1";
const KEPT: usize = 1;

/// Whether a name is that of snapshots which a schedule took.
pub(super) fn is_scheduled(name: &str) -> bool {
    name.starts_with("auto-")
}

/// Some quarters of an hour pass. In each, the next snapshots are due.
pub(super) async fn work(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
) -> Result<(), String> {
    let dataset = service.datasets.by_name(DATASET).ok_or("the dataset is gone")?;
    if service.datasets.value(&dataset, Property::Filesnapshots).0 != SCHEDULE {
        match service.datasets.set(DATASET, "filesnapshots", Some(SCHEDULE)).await {
            Err(error) if super::reserved::is_full(&error) => return Ok(()),
            done => done.map_err(|error| format!("set the schedule: {error}"))?,
        }
    }
    let quarters = 1 + model.lock().unwrap().quarters % 3;
    for _ in 0..quarters {
        due(service, world, (&dataset, model)).await?;
    }
    Ok(())
}

async fn due(
    service: &Service,
    world: &Arc<dyn World>,
    (dataset, model): (&Dataset, &Mutex<Model>),
) -> Result<(), String> {
    let (now, from) = {
        let mut model = model.lock().unwrap();
        model.quarters += 1;
        model.scheduling = true;
        let now = Time::from_ns(world.wall_ns() + model.quarters * QUARTER_NS);
        (now, model.states.len() - 1)
    };
    tell("snapshots of files are due");
    // What the model has is committed: then a path that is found is one of these states.
    service.pool.sync().await.map_err(|error| error.to_string())?;
    let before = marked(dataset);
    let done = service.files.tend_scheduled(service.files.scheduled().await, now).await;
    tell(&format!("  due: {done:?}"));
    let after = marked(dataset);
    check_pruned(&before, &after)?;
    let model = &mut *model.lock().unwrap();
    model.scheduling = false;
    let mut states = model.states[from..].to_vec();
    states.extend(model.coming());
    found(dataset, model, &states);
    match done {
        Err(error) if super::reserved::is_full(&error) => return Ok(()),
        done => done.map_err(|error| format!("snapshots of files are due: {error}"))?,
    }
    let newest: BTreeSet<FileSnapshotId> = {
        let known: BTreeSet<_> = before.values().flatten().map(|of| of.id).collect();
        after.values().flatten().map(|of| of.id).filter(|id| !known.contains(id)).collect()
    };
    let txgs: BTreeSet<_> = newest.iter().map(|id| id.txg()).collect();
    // Else other files may have the names by now.
    let is_quiet = states.windows(2).all(|two| two[0].keys().eq(two[1].keys()));
    let stayed = states[0].keys().next().filter(|_| is_quiet && newest.is_empty());
    match stayed {
        _ if txgs.len() > 1 => Err(format!("a cadence is of several txgs: {newest:?}")),
        Some(name) => Err(format!("nothing was taken, and {name} was there")),
        None => Ok(()),
    }
}

/// Returns the snapshots that schedules took of each file, in order.
fn marked(dataset: &Dataset) -> BTreeMap<ObjectId, Vec<Arc<FileSnapshot>>> {
    let mut marked: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for of in dataset.file_snapshots(aquifer_ondisk::Txg(u64::MAX)) {
        if of.record.schedule.is_some() {
            marked.entry(of.object()).or_default().push(of);
        }
    }
    marked
}

/// The newest of each file stay, and as many as the schedule says at most, if it took one.
fn check_pruned(
    before: &BTreeMap<ObjectId, Vec<Arc<FileSnapshot>>>,
    after: &BTreeMap<ObjectId, Vec<Arc<FileSnapshot>>>,
) -> Result<(), String> {
    for (file, were) in before {
        let there = after.get(file).map_or(&[][..], Vec::as_slice);
        let is_there = |of: &FileSnapshot| there.iter().any(|now| now.id == of.id);
        let pruned = were.iter().rev().find(|of| !is_there(of));
        let newer = pruned.map(|of| there.iter().filter(|now| now.id > of.id).count());
        if newer.is_some_and(|newer| newer != KEPT) {
            return Err(format!("the schedule pruned {pruned:?} of {were:?}"));
        }
        let is_taken = there.last().is_some_and(|of| !were.iter().any(|was| was.id == of.id));
        if is_taken && there.len() > KEPT {
            return Err(format!("the schedule did not prune {there:?}"));
        }
    }
    Ok(())
}

/// A schedule was at work: takes in what it took, and forgets what it pruned. The dataset had these
/// states meanwhile.
pub(super) fn found(dataset: &Dataset, model: &mut Model, states: &[Arc<Tree>]) {
    let mut there: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for of in dataset.file_snapshots(aquifer_ondisk::Txg(u64::MAX)) {
        there.entry(of.record.name.clone()).or_default().insert(of.record.path.clone());
    }
    for (name, files) in there.iter().filter(|(name, _)| is_scheduled(name)) {
        let files = files.iter().map(|path| (path.clone(), None)).collect();
        let new = || FileSet { files, states: states.to_vec(), taken: true, ..FileSet::default() };
        model.file_sets.entry(name.clone()).or_insert_with(new);
    }
    let known: Vec<String> = model.file_sets.keys().cloned().collect();
    for name in known.iter().filter(|name| is_scheduled(name)) {
        let is_there = |path: &&String| there.get(name).is_some_and(|now| now.contains(*path));
        let files = model.file_sets[name].files.keys();
        let pruned: Vec<String> = files.filter(|path| !is_there(path)).cloned().collect();
        gone(model, name, &pruned);
    }
}

/// After a start: marks are where they were.
pub(super) fn check(dataset: &Dataset) -> Result<(), String> {
    let all = dataset.file_snapshots(aquifer_ondisk::Txg(u64::MAX));
    let wrong = all.iter().find(|of| of.record.schedule.is_some() != is_scheduled(&of.record.name));
    match wrong {
        None => Ok(()),
        Some(of) => Err(format!("the mark of a schedule: {:?}", of.record)),
    }
}
