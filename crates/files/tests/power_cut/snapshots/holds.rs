//! Holds: placed and released between the other acts. A snapshot with a hold stays, of a dataset or
//! of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_dataset::DatasetError;
use aquifer_files::Service;
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_sim::Rng;

use super::acts::full_name;
use super::{Known, Model, files, tell};

/// Facts known of a hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// Placing it was answered.
    placed: bool,
    /// Releasing it was asked for.
    leaving: bool,
    /// It stands until the pool was in service so long; `None`: until it is released.
    until: Option<Duration>,
    /// It has ended by itself. A cut sets the pool's hold clock back, and it may stand again.
    ended: bool,
}

/// By tag.
pub(super) type Holds = BTreeMap<String, Held>;

/// The time in which the pool was in service.
#[derive(Debug, Default)]
pub(super) struct Served {
    before: Duration,
    since: Option<Duration>,
}

impl Served {
    pub fn begin(&mut self, now: Duration) {
        self.since = Some(now);
    }

    pub fn end(&mut self, now: Duration) {
        self.before = self.until(now);
        self.since = None;
    }

    /// At most.
    pub fn until(&self, now: Duration) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

impl Known {
    /// Whether a hold keeps it for certain.
    pub fn must_stay(&self, served: Duration) -> bool {
        self.holds.values().any(|held| held.must_stand(served))
    }

    /// Whether a hold keeps it until that is released.
    pub fn is_held_for_good(&self) -> bool {
        self.holds.values().any(|held| held.until.is_none())
    }
}

impl Held {
    fn must_stand(self, served: Duration) -> bool {
        self.placed && !self.leaving && self.until.is_none_or(|until| served < until)
    }
}

/// Compares the holds that there are with what is known, after a start.
pub(super) fn check(
    service: &Service,
    model: &mut Model,
    name: &str,
    served: Duration,
) -> Result<(), String> {
    let there = tags(service, &model.dataset, name)?;
    let known = model.snapshots.get_mut(name).unwrap();
    for (tag, held) in std::mem::take(&mut known.holds) {
        if there.contains(&tag) {
            known.holds.insert(tag, Held { placed: true, leaving: false, ended: false, ..held });
        } else if held.must_stand(served) {
            return Err(format!("hold {tag} on {name} is lost; there are {there:?}"));
        } else if held.until.is_some() {
            known.holds.insert(tag, Held { ended: true, ..held });
        }
    }
    match there.iter().find(|tag| !known.holds.contains_key(*tag)) {
        Some(tag) => Err(format!("hold {tag} on {name} was released, and is there")),
        None => Ok(()),
    }
}

/// After a rewind: whatever is there.
pub(super) fn found(service: &Service, dataset: &str, name: &str) -> Result<Holds, String> {
    // Those with an end may have any.
    let held = Held { placed: true, leaving: false, until: Some(Duration::ZERO), ended: false };
    Ok(tags(service, dataset, name)?.into_iter().map(|tag| (tag, held)).collect())
}

fn tags(service: &Service, dataset: &str, name: &str) -> Result<Vec<String>, String> {
    let found = service.datasets.snapshot_by_name(&format!("{dataset}@{name}"));
    let (dataset, snapshot) = found.map_err(|error| error.to_string())?;
    let holds = service.datasets.holds(&dataset, snapshot.txg);
    Ok(holds.into_iter().map(|hold| hold.tag).collect())
}

pub(super) async fn hold(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
    rng: &mut Rng,
    name: &str,
) -> Result<(), String> {
    let seconds = (rng.below(2) == 0).then(|| 1 + rng.below(2));
    let until_s = seconds.map(|seconds| world.wall_ns() / 1_000_000_000 + seconds);
    let tag = {
        let mut model = model.lock().unwrap();
        let tag = format!("h{}", model.next());
        let served = model.served.until(world.now());
        let until = seconds.map(|seconds| served + Duration::from_secs(seconds));
        let held = Held { placed: false, leaving: false, until, ended: false };
        model.snapshots.get_mut(name).unwrap().holds.insert(tag.clone(), held);
        tag
    };
    tell(&format!("hold {name} by {tag} for {seconds:?} s"));
    let found = service.datasets.snapshot_by_name(&full_name(model, name));
    let (dataset, snapshot) = found.map_err(|error| format!("{name}: {error}"))?;
    let done = service.datasets.hold(&tag, &[(dataset, snapshot.txg)], until_s).await;
    let mut model = model.lock().unwrap();
    let holds = &mut model.snapshots.get_mut(name).unwrap().holds;
    match done {
        Ok(()) => holds.get_mut(&tag).unwrap().placed = true,
        Err(error) if is_full(&error) => {
            holds.remove(&tag);
        }
        Err(error) => return Err(format!("hold {name}: {error}")),
    }
    Ok(())
}

/// No room, or as many holds as there may be.
fn is_full(error: &DatasetError) -> bool {
    let said = error.to_string();
    said.contains("out of space") || said.contains("takes no more")
}

/// Releases a hold, if there is one. One with an end stays.
pub(super) async fn release(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
    name: &str,
) -> Result<(), String> {
    let (tag, held) = {
        let mut model = model.lock().unwrap();
        let holds = &mut model.snapshots.get_mut(name).unwrap().holds;
        let mut standing = holds.iter_mut().filter(|(_, held)| !held.ended);
        let Some((tag, held)) = standing.next() else { return Ok(()) };
        // It may have ended by itself, or its end is not known.
        held.leaving = held.until.is_none_or(|until| until.is_zero());
        (tag.clone(), *held)
    };
    tell(&format!("release {name} by {tag}"));
    let found = service.datasets.snapshot_by_name(&full_name(model, name));
    let (dataset, snapshot) = found.map_err(|error| format!("{name}: {error}"))?;
    let done = service.datasets.release(&tag, &[(dataset, snapshot.txg)]).await;
    let mut model = model.lock().unwrap();
    let served = model.served.until(world.now());
    let holds = &mut model.snapshots.get_mut(name).unwrap().holds;
    match done {
        Ok(()) if held.must_stand(served) => Err(format!("hold {tag} was released before its end")),
        Ok(()) => {
            holds.remove(&tag);
            Ok(())
        }
        Err(_) if held.must_stand(served) => Ok(()),
        Err(DatasetError::BadHold { why, .. }) if why.contains("there is none") => {
            holds.get_mut(&tag).unwrap().ended = true;
            Ok(())
        }
        Err(_) if held.until.is_some() => Ok(()),
        Err(error) => Err(format!("release {name}: {error}")),
    }
}

/// Releases all holds; those with an end, it waits for.
pub(super) async fn release_all(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
) -> Result<(), String> {
    // Longer than any hold of this world.
    world.sleep(Duration::from_secs(4)).await;
    let names: Vec<String> = model.lock().unwrap().snapshots.keys().cloned().collect();
    for name in names {
        while !model.lock().unwrap().snapshots[&name].holds.values().all(|held| held.ended) {
            release(service, world, model, &name).await?;
        }
    }
    Ok(())
}

/// The hold on snapshots of files.
const OF_FILES: &str = "files";

/// Holds some of a set, cannot destroy them then, and releases them.
pub(super) async fn files_are_held(
    service: &Service,
    model: &Mutex<Model>,
    name: &str,
    files: &[String],
) -> Result<(), String> {
    let dataset = files::dataset_of(service, model)?;
    let there = files::there(service, model)?.remove(name).unwrap_or_default();
    let ids = files.iter().filter_map(|path| there.get(path).map(|of| of.id));
    let ids: BTreeSet<FileSnapshotId> = ids.collect();
    let on: Vec<_> = ids.iter().map(|id| (dataset.clone(), *id)).collect();
    tell(&format!("hold {files:?}@{name}"));
    match service.datasets.hold(OF_FILES, &on, None).await {
        Ok(()) => {}
        Err(error) if is_full(&error) => return Ok(()),
        Err(error) => return Err(format!("hold {files:?}@{name}: {error}")),
    }
    let held = |held: BTreeSet<String>| {
        model.lock().unwrap().file_sets.get_mut(name).unwrap().held = held;
    };
    held(files.iter().cloned().collect());
    match service.datasets.destroy_file_snapshots(&[(dataset, ids)]).await {
        Err(DatasetError::Held { .. }) => {}
        done => return Err(format!("{files:?}@{name} is held, and destroyed: {done:?}")),
    }
    held(BTreeSet::new());
    let released = service.datasets.release(OF_FILES, &on).await;
    released.map_err(|error| format!("release {files:?}@{name}: {error}"))
}

/// After a start: no hold on snapshots of files was lost. They are released.
pub(super) async fn release_files(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    let dataset = files::dataset_of(service, model)?;
    let mut on = Vec::new();
    for (name, files) in files::there(service, model)? {
        let held = match model.lock().unwrap().file_sets.get_mut(&name) {
            Some(set) => std::mem::take(&mut set.held),
            None => BTreeSet::new(),
        };
        for (path, of) in files {
            let is_held = !service.datasets.holds(&dataset, of.id).is_empty();
            if held.contains(&path) && !is_held {
                return Err(format!("the hold on {path}@{name} is lost"));
            }
            on.extend(is_held.then(|| (dataset.clone(), of.id)));
        }
    }
    if on.is_empty() {
        return Ok(());
    }
    service.datasets.release(OF_FILES, &on).await.map_err(|error| error.to_string())
}
