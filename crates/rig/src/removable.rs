//! A disk that can vanish, hang and come back: an image file, shown in a file system of this
//! process (FUSE). A write that hangs lands late, when the disk answers again.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use rustix::mount::UnmountFlags;

use crate::{Error, Result};

/// A disk that can vanish, hang and come back.
#[derive(Debug)]
pub struct Removable {
    /// As the pool knows it.
    pub path: String,
    /// The image file with what it holds.
    pub image: String,
    dir: PathBuf,
    slot: Arc<Slot>,
    session: Option<BackgroundSession>,
}

/// Where disks are put.
#[derive(Debug)]
struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    shown: Shown,
    mood: Mood,
}

/// The disk in a slot.
#[derive(Debug)]
struct Shown {
    image: Arc<File>,
    bytes: u64,
    /// Another one for each disk: the kernel knows disks by it.
    inode: u64,
}

impl Shown {
    fn new(path: &Path, inode: u64) -> Result<Self> {
        let image = File::options().read(true).write(true).open(path);
        let image = image.map_err(Error::at("open", path))?;
        let bytes = image.metadata().map_err(Error::at("stat", path))?.len();
        Ok(Self { image: Arc::new(image), bytes, inode })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Answers,
    Errs,
    ReadsErr,
    Hangs,
}

impl Removable {
    /// Whether this machine can have such disks: they need root and /dev/fuse.
    #[must_use]
    pub fn can_be() -> bool {
        rustix::process::geteuid().is_root() && File::open("/dev/fuse").is_ok()
    }

    /// A disk in `dir`, under the name of its image, that holds what `image` does. Makes `dir`.
    ///
    /// # Errors
    /// [`Error::Io`]: the image is not there, or the machine has no FUSE.
    pub fn new(image: &Path, dir: &Path) -> Result<Self> {
        std::fs::create_dir(dir).map_err(Error::at("create", dir))?;
        let shown = Shown::new(image, FIRST_DISK)?;
        let state = State { shown, mood: Mood::Answers };
        let slot = Arc::new(Slot { state: Mutex::new(state), changed: Condvar::new() });
        let mut config = fuser::Config::default();
        config.n_threads = Some(THREADS);
        let name = image.file_name().unwrap_or(OsStr::new("disk"));
        let served = Served { slot: Arc::clone(&slot), name: name.to_os_string() };
        let session = Session::new(served, dir, &config);
        let session = session.and_then(Session::spawn).map_err(Error::at("mount", dir))?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (path, image) = (text(&dir.join(name)), text(image));
        Ok(Self { path, image, dir: dir.to_path_buf(), slot, session: Some(session) })
    }

    fn set(&self, mood: Mood) {
        self.slot.state().mood = mood;
        self.slot.changed.notify_all();
    }

    /// From now on the disk gives errors, and cannot be opened.
    pub fn vanish(&self) {
        self.set(Mood::Errs);
    }

    /// From now on its reads give errors, and writes land.
    pub fn err_at_reads(&self) {
        self.set(Mood::ReadsErr);
    }

    /// From now on it does not answer. If the caller fails meanwhile, it gives errors: a process
    /// whose I/O hangs cannot end.
    pub fn hang(&self) -> Hanging<'_> {
        self.set(Mood::Hangs);
        Hanging(self)
    }

    /// Lets the same disk answer again, also what it was given before.
    pub fn come_back(&self) {
        self.set(Mood::Answers);
    }

    /// Another disk is at its path: this image. The one before stays away.
    ///
    /// # Errors
    /// [`Error::Io`]: the image is not there.
    pub fn show(&self, image: &Path) -> Result<()> {
        let mut state = self.slot.state();
        let shown = Shown::new(image, state.shown.inode + 1)?;
        *state = State { shown, mood: Mood::Answers };
        self.slot.changed.notify_all();
        Ok(())
    }
}

/// A disk that does not answer.
#[derive(Debug)]
pub struct Hanging<'a>(&'a Removable);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        let mood = self.0.slot.state().mood;
        if mood == Mood::Hangs {
            self.0.vanish();
        }
    }
}

impl Drop for Removable {
    fn drop(&mut self) {
        self.vanish();
        if take_away(&self.dir)
            && let Some(session) = self.session.take()
        {
            let _ = session.umount_and_join();
        }
    }
}

/// Unmounts the slot of a disk, and says whether there was one: for programs that end without
/// dropping it.
pub fn take_away(dir: &Path) -> bool {
    rustix::mount::unmount(dir, UnmountFlags::DETACH).is_ok()
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk, once it does not hang any more; `None` if it has gone.
    fn disk(&self, inode: INodeNo) -> Option<Arc<File>> {
        let hangs = |state: &mut State| state.shown.inode == inode.0 && state.mood == Mood::Hangs;
        let state = self.changed.wait_while(self.state(), hangs);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let is_there = state.shown.inode == inode.0 && state.mood != Mood::Errs;
        is_there.then(|| Arc::clone(&state.shown.image))
    }

    fn errs_at_reads(&self) -> bool {
        self.state().mood == Mood::ReadsErr
    }

    /// The disk in the slot, whether it answers or not.
    fn attr(&self) -> Option<FileAttr> {
        let State { shown, mood } = &*self.state();
        (*mood != Mood::Errs).then(|| attr(shown.inode, FileType::RegularFile, shown.bytes))
    }
}

fn attr(inode: u64, kind: FileType, size: u64) -> FileAttr {
    let now = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(inode),
        size,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm: 0o700,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The requests of the kernel.
struct Served {
    slot: Arc<Slot>,
    /// Of the disk.
    name: OsString,
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.set_max_write(1 << 20);
        // Else a write holds up the thread that submits it, as no disk does.
        let added = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        added.map_err(|_| std::io::ErrorKind::Unsupported)?;
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.slot.attr().filter(|_| name == self.name) {
            Some(attr) => reply.entry(&Duration::ZERO, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let disk = self.slot.attr().filter(|attr| attr.ino == inode);
        match disk.or((inode == INodeNo::ROOT).then(|| attr(1, FileType::Directory, 0))) {
            Some(attr) => reply.attr(&Duration::ZERO, &attr),
            None => reply.error(Errno::ENODEV),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        match self.slot.attr().is_some_and(|attr| attr.ino == inode) {
            true => reply.opened(FileHandle(0), flags),
            false => reply.error(Errno::ENXIO),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let disk = self.slot.disk(inode).filter(|_| !self.slot.errs_at_reads());
        let read = disk.and_then(|disk| disk.read_at(&mut bytes, offset).ok());
        match read.and_then(|read| bytes.get(..read)) {
            Some(bytes) => reply.data(bytes),
            None => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.slot.disk(inode).map(|disk| disk.write_all_at(data, offset)) {
            Some(Ok(())) => reply.written(u32::try_from(data.len()).unwrap_or(0)),
            _ => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.slot.disk(inode) {
            Some(_) => reply.ok(),
            None => reply.error(Errno::EIO),
        }
    }
}

const FIRST_DISK: u64 = 2;
/// Requests that may hang at once.
const THREADS: usize = 32;
