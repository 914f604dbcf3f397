//! Random I/O on one file, compared with a model in memory, like Apple's and the Linux Test
//! Project's fsx. The operations are pread, pwrite, shared mappings, truncate, direct I/O, fsync,
//! dropped caches, close and reopen.
//!
//! Invariants: after every operation the file equals the model; every read is compared whole. The
//! operations depend on the seed alone.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use aquifer_rig::random::Random;
use rustix::fs::OFlags;

use super::{drop_cache, mapping::Mapping};
use crate::pattern;
use crate::{Error, Result};

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file; made or truncated.
    pub path: PathBuf,
    /// Seed of operations and content.
    pub seed: u64,
    /// Number of operations.
    pub operations: u64,
    /// Longest length of the file, bytes.
    pub length_max: usize,
    /// Whether to use shared mappings.
    pub mapped: bool,
    /// Whether to use O_DIRECT beside the cache; not every local file system supports it.
    pub direct: bool,
}

/// Runs the operations and returns the number of each kind.
///
/// # Errors
/// [`Error::Mismatch`] with the last operations; [`Error::Io`].
pub fn run(config: &Config) -> Result<BTreeMap<&'static str, u64>> {
    let mut fsx = Fsx::new(config)?;
    for number in 0..config.operations {
        let operation = fsx.choose();
        if fsx.history.len() == HISTORY_MAX {
            fsx.history.pop_front();
        }
        fsx.history.push_back((number, operation));
        *fsx.counts.entry(operation.name()).or_default() += 1;
        fsx.apply(operation).map_err(|error| fsx.explain(error))?;
    }
    fsx.apply(Operation::Reopen).map_err(|error| fsx.explain(error))?;
    let whole = Operation::Read { at: 0, length: fsx.model.len() };
    fsx.apply(whole).map_err(|error| fsx.explain(error))?;
    Ok(fsx.counts)
}

/// One step; offsets and lengths in bytes.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Read { at: usize, length: usize },
    Write { at: usize, length: usize },
    MapRead { at: usize, length: usize },
    MapWrite { at: usize, length: usize, sync: bool },
    DirectRead { at: usize, length: usize },
    DirectWrite { at: usize, length: usize },
    Truncate { to: usize },
    Sync,
    DropCache,
    Reopen,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::MapRead { .. } => "map_read",
            Self::MapWrite { .. } => "map_write",
            Self::DirectRead { .. } => "direct_read",
            Self::DirectWrite { .. } => "direct_write",
            Self::Truncate { .. } => "truncate",
            Self::Sync => "sync",
            Self::DropCache => "drop_cache",
            Self::Reopen => "reopen",
        }
    }
}

struct Fsx<'a> {
    config: &'a Config,
    random: Random,
    model: Vec<u8>,
    file: File,
    direct: Option<File>,
    history: VecDeque<(u64, Operation)>,
    counts: BTreeMap<&'static str, u64>,
    writes: u64,
    /// A write through a mapping was not synced yet.
    mapped_unsynced: bool,
}

impl<'a> Fsx<'a> {
    fn new(config: &'a Config) -> Result<Self> {
        let file = open(config, true)?;
        let direct = open_direct(config)?;
        Ok(Self {
            config,
            random: Random::new(config.seed),
            model: Vec::new(),
            file,
            direct,
            history: VecDeque::new(),
            counts: BTreeMap::new(),
            writes: 0,
            mapped_unsynced: false,
        })
    }

    fn choose(&mut self) -> Operation {
        let kind = self.random.below(100);
        let (at, length) = self.range();
        let inside = self.inside(at, length);
        match (kind, inside) {
            (0..28, _) => Operation::Write { at, length },
            (28..50, _) => Operation::Read { at, length },
            (50..60, Some((at, length))) if self.config.mapped => {
                Operation::MapWrite { at, length, sync: self.random.below(2) == 0 }
            }
            (60..68, Some((at, length))) if self.config.mapped => Operation::MapRead { at, length },
            (68..74, _) if self.config.direct => {
                let (at, length) = whole_pages(at, length, self.config.length_max);
                Operation::DirectWrite { at, length }
            }
            (74..80, _) if self.config.direct => {
                let (at, length) = whole_pages(at, length, self.config.length_max);
                Operation::DirectRead { at, length }
            }
            (80..88, _) => Operation::Truncate { to: at },
            (88..91, _) => Operation::Sync,
            (91..94, _) => Operation::Reopen,
            (94.., _) => Operation::DropCache,
            _ => Operation::Read { at, length },
        }
    }

    /// A range within the file's longest length; half of them start at a page boundary, where the
    /// errors are.
    fn range(&mut self) -> (usize, usize) {
        let max = self.config.length_max;
        let mut at = self.random.index(max);
        if self.random.below(2) == 0 {
            at -= at % PAGE;
        }
        let longest = (max - at).min(IO_BYTES_MAX);
        (at, 1 + self.random.index(longest))
    }

    /// The part of a range within the present file.
    fn inside(&self, at: usize, length: usize) -> Option<(usize, usize)> {
        let at = at.checked_rem(self.model.len())?;
        Some((at, length.min(self.model.len() - at)))
    }

    fn apply(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::Read { at, length } => {
                let mut found = vec![0; length];
                let count = read_all(&self.file, at, &mut found)?;
                self.compare(at, found.get(..count).unwrap_or_default(), length)
            }
            Operation::DirectRead { at, length } => {
                self.sync_mapped()?;
                let Some(direct) = &self.direct else {
                    return Ok(());
                };
                let mut buffer = vec![0; length + PAGE];
                let found = aligned(&mut buffer, length);
                let count = read_all(direct, at, found)?;
                let found = found.get(..count).unwrap_or_default();
                self.compare(at, found, length)
            }
            Operation::MapRead { at, length } => {
                let (mapping, skip) = self.map(at, length)?;
                let mut found = vec![0; length];
                mapping.read(skip, &mut found)?;
                self.compare(at, &found, length)
            }
            Operation::Write { at, length } => {
                let content = self.content(at, length);
                let written = self.file.write_all_at(&content, wide(at));
                written.map_err(Error::io("pwrite"))?;
                self.expect(at, &content)
            }
            Operation::DirectWrite { at, length } => self.write_direct(at, length),
            Operation::MapWrite { at, length, sync } => {
                let content = self.content(at, length);
                let (mut mapping, skip) = self.map(at, length)?;
                mapping.write(skip, &content)?;
                if sync {
                    mapping.sync()?;
                }
                self.mapped_unsynced |= !sync;
                self.expect(at, &content)
            }
            Operation::Truncate { to } => {
                self.file.set_len(wide(to)).map_err(Error::io("ftruncate"))?;
                self.model.resize(to, 0);
                self.compare_length()
            }
            Operation::Sync => {
                self.mapped_unsynced = false;
                self.file.sync_all().map_err(Error::io("fsync"))
            }
            Operation::DropCache => {
                self.mapped_unsynced = false;
                drop_cache(&self.file)
            }
            Operation::Reopen => {
                self.file = open(self.config, false)?;
                self.compare_length()
            }
        }
    }

    /// open(2) leaves direct I/O beside writes through a mapping undefined. Linux's NFS client
    /// (6.1) then does read old content: `nfs_start_io_direct` writes back only after buffered I/O,
    /// and page faults do not count as such. This is not the server's fault.
    fn sync_mapped(&mut self) -> Result<()> {
        if self.mapped_unsynced { self.apply(Operation::Sync) } else { Ok(()) }
    }

    fn write_direct(&mut self, at: usize, length: usize) -> Result<()> {
        self.sync_mapped()?;
        let content = self.content(at, length);
        let Some(direct) = &self.direct else {
            return Ok(());
        };
        let mut buffer = vec![0; length + PAGE];
        let place = aligned(&mut buffer, length);
        place.copy_from_slice(&content);
        direct.write_all_at(place, wide(at)).map_err(Error::io("direct pwrite"))?;
        self.expect(at, &content)
    }

    /// New content, derived from the number of the write, so that old content is never mistaken for
    /// new.
    fn content(&mut self, at: usize, length: usize) -> Vec<u8> {
        self.writes += 1;
        let mut content = vec![0; length];
        pattern::fill(self.config.seed ^ self.writes, wide(at), &mut content);
        content
    }

    fn map(&self, at: usize, length: usize) -> Result<(Mapping, usize)> {
        let skip = at % PAGE;
        let mapped = (skip + length).next_multiple_of(PAGE);
        Ok((Mapping::new(&self.file, wide(at - skip), mapped)?, skip))
    }

    fn expect(&mut self, at: usize, content: &[u8]) -> Result<()> {
        let end = at + content.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        let place = self.model.get_mut(at..end);
        place.ok_or_else(|| Error::Malformed("model".into()))?.copy_from_slice(content);
        Ok(())
    }

    fn compare(&self, at: usize, found: &[u8], asked: usize) -> Result<()> {
        let end = (at + asked).min(self.model.len());
        let expected = self.model.get(at..end).unwrap_or_default();
        if expected == found {
            return Ok(());
        }
        let pairs = expected.iter().zip(found);
        let place = pairs.clone().position(|(a, b)| a != b);
        let wrong = pairs.filter(|(a, b)| a != b).count();
        let first = place.map_or_else(String::new, |place| {
            let (want, have) = (expected.get(place), found.get(place));
            format!(", the first at {}: {have:x?}, expected {want:x?}", at + place)
        });
        let (have, want) = (found.len(), expected.len());
        let what = format!("read of {asked} bytes at {at}: {have} bytes, expected {want}");
        Err(Error::Mismatch(format!("{what}; {wrong} wrong{first}")))
    }

    fn compare_length(&self) -> Result<()> {
        let found = self.file.metadata().map_err(Error::io("fstat"))?.len();
        let expected = wide(self.model.len());
        if found == expected {
            return Ok(());
        }
        Err(Error::Mismatch(format!("size {found}, expected {expected}")))
    }

    fn explain(&self, error: Error) -> Error {
        let history: Vec<String> =
            self.history.iter().map(|(number, op)| format!("{number} {op:?}")).collect();
        let context =
            format!("seed {}, last operations:\n{}", self.config.seed, history.join("\n"));
        match error {
            Error::Mismatch(what) => Error::Mismatch(format!("{what}\n{context}")),
            Error::Io { what, source } => {
                Error::Io { what: format!("{what}\n{context}\n"), source }
            }
            other => other,
        }
    }
}

fn open(config: &Config, empty: bool) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(empty);
    options.open(&config.path).map_err(Error::at("open", &config.path))
}

fn open_direct(config: &Config) -> Result<Option<File>> {
    if !config.direct {
        return Ok(None);
    }
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
    let opened = File::options().read(true).write(true).custom_flags(flags).open(&config.path);
    opened.map(Some).map_err(Error::at("open with O_DIRECT", &config.path))
}

/// Reads until the buffer is full or the file ends, and returns the number of bytes.
fn read_all(file: &File, at: usize, into: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    loop {
        let rest = into.get_mut(done..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(done);
        }
        match file.read_at(rest, wide(at + done)).map_err(Error::io("pread"))? {
            0 => return Ok(done),
            count => done += count,
        }
        // Direct reads must start at a page; a short read in the middle of a page is the end.
        if done % PAGE != 0 && into.len().is_multiple_of(PAGE) && at.is_multiple_of(PAGE) {
            return Ok(done);
        }
    }
}

/// `length` bytes of `buffer` (which is a page longer) that start at a page boundary.
fn aligned(buffer: &mut [u8], length: usize) -> &mut [u8] {
    let skip = buffer.as_ptr().align_offset(PAGE);
    buffer.get_mut(skip..skip + length).unwrap_or_default()
}

fn whole_pages(at: usize, length: usize, max: usize) -> (usize, usize) {
    let at = at - at % PAGE;
    let room = (max - at) - (max - at) % PAGE;
    (at, length.next_multiple_of(PAGE).min(room))
}

fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Page of the machine and unit of direct I/O.
const PAGE: usize = 4096;
/// Longest single operation, bytes.
const IO_BYTES_MAX: usize = 64 << 10;
/// Operations that a mismatch reports.
const HISTORY_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use aquifer_rig::work::{Scratch, WorkDir};

    fn config(scratch: &Scratch, seed: u64) -> Config {
        let path = scratch.join("file");
        Config { path, seed, operations: 3000, length_max: 256 << 10, mapped: true, direct: true }
    }

    #[test]
    fn passes_on_a_local_file_system_and_uses_everything() {
        let scratch = WorkDir::open().unwrap().scratch("fsx").unwrap();
        for seed in 0..4 {
            let counts = run(&config(&scratch, seed)).unwrap();
            assert_eq!(counts.len(), 10, "{counts:?}");
        }
    }

    #[test]
    fn a_single_wrong_byte_a_lost_write_and_a_wrong_size_are_found() {
        let scratch = WorkDir::open().unwrap().scratch("fsx-wrong").unwrap();
        let config = config(&scratch, 1);
        let mut fsx = Fsx::new(&config).unwrap();
        fsx.apply(Operation::Write { at: 100, length: 5000 }).unwrap();
        fsx.apply(Operation::Read { at: 0, length: 9000 }).unwrap();
        let saboteur = File::options().read(true).write(true).open(&config.path).unwrap();
        let mut byte = [0];
        saboteur.read_exact_at(&mut byte, 4200).unwrap();
        saboteur.write_all_at(&[byte[0] ^ 1], 4200).unwrap();
        for at in [0, 4096] {
            for operation in [
                Operation::Read { at, length: 1004 },
                Operation::MapRead { at, length: 1004 },
                Operation::DirectRead { at, length: 4096 },
            ] {
                let found = fsx.apply(operation);
                // 0..1004 is intact, and so is the direct read of the first page.
                assert_eq!(found.is_err(), at == 4096, "{operation:?} {found:?}");
            }
        }
        saboteur.set_len(5099).unwrap();
        assert!(matches!(fsx.apply(Operation::Reopen), Err(Error::Mismatch(_))));
        saboteur.set_len(0).unwrap();
        assert!(matches!(
            fsx.apply(Operation::Read { at: 0, length: 50 }),
            Err(Error::Mismatch(_))
        ));
    }
}
