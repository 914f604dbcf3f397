//! The client: changes the dataset, one operation after the other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_files::{
    CreateHow, Credentials, FileHandle, Files, FsError, Service, SetAttributes, Stability,
};
use aquifer_sim::Rng;

use super::{DATASET, Model, PAGE, PAGES, Run, Tree, file_clones, look, page, tell};
use crate::workload::allowed;

/// An operation on a file.
#[derive(Debug, Clone)]
pub(super) struct Step {
    name: String,
    pub(super) act: Act,
}

/// Act on a file.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Create,
    Remove,
    Rename(String),
    /// To so many pages.
    Cut(u64),
    /// From this page on, with these marks.
    Write(u64, Vec<u64>),
    /// Of this snapshot of a file, which shows these marks.
    Clone(String, Vec<u64>),
    /// It was removed, and comes back as this snapshot, which shows these marks.
    Return(String, Vec<u64>),
}

impl Step {
    /// Returns the step by the handle of a file that has this name now; `None`: it goes by names.
    pub(super) fn of_another(self, name: String) -> Option<Step> {
        matches!(self.act, Act::Cut(_) | Act::Write(..)).then_some(Step { name, ..self })
    }

    /// The state after it, if it is possible.
    pub(super) fn after(&self, tree: &Tree) -> Option<Tree> {
        let mut tree = tree.clone();
        let new = match &self.act {
            Act::Create => Some(Vec::new()),
            Act::Clone(_, marks) | Act::Return(_, marks) => Some(marks.clone()),
            _ => None,
        };
        if let Some(marks) = new {
            return tree.insert(self.name.clone(), marks).is_none().then_some(tree);
        }
        let mut marks = tree.remove(&self.name)?;
        let mut name = self.name.clone();
        match &self.act {
            Act::Create | Act::Clone(..) | Act::Return(..) => {}
            Act::Remove => return Some(tree),
            Act::Rename(to) => name.clone_from(to),
            Act::Cut(pages) => marks.resize(*pages as usize, 0),
            Act::Write(from, new) => {
                let (from, to) = (*from as usize, *from as usize + new.len());
                marks.resize(marks.len().max(to), 0);
                marks[from..to].copy_from_slice(new);
            }
        }
        tree.insert(name, marks);
        Some(tree)
    }
}

/// Changes the dataset until it has done so many operations, or one is refused.
pub(super) async fn client(
    service: &Service,
    model: &Mutex<Model>,
    mut rng: Rng,
    ops: u64,
    run: &Mutex<Run>,
) -> Result<(), String> {
    let dataset = model.lock().unwrap().dataset.clone();
    let root = service.files.root(&dataset).ok_or("the dataset is gone")?;
    for _ in 0..ops {
        let name = format!("f{}", rng.below(6));
        let clone = match rng.below(4) {
            0 => file_clones::choose(service, model, &mut rng).await,
            _ => None,
        };
        let returns = rng.coin();
        let (step, rolled) = {
            let mut model = model.lock().unwrap();
            let head = model.head();
            let back = clone.as_ref().filter(|_| returns).and_then(file_clones::back);
            let back = back.filter(|(name, _)| !head.contains_key(name));
            let step = match (back, clone.filter(|_| !head.contains_key(&name))) {
                (Some((name, act)), _) => Some(Step { name, act }),
                (None, Some(act)) => Some(Step { name, act }),
                (None, None) => step(&mut model, &mut rng, &head, &name),
            };
            let Some(step) = step else { continue };
            model.under_way = step.after(&head).map(Arc::new);
            model.step = Some(step.clone());
            model.met = false;
            // One that is on its way may come before this or after it.
            (step, model.rolled - u64::from(model.target.is_some()))
        };
        tell(&format!("{step:?}"));
        let done = match &step.act {
            Act::Clone(from, _) => {
                file_clones::carry_out(service, &dataset, (from, &step.name)).await
            }
            Act::Return(to, _) => file_clones::come_back(service, &dataset, to).await,
            _ => carry_out(&service.files, root, &step).await.map(|()| true),
        };
        if let (Act::Return(..), Ok(true)) = (&step.act, &done) {
            run.lock().unwrap().returns += 1;
        }
        if let (Act::Clone(..), Ok(true)) = (&step.act, &done) {
            run.lock().unwrap().file_clones += 1;
            run.lock().unwrap().in_clones += u64::from(dataset != DATASET);
        }
        if model.lock().unwrap().rolled > rolled {
            met_a_rollback(service, root, model, done).await?;
            continue;
        }
        let mut model = model.lock().unwrap();
        let after = model.under_way.take().unwrap();
        model.step = None;
        match done {
            Ok(true) => model.states.push(after),
            Ok(false) => {}
            Err(FsError::NoSpace) if is_reserved(service, &dataset, &step) => {
                return Err(format!("no room for what is reserved: {step:?}"));
            }
            Err(error) if allowed(&error) => {
                tell(&format!("  {error}"));
                // A write may be refused after a part of it: then nothing more is known.
                return Ok(());
            }
            Err(error) => return Err(format!("unexpected: {error}")),
        }
        if rng.below(12) == 0 {
            service.pool.request_txg();
        }
    }
    Ok(())
}

/// The dataset was rolled back while an operation was under way: that came before, or after, or
/// found no file any more.
async fn met_a_rollback(
    service: &Service,
    root: FileHandle,
    model: &Mutex<Model>,
    done: Result<bool, FsError>,
) -> Result<(), String> {
    tell(&format!("  met a rollback: {done:?}"));
    let gone = [FsError::Stale, FsError::NotFound, FsError::Exists];
    match &done {
        Err(error) if !gone.contains(error) && !allowed(error) => {
            return Err(format!("unexpected: {error}"));
        }
        _ => {}
    }
    let found = loop {
        while model.lock().unwrap().target.is_some() {
            service.pool.world().sleep(Duration::from_micros(50)).await;
        }
        let rolled = model.lock().unwrap().rolled;
        let found = look(&service.files, root).await;
        // Else another rollback came meanwhile.
        if model.lock().unwrap().rolled == rolled {
            break found.map_err(|error| error.to_string())?;
        }
    };
    let mut model = model.lock().unwrap();
    let mut may_be = vec![model.head()];
    may_be.extend(model.coming().into_iter().filter(|_| done == Ok(true)));
    model.stop();
    let Some(state) = may_be.iter().find(|state| ***state == found) else {
        return Err(format!("after a rollback the head is {found:?}\n, may be {may_be:?}"));
    };
    let state = state.clone();
    model.states.push(state);
    Ok(())
}

fn step(model: &mut Model, rng: &mut Rng, head: &Tree, name: &str) -> Option<Step> {
    let of = |act| Some(Step { name: name.into(), act });
    if !head.contains_key(name) {
        return of(Act::Create);
    }
    match rng.below(12) {
        0 => of(Act::Remove),
        1 => {
            let to = format!("f{}", rng.below(6));
            if to == name { None } else { of(Act::Rename(to)) }
        }
        2 => of(Act::Cut(rng.below(PAGES))),
        _ => {
            let from = rng.below(PAGES);
            let most = if rng.below(4) == 0 { 16 } else { 3 };
            let count = 1 + rng.below(most);
            of(Act::Write(from, (0..count).map(|_| model.next()).collect()))
        }
    }
}

async fn carry_out(files: &Files, root: FileHandle, step: &Step) -> Result<(), FsError> {
    let cred = Credentials::root();
    let bytes = step.name.as_bytes();
    let file = || async { files.lookup(&cred, root, bytes).await.0.map(|found| found.handle) };
    match &step.act {
        Act::Clone(..) | Act::Return(..) => Err(FsError::NotSupported),
        Act::Create => {
            let how = CreateHow::Guarded(SetAttributes::default());
            files.create(&cred, root, bytes, how).await.kept().await.0.map(drop)
        }
        Act::Remove => files.remove(&cred, root, bytes).await.kept().await.0,
        Act::Rename(to) => {
            let (from, to) = ((root, bytes), (root, to.as_bytes()));
            files.rename(&cred, from, to).await.kept().await.0
        }
        Act::Cut(pages) => {
            let size = Some(pages * PAGE as u64);
            let set = SetAttributes { size, ..SetAttributes::default() };
            files.setattr(&cred, file().await?, &set, None).await.kept().await.0
        }
        Act::Write(from, marks) => {
            let data: Vec<u8> = marks.iter().flat_map(|mark| page(*mark)).collect();
            let (file, at) = (file().await?, from * PAGE as u64);
            files.write(&cred, file, at, &data, Stability::FileSync).await.0.map(drop)
        }
    }
}

/// Whether a write is over pages that are there, in a dataset with a `refreservation`.
fn is_reserved(service: &Service, dataset: &str, step: &Step) -> bool {
    let of = service.datasets.by_name(dataset);
    let reserves = of.is_some_and(|of| of.properties().refreservation_bytes > 0);
    reserves && matches!(step.act, Act::Write(..))
}
