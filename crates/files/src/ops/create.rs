//! CREATE, MKDIR, SYMLINK, MKNOD.

use aquifer_blockio::buf::pages_of;
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_pool::SpaceClass;

use crate::change::Change;
use crate::core::{Files, Target, attributes, before, require, unchanged, without_foreign_set_gid};
use crate::error::FsError;
use crate::limits::{FILE_BYTES_MAX, LINKS_MAX, TARGET_BYTES_MAX};
use crate::made::{Made, Promised};
use crate::ops::names::{check_name, is_dot};
use crate::ops::write::dirty_page;
use crate::snapdir;
use crate::types::{
    Around, Attributes, CreateHow, Credentials, FileHandle, NodeKind, SetAttributes, SetTime,
};

/// The object to make.
struct New<'a> {
    kind: FileKind,
    rdev: u64,
    verifier: u64,
    target: Option<&'a [u8]>,
    set: SetAttributes,
}

impl New<'_> {
    fn of(kind: FileKind, set: SetAttributes) -> Self {
        New { kind, rdev: 0, verifier: 0, target: None, set }
    }
}

/// The new object's attributes, those around its directory, and the promise of the answer.
type MadeAnew = Result<(Attributes, Around, Promised), FsError>;

impl Files {
    /// Makes a regular file. `Around` is the directory's.
    pub async fn create(
        &self,
        cred: &Credentials,
        dir: FileHandle,
        name: &[u8],
        how: CreateHow,
    ) -> Made<Attributes> {
        if snapdir::is_versions(dir) {
            return Box::pin(self.take_version(cred, dir, name, how)).await;
        }
        let directory = match self.directory(dir).await {
            Ok(directory) => directory,
            Err(error) => return Made::failed(error, Around::default()),
        };
        let new = match how {
            CreateHow::Unchecked(set) | CreateHow::Guarded(set) => New::of(FileKind::Regular, set),
            CreateHow::Exclusive(verifier) => {
                New { verifier, ..New::of(FileKind::Regular, SetAttributes::default()) }
            }
        };
        let made = self.make(cred, &directory, name, &new).await;
        let made = match made {
            Err(FsError::Exists) if !is_dot(name) => {
                self.create_over(cred, &directory, name, how).await
            }
            other => other,
        };
        Made::new(made, || unchanged(&directory))
    }

    /// The name exists already.
    async fn create_over(
        &self,
        cred: &Credentials,
        directory: &Target,
        name: &[u8],
        how: CreateHow,
    ) -> MadeAnew {
        let entry = self.find(cred, directory, name).await?.entry.ok_or(FsError::Exists)?;
        let target = self.object(&directory.dataset, entry.object).await?;
        let inode = target.inode();
        match how {
            CreateHow::Guarded(_) => Err(FsError::Exists),
            // A retransmitted call gets the file that it made.
            CreateHow::Exclusive(verifier)
                if inode.kind == FileKind::Regular && inode.verifier == verifier =>
            {
                let promised = self.as_it_is(cred, &target).await?;
                Ok((target.attributes(), unchanged(directory), promised))
            }
            CreateHow::Exclusive(_) => Err(FsError::Exists),
            CreateHow::Unchecked(set) => {
                if inode.kind != FileKind::Regular {
                    return Err(FsError::Exists);
                }
                let promised = if set.size.is_some() {
                    let only_size = SetAttributes { size: set.size, ..SetAttributes::default() };
                    self.setattr_on(cred, &target, &only_size, None).await?.2
                } else {
                    self.as_it_is(cred, &target).await?
                };
                Ok((target.attributes(), unchanged(directory), promised))
            }
        }
    }

    /// The answer to a CREATE that finds its file made. Another call may have made it a moment ago:
    /// the answer promises that the file stays.
    async fn as_it_is(&self, cred: &Credentials, target: &Target) -> Result<Promised, FsError> {
        let last = target.object.state.lock().last_ticket.clone();
        let inode = target.inode();
        let recorded = self.nothing_changed(cred, (&target.dataset, Some(&inode))).await?;
        Ok(recorded.or(last))
    }

    /// Makes a directory.
    pub async fn mkdir(
        &self,
        cred: &Credentials,
        dir: FileHandle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Made<Attributes> {
        match self.list_of_snapshots(dir) {
            Some(list) => Box::pin(self.take_snapshot(cred, &list, name)).await,
            None => self.make_in(cred, dir, name, New::of(FileKind::Directory, *set)).await,
        }
    }

    /// Makes a symbolic link.
    pub async fn symlink(
        &self,
        cred: &Credentials,
        dir: FileHandle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Made<Attributes> {
        let new = New { target: Some(target), ..New::of(FileKind::Symlink, *set) };
        self.make_in(cred, dir, name, new).await
    }

    /// Makes a device node, pipe or socket.
    pub async fn mknod(
        &self,
        cred: &Credentials,
        dir: FileHandle,
        name: &[u8],
        kind: NodeKind,
        set: &SetAttributes,
    ) -> Made<Attributes> {
        let device = |major: u32, minor: u32| u64::from(major) << 32 | u64::from(minor);
        let (kind, rdev) = match kind {
            NodeKind::Block(major, minor) => (FileKind::Block, device(major, minor)),
            NodeKind::Character(major, minor) => (FileKind::Character, device(major, minor)),
            NodeKind::Fifo => (FileKind::Fifo, 0),
            NodeKind::Socket => (FileKind::Socket, 0),
        };
        self.make_in(cred, dir, name, New { rdev, ..New::of(kind, *set) }).await
    }

    async fn make_in(
        &self,
        cred: &Credentials,
        dir: FileHandle,
        name: &[u8],
        new: New<'_>,
    ) -> Made<Attributes> {
        let directory = match self.directory(dir).await {
            Ok(directory) => directory,
            Err(error) => return Made::failed(error, Around::default()),
        };
        let made = self.make(cred, &directory, name, &new).await;
        Made::new(made, || unchanged(&directory))
    }

    async fn make(
        &self,
        cred: &Credentials,
        directory: &Target,
        name: &[u8],
        new: &New<'_>,
    ) -> MadeAnew {
        check_name(name)?;
        if is_dot(name) {
            return Err(FsError::Exists);
        }
        self.check_directory(directory)?;
        if !new.set.is_valid() {
            return Err(FsError::Invalid);
        }
        if new.target.is_some_and(|target| target.len() > TARGET_BYTES_MAX) {
            return Err(FsError::NameTooLong);
        }
        if new.target.is_some_and(|target| target.is_empty() || target.contains(&0)) {
            return Err(FsError::Invalid);
        }
        let device = matches!(new.kind, FileKind::Block | FileKind::Character);
        if device && cred.uid != 0 {
            return Err(FsError::NotPermitted);
        }
        // A name that exists is reported before a full pool is.
        if self.find(cred, directory, name).await?.entry.is_some() {
            return Err(FsError::Exists);
        }
        self.datasets.check_quota(&directory.dataset).await?;
        let admission =
            self.admit_names(&directory.dataset, (SpaceClass::Write, self.lane(directory))).await?;
        let writer = directory.object.write().await;
        let old = directory.inode();
        if old.nlink == 0 {
            return Err(FsError::Stale);
        }
        require(cred, &old, 3)?;
        let found = self.find(cred, directory, name).await?;
        if found.entry.is_some() {
            return Err(FsError::Exists);
        }
        let key = found.free_key?;
        if new.kind == FileKind::Directory && old.nlink >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        let now = self.now();
        let inode = self.new_inode(cred, directory, &old, new, now)?;
        let mut parent = touched(&old, now);
        parent.entry_added();
        if new.kind == FileKind::Directory {
            parent.nlink += 1;
        }
        let entry = Dirent {
            key,
            object: inode.object,
            generation: inode.generation,
            kind: inode.kind,
            name: name.to_vec(),
        };
        let mut changes = vec![Change::Inode(inode.clone())];
        if let Some(target) = new.target {
            let pages = (0..).zip(pages_of(target)).map(|(at, page)| (at, dirty_page(page)));
            let logged = |(at, page)| (at, aquifer_object::DirtyPage { logged: true, ..page });
            changes.push(Change::Pages(inode.object, pages.map(logged).collect()));
        }
        changes.push(Change::Entry(directory.object.id, entry));
        changes.push(Change::Inode(parent));
        let promised =
            self.change(cred, (&directory.dataset, Some(&inode)), admission, &changes)?;
        let after = attributes(&directory.dataset, &directory.inode());
        // Read from memory, where the change has just put it, with the space of its pages.
        let made = directory.dataset.cached(inode.object).map(|object| object.inode());
        let made = attributes(&directory.dataset, made.as_ref().unwrap_or(&inode));
        drop(writer);
        Ok((made, Around { before: Some(before(&old)), after: Some(after) }, promised))
    }

    fn new_inode(
        &self,
        cred: &Credentials,
        directory: &Target,
        parent: &Inode,
        new: &New<'_>,
        now: Time,
    ) -> Result<Inode, FsError> {
        let world = self.pool.world();
        let (object, generation) = directory.dataset.new_object_id(world.as_ref())?;
        let is_directory = new.kind == FileKind::Directory;
        // A set-group-id directory hands its group on.
        let inherits = parent.mode & 0o2000 != 0;
        let own_gid = if inherits { parent.gid } else { cred.gid };
        let default_mode = if is_directory { 0o755 } else { 0o644 };
        let mut mode = new.set.mode.unwrap_or(default_mode) & 0o7777;
        if inherits && is_directory {
            mode |= 0o2000;
        }
        let gid = new.set.gid.filter(|gid| cred.uid == 0 || cred.in_group(*gid));
        let gid = gid.unwrap_or(own_gid);
        if !is_directory {
            mode = without_foreign_set_gid(cred, gid, mode);
        }
        let time = |set: SetTime| match set {
            SetTime::To(time) => time,
            SetTime::Keep | SetTime::Now => now,
        };
        let size = match (new.kind, new.target) {
            (_, Some(target)) => target.len() as u64,
            (FileKind::Regular, _) => new.set.size.unwrap_or(0).min(FILE_BYTES_MAX),
            _ => 0,
        };
        Ok(Inode {
            object,
            generation,
            kind: new.kind,
            damaged: false,
            cloned: false,
            mode: if new.kind == FileKind::Symlink { 0o777 } else { mode },
            nlink: if is_directory { 2 } else { 1 },
            uid: new.set.uid.filter(|_| cred.uid == 0).unwrap_or(cred.uid),
            gid,
            rdev: new.rdev,
            size,
            refer_bytes: 0,
            saved_bytes: 0,
            entries: 0,
            atime: time(new.set.atime),
            mtime: time(new.set.mtime),
            ctime: now,
            crtime: now,
            change: 1,
            parent: if is_directory { parent.object } else { ObjectId(0) },
            line: parent.line,
            origin: ObjectId(0),
            verifier: new.verifier,
            hash_seed: if is_directory { self.pool.world().random() } else { 0 },
            root: None,
        })
    }
}

/// A directory whose content changes now.
pub(crate) fn touched(directory: &Inode, now: Time) -> Inode {
    let mut inode = directory.clone();
    inode.mtime = now;
    inode.touch(now);
    inode
}
