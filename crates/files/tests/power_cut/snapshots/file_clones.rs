//! Clones of single files, which the client makes like any other file, and files that come back.

use std::sync::{Arc, Mutex};

use aquifer_dataset::{DatasetError, FileSnapshot, Snapshot};
use aquifer_files::file_snapshots::FileNameError;
use aquifer_files::{Credentials, FsError, Service};
use aquifer_ondisk::ObjectId;
use aquifer_sim::Rng;

use super::client::Act;
use super::files::{content, dataset_of};
use super::{Model, look, tell};
use crate::by_text::ByText;

/// A snapshot of a file that may be cloned, and what it shows.
pub(super) async fn choose(service: &Service, model: &Mutex<Model>, rng: &mut Rng) -> Option<Act> {
    let dataset = dataset_of(service, model).ok()?;
    if rng.below(3) == 0 {
        let (of, file) = one_of_whole(service, model, rng).await?;
        return Some(Act::Clone(format!("{}@{}", file.name, of.record.name), file.marks));
    }
    let all = dataset.file_snapshots(service.pool.committed_txg());
    let snapshot = rng.pick(&all)?.clone();
    let other = |of: &&Arc<FileSnapshot>| {
        of.object() != snapshot.object() && of.record.name == snapshot.record.name
    };
    let others: Vec<ObjectId> = all.iter().filter(other).map(|of| of.object()).collect();
    let root = service.files.root(&model.lock().unwrap().dataset)?;
    let path = snapshot.record.path.as_bytes();
    let now = service.files.lookup(&Credentials::root(), root, path).await.0;
    if now.is_ok_and(|now| others.contains(&now.handle.object)) {
        // If this is destroyed meanwhile, its name means that one's.
        return None;
    }
    // Somebody may destroy it meanwhile.
    let marks = content(service, &dataset, &snapshot).await.ok()?;
    let (path, name) = (&snapshot.record.path, &snapshot.record.name);
    Some(Act::Clone(format!("{path}@{name}"), marks))
}

/// A file as a snapshot of the dataset shows it.
pub(super) struct Shown {
    pub object: ObjectId,
    pub name: String,
    pub marks: Vec<u64>,
}

/// One of the newest snapshots of the dataset, and a file in it.
pub(super) async fn one_of_whole(
    service: &Service,
    model: &Mutex<Model>,
    rng: &mut Rng,
) -> Option<(Arc<Snapshot>, Shown)> {
    let dataset = dataset_of(service, model).ok()?;
    let all = dataset.snapshots(service.pool.committed_txg());
    let of = all.iter().rev().nth(rng.index(4))?.clone();
    let full = format!("{}@{}", service.datasets.full_name(&dataset), of.record.name);
    let root = service.files.root(&full)?;
    // Somebody may destroy it meanwhile.
    let tree = look(&service.files, root).await.ok()?;
    let files: Vec<_> = tree.into_iter().collect();
    let (name, marks) = rng.pick(&files)?.clone();
    let found = service.files.lookup(&Credentials::root(), root, name.as_bytes()).await.0.ok()?;
    Some((of, Shown { object: found.handle.object, name, marks }))
}

/// Makes a clone. Returns whether it was made, or refused with nothing changed.
pub(super) async fn carry_out(
    service: &Service,
    dataset: &str,
    (from, name): (&str, &str),
) -> Result<bool, FsError> {
    let (from, to) = (format!("{dataset}:{from}"), format!("{dataset}:{name}"));
    judged(&from, service.files.clone_named(&from, &[to]).await)
}

/// The act that brings the file of a snapshot back, and its name.
pub(super) fn back(clone: &Act) -> Option<(String, Act)> {
    let Act::Clone(from, marks) = clone else { return None };
    let (name, _) = from.rsplit_once('@')?;
    Some((name.into(), Act::Return(from.clone(), marks.clone())))
}

/// Brings a file back. Returns whether it came, or was refused with nothing changed: it may have
/// another name.
pub(super) async fn come_back(service: &Service, dataset: &str, to: &str) -> Result<bool, FsError> {
    let to = format!("{dataset}:{to}");
    judged(&to, service.files.return_named(&to).await)
}

fn judged(from: &str, done: Result<(), FileNameError>) -> Result<bool, FsError> {
    tell(&format!("  {done:?}"));
    match done {
        Ok(()) => Ok(true),
        Err(FileNameError::NameTaken(_)) => Err(FsError::Exists),
        Err(
            FileNameError::Clone { error, .. }
            | FileNameError::Path { error, .. }
            | FileNameError::NotNamed { error, .. }
            | FileNameError::Return { error, .. },
        ) => Err(error),
        Err(FileNameError::Pool(error) | FileNameError::Dataset(DatasetError::Pool(error))) => {
            Err(error.into())
        }
        // It was destroyed, or hidden, or the dataset has another name by now.
        Err(
            FileNameError::NoSnapshot(_)
            | FileNameError::NotThere(_)
            | FileNameError::Subject(_)
            | FileNameError::Look(_)
            | FileNameError::Dataset(
                DatasetError::NotFound(_)
                | DatasetError::OnAnotherLine(_)
                | DatasetError::UnsettledOrigin(_)
                | DatasetError::Unsettled(_)
                | DatasetError::FileNotRemoved(_),
            ),
        ) => Ok(false),
        Err(other) => panic!("clone {from}: {other}"),
    }
}

/// Removes all clones.
pub(super) async fn remove_all(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    let dataset = dataset_of(service, model)?;
    let root = service.files.root(&model.lock().unwrap().dataset).ok_or("the dataset is gone")?;
    let cred = Credentials::root();
    let mut head = (*model.lock().unwrap().head()).clone();
    for name in head.clone().into_keys() {
        let found = service.files.lookup(&cred, root, name.as_bytes()).await.0;
        let found = found.map_err(|error| format!("{name}: {error}"))?;
        let object = dataset.object(&service.pool, found.handle.object).await;
        let object = object.map_err(|error| error.to_string())?.ok_or("no object")?;
        if object.inode().cloned {
            let removed = service.files.remove(&cred, root, name.as_bytes()).await.kept().await.0;
            removed.map_err(|error| format!("{name}: {error}"))?;
            head.remove(&name);
        }
    }
    model.lock().unwrap().states.push(Arc::new(head));
    Ok(())
}
