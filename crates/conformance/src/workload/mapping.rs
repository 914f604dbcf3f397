//! A shared mapping of a part of a file, accessed by copying.
//!
//! Invariants: no reference into the mapping is ever formed, since another process may change the
//! file. Accesses outside of it are errors. A page that the file system cannot deliver kills the
//! process with SIGBUS, which the test sees as its exit status.

use std::fs::File;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use crate::{Error, Result};

/// A mapping of `length` bytes from `offset`, both whole pages.
pub(super) struct Mapping {
    start: *mut std::ffi::c_void,
    length: usize,
}

impl Mapping {
    pub(super) fn new(file: &File, offset: u64, length: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        #[expect(unsafe_code, reason = "the kernel picks the place, so nothing mapped is replaced")]
        let mapped = unsafe {
            mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, offset)
        };
        let start = mapped.map_err(|errno| Error::io("mmap")(errno.into()))?;
        Ok(Self { start, length })
    }

    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> Result<()> {
        self.check(at, into.len())?;
        #[expect(unsafe_code, reason = "inside the mapping as checked; `into` is our own memory")]
        unsafe {
            let from = self.start.cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        Ok(())
    }

    pub(super) fn write(&mut self, at: usize, from: &[u8]) -> Result<()> {
        self.check(at, from.len())?;
        #[expect(unsafe_code, reason = "inside the mapping as checked; `from` is our own memory")]
        unsafe {
            let to = self.start.cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
        }
        Ok(())
    }

    /// Writes the changes to the file system, and waits for that.
    pub(super) fn sync(&self) -> Result<()> {
        #[expect(unsafe_code, reason = "exactly the range that is mapped")]
        let synced = unsafe { msync(self.start, self.length, MsyncFlags::SYNC) };
        synced.map_err(|errno| Error::io("msync")(errno.into()))
    }

    fn check(&self, at: usize, length: usize) -> Result<()> {
        if at.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(Error::Malformed(format!("{length} bytes at {at} of a mapping")));
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "exactly what was mapped; nobody refers into it")]
        // Fails only for an invalid range.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}
