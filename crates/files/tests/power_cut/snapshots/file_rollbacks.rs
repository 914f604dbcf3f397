//! Rollbacks of single files, while a client works on.
//!
//! A rollback finds the file by its object, and the model knows files by their names. So one begins
//! only while no name is on its way. A change of names that comes later commutes with it.

use std::sync::{Arc, Mutex};

use aquifer_dataset::{Dataset, DatasetError, FileVersion, RollbackOptions};
use aquifer_files::{Credentials, FsError, Service};
use aquifer_ondisk::{ObjectId, Txg};
use aquifer_sim::Rng;

use super::client::Act;
use super::file_clones::{Shown, one_of_whole};
use super::files::{are_later, content, dataset_of, doom_later};
use super::{DATASET, Model, Run, tell};

/// A file that is to go back.
struct Wanted {
    to: FileVersion,
    txg: Txg,
    object: ObjectId,
    marks: Vec<u64>,
    /// The name that it has.
    name: String,
}

/// Rolls files back, mostly to one of the newest snapshots. Later ones of them are destroyed, or
/// stay: then the files begin lines.
pub(super) async fn act(
    service: &Service,
    model: &Mutex<Model>,
    rng: &mut Rng,
    run: &Mutex<Run>,
) -> Result<(), String> {
    let dataset = dataset_of(service, model)?;
    let states = model.lock().unwrap().states.len();
    let wanted = choose(service, model, rng).await?;
    let target = {
        let mut model = model.lock().unwrap();
        if changes_names(&model) || model.states.len() != states || wanted.is_empty() {
            return Ok(());
        }
        let mut target = (*model.head()).clone();
        let back = wanted.iter().map(|Wanted { marks, name, .. }| (name.clone(), marks.clone()));
        target.extend(back);
        let target = Arc::new(target);
        model.rolled += 1;
        model.target = Some(target.clone());
        target
    };
    let options = RollbackOptions { destroy_later: rng.coin(), force: false };
    let (mut later, mut lines) = (Vec::new(), 0);
    for of @ Wanted { to, txg, object, name, .. } in &wanted {
        if options.destroy_later {
            later.extend(doom_later(service, model, *txg, Some(*object))?);
        }
        lines += u64::from(is_past(service, &dataset, of, options));
        tell(&format!("roll {name} ({object}) back to {to:?}"));
    }
    let ids: Vec<_> = wanted.iter().map(|of| of.to.clone()).collect();
    let done = service.datasets.rollback_files(&dataset, &ids, options).await;
    tell(&format!("  {done:?}"));
    let mut model = model.lock().unwrap();
    model.target = None;
    match done {
        Ok(destroyed) => {
            run.lock().unwrap().file_rollbacks += ids.len() as u64;
            run.lock().unwrap().file_lines += lines;
            run.lock().unwrap().in_clones += u64::from(model.dataset != DATASET);
            let is_derived = |of: &&FileVersion| matches!(of, FileVersion::Whole { .. });
            run.lock().unwrap().derived += ids.iter().filter(is_derived).count() as u64;
            assert_eq!(destroyed, later);
            are_later(&mut model, true);
            // It may have come before: a rewind could show that.
            let before = model.under_way.take();
            model.past.extend(before);
            model.under_way =
                model.step.as_ref().and_then(|step| step.after(&target)).map(Arc::new);
            model.states.push(target);
            Ok(())
        }
        Err(error) if may_be_refused(&error, &model) => {
            are_later(&mut model, false);
            Ok(())
        }
        Err(error) => Err(format!("roll {ids:?} back: {error}")),
    }
}

/// Whether later snapshots that stay show the file.
fn is_past(service: &Service, dataset: &Dataset, of: &Wanted, options: RollbackOptions) -> bool {
    let committed = service.pool.committed_txg();
    let of_it = dataset.file_snapshots_of(of.object, committed);
    let of_it = of_it.iter().any(|later| later.txg() > of.txg) && !options.destroy_later;
    of_it || dataset.snapshots(committed).iter().any(|later| later.txg > of.txg)
}

/// The files to roll back: one, or all of its set.
async fn choose(
    service: &Service,
    model: &Mutex<Model>,
    rng: &mut Rng,
) -> Result<Vec<Wanted>, String> {
    let dataset = dataset_of(service, model)?;
    if rng.coin() {
        return choose_whole(service, model, rng).await;
    }
    let all = dataset.file_snapshots(service.pool.committed_txg());
    let most = if rng.below(4) == 0 { 12 } else { 3 };
    let (from, with_set) = (rng.index(most), rng.coin());
    let mut wanted: Vec<Wanted> = Vec::new();
    for snapshot in all.into_iter().rev().skip(from).take(6) {
        let is_other = |first: &Wanted| !with_set || first.txg != snapshot.txg();
        if wanted.first().is_some_and(is_other) {
            break;
        }
        let marks = content(service, &dataset, &snapshot).await?;
        let (to, txg, object) = (snapshot.id.into(), snapshot.txg(), snapshot.object());
        let name = name_of(service, model, object).await?;
        wanted.extend(name.map(|name| Wanted { to, txg, object, marks, name }));
    }
    Ok(wanted)
}

/// One or two files as a snapshot of the dataset shows them.
async fn choose_whole(
    service: &Service,
    model: &Mutex<Model>,
    rng: &mut Rng,
) -> Result<Vec<Wanted>, String> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for _ in 0..1 + rng.below(2) {
        let Some((of, file)) = one_of_whole(service, model, rng).await else { continue };
        let Shown { object, name: path, marks } = file;
        let is_there = |one: &Wanted| one.object == object || one.txg != of.txg;
        if wanted.iter().any(is_there) {
            continue;
        }
        let (snapshot, txg) = (of.txg, of.txg);
        let to = FileVersion::Whole { snapshot, object, path };
        let name = name_of(service, model, object).await?;
        wanted.extend(name.map(|name| Wanted { to, txg, object, marks, name }));
    }
    Ok(wanted)
}

/// The name that a file has now, if no name changes meanwhile.
async fn name_of(
    service: &Service,
    model: &Mutex<Model>,
    object: ObjectId,
) -> Result<Option<String>, String> {
    let (names, states) = {
        let model = model.lock().unwrap();
        if changes_names(&model) {
            return Ok(None);
        }
        (model.head().keys().cloned().collect::<Vec<_>>(), model.states.len())
    };
    let root = service.files.root(&model.lock().unwrap().dataset).ok_or("the dataset is gone")?;
    let mut found = None;
    for name in names {
        match service.files.lookup(&Credentials::root(), root, name.as_bytes()).await.0 {
            Ok(file) if file.handle.object == object => found = Some(name),
            Ok(_) | Err(FsError::NotFound | FsError::Stale) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    let unchanged = model.lock().unwrap().states.len() == states;
    Ok(found.filter(|_| unchanged))
}

/// Whether a change of names is on its way.
fn changes_names(model: &Model) -> bool {
    model.step.as_ref().is_some_and(|step| !matches!(step.act, Act::Write(..) | Act::Cut(_)))
}

fn may_be_refused(error: &DatasetError, model: &Model) -> bool {
    match error {
        // A change came between.
        DatasetError::FileRemoved(_) => changes_names(model) || model.states.len() > 1,
        DatasetError::Unsettled(_) => true,
        DatasetError::OnAnotherLine(_) => !model.is_top || model.promoted,
        // Somebody destroyed the snapshot of the dataset meanwhile.
        DatasetError::NotFound(_) => true,
        other => super::reserved::is_full(&other),
    }
}
