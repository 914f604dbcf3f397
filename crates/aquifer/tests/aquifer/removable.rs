//! A disk that can vanish, hang and come back: an image file, shown in a file system of this
//! process (FUSE). A write that hangs lands late, when the disk answers again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use rustix::mount::UnmountFlags;

use crate::support::Place;

pub struct Removable {
    /// As the pool knows it.
    pub path: String,
    /// What it holds.
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
    image: Arc<File>,
    /// Another one for each disk: the kernel knows disks by it.
    inode: u64,
    mood: Mood,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Answers,
    Errs,
    ReadsErr,
    Hangs,
}

impl Removable {
    /// A new disk; `None`, and a message, where there can be none.
    pub fn new(place: &Place, name: &str) -> Option<Removable> {
        if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
            eprintln!("SKIPPED: disks that vanish need root and /dev/fuse");
            return None;
        }
        let (image, dir) = (place.image(&format!("{name}.img")), place.path(name));
        fs::create_dir(&dir).unwrap();
        let state = State { image: open(&image), inode: FIRST_DISK, mood: Mood::Answers };
        let slot = Arc::new(Slot { state: Mutex::new(state), changed: Condvar::new() });
        let mut config = fuser::Config::default();
        config.n_threads = Some(THREADS);
        let session = Session::new(Served(Arc::clone(&slot)), &dir, &config).unwrap();
        let path = dir.join("disk").to_str().unwrap().to_string();
        Some(Removable { path, image, dir, slot, session: Some(session.spawn().unwrap()) })
    }

    fn set(&self, mood: Mood) {
        self.slot.state.lock().unwrap().mood = mood;
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

    /// From now on it does not answer. If the test fails meanwhile, it gives errors: a process
    /// whose I/O hangs cannot end.
    pub fn hang(&self) -> Hanging<'_> {
        self.set(Mood::Hangs);
        Hanging(self)
    }

    /// The same disk answers, also what it was given before.
    pub fn come_back(&self) {
        self.set(Mood::Answers);
    }

    /// Another disk is at its path: this image. The one before stays away.
    pub fn show(&self, image: &str) {
        let mut state = self.slot.state.lock().unwrap();
        *state = State { image: open(image), inode: state.inode + 1, mood: Mood::Answers };
        self.slot.changed.notify_all();
    }
}

/// A disk that does not answer.
pub struct Hanging<'a>(&'a Removable);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        let mood = self.0.slot.state.lock().unwrap().mood;
        if mood == Mood::Hangs {
            self.0.vanish();
        }
    }
}

impl Drop for Removable {
    fn drop(&mut self) {
        self.vanish();
        if rustix::mount::unmount(&self.dir, UnmountFlags::DETACH).is_ok()
            && let Some(session) = self.session.take()
        {
            let _ = session.umount_and_join();
        }
    }
}

fn open(image: &str) -> Arc<File> {
    Arc::new(File::options().read(true).write(true).open(image).unwrap())
}

impl Slot {
    /// The disk, once it does not hang any more; `None` if it has gone.
    fn disk(&self, inode: INodeNo) -> Option<Arc<File>> {
        let state = self.state.lock().unwrap();
        let hangs = |state: &mut State| state.inode == inode.0 && state.mood == Mood::Hangs;
        let state = self.changed.wait_while(state, hangs).unwrap();
        let is_there = state.inode == inode.0 && state.mood != Mood::Errs;
        is_there.then(|| Arc::clone(&state.image))
    }

    fn errs_at_reads(&self) -> bool {
        self.state.lock().unwrap().mood == Mood::ReadsErr
    }

    /// The disk in the slot, whether it answers or not.
    fn attr(&self) -> Option<FileAttr> {
        let state = self.state.lock().unwrap();
        let bytes = state.image.metadata().unwrap().len();
        (state.mood != Mood::Errs).then(|| attr(state.inode, FileType::RegularFile, bytes))
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
struct Served(Arc<Slot>);

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.0.attr().filter(|_| name == OsStr::new("disk")) {
            Some(attr) => reply.entry(&Duration::ZERO, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let disk = self.0.attr().filter(|attr| attr.ino == inode);
        match disk.or((inode == INodeNo::ROOT).then(|| attr(1, FileType::Directory, 0))) {
            Some(attr) => reply.attr(&Duration::ZERO, &attr),
            None => reply.error(Errno::ENODEV),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        match self.0.attr().is_some_and(|attr| attr.ino == inode) {
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
        let disk = self.0.disk(inode).filter(|_| !self.0.errs_at_reads());
        let read = disk.and_then(|disk| disk.read_at(&mut bytes, offset).ok());
        match read {
            Some(read) => reply.data(&bytes[..read]),
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
        match self.0.disk(inode).map(|disk| disk.write_all_at(data, offset)) {
            Some(Ok(())) => reply.written(data.len() as u32),
            _ => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.disk(inode) {
            Some(_) => reply.ok(),
            None => reply.error(Errno::EIO),
        }
    }
}

const FIRST_DISK: u64 = 2;
/// Requests that may hang at once.
const THREADS: usize = 32;
