//! Extents: where a file's pages lie. Packed entries of an extent tree's leaves.
//!
//! ```text
//!  0  page    u48   first page of the file (4 KiB pages)
//!  6  length  u8    low 4 bits: pages - 1; high 4 bits: flags
//!                   16 compressed, 32 `written` follows, 64 counted in the refcount tree
//!  7  birth   u40   txg in which the entry entered the tree
//! 12  place   u64   of the first page, or of the whole compressed extent
//! 20  [written u64] only if flag 32: it differs from birth
//!     plain:        u64 checksum (xxh3-64) a page
//!     compressed:   algorithm u8 (1 lz4, 2 zstd)  offset_pages u8  total_pages u8
//!                   stored_sectors u8  stored_bytes u16  checksum u64 of the stored sectors
//! ```
//! A plain page is read, verified and freed alone; a plain extent splits anywhere. Overwriting part
//! of a compressed extent leaves entries of the same place and birth (one tenancy) that show parts
//! of it: `offset_pages` says where in the extent the entry starts.

use smallvec::SmallVec;

use crate::codec::{FormatError, Reader, Writer, check_run};
use crate::types::{Place, Txg};

/// Pages of an extent at most.
pub const EXTENT_PAGES_MAX: u64 = 16;
/// Pages of a compressed extent at most (32 KiB).
pub const COMPRESSED_PAGES_MAX: u64 = 8;
/// Encoded bytes of an extent at most: a plain one of 16 pages, with `written`.
pub const EXTENT_BYTES_MAX: usize = 28 + 16 * 8;
/// Shortest encoded extent: one plain page.
pub const EXTENT_BYTES_MIN: usize = 20 + 8;
/// Pages of a file are below this.
pub const PAGE_LIMIT: u64 = 1 << 48;

const COMPRESSED: u8 = 16;
const WRITTEN: u8 = 32;
const COUNTED: u8 = 64;

/// The compression of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// LZ4 block format.
    Lz4 = 1,
    /// Zstandard frame.
    Zstd = 2,
}

/// The content at an extent's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// Uncompressed pages, one checksum each.
    Plain(SmallVec<[u64; 4]>),
    /// A compressed extent, of which the entry shows some pages.
    Compressed {
        /// Algorithm.
        algorithm: Compression,
        /// First page shown, counted from the start of the compressed extent.
        offset_pages: u8,
        /// Pages of the whole compressed extent.
        total_pages: u8,
        /// Sectors it takes.
        stored_sectors: u8,
        /// Compressed bytes at the start of those sectors.
        stored_bytes: u16,
        /// Of the stored sectors.
        checksum: u64,
    },
}

/// Some pages of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// First page.
    pub page: u64,
    /// Pages, 1 to 16.
    pub pages: u8,
    /// When the entry entered the tree.
    pub birth: Txg,
    /// When the bytes were written to their place.
    pub written: Txg,
    /// Where.
    pub place: Place,
    /// Counted in the refcount tree: every free must pass there.
    pub counted: bool,
    /// The content there.
    pub stored: Stored,
}

impl Extent {
    /// The page after the last one.
    pub fn end(&self) -> u64 {
        self.page + u64::from(self.pages)
    }

    /// Sectors that the stored extent takes on disk. (All sectors of a compressed extent, whatever
    /// part the entry shows.)
    pub fn stored_sectors(&self) -> u64 {
        match &self.stored {
            Stored::Plain(_) => u64::from(self.pages),
            Stored::Compressed { stored_sectors, .. } => u64::from(*stored_sectors),
        }
    }

    /// Sectors that compression saves of the stored extent, whatever part the entry shows.
    pub fn saved_sectors(&self) -> u8 {
        match &self.stored {
            Stored::Plain(_) => 0,
            Stored::Compressed { total_pages, stored_sectors, .. } => {
                total_pages.saturating_sub(*stored_sectors)
            }
        }
    }

    /// The part of this extent within pages `from..to`, if any.
    pub fn slice(&self, from: u64, to: u64) -> Option<Extent> {
        let (start, end) = (from.max(self.page), to.min(self.end()));
        if start >= end {
            return None;
        }
        let skip = start - self.page;
        let skip_pages = u8::try_from(skip).ok()?;
        let pages = u8::try_from(end - start).ok()?;
        let (place, stored) = match &self.stored {
            Stored::Plain(sums) => {
                let sums = sums.iter().skip(skip_pages.into()).take(pages.into()).copied();
                (self.place.plus(skip), Stored::Plain(sums.collect()))
            }
            Stored::Compressed { offset_pages, .. } => {
                let mut stored = self.stored.clone();
                if let Stored::Compressed { offset_pages: offset, .. } = &mut stored {
                    *offset = offset_pages + skip_pages;
                }
                (self.place, stored)
            }
        };
        Some(Extent { page: start, pages, place, stored, ..self.clone() })
    }

    /// Whether two entries show parts of one compressed extent.
    pub fn same_tenancy(&self, other: &Extent) -> bool {
        matches!(self.stored, Stored::Compressed { .. })
            && matches!(other.stored, Stored::Compressed { .. })
            && self.place == other.place
            && self.birth == other.birth
            && self.written == other.written
    }

    /// Encoded bytes.
    pub fn encoded_bytes(&self) -> usize {
        let written = if self.written == self.birth { 0 } else { 8 };
        let stored = match &self.stored {
            Stored::Plain(sums) => 8 * sums.len(),
            Stored::Compressed { .. } => 14,
        };
        20 + written + stored
    }

    /// Appends the entry.
    pub fn encode(&self, w: &mut Writer) {
        assert!((1..=16).contains(&self.pages), "an extent of 1 to 16 pages");
        let within = self.end() <= PAGE_LIMIT && self.place.fits(self.stored_sectors());
        assert!(within && !self.place.is_null(), "an extent beyond all files or vdevs: {self:?}");
        let mut flags = self.pages - 1;
        if matches!(self.stored, Stored::Compressed { .. }) {
            flags |= COMPRESSED;
        }
        if self.written != self.birth {
            flags |= WRITTEN;
        }
        if self.counted {
            flags |= COUNTED;
        }
        w.u48(self.page);
        w.u8(flags);
        w.u40(self.birth.0);
        w.u64(self.place.0);
        if self.written != self.birth {
            w.u64(self.written.0);
        }
        match &self.stored {
            Stored::Plain(sums) => {
                assert_eq!(sums.len(), usize::from(self.pages), "a checksum a page");
                sums.iter().for_each(|sum| w.u64(*sum));
            }
            Stored::Compressed {
                algorithm,
                offset_pages,
                total_pages,
                stored_sectors,
                stored_bytes,
                checksum,
            } => {
                w.u8(*algorithm as u8);
                w.u8(*offset_pages);
                w.u8(*total_pages);
                w.u8(*stored_sectors);
                w.u16(*stored_bytes);
                w.u64(*checksum);
            }
        }
    }

    /// Skips an entry without decoding it: the first and the last page that it shows.
    pub fn skip(r: &mut Reader<'_>) -> Result<(u64, u64), FormatError> {
        let page = r.u48()?;
        let packed = r.u8()?;
        let pages = (packed & 15) + 1;
        let written = if packed & WRITTEN != 0 { 8 } else { 0 };
        let stored = if packed & COMPRESSED == 0 { 8 * usize::from(pages) } else { 14 };
        r.take(13 + written + stored)?;
        Ok((page, page + u64::from(pages) - 1))
    }

    /// Reads an entry.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let page = r.u48()?;
        let packed = r.u8()?;
        let pages = (packed & 15) + 1;
        let birth = Txg(r.u40()?);
        let place = Place(r.u64()?);
        let written = if packed & WRITTEN != 0 { r.txg()? } else { birth };
        if page + u64::from(pages) > PAGE_LIMIT {
            return Err(FormatError::invalid("extent: page", page));
        }
        if packed & 128 != 0 || place.is_null() {
            return Err(FormatError::invalid("extent: flags", packed));
        }
        let stored = if packed & COMPRESSED == 0 {
            Stored::Plain((0..pages).map(|_| r.u64()).collect::<Result<_, _>>()?)
        } else {
            decode_compressed(r, pages)?
        };
        let counted = packed & COUNTED != 0;
        let extent = Extent { page, pages, birth, written, place, counted, stored };
        check_run(extent.place, extent.stored_sectors())?;
        Ok(extent)
    }
}

fn decode_compressed(r: &mut Reader<'_>, pages: u8) -> Result<Stored, FormatError> {
    let algorithm = match r.u8()? {
        1 => Compression::Lz4,
        2 => Compression::Zstd,
        other => return Err(FormatError::invalid("extent: compression", other)),
    };
    let (offset_pages, total_pages) = (r.u8()?, r.u8()?);
    let (stored_sectors, stored_bytes) = (r.u8()?, r.u16()?);
    let checksum = r.u64()?;
    let shown_to = u16::from(offset_pages) + u16::from(pages);
    if shown_to > u16::from(total_pages) || u64::from(total_pages) > COMPRESSED_PAGES_MAX {
        return Err(FormatError::invalid("extent: pages", shown_to));
    }
    if stored_sectors == 0
        || stored_sectors >= total_pages
        || u32::from(stored_bytes) > u32::from(stored_sectors) * 4096
    {
        return Err(FormatError::invalid("extent: stored bytes", stored_bytes));
    }
    Ok(Stored::Compressed {
        algorithm,
        offset_pages,
        total_pages,
        stored_sectors,
        stored_bytes,
        checksum,
    })
}
