//! Properties of block devices alone: logical sector, size, write protection, discard.
#![expect(unsafe_code, reason = "BLKDISCARD has no safe wrapper; reviewed here, used nowhere else")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::SeekFrom;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, ioctl};

/// Bytes of the device's logical sector: the smallest thing it can write.
pub(crate) fn logical_sector_bytes(device: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(rustix::fs::ioctl_blksszget(device)?)
}

/// The device's size in bytes.
pub(crate) fn size_bytes(device: BorrowedFd<'_>) -> io::Result<u64> {
    // For block devices this is the documented way beside BLKGETSIZE64; the file position is not
    // used by any engine.
    Ok(rustix::fs::seek(device, SeekFrom::End(0))?)
}

/// Whether the device is write-protected. Such a device can still be opened for writing.
pub(crate) fn is_read_only(device: BorrowedFd<'_>) -> io::Result<bool> {
    // _IO(0x12, 94), BLKROGET (include/uapi/linux/fs.h).
    const BLKROGET: Opcode = rustix::ioctl::opcode::none(0x12, 94);
    // SAFETY: BLKROGET writes one int (block/ioctl.c) and nothing else.
    let flag = unsafe { ioctl(device, Getter::<BLKROGET, libc::c_int>::new()) }?;
    Ok(flag != 0)
}

/// Tells the device that these bytes are no longer needed. Blocks until it has answered.
pub(crate) fn discard(device: BorrowedFd<'_>, start: u64, bytes: u64) -> io::Result<()> {
    let request = Discard { range: [start, bytes] };
    // SAFETY: `Discard` describes BLKDISCARD as the kernel defines it (block/ioctl.c): its
    // argument points at two u64, first byte and length, which it reads and never writes.
    Ok(unsafe { ioctl(device.as_fd(), request) }?)
}

struct Discard {
    range: [u64; 2],
}

// SAFETY: opcode and argument belong together, nothing is written to the argument, and the return
// value carries nothing but success.
unsafe impl Ioctl for Discard {
    type Output = ();

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        // _IO(0x12, 119): the same on every architecture (include/uapi/linux/fs.h).
        rustix::ioctl::opcode::none(0x12, 119)
    }

    fn as_ptr(&mut self) -> *mut libc::c_void {
        self.range.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(
        _result: IoctlOutput,
        _argument: *mut libc::c_void,
    ) -> rustix::io::Result<()> {
        Ok(())
    }
}
