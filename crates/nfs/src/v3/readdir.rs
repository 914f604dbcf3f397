//! READDIR (RFC 1813 section 3.3.16), and the parts that READDIRPLUS shares with it.
//!
//! Invariants:
//! - The reply never exceeds the client's `count` nor ours. Entries that did not fit are offered
//!   again, from the cookie of the last entry taken. Eof is set only after the directory's last
//!   entry.
//! - Cookies are stored with the entries and survive changes and restarts. So no cookie verifier is
//!   needed: 0 is given and any is accepted.

use aquifer_files::{Attributes, DirectoryEntry};
use aquifer_rpc::xdr::EncodeBuf;

use crate::limits::{LISTING_BATCH_MAX, LISTING_BATCH_MIN, LISTING_BYTES_MAX};
use crate::proto::v3::{
    CookieVerf3, Entry3, Fit, NfsFh3, Nfsstat3, PostOpAttr, Readdir3Args, Readdir3Encoder,
    Readdir3Res, TooSmall,
};

use super::request::{Fail, Outcome, Request, Target, post_op_attr};

pub(super) async fn readdir(
    request: &Request<'_>,
    args: &Readdir3Args,
    to: &mut EncodeBuf,
) -> Nfsstat3 {
    match list(request, args, to).await {
        Ok(()) => Nfsstat3::Ok,
        Err(Fail { status, resfail }) => {
            to.put(&Readdir3Res::Fail { status, resfail });
            status
        }
    }
}

async fn list(
    request: &Request<'_>,
    args: &Readdir3Args,
    to: &mut EncodeBuf,
) -> Outcome<(), PostOpAttr> {
    let count = args.count.min(LISTING_BYTES_MAX);
    let batch = batch(count, ENTRY_BYTES);
    let mut listing = Listing::open(request, &args.dir, args.cookie, batch, false).await?;
    let attributes = post_op_attr(&listing.directory);
    let too_small = |TooSmall| Fail { status: Nfsstat3::TooSmall, resfail: attributes };
    let mut reply =
        Readdir3Encoder::begin(to, count, &attributes, NO_VERIFIER).map_err(too_small)?;
    let eof = loop {
        let Some(entry) = listing.next().await? else { break true };
        if !request.sees(entry.handle) {
            continue;
        }
        let fit = reply.entry(&Entry3 {
            fileid: entry.handle.fileid(),
            name: &entry.name,
            cookie: entry.cookie,
        });
        if fit == Fit::Full {
            break false;
        }
    };
    reply.finish(eof).map(|_| ()).map_err(too_small)
}

/// A directory being listed, in batches.
pub(super) struct Listing {
    target: Target,
    with_attributes: bool,
    entries: std::vec::IntoIter<DirectoryEntry>,
    /// The cookie at which the next batch begins.
    cookie: u64,
    /// There is no further batch.
    end: bool,
    batch: usize,
    /// The directory's attributes with the first batch.
    pub directory: Attributes,
}

impl Listing {
    /// Requests the first batch of entries after `cookie`.
    pub(super) async fn open(
        request: &Request<'_>,
        dir: &NfsFh3,
        cookie: u64,
        batch: usize,
        with_attributes: bool,
    ) -> Outcome<Self, PostOpAttr> {
        let target = request.look(dir)?;
        let files = &target.files;
        let listed = files.readdir(&target.cred, target.file, cookie, batch, with_attributes).await;
        let (entries, end, directory) = match listed {
            Ok(listed) => listed,
            Err(error) => return Err(Fail::new(&error, request.attributes_now(dir).await)),
        };
        let mut this = Listing {
            target,
            with_attributes,
            entries: Vec::new().into_iter(),
            cookie,
            end,
            batch: (batch / 4).max(LISTING_BATCH_MIN),
            directory,
        };
        this.take(entries, end);
        Ok(this)
    }

    /// The next entry; `None` after the last one.
    pub(super) async fn next(&mut self) -> Outcome<Option<DirectoryEntry>, PostOpAttr> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Ok(Some(entry));
            }
            if self.end {
                return Ok(None);
            }
            let Target { files, file, cred, .. } = &self.target;
            let (cookie, batch) = (self.cookie, self.batch);
            let listed = files.readdir(cred, *file, cookie, batch, self.with_attributes).await;
            let (entries, end, _) =
                listed.map_err(|error| Fail::new(&error, post_op_attr(&self.directory)))?;
            self.take(entries, end);
        }
    }

    fn take(&mut self, entries: Vec<DirectoryEntry>, end: bool) {
        match entries.last() {
            Some(last) => self.cookie = last.cookie,
            None => assert!(end, "a listing without entries has reached the end"),
        }
        self.entries = entries.into_iter();
        self.end = end;
    }
}

/// The number of entries to request, if `bytes` are to be filled with entries of about `each`
/// bytes.
pub(super) fn batch(bytes: u32, each: u32) -> usize {
    usize::try_from(bytes / each).unwrap_or(usize::MAX).clamp(LISTING_BATCH_MIN, LISTING_BATCH_MAX)
}

/// See this module's invariants.
pub(super) const NO_VERIFIER: CookieVerf3 = [0; 8];

/// An entry with a name of 16 bytes: a guess; if names are shorter, more entries are requested.
const ENTRY_BYTES: u32 = 40;
