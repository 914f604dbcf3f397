//! READDIR.

use futures_util::future::join_all;

use aquifer_dataset::{Dataset, ORPHANS};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::FileKind;
use aquifer_pool::Parts;

use crate::core::{Files, Target, attributes, require};
use crate::error::FsError;
use crate::snapdir;
use crate::types::{Attributes, Credentials, DirectoryEntry, FileHandle};

/// Permission bits of a directory.
const READ: u32 = 4;
const SEARCH: u32 = 1;

/// Cookies of `.` and `..`; those of entries are larger.
const DOT: u64 = 1;
pub(crate) const DOT_DOT: u64 = 2;

/// Entries whose attributes are read together: small calls of others wait for no more of a listing.
const AT_ONCE: usize = 24;

impl Files {
    /// Lists at most `limit` entries after `cookie` (0: from the start, `.` and `..` first). Also
    /// returns whether the list reaches the end, and the directory. Only a caller with search
    /// permission gets attributes.
    pub async fn readdir(
        &self,
        cred: &Credentials,
        dir: FileHandle,
        cookie: u64,
        limit: usize,
        with_attributes: bool,
    ) -> Result<(Vec<DirectoryEntry>, bool, Attributes), FsError> {
        let directory = self.directory(dir).await?;
        let inode = directory.inode();
        require(cred, &inode, READ)?;
        // A name alone opens nothing. Only a caller with search permission sees the object behind
        // it.
        let with_attributes = with_attributes && require(cred, &inode, SEARCH).is_ok();
        let mut list = Vec::new();
        if cookie < DOT {
            list.push(self.dot(&directory, b".", DOT, with_attributes));
        }
        if cookie < DOT_DOT {
            let parent = self.parent(&directory).await;
            let parent = parent.unwrap_or_else(|_| directory.clone());
            list.push(self.dot(&parent, b"..", DOT_DOT, with_attributes));
        }
        let hidden = Box::pin(self.visible(&directory, with_attributes)).await?;
        list.extend(hidden.filter(|entry| cookie < entry.cookie));
        let is_cut = list.len() > limit;
        list.truncate(limit);
        let room = limit - list.len();
        let (entries, eof) = match snapdir::is_id(directory.object.id) {
            true => {
                let part = (cookie, room);
                Box::pin(self.list_hidden(cred, &directory, part, with_attributes)).await?
            }
            false => {
                let stored = self.list_stored(&directory, cookie, room, with_attributes).await?;
                let part = (cookie, room);
                Box::pin(self.with_shadows(&directory, part, stored, with_attributes)).await?
            }
        };
        list.extend(entries);
        Ok((list, eof && !is_cut, directory.attributes()))
    }

    /// Lists at most `room` stored entries after `cookie`, and whether these are the last ones.
    pub(crate) async fn list_stored(
        &self,
        directory: &Target,
        cookie: u64,
        room: usize,
        with_attributes: bool,
    ) -> Result<(Vec<DirectoryEntry>, bool), FsError> {
        let from = cookie.max(DOT_DOT).saturating_add(1);
        // Reads one entry more than requested, to see whether the end is reached.
        let entries = directory.object.read_entries(&self.pool, from, u64::MAX - 1, room + 1).await;
        let entries = match entries {
            Err(error) => {
                let Target { dataset, object, .. } = directory;
                return Err(self.unreadable_object(dataset, object.id, error).await);
            }
            Ok(entries) => entries,
        };
        let eof = entries.len() <= room;
        let fs_guid = directory.dataset.fs_guid;
        let shown =
            entries.into_iter().take(room).map(|Dirent { key, object, generation, kind, name }| {
                let handle = FileHandle { fs_guid, object, generation };
                DirectoryEntry { cookie: key, handle, kind, name, attributes: None }
            });
        let mut shown: Vec<DirectoryEntry> = shown.collect();
        if with_attributes {
            self.add_attributes(&directory.dataset, &mut shown).await;
        }
        Ok((shown, eof))
    }

    /// Adds the attributes of what entries name, as far as they can be read.
    async fn add_attributes(&self, dataset: &Dataset, entries: &mut [DirectoryEntry]) {
        let mut parts = Parts::default();
        for some in entries.chunks_mut(AT_ONCE) {
            let all = some.iter_mut().map(|entry| async {
                entry.attributes = self.attributes(dataset, entry.handle.object).await;
            });
            join_all(all).await;
            parts.step(&self.pool).await;
        }
    }

    /// The attributes of what an entry names; `None` if they cannot be read.
    async fn attributes(&self, dataset: &Dataset, id: ObjectId) -> Option<Attributes> {
        if id == ORPHANS {
            return None;
        }
        match dataset.inode(&self.pool, id).await {
            Ok(inode) => inode.map(|inode| attributes(dataset, &inode)),
            Err(error) => {
                self.unreadable_object(dataset, id, error).await;
                None
            }
        }
    }

    fn dot(
        &self,
        target: &Target,
        name: &[u8],
        cookie: u64,
        with_attributes: bool,
    ) -> DirectoryEntry {
        let attributes = target.attributes();
        DirectoryEntry {
            cookie,
            name: name.to_vec(),
            handle: attributes.handle,
            kind: FileKind::Directory,
            attributes: with_attributes.then_some(attributes),
        }
    }
}
