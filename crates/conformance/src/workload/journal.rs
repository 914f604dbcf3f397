//! A journal whose writer reports durable records, and the checker that compares the file with
//! these reports after a crash.
//!
//! Invariants: a record is acknowledged only after fsync (or a synchronous write) has returned, and
//! records are written one after the other. So after a crash at any moment all acknowledged records
//! must be whole, and at most the next one may be in any state.
//!
//! ```text
//! | magic 8 | number 8 LE | content by number | xxh3-64 of all before, 8 LE |   = record_bytes
//! ```
//! Record n lies in slot n, or, in a ring, in slot n modulo `slots` over an older one.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use twox_hash::XxHash3_64;

use super::drop_cache;
use crate::pattern;
use crate::{Error, Result};

/// The place of a journal, and the form of its records.
#[derive(Clone, Debug)]
pub struct Journal {
    /// The file.
    pub path: PathBuf,
    /// Size of a record, at least 24.
    pub record_bytes: usize,
    /// Number of slots of a ring; 0: records are appended.
    pub slots: u64,
}

/// How the writer makes a record durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// write, then fsync: UNSTABLE WRITE and COMMIT.
    Fsync,
    /// `O_DIRECT | O_DSYNC`: a stable WRITE. Record size and memory must suit the file system.
    Direct,
}

/// The results of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Records that were verified.
    pub verified: u64,
    /// The highest number of a whole record.
    pub newest: Option<u64>,
}

impl Journal {
    /// Writes the records `first..first + count`. Calls `acknowledge` with the number of each when
    /// it is durable, and pauses for `pause` between them.
    ///
    /// # Errors
    /// [`Error::Io`]: the record after the last acknowledged one may be lost.
    pub fn write(
        &self,
        first: u64,
        count: u64,
        durability: Durability,
        pause: Duration,
        mut acknowledge: impl FnMut(u64),
    ) -> Result<()> {
        let flags = match durability {
            Durability::Fsync => OFlags::empty(),
            Durability::Direct => OFlags::DIRECT | OFlags::DSYNC,
        };
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        let opened = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(flags)
            .open(&self.path);
        let file = opened.map_err(Error::at("open", &self.path))?;
        // Direct I/O needs memory at a page boundary.
        let mut buffer = vec![0; self.record_bytes + PAGE];
        let skip = buffer.as_ptr().align_offset(PAGE);
        for number in first..first.saturating_add(count) {
            let record = self.record(number)?;
            let place = buffer.get_mut(skip..skip + record.len()).unwrap_or_default();
            place.copy_from_slice(&record);
            let written = file.write_all_at(place, self.offset(number)?);
            written.map_err(Error::io(format!("write record {number}")))?;
            if durability == Durability::Fsync {
                file.sync_all().map_err(Error::io(format!("fsync record {number}")))?;
            }
            acknowledge(number);
            thread::sleep(pause);
        }
        Ok(())
    }

    /// Verifies that all records up to `acknowledged` are there, except those that later ones have
    /// overwritten. Reads them from the server.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the first lost record; [`Error::Io`].
    pub fn check(&self, acknowledged: Option<u64>) -> Result<Checked> {
        let file = File::open(&self.path).map_err(Error::at("open", &self.path))?;
        drop_cache(&file)?;
        let end = acknowledged.map_or(0, |number| number.saturating_add(1));
        // In a ring, the slot of the record after the last acknowledged one may be torn.
        let first =
            if self.slots == 0 { 0 } else { end.saturating_sub(self.slots.saturating_sub(1)) };
        for number in first..end {
            match self.read(&file, number)? {
                Some(found) if found == number => {}
                found => {
                    let what = format!(
                        "record {number} of {end} acknowledged is lost; its slot has {found:?}"
                    );
                    return Err(Error::Mismatch(what));
                }
            }
        }
        // A crash loses the acknowledgements printed in the last moment: look further.
        let mut newest = end.checked_sub(1);
        for number in end.. {
            if self.read(&file, number)? != Some(number) {
                break;
            }
            newest = Some(number);
        }
        Ok(Checked { verified: newest.map_or(0, |newest| newest + 1 - first), newest })
    }

    /// The number of the whole record in the slot of `number`.
    fn read(&self, file: &File, number: u64) -> Result<Option<u64>> {
        let mut found = vec![0; self.record_bytes];
        match file.read_exact_at(&mut found, self.offset(number)?) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(Error::at("read", &self.path)(error)),
        }
        let number = found.get(8..16).and_then(|bytes| bytes.try_into().ok());
        let number = number.map(u64::from_le_bytes);
        // The number determines the whole record, including checksum and content.
        let whole = number.map(|number| self.record(number)).transpose()?;
        Ok(number.filter(|_| whole.is_some_and(|whole| whole == found)))
    }

    fn record(&self, number: u64) -> Result<Vec<u8>> {
        let too_small = || Error::Malformed(format!("records of {} bytes", self.record_bytes));
        let content_bytes = self.record_bytes.checked_sub(OVERHEAD).ok_or_else(too_small)?;
        let mut content = vec![0; content_bytes];
        pattern::fill(number, 0, &mut content);
        let mut record = MAGIC.to_vec();
        record.extend_from_slice(&number.to_le_bytes());
        record.extend_from_slice(&content);
        let checksum = XxHash3_64::oneshot(&record);
        record.extend_from_slice(&checksum.to_le_bytes());
        Ok(record)
    }

    fn offset(&self, number: u64) -> Result<u64> {
        let slot = number.checked_rem(self.slots).unwrap_or(number);
        let size = u64::try_from(self.record_bytes).unwrap_or(u64::MAX);
        let offset = slot.checked_mul(size);
        offset.ok_or_else(|| Error::Malformed(format!("record {number} has no offset")))
    }
}

const MAGIC: &[u8; 8] = b"AQ-JRNL1";
/// Magic, number and checksum.
const OVERHEAD: usize = 24;
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use aquifer_rig::work::{Scratch, WorkDir};

    fn journal(scratch: &Scratch, slots: u64) -> Journal {
        Journal { path: scratch.join(&format!("journal{slots}")), record_bytes: 512, slots }
    }

    fn write(journal: &Journal, first: u64, count: u64) -> Vec<u64> {
        let mut acknowledged = Vec::new();
        let written = journal
            .write(first, count, Durability::Fsync, Duration::ZERO, |n| acknowledged.push(n));
        written.unwrap();
        acknowledged
    }

    fn damage(journal: &Journal, at: u64) {
        let file = File::options().write(true).open(&journal.path).unwrap();
        file.write_all_at(b"?", at).unwrap();
    }

    #[test]
    fn appended_records_are_verified_and_counted_on() {
        let scratch = WorkDir::open().unwrap().scratch("journal").unwrap();
        let journal = journal(&scratch, 0);
        assert_eq!(write(&journal, 0, 10), (0..10).collect::<Vec<_>>());
        let all = Checked { verified: 10, newest: Some(9) };
        assert_eq!(journal.check(Some(9)).unwrap(), all);
        assert_eq!(journal.check(Some(4)).unwrap(), all);
        assert_eq!(journal.check(None).unwrap(), all);
        write(&journal, 10, 5);
        assert_eq!(journal.check(Some(14)).unwrap().verified, 15);
    }

    #[test]
    fn lost_cut_and_damaged_records_are_found() {
        let scratch = WorkDir::open().unwrap().scratch("journal-lost").unwrap();
        let journal = journal(&scratch, 0);
        write(&journal, 0, 10);
        assert!(matches!(journal.check(Some(10)), Err(Error::Mismatch(_))), "never written");
        let file = File::options().write(true).open(&journal.path).unwrap();
        file.set_len(10 * 512 - 1).unwrap();
        assert!(matches!(journal.check(Some(9)), Err(Error::Mismatch(_))), "cut");
        assert_eq!(journal.check(Some(8)).unwrap(), Checked { verified: 9, newest: Some(8) });
        for at in [3 * 512, 3 * 512 + 8, 3 * 512 + 100, 4 * 512 - 1] {
            damage(&journal, at);
            let error = journal.check(Some(8)).unwrap_err().to_string();
            assert!(error.contains("record 3 "), "{error}");
            write(&journal, 3, 1);
            journal.check(Some(8)).unwrap();
        }
    }

    #[test]
    fn in_a_ring_an_old_record_in_place_of_a_newer_one_is_found() {
        let scratch = WorkDir::open().unwrap().scratch("journal-ring").unwrap();
        let journal = journal(&scratch, 4);
        write(&journal, 0, 10);
        assert_eq!(journal.check(Some(9)).unwrap(), Checked { verified: 3, newest: Some(9) });
        // The next record, 10, overwrites 6: a crash may leave anything there.
        damage(&journal, 2 * 512 + 50);
        journal.check(Some(9)).unwrap();
        // An old write that overwrites a newer one: 5 in the place of 9.
        write(&journal, 5, 1);
        let error = journal.check(Some(9)).unwrap_err().to_string();
        assert!(error.contains("record 9 ") && error.contains("Some(5)"), "{error}");
    }
}
