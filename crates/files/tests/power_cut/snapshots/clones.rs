//! Clones of snapshots, each a dataset with a model of its own.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use aquifer_blockio::World;
use aquifer_files::Service;
use aquifer_sim::Rng;

use super::acts::{self, full_name};
use super::client::client;
use super::{Model, Run, Top, compare, tell};

/// Clones at a time.
const CLONES_MAX: usize = 2;

/// Facts known of a clone.
#[derive(Debug, Clone)]
pub(super) struct Clone {
    pub model: Arc<Mutex<Model>>,
    /// Name of the snapshot that it began as.
    origin: String,
    /// Making it was answered.
    made: bool,
    /// Its destruction was asked for.
    doomed: bool,
}

/// The snapshots that have clones.
pub(super) fn origins(model: &Model) -> BTreeSet<String> {
    model.clones.values().map(|clone| clone.origin.clone()).collect()
}

/// Whether one of these snapshots has a clone.
pub(super) fn pinned(model: &Mutex<Model>, snapshots: &[String]) -> bool {
    let origins = origins(&model.lock().unwrap());
    snapshots.iter().any(|name| origins.contains(name))
}

pub(super) fn renamed(model: &mut Model, name: &str, to: &str) {
    for clone in model.clones.values_mut().filter(|clone| clone.origin == name) {
        clone.origin = to.into();
    }
}

/// Makes, changes, promotes or destroys a clone, or acts on its snapshots. A client works in the
/// `busy` dataset.
pub(super) async fn act(
    service: &Service,
    world: &Arc<dyn World>,
    (top, busy): (&Top, &str),
    rng: &mut Rng,
    run: &Mutex<Run>,
) -> Result<(), String> {
    let model = &top.now();
    let (names, clones, promotes) = {
        let model = model.lock().unwrap();
        (model.there(), model.clones.clone(), model.promotes)
    };
    let clones: Vec<(String, Clone)> = clones.into_iter().collect();
    let kind = rng.below(10);
    match (kind, rng.pick(&clones), rng.pick(&names)) {
        (0..=2, _, Some(origin)) if clones.len() < CLONES_MAX => {
            run.lock().unwrap().clones += 1;
            make(service, model, origin).await
        }
        (0, Some((name, _)), _) => destroy(service, model, name).await,
        (1..=3, Some((_, clone)), _) => acts::act(service, world, &clone.model, rng, run).await,
        (4..=6, Some((name, _)), _) if promotes => {
            run.lock().unwrap().promotions += 1;
            promote(service, top, name).await
        }
        (7, Some((name, _)), _) if model.lock().unwrap().promoted => {
            destroy(service, model, name).await
        }
        (_, Some((name, clone)), _) => {
            // The one that was promoted has no client.
            let is_top = !model.lock().unwrap().dataset.eq(busy);
            let of = match name == busy {
                true if is_top => model,
                true => return Ok(()),
                false => &clone.model,
            };
            tell(&format!("work in {}", of.lock().unwrap().dataset));
            let seed = rng.next_u64();
            client(service, of, Rng::stream(seed, "clone"), 1 + seed % 8, run).await
        }
        _ => Ok(()),
    }
}

/// A clone and its origin change places.
async fn promote(service: &Service, top: &Top, name: &str) -> Result<(), String> {
    let model = top.now();
    let (origin, all) = {
        let model = model.lock().unwrap();
        let dataset = service.datasets.by_name(&model.dataset).ok_or("the dataset is gone")?;
        let all = dataset.snapshots(service.pool.committed_txg());
        let all: Vec<String> = all.iter().map(|of| of.record.name.clone()).collect();
        (model.clones[name].origin.clone(), all)
    };
    let upto = all.iter().position(|other| *other == origin).ok_or("the origin is gone")?;
    let (moved, stay) = all.split_at(upto + 1);
    {
        let mut model = model.lock().unwrap();
        let is_bare = |name: &String| {
            let known = &model.snapshots[name];
            known.holds.is_empty() && !known.scheduled
        };
        // Clones of clones, and holds on snapshots of clones, are not followed.
        let others = origins(&model);
        if !stay.iter().all(is_bare) || stay.iter().any(|name| others.contains(name)) {
            return Ok(());
        }
        model.promoting = Some((name.into(), moved.to_vec()));
    }
    tell(&format!("promote {name}, with {moved:?}"));
    let done = service.datasets.promote(name).await;
    tell(&format!("  {done:?}"));
    match done {
        Ok(done) if done.snapshots != moved => Err(format!("promote {name}: {done:?}")),
        Ok(_) => {
            change_places(top);
            Ok(())
        }
        Err(error) if super::reserved::is_full(&error) => {
            model.lock().unwrap().promoting = None;
            Ok(())
        }
        Err(error) => Err(format!("promote {name}: {error}")),
    }
}

/// The promotion that was asked for has been carried out.
fn change_places(top: &Top) {
    let old = top.now();
    let promoted = {
        let mut model = old.lock().unwrap();
        let (name, moved) = model.promoting.take().unwrap();
        let clone = model.clones.remove(&name).unwrap();
        let mut new = clone.model.lock().unwrap();
        for name in moved {
            let known = model.snapshots.remove(&name).unwrap();
            new.snapshots.insert(name, known);
        }
        new.clones = std::mem::take(&mut model.clones);
        let (origin, dataset) = (clone.origin.clone(), model.dataset.clone());
        let old = Clone { model: old.clone(), origin, made: true, doomed: false };
        new.clones.insert(dataset, old);
        std::mem::swap(&mut new.served, &mut model.served);
        (new.families, new.promotes) = (model.families, model.promotes);
        (new.is_top, model.is_top) = (true, false);
        (new.promoted, model.promoted) = (true, true);
        drop(new);
        clone.model
    };
    top.set(promoted);
}

/// After a start: a promotion that was asked for was carried out, or was not.
pub(super) fn find_promotion(service: &Service, top: &Top) {
    let model = top.now();
    let Some((name, _)) = model.lock().unwrap().promoting.clone() else { return };
    let dataset = service.datasets.by_name(&name);
    match dataset.is_some_and(|of| service.datasets.origin_of(&of).is_none()) {
        true => change_places(top),
        false => model.lock().unwrap().promoting = None,
    }
}

/// Clones of these snapshots are to go with them, all at once. Returns their names.
pub(super) fn doom(model: &Mutex<Model>, snapshots: &[String]) -> Vec<String> {
    let mut model = model.lock().unwrap();
    let doomed = model.clones.iter_mut().filter(|(_, clone)| snapshots.contains(&clone.origin));
    let names: Vec<String> = doomed
        .map(|(name, clone)| {
            clone.doomed = true;
            // A client may work in it.
            clone.model.lock().unwrap().doomed = true;
            name.clone()
        })
        .collect();
    model.together = Some((snapshots.to_vec(), names.clone()));
    names
}

/// They stay.
pub(super) fn spare(model: &mut Model) {
    for name in model.together.take().map_or(Vec::new(), |(_, clones)| clones) {
        let clone = model.clones.get_mut(&name).unwrap();
        clone.doomed = false;
        clone.model.lock().unwrap().doomed = false;
    }
}

/// They are gone.
pub(super) fn gone(model: &mut Model) {
    for name in model.together.take().map_or(Vec::new(), |(_, clones)| clones) {
        let gone = model.clones.remove(&name).unwrap();
        model.past_clones.insert(name, gone);
    }
}

/// After a start: snapshots that were to go with their clones are gone, or all are there.
pub(super) fn check_together(
    service: &Service,
    model: &Mutex<Model>,
    there: &[String],
) -> Result<(), String> {
    let together = model.lock().unwrap().together.take();
    let Some((snapshots, clones)) = together else { return Ok(()) };
    let snapshots = snapshots.iter().map(|name| there.contains(name));
    let clones = clones.iter().map(|name| service.datasets.by_name(name).is_some());
    let left: Vec<bool> = snapshots.chain(clones).collect();
    match left.iter().all(|is_there| *is_there == left[0]) {
        true => Ok(()),
        false => Err(format!("only a part of a destroy: {left:?}")),
    }
}

async fn make(service: &Service, model: &Mutex<Model>, origin: &str) -> Result<(), String> {
    // From here on it has one state.
    compare(service, model, origin).await?;
    let name = {
        let mut model = model.lock().unwrap();
        let name = format!("tank/c{}", model.next());
        let state = model.snapshots.get(origin).unwrap().states[0].clone();
        // Marks must differ from those of the origin.
        model.families += 1;
        let (next, of_files) = (1_000_000_000 * model.families, model.of_files);
        let own = Model { next, of_files, lines: model.lines, ..Model::of(&name, state) };
        let own = Arc::new(Mutex::new(own));
        let clone = Clone { model: own, origin: origin.into(), made: false, doomed: false };
        model.clones.insert(name.clone(), clone);
        name
    };
    tell(&format!("clone {origin} as {name}"));
    let done = service.datasets.clone_snapshot(&full_name(model, origin), &name, &[]).await;
    tell(&format!("  {done:?}"));
    let mut model = model.lock().unwrap();
    match done {
        Ok(()) => model.clones.get_mut(&name).unwrap().made = true,
        Err(error) if super::reserved::is_full(&error) => {
            model.clones.remove(&name);
        }
        Err(error) => return Err(format!("clone {origin}: {error}")),
    }
    Ok(())
}

async fn destroy(service: &Service, model: &Mutex<Model>, name: &str) -> Result<(), String> {
    tell(&format!("destroy {name}"));
    {
        let mut model = model.lock().unwrap();
        let clone = model.clones.get_mut(name).unwrap();
        clone.doomed = true;
        // A client may work in it.
        clone.model.lock().unwrap().doomed = true;
    }
    let done = service.datasets.destroy(name, true).await;
    done.map_err(|error| format!("destroy {name}: {error}"))?;
    let mut model = model.lock().unwrap();
    let gone = model.clones.remove(name).unwrap();
    model.past_clones.insert(name.into(), gone);
    Ok(())
}

pub(super) async fn destroy_all(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    let names: Vec<String> = model.lock().unwrap().clones.keys().cloned().collect();
    for name in names {
        destroy(service, model, &name).await?;
    }
    Ok(())
}

/// Compares all clones with what is known, after a start.
pub(super) async fn check(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    // The power may go meanwhile: nothing is forgotten.
    let (of, clones) = {
        let model = model.lock().unwrap();
        (model.dataset.clone(), model.clones.clone())
    };
    for (name, clone) in clones {
        match service.datasets.by_name(&name) {
            Some(dataset) => {
                let origin = service.datasets.origin_of(&dataset);
                if origin != Some(format!("{of}@{}", clone.origin)) {
                    return Err(format!("{name} is a clone of {origin:?}, not {}", clone.origin));
                }
                clone.model.lock().unwrap().doomed = false;
                super::check(service, &clone.model).await?;
                let clone = Clone { made: true, doomed: false, ..clone };
                model.lock().unwrap().clones.insert(name, clone);
            }
            None if clone.made && !clone.doomed => return Err(format!("{name} is lost")),
            None => {
                let mut model = model.lock().unwrap();
                model.clones.remove(&name);
                model.past_clones.insert(name, clone);
            }
        }
    }
    Ok(())
}

/// After a rewind: what is there must have been there at some time.
pub(super) async fn check_past(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    let all = {
        let model = model.lock().unwrap();
        let mut all = model.past_clones.clone();
        all.extend(model.clones.clone());
        all
    };
    for (name, clone) in all {
        let Some(dataset) = service.datasets.by_name(&name) else {
            let mut model = model.lock().unwrap();
            model.clones.remove(&name);
            model.past_clones.insert(name, clone);
            continue;
        };
        super::check_past(service, &clone.model).await?;
        let origin = service.datasets.origin_of(&dataset).ok_or("a clone has no origin")?;
        let origin = origin.split_once('@').map(|(_, name)| name.to_string()).unwrap();
        let clone = Clone { origin, made: true, doomed: false, ..clone };
        model.lock().unwrap().clones.insert(name, clone);
    }
    Ok(())
}
