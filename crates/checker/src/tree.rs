//! The model: directories, files and symlinks by tag, and the effect of each change on them.

use std::collections::BTreeMap;

use crate::content::Content;
use crate::op::{Op, Place, ROOT, Tag};

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A directory: its names, and its number of links (none once it is removed).
    Directory {
        /// Names.
        names: BTreeMap<String, Tag>,
        /// 1 while it has a name.
        links: u32,
    },
    /// A file.
    File {
        /// Content.
        content: Content,
        /// Permission bits.
        mode: u32,
        /// Names.
        links: u32,
    },
    /// A symlink.
    Symlink {
        /// Names.
        links: u32,
    },
}

impl Object {
    /// A directory with a name.
    pub fn directory() -> Object {
        Object::Directory { names: BTreeMap::new(), links: 1 }
    }

    /// Its names.
    pub fn links(&self) -> u32 {
        match self {
            Object::Directory { links, .. }
            | Object::File { links, .. }
            | Object::Symlink { links } => *links,
        }
    }

    fn links_mut(&mut self) -> &mut u32 {
        match self {
            Object::Directory { links, .. }
            | Object::File { links, .. }
            | Object::Symlink { links } => links,
        }
    }

    fn is_directory(&self) -> bool {
        matches!(self, Object::Directory { .. })
    }
}

/// Mode of new files.
pub const MODE: u32 = 0o600;

/// All objects, including removed ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// By tag.
    pub objects: BTreeMap<Tag, Object>,
}

impl Default for Tree {
    fn default() -> Self {
        Tree { objects: BTreeMap::from([(ROOT, Object::directory())]) }
    }
}

impl Tree {
    /// The names of a directory.
    pub fn names(&self, directory: Tag) -> Option<&BTreeMap<String, Tag>> {
        match self.objects.get(&directory) {
            Some(Object::Directory { names, links: 1.. }) => Some(names),
            _ => None,
        }
    }

    /// The object of a name.
    pub fn find(&self, place: &Place) -> Option<Tag> {
        self.names(place.directory.tag)?.get(&place.name).copied()
    }

    fn names_mut(&mut self, directory: Tag) -> Result<&mut BTreeMap<String, Tag>, String> {
        match self.objects.get_mut(&directory) {
            Some(Object::Directory { names, links: 1.. }) => Ok(names),
            _ => Err(format!("{directory} is no directory")),
        }
    }

    fn put(&mut self, place: &Place, tag: Tag) -> Result<(), String> {
        self.names_mut(place.directory.tag)?.insert(place.name.clone(), tag);
        Ok(())
    }

    fn take(&mut self, place: &Place) -> Result<Tag, String> {
        let taken = self.names_mut(place.directory.tag)?.remove(&place.name);
        taken.ok_or_else(|| format!("there is no {}", place.name))
    }

    fn link(&mut self, tag: Tag) {
        if let Some(object) = self.objects.get_mut(&tag) {
            *object.links_mut() += 1;
        }
    }

    fn unlink(&mut self, tag: Tag) {
        if let Some(object) = self.objects.get_mut(&tag) {
            *object.links_mut() -= 1;
        }
    }

    fn is_empty(&self, tag: Tag) -> bool {
        self.names(tag).is_some_and(BTreeMap::is_empty)
    }

    fn is_directory(&self, tag: Tag) -> bool {
        self.objects.get(&tag).is_some_and(Object::is_directory)
    }

    /// Carries out a change that succeeded. Returns the objects that it touched.
    ///
    /// # Errors
    /// It cannot have succeeded; the tree is as it was.
    pub fn apply(&mut self, op: &Op) -> Result<Vec<Tag>, String> {
        match op {
            Op::Create(place, tag) => self.make(
                place,
                *tag,
                Object::File { content: Content::default(), mode: MODE, links: 1 },
            ),
            Op::Mkdir(place, tag) => self.make(place, *tag, Object::directory()),
            Op::Symlink(place, tag) => self.make(place, *tag, Object::Symlink { links: 1 }),
            Op::Remove(place) => {
                if self.find(place).is_some_and(|tag| self.is_directory(tag)) {
                    return Err("a directory was removed".into());
                }
                let tag = self.take(place)?;
                self.unlink(tag);
                Ok(vec![place.directory.tag, tag])
            }
            Op::Rmdir(place) => {
                if let Some(tag) = self.find(place).filter(|tag| !self.is_empty(*tag)) {
                    return Err(format!("{tag} is no empty directory"));
                }
                let tag = self.take(place)?;
                self.unlink(tag);
                Ok(vec![place.directory.tag, tag])
            }
            Op::Rename(from, to) => self.rename(from, to),
            Op::Link(file, place) => {
                if self.find(place).is_some() {
                    return Err(format!("{} was there", place.name));
                }
                if self.objects.get(&file.tag).is_none_or(|object| object.links() == 0) {
                    return Err(format!("{} is gone", file.tag));
                }
                self.put(place, file.tag)?;
                self.link(file.tag);
                Ok(vec![place.directory.tag, file.tag])
            }
            Op::Set { file, size, mode: new } => {
                let Some(Object::File { content, mode, links: 1.. }) =
                    self.objects.get_mut(&file.tag)
                else {
                    return Err(format!("{} is no file", file.tag));
                };
                size.iter().for_each(|size| content.resize(*size));
                *mode = new.unwrap_or(*mode);
                Ok(vec![file.tag])
            }
            Op::Write { file, cells, .. } => {
                let Some(Object::File { content, links: 1.., .. }) =
                    self.objects.get_mut(&file.tag)
                else {
                    return Err(format!("{} is no file", file.tag));
                };
                cells.iter().for_each(|c| content.write(c.first, c.count, c.cell));
                Ok(vec![file.tag])
            }
            other => Err(format!("{other:?} changes nothing")),
        }
    }

    fn make(&mut self, place: &Place, tag: Tag, object: Object) -> Result<Vec<Tag>, String> {
        if self.find(place).is_some() {
            return Err(format!("{} was there", place.name));
        }
        self.put(place, tag)?;
        self.objects.insert(tag, object);
        Ok(vec![place.directory.tag, tag])
    }

    fn rename(&mut self, from: &Place, to: &Place) -> Result<Vec<Tag>, String> {
        let moved = self.find(from).ok_or_else(|| format!("there is no {}", from.name))?;
        let mut touched = vec![from.directory.tag, to.directory.tag, moved];
        self.names_mut(to.directory.tag)?;
        match self.find(to) {
            Some(over) if over == moved => return Ok(touched),
            Some(over) => {
                if self.is_directory(over) != self.is_directory(moved)
                    || self.is_directory(over) && !self.is_empty(over)
                {
                    return Err(format!("{} cannot be replaced", to.name));
                }
                self.unlink(over);
                touched.push(over);
            }
            None => {}
        }
        self.take(from)?;
        self.put(to, moved)?;
        Ok(touched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Node;

    /// Each change is tried on a tree where it is impossible: then neither of its two steps
    /// happens.
    #[test]
    fn a_change_that_cannot_be_leaves_the_tree_as_it_is() {
        let node = |tag| Node {
            tag,
            handle: aquifer_files::FileHandle {
                fs_guid: aquifer_ondisk::Guid(1),
                object: aquifer_ondisk::ObjectId(u64::from(tag) + 1),
                generation: 0,
            },
        };
        let at = |tag, name: &str| Place { directory: node(tag), name: name.into() };
        let mut tree = Tree::default();
        for op in [
            Op::Create(at(ROOT, "file"), 1),
            Op::Mkdir(at(ROOT, "full"), 2),
            Op::Create(at(2, "inside"), 3),
            Op::Mkdir(at(ROOT, "gone"), 4),
            Op::Rmdir(at(ROOT, "gone")),
        ] {
            tree.apply(&op).unwrap();
        }
        for op in [
            Op::Rename(at(ROOT, "file"), at(4, "there")),
            Op::Rename(at(ROOT, "file"), at(9, "there")),
            Op::Rename(at(ROOT, "file"), at(ROOT, "full")),
            Op::Link(node(1), at(4, "there")),
            Op::Create(at(4, "there"), 5),
            Op::Remove(at(ROOT, "full")),
            Op::Rmdir(at(ROOT, "full")),
            Op::Rmdir(at(ROOT, "file")),
        ] {
            let before = tree.clone();
            tree.apply(&op).unwrap_err();
            assert_eq!(tree, before, "{op:?}");
        }
    }
}
