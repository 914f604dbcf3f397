//! Snapshots of files, some of them at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use aquifer_dataset::{Dataset, DatasetError, FileSnapshot, NewFileSnapshot, These};
use aquifer_files::{Credentials, FsError, Service};
use aquifer_ondisk::ObjectId;
use aquifer_sim::Rng;

use super::ends::quiesce;
use super::{Model, PAGE, Run, Tree, file_rollbacks, file_schedules, holds, page, tell};

/// Sets of them at a time, in each dataset.
const SETS_MAX: usize = 5;

/// Snapshots of some files, taken at once.
#[derive(Debug, Clone, Default)]
pub(super) struct FileSet {
    /// By their names then. Each has one content, once somebody has looked.
    pub files: BTreeMap<String, Option<Vec<u64>>>,
    /// The states that the dataset may have had.
    pub states: Vec<Arc<Tree>>,
    /// Taking them was answered.
    pub taken: bool,
    /// The destruction of these was asked for.
    pub doomed: BTreeSet<String>,
    /// A hold on these was answered, and its release not asked for.
    pub held: BTreeSet<String>,
    /// Another name was asked for.
    pub renamed: Option<String>,
}

impl FileSet {
    /// Whether files came, went or changed names: then what had a name may be another file.
    fn names_changed(&self) -> bool {
        self.states.windows(2).any(|two| two[0].keys().ne(two[1].keys()))
    }

    /// Whether all files may have had these contents at one time.
    fn fits(&self, found: &BTreeMap<String, Vec<u64>>) -> bool {
        let pinned = |(name, marks): (&String, &Vec<u64>)| match self.files.get(name) {
            Some(Some(content)) => content == marks,
            _ => true,
        };
        let at_one_time =
            |tree: &Arc<Tree>| found.iter().all(|(name, of)| tree.get(name) == Some(of));
        let somewhere =
            |of: &Vec<u64>| self.states.iter().any(|tree| tree.values().any(|marks| marks == of));
        found.iter().all(pinned)
            && (self.states.iter().any(at_one_time)
                || self.names_changed() && found.values().all(somewhere))
    }
}

/// Reads the content that a snapshot of a file shows.
pub(crate) async fn content(
    service: &Service,
    dataset: &Dataset,
    snapshot: &FileSnapshot,
) -> Result<Vec<u64>, String> {
    let name = format!("{}@{}", snapshot.record.path, snapshot.record.name);
    let view = service.datasets.file_view(dataset, snapshot.id);
    let view = view.ok_or_else(|| format!("{name} is gone"))?;
    let pages = snapshot.record.inode.size / PAGE as u64;
    let read = view.read_pages(&service.pool, 0, pages).await;
    let read = read.map_err(|error| format!("{name}: {error}"))?;
    let mut marks = Vec::new();
    for (at, found) in read.into_iter().enumerate() {
        let zeros = [0; PAGE];
        let bytes = found.as_ref().map_or(&zeros[..], |page| page.as_slice());
        let mark = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let expected = if mark == 0 { zeros.to_vec() } else { page(mark) };
        assert!(bytes == expected, "page {at} of {name} is none that was written: {mark}");
        marks.push(mark);
    }
    Ok(marks)
}

pub(super) fn dataset_of(service: &Service, model: &Mutex<Model>) -> Result<Arc<Dataset>, String> {
    let name = model.lock().unwrap().dataset.clone();
    service.datasets.by_name(&name).ok_or_else(|| format!("{name} is gone"))
}

/// Those that are there, by the names of their sets and files.
pub(super) fn there(
    service: &Service,
    model: &Mutex<Model>,
) -> Result<BTreeMap<String, BTreeMap<String, Arc<FileSnapshot>>>, String> {
    let mut there: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let dataset = dataset_of(service, model)?;
    for of in dataset.file_snapshots(service.pool.committed_txg()) {
        there.entry(of.record.name.clone()).or_default().insert(of.record.path.clone(), of);
    }
    Ok(there)
}

/// One act on snapshots of files.
pub(super) async fn act(
    service: &Service,
    model: &Mutex<Model>,
    rng: &mut Rng,
    run: &Mutex<Run>,
) -> Result<(), String> {
    let sets: Vec<String> = model.lock().unwrap().file_sets.keys().cloned().collect();
    let rollbacks = if model.lock().unwrap().of_files { 5 } else { 2 };
    match (rng.below(5 + rollbacks), rng.pick(&sets)) {
        (5.., Some(_)) => file_rollbacks::act(service, model, rng, run).await,
        (0..=1, _) | (_, None) if sets.len() < SETS_MAX => take(service, model, rng).await,
        (2..=3, Some(name)) => destroy_some(service, model, rng, name).await,
        (_, Some(name)) => {
            compare(service, model, name).await?;
            rename(service, model, name).await
        }
        _ => Ok(()),
    }
}

/// Gives a set that was taken by an act, and has its first name, another one.
async fn rename(service: &Service, model: &Mutex<Model>, name: &str) -> Result<(), String> {
    let Some(number) = name.strip_prefix('n') else { return Ok(()) };
    let to = format!("x{number}");
    let dataset = dataset_of(service, model)?;
    let there = there(service, model)?.remove(name).unwrap_or_default();
    let ids = there.values().map(|of| of.id).collect();
    model.lock().unwrap().file_sets.get_mut(name).unwrap().renamed = Some(to.clone());
    tell(&format!("rename files {name} to {to}"));
    match service.datasets.rename_file_snapshots(&dataset, &ids, &to).await {
        Ok(_) => is_renamed(&mut model.lock().unwrap(), name),
        Err(error) if super::reserved::is_full(&error) => {
            model.lock().unwrap().file_sets.get_mut(name).unwrap().renamed = None;
        }
        Err(error) => return Err(format!("rename files {name}: {error}")),
    }
    Ok(())
}

/// A set has the name that was asked for.
fn is_renamed(model: &mut Model, name: &str) {
    remember_set(model, name);
    let Some(set) = model.file_sets.remove(name) else { return };
    let to = set.renamed.clone().expect("it was asked for");
    model.file_sets.insert(to, FileSet { renamed: None, ..set });
}

async fn take(service: &Service, model: &Mutex<Model>, rng: &mut Rng) -> Result<(), String> {
    let (name, from, mut files) = {
        let mut model = model.lock().unwrap();
        let files: Vec<String> = model.head().keys().cloned().collect();
        (format!("n{}", model.next()), model.states.len() - 1, files)
    };
    rng.shuffle(&mut files);
    files.truncate(1 + rng.index(3));
    let dataset = dataset_of(service, model)?;
    let root = service.files.root(&model.lock().unwrap().dataset).ok_or("the dataset is gone")?;
    let mut wanted = Vec::new();
    for path in files {
        let found = service.files.lookup(&Credentials::root(), root, path.as_bytes()).await.0;
        let handle = match found {
            Ok(found) => found.handle,
            Err(FsError::NotFound | FsError::Stale) => continue,
            Err(error) => return Err(error.to_string()),
        };
        let (dataset, name) = (dataset.clone(), name.clone());
        let (object, generation) = (handle.object, handle.generation);
        // A rename may have brought it here while the others were looked up.
        if !wanted.iter().any(|of: &NewFileSnapshot| of.object == object) {
            wanted.push(NewFileSnapshot { dataset, object, generation, path, name });
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    {
        let mut model = model.lock().unwrap();
        let files = wanted.iter().map(|of| (of.path.clone(), None)).collect();
        let states = model.states[from..].to_vec();
        let set = FileSet { files, states, ..FileSet::default() };
        model.file_sets.insert(name.clone(), set);
    }
    tell(&format!("take {wanted:?}"));
    let done = service.datasets.snapshot_files(wanted).await;
    tell(&format!("  {name}: {done:?}"));
    let model = &mut *model.lock().unwrap();
    let mut states = model.states[from..].to_vec();
    states.extend(model.coming());
    let set = model.file_sets.get_mut(&name).unwrap();
    (set.states, set.taken) = (states, true);
    match done {
        Ok(_) => {}
        Err(DatasetError::FilesGone { missing, .. }) if set.names_changed() => {
            let missing: Vec<&str> = missing.iter().filter_map(|full| path_in(full)).collect();
            set.files.retain(|path, _| !missing.contains(&path.as_str()));
        }
        Err(error) if super::reserved::is_full(&error) => set.files.clear(),
        Err(error) => return Err(format!("take {name}: {error}")),
    }
    if set.files.is_empty() {
        model.file_sets.remove(&name);
    }
    Ok(())
}

/// The path in a full name.
fn path_in(full: &str) -> Option<&str> {
    Some(full.split_once(':')?.1.split_once('@')?.0)
}

/// Destroys some of a set.
async fn destroy_some(
    service: &Service,
    model: &Mutex<Model>,
    rng: &mut Rng,
    name: &str,
) -> Result<(), String> {
    let mut files: Vec<String> = {
        let model = model.lock().unwrap();
        model.file_sets[name].files.keys().cloned().collect()
    };
    rng.shuffle(&mut files);
    files.truncate(1 + rng.index(files.len()));
    if rng.below(2) == 0 {
        holds::files_are_held(service, model, name, &files).await?;
    }
    destroy(service, model, name, files).await
}

async fn destroy(
    service: &Service,
    model: &Mutex<Model>,
    name: &str,
    files: Vec<String>,
) -> Result<(), String> {
    tell(&format!("destroy {files:?}@{name}"));
    let dataset = dataset_of(service, model)?;
    let there = there(service, model)?.remove(name).unwrap_or_default();
    let ids = files.iter().map(|path| there.get(path).map(|of| of.id));
    let ids = ids.collect::<Option<BTreeSet<_>>>().ok_or_else(|| format!("{name} is gone"))?;
    {
        let mut model = model.lock().unwrap();
        let set = model.file_sets.get_mut(name).unwrap();
        set.doomed = files.iter().cloned().collect();
    }
    let done = service.datasets.destroy_file_snapshots(&[(dataset, ids)]).await;
    done.map_err(|error| format!("destroy {files:?}@{name}: {error}"))?;
    gone(&mut model.lock().unwrap(), name, &files);
    Ok(())
}

/// These are gone, and a rewind may bring them back.
pub(super) fn gone(model: &mut Model, name: &str, files: &[String]) {
    remember_set(model, name);
    let Some(set) = model.file_sets.get_mut(name) else { return };
    set.files.retain(|path, _| !files.contains(path));
    set.doomed.clear();
    if set.files.is_empty() {
        model.file_sets.remove(name);
    }
}

/// A rollback to a txg is to destroy those that came later. Returns their full names.
pub(super) fn doom_later(
    service: &Service,
    model: &Mutex<Model>,
    txg: aquifer_ondisk::Txg,
    of: Option<ObjectId>,
) -> Result<Vec<String>, String> {
    let dataset = dataset_of(service, model)?;
    let mut names = Vec::new();
    let mut model = model.lock().unwrap();
    let all = dataset.file_snapshots(service.pool.committed_txg());
    let is_meant = |one: &FileSnapshot| of.is_none_or(|of| one.object() == of);
    for of in all.iter().filter(|of| of.txg() > txg && is_meant(of)) {
        let (path, name) = (of.record.path.clone(), of.record.name.clone());
        names.push(service.datasets.file_snapshot_name(&dataset, &path, &name));
        let set = model.file_sets.get_mut(&name);
        set.ok_or_else(|| format!("{name} is not known"))?.doomed.insert(path);
    }
    Ok(names)
}

/// It has done so, or has not.
pub(super) fn are_later(model: &mut Model, gone_too: bool) {
    for (name, set) in model.file_sets.clone() {
        match gone_too {
            true if !set.doomed.is_empty() => {
                let files: Vec<String> = set.doomed.iter().cloned().collect();
                gone(model, &name, &files);
            }
            _ => model.file_sets.get_mut(&name).unwrap().doomed.clear(),
        }
    }
}

/// Looks into a set. From here on it has these contents and no others.
async fn compare(service: &Service, model: &Mutex<Model>, name: &str) -> Result<(), String> {
    let dataset = dataset_of(service, model)?;
    let there = there(service, model)?.remove(name).unwrap_or_default();
    let mut found = BTreeMap::new();
    for (path, snapshot) in &there {
        found.insert(path.clone(), content(service, &dataset, snapshot).await?);
    }
    let mut model = model.lock().unwrap();
    let set = model.file_sets.get_mut(name).ok_or_else(|| format!("{name} is not known"))?;
    if found.keys().ne(set.files.keys()) {
        return Err(format!("of {name} are there {:?}, not {:?}", found.keys(), set.files.keys()));
    }
    if !set.fits(&found) {
        return Err(format!("{name} is {found:?}\n, may be {:?} of {:?}", set.files, set.states));
    }
    set.files = found.into_iter().map(|(path, marks)| (path, Some(marks))).collect();
    Ok(())
}

/// Compares all sets with what is known, after a start. The dataset had these states since it was
/// last known.
pub(super) async fn check(
    service: &Service,
    model: &Mutex<Model>,
    since: &[Arc<Tree>],
) -> Result<(), String> {
    let there = there(service, model)?;
    {
        let mut model = model.lock().unwrap();
        for (name, set) in model.file_sets.clone() {
            let is_there = |name: &String| there.contains_key(name);
            match set.renamed.as_ref().filter(|to| is_there(to)) {
                Some(to) if is_there(&name) => {
                    return Err(format!("a part of {name} was renamed to {to}"));
                }
                Some(_) => is_renamed(&mut model, &name),
                None => model.file_sets.get_mut(&name).unwrap().renamed = None,
            }
        }
        for (name, mut set) in std::mem::take(&mut model.file_sets) {
            let now = there.get(&name);
            let is_there = |path: &String| now.is_some_and(|now| now.contains_key(path));
            if !set.taken {
                set.states.extend(since.iter().cloned());
            }
            let doomed = std::mem::take(&mut set.doomed);
            let left: Vec<bool> = doomed.iter().map(is_there).collect();
            if left.windows(2).any(|two| two[0] != two[1]) {
                return Err(format!("a part of {doomed:?} of {name} was destroyed: {left:?}"));
            }
            let lost = set.files.keys().any(|path| !is_there(path) && !doomed.contains(path));
            if lost && (set.taken || now.is_some() && !set.names_changed()) {
                return Err(format!("of {:?} of {name} are there {now:?}", set.files.keys()));
            }
            set.files.retain(|path, _| is_there(path));
            set.taken = true;
            if !set.files.is_empty() {
                model.file_sets.insert(name, set);
            }
        }
    }
    for (name, files) in there {
        let known = model.lock().unwrap().file_sets.contains_key(&name);
        if !known {
            return Err(format!("{:?} of {name} were destroyed, and are there", files.keys()));
        }
        compare(service, model, &name).await?;
    }
    Ok(())
}

/// After a rewind: what is there must have been there at some time.
pub(super) fn check_past(service: &Service, model: &Mutex<Model>) -> Result<(), String> {
    let there = there(service, model)?;
    let mut model = model.lock().unwrap();
    model.file_sets.clear();
    for (name, files) in there {
        let past = model.past_file_sets.get(&name).cloned();
        // Taking it by schedule may have been cut off.
        let any = || FileSet { states: model.past.clone(), ..FileSet::default() };
        let past = past.or_else(|| file_schedules::is_scheduled(&name).then(any));
        let mut set = past.ok_or_else(|| format!("{name} was never taken"))?;
        for path in files.keys().filter(|_| file_schedules::is_scheduled(&name)) {
            set.files.entry(path.clone()).or_default();
        }
        set.files.retain(|path, _| files.contains_key(path));
        (set.taken, set.doomed, set.renamed) = (true, BTreeSet::new(), None);
        model.file_sets.insert(name, set);
    }
    Ok(())
}

fn remember_set(model: &mut Model, name: &str) {
    let Some(set) = model.file_sets.get(name).cloned() else { return };
    let past = model.past_file_sets.entry(name.into()).or_default();
    past.states.extend(set.states);
    for (path, marks) in set.files {
        let known = past.files.entry(path).or_default();
        *known = marks.or(known.take());
    }
}

/// Keeps what is known, for a rewind. The dataset may have these states.
pub(super) fn remember(model: &mut Model, states: &[Arc<Tree>]) {
    for (name, set) in model.file_sets.clone() {
        remember_set(model, &name);
        if let Some(to) = set.renamed {
            let past = model.past_file_sets[&name].clone();
            model.past_file_sets.insert(to, past);
        }
        if !set.taken {
            let past = model.past_file_sets.entry(name).or_default();
            past.states.extend(states.iter().cloned());
        }
    }
}

/// Destroys these of the dataset and of its files, while nothing else happens. What becomes free is
/// what was foretold.
pub(super) async fn exactly(
    service: &Service,
    dataset: &Dataset,
    these: &These,
    destroy: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    // What a replay brought back is on disk then.
    service.pool.sync().await.map_err(|error| error.to_string())?;
    quiesce(service).await?;
    let foretold = service.datasets.unique_bytes(dataset, these).await;
    let foretold = foretold.map_err(|error| error.to_string())?;
    let before = dataset.dead_bytes();
    destroy.await?;
    quiesce(service).await?;
    let freed = before.saturating_sub(dataset.dead_bytes());
    // Bookmarks may need nodes of it.
    let may_be_less = !dataset.bookmarks(service.pool.committed_txg()).is_empty();
    match freed == foretold || may_be_less && freed < foretold {
        true => Ok(()),
        false => Err(format!("{these:?}: {foretold} bytes were foretold, {freed} were freed")),
    }
}

/// Destroys some of the sets, or all, one by one.
pub(super) async fn destroy_sets(
    service: &Service,
    model: &Mutex<Model>,
    most: usize,
) -> Result<(), String> {
    let sets: Vec<(String, FileSet)> = {
        let model = model.lock().unwrap();
        model.file_sets.iter().take(most).map(|(name, set)| (name.clone(), set.clone())).collect()
    };
    let dataset = dataset_of(service, model)?;
    for (name, set) in sets {
        let mut these = These::default();
        for of in there(service, model)?.remove(&name).unwrap_or_default().into_values() {
            these.files.entry(of.object()).or_default().insert(of.txg());
        }
        let files = set.files.into_keys().collect();
        let destroy = destroy(service, model, &name, files);
        exactly(service, &dataset, &these, destroy).await?;
    }
    Ok(())
}
