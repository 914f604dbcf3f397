//! A disk alone: its best performance, without any file system or server above it.
//!
//! Invariant: all I/O is direct (`O_DIRECT`), at multiples of its own size, one at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aquifer_rig::random::Random;
use hdrhistogram::Histogram;
use rustix::fs::OFlags;

use crate::measure::Latency;
use crate::{Error, Result};

/// A device, or a file that was written in full.
#[derive(Debug)]
pub struct Raw {
    file: File,
    path: PathBuf,
    bytes: u64,
    random: Random,
}

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Writes, and waits until the data would survive a power cut (fdatasync).
    WriteFlush,
}

impl Raw {
    /// Opens the first `bytes` of `path`.
    ///
    /// # Errors
    /// [`Error::Io`], also where there is no direct I/O.
    pub fn open(path: &Path, bytes: u64) -> Result<Self> {
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
        let opened = File::options().read(true).write(true).custom_flags(direct).open(path);
        let file = opened.map_err(Error::at("open", path))?;
        Ok(Raw { file, path: path.to_path_buf(), bytes, random: Random::of_clock() })
    }

    /// Does random I/O of `io_bytes` (a multiple of 4096) for some time. Returns the time of each.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn run(&mut self, io: Io, io_bytes: usize, length: Duration) -> Result<Latency> {
        let mut memory = vec![0x5a; io_bytes + ALIGN_BYTES];
        let start = memory.as_ptr().align_offset(ALIGN_BYTES);
        let buffer = memory.get_mut(start..start + io_bytes).unwrap_or_default();
        let places = usize::try_from(self.bytes).unwrap_or(usize::MAX) / io_bytes.max(1);
        let mut took = Histogram::new(3).map_err(|error| Error::Malformed(error.to_string()))?;
        let end = Instant::now() + length;
        loop {
            let begun = Instant::now();
            if begun >= end {
                return Ok(Latency::of(&took));
            }
            let offset = (self.random.index(places) * io_bytes) as u64;
            self.once(io, buffer, offset).map_err(Error::at("read or write", &self.path))?;
            let nanoseconds = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            took.record(nanoseconds).map_err(|error| Error::Malformed(error.to_string()))?;
        }
    }

    fn once(&self, io: Io, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match io {
            Io::Read => self.file.read_exact_at(buffer, offset),
            Io::Write => self.file.write_all_at(buffer, offset),
            Io::WriteFlush => {
                self.file.write_all_at(buffer, offset)?;
                self.file.sync_data()
            }
        }
    }
}

/// The memory alignment of direct I/O, enough for every disk.
const ALIGN_BYTES: usize = 4096;
