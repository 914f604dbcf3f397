//! Differences of versions, held against plain copies in memory: random histories of two levels of
//! directories, with links, renames, truncations, compression, snapshots, rollbacks and clones.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_dataset::{LookError, RollbackOptions};
use aquifer_files::diff::names::{ChangedName, NameChange};
use aquifer_files::diff::{Cursor, DiffError};
use aquifer_files::{Credentials, FileHandle, FileKind, Service, SetAttributes, Stability};
use aquifer_sim::Rng;

use crate::bed::{Bed, find, make, noise, root, write};

pub const DATASET: &str = "tank/d";
const SNAPSHOTS: usize = 6;

/// A version in memory: files by their numbers, with paths and content.
#[derive(Debug, Clone, Default)]
pub struct Model {
    files: BTreeMap<u64, File>,
    /// Directories by their paths.
    pub directories: BTreeMap<String, FileHandle>,
}

#[derive(Debug, Clone)]
struct File {
    handle: FileHandle,
    paths: BTreeSet<String>,
    content: Vec<u8>,
}

impl Model {
    fn paths(&self) -> BTreeMap<String, u64> {
        let of = |(id, file): (&u64, &File)| {
            let id = *id;
            file.paths.clone().into_iter().map(move |path| (path, id)).collect::<Vec<_>>()
        };
        self.files.iter().flat_map(of).collect()
    }

    fn split<'p>(&self, path: &'p str) -> (FileHandle, &'p [u8]) {
        let (directory, name) = path.rsplit_once('/').unwrap();
        (self.directories[directory], name.as_bytes())
    }

    fn any(&self, rng: &mut Rng) -> Option<(String, u64)> {
        let all: Vec<_> = self.paths().into_iter().collect();
        rng.pick(&all).cloned()
    }

    fn new_path(&self, rng: &mut Rng) -> String {
        let directories: Vec<_> = self.directories.keys().collect();
        format!("{}/f{}", rng.pick(&directories).unwrap(), rng.below(12))
    }

    /// Returns the model with the same files in another dataset.
    fn moved(&self, handle: FileHandle) -> Model {
        let mut moved = self.clone();
        let there = |other: &mut FileHandle| other.fs_guid = handle.fs_guid;
        moved.files.values_mut().for_each(|file| there(&mut file.handle));
        moved.directories.values_mut().for_each(there);
        moved
    }
}

fn cred() -> Credentials {
    root()
}

/// A write, a truncation, or a hole.
async fn change_content(service: &Service, file: &mut File, rng: &mut Rng) {
    if rng.below(4) == 0 {
        let size = if rng.coin() { rng.below(400_000) } else { rng.below(30_000_000) };
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let done = service.files.setattr(&cred(), file.handle, &set, None).await.kept().await;
        done.0.unwrap();
        file.content.resize(size as usize, 0);
        return;
    }
    let at = if rng.coin() { rng.below(400_000) } else { rng.below(20_000) };
    let length = if rng.coin() { 1 + rng.below(300) } else { 1 + rng.below(200_000) };
    let data = match rng.below(4) {
        0 => vec![0; length as usize],
        1 => (0..length).map(|byte| (byte / 700 + at) as u8).collect(),
        _ => noise(rng.next_u64(), length.div_ceil(4096) as usize)[..length as usize].to_vec(),
    };
    let (from, to) = (at as usize, (at + length) as usize);
    service.files.write(&cred(), file.handle, at, &data, Stability::Unstable).await.0.unwrap();
    file.content.resize(file.content.len().max(to), 0);
    file.content[from..to].copy_from_slice(&data);
}

pub async fn change(service: &Service, model: &mut Model, rng: &mut Rng) {
    let some = model.any(rng);
    let new = model.new_path(rng);
    let is_free = !model.paths().contains_key(&new);
    match (rng.below(20), some) {
        (0..=3, _) if is_free => {
            let (directory, name) = model.split(&new);
            let name = std::str::from_utf8(name).unwrap();
            let handle = make(service, directory, name).await;
            let (paths, content) = (BTreeSet::from([new]), Vec::new());
            model.files.insert(handle.object.0, File { handle, paths, content });
        }
        (4, _) if model.directories.len() < 4 => {
            let name = format!("d{}", rng.below(1000));
            let (above, set) = (model.directories[""], SetAttributes::default());
            let made = service.files.mkdir(&cred(), above, name.as_bytes(), &set).await;
            if let Ok(made) = made.kept().await.0 {
                model.directories.insert(format!("/{name}"), made.handle);
            }
        }
        (5..=6, Some((path, id))) => {
            let (directory, name) = model.split(&path);
            service.files.remove(&cred(), directory, name).await.kept().await.0.unwrap();
            let file = model.files.get_mut(&id).unwrap();
            file.paths.remove(&path);
            if file.paths.is_empty() {
                model.files.remove(&id);
            }
        }
        (7..=8, Some((path, id))) if is_free => {
            let (from, to) = (model.split(&path), model.split(&new));
            service.files.rename(&cred(), from, to).await.kept().await.0.unwrap();
            let file = model.files.get_mut(&id).unwrap();
            file.paths.remove(&path);
            file.paths.insert(new);
        }
        (9, Some((_, id))) if is_free => {
            let (directory, name) = model.split(&new);
            let handle = model.files[&id].handle;
            service.files.link(&cred(), handle, directory, name).await.kept().await.0.unwrap();
            model.files.get_mut(&id).unwrap().paths.insert(new);
        }
        (10..=19, Some((_, id))) => {
            change_content(service, model.files.get_mut(&id).unwrap(), rng).await;
        }
        _ => {}
    }
}

/// All pages of the names, at most so many objects on each.
async fn names(service: &Service, old: &str, new: &str, limit: usize) -> Vec<ChangedName> {
    let (mut all, mut cursor): (_, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = service.files.changed_names((old, new), cursor, limit).await.unwrap();
        all.extend(page.names);
        match page.next {
            None => return all,
            next => cursor = next,
        }
    }
}

async fn check_names(
    service: &Service,
    (old_name, old): (&str, &Model),
    (new_name, new): (&str, &Model),
    limit: usize,
) {
    let found = names(service, old_name, new_name, limit).await;
    let of = |model: &Model, id: u64| {
        model.files.get(&id).map(|file| file.paths.clone()).unwrap_or_default()
    };
    let ids: BTreeSet<u64> = old.files.keys().chain(new.files.keys()).copied().collect();
    for id in &ids {
        let (was, is) = (of(old, *id), of(new, *id));
        // In a clone a directory can have the number of a file.
        let is_told = |name: &&ChangedName| name.object.0 == *id && name.kind == FileKind::Regular;
        let told = found.iter().filter(is_told);
        let (mut gone, mut come, mut modified) = (BTreeSet::new(), BTreeSet::new(), 0);
        for name in told {
            match name.change {
                NameChange::Created => assert!(come.insert(name.path.clone())),
                NameChange::Removed => assert!(gone.insert(name.path.clone())),
                NameChange::Renamed => {
                    assert!(come.insert(name.path.clone()));
                    assert!(gone.insert(name.old_path.clone().unwrap()));
                }
                NameChange::Modified => {
                    modified += 1;
                    assert!(was.contains(&name.path) && is.contains(&name.path), "{name:?}");
                }
            }
        }
        // A clone and its origin give the same number to different files.
        let both = (old.files.get(id), new.files.get(id));
        let is_same = match both {
            (Some(old), Some(new)) => old.handle.generation == new.handle.generation,
            _ => false,
        };
        let expected = if is_same { (&was - &is, &is - &was) } else { (was.clone(), is.clone()) };
        assert_eq!((gone, come), expected, "names of {id} in {old_name} {new_name}");
        if is_same
            && let (Some(old), Some(new)) = both
            && old.content != new.content
        {
            let told = found.iter().find(is_told).unwrap();
            assert!(told.content && (modified == 1 || &was & &is == BTreeSet::new()), "{told:?}");
        }
    }
    for (path, _) in new.directories.iter().filter(|(path, _)| !old.directories.contains_key(*path))
    {
        let created =
            |name: &ChangedName| name.path == **path && name.change == NameChange::Created;
        assert!(found.iter().any(created), "{path}: {found:?}");
    }
}

/// Makes the new version of the old one by the ranges alone.
async fn check_ranges(
    service: &Service,
    (old_name, old): (&str, &File),
    (new_name, new): (&str, &File),
    limit: usize,
) -> u64 {
    let at = |name: &str, file: &File| format!("{name}:{}", file.paths.first().unwrap());
    let (from, to) = (at(old_name, old), at(new_name, new));
    let (mut copy, mut cursor, mut told) = (old.content.clone(), None, 0);
    copy.resize(new.content.len(), 0);
    let mut last = 0;
    loop {
        let page = service.files.changed_ranges((&from, &to), cursor, limit).await.unwrap();
        assert_eq!(page.old_bytes, old.content.len() as u64);
        assert_eq!(page.new_bytes, new.content.len() as u64);
        assert!(page.ranges.len() <= limit);
        for range in page.ranges {
            assert!(last <= range.offset && range.length > 0, "{range:?} after {last}");
            last = range.offset + range.length;
            told += range.length;
            let bytes = range.offset as usize..last as usize;
            match range.is_data {
                true => copy[bytes.clone()].copy_from_slice(&new.content[bytes]),
                false => copy[bytes].fill(0),
            }
        }
        match page.next {
            None => break,
            next => cursor = next,
        }
    }
    assert!(copy == new.content, "{from} {to}: a change is missing");
    told
}

async fn check(service: &Service, old: (&str, &Model), new: (&str, &Model), rng: &mut Rng) {
    check_names(service, old, new, 1 + rng.index(20)).await;
    for (id, file) in &new.1.files {
        if let Some(before) = old.1.files.get(id) {
            let limit = 1 + rng.index(30);
            let told = check_ranges(service, (old.0, before), (new.0, file), limit).await;
            let is_equal = before.content == file.content;
            assert!(told > 0 || is_equal || before.content.len() != file.content.len());
        }
    }
    // Two files that are not the same one.
    let (some, other) = (old.1.files.values().next(), new.1.files.values().last());
    if let (Some(some), Some(other)) = (some, other) {
        check_ranges(service, (old.0, some), (new.0, other), 50).await;
    }
}

/// A bookmark takes the place of a snapshot, unless a clone needs that.
async fn keep_a_bookmark(service: &Service, name: &mut String) {
    let Some((dataset, at)) = name.split_once('@') else { return };
    let bookmark = format!("{dataset}#{at}");
    service.datasets.bookmark(name, &bookmark).await.unwrap();
    let (dataset, snapshot) = service.datasets.snapshot_by_name(name).unwrap();
    let these = [(dataset, [snapshot.txg].into())];
    match service.datasets.destroy_snapshots(&these, false).await {
        Ok(_) => *name = bookmark,
        Err(_) => service.datasets.destroy_bookmarks(&[bookmark]).await.unwrap(),
    }
}

async fn history(service: &Service, seed: u64) {
    let mut rng = Rng::stream(seed, "diff");
    let compression = if rng.coin() { "lz4" } else { "off" };
    let properties = [("compression".to_string(), compression.to_string())];
    service.datasets.create(DATASET, &properties).await.unwrap();
    let mut model = Model::default();
    model.directories.insert(String::new(), service.files.root(DATASET).unwrap());
    let mut versions: Vec<(String, Model)> = Vec::new();
    let mut heads = vec![(DATASET.to_string(), model)];
    for at in 0..SNAPSHOTS {
        let which = rng.index(heads.len());
        let (dataset, model) = &mut heads[which];
        for _ in 0..rng.below(40) {
            change(service, model, &mut rng).await;
        }
        let mut own = versions.iter().rev();
        let newest = own.find(|(name, _)| name.starts_with(&format!("{dataset}@")));
        if rng.below(5) == 0
            && let Some((name, back)) = newest
        {
            let options = RollbackOptions { destroy_later: false, force: true };
            service.datasets.rollback(name, options).await.unwrap();
            *model = back.clone();
            // It takes later bookmarks away.
            let is_there =
                |name: &str| !name.contains('#') || service.datasets.bookmark_by_name(name).is_ok();
            versions.retain(|(name, _)| is_there(name));
            continue;
        }
        let name = format!("{dataset}@{at}");
        service.datasets.snapshot(std::slice::from_ref(&name), false).await.unwrap();
        versions.push((name.clone(), model.clone()));
        if rng.below(3) == 0 {
            let clone = format!("tank/c{at}");
            service.datasets.clone_snapshot(&name, &clone, &[]).await.unwrap();
            let model = model.moved(service.files.root(&clone).unwrap());
            heads.push((clone, model));
        }
        if rng.coin() {
            let which = rng.index(versions.len());
            keep_a_bookmark(service, &mut versions[which].0).await;
        }
    }
    for (_, model) in &mut heads {
        for _ in 0..rng.below(20) {
            change(service, model, &mut rng).await;
        }
    }
    versions.extend(heads);
    for (old_name, old) in &versions {
        for (new_name, new) in &versions {
            check(service, (old_name, old), (new_name, new), &mut rng).await;
        }
    }
}

#[test]
fn differences_follow_plain_copies() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |value| value.parse().unwrap())
    };
    let first = number("AQUIFER_FIRST_SEED", 0);
    for seed in first..first + number("AQUIFER_SEEDS", 6) {
        eprintln!("seed {seed}");
        let mut bed = Bed::new(1, 262_144);
        bed.life(async move |service| history(&service, seed).await);
    }
}

/// Many small files in one page, then in pages of one: the same.
#[test]
fn pages_make_up_one_answer() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create(DATASET, &[]).await.unwrap();
        let top = service.files.root(DATASET).unwrap();
        service.datasets.snapshot(&["tank/d@a".into()], false).await.unwrap();
        for at in 0..600 {
            make(&service, top, &format!("f{at}")).await;
        }
        service.datasets.snapshot(&["tank/d@b".into()], false).await.unwrap();
        let all = names(&service, "tank/d@a", "tank/d@b", 10_000).await;
        assert_eq!(all.len(), 601);
        assert_eq!(names(&service, "tank/d@a", "tank/d@b", 7).await, all);
        assert_eq!(names(&service, "tank/d@a", DATASET, 100).await, all);
    });
}

/// Long paths of many files do not fit one page.
#[test]
fn a_page_has_room_for_so_many_names() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create(DATASET, &[]).await.unwrap();
        let mut directory = service.files.root(DATASET).unwrap();
        service.datasets.snapshot(&["tank/d@a".into()], false).await.unwrap();
        for at in 0..19 {
            let (name, set) = (format!("{at:0>200}"), SetAttributes::default());
            let made = service.files.mkdir(&cred(), directory, name.as_bytes(), &set).await;
            directory = made.kept().await.0.unwrap().handle;
        }
        for at in 0..2500 {
            make(&service, directory, &format!("f{at}")).await;
        }
        let page = service.files.changed_names(("tank/d@a", DATASET), None, 10_000).await.unwrap();
        assert!(page.next.is_some() && page.names.len() < 2400, "{}", page.names.len());
        let all = names(&service, "tank/d@a", DATASET, 10_000).await;
        assert_eq!(all.len(), 1 + 19 + 2500);
        let paths: BTreeSet<&String> = all.iter().map(|name| &name.path).collect();
        assert_eq!(paths.len(), all.len());
        assert!(all.iter().all(|name| name.path.starts_with('/')));
    });
}

/// A page that goes on with other versions than it began with is refused.
#[test]
fn an_answer_goes_on_with_the_versions_that_it_began_with() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create(DATASET, &[]).await.unwrap();
        let top = service.files.root(DATASET).unwrap();
        service.datasets.snapshot(&["tank/d@a".into()], false).await.unwrap();
        let file = make(&service, top, "disk").await;
        make(&service, top, "other").await;
        service.datasets.snapshot(&["tank/d@b".into()], false).await.unwrap();
        for page in 0..8 {
            write(&service, file, page * 2, &noise(page, 1), Stability::FileSync).await.unwrap();
        }
        let files = &service.files;
        let of_names =
            async |cursor| files.changed_names(("tank/d@a", "tank/d@b"), cursor, 1).await;
        let of_ranges =
            async |cursor| files.changed_ranges(("tank/d@b:disk", "tank/d:disk"), cursor, 2).await;
        let cursor = of_names(None).await.unwrap().next;
        assert!(cursor.is_some() && of_names(cursor).await.is_ok());
        let on = of_ranges(None).await.unwrap().next;
        assert!(on.is_some() && of_ranges(on).await.is_ok());
        // The file changes, and the snapshot is another one of its name.
        write(&service, file, 0, &noise(9, 1), Stability::FileSync).await.unwrap();
        service.pool.sync().await.unwrap();
        assert!(matches!(of_ranges(on).await, Err(DiffError::Others(..))));
        let dataset = service.datasets.by_name(DATASET).unwrap();
        let newest = dataset.snapshots(service.pool.committed_txg()).last().unwrap().txg;
        let doomed = [(dataset, BTreeSet::from([newest]))];
        service.datasets.destroy_snapshots(&doomed, false).await.unwrap();
        assert!(matches!(of_names(cursor).await, Err(DiffError::Dataset(_))));
        service.datasets.snapshot(&["tank/d@b".into()], false).await.unwrap();
        assert!(matches!(of_names(cursor).await, Err(DiffError::Others(..))));
        assert!(find(&service, DATASET, "disk").await.is_ok());
    });
}

/// Between two looks at a snapshot it is destroyed.
#[test]
fn a_snapshot_that_was_destroyed_is_not_looked_at() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create(DATASET, &[]).await.unwrap();
        service.datasets.snapshot(&["tank/d@a".into()], false).await.unwrap();
        let version = service.datasets.version("tank/d@a").unwrap();
        let mut look = version.look(&service.pool).unwrap();
        look.renew().unwrap();
        let dataset = service.datasets.by_name(DATASET).unwrap();
        let txg = dataset.snapshots(service.pool.committed_txg())[0].txg;
        let doomed = [(dataset, BTreeSet::from([txg]))];
        service.datasets.destroy_snapshots(&doomed, false).await.unwrap();
        assert_eq!(look.renew(), Err(LookError::Destroyed("tank/d@a".into())));
        assert!(version.look(&service.pool).is_err());
        let head = service.datasets.version(DATASET).unwrap();
        let mut look = head.look(&service.pool).unwrap();
        service.pool.world().sleep(std::time::Duration::from_secs(29)).await;
        look.renew().unwrap();
        service.pool.world().sleep(std::time::Duration::from_secs(2)).await;
        assert_eq!(look.renew(), Err(LookError::TooLong(DATASET.into())));
    });
}
