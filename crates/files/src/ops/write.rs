//! WRITE.
//!
//! A write builds whole pages first, under the object's writer lock, and reads the pages that it
//! covers only in part. Only then it takes a txg. A stable write is logged under the same hold.
//! Small writes that a client has outstanding to one file become one change (decision 0019).
//!
//! In a dataset with `sync=disabled` nothing is logged: every write is made like an UNSTABLE one. A
//! client that asks for a stable write gets the answer that it is stable.

use aquifer_blockio::{Page, PageMut, SECTOR_BYTES};
use aquifer_dataset::Promise;
use aquifer_object::{DirtyPage, ObjectState};
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::inode::FileKind;
use aquifer_pool::intent_log::{RECORD_PAGES_MAX, Ticket};
use aquifer_pool::{Admission, Demand, PoolError, SpaceClass, TxHold};

use crate::change::Change;
use crate::core::{
    Admitted, CHANGE_BYTES, Files, RECORD_BYTES, TREE_SECTORS, Target, attributes, before,
    drop_set_id, permits, unchanged,
};
use crate::error::FsError;
use crate::limits::FILE_BYTES_MAX;
use crate::made::{Promised, StableWrites, Written};
use crate::ops::early::STABLE_PAGES_MIN;
use crate::types::{Around, Credentials, FileHandle, Stability};

/// One of the writes of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// The byte at which it begins.
    pub offset: u64,
    /// The bytes to write.
    pub data: Data<'a>,
}

impl<'a> Piece<'a> {
    /// Whole pages, at a multiple of 4 KiB.
    pub fn of_pages(offset: u64, pages: &'a [Page]) -> Self {
        Piece { offset, data: Data::Pages(pages) }
    }

    /// Where it ends.
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.data.len() as u64)
    }

    /// The first page that it touches, and the number of pages.
    fn pages(&self) -> (u64, u64) {
        let first = self.offset / 4096;
        (first, self.end().div_ceil(4096) - first)
    }

    /// Whether it may be in a batch with others.
    fn is_small(&self) -> bool {
        match self.data {
            Data::Bytes(_) => false,
            Data::Pages(pages) => (1..=TOGETHER_PAGES_MAX).contains(&pages.len()),
        }
    }
}

/// The data of a write.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    /// Any bytes, at any offset.
    Bytes(&'a [u8]),
    /// Whole pages at a multiple of 4 KiB. They become the file's pages without a copy.
    Pages(&'a [Page]),
}

impl Data<'_> {
    fn len(self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Pages(pages) => pages.len() * SECTOR_BYTES,
        }
    }
}

/// Most writes of a batch.
pub const TOGETHER_MAX: usize = 32;

/// Most pages of a write in a batch of several. Such small writes never go early, however many they
/// are.
pub const TOGETHER_PAGES_MAX: usize = 4;

const _: () = assert!(TOGETHER_PAGES_MAX < STABLE_PAGES_MIN, "no more than each by itself");
const _: () = assert!(TOGETHER_MAX * TOGETHER_PAGES_MAX <= RECORD_PAGES_MAX, "one record");

impl Files {
    /// Writes bytes, and waits until the write may be answered. Returns how durable the bytes are:
    /// at least as durable as requested.
    pub async fn write(
        &self,
        cred: &Credentials,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> (Result<Stability, FsError>, Around) {
        let piece = Piece { offset, data: Data::Bytes(data) };
        let written = match self.write_batch(cred, file, &[piece], stability).await {
            Ok(written) => written,
            Err((error, around)) => return (Err(error), around),
        };
        let around = written.arounds.first().copied().unwrap_or_default();
        (written.promised.kept().await.map(|()| written.stability), around)
    }

    /// Makes a batch of writes to one file as one change, with one record: any single write, or up
    /// to [`TOGETHER_MAX`], each of up to [`TOGETHER_PAGES_MAX`] whole pages. The caller may answer
    /// them once they are [kept](crate::Promised::kept).
    ///
    /// To the client it is as if they had been made one after the other in the same instant. Each
    /// has its own answer.
    ///
    /// # Errors
    /// Nothing has changed then. An error of one of several writes fails them all: the caller then
    /// makes each by itself, for its own answer. The error comes with the attributes around the
    /// file.
    pub async fn write_batch(
        &self,
        cred: &Credentials,
        file: FileHandle,
        pieces: &[Piece<'_>],
        stability: Stability,
    ) -> Result<Written, (FsError, Around)> {
        let is_aligned = |piece: &Piece<'_>| match piece.data {
            Data::Bytes(_) => true,
            Data::Pages(_) => piece.offset.is_multiple_of(SECTOR_BYTES as u64),
        };
        let fits = match pieces {
            [_] => true,
            _ => (2..=TOGETHER_MAX).contains(&pieces.len()) && pieces.iter().all(Piece::is_small),
        };
        if !fits || !pieces.iter().all(is_aligned) {
            return Err((FsError::Invalid, Around::default()));
        }
        let target = self.target(file).await.map_err(|error| (error, Around::default()))?;
        let written = self.write_pieces(cred, &target, pieces, stability).await;
        written.map_err(|error| (error, unchanged(&target)))
    }

    async fn write_pieces(
        &self,
        cred: &Credentials,
        target: &Target,
        pieces: &[Piece<'_>],
        stability: Stability,
    ) -> Result<Written, FsError> {
        let inode = target.inode();
        match inode.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid),
        }
        self.check_writable(target)?;
        if cred.uid != inode.uid && !permits(cred, &inode, 2) {
            return Err(FsError::AccessDenied);
        }
        if pieces.iter().any(|piece| piece.end() > FILE_BYTES_MAX) {
            return Err(FsError::TooLarge);
        }
        let begun = self.pool.world().now();
        if pieces.iter().all(|piece| piece.data.len() == 0) {
            let arounds = vec![unchanged(target); pieces.len()];
            return Ok(Written { stability, arounds, promised: Promised::default() });
        }
        let always = self.always_sync(&target.dataset);
        let stable = stability != Stability::Unstable || always;
        target.object.check()?;
        let (promise, admission) = self.admit_write(target, pieces, stable).await?;
        let writer = target.object.write().await;
        let old = target.inode();
        if old.nlink == 0 {
            return Err(FsError::Stale);
        }
        target.object.check()?;
        let built = self.build(target, pieces, old.size).await?;
        let now = self.now();
        let mut inode = old.clone();
        drop_set_id(cred, &mut inode);
        let mut arounds = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let before = Some(before(&inode));
            inode.size = inode.size.max(piece.end());
            inode.mtime = now;
            inode.touch(now);
            let after = Some(attributes(&target.dataset, &inode));
            arounds.push(Around { before, after });
        }
        let hold = self.hold(&target.dataset, admission)?;
        if let Some(promise) = promise {
            promise.spend(hold.txg());
        }
        let ticket = if stable && target.dataset.logs(&hold) {
            let is_alone = pieces.len() == 1;
            self.write_stable(target, &hold, Change::Inode(inode), built, is_alone)
        } else {
            self.write_unstable(target, &hold, Change::Inode(inode), built);
            for (first, pages) in pieces.iter().map(Piece::pages) {
                self.place_runs(target, &hold, first, pages);
            }
            None
        };
        // The space that the pages take is known now.
        let used = target.inode().refer_bytes;
        arounds.iter_mut().filter_map(|around| around.after.as_mut()).for_each(|a| a.used = used);
        drop(hold);
        drop(writer);
        let stability = if stable { Stability::FileSync } else { Stability::Unstable };
        let writes = StableWrites { pool: self.pool.clone(), begun, count: pieces.len() };
        Ok(Written { stability, arounds, promised: Promised::of_writes(ticket, writes) })
    }

    async fn admit_write(
        &self,
        target: &Target,
        pieces: &[Piece<'_>],
        stable: bool,
    ) -> Result<(Option<Promise>, Admitted), FsError> {
        let passage = target.dataset.pass().await;
        let stable = stable && target.dataset.is_logged(&self.pool);
        let pages: u64 = pieces.iter().map(|piece| piece.pages().1).sum();
        let log = pages * 4096 + RECORD_BYTES * (1 + pages / RECORD_PAGES_MAX as u64);
        let demand = Demand {
            dirty_bytes: pages * 4096 + CHANGE_BYTES,
            sectors: pages + 2 * TREE_SECTORS + target.dataset.death_sectors(pages),
            log_bytes: if stable { log } else { 0 },
            class: SpaceClass::Write,
            lane: self.lane(target),
        };
        // Uncompressed data in this place is freed for the new data. Such a write always works, and
        // adds nothing to the space that the dataset refers to.
        let promise = match self.datasets.promise_now(&target.dataset, pages * 4096) {
            Ok(promise) => Some(promise),
            Err(_) if Box::pin(self.is_mapped(target, pieces)).await? => None,
            Err(_) => match self.datasets.promise(&target.dataset, pages * 4096).await {
                Ok(promise) => Some(promise),
                // The old data may have reached the disk only now.
                Err(_) if Box::pin(self.is_mapped(target, pieces)).await? => None,
                Err(refused) => return Err(refused.into()),
            },
        };
        match self.pool.admit_if_room(demand).await {
            // Rare, and large: not a part of every write's future.
            Err(PoolError::NoSpace) => {
                let covered = promise.as_ref().is_some_and(Promise::is_reserved);
                let admitted = Box::pin(self.admit_on_full((target, covered), pieces, demand));
                Ok((promise, Admitted { admission: admitted.await?, passage }))
            }
            result => Ok((promise, Admitted { admission: result?, passage })),
        }
    }

    /// Admits writes that take no more room than the old data, and writes for which a reservation
    /// keeps room. Space that others reserve for a while does not count against them.
    async fn admit_on_full(
        &self,
        (target, covered): (&Target, bool),
        pieces: &[Piece<'_>],
        demand: Demand,
    ) -> Result<Admission, FsError> {
        if !covered && !self.is_mapped(target, pieces).await? {
            match self.pool.admit(demand).await {
                // Data written a moment ago may have reached the disk only now.
                Err(PoolError::NoSpace) if self.is_mapped(target, pieces).await? => {}
                result => return Ok(result?),
            }
        }
        let in_turn = Demand { class: SpaceClass::Remove, ..demand };
        Ok(self.pool.admit(in_turn).await?)
    }

    /// Whether all pages that are written hold uncompressed data on disk that no snapshot shows.
    async fn is_mapped(&self, target: &Target, pieces: &[Piece<'_>]) -> Result<bool, FsError> {
        // Taken before the root is read: from here on nothing below it is reused.
        let _reading = self.pool.reading();
        let (root, floor) = {
            let state = target.object.state.lock();
            (state.root_to_read()?, state.inode.clone_floor())
        };
        let plain = |extent: &&aquifer_ondisk::extent::Extent| {
            matches!(extent.stored, aquifer_ondisk::extent::Stored::Plain(_))
                && extent.birth > floor
                && !target.dataset.is_shown(target.object.id, extent.birth)
        };
        for (first, pages) in pieces.iter().map(Piece::pages) {
            let found = aquifer_object::extent_tree::lookup_range(
                self.pool.as_ref(),
                root,
                first,
                first + pages,
            );
            let found = found.await?;
            let mapped: u64 =
                found.iter().filter(plain).map(|extent| u64::from(extent.pages)).sum();
            if mapped != pages {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The whole pages that these writes leave behind.
    async fn build(
        &self,
        target: &Target,
        pieces: &[Piece<'_>],
        size: u64,
    ) -> Result<Vec<(u64, DirtyPage)>, FsError> {
        let mut built = Vec::with_capacity(pieces.len());
        for Piece { offset, data } in pieces {
            match data {
                Data::Bytes(bytes) => {
                    assert!(pieces.len() == 1, "a page covered in part is of one write");
                    return self.build_pages(target, *offset, bytes, size).await;
                }
                Data::Pages(pages) => {
                    let pages = pages.iter().cloned().map(dirty_page);
                    built.extend((*offset / 4096..).zip(pages));
                }
            }
        }
        Ok(built)
    }

    /// The whole pages that a write of bytes leaves behind.
    async fn build_pages(
        &self,
        target: &Target,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> Result<Vec<(u64, DirtyPage)>, FsError> {
        let end = offset + data.len() as u64;
        let (first, last) = (offset / 4096, end.div_ceil(4096) - 1);
        // Only the first and the last page can be covered in part, and there is old content to keep
        // only below the old end. A small file that is written whole needs no read.
        let mut built = Vec::new();
        let mut rest = data;
        for page in first..=last {
            let start = usize::try_from(offset.saturating_sub(page * 4096)).unwrap_or(0);
            let room = 4096 - start;
            let (now, later) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            rest = later;
            let kept = start > 0 || page * 4096 + (now.len() as u64) < size;
            let old = if now.len() < 4096 && page * 4096 < size && kept {
                let read = target.object.read_pages(&self.pool, page, page + 1);
                // Rare, and large: not a part of every write's future.
                match Box::pin(read).await {
                    Err(error) => {
                        let pages = (page, page + 1);
                        return Err(self.unreadable_pages(target, pages, error).await);
                    }
                    Ok(mut read) => read.pop().flatten(),
                }
            } else {
                None
            };
            let content = match old {
                Some(old) => over(PageMut::with_prefix(old.as_slice()), start, now),
                None if start == 0 => Page::with_prefix(now),
                None => over(PageMut::zeroed(), start, now),
            };
            built.push((page, dirty_page(content)));
        }
        Ok(built)
    }

    fn write_unstable(
        &self,
        target: &Target,
        hold: &TxHold,
        inode: Change,
        pages: Vec<(u64, DirtyPage)>,
    ) {
        let changes = [inode, Change::Pages(target.object.id, pages)];
        self.apply(&target.dataset, hold, &changes, None);
        let mut state = target.object.state.lock();
        let ObjectState { inode, overlay, .. } = &mut *state;
        overlay.version(hold.txg(), inode).unlogged = true;
    }

    /// Returns the last record's ticket: once it is durable, all records are.
    fn write_stable(
        &self,
        target: &Target,
        hold: &TxHold,
        inode: Change,
        mut pages: Vec<(u64, DirtyPage)>,
        is_alone: bool,
    ) -> Option<Ticket> {
        let id = target.object.id;
        pages.iter_mut().for_each(|(_, dirty)| dirty.logged = true);
        let early = if is_alone { self.place_early(target, hold, &mut pages) } else { Vec::new() };
        let mut changes = vec![inode];
        let mut last = None;
        // One record, or two for the largest writes. A replay treats each as a write of its own:
        // the size is right after either.
        while !pages.is_empty() {
            let later = pages.split_off(pages.len().min(RECORD_PAGES_MAX));
            changes.push(Change::Pages(id, std::mem::replace(&mut pages, later)));
            let ticket = self.log(&target.dataset, hold, &changes, early.clone(), None);
            self.apply(&target.dataset, hold, &changes, Some(&ticket));
            last = Some(ticket);
            changes.truncate(1);
        }
        last
    }
}

/// A page with `data` from byte `start` on.
fn over(mut content: PageMut, start: usize, data: &[u8]) -> Page {
    if let Some(to) = content.get_mut(start..start + data.len()) {
        to.copy_from_slice(data);
    }
    content.freeze()
}

pub(crate) fn dirty_page(content: Page) -> DirtyPage {
    if content.is_zero() {
        return DirtyPage { page: None, sum: 0, logged: false, place: None };
    }
    let sum = checksum64(content.as_slice());
    DirtyPage { page: Some(content), sum, logged: false, place: None }
}
