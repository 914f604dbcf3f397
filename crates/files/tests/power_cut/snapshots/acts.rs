//! The administrator's acts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_dataset::{DatasetError, RollbackOptions};
use aquifer_files::Service;
use aquifer_sim::Rng;

use super::holds::{self, Holds};
use super::{DATASET, Known, Model, Run, Top, Tree, bookmarks, clones, compare, files, tell};
use super::{file_schedules, moves, schedules};

/// Takes, destroys, renames and looks into snapshots, until the power goes.
pub(super) async fn administrator(
    service: &Service,
    world: &Arc<dyn World>,
    top: &Top,
    mut rng: Rng,
    run: &Mutex<Run>,
) -> Result<(), String> {
    let eager = 1 + rng.below(8);
    // A client works in this one.
    let busy = top.now().lock().unwrap().dataset.clone();
    loop {
        world.sleep(Duration::from_micros(rng.below(4000 * eager))).await;
        let model = top.now();
        let of_clones = if model.lock().unwrap().promotes { 2 } else { 3 };
        if rng.below(of_clones) == 0 {
            clones::act(service, world, (top, &busy), &mut rng, run).await?;
            continue;
        }
        act(service, world, &model, &mut rng, run).await?;
    }
}

/// One act on the snapshots of a dataset.
pub(super) async fn act(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
    rng: &mut Rng,
    run: &Mutex<Run>,
) -> Result<(), String> {
    {
        let names = model.lock().unwrap().there();
        run.lock().unwrap().acts += 1;
        let some = rng.pick(&names).cloned();
        // Clones are not held, moved or scheduled.
        let is_top = model.lock().unwrap().is_top;
        let is_first = is_top && model.lock().unwrap().dataset == DATASET;
        let of_files = model.lock().unwrap().of_files;
        if is_top && model.lock().unwrap().bookmarks && rng.below(3) == 0 {
            return bookmarks::act(service, world, model, rng, run).await;
        }
        let which = if of_files && rng.below(3) > 0 { 22 } else { rng.below(23) };
        match (which, some) {
            (17.., _) => {
                run.lock().unwrap().of_files += 1;
                files::act(service, model, rng, run).await?;
            }
            (0..=3, _) | (_, None) => take(service, model).await?,
            (4..=6, Some(_)) => {
                let most = 1 + rng.index(3);
                let mut doomed = names;
                rng.shuffle(&mut doomed);
                doomed.truncate(most);
                let with_clones = is_top && rng.below(4) == 0;
                destroy(service, world, model, (&doomed, with_clones)).await?;
            }
            (7, Some(name)) => rename(service, model, &name).await?,
            (8..=9, Some(name)) => {
                run.lock().unwrap().rollbacks += 1;
                let stays = model.lock().unwrap().lines && rng.below(3) > 0;
                roll_back(service, world, model, (&name, stays), run).await?;
            }
            (10..=11, Some(name)) if is_top => {
                holds::hold(service, world, model, rng, &name).await?;
            }
            (12, Some(name)) if is_top => holds::release(service, world, model, &name).await?,
            (13, Some(_)) if is_first => moves::there_and_back(service, model).await?,
            (14, Some(_)) if is_first => {
                schedules::work(service, world, model).await?;
                file_schedules::work(service, world, model).await?;
            }
            (_, Some(name)) => {
                run.lock().unwrap().looks += 1;
                compare(service, model, &name).await?;
            }
        }
    }
    Ok(())
}

/// Of a snapshot.
pub(super) fn full_name(model: &Mutex<Model>, name: &str) -> String {
    format!("{}@{name}", model.lock().unwrap().dataset)
}

/// The dataset is to go back to a snapshot, and these are to go.
fn aim(model: &mut Model, (name, later): (&str, &[String]), now: Duration) -> Arc<Tree> {
    let target = model.snapshots.get(name).unwrap().states[0].clone();
    let served = model.served.until(now);
    for name in later {
        let known = model.snapshots.get_mut(name).unwrap();
        known.doomed = !known.must_stay(served);
    }
    model.rolled += 1;
    model.target = Some(target.clone());
    target
}

/// Rolls the dataset back to a snapshot, and destroys the later ones, if they do not stay.
async fn roll_back(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
    (name, stays): (&str, bool),
    run: &Mutex<Run>,
) -> Result<(), String> {
    // From here on it has one state.
    compare(service, model, name).await?;
    let full = full_name(model, name);
    let found = service.datasets.snapshot_by_name(&full);
    let (dataset, snapshot) = found.map_err(|error| format!("{name}: {error}"))?;
    let all = dataset.snapshots(service.pool.committed_txg());
    let later = all.iter().filter(|other| other.txg > snapshot.txg);
    let mut later: Vec<String> = later.map(|other| other.record.name.clone()).collect();
    let of_files = dataset.file_snapshots(service.pool.committed_txg());
    let is_newest = later.is_empty() && of_files.iter().all(|of| of.txg() < snapshot.txg);
    // Also to the newest one: then marks go.
    let is_line = stays && !is_newest;
    tell(&format!("roll back to {name}, before {later:?}; they stay: {is_line}"));
    if is_line {
        later.clear();
    }
    let target = {
        let mut model = model.lock().unwrap();
        bookmarks::are_later(&mut model, snapshot.txg, !is_line);
        aim(&mut model, (name, &later), world.now())
    };
    let mut later_files = match is_line {
        true => Vec::new(),
        false => files::doom_later(service, model, snapshot.txg, None)?,
    };
    let pinned = clones::pinned(model, &later);
    let options = RollbackOptions { destroy_later: !stays, force: false };
    let done = service.datasets.rollback(&full, options).await;
    tell(&format!("  {done:?}"));
    let mut model = model.lock().unwrap();
    match done {
        Ok(destroyed) => {
            let mut all = later.clone();
            all.append(&mut later_files);
            assert_eq!(destroyed, all);
            files::are_later(&mut model, true);
            run.lock().unwrap().lines += u64::from(is_line);
            if !is_line {
                bookmarks::went_back(&mut model, snapshot.txg);
            }
            let served = model.served.until(world.now());
            if pinned || later.iter().any(|name| model.snapshots[name].must_stay(served)) {
                return Err(format!("roll back to {name}: {later:?} have clones or holds"));
            }
            for name in &later {
                let states = model.snapshots.remove(name).map_or(Vec::new(), |of| of.states);
                model.past_snapshots.insert(name.clone(), states);
            }
            // It may have come before: a rewind could show that.
            model.met = true;
            let before = model.under_way.take();
            model.past.extend(before);
            model.under_way =
                model.step.as_ref().and_then(|step| step.after(&target)).map(Arc::new);
            model.states.push(target);
            model.target = None;
            Ok(())
        }
        Err(error)
            if refused_here(&error, &model) || refused(&error, pinned, is_held(&model, &later)) =>
        {
            for name in &later {
                model.snapshots.get_mut(name).unwrap().doomed = false;
            }
            files::are_later(&mut model, false);
            bookmarks::are_later(&mut model, snapshot.txg, false);
            model.target = None;
            Ok(())
        }
        Err(error) => Err(format!("roll back to {name}: {error}")),
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
    let full = [full_name(model, &name)];
    let done = service.datasets.snapshot(&full, false).await;
    let mut model = model.lock().unwrap();
    tell(&format!("  {name}: {done:?}"));
    match done {
        Ok(_) => {
            let mut states = model.states[from..].to_vec();
            states.extend(model.coming());
            let known = model.snapshots.get_mut(&name).unwrap();
            (known.states, known.taken) = (states, true);
            drop(model);
            Ok(())
        }
        Err(error) if super::reserved::is_full(&error) => {
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
    (names, with_clones): (&[String], bool),
) -> Result<(), String> {
    tell(&format!("destroy {names:?}"));
    let mut txgs = BTreeSet::new();
    let mut of = None;
    for name in names {
        let found = service.datasets.snapshot_by_name(&full_name(model, name));
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
    let pinned = clones::pinned(model, names);
    let clones = if with_clones { clones::doom(model, names) } else { Vec::new() };
    let done = service.datasets.destroy_snapshots(&[(of.unwrap(), txgs)], with_clones).await;
    let mut model = model.lock().unwrap();
    let served = model.served.until(world.now());
    match done {
        Ok(gone) if gone != clones => Err(format!("destroy {names:?}: {clones:?}, not {gone:?}")),
        Ok(_) if pinned && !with_clones => Err(format!("destroy {names:?}: they have clones")),
        Ok(_) if names.iter().any(|name| model.snapshots[name].must_stay(served)) => {
            Err(format!("destroyed though one is held: {names:?}"))
        }
        Err(error) if refused(&error, pinned, is_held(&model, names)) => {
            for name in names {
                model.snapshots.get_mut(name).unwrap().doomed = false;
            }
            clones::spare(&mut model);
            Ok(())
        }
        Ok(_) => {
            clones::gone(&mut model);
            for name in names {
                let states = model.snapshots.remove(name).map_or(Vec::new(), |of| of.states);
                model.past_snapshots.insert(name.clone(), states);
            }
            Ok(())
        }
        Err(error) => Err(format!("destroy {names:?}: {error}")),
    }
}

/// Whether one of these snapshots may be held.
fn is_held(model: &Model, names: &[String]) -> bool {
    names.iter().any(|name| !model.snapshots[name].holds.is_empty())
}

/// Whether a rollback would go to another line.
fn refused_here(error: &DatasetError, model: &Model) -> bool {
    model.promoted && matches!(error, DatasetError::OnAnotherLine(_))
}

/// Whether an act may be refused like this.
fn refused(error: &DatasetError, pinned: bool, held: bool) -> bool {
    match error {
        DatasetError::Held { .. } => held,
        DatasetError::HasClones { .. } => pinned,
        other => super::reserved::is_full(&other),
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
    let found = service.datasets.snapshot_by_name(&full_name(model, name));
    let (dataset, snapshot) = found.map_err(|error| format!("{name}: {error}"))?;
    let done = service.datasets.rename_snapshots(&[(dataset, snapshot.txg)], &to).await;
    done.map_err(|error| format!("rename {name}: {error}"))?;
    let mut model = model.lock().unwrap();
    let known = model.snapshots.remove(name).unwrap();
    model.past_snapshots.insert(name.into(), known.states.clone());
    clones::renamed(&mut model, name, &to);
    model.snapshots.insert(to, Known { renamed: None, scheduled: false, ..known });
    Ok(())
}
