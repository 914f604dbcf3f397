//! States that were there at some time: a rewind may bring them back.

use std::sync::{Arc, Mutex};

use aquifer_files::Service;

use super::{Known, Model, Tree, files, holds, look};

/// After a rewind: what is there must have been there at some time.
pub(super) async fn check_past(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    let name = model.lock().unwrap().dataset.clone();
    let root = service.files.root(&name).ok_or("the dataset is gone")?;
    let found = look(&service.files, root).await.map_err(|error| error.to_string())?;
    files::check_past(service, model)?;
    holds::release_files(service, model).await?;
    let dataset = service.datasets.by_name(&name).ok_or("the dataset is gone")?;
    let there = dataset.snapshots(service.pool.committed_txg());
    let mut model = model.lock().unwrap();
    model.stop();
    model.together = None;
    model.states = vec![Arc::new(found)];
    let head = model.head();
    if !model.past.contains(&head) {
        return Err(format!("the head is as it never was: {head:?}"));
    }
    model.snapshots.clear();
    for snapshot in there {
        let name = snapshot.record.name.clone();
        let scheduled = name.starts_with("auto-");
        let states = model.past_snapshots.get(&name).cloned();
        // Taking it by schedule may have been cut off.
        let states = states.or_else(|| scheduled.then(|| model.past.clone()));
        let states = states.ok_or_else(|| format!("snapshot {name} was never taken"))?;
        let holds = holds::found(service, &model.dataset, &name)?;
        let known = Known { states, taken: true, doomed: false, renamed: None, holds, scheduled };
        model.snapshots.insert(name, known);
    }
    Ok(())
}

/// Keeps what is known, for a rewind.
pub(super) fn remember(model: &Mutex<Model>) {
    let mut model = model.lock().unwrap();
    model.clones.values().chain(model.past_clones.values()).for_each(|clone| {
        remember(&clone.model);
    });
    let states: Vec<Arc<Tree>> = model.states.iter().cloned().chain(model.may_be()).collect();
    for (name, known) in model.snapshots.clone() {
        let mut may_be = known.states;
        if !known.taken {
            may_be.extend(states.iter().cloned());
        }
        for name in [Some(name), known.renamed].into_iter().flatten() {
            model.past_snapshots.insert(name, may_be.clone());
        }
    }
    files::remember(&mut model, &states);
    model.past.extend(states);
}
