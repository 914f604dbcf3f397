//! The administrator's acts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_dataset::DatasetError;
use aquifer_files::Service;
use aquifer_sim::Rng;

use super::holds::{self, Holds};
use super::{DATASET, Known, Model, Run, compare, tell};
use super::{moves, schedules};

/// Takes, destroys, renames and looks into snapshots, until the power goes.
pub(super) async fn administrator(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
    mut rng: Rng,
    run: &Mutex<Run>,
) -> Result<(), String> {
    let eager = 1 + rng.below(8);
    loop {
        world.sleep(Duration::from_micros(rng.below(4000 * eager))).await;
        let names: Vec<String> = {
            let model = model.lock().unwrap();
            let there = model.snapshots.iter().filter(|(_, known)| known.taken && !known.doomed);
            there.map(|(name, _)| name.clone()).collect()
        };
        run.lock().unwrap().acts += 1;
        let some = rng.pick(&names).cloned();
        match (rng.below(14), some) {
            (0..=3, _) | (_, None) => take(service, model).await?,
            (4..=6, Some(_)) => {
                let most = 1 + rng.index(3);
                let mut doomed = names;
                rng.shuffle(&mut doomed);
                doomed.truncate(most);
                destroy(service, world, model, &doomed).await?;
            }
            (7, Some(name)) => rename(service, model, &name).await?,
            (8 | 9, Some(name)) => holds::hold(service, world, model, &mut rng, &name).await?,
            (10, Some(name)) => holds::release(service, world, model, &name).await?,
            (11, Some(_)) => moves::there_and_back(service, model).await?,
            (12, Some(_)) => schedules::work(service, world, model).await?,
            (_, Some(name)) => {
                run.lock().unwrap().looks += 1;
                compare(service, model, &name).await?;
            }
        }
    }
}

async fn take(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    let (name, from) = {
        let mut model = model.lock().unwrap();
        let name = format!("s{}", model.next());
        let from = model.states.len() - 1;
        let states = model.states[from..].to_vec();
        let holds = Holds::new();
        let scheduled = false;
        let known = Known { states, taken: false, doomed: false, renamed: None, holds, scheduled };
        model.snapshots.insert(name.clone(), known);
        (name, from)
    };
    tell(&format!("take {name}"));
    let full = [format!("{DATASET}@{name}")];
    let done = service.datasets.snapshot(&full, false).await;
    let mut model = model.lock().unwrap();
    tell(&format!("  {name}: {done:?}"));
    match done {
        Ok(_) => {
            let mut states = model.states[from..].to_vec();
            states.extend(model.under_way.clone());
            let known = model.snapshots.get_mut(&name).unwrap();
            (known.states, known.taken) = (states, true);
            drop(model);
            Ok(())
        }
        Err(error) if error.to_string().contains("out of space") => {
            model.snapshots.remove(&name);
            Ok(())
        }
        Err(error) => Err(format!("take {name}: {error}")),
    }
}

pub(super) async fn destroy(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
    names: &[String],
) -> Result<(), String> {
    tell(&format!("destroy {names:?}"));
    let mut txgs = BTreeSet::new();
    let mut of = None;
    for name in names {
        let found = service.datasets.snapshot_by_name(&format!("{DATASET}@{name}"));
        let (dataset, snapshot) = found.map_err(|error| format!("{name}: {error}"))?;
        {
            let mut model = model.lock().unwrap();
            let served = model.served.until(world.now());
            let known = model.snapshots.get_mut(name).unwrap();
            known.doomed = !known.must_stay(served);
        }
        txgs.insert(snapshot.txg);
        of = Some(dataset);
    }
    let done = service.datasets.destroy_snapshots(&[(of.unwrap(), txgs)]).await;
    let mut model = model.lock().unwrap();
    let served = model.served.until(world.now());
    match done {
        Ok(()) if names.iter().any(|name| model.snapshots[name].must_stay(served)) => {
            Err(format!("destroyed though one is held: {names:?}"))
        }
        Err(DatasetError::Held { .. })
            if names.iter().any(|name| !model.snapshots[name].holds.is_empty()) =>
        {
            names.iter().for_each(|name| {
                model.snapshots.get_mut(name).unwrap().doomed = false;
            });
            Ok(())
        }
        Ok(()) => {
            for name in names {
                let states = model.snapshots.remove(name).map_or(Vec::new(), |of| of.states);
                model.past_snapshots.insert(name.clone(), states);
            }
            Ok(())
        }
        Err(error) => Err(format!("destroy {names:?}: {error}")),
    }
}

async fn rename(service: &Service, model: &Mutex<Model>, name: &str) -> Result<(), String> {
    let to = {
        let mut model = model.lock().unwrap();
        let to = format!("r{}", model.next());
        model.snapshots.get_mut(name).unwrap().renamed = Some(to.clone());
        to
    };
    tell(&format!("rename {name} to {to}"));
    let found = service.datasets.snapshot_by_name(&format!("{DATASET}@{name}"));
    let (dataset, snapshot) = found.map_err(|error| format!("{name}: {error}"))?;
    let done = service.datasets.rename_snapshots(&[(dataset, snapshot.txg)], &to).await;
    done.map_err(|error| format!("rename {name}: {error}"))?;
    let mut model = model.lock().unwrap();
    let known = model.snapshots.remove(name).unwrap();
    model.past_snapshots.insert(name.into(), known.states.clone());
    model.snapshots.insert(to, Known { renamed: None, scheduled: false, ..known });
    Ok(())
}
