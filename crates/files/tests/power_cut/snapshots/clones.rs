//! Clones of snapshots, each a dataset with a model of its own.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use aquifer_blockio::World;
use aquifer_files::Service;
use aquifer_sim::Rng;

use super::acts::{self, full_name};
use super::client::client;
use super::{Model, Run, compare, tell};

/// Clones at a time.
const CLONES_MAX: usize = 2;

/// What is known of a clone.
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

/// Makes, changes or destroys a clone, or acts on its snapshots.
pub(super) async fn act(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
    rng: &mut Rng,
    run: &Mutex<Run>,
) -> Result<(), String> {
    let (names, clones) = {
        let model = model.lock().unwrap();
        (model.there(), model.clones.clone())
    };
    let clones: Vec<(String, Clone)> = clones.into_iter().collect();
    match (rng.below(10), rng.pick(&clones), rng.pick(&names)) {
        (0..=2, _, Some(origin)) if clones.len() < CLONES_MAX => {
            run.lock().unwrap().clones += 1;
            make(service, model, origin).await
        }
        (0, Some((name, _)), _) => destroy(service, model, name).await,
        (1..=3, Some((_, clone)), _) => acts::act(service, world, &clone.model, rng, run).await,
        (_, Some((name, clone)), _) => {
            tell(&format!("work in {name}"));
            let seed = rng.next_u64();
            client(service, &clone.model, Rng::stream(seed, "clone"), 1 + seed % 8).await
        }
        _ => Ok(()),
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
        let own = Model { next: 1_000_000 * model.next(), ..Model::of(&name, state) };
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
        Err(error) if error.to_string().contains("out of space") => {
            model.clones.remove(&name);
        }
        Err(error) => return Err(format!("clone {origin}: {error}")),
    }
    Ok(())
}

async fn destroy(service: &Service, model: &Mutex<Model>, name: &str) -> Result<(), String> {
    tell(&format!("destroy {name}"));
    model.lock().unwrap().clones.get_mut(name).unwrap().doomed = true;
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
    let clones = model.lock().unwrap().clones.clone();
    for (name, clone) in clones {
        match service.datasets.by_name(&name) {
            Some(_) => {
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
