//! Recording disks: image files in a file system of this process (FUSE), in memory. They keep every
//! write, flush and discard of the program, with the moments of its begin and its end.
//!
//! Invariants: nothing is cached above the disks, several requests run at once, and some take long,
//! so that flushes overlap writes in progress. Only the daemon's namespace sees the mount. The
//! mount goes with the namespace, however this process ends; a dropped recorder unmounts it at
//! once.

mod tape;

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use aquifer_conformance::{Error, Result};
use aquifer_rig::netns::NetNs;
use aquifer_rig::random::Random;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, Session, WriteFlags,
};
use rustix::fs::OFlags;
use rustix::mount::UnmountFlags;

use crate::diary::Clock;
pub use tape::{Change, Flush, SECTOR_BYTES, Tape, ZEROS};

/// Mounted disks. Their daemon must be gone before this is dropped.
#[derive(Debug)]
pub struct Recorder {
    disks: Arc<Disks>,
    /// The mounting thread ends when this is dropped.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The state that requests work on.
#[derive(Debug)]
struct Disks {
    names: Vec<String>,
    bytes: u64,
    tapes: Vec<Mutex<Tape>>,
    clock: Clock,
    random: Mutex<Random>,
}

impl Recorder {
    /// Mounts disks of `bytes` at these paths, all in one directory, in `netns`. Each has the
    /// content of its tape.
    ///
    /// # Errors
    /// [`Error::Io`] where there is no FUSE.
    pub fn mount(
        netns: &NetNs,
        paths: &[PathBuf],
        (bytes, tapes): (u64, Vec<Tape>),
        clock: &Clock,
    ) -> Result<Self> {
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let disks = Arc::new(Disks {
            names: paths.iter().map(name).collect(),
            bytes,
            tapes: tapes.into_iter().map(Mutex::new).collect(),
            clock: clock.clone(),
            random: Mutex::new(Random::new(0)),
        });
        let served = Served(Arc::clone(&disks));
        let (netns, dir) = (netns.clone(), paths[0].parent().unwrap().to_path_buf());
        let (end, ended) = mpsc::channel();
        let (mounted, is_mounted) = mpsc::channel();
        let thread = thread::spawn(move || {
            let session = mount(served, &netns, &dir);
            let session = session.map_err(|error| mounted.send(Err(error)));
            let Ok(session) = session else { return };
            let _ = mounted.send(Ok(()));
            let _: std::result::Result<(), mpsc::RecvError> = ended.recv();
            // A program that has a disk open keeps it, and this does not wait.
            if rustix::mount::unmount(&dir, UnmountFlags::DETACH).is_ok() {
                let _ = session.umount_and_join();
            }
        });
        let recorder = Self { disks, end: Some(end), thread: Some(thread) };
        is_mounted.recv().map_err(|_| Error::Malformed("the recorder panicked".into()))??;
        Ok(recorder)
    }

    /// Unmounts them; returns the tape of each, in the order of their paths.
    pub fn finish(mut self) -> Vec<Tape> {
        self.unmount();
        self.disks.tapes.iter().map(|tape| std::mem::take(&mut *tape.lock().unwrap())).collect()
    }

    fn unmount(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Whether this machine lets us use FUSE; if not, prints that.
pub fn is_there() -> bool {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    let why = match opened {
        Ok(_) if rustix::process::geteuid().is_root() => return true,
        Ok(_) => "not root".to_owned(),
        Err(error) => error.to_string(),
    };
    eprintln!("SKIPPED: disks that record what is written need root and /dev/fuse ({why})");
    false
}

fn mount(disks: Served, netns: &NetNs, dir: &Path) -> Result<fuser::BackgroundSession> {
    netns.enter_mounts()?;
    let mut config = fuser::Config::default();
    config.n_threads = Some(THREADS);
    let session = Session::new(disks, dir, &config).and_then(Session::spawn);
    session.map_err(Error::at("mount FUSE at", dir))
}

impl Disks {
    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let dir = ino == INodeNo::ROOT;
        let known = dir || self.tape(ino).is_some();
        let now = SystemTime::UNIX_EPOCH;
        known.then_some(FileAttr {
            ino,
            size: if dir { 0 } else { self.bytes },
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind: if dir { FileType::Directory } else { FileType::RegularFile },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: SECTOR_BYTES as u32,
            flags: 0,
        })
    }

    fn tape(&self, ino: INodeNo) -> Option<&Mutex<Tape>> {
        // After the directory, whose inode is 1.
        self.tapes.get(usize::try_from(ino.0).ok()?.checked_sub(2)?)
    }

    /// Makes a change; false if it is not of whole sectors of a disk.
    fn change(&self, ino: INodeNo, at: (u64, u64), bytes: Option<&[u8]>, through: bool) -> bool {
        let (start, length) = at;
        let whole = start.is_multiple_of(SECTOR_BYTES as u64)
            && length.is_multiple_of(SECTOR_BYTES as u64)
            && start.checked_add(length).is_some_and(|end| end <= self.bytes);
        let Some(tape) = self.tape(ino).filter(|_| whole) else { return false };
        let range = (start / SECTOR_BYTES as u64, length / SECTOR_BYTES as u64);
        let number = {
            let mut tape = tape.lock().unwrap();
            tape.begin(self.clock.tick(), range, bytes)
        };
        self.dawdle();
        let mut tape = tape.lock().unwrap();
        tape.end(number, self.clock.tick(), through);
        true
    }

    /// Takes some time, as disks do, now and then a long time.
    fn dawdle(&self) {
        let mut random = self.random.lock().unwrap();
        let micros = if random.below(8) == 0 { random.below(DAWDLE_US) } else { 0 };
        drop(random);
        if micros > 0 {
            thread::sleep(Duration::from_micros(micros));
        }
    }
}

/// The requests of the kernel.
struct Served(Arc<Disks>);

impl fuser::Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // The kernel refuses more than its maximum, and then sends smaller writes.
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let at = self.0.names.iter().position(|known| OsStr::new(known) == name);
        match at.and_then(|at| self.0.attr(INodeNo(at as u64 + 2))) {
            Some(attr) => reply.entry(&FOREVER, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.attr(ino) {
            Some(attr) => reply.attr(&FOREVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(tape) = self.0.tape(ino) else { return reply.error(Errno::EIO) };
        let end = self.0.bytes.min(offset + u64::from(size));
        let sector_bytes = SECTOR_BYTES as u64;
        let mut found = Vec::with_capacity(size as usize + 2 * SECTOR_BYTES);
        let tape = tape.lock().unwrap();
        for sector in offset / sector_bytes..end.div_ceil(sector_bytes) {
            found.extend_from_slice(tape.read(sector));
        }
        drop(tape);
        let skip = (offset % sector_bytes) as usize;
        let bytes = end.saturating_sub(offset) as usize;
        reply.data(found.get(skip..skip + bytes).unwrap_or_default());
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // RWF_DSYNC arrives as a flag of the file; no fsync follows.
        let through = flags.0 & OFlags::DSYNC.bits().cast_signed() != 0;
        match self.0.change(ino, (offset, data.len() as u64), Some(data), through) {
            true => reply.written(data.len() as u32),
            false => reply.error(Errno::EINVAL),
        }
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let Some(tape) = self.0.tape(ino) else { return reply.error(Errno::EIO) };
        let began = self.0.clock.tick();
        self.0.dawdle();
        let mut tape = tape.lock().unwrap();
        tape.flushed(Flush { began, ended: self.0.clock.tick() });
        drop(tape);
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match mode == PUNCH_HOLE && self.0.change(ino, (offset, length), None, false) {
            true => reply.ok(),
            false => reply.error(Errno::EOPNOTSUPP),
        }
    }
}

/// FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE.
const PUNCH_HOLE: i32 = 3;
/// Requests that run at once.
const THREADS: usize = 8;
/// Longest time of a write or a flush.
const DAWDLE_US: u64 = 2000;
/// Only content changes.
const FOREVER: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
