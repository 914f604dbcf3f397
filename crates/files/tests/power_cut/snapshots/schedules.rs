//! A schedule takes snapshots of the dataset and prunes them.

use std::sync::{Arc, Mutex};

use aquifer_blockio::World;
use aquifer_dataset::Property;
use aquifer_files::Service;
use aquifer_ondisk::inode::Time;

use super::{DATASET, Holds, Known, Model, Tree, clones, tell};

/// Schedule for the snapshots of the dataset, which keeps `KEPT`.
const SCHEDULE: &str = "frequently=2";
const KEPT: usize = 2;
pub(super) const QUARTER_NS: u64 = 900 * 1_000_000_000;

/// A quarter of an hour passes: the next snapshot is due.
pub(super) async fn work(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
) -> Result<(), String> {
    let dataset = service.datasets.by_name(DATASET).ok_or("the dataset is gone")?;
    if service.datasets.value(&dataset, Property::Snapshots).0 != SCHEDULE {
        match service.datasets.set(DATASET, "snapshots", Some(SCHEDULE)).await {
            Err(error) if super::reserved::is_full(&error) => return Ok(()),
            done => done.map_err(|error| format!("set the schedule: {error}"))?,
        }
    }
    let (now, from) = {
        let mut model = model.lock().unwrap();
        model.quarters += 1;
        model.scheduling = true;
        let may_go = |known: &&mut Known| known.scheduled && !known.is_held_for_good();
        model.snapshots.values_mut().filter(may_go).for_each(|known| known.doomed = true);
        let now = Time::from_ns(world.wall_ns() + model.quarters * QUARTER_NS);
        (now, model.states.len() - 1)
    };
    tell("a snapshot is due");
    let done = service.datasets.snapshots_if_due(now).await;
    tell(&format!("  due: {done:?}"));
    let there = dataset.snapshots(service.pool.committed_txg());
    let there: Vec<String> = there.iter().map(|of| of.record.name.clone()).collect();
    let model = &mut *model.lock().unwrap();
    model.scheduling = false;
    let mut states = model.states[from..].to_vec();
    states.extend(model.coming());
    let before = model.snapshots.len();
    found(model, &there, &states);
    let served = model.served.until(world.now());
    let is_new = model.snapshots.len() > before;
    let pinned = clones::origins(model);
    for (name, known) in std::mem::take(&mut model.snapshots) {
        if there.contains(&name) {
            let doomed = known.doomed && !known.scheduled;
            model.snapshots.insert(name, Known { doomed, ..known });
        } else if known.doomed && !known.must_stay(served) && !pinned.contains(&name) {
            model.past_snapshots.insert(name, known.states);
        } else {
            return Err(format!("the schedule pruned {name}"));
        }
    }
    match done {
        Err(error) if super::reserved::is_full(&error) => return Ok(()),
        Ok(()) if is_new => {}
        done => return Err(format!("a snapshot is due: {done:?}, {there:?}")),
    }
    let free = |(name, known): &(&String, &Known)| {
        known.scheduled && known.holds.is_empty() && !pinned.contains(*name)
    };
    match model.snapshots.iter().filter(free).count() > KEPT {
        true => Err(format!("the schedule did not prune: {there:?}")),
        false => Ok(()),
    }
}

/// Snapshots that a schedule took.
pub(super) fn found(model: &mut Model, there: &[String], states: &[Arc<Tree>]) {
    for name in there.iter().filter(|name| name.starts_with("auto-")) {
        model.snapshots.entry(name.clone()).or_insert_with(|| Known {
            states: states.to_vec(),
            taken: true,
            doomed: false,
            renamed: None,
            holds: Holds::new(),
            scheduled: true,
        });
    }
}

/// After a start: the mark of a schedule is where it was.
pub(super) fn check(service: &Service, model: &Model, name: &str) -> Result<(), String> {
    let full = format!("{}@{name}", model.dataset);
    let found = service.datasets.snapshot_by_name(&full).map_err(|error| error.to_string())?;
    let has_mark = service.datasets.schedule_of(&found.0, found.1.txg).is_some();
    match model.snapshots[name].scheduled == has_mark {
        true => Ok(()),
        false => Err(format!("snapshot {name}: a schedule's mark is there: {has_mark}")),
    }
}
