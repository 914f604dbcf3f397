//! An object in memory: newest attributes, overlay, and the roots below it.

use std::collections::BTreeMap;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, NodeOwner};
use aquifer_ondisk::{BlockPointer, Corruption, DatasetId, ObjectId, Space, Txg};
use aquifer_pool::intent_log::Ticket;
use aquifer_pool::{Pool, PoolError, Reader, Room};
use aquifer_sync::atomic::{AtomicBool, Ordering};
use aquifer_sync::{AsyncMutex, AsyncMutexGuard, Mutex, Notify};
use futures_util::future::try_join_all;

use crate::btree;
use crate::extent_tree;
use crate::overlay::{Overlay, Seen};

/// A tree's root and what it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeRoot {
    /// The root.
    pub root: Option<BlockPointer>,
    /// Space that its extents take.
    pub refer: Space,
    /// Of that, what belongs to the file that this one was cloned from.
    pub inherited: Space,
}

impl TreeRoot {
    /// That of an inode.
    pub fn of(inode: &Inode) -> TreeRoot {
        TreeRoot { root: inode.root, refer: inode.refer(), inherited: inode.inherited() }
    }

    /// Puts it into an inode.
    pub fn put_into(&self, inode: &mut Inode) {
        inode.root = self.root;
        inode.set_refer(self.refer);
        inode.set_inherited(self.inherited);
    }
}

/// The state of an object in memory.
#[derive(Debug)]
pub struct ObjectState {
    /// The newest attributes. Root and refer are in `committed`.
    pub inode: Inode,
    /// Changes not on disk.
    pub overlay: Overlay,
    /// The tree of the newest root on disk, below the overlay. Read it by [`Object::root_to_read`].
    pub committed: TreeRoot,
    /// Its dataset was destroyed. `committed` is no longer updated: its blocks become free.
    pub destroyed: bool,
    /// The tree that the last sync made; it becomes `committed` with its txg.
    pub synced: TreeRoot,
    /// It lost changes, since a node of its tree could not be read. See [`crate::sync`], "Damage".
    pub damaged: bool,
    /// The last log record that holds a change of it. When that is durable, so are all earlier
    /// ones.
    pub last_ticket: Option<Ticket>,
}

impl ObjectState {
    /// The root to read below. The caller has entered [`Pool::reading`] before: nothing below the
    /// root is reused until that ends.
    ///
    /// # Errors
    /// The dataset was destroyed: blocks that the root reaches may be free by now.
    pub fn root_to_read(&self) -> Result<Option<BlockPointer>, PoolError> {
        if self.destroyed && !left_out(Rule::DestroyedIsNotRead) {
            return Err(PoolError::Destroyed);
        }
        Ok(self.committed.root)
    }
}

/// One file, directory or symlink in memory.
#[derive(Debug)]
pub struct Object {
    /// Its dataset.
    pub dataset: DatasetId,
    /// Its id.
    pub id: ObjectId,
    /// Its place in memory, if it stays there while nobody uses it.
    pub room: Option<Room>,
    /// Serialises changes. Held over the reads that a change needs, never over the wait for
    /// durability. A change takes it by [`Object::write`].
    pub writer: AsyncMutex<()>,
    /// It is being rolled back: no change begins.
    shut: AtomicBool,
    opened: Notify,
    /// Short, never held over an await.
    pub state: Mutex<ObjectState>,
}

/// Pages, runs to look for below, and the root to look in.
type Above = (Vec<Option<Page>>, Vec<(u64, u64)>, Option<BlockPointer>);

/// Runs to look for below, and the root to look in.
type Below = (Vec<(u64, u64)>, Option<BlockPointer>);

/// Places for pages; zeros where there is none.
type Slots<'a> = &'a mut [Option<Page>];

impl Object {
    /// An object from its inode on disk.
    pub fn new(dataset: DatasetId, inode: Inode) -> Self {
        let tree = TreeRoot::of(&inode);
        Object {
            dataset,
            id: inode.object,
            room: None,
            writer: AsyncMutex::new(()),
            shut: AtomicBool::new(false),
            opened: Notify::new(),
            state: Mutex::new(ObjectState {
                destroyed: false,
                damaged: inode.damaged,
                inode,
                overlay: Overlay::default(),
                committed: tree,
                synced: tree,
                last_ticket: None,
            }),
        }
    }

    /// An object that stays in memory while nobody uses it.
    pub fn in_room(self, room: Room) -> Self {
        Object { room: Some(room), ..self }
    }

    /// The owner of its nodes.
    pub fn owner(&self) -> NodeOwner {
        NodeOwner { dataset: self.dataset, object: self.id }
    }

    /// The writer lock, for a change. While the object is rolled back, this waits.
    pub async fn write(&self) -> AsyncMutexGuard<'_, ()> {
        loop {
            let guard = self.writer.lock().await;
            let opened = self.opened.notified();
            if !self.shut.load(Ordering::SeqCst) {
                return guard;
            }
            drop(guard);
            opened.await;
        }
    }

    /// Lets no change begin from now on. The caller has the writer lock: none is under way.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    /// Whether none begins at the moment.
    pub fn is_shut(&self) -> bool {
        self.shut.load(Ordering::SeqCst)
    }

    /// Lets changes begin again.
    pub fn open(&self) {
        self.shut.store(false, Ordering::SeqCst);
        self.opened.notify_waiters();
    }

    /// Its newest attributes, with the bytes that it uses now and soon.
    pub fn inode(&self) -> Inode {
        let state = self.state.lock();
        let mut inode = state.inode.clone();
        inode.root = state.committed.root;
        inode.damaged = state.damaged;
        let dirty_bytes = state.overlay.dirty_pages().saturating_mul(4096);
        let refer = state.synced.refer;
        inode.refer_bytes = refer.bytes.saturating_add(dirty_bytes);
        inode.saved_bytes = refer.saved_bytes;
        inode
    }

    /// Fails if the object is damaged: then it takes no writes, and a file shows no content.
    pub fn check(&self) -> Result<(), PoolError> {
        if !self.state.lock().damaged {
            return Ok(());
        }
        let (dataset, id) = (self.dataset, self.id);
        Err(Corruption::Object { dataset, object: id }.into())
    }

    /// The kind.
    pub fn kind(&self) -> FileKind {
        self.state.lock().inode.kind
    }

    /// Pages `from..to`, `None` for zeros.
    pub async fn read_pages(
        &self,
        pool: &Pool,
        from: u64,
        to: u64,
    ) -> Result<Vec<Option<Page>>, PoolError> {
        self.read_pages_for(Reader::Client, pool, (from, to)).await
    }

    /// Reads pages as [`Object::read_pages`], for any reader.
    ///
    /// # Errors
    /// As [`Object::read_pages`].
    pub async fn read_pages_for(
        &self,
        reader: Reader,
        pool: &Pool,
        (from, to): (u64, u64),
    ) -> Result<Vec<Option<Page>>, PoolError> {
        // Before the root is looked at: from here on nothing below it is reused.
        let _reading = pool.reading();
        let (mut pages, below, root) = self.seen_above(from, to)?;
        read_below((reader, pool), root, &below, from, &mut pages).await?;
        Ok(pages)
    }

    /// The overlay's content of pages `from..to`, the runs that it does not know, and the root to
    /// read those below.
    fn seen_above(&self, from: u64, to: u64) -> Result<Above, PoolError> {
        let mut below: Vec<(u64, u64)> = Vec::new();
        let count = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        let mut pages = Vec::with_capacity(count);
        let before = left_out(Rule::RootWithOverlay).then(|| self.state.lock().root_to_read());
        let state = self.state.lock();
        let root = before.unwrap_or_else(|| state.root_to_read())?;
        if state.overlay.is_empty() {
            pages.resize(count, None);
            below.push((from, to));
            return Ok((pages, below, root));
        }
        for page in from..to {
            match state.overlay.page(page) {
                Seen::Page(content) => pages.push(Some(content)),
                Seen::Zero => pages.push(None),
                Seen::Lost => {
                    return Err(Corruption::PageLost { object: self.id, page }.into());
                }
                Seen::Below => {
                    pages.push(None);
                    match below.last_mut() {
                        Some((_, end)) if *end == page => *end += 1,
                        _ => below.push((page, page + 1)),
                    }
                }
            }
        }
        Ok((pages, below, root))
    }

    /// The runs of pages `from..to` that no change in memory replaces, and the root to look in.
    pub(crate) fn runs_below(&self, (from, to): (u64, u64)) -> Result<Below, PoolError> {
        let state = self.state.lock();
        let mut below: Vec<(u64, u64)> = Vec::new();
        for page in (from..to).filter(|page| matches!(state.overlay.page(*page), Seen::Below)) {
            match below.last_mut() {
                Some((_, end)) if *end == page => *end += 1,
                _ => below.push((page, page + 1)),
            }
        }
        Ok((below, state.root_to_read()?))
    }

    /// Directory entries with keys in `from..=to`, at most `limit`, in key order.
    pub async fn read_entries(
        &self,
        pool: &Pool,
        from: u64,
        to: u64,
        limit: usize,
    ) -> Result<Vec<Dirent>, PoolError> {
        if from > to {
            // A client may continue after the largest possible key.
            return Ok(Vec::new());
        }
        // Before the root is looked at: from here on nothing below it is reused.
        let _reading = pool.reading();
        let (changed, root) = {
            let state = self.state.lock();
            (state.overlay.entries(from, to), state.root_to_read()?)
        };
        let dropped = changed.values().filter(|entry| entry.is_none()).count();
        let want = limit.saturating_add(dropped);
        let end = to.checked_add(1);
        let found = btree::collect_range::<Directory, Pool>(pool, root, from, end, want).await?;
        Ok(merge_entries(found, want, changed, limit))
    }

    /// It becomes what it was in a snapshot, and shows that it changed. What changed since is
    /// dropped. Requests that have the object keep it.
    pub fn roll_back(&self, inode: Inode) {
        let mut state = self.state.lock();
        let tree = TreeRoot::of(&inode);
        (state.committed, state.synced) = (tree, tree);
        state.overlay = Overlay::default();
        state.damaged = inode.damaged;
        state.inode = inode.shown_after(&state.inode);
    }

    /// A snapshot to which its dataset is rolled back does not have it.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        state.overlay = Overlay::default();
        state.destroyed = true;
        state.inode.nlink = 0;
    }

    /// `txg` is on disk.
    pub fn committed(&self, txg: Txg) {
        let mut state = self.state.lock();
        if state.overlay.get(txg).is_some() {
            state.committed = state.synced;
        }
        state.overlay.committed(txg);
    }
}

async fn read_below(
    (reader, pool): (Reader, &Pool),
    root: Option<BlockPointer>,
    below: &[(u64, u64)],
    from: u64,
    pages: &mut [Option<Page>],
) -> Result<(), PoolError> {
    for (start, end) in below {
        let extents = extent_tree::lookup_range(pool, root, *start, *end).await?;
        let (mut next, mut rest) = (from, &mut *pages);
        let mut shown = Vec::with_capacity(extents.len());
        for extent in &extents {
            let (slots, after) = slots_of(extent, next, rest)?;
            (next, rest) = (extent.end(), after);
            shown.push((extent, slots));
        }
        let missing = pool.cached_extents(shown);
        if !missing.is_empty() {
            let read = |(extent, slots)| pool.read_missing(reader, extent, slots);
            try_join_all(missing.into_iter().map(read)).await?;
        }
    }
    Ok(())
}

/// The slots in `pages` for an extent, and those behind it. `pages` begin at page `next` of the
/// file.
fn slots_of<'a>(
    extent: &Extent,
    next: u64,
    pages: Slots<'a>,
) -> Result<(Slots<'a>, Slots<'a>), PoolError> {
    let skip = extent.page.checked_sub(next).and_then(|skip| usize::try_from(skip).ok());
    let behind = skip.and_then(|skip| pages.split_at_mut_checked(skip)).map(|(_, behind)| behind);
    let slots = behind.and_then(|behind| behind.split_at_mut_checked(extent.pages.into()));
    slots.ok_or_else(|| Corruption::ExtentOrder(extent.page).into())
}

/// Overlays the entries of the tree. If the tree was cut off at `want` entries, no entry after its
/// last one may be shown.
fn merge_entries(
    found: Vec<Dirent>,
    want: usize,
    changed: BTreeMap<u64, Option<Dirent>>,
    limit: usize,
) -> Vec<Dirent> {
    let known_to = if found.len() >= want {
        found.last().map_or(u64::MAX, |entry| entry.key)
    } else {
        u64::MAX
    };
    let mut merged: BTreeMap<u64, Dirent> =
        found.into_iter().map(|entry| (entry.key, entry)).collect();
    for (key, entry) in changed.into_iter().take_while(|(key, _)| *key <= known_to) {
        match entry {
            Some(entry) => merged.insert(key, entry),
            None => merged.remove(&key),
        };
    }
    merged.into_values().take(limit).collect()
}
