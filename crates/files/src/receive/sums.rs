//! Whether names, links and directories of a stream add up. Of what changed since a snapshot, what
//! comes and what goes: in the snapshot they do.
//!
//! Names come before or after what they name, so each side is summed: an object adds a hash of what
//! its names must say of it, as often as it has names, and each name takes away the hash of what it
//! says. The sum is zero only if each name leads to an object that is there, with the right
//! generation, kind and directory, and each object has as many names as it says. The hashes are
//! keyed by a random number, so no stream can be made to fit. Two more sums count the entries of
//! each directory, and the directories in it.
//!
//! With that, each directory has one name, in the directory that it says it is in. Directories that
//! lie in each other would add up too: so the ways up are followed.

use std::collections::HashMap;

use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::types::ROOT_DIRECTORY;
use aquifer_ondisk::{ObjectId, Writer};
use aquifer_stream::Record;

/// Directories of a stream at most: each takes some 40 bytes of memory.
pub(super) const DIRECTORIES_MAX: usize = 500_000;

/// Subject of a hash.
#[derive(Debug, Clone, Copy)]
enum Of {
    Name = 1,
    Entry = 2,
    Directory = 3,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Sums {
    key: u64,
    /// 0 as soon as all add up.
    sum: u128,
    /// The directories above directories.
    above: HashMap<ObjectId, ObjectId>,
    has_root: bool,
}

impl Sums {
    /// Nothing yet; `key` is random.
    pub fn new(key: u64) -> Sums {
        Sums { key, sum: 0, above: HashMap::new(), has_root: false }
    }

    /// It is about what changed: the root directory may stay as it is.
    pub fn of_changes(&mut self) {
        self.has_root = true;
    }

    /// Takes a record of a stream that has everything.
    pub fn take(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::Object(inode) => self.object_comes(inode)?,
            Record::Entries { object, entries } => {
                entries.iter().for_each(|entry| self.entry_comes(*object, entry));
            }
            _ => {}
        }
        Ok(())
    }

    /// Fails unless all add up. Directories may lie in each other.
    pub fn check(&self) -> Result<(), String> {
        if !self.has_root {
            return Err("it has no root directory".into());
        }
        match self.sum {
            0 => Ok(()),
            _ => Err("its names do not fit its files".into()),
        }
    }

    /// The directories above those that came.
    pub fn above(&self) -> &HashMap<ObjectId, ObjectId> {
        &self.above
    }

    /// An object is there now.
    pub fn object_comes(&mut self, inode: &Inode) -> Result<(), String> {
        self.object(inode, Sign::Plus);
        if inode.object == ROOT_DIRECTORY {
            self.has_root = true;
        } else if inode.kind == FileKind::Directory {
            if self.above.len() >= DIRECTORIES_MAX {
                return Err(format!("it has more than {DIRECTORIES_MAX} directories"));
            }
            self.above.insert(inode.object, inode.parent);
        }
        Ok(())
    }

    /// An object is not there any more, or not like that.
    pub fn object_goes(&mut self, inode: &Inode) {
        self.object(inode, Sign::Minus);
    }

    fn object(&mut self, inode: &Inode, sign: Sign) {
        let Inode { object, generation, kind, nlink, entries, parent, .. } = inode;
        let is_directory = *kind == FileKind::Directory;
        if is_directory {
            self.add(Of::Entry, &[object.0], *entries, sign);
            self.add(Of::Directory, &[object.0], u64::from(nlink.saturating_sub(2)), sign);
        }
        if *object != ROOT_DIRECTORY {
            let names = if is_directory { 1 } else { u64::from(*nlink) };
            let above = if is_directory { parent.0 } else { 0 };
            self.add(Of::Name, &[object.0, *generation, *kind as u64, above], names, sign);
        }
    }

    /// A name is there now.
    pub fn entry_comes(&mut self, directory: ObjectId, entry: &Dirent) {
        self.entry(directory, entry, Sign::Minus);
    }

    /// A name is not there any more.
    pub fn entry_goes(&mut self, directory: ObjectId, entry: &Dirent) {
        self.entry(directory, entry, Sign::Plus);
    }

    fn entry(&mut self, directory: ObjectId, entry: &Dirent, sign: Sign) {
        let is_directory = entry.kind == FileKind::Directory;
        let above = if is_directory { directory.0 } else { 0 };
        let says = [entry.object.0, entry.generation, entry.kind as u64, above];
        self.add(Of::Name, &says, 1, sign);
        self.add(Of::Entry, &[directory.0], 1, sign);
        if is_directory {
            self.add(Of::Directory, &[directory.0], 1, sign);
        }
    }

    fn add(&mut self, of: Of, what: &[u64], times: u64, sign: Sign) {
        let mut w = Writer::new();
        w.u64(self.key);
        w.u64(of as u64);
        what.iter().for_each(|part| w.u64(*part));
        let all = checksum128(w.as_bytes()).wrapping_mul(u128::from(times));
        self.sum = match sign {
            Sign::Plus => self.sum.wrapping_add(all),
            Sign::Minus => self.sum.wrapping_sub(all),
        };
    }
}

/// Whether hashes are added or taken away.
#[derive(Debug, Clone, Copy)]
enum Sign {
    Plus,
    Minus,
}
