//! READDIR.

use futures_util::future::join_all;

use aquifer_ondisk::inode::FileKind;

use crate::core::{Files, Target, require};
use crate::error::FsError;
use crate::snapdir;
use crate::types::{Attributes, Credentials, DirectoryEntry, FileHandle};

/// Permission bits of a directory.
const READ: u32 = 4;
const SEARCH: u32 = 1;

/// Cookies of `.` and `..`; those of entries are larger.
const DOT: u64 = 1;
pub(crate) const DOT_DOT: u64 = 2;

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
        let shown = entries.into_iter().take(room).map(|entry| async move {
            let attributes = if with_attributes {
                let target = self.object(&directory.dataset, entry.object).await;
                target.ok().map(|target| target.attributes())
            } else {
                None
            };
            DirectoryEntry {
                cookie: entry.key,
                handle: FileHandle {
                    fs_guid: directory.dataset.fs_guid,
                    object: entry.object,
                    generation: entry.generation,
                },
                kind: entry.kind,
                name: entry.name,
                attributes,
            }
        });
        Ok((join_all(shown).await, eof))
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
