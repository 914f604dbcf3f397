//! The client: changes the dataset, one operation after the other.

use std::sync::{Arc, Mutex};

use aquifer_files::{
    CreateHow, Credentials, FileHandle, Files, FsError, Service, SetAttributes, Stability,
};
use aquifer_sim::Rng;

use super::{DATASET, Model, PAGE, PAGES, Tree, page, tell};
use crate::workload::allowed;

/// An operation, and the state after it.
struct Step {
    what: String,
    tree: Tree,
    act: Act,
}

/// What is done to a file.
enum Act {
    Create,
    Remove,
    Rename(String),
    /// To so many pages.
    Cut(u64),
    /// From this page on.
    Write(u64, Vec<u8>),
}

/// Changes the dataset until it has done so many operations, or one is refused.
pub(super) async fn client(
    service: &Service,
    model: &Mutex<Model>,
    mut rng: Rng,
    ops: u64,
) -> Result<(), String> {
    let root = service.files.root(DATASET).ok_or("the dataset is gone")?;
    for _ in 0..ops {
        let name = format!("f{}", rng.below(6));
        let Some(Step { what, tree, act }) = step(model, &mut rng, &name) else { continue };
        tell(&what);
        model.lock().unwrap().under_way = Some(Arc::new(tree));
        let done = carry_out(&service.files, root, &name, act).await;
        let mut model = model.lock().unwrap();
        let after = model.under_way.take().unwrap();
        match done {
            Ok(()) => model.states.push(after),
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

fn step(model: &Mutex<Model>, rng: &mut Rng, name: &str) -> Option<Step> {
    let mut tree = Tree::clone(&model.lock().unwrap().head());
    let Some(mut marks) = tree.get(name).cloned() else {
        tree.insert(name.into(), Vec::new());
        return Some(Step { what: format!("create {name}"), tree, act: Act::Create });
    };
    let (what, act) = match rng.below(12) {
        0 => {
            tree.remove(name);
            (format!("remove {name}"), Act::Remove)
        }
        1 => {
            let to = format!("f{}", rng.below(6));
            if to == name {
                return None;
            }
            tree.remove(name);
            tree.insert(to.clone(), marks);
            (format!("rename {name} to {to}"), Act::Rename(to))
        }
        2 => {
            let pages = rng.below(PAGES);
            marks.resize(pages as usize, 0);
            tree.insert(name.into(), marks);
            (format!("cut {name} to {pages}"), Act::Cut(pages))
        }
        _ => {
            let from = rng.below(PAGES);
            let most = if rng.below(4) == 0 { 16 } else { 3 };
            let count = 1 + rng.below(most);
            let to = (from + count) as usize;
            marks.resize(marks.len().max(to), 0);
            let mut data = Vec::new();
            for mark in &mut marks[from as usize..to] {
                *mark = model.lock().unwrap().next();
                data.extend(page(*mark));
            }
            tree.insert(name.into(), marks);
            (format!("write {name} {from}+{count}"), Act::Write(from, data))
        }
    };
    Some(Step { what, tree, act })
}

async fn carry_out(files: &Files, root: FileHandle, name: &str, act: Act) -> Result<(), FsError> {
    let cred = Credentials::root();
    let bytes = name.as_bytes();
    let file = || async { files.lookup(&cred, root, bytes).await.0.map(|found| found.handle) };
    match act {
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
        Act::Write(from, data) => {
            let (file, at) = (file().await?, from * PAGE as u64);
            files.write(&cred, file, at, &data, Stability::FileSync).await.0.map(drop)
        }
    }
}
