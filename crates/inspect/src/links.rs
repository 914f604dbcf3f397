//! The claims of directories about objects, compared with the objects' own.
//!
//! Object 1 is the root directory; object 2 lists the objects without links, so that they are freed
//! later. Both stand in no directory and are their own parents. A directory's links are 2 and one
//! for each directory in it.

use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::types::{DatasetId, ORPHANS, ObjectId, ROOT_DIRECTORY};

use crate::directory::Reference;
use crate::finding::{At, Kind};
use crate::report::DatasetSummary;
use crate::scan::Scan;

/// The part of an inode that is kept until all directories are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object {
    pub id: ObjectId,
    generation: u64,
    kind: FileKind,
    nlink: u32,
    parent: ObjectId,
    /// Entries that name it.
    names: u32,
    /// Directories in it.
    directories: u32,
    /// The list of orphans names it.
    listed: bool,
    way: Way,
}

/// Whether a path leads from the root to a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    /// On the path that is being followed.
    Walking,
    /// It ends at a root, or at a directory that is reported otherwise.
    Ends,
    Loops,
}

impl Object {
    pub fn new(inode: &Inode) -> Self {
        Object {
            id: inode.object,
            generation: inode.generation,
            kind: inode.kind,
            nlink: inode.nlink,
            parent: inode.parent,
            names: 0,
            directories: 0,
            listed: false,
            way: Way::Unknown,
        }
    }

    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// The root directory or the list of orphans.
    fn is_top(&self) -> bool {
        self.id == ROOT_DIRECTORY || self.id == ORPHANS
    }
}

/// The objects of one dataset, by id.
pub(crate) struct Links<'a> {
    dataset: DatasetId,
    objects: &'a mut [Object],
}

impl<'a> Links<'a> {
    /// Sorts `objects`.
    pub fn new(dataset: DatasetId, objects: &'a mut [Object]) -> Self {
        objects.sort_unstable_by_key(|object| object.id);
        Links { dataset, objects }
    }

    fn find(&self, id: ObjectId) -> Option<usize> {
        self.objects.binary_search_by_key(&id, |object| object.id).ok()
    }

    fn at(&self, object: ObjectId) -> At {
        At::object(self.dataset, object)
    }

    /// Enters the claims of directories. With `whole` every object was read: a missing one does not
    /// exist.
    pub fn enter(&mut self, scan: &mut Scan<'_>, references: &[Reference], whole: bool) {
        for reference in references {
            let (directory, object) = (reference.directory, reference.object);
            let Some(found) = self.find(object) else {
                if whole {
                    scan.findings.add(Kind::EntryDangling, self.at(directory), || {
                        format!("directory {directory}: an entry names {object}, which is not")
                    });
                }
                continue;
            };
            let Some(target) = self.objects.get_mut(found) else { continue };
            let at = At::object(self.dataset, object);
            if (target.generation, target.kind) != (reference.generation, reference.kind) {
                scan.findings.add(Kind::EntryWrong, at.clone(), || {
                    let (says, kind) = (reference.generation, reference.kind);
                    let (is, what) = (target.generation, target.kind);
                    format!(
                        "directory {directory}: its entry for {object} says {kind:?} of generation \
                         {says}, the inode {what:?} of {is}"
                    )
                });
            }
            if directory == ORPHANS {
                target.listed = true;
                continue;
            }
            target.names = target.names.saturating_add(1);
            if !target.is_directory() {
                continue;
            }
            if target.parent != directory {
                scan.findings.add(Kind::ParentWrong, at, || {
                    let parent = target.parent;
                    format!("directory {object} stands in {directory}, its parent is {parent}")
                });
            }
            let holder = self.find(directory).and_then(|at| self.objects.get_mut(at));
            if let Some(holder) = holder {
                holder.directories = holder.directories.saturating_add(1);
            }
        }
    }

    /// Compares links with names, once all directories were read to their end.
    pub fn check(&mut self, scan: &mut Scan<'_>, summary: &mut DatasetSummary) {
        for (id, what) in [(ROOT_DIRECTORY, "root directory"), (ORPHANS, "list of orphans")] {
            let found = self.find(id).and_then(|at| self.objects.get(at));
            let good = found.is_some_and(|object| object.is_directory() && object.parent == id);
            if !good {
                scan.findings.add(Kind::RootDirectory, self.at(id), || {
                    format!("dataset {}: object {id} is not its {what}", self.dataset)
                });
            }
        }
        for object in self.objects.iter() {
            self.check_object(scan, object, summary);
        }
        self.check_ways(scan);
    }

    fn check_object(&self, scan: &mut Scan<'_>, object: &Object, summary: &mut DatasetSummary) {
        let Object { id, nlink, names, .. } = *object;
        let mut add = |kind, why: String| {
            scan.findings.add(kind, self.at(id), || format!("object {id} {why}"));
        };
        if object.listed && nlink > 0 {
            add(Kind::OrphanAlive, format!("has {nlink} links and is listed to be freed"));
        }
        if nlink == 0 && names == 0 {
            summary.orphans += 1;
            return match object.listed {
                true => add(Kind::Orphan, "has no links and waits to be freed".into()),
                false => add(Kind::OrphanLost, "has no links and is not listed to be freed".into()),
            };
        }
        if names == 0 && !object.is_top() {
            return add(Kind::Unreachable, format!("has {nlink} links and stands in no directory"));
        }
        let expected =
            if object.is_directory() { object.directories.saturating_add(2) } else { names };
        // A directory stands in one directory only, the tops in none.
        let places = u32::from(!object.is_top());
        if nlink != expected || (object.is_directory() && names != places) {
            add(
                Kind::LinkCount,
                format!("has {nlink} links, should have {expected}, and stands in {names} places"),
            );
        }
    }

    /// Follows the parents of every directory: a path must not return to a directory on it.
    fn check_ways(&mut self, scan: &mut Scan<'_>) {
        let mut way = Vec::new();
        for start in 0..self.objects.len() {
            let mut next = Some(start);
            let mut end = Way::Ends;
            while let Some(at) = next {
                let Some(object) = self.objects.get_mut(at) else { break };
                match object.way {
                    Way::Unknown if object.is_directory() => {}
                    Way::Walking | Way::Loops => {
                        end = Way::Loops;
                        break;
                    }
                    Way::Unknown | Way::Ends => break,
                }
                object.way = Way::Walking;
                way.push(at);
                let (root, parent) = (object.is_top(), object.parent);
                next = if root { None } else { self.find(parent) };
            }
            for at in way.drain(..) {
                if let Some(object) = self.objects.get_mut(at) {
                    object.way = end;
                }
            }
        }
        for object in self.objects.iter().filter(|object| object.way == Way::Loops) {
            scan.findings.add(Kind::DirectoryLoop, self.at(object.id), || {
                format!("directory {}: no way leads to it from the root", object.id)
            });
        }
    }
}
