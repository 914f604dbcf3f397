//! WRITE and COMMIT.
//!
//! A write builds whole pages first (reading what it only partly covers, under the object's writer
//! lock), and only then takes a txg. A stable one is logged under the same hold; COMMIT logs the
//! present content of what no record holds, each piece with the txg it lies in.
//!
//! In a dataset with `sync=disabled` nothing is logged: every write is made as an UNSTABLE one is,
//! and COMMIT does nothing. A client that asks for a stable write is told that it is one.

use aquifer_blockio::{Page, PageMut, SECTOR_BYTES};
use aquifer_dataset::{Promise, Refused};
use aquifer_object::overlay::Unlogged;
use aquifer_object::{DirtyPage, ObjectState};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::inode::FileKind;
use aquifer_pool::intent_log::{RECORD_PAGES_MAX, Ticket};
use aquifer_pool::{Admission, Demand, Lane, PoolError, SpaceClass, TxHold};

use crate::change::{self, Change};
use crate::core::{
    CHANGE_BYTES, Files, RECORD_BYTES, TREE_SECTORS, Target, attributes, before, permits, unchanged,
};
use crate::error::FsError;
use crate::ops::attributes::FILE_BYTES_MAX;
use crate::types::{Around, Credentials, FileHandle, Stability};

/// What is to be written.
#[derive(Debug, Clone, Copy)]
enum Data<'a> {
    Bytes(&'a [u8]),
    /// Whole pages, which are taken as they are.
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

impl Files {
    /// Writes. Returns how durable the data is: at least what was asked for.
    pub async fn write(
        &self,
        cred: &Credentials,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> (Result<Stability, FsError>, Around) {
        self.write_data(cred, file, offset, Data::Bytes(data), stability).await
    }

    /// Writes whole pages at a multiple of 4 KiB. They are not copied: they become the file's.
    pub async fn write_pages(
        &self,
        cred: &Credentials,
        file: FileHandle,
        offset: u64,
        pages: &[Page],
        stability: Stability,
    ) -> (Result<Stability, FsError>, Around) {
        if !offset.is_multiple_of(SECTOR_BYTES as u64) {
            return (Err(FsError::Invalid), Around::default());
        }
        self.write_data(cred, file, offset, Data::Pages(pages), stability).await
    }

    async fn write_data(
        &self,
        cred: &Credentials,
        file: FileHandle,
        offset: u64,
        data: Data<'_>,
        stability: Stability,
    ) -> (Result<Stability, FsError>, Around) {
        let target = match self.target(file).await {
            Ok(target) => target,
            Err(error) => return (Err(error), Around::default()),
        };
        match self.write_to(cred, &target, offset, data, stability).await {
            Ok((stability, around)) => (Ok(stability), around),
            Err(error) => (Err(error), unchanged(&target)),
        }
    }

    async fn write_to(
        &self,
        cred: &Credentials,
        target: &Target,
        offset: u64,
        data: Data<'_>,
        stability: Stability,
    ) -> Result<(Stability, Around), FsError> {
        let inode = target.inode();
        match inode.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid),
        }
        self.check_writable(&target.dataset)?;
        if cred.uid != inode.uid && !permits(cred, &inode, 2) {
            return Err(FsError::AccessDenied);
        }
        let end = offset.saturating_add(data.len() as u64);
        if end > FILE_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        if data.len() == 0 {
            return Ok((stability, unchanged(target)));
        }
        let always = self.always_sync(&target.dataset);
        let stable = stability != Stability::Unstable || always;
        let pages = end.div_ceil(4096) - offset / 4096;
        target.object.check()?;
        let begun = self.pool.world().now();
        let (promise, admission) = self.admit_write(target, offset / 4096, pages, stable).await?;
        let writer = target.object.writer.lock().await;
        let old = target.inode();
        if old.nlink == 0 {
            return Err(FsError::Stale);
        }
        target.object.check()?;
        let built = match data {
            Data::Bytes(bytes) => self.build_pages(target, offset, bytes, old.size).await?,
            Data::Pages(pages) => {
                (offset / 4096..).zip(pages.iter().cloned().map(dirty_page)).collect()
            }
        };
        let now = self.now();
        let mut inode = old.clone();
        inode.size = inode.size.max(end);
        (inode.mtime, inode.ctime) = (now, now);
        inode.touch();
        if cred.uid != 0 {
            inode.mode &= !0o6000;
        }
        let hold = self.hold(&target.dataset, admission)?;
        if let Some(promise) = promise {
            promise.spend(hold.txg());
        }
        let ticket = if stable && target.dataset.logs(&hold) {
            Some(self.write_stable(target, &hold, Change::Inode(inode), built)?)
        } else {
            self.write_unstable(target, &hold, Change::Inode(inode), built);
            self.place_runs(target, &hold, offset / 4096, pages);
            None
        };
        let after = attributes(&target.dataset, &target.inode());
        drop(hold);
        drop(writer);
        let around = Around { before: Some(before(&old)), after: Some(after) };
        if let Some(ticket) = ticket {
            ticket.durable().await?;
            self.pool.note_stable_write(begun);
        }
        Ok((if stable { Stability::FileSync } else { Stability::Unstable }, around))
    }

    async fn admit_write(
        &self,
        target: &Target,
        first: u64,
        pages: u64,
        stable: bool,
    ) -> Result<(Option<Promise>, Admission), FsError> {
        target.dataset.takes_changes().await;
        let stable = stable && target.dataset.is_logged(&self.pool);
        let log = pages * 4096 + RECORD_BYTES * (1 + pages / RECORD_PAGES_MAX as u64);
        let demand = Demand {
            dirty_bytes: pages * 4096 + CHANGE_BYTES,
            sectors: pages + 2 * TREE_SECTORS,
            log_bytes: if stable { log } else { 0 },
            class: SpaceClass::Write,
            lane: self.lane(target),
        };
        // What stands there uncompressed is freed for what comes: that always works, and adds
        // nothing to what the dataset refers to.
        let promise = match self.datasets.promise(&target.dataset, pages * 4096).await {
            Ok(promise) => Some(promise),
            Err(Refused::Pool(error)) => return Err(error.into()),
            Err(_) if Box::pin(self.is_mapped(target, first, pages)).await? => None,
            Err(Refused::Quota) => return Err(FsError::Quota),
            Err(Refused::Reserved) => return Err(FsError::NoSpace),
        };
        match self.pool.admit(demand).await {
            Err(PoolError::NoSpace) if Box::pin(self.is_mapped(target, first, pages)).await? => {
                let class = SpaceClass::Remove;
                Ok((promise, self.pool.admit(Demand { class, ..demand }).await?))
            }
            result => Ok((promise, result?)),
        }
    }

    /// Whether pages of a file all hold uncompressed data on disk.
    async fn is_mapped(&self, target: &Target, first: u64, pages: u64) -> Result<bool, FsError> {
        // Before the root is looked at: from here on nothing below it is reused.
        let _reading = self.pool.reading();
        let root = target.object.state.lock().committed.root;
        let found = aquifer_object::extent_tree::lookup_range(
            self.pool.as_ref(),
            root,
            first,
            first + pages,
        );
        let found = found.await?;
        let plain = |extent: &&aquifer_ondisk::extent::Extent| {
            matches!(extent.stored, aquifer_ondisk::extent::Stored::Plain(_))
        };
        let mapped: u64 = found.iter().filter(plain).map(|extent| u64::from(extent.pages)).sum();
        Ok(mapped == pages)
    }

    /// The whole pages that a write leaves behind.
    async fn build_pages(
        &self,
        target: &Target,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> Result<Vec<(u64, DirtyPage)>, FsError> {
        let end = offset + data.len() as u64;
        let (first, last) = (offset / 4096, end.div_ceil(4096) - 1);
        // Only the outermost pages can be covered in part, and only below the old end is there
        // anything to keep: a small file that is written whole needs no look at what it was.
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
                Box::pin(read).await?.pop().flatten()
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
        self.apply(&target.dataset, hold, &changes);
        let mut state = target.object.state.lock();
        let ObjectState { inode, overlay, .. } = &mut *state;
        overlay.version(hold.txg(), inode).unlogged = true;
    }

    fn write_stable(
        &self,
        target: &Target,
        hold: &TxHold,
        inode: Change,
        mut pages: Vec<(u64, DirtyPage)>,
    ) -> Result<Ticket, FsError> {
        let id = target.object.id;
        pages.iter_mut().for_each(|(_, dirty)| dirty.logged = true);
        let early = self.place_early(target, hold, &mut pages);
        let mut changes = vec![inode];
        let mut last = None;
        // One record, or two for the largest writes. Each is a write of its own to a replay: the
        // size is right after either.
        while !pages.is_empty() {
            let later = pages.split_off(pages.len().min(RECORD_PAGES_MAX));
            changes.push(Change::Pages(id, std::mem::replace(&mut pages, later)));
            self.apply(&target.dataset, hold, &changes);
            last = Some(self.log(&target.dataset, hold, &changes, early.clone(), None));
            changes.truncate(1);
        }
        last.ok_or(FsError::Invalid)
    }

    /// Makes durable what was written UNSTABLE in a range (`count` 0: to the end).
    pub async fn commit(
        &self,
        _cred: &Credentials,
        file: FileHandle,
        offset: u64,
        count: u32,
    ) -> (Result<(), FsError>, Around) {
        let target = match self.target(file).await {
            Ok(target) => target,
            Err(error) => return (Err(error), Around::default()),
        };
        let end = match count {
            0 => u64::MAX,
            count => offset.saturating_add(count.into()).div_ceil(4096),
        };
        let result = self.commit_range(&target, offset / 4096, end).await;
        (result, unchanged(&target))
    }

    async fn commit_range(&self, target: &Target, from: u64, to: u64) -> Result<(), FsError> {
        loop {
            // Of what was written UNSTABLE, a sync may have lost some.
            target.object.check()?;
            target.dataset.takes_changes().await;
            if !target.dataset.is_logged(&self.pool) {
                return Ok(());
            }
            // As much as one admission covers at a time.
            let pages = {
                let state = target.object.state.lock();
                state.overlay.count_unlogged(from, to, RECORD_PAGES_MAX)
            };
            let demand = Demand {
                dirty_bytes: 0,
                sectors: 0,
                log_bytes: pages as u64 * 4096 + 4 * RECORD_BYTES,
                class: SpaceClass::Remove,
                lane: Lane::Bulk,
            };
            let admission = self.pool.admit(demand).await?;
            let writer = target.object.writer.lock().await;
            let hold = self.hold(&target.dataset, admission)?;
            if !target.dataset.logs(&hold) {
                return Ok(());
            }
            let (more, ticket) = self.log_unlogged(target, &hold, (from, to), pages);
            drop(hold);
            drop(writer);
            if !more {
                // What was logged before is durable no later than the object's last record.
                if let Some(ticket) = ticket {
                    ticket.durable().await?;
                }
                return Ok(());
            }
        }
    }

    /// Logs up to `limit` pages of a range that no record holds, with their txg. Returns whether
    /// there are more, and the record to wait for.
    fn log_unlogged(
        &self,
        target: &Target,
        hold: &TxHold,
        (from, to): (u64, u64),
        limit: usize,
    ) -> (bool, Option<Ticket>) {
        let id: ObjectId = target.object.id;
        let taken = target.object.state.lock().overlay.take_unlogged(from, to, limit);
        for (txg, Unlogged { inode, pages, early }) in taken.into_iter().rev() {
            let pages = (!pages.is_empty()).then_some(Change::Pages(id, pages));
            let changes: Vec<Change> = inode.map(Change::Inode).into_iter().chain(pages).collect();
            let (record, payload) = change::record(&target.dataset, txg, txg, &changes, None);
            let ticket = self.pool.log().append(hold, record, payload, early);
            self.remember(&target.dataset, &changes, &ticket);
        }
        let state = target.object.state.lock();
        (state.overlay.count_unlogged(from, to, 1) > 0, state.last_ticket.clone())
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
