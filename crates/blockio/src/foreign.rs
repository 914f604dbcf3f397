//! Recognises foreign content on a disk, so that creating a pool there can be refused.
//!
//! It looks only at the first and last bytes of a disk, as `blkid` and `wipefs` do: every format
//! that should be found again has its signature there. Offsets and magic numbers are those of the
//! formats' own documents or of util-linux's libblkid.
//!
//! Invariants:
//! - Total: any bytes give an answer, and nothing is written.
//! - A disk of zeros gives none. Random bytes practically give none: every signature has four bytes
//!   or more, or further fields of its structure must make sense.

mod table;

use std::fmt;
use std::io::{self, IoSliceMut};

use rustix::io::Errno;

use crate::backing::Backing;
use crate::{PageMut, SECTOR_BYTES};
use table::{Place, SIGNATURES};

/// The kind of foreign content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// A file system.
    FileSystem,
    /// The disk is divided; the parts may hold anything.
    PartitionTable,
    /// Part of a RAID, a volume group, another pool, or encrypted.
    Volume,
    /// Swap space, or the memory of a hibernated system.
    Swap,
    /// A virtual disk in a format of its own: the file is a VM's disk, not an empty image.
    VirtualDisk,
    /// A file of another kind: an archive, a program.
    OtherFile,
}

/// Foreign content that was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// Its kind.
    pub category: Category,
    /// Its usual name.
    pub what: &'static str,
    /// The byte on the disk where its signature lies.
    pub at: u64,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (signature at byte {})", self.what, self.at)
    }
}

/// The first and the last bytes of a disk.
#[derive(Debug)]
pub struct Ends {
    /// Size of the whole disk in bytes, which need not be whole sectors.
    pub size: u64,
    /// The first `HEAD_BYTES`, or all if there are fewer.
    pub head: Vec<u8>,
    /// The last bytes up to `size`: at least `TAIL_BYTES`, or all if there are fewer.
    pub tail: Vec<u8>,
}

/// How much of a disk's beginning is looked at: VMFS has its signature at 2 MiB.
pub const HEAD_BYTES: u64 = (2 << 20) + (64 << 10);

/// How much of a disk's end is looked at: two ZFS labels, a rest too small for a label, and more.
pub const TAIL_BYTES: u64 = 1 << 20;

impl Ends {
    /// Reads both ends of an opened disk, to its last byte; blocks the thread.
    pub(crate) fn read(backing: &Backing) -> io::Result<Self> {
        let size = backing.size_bytes;
        let tail = size.saturating_sub(TAIL_BYTES) / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        Ok(Ends {
            size,
            head: read_range(backing, 0, size.min(HEAD_BYTES))?,
            tail: read_range(backing, tail, size - tail)?,
        })
    }

    /// `N` bytes from `at` on, if they were read.
    fn bytes<const N: usize>(&self, at: u64) -> Option<&[u8; N]> {
        self.slice(at, N)?.first_chunk()
    }

    fn slice(&self, at: u64, length: usize) -> Option<&[u8]> {
        let within = |bytes: &'_ [u8], start: u64| -> Option<(usize, usize)> {
            let from = usize::try_from(at.checked_sub(start)?).ok()?;
            let to = from.checked_add(length)?;
            (to <= bytes.len()).then_some((from, to))
        };
        if let Some((from, to)) = within(&self.head, 0) {
            return self.head.get(from..to);
        }
        let (from, to) = within(&self.tail, self.size.checked_sub(self.tail.len() as u64)?)?;
        self.tail.get(from..to)
    }

    fn has(&self, at: u64, magic: &[u8]) -> bool {
        self.slice(at, magic.len()) == Some(magic)
    }

    fn u32_le(&self, at: u64) -> Option<u32> {
        self.bytes(at).map(|bytes| u32::from_le_bytes(*bytes))
    }
}

/// Reads from a whole sector on, in aligned pages; the last sector of a disk may be cut short.
fn read_range(backing: &Backing, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = Vec::with_capacity(length.next_multiple_of(SECTOR_BYTES));
    while bytes.len() < length {
        let count = (length - bytes.len()).div_ceil(SECTOR_BYTES).min(256);
        let mut pages: Vec<PageMut> = (0..count).map(|_| PageMut::zeroed()).collect();
        let mut slices: Vec<_> =
            pages.iter_mut().map(|page| IoSliceMut::new(page.as_mut_slice())).collect();
        let got = match rustix::io::preadv(backing, &mut slices, start + bytes.len() as u64) {
            Err(Errno::INTR) => continue,
            got => got?,
        };
        // A short transfer continues at a whole sector, as direct I/O requires.
        let whole = got / SECTOR_BYTES * SECTOR_BYTES;
        let kept = match bytes.len() + got >= length {
            true => got,
            false if whole > 0 => whole,
            false => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let read = pages.iter().flat_map(|page| page.iter().copied());
        bytes.extend(read.take(kept));
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// All recognised content, each once, the nearest to the beginning first.
pub fn recognise(ends: &Ends) -> Vec<Foreign> {
    let mut found: Vec<Foreign> = Vec::new();
    for signature in SIGNATURES {
        let at = match signature.place {
            Place::Start(at) => Some(at),
            Place::End(before) => ends.size.checked_sub(before),
        };
        if let Some(at) = at.filter(|at| ends.has(*at, signature.magic)) {
            found.push(Foreign { category: signature.category, what: signature.what, at });
        }
    }
    for probe in [ext, lvm2, luks2_second, md, zfs, fat] {
        found.extend(probe(ends));
    }
    // Many boot sectors end like an MBR, and a GPT has a protective one: a disk that is already
    // recognised is not reported twice.
    let known = found.iter().any(|it| it.what == GPT || it.at < 512);
    if !known {
        found.extend(mbr(ends));
    }
    found.sort_by_key(|it| it.at);
    let mut named = Vec::new();
    found.retain(|it| {
        let new = !named.contains(&it.what);
        named.push(it.what);
        new
    });
    found
}

/// Name of the GUID partition table.
const GPT: &str = "GPT partition table";

/// ext2, ext3, ext4: the superblock at byte 1024; its features tell which.
fn ext(ends: &Ends) -> Option<Foreign> {
    let at = EXT_SUPERBLOCK + 0x38;
    let field = |offset| ends.u32_le(EXT_SUPERBLOCK + offset);
    let (log_block, revision) = (field(0x18)?, field(0x4C)?);
    if !ends.has(at, &[0x53, 0xEF]) || log_block > 6 || revision > 1 {
        return None;
    }
    let (compatible, incompatible, read_only) = (field(0x5C)?, field(0x60)?, field(0x64)?);
    // ext3 knows recovery (4), a journal device (8), filetype (2), meta_bg (16); read-only:
    // sparse_super (1), large_file (2), btree_dir (4). Anything beyond is ext4's.
    let what = if incompatible & 0x8 != 0 {
        "ext3/ext4 journal"
    } else if incompatible & !0x1E != 0 || read_only & !0x7 != 0 {
        "ext4 file system"
    } else if compatible & 0x4 != 0 {
        "ext3 file system"
    } else {
        "ext2 file system"
    };
    Some(Foreign { category: Category::FileSystem, what, at })
}

const EXT_SUPERBLOCK: u64 = 1024;

/// LVM2: a label in one of the first four 512-byte sectors.
fn lvm2(ends: &Ends) -> Option<Foreign> {
    let labels = (0..4).map(|sector| sector * 512);
    let mut labelled = labels.filter(|at| ends.has(*at, b"LABELONE") && ends.has(at + 24, b"LVM2"));
    volume("LVM2 physical volume", labelled.next()?)
}

/// LUKS2 keeps a second header at a power of two; it survives a wiped first one.
fn luks2_second(ends: &Ends) -> Option<Foreign> {
    let mut places = (14..=21).map(|power| 1 << power);
    let at = places.find(|at| ends.has(*at, b"SKUL\xBA\xBE"))?;
    volume("LUKS encrypted volume (second header)", at)
}

/// Linux RAID superblocks: 1.1 at the begin, 1.2 at 4 KiB, 1.0 and 0.90 at the end.
fn md(ends: &Ends) -> Option<Foreign> {
    const MAGIC: u32 = 0xA92B_4EFC;
    let end_1_0 = (ends.size / 512).checked_sub(16).map(|sector| (sector & !7) * 512);
    let version_1 = [Some(0), Some(4096), end_1_0];
    for at in version_1.into_iter().flatten() {
        if ends.u32_le(at) == Some(MAGIC) && ends.u32_le(at + 4) == Some(1) {
            return volume("Linux RAID member", at);
        }
    }
    let at = (ends.size & !0xFFFF).checked_sub(0x1_0000)?;
    let magic = ends.u32_le(at)?;
    match magic == MAGIC || magic == MAGIC.swap_bytes() {
        true => volume("Linux RAID member (0.90)", at),
        false => None,
    }
}

/// ZFS: four labels of 256 KiB, two at each end. Each has a name-value list at 16 KiB, and from 128
/// KiB on a ring of uberblocks in the byte order of the machine that wrote them.
fn zfs(ends: &Ends) -> Option<Foreign> {
    const LABEL: u64 = 256 << 10;
    let whole = ends.size / LABEL * LABEL;
    let labels = [Some(0), Some(LABEL), whole.checked_sub(2 * LABEL), whole.checked_sub(LABEL)];
    for label in labels.into_iter().flatten() {
        let list = label + (16 << 10);
        let header = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        if ends.has(list, &header) && ends.has(list + 24, b"version") {
            return volume("ZFS pool member", list);
        }
        let mut ring = (128..256).map(|slot| label + (slot << 10));
        let uberblock = |at: &u64| {
            matches!(ends.u32_le(*at), Some(0x00BA_B10C)) && ends.u32_le(at + 4) == Some(0)
                || ends.has(*at, &[0, 0, 0, 0, 0x00, 0xBA, 0xB1, 0x0C])
        };
        if let Some(at) = ring.find(uberblock) {
            return volume("ZFS pool member", at);
        }
    }
    None
}

/// FAT: a boot sector that names its type; the names alone are only text.
fn fat(ends: &Ends) -> Option<Foreign> {
    let named = [(54, b"FAT12   "), (54, b"FAT16   "), (54, b"FAT     "), (82, b"FAT32   ")];
    let (at, _) = named.into_iter().find(|(at, name)| ends.has(*at, *name))?;
    ends.has(BOOT_SIGNATURE, &[0x55, 0xAA]).then_some(Foreign {
        category: Category::FileSystem,
        what: "FAT file system",
        at,
    })
}

/// MBR: four entries of 16 bytes before the boot signature.
fn mbr(ends: &Ends) -> Option<Foreign> {
    let sector = ends.bytes::<512>(0)?;
    if !sector.ends_with(&[0x55, 0xAA]) {
        return None;
    }
    let (entries, _) = sector.get(446..510)?.as_chunks::<16>();
    let sane = entries.iter().all(|entry| matches!(entry, [0x00 | 0x80, ..]));
    let used = entries.iter().any(|entry| matches!(entry, [_, _, _, _, kind, ..] if *kind != 0));
    Some(Foreign {
        category: Category::PartitionTable,
        what: match sane && used {
            true => "MBR partition table",
            false => "boot sector",
        },
        at: BOOT_SIGNATURE,
    })
}

const BOOT_SIGNATURE: u64 = 510;

fn volume(what: &'static str, at: u64) -> Option<Foreign> {
    Some(Foreign { category: Category::Volume, what, at })
}

#[cfg(test)]
mod tests;
