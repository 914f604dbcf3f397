//! A file travels as a dataset of its own: a root directory, with one name in it, and the file.
//!
//! The root is no directory of the sender. Its attributes are made of the snapshot, and its seed of
//! name hashes of the file, so they are the same in each stream of the file. The file keeps its id
//! and generation. The file system guid is made of that of the sender and of the file: a stream of
//! the dataset, or of another file, does not fit into the copy.

use std::collections::HashMap;

use aquifer_dataset::{FullName, ROOT_DIRECTORY, directory_inode};
use aquifer_ondisk::Guid;
use aquifer_ondisk::dirent::{Dirent, hash_key};
use aquifer_ondisk::inode::Inode;
use aquifer_ondisk::shown_name::meant;
use aquifer_stream::{Begin, Point, Record};

use super::changed::travels;
use super::{Making, NEW, OLD, Place, SendError, SendWanted};
use crate::core::Files;
use crate::diff::paths::{names_of, object_of};
use crate::file_snapshots::FileNameError;
use crate::one_file::{OneFile, guid_in};
use crate::subject::FileSnapshotNames;

/// The file system of which it is the only file.
fn fs_guid(of: &OneFile) -> Guid {
    guid_in(of.dataset.fs_guid, of.object)
}

/// The last part of its path.
fn last(of: &OneFile) -> Vec<u8> {
    meant(of.path.rsplit('/').next().unwrap_or_default())
}

fn point(of: &OneFile) -> Point {
    Point { guid: of.guid(), created: of.created, name: of.name.clone() }
}

/// The directory that the file is in.
fn root(of: &OneFile) -> Inode {
    let empty = directory_inode(ROOT_DIRECTORY, of.created, fs_guid(of).0);
    let mut root = Inode { entries: 1, ..empty };
    root.touch(of.created);
    root
}

impl Files {
    /// The older version of a file, if only what changed since is wanted.
    pub(super) async fn older_file(
        &self,
        wanted: &SendWanted<'_>,
        (of, new): (&FileSnapshotNames, &OneFile),
    ) -> Result<Option<OneFile>, SendError> {
        let Some(from) = wanted.from else { return Ok(None) };
        if matches!(FullName::of(from), FullName::Bookmark(..)) {
            return Err(SendError::NoBookmarks(wanted.snapshot.into()));
        }
        let older = of.completed(&self.datasets, from)?;
        let old = self.one_file(&older).await?;
        let both = || (older.text().to_string(), wanted.snapshot.to_string());
        if old.dataset.id != new.dataset.id || old.object != new.object {
            let (from, snapshot) = both();
            return Err(SendError::NotOfFile { from, snapshot });
        }
        if old.txg >= new.txg {
            let (from, snapshot) = both();
            return Err(SendError::NotOlder { from, snapshot });
        }
        Ok(Some(old))
    }

    /// How the stream of a file begins.
    pub(super) fn begin_file(
        &self,
        wanted: &SendWanted<'_>,
        (old, new): (Option<&OneFile>, &OneFile),
    ) -> Begin {
        Begin {
            fs_guid: fs_guid(new),
            next_object: new.object.0.saturating_add(1),
            dataset: format!("{}:{}", self.datasets.full_name(&new.dataset), new.path),
            from: old.map(point),
            to: point(new),
            start: wanted.start,
            properties: Vec::new(),
        }
    }
}

impl Making<'_> {
    /// The root and the file, or what changed of them, from a place on, until the page is full.
    /// Returns the next place.
    pub(super) async fn one_file(
        &mut self,
        (old, new): (Option<&OneFile>, &OneFile),
        place: Place,
    ) -> Result<Option<Place>, SendError> {
        let mut is = self.inode_of(new, NEW).await?;
        let mut was = match old {
            Some(old) => Some(self.inode_of(old, OLD).await?),
            None => None,
        };
        if place.object <= ROOT_DIRECTORY.0 {
            let name = self.name_of((new, &is), NEW).await?;
            let before = match (old, &was) {
                (Some(old), Some(was)) => Some(self.name_of((old, was), OLD).await?),
                _ => None,
            };
            self.root(new, (&is, before, name), place.within.unwrap_or(0));
        }
        // It travels under one name.
        is.nlink = 1;
        if let Some(was) = &mut was {
            was.nlink = 1;
        }
        let id = is.object.0;
        let within = place.within.filter(|_| place.object == id);
        let left = match was {
            _ if place.object > id => None,
            None => self.object(is, within).await?,
            Some(was) if travels(Some(&was)) == travels(Some(&is)) => None,
            Some(was) => self.changed_object((was, is), within).await?,
        };
        Ok(left.map(|within| Place { object: id, within: Some(within) }))
    }

    async fn inode_of(&self, of: &OneFile, side: usize) -> Result<Inode, SendError> {
        let found = self.looks.inode(self.files, of, side).await?;
        Ok(found.ok_or_else(|| FileNameError::NotThere(of.version.name().into()))?)
    }

    /// The name that the file had then. A snapshot of the dataset may be named by the path that the
    /// file has now.
    async fn name_of(
        &mut self,
        (of, inode): (&OneFile, &Inode),
        side: usize,
    ) -> Result<Vec<u8>, SendError> {
        let pool = &*self.files.pool;
        if of.is_whole() {
            let found = object_of(pool, self.looks.objects(side), &meant(&of.path)).await?;
            if found.is_none_or(|found| found.object != of.object) {
                let wanted = HashMap::from([(of.object, (inode.generation, inode.nlink))]);
                let names = names_of(pool, &mut self.looks, side, wanted).await?.of(of.object);
                return match &names[..] {
                    [name] => Ok(name.last.clone()),
                    _ => Err(SendError::SeveralNames(of.version.name().into())),
                };
            }
        }
        Ok(last(of))
    }

    /// The root directory, if it has another name in it than before, from a key on.
    fn root(
        &mut self,
        of: &OneFile,
        (is, before, name): (&Inode, Option<Vec<u8>>, Vec<u8>),
        from: u64,
    ) {
        if before.as_ref() == Some(&name) {
            return;
        }
        self.again = None;
        self.encoder.put(&Record::Object(Box::new(root(of))));
        let key_of = |name: &[u8]| hash_key(fs_guid(of).0, name);
        let (key, object) = (key_of(&name), ROOT_DIRECTORY);
        let gone = before.map(|before| key_of(&before));
        if let Some(gone) = gone.filter(|gone| *gone >= from && *gone != key) {
            self.encoder.put(&Record::Drops { object, keys: vec![gone] });
        }
        if key >= from {
            let Inode { object: file, generation, kind, .. } = *is;
            let entries = vec![Dirent { key, object: file, generation, kind, name }];
            self.encoder.put(&Record::Entries { object, entries });
        }
    }
}
