//! Which files two versions of a dataset do not have alike.
//!
//! The object tables are compared, from pointers that differ down to single objects. Their names
//! are looked up in both versions then. A name is a directory and the last part of a path: what
//! lies below a directory that was renamed has the names that it had.

use std::collections::HashMap;

use aquifer_object::btree::{self, Difference};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::Objects;

use super::paths::{Name, Names, names_of, visible};
use super::{Cursor, DiffError, Looks, mark_of};
use crate::core::Files;

/// Objects of a page at most.
pub const OBJECTS_MAX: usize = 10_000;
/// Names that these may have together: a file can have many.
const NAMES_MAX: u64 = 100_000;
/// Differences of the object tables that are looked at for a page at most. Of many, clients see
/// nothing: times of access, objects without a name.
const DIFFERENCES_MAX: usize = 100_000;

/// Kind of a change of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameChange {
    /// It is new.
    Created,
    /// It is gone.
    Removed,
    /// It took the place of another name of the same file.
    Renamed,
    /// It is still there, and the file is not what it was.
    Modified,
}

/// A name that changed, or whose file did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedName {
    /// Kind of the change.
    pub change: NameChange,
    /// The path in the dataset, each name [as it is shown](aquifer_ondisk::shown_name).
    pub path: String,
    /// The path before, if it was renamed.
    pub old_path: Option<String>,
    /// The object.
    pub object: ObjectId,
    /// Its kind.
    pub kind: FileKind,
    /// The content, or the names in a directory, may have changed.
    pub content: bool,
    /// Owner, group, mode, times, or the number of names changed.
    pub attributes: bool,
    /// Names of the file before, and now.
    pub links: (u32, u32),
}

/// A page of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamesPage {
    /// Names, in the order of their objects.
    pub names: Vec<ChangedName>,
    /// Where the next page begins.
    pub next: Option<Cursor>,
}

/// A file that is not the same in both versions: as it was, and is.
type Pair = (Option<Inode>, Option<Inode>);

impl Files {
    /// Names of at most `limit` objects that two versions, by their full names, do not have alike.
    /// The new one may be a dataset as it is now: then each page shows it as of another moment.
    ///
    /// # Errors
    /// Names that do not exist, versions without a common past, a cursor of another answer, a
    /// snapshot that was destroyed meanwhile.
    pub async fn changed_names(
        &self,
        (old, new): (&str, &str),
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Result<NamesPage, DiffError> {
        let _turn = self.comparing.lock().await;
        let (old, new) = (self.datasets.version(old)?, self.datasets.version(new)?);
        self.check_related(&old, &new)?;
        let mark = mark_of(&[old.guid().0, new.guid().0]);
        let others = || DiffError::Others(old.name().into(), new.name().into());
        let from = Cursor::next_of(cursor, mark).ok_or_else(others)?;
        if cursor.is_none() && (old.is_head() || new.is_head()) {
            self.bring_to_disk().await?;
        }
        let mut looks = Looks::new(&self.pool, vec![old.look(&self.pool)?, new.look(&self.pool)?]);
        let (mut pairs, mut next) = self.changed_objects(&mut looks, from, limit).await?;
        let wanted = |inodes: Vec<&Inode>| {
            let of = |inode: &Inode| (inode.object, (inode.generation, links(inode)));
            inodes.into_iter().map(of).collect::<HashMap<ObjectId, (u64, u32)>>()
        };
        let old_ones = wanted(pairs.iter().filter_map(|(old, _)| old.as_ref()).collect());
        let new_ones = wanted(pairs.iter().filter_map(|(_, new)| new.as_ref()).collect());
        let was = names_of(&self.pool, &mut looks, 0, old_ones).await?;
        let is = names_of(&self.pool, &mut looks, 1, new_ones).await?;
        if let Some(cut) = [was.cut, is.cut].into_iter().flatten().min() {
            pairs.retain(|pair| object(pair) < cut);
            next = Some(cut.0);
        }
        let mut changed = Vec::new();
        for pair in &pairs {
            let (old, new) = pair;
            let of = |side: &Option<Inode>, names: &Names| match side {
                Some(_) => names.of(object(pair)),
                None => Vec::new(),
            };
            tell((old, new), (of(old, &was), of(new, &is)), &mut changed);
        }
        let next = next.map(|next| Cursor { versions: mark, next });
        Ok(NamesPage { names: changed, next })
    }

    /// The next objects that differ, and the first one that comes after them.
    async fn changed_objects(
        &self,
        looks: &mut Looks<'_>,
        from: u64,
        limit: usize,
    ) -> Result<(Vec<Pair>, Option<u64>), DiffError> {
        let (old, new) = (looks.objects(0), looks.objects(1));
        let mut compare = btree::compare_from::<Objects, _>(&*self.pool, old, new, from)?;
        let (mut pairs, mut objects, mut names) = (Vec::new(), 0, 0u64);
        for step in 0.. {
            looks.step().await?;
            let Some(Difference { key, old, new }) = compare.next().await? else { break };
            if key < from {
                continue;
            }
            if objects >= limit.clamp(1, OBJECTS_MAX)
                || names >= NAMES_MAX
                || step > DIFFERENCES_MAX
            {
                return Ok((pairs, Some(key)));
            }
            let before = pairs.len();
            match (visible(old), visible(new)) {
                (Some(old), Some(new)) if is_same_file(&old, &new) => {
                    if differs(&old, &new) != (false, false) {
                        pairs.push((Some(old), Some(new)));
                    }
                }
                (old, new) => {
                    pairs.extend(old.map(|old| (Some(old), None)));
                    pairs.extend(new.map(|new| (None, Some(new))));
                }
            }
            let added = pairs.get(before..).unwrap_or_default().iter();
            let inodes = added.flat_map(|(old, new)| old.iter().chain(new));
            names += inodes.map(|inode| u64::from(links(inode))).sum::<u64>();
            objects += usize::from(pairs.len() > before);
        }
        Ok((pairs, None))
    }
}

fn object((old, new): &Pair) -> ObjectId {
    old.as_ref().or(new.as_ref()).map_or(ObjectId(0), |inode| inode.object)
}

/// An id comes again after a cut, a rewind, or in a clone; a generation does not.
fn is_same_file(old: &Inode, new: &Inode) -> bool {
    (old.generation, old.kind) == (new.generation, new.kind)
}

/// Whether content and attributes differ.
fn differs(old: &Inode, new: &Inode) -> (bool, bool) {
    let content = |of: &Inode| (of.root, of.size, of.entries, of.rdev, of.damaged);
    // A rename alone changes nothing else than the number of changes, if the clock stands.
    let attributes = |of: &Inode| (of.mode, of.uid, of.gid, of.nlink, of.mtime, of.ctime);
    let counted = old.change != new.change;
    (content(old) != content(new), counted || attributes(old) != attributes(new))
}

/// Names of an inode. A directory has one, whatever its number of links.
fn links(inode: &Inode) -> u32 {
    if inode.kind == FileKind::Directory { 1 } else { inode.nlink }
}

/// Appends what became of the names of one file.
fn tell(
    (old, new): (&Option<Inode>, &Option<Inode>),
    (mut was, mut is): (Vec<Name>, Vec<Name>),
    changed: &mut Vec<ChangedName>,
) {
    let Some(inode) = new.as_ref().or(old.as_ref()) else { return };
    let (content, attributes) = match (old, new) {
        (Some(old), Some(new)) => differs(old, new),
        _ => (true, true),
    };
    let count = |side: &Option<Inode>| side.as_ref().map_or(0, links);
    let mut put = |change, path: String, old_path| {
        let (object, kind, links) = (inode.object, inode.kind, (count(old), count(new)));
        changed.push(ChangedName {
            change,
            path,
            old_path,
            object,
            kind,
            content,
            attributes,
            links,
        });
    };
    // Too deep for the walk, or in a directory that is damaged.
    let unnamed = || format!("#{}", inode.object);
    match (old, new) {
        (Some(_), None) if was.is_empty() => return put(NameChange::Removed, unnamed(), None),
        (None, Some(_)) if is.is_empty() => return put(NameChange::Created, unnamed(), None),
        (Some(_), Some(_)) if is.is_empty() || was.is_empty() => {
            return put(NameChange::Modified, unnamed(), None);
        }
        _ => {}
    }
    let key = |name: &Name| (name.directory, name.last.clone());
    was.sort_by_key(key);
    is.sort_by_key(key);
    let stays = |names: &[Name], name: &Name| names.binary_search_by_key(&key(name), key).is_ok();
    let stayed = is.iter().find(|name| stays(&was, name)).map(|name| name.path.clone());
    let gone: Vec<Name> = was.iter().filter(|name| !stays(&is, name)).cloned().collect();
    is.retain(|name| !stays(&was, name));
    if let Some(path) = stayed {
        put(NameChange::Modified, path, None);
    }
    let renamed = gone.len().min(is.len());
    let mut gone = gone.into_iter();
    for name in is.drain(..renamed) {
        put(NameChange::Renamed, name.path, gone.next().map(|name| name.path));
    }
    gone.for_each(|name| put(NameChange::Removed, name.path, None));
    is.into_iter().for_each(|name| put(NameChange::Created, name.path, None));
}
