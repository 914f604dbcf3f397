//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16 and 3.3.17).
//!
//! The server does not know beforehand how many entries fit. It offers them one by one to an
//! encoder, which takes an entry or reports that the reply is full. The client's next call
//! continues after the last entry taken.
//!
//! Invariants:
//! - `READDIR3resok` never takes more than `count` bytes, `READDIRPLUS3resok` never more than
//!   `maxcount`. That counts everything from the directory's attributes to the eof word.
//! - A result without an entry has eof set, or is not sent: without progress, a client would ask
//!   for ever. The answer is TOOSMALL then, and the buffer is as it was before.

use aquifer_rpc::xdr::{
    Decode, Decoder, Encode, EncodeBuf, Mark, UNIT_BYTES, XdrError, opaque_bytes,
};
use aquifer_rpc::xdr_table;

use super::types::{CookieVerf3, Fattr3, NfsFh3, Nfsstat3, PostOpAttr, PostOpFh3};

xdr_table! {
    /// `struct entry3`.
    struct Entry3<'a> {
        /// The object's number.
        fileid: u64,
        /// Its name.
        name: &'a [u8],
        /// The cookie at which listing continues after this entry.
        cookie: u64,
    }

    /// `struct entryplus3`.
    struct EntryPlus3<'a> {
        /// The object's number.
        fileid: u64,
        /// Its name.
        name: &'a [u8],
        /// The cookie at which listing continues after this entry.
        cookie: u64,
        /// The object's attributes.
        name_attributes: PostOpAttr,
        /// Its handle.
        name_handle: PostOpFh3,
    }
}

/// Whether the encoder took an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an entry that was not taken must be offered again in the next call"]
pub enum Fit {
    /// The entry is in the reply.
    Taken,
    /// The entry does not fit: finish the reply.
    Full,
}

/// The client's limit leaves no room for anything: NFS3ERR_TOOSMALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for a directory entry in the reply that the client accepts")]
pub struct TooSmall;

/// Builds a successful READDIR result, including NFS3_OK. If dropped unfinished, it removes
/// everything again.
#[derive(Debug)]
pub struct Readdir3Encoder<'b>(Listing<'b>);

impl<'b> Readdir3Encoder<'b> {
    /// Starts a result of at most `count` bytes.
    ///
    /// # Errors
    /// [`TooSmall`] if not even an empty list fits; `to` is then as it was.
    pub fn begin(
        to: &'b mut EncodeBuf,
        count: u32,
        dir_attributes: &PostOpAttr,
        cookieverf: CookieVerf3,
    ) -> Result<Self, TooSmall> {
        Listing::begin(to, count, dir_attributes, cookieverf).map(Readdir3Encoder)
    }

    /// Whether an entry with a name of `name_len` bytes still fits.
    pub fn fits(&self, name_len: usize) -> bool {
        entry_bytes(name_len) <= self.0.room
    }

    /// Takes `entry` if it fits.
    pub fn entry(&mut self, entry: &Entry3<'_>) -> Fit {
        self.0.entry(entry_bytes(entry.name.len()), entry)
    }

    /// Ends the result and returns the number of entries. `eof` means that the last entry taken was
    /// the directory's last.
    ///
    /// # Errors
    /// [`TooSmall`] if no entry was taken and `eof` is false; everything is then removed.
    pub fn finish(self, eof: bool) -> Result<usize, TooSmall> {
        self.0.finish(eof)
    }
}

/// Builds a successful READDIRPLUS result, including NFS3_OK. If dropped unfinished, it removes
/// everything again.
///
/// With `dircount` a client asks for fewer entries than `maxcount` has room for. Only `maxcount`
/// limits the first entry, so that a client with a small `dircount` makes progress.
#[derive(Debug)]
pub struct Readdirplus3Encoder<'b> {
    listing: Listing<'b>,
    dir_room: usize,
}

impl<'b> Readdirplus3Encoder<'b> {
    /// Starts a result of at most `maxcount` bytes, with at most `dircount` bytes of them for
    /// links, numbers, names and cookies.
    ///
    /// # Errors
    /// [`TooSmall`] if not even an empty list fits; `to` is then as it was.
    pub fn begin(
        to: &'b mut EncodeBuf,
        dircount: u32,
        maxcount: u32,
        dir_attributes: &PostOpAttr,
        cookieverf: CookieVerf3,
    ) -> Result<Self, TooSmall> {
        let listing = Listing::begin(to, maxcount, dir_attributes, cookieverf)?;
        let dir_room = usize::try_from(dircount).unwrap_or(usize::MAX);
        Ok(Readdirplus3Encoder { listing, dir_room })
    }

    /// Whether an entry with a name of `name_len` bytes, attributes and a handle of at most
    /// `handle_len` bytes still fits. Call it before fetching the attributes.
    pub fn fits(&self, name_len: usize, handle_len: usize) -> bool {
        let plus = 2 * UNIT_BYTES + Fattr3::WIRE_BYTES + opaque_bytes(handle_len);
        self.dir_fits(name_len) && entry_bytes(name_len) + plus <= self.listing.room
    }

    /// Takes `entry` if it fits.
    pub fn entry(&mut self, entry: &EntryPlus3<'_>) -> Fit {
        if !self.dir_fits(entry.name.len()) {
            return Fit::Full;
        }
        let dir_bytes = entry_bytes(entry.name.len());
        let attributes = entry.name_attributes.map_or(0, |_| Fattr3::WIRE_BYTES);
        let handle = entry.name_handle.as_ref().map_or(0, NfsFh3::wire_bytes);
        let bytes = dir_bytes + 2 * UNIT_BYTES + attributes + handle;
        let fit = self.listing.entry(bytes, entry);
        if fit == Fit::Taken {
            self.dir_room = self.dir_room.saturating_sub(dir_bytes);
        }
        fit
    }

    /// Ends the result and returns the number of entries. `eof` means that the last entry taken was
    /// the directory's last.
    ///
    /// # Errors
    /// [`TooSmall`] if no entry was taken and `eof` is false; everything is then removed.
    pub fn finish(self, eof: bool) -> Result<usize, TooSmall> {
        self.listing.finish(eof)
    }

    fn dir_fits(&self, name_len: usize) -> bool {
        self.listing.entries == 0 || entry_bytes(name_len) <= self.dir_room
    }
}

/// The common part of both encoders.
#[derive(Debug)]
struct Listing<'b> {
    to: &'b mut EncodeBuf,
    /// The start of the result.
    start: Mark,
    /// Bytes left for entries; the end of the list is already deducted.
    room: usize,
    entries: usize,
    finished: bool,
}

impl<'b> Listing<'b> {
    fn begin(
        to: &'b mut EncodeBuf,
        count: u32,
        dir_attributes: &PostOpAttr,
        cookieverf: CookieVerf3,
    ) -> Result<Self, TooSmall> {
        let start = to.mark();
        to.put(&Nfsstat3::Ok);
        let resok = to.mark();
        to.put(dir_attributes);
        to.put(&cookieverf);
        let used = to.len_since(resok) + LIST_END_BYTES;
        let room = usize::try_from(count).unwrap_or(usize::MAX).checked_sub(used);
        match room {
            Some(room) => Ok(Listing { to, start, room, entries: 0, finished: false }),
            None => {
                to.truncate(start);
                Err(TooSmall)
            }
        }
    }

    fn entry(&mut self, bytes: usize, entry: &impl Encode) -> Fit {
        let Some(room) = self.room.checked_sub(bytes) else {
            return Fit::Full;
        };
        let before = self.to.mark();
        self.to.bool(true);
        self.to.put(entry);
        assert_eq!(self.to.len_since(before), bytes, "an entry takes the bytes it was counted for");
        self.room = room;
        self.entries += 1;
        Fit::Taken
    }

    fn finish(mut self, eof: bool) -> Result<usize, TooSmall> {
        if self.entries == 0 && !eof {
            return Err(TooSmall);
        }
        self.to.bool(false);
        self.to.bool(eof);
        self.finished = true;
        Ok(self.entries)
    }
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.to.truncate(self.start);
        }
    }
}

/// `struct READDIR3resok`, as it is received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readdir3ResOk<'a> {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// The verifier of the cookies.
    pub cookieverf: CookieVerf3,
    /// The entries.
    pub entries: Vec<Entry3<'a>>,
    /// Whether the last entry is the directory's last.
    pub eof: bool,
}

impl Encode for Readdir3ResOk<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.put(&self.dir_attributes);
        to.put(&self.cookieverf);
        to.list(&self.entries);
        to.bool(self.eof);
    }
}

impl<'a> Decode<'a> for Readdir3ResOk<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(Readdir3ResOk {
            dir_attributes: Decode::decode(from)?,
            cookieverf: Decode::decode(from)?,
            entries: from.list()?,
            eof: from.bool()?,
        })
    }
}

/// `struct READDIRPLUS3resok`, as it is received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readdirplus3ResOk<'a> {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// The verifier of the cookies.
    pub cookieverf: CookieVerf3,
    /// The entries.
    pub entries: Vec<EntryPlus3<'a>>,
    /// Whether the last entry is the directory's last.
    pub eof: bool,
}

impl Encode for Readdirplus3ResOk<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.put(&self.dir_attributes);
        to.put(&self.cookieverf);
        to.list(&self.entries);
        to.bool(self.eof);
    }
}

impl<'a> Decode<'a> for Readdirplus3ResOk<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(Readdirplus3ResOk {
            dir_attributes: Decode::decode(from)?,
            cookieverf: Decode::decode(from)?,
            entries: from.list()?,
            eof: from.bool()?,
        })
    }
}

/// An entry's link, number, name and cookie on the wire.
fn entry_bytes(name_len: usize) -> usize {
    UNIT_BYTES + 8 + opaque_bytes(name_len) + 8
}

/// The end of the list and the eof word.
const LIST_END_BYTES: usize = 2 * UNIT_BYTES;
