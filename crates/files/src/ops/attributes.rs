//! SETATTR.

use aquifer_blockio::{Page, PageMut};
use aquifer_object::DirtyPage;
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_pool::SpaceClass;

use crate::change::Change;
use crate::core::{
    Files, Target, attributes, before, drop_set_id, permits, unchanged, without_foreign_set_gid,
};
use crate::error::FsError;
use crate::limits::FILE_BYTES_MAX;
use crate::made::{Made, Promised};
use crate::ops::write::dirty_page;
use crate::snapdir;
use crate::types::{Around, Credentials, FileHandle, SetAttributes, SetTime};

impl Files {
    /// Sets attributes; with `guard`, only if ctime still equals it.
    pub async fn setattr(
        &self,
        cred: &Credentials,
        file: FileHandle,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> Made<()> {
        let target = match self.target(file).await {
            Ok(target) => target,
            Err(error) => return Made::failed(error, Around::default()),
        };
        if target.is_unstored() && snapdir::is_idle(cred, &target, set) {
            return Made::new(Ok(((), Around::default(), Promised::default())), Around::default);
        }
        Made::new(self.setattr_on(cred, &target, set, guard).await, || unchanged(&target))
    }

    pub(crate) async fn setattr_on(
        &self,
        cred: &Credentials,
        target: &Target,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> Result<((), Around, Promised), FsError> {
        self.check_writable(target)?;
        if !set.is_valid() {
            return Err(FsError::Invalid);
        }
        // This replaces data or frees space, so it works on a full pool. A file that grows gains a
        // hole at its end.
        let class = (SpaceClass::Remove, self.lane(target));
        let admission = self.admit_names(&target.dataset, class).await?;
        let writer = target.object.write().await;
        let old = target.inode();
        if old.nlink == 0 {
            return Err(FsError::Stale);
        }
        if guard.is_some_and(|guard| guard != old.ctime) {
            return Err(FsError::NotSync);
        }
        let now = self.now();
        let mut inode = old.clone();
        let mut changes = Vec::new();
        // Size first: the old owner and mode permit it, and a given mtime must not be overwritten
        // by it.
        if let Some(size) = set.size {
            changes = self.resize(cred, target, &mut inode, size, now).await?;
        }
        apply_set(cred, &mut inode, set, now)?;
        inode.touch(now);
        changes.insert(0, Change::Inode(inode.clone()));
        let promised = self.change(cred, (&target.dataset, Some(&inode)), admission, &changes)?;
        let after = attributes(&target.dataset, &target.inode());
        drop(writer);
        Ok(((), Around { before: Some(before(&old)), after: Some(after) }, promised))
    }

    /// Changes of content for a new size. Bytes beyond the end of a file are always zeros in its
    /// last page.
    pub(crate) async fn resize(
        &self,
        cred: &Credentials,
        target: &Target,
        inode: &mut Inode,
        size: u64,
        now: Time,
    ) -> Result<Vec<Change>, FsError> {
        match inode.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid),
        }
        target.object.check()?;
        if size > FILE_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        if cred.uid != inode.uid && !permits(cred, inode, 2) {
            return Err(FsError::AccessDenied);
        }
        let mut changes = Vec::new();
        if size < inode.size {
            changes.push(Change::Cut(inode.object, size.div_ceil(4096)));
            let tail = usize::try_from(size % 4096).unwrap_or(0);
            if tail != 0 {
                let page = size / 4096;
                let read = match target.object.read_pages(&self.pool, page, page + 1).await {
                    Err(error) => {
                        let pages = (page, page + 1);
                        return Err(self.unreadable_pages(target, pages, error).await);
                    }
                    Ok(read) => read,
                };
                let content = match read.into_iter().next().flatten() {
                    Some(old) => {
                        let keep = old.as_slice().get(..tail).unwrap_or_default();
                        PageMut::with_prefix(keep).freeze()
                    }
                    None => Page::zeroed(),
                };
                // Logged even if it is all zeros: the page may be an UNSTABLE write that no record
                // holds.
                let dirty = DirtyPage { logged: true, ..dirty_page(content) };
                changes.push(Change::Pages(inode.object, vec![(page, dirty)]));
            }
        }
        if size != inode.size {
            inode.mtime = now;
            drop_set_id(cred, inode);
        }
        inode.size = size;
        Ok(changes)
    }
}

/// Sets owner, mode and times if the caller may.
fn apply_set(
    cred: &Credentials,
    inode: &mut Inode,
    set: &SetAttributes,
    now: Time,
) -> Result<(), FsError> {
    let owner = cred.uid == inode.uid || cred.uid == 0;
    if set.uid.is_some_and(|uid| uid != inode.uid) && cred.uid != 0 {
        return Err(FsError::NotPermitted);
    }
    if let Some(gid) = set.gid
        && gid != inode.gid
        && !(cred.uid == 0 || (owner && cred.in_group(gid)))
    {
        return Err(FsError::NotPermitted);
    }
    let own_only = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    let set_to = |time: SetTime| matches!(time, SetTime::To(_));
    if (own_only || set_to(set.atime) || set_to(set.mtime)) && !owner {
        return Err(FsError::NotPermitted);
    }
    let touches = set.atime == SetTime::Now || set.mtime == SetTime::Now;
    if touches && !owner && !permits(cred, inode, 2) {
        return Err(FsError::AccessDenied);
    }
    if let Some(mode) = set.mode {
        inode.mode = without_foreign_set_gid(cred, inode.gid, mode & 0o7777);
    }
    let moved =
        set.uid.is_some_and(|uid| uid != inode.uid) || set.gid.is_some_and(|gid| gid != inode.gid);
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    if moved {
        drop_set_id(cred, inode);
    }
    let time = |set: SetTime, old: Time| match set {
        SetTime::Keep => old,
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    inode.atime = time(set.atime, inode.atime);
    inode.mtime = time(set.mtime, inode.mtime);
    Ok(())
}
