//! Paths of objects in a version, and objects of paths.
//!
//! A file does not know its names, so they are found by a walk through all directories. The walk
//! goes down first: it keeps the directories above the one that it reads, each with what is left of
//! one batch of its entries.

use std::collections::{BTreeMap, HashMap};

use aquifer_dataset::{ORPHANS, ROOT_DIRECTORY};
use aquifer_object::btree;
use aquifer_ondisk::dirent::{COLLISIONS_MAX, Dirent, hash_key};
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::shown_name::shown;
use aquifer_ondisk::tree_node::{Directory, Objects};
use aquifer_ondisk::{BlockPointer, ObjectId};
use aquifer_pool::{Pool, PoolError};

use super::{DiffError, Looks};

/// Entries read at a time.
const BATCH_ENTRIES: usize = 64;
/// Directories below each other that the walk enters, and bytes of a path that is shown to a
/// directory. Clients can make more, and can use none of it by its path: PATH_MAX is 4,096.
const DEPTH_MAX: usize = 512;
const PATH_BYTES_MAX: usize = 4096;
/// Bytes of all names of one side of a page.
const NAMES_BYTES_MAX: usize = 8 << 20;

/// A name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    /// The directory that it is in.
    pub directory: ObjectId,
    /// The last part of the path.
    pub last: Vec<u8>,
    /// The path in the dataset, as [`shown`] shows it.
    pub path: String,
}

/// The names of objects.
#[derive(Debug, Default)]
pub(crate) struct Names {
    of: BTreeMap<ObjectId, Vec<Name>>,
    bytes: usize,
    /// There was no room for the names of this object and later ones.
    pub cut: Option<ObjectId>,
}

impl Names {
    /// The names of one.
    pub fn of(&self, id: ObjectId) -> Vec<Name> {
        self.of.get(&id).cloned().unwrap_or_default()
    }

    /// Adds a name. If there is no room, the last objects are left to the next page; the only one
    /// that is left shows no name then. Returns the object of which no name is wanted any more,
    /// and whether of later ones neither.
    fn add(&mut self, id: ObjectId, name: Name) -> Option<(ObjectId, bool)> {
        let bytes = |names: &[Name]| -> usize { names.iter().map(Name::bytes).sum() };
        self.bytes += name.bytes();
        self.of.entry(id).or_default().push(name);
        if self.bytes <= NAMES_BYTES_MAX {
            return None;
        }
        let is_only = self.of.len() == 1;
        let (last, names) = self.of.pop_last()?;
        self.bytes = self.bytes.saturating_sub(bytes(&names));
        if !is_only {
            self.cut = Some(last);
        }
        Some((last, !is_only))
    }
}

impl Name {
    fn bytes(&self) -> usize {
        self.last.len() + self.path.len() + size_of::<Name>()
    }
}

/// A directory that the walk is in.
struct Level {
    id: ObjectId,
    root: Option<BlockPointer>,
    /// Directories in it that wait, the next one at the end.
    below: Vec<Dirent>,
    /// The first key that was not read; `None`: all were.
    next: Option<u64>,
    /// Bytes of the path before its own name.
    path_bytes: usize,
}

/// An object as clients see it: one without a name, or without meaning to them, is not there.
pub(crate) fn visible(inode: Option<Inode>) -> Option<Inode> {
    inode.filter(|inode| inode.nlink > 0 && inode.object != ORPHANS && inode.origin.0 == 0)
}

/// An object in an object table.
pub(crate) async fn inode_of(
    pool: &Pool,
    objects: Option<BlockPointer>,
    id: ObjectId,
) -> Result<Option<Inode>, PoolError> {
    Ok(visible(btree::lookup::<Objects, Pool>(pool, objects, id.0).await?))
}

/// The object of a path in the version of an object table.
pub(crate) async fn object_of(
    pool: &Pool,
    objects: Option<BlockPointer>,
    path: &[u8],
) -> Result<Option<Inode>, PoolError> {
    let mut found = inode_of(pool, objects, ROOT_DIRECTORY).await?;
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let Some(above) = found.filter(|inode| inode.kind == FileKind::Directory) else {
            return Ok(None);
        };
        let from = hash_key(above.hash_seed, part);
        let end = from.checked_add(COLLISIONS_MAX);
        let limit = usize::try_from(COLLISIONS_MAX).unwrap_or(usize::MAX);
        let range = btree::collect_range::<Directory, Pool>(pool, above.root, from, end, limit);
        let entry = range.await?.into_iter().find(|entry| entry.name == part);
        let Some(entry) = entry else { return Ok(None) };
        let inode = inode_of(pool, objects, entry.object).await?;
        found = inode.filter(|inode| inode.generation == entry.generation);
    }
    Ok(found)
}

/// All names of these objects in the version `side` of `looks`. Each must have so many; the walk
/// ends when it has found all.
pub(crate) async fn names_of(
    pool: &Pool,
    looks: &mut Looks<'_>,
    side: usize,
    mut wanted: HashMap<ObjectId, (u64, u32)>,
) -> Result<Names, DiffError> {
    let mut names = Names::default();
    let objects = looks.objects(side);
    let root = inode_of(pool, objects, ROOT_DIRECTORY).await?.and_then(|inode| inode.root);
    if wanted.remove(&ROOT_DIRECTORY).is_some() {
        let last = Vec::new();
        let name = Name { directory: ROOT_DIRECTORY, last, path: "/".into() };
        names.add(ROOT_DIRECTORY, name);
    }
    let (mut path, mut levels) = (String::new(), Vec::new());
    let top = Level { id: ROOT_DIRECTORY, root, below: Vec::new(), next: Some(0), path_bytes: 0 };
    levels.push(top);
    while let Some(level) = levels.last_mut().filter(|_| !wanted.is_empty()) {
        looks.step().await?;
        if let Some(entry) = level.below.pop() {
            // Damage that cannot be read is reported as such: a name might be missing.
            let inode = inode_of(pool, objects, entry.object).await?;
            let inode = inode.filter(|inode| inode.kind == FileKind::Directory);
            let is_near = levels.len() < DEPTH_MAX && path.len() < PATH_BYTES_MAX;
            if let Some(inode) = inode.filter(|_| is_near) {
                let path_bytes = path.len();
                path.push('/');
                path.push_str(&shown(&entry.name));
                let (id, root) = (entry.object, inode.root);
                levels.push(Level { id, root, below: Vec::new(), next: Some(0), path_bytes });
            }
            continue;
        }
        let Some(from) = level.next else {
            path.truncate(level.path_bytes);
            levels.pop();
            continue;
        };
        let range =
            btree::collect_range::<Directory, Pool>(pool, level.root, from, None, BATCH_ENTRIES);
        let entries = range.await?;
        let last = entries.last().filter(|_| entries.len() >= BATCH_ENTRIES);
        level.next = last.and_then(|last| last.key.checked_add(1));
        for entry in entries {
            if let Some((generation, left)) = wanted.get_mut(&entry.object)
                && *generation == entry.generation
            {
                let path = format!("{path}/{}", shown(&entry.name));
                let name = Name { directory: level.id, last: entry.name.clone(), path };
                *left = left.saturating_sub(1);
                if *left == 0 {
                    wanted.remove(&entry.object);
                }
                match names.add(entry.object, name) {
                    Some((last, true)) => wanted.retain(|id, _| *id < last),
                    Some((last, false)) => drop(wanted.remove(&last)),
                    None => {}
                }
            }
            if entry.kind == FileKind::Directory {
                level.below.push(entry);
            }
        }
        level.below.reverse();
    }
    Ok(names)
}
