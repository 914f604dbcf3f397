//! Opening a [`FileDisk`](crate::FileDisk), and making image files.
//!
//! Invariants:
//! - A disk opened for writing is exclusive. A block device is opened with O_EXCL: the kernel then
//!   refuses it if it is mounted, a swap, part of a RAID or opened so by another daemon. An image
//!   file carries an exclusive `flock` until it is closed. A reopened disk uses the claim of the
//!   handle from which it is reopened, and keeps it.
//! - A disk opened for writing lies where nobody else can exchange it, and is the one that was
//!   checked.
//! - Opening writes and resizes nothing.
//! - Opening for inspection takes no lock and cannot write: it works beside a running daemon.

mod others;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;

use crate::backing::{Backing, BackingKind, size_bytes, whole_sectors};
use crate::file::Engine;
use crate::{SECTOR_BYTES, block, uring};

/// The access that the opener wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading and writing, exclusively.
    Exclusive,
    /// Reading only, even if another process has it open: the content may change meanwhile.
    Inspect,
}

/// How to open a disk.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// The access.
    pub access: Access,
    /// The engine, or `None` for the best that works: the one named in the environment variable
    /// [`ENGINE_VARIABLE`], else io_uring, else blocking calls.
    pub engine: Option<Engine>,
}

impl OpenOptions {
    /// For a pool in use: exclusive, the best engine.
    pub const fn exclusive() -> Self {
        OpenOptions { access: Access::Exclusive, engine: None }
    }

    /// For reading only.
    pub const fn inspect() -> Self {
        OpenOptions { access: Access::Inspect, engine: None }
    }

    /// Sets the engine.
    #[must_use]
    pub const fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }
}

/// Why a disk could not be opened or made. The texts say what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing has this name.
    #[error("{path}: does not exist; check the name, or make an image file first")]
    NotFound {
        /// As given.
        path: PathBuf,
    },
    /// There is something by this name already.
    #[error("{path}: exists already; choose another name, or remove it if it is not needed")]
    Exists {
        /// As given.
        path: PathBuf,
    },
    /// The process has no permission.
    #[error(
        "{path}: not permitted; the daemon's user must be able to read and write it: devices \
         mostly belong to group disk, and an image should be that user's own"
    )]
    NotPermitted {
        /// As given.
        path: PathBuf,
    },
    /// It cannot be written at all.
    #[error("{path}: is write-protected; lift the protection, or open it for inspection only")]
    ReadOnly {
        /// As given.
        path: PathBuf,
    },
    /// Another process has it.
    #[error("{path}: is in use ({by}); release it there first")]
    InUse {
        /// As given.
        path: PathBuf,
        /// Facts known of the other process.
        by: &'static str,
    },
    /// Neither a file nor a block device.
    #[error("{path}: is a {what}; name a block device or an image file")]
    WrongType {
        /// As given.
        path: PathBuf,
        /// Kind of the thing at the path.
        what: &'static str,
    },
    /// Another user can change what is found there.
    #[error(
        "{path}: {at} {why}, who could put another file in its place: keep disks where only root \
         and this user write, images for instance in /var/lib/aquifer/images"
    )]
    Exchangeable {
        /// As given.
        path: PathBuf,
        /// The step on the path, or the file itself.
        at: PathBuf,
        /// Problem with that step or file.
        why: &'static str,
    },
    /// During the check, something else took its place.
    #[error("{path}: was exchanged while it was opened; try again")]
    Exchanged {
        /// As given.
        path: PathBuf,
    },
    /// Its smallest write is larger than ours.
    #[error(
        "{path}: has logical sectors of {bytes} bytes, more than {SECTOR_BYTES}; reformat it to \
         512 or 4096 bytes (for NVMe: nvme format --lbaf) or use another disk"
    )]
    SectorTooLarge {
        /// As given.
        path: PathBuf,
        /// Its logical sector in bytes.
        bytes: u32,
    },
    /// Smaller than one sector.
    #[error("{path}: has {bytes} bytes, less than one sector; give it a size")]
    TooSmall {
        /// As given.
        path: PathBuf,
        /// Its size in bytes.
        bytes: u64,
    },
    /// Too large for the file system.
    #[error("{path}: no image of {bytes} bytes can be made there; choose a smaller size")]
    TooLarge {
        /// As given.
        path: PathBuf,
        /// The size asked for in bytes.
        bytes: u64,
    },
    /// The device has no medium, or has gone.
    #[error("{path}: the device does not answer; check that it is attached")]
    Gone {
        /// As given.
        path: PathBuf,
    },
    /// Something else went wrong.
    #[error("{path}: cannot be opened: {source}")]
    Io {
        /// As given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Identifies an opened disk, whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskNumbers {
    /// Of an image file: its file system's number and the inode's.
    Image {
        /// The file system.
        device: u64,
        /// The inode.
        inode: u64,
    },
    /// Of a block device: the device's own number.
    Block(u64),
}

impl DiskNumbers {
    pub(crate) fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => DiskNumbers::Block(stat.st_rdev),
            _ => DiskNumbers::Image { device: stat.st_dev, inode: stat.st_ino },
        }
    }

    pub(crate) fn of_opened(disk: &Backing) -> Result<Self, Errno> {
        Ok(DiskNumbers::of(&rustix::fs::fstat(disk.as_fd())?))
    }
}

/// The environment variable that forces an engine: `uring` or `pread`.
pub const ENGINE_VARIABLE: &str = "AQUIFER_DISK_ENGINE";

/// The engine that works: the wanted one, unless the kernel refuses it.
pub(crate) fn choose_engine(wanted: Option<Engine>) -> Engine {
    let named = || engine_named(std::env::var(ENGINE_VARIABLE).ok()?.as_str());
    choose(wanted.or_else(named), uring::available)
}

fn engine_named(name: &str) -> Option<Engine> {
    match name {
        "uring" => Some(Engine::Uring),
        "pread" => Some(Engine::Pread),
        other => {
            tracing::warn!("{ENGINE_VARIABLE}={other}: neither uring nor pread; ignored");
            None
        }
    }
}

fn choose(wanted: Option<Engine>, available: impl FnOnce() -> Result<(), i32>) -> Engine {
    if wanted == Some(Engine::Pread) {
        return Engine::Pread;
    }
    match available() {
        Ok(()) => Engine::Uring,
        Err(errno) => {
            let error = io::Error::from_raw_os_error(errno);
            tracing::warn!(%error, "the kernel refuses io_uring: disks use blocking calls");
            Engine::Pread
        }
    }
}

/// Opens and checks the disk at `path`.
///
/// Retries a disk that is in use for `PATIENCE`, blocking the thread. A child that another thread
/// has just forked holds our closed descriptors, locks included, until it executes its program.
/// Tools that probe devices claim them for moments.
pub(crate) fn open(path: &Path, access: Access) -> Result<Backing, OpenError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match open_once(path, access, access == Access::Exclusive) {
            Err(OpenError::InUse { .. }) if Instant::now() < deadline => {
                std::thread::sleep(PATIENCE / 25);
            }
            other => return other,
        }
    }
}

/// Opens for writing what this process already holds by `held`.
pub(crate) fn open_again(path: &Path, held: &Arc<Backing>) -> Result<Backing, OpenError> {
    // A device that came back is another one for the kernel: the old claim does not cover it.
    let in_use = match open_once(path, Access::Exclusive, true) {
        Err(error @ OpenError::InUse { .. }) => error,
        other => return other,
    };
    let opened = open_once(path, Access::Exclusive, false)?;
    let failed = |error: Errno| open_error(path, error);
    let [new, old] = [&opened, held.as_ref()].map(DiskNumbers::of_opened);
    if new.map_err(failed)? == old.map_err(failed)? {
        Ok(opened.claimed_by(held))
    } else {
        Err(in_use)
    }
}

fn open_once(path: &Path, access: Access, claim: bool) -> Result<Backing, OpenError> {
    let failed = |error: Errno| open_error(path, error);
    // Checks the kind before opening: opening a pipe would wait for its other end, opening a tape
    // would rewind it.
    let seen = rustix::fs::stat(path).map_err(failed)?;
    let kind = kind_of(path, seen.st_mode)?;
    if access == Access::Exclusive {
        others::check(path)?;
    }
    let mut flags = match access {
        Access::Exclusive => OFlags::RDWR,
        Access::Inspect => OFlags::RDONLY,
    };
    if kind == BackingKind::Block && claim {
        flags |= OFlags::EXCL;
    }
    let (fd, direct) = open_direct(path, flags)?;
    if DiskNumbers::of(&rustix::fs::fstat(&fd).map_err(failed)?) != DiskNumbers::of(&seen) {
        return Err(OpenError::Exchanged { path: path.into() });
    }
    match kind {
        BackingKind::Image if claim => lock_image(path, &fd)?,
        BackingKind::Image => {}
        BackingKind::Block => {
            let logical = block::logical_sector_bytes(fd.as_fd());
            check_sector(path, logical.map_err(|e| io_error(path, e))?)?;
            let protected = block::is_read_only(fd.as_fd()).map_err(|e| io_error(path, e))?;
            if protected && access == Access::Exclusive {
                return Err(OpenError::ReadOnly { path: path.into() });
            }
        }
    }
    let bytes = size_bytes(&fd, kind).map_err(|e| io_error(path, e))?;
    if whole_sectors(bytes) == 0 {
        return Err(OpenError::TooSmall { path: path.into(), bytes });
    }
    let name = path.display().to_string();
    let writable = access == Access::Exclusive;
    Ok(Backing::new(fd, name, kind, bytes, direct, writable))
}

/// Makes a sparse image file of `sectors` sectors that does not exist yet, readable and writable by
/// its owner only, and makes its existence durable.
///
/// # Errors
/// [`OpenError::Exists`], [`OpenError::TooSmall`], [`OpenError::TooLarge`], and the errors of
/// opening. No file is left behind then.
pub fn create_image(path: &Path, sectors: u64) -> Result<(), OpenError> {
    let bytes = sectors.saturating_mul(SECTOR_BYTES as u64);
    if sectors == 0 {
        return Err(OpenError::TooSmall { path: path.into(), bytes });
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    let fd = opened.map_err(|error| match error {
        Errno::EXIST => OpenError::Exists { path: path.into() },
        error => open_error(path, error),
    })?;
    let made = size_image(path, &fd, bytes);
    if made.is_err() {
        // The first error is what matters; an empty file may stay if even this fails.
        let _ = rustix::fs::unlink(path);
    }
    made
}

fn size_image(path: &Path, fd: &OwnedFd, bytes: u64) -> Result<(), OpenError> {
    let too_large = || OpenError::TooLarge { path: path.into(), bytes };
    if i64::try_from(bytes).is_err() {
        return Err(too_large());
    }
    rustix::fs::ftruncate(fd, bytes).map_err(|error| match error {
        Errno::FBIG | Errno::INVAL | Errno::OVERFLOW | Errno::NOSPC => too_large(),
        error => open_error(path, error),
    })?;
    rustix::fs::fsync(fd).map_err(|error| open_error(path, error))?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty());
    let synced = folder.and_then(rustix::fs::fsync);
    synced.map_err(|error| open_error(path, error))
}

fn kind_of(path: &Path, mode: u32) -> Result<BackingKind, OpenError> {
    let what = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => return Ok(BackingKind::Image),
        FileType::BlockDevice => return Ok(BackingKind::Block),
        FileType::Directory => "directory",
        FileType::CharacterDevice => "character device",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        _ => "special file",
    };
    Err(OpenError::WrongType { path: path.into(), what })
}

/// Opens with O_DIRECT. Where the file system cannot do that, opens without it and logs that.
fn open_direct(path: &Path, flags: OFlags) -> Result<(OwnedFd, bool), OpenError> {
    let flags = flags | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
        Ok(fd) if takes_our_sectors(&fd) => return Ok((fd, true)),
        // EINVAL from open(2) means "no O_DIRECT here".
        Ok(_) | Err(Errno::INVAL) => {}
        Err(error) => return Err(open_error(path, error)),
    }
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| open_error(path, e))?;
    tracing::warn!(
        path = %path.display(),
        "the file system cannot do direct I/O with sectors of {SECTOR_BYTES} bytes (no O_DIRECT): \
         transfers go through the page cache, slower and taking memory twice"
    );
    Ok((fd, false))
}

/// Whether direct I/O on this file works in whole sectors of ours. Where the kernel does not say
/// (before 6.1), assumes that it does.
fn takes_our_sectors(fd: &OwnedFd) -> bool {
    let asked = StatxFlags::DIOALIGN;
    let Ok(stat) = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, asked) else {
        return true;
    };
    if stat.stx_mask & asked.bits() == 0 {
        return true;
    }
    let fits = |bytes: u32| (1..=SECTOR_BYTES as u64).contains(&u64::from(bytes));
    fits(stat.stx_dio_offset_align) && fits(stat.stx_dio_mem_align)
}

fn lock_image(path: &Path, fd: &OwnedFd) -> Result<(), OpenError> {
    match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            Err(OpenError::InUse { path: path.into(), by: "locked by another daemon or tool" })
        }
        // A file system without locks: a refusal would gain nothing.
        Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => {
            tracing::warn!(
                path = %path.display(),
                "the file system has no locks: make sure that only one daemon uses this image"
            );
            Ok(())
        }
        Err(error) => Err(open_error(path, error)),
    }
}

fn check_sector(path: &Path, logical: u32) -> Result<(), OpenError> {
    match u64::from(logical) > SECTOR_BYTES as u64 {
        true => Err(OpenError::SectorTooLarge { path: path.into(), bytes: logical }),
        false => Ok(()),
    }
}

fn open_error(path: &Path, error: Errno) -> OpenError {
    let path = PathBuf::from(path);
    match error {
        Errno::NOENT | Errno::NOTDIR => OpenError::NotFound { path },
        Errno::ACCESS | Errno::PERM => OpenError::NotPermitted { path },
        Errno::ROFS => OpenError::ReadOnly { path },
        Errno::BUSY => OpenError::InUse { path, by: "mounted, swap, or part of another volume" },
        Errno::TXTBSY => OpenError::InUse { path, by: "as a swap file or a running program" },
        Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM => OpenError::Gone { path },
        error => OpenError::Io { path, source: error.into() },
    }
}

/// How long another process may hold a disk before this reports it as in use.
const PATIENCE: Duration = Duration::from_millis(250);

fn io_error(path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { path: path.into(), source }
}

#[cfg(test)]
mod tests;
