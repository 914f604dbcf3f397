//! The common parts of all operations: finding objects, locking them, and making changes durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, Weak};

use aquifer_dataset::{Dataset, Datasets, FullName, Passage, SyncMode};
use aquifer_meter::Seldom;
use aquifer_object::Object;
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_ondisk::reply::ReplyEntry;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::unstored::Unstored;
use aquifer_ondisk::{Corruption, Guid, ObjectId};
use aquifer_pool::intent_log::{EarlyWrite, Ticket};
use aquifer_pool::{Admission, Demand, Lane, Pool, PoolError, SpaceClass, TxHold};
use aquifer_sync::atomic::{AtomicU64, Ordering};
use aquifer_sync::{AsyncMutex, AsyncMutexGuard, Mutex};

use crate::change::{self, Change};
use crate::damage::About;
use crate::error::FsError;
use crate::made::Promised;
use crate::scrub::Scrubbing;
use crate::snapdir::{self, Turns, orders::Outcomes, places::Places};
use crate::types::{Around, Attributes, Before, Credentials, FileHandle};

/// Sectors that the trees above a change may take in its sync. This covers a path of the object's
/// tree, of the object table, of the namespace and of the reply table. Each is twice as wide for
/// splits, and in two copies.
pub(crate) const TREE_SECTORS: u64 = 32;
/// An object that has not changed for this long is not in the middle of bulk writes.
const RESTED_SECONDS: i64 = 2;
/// Memory that a change takes beside its pages.
pub(crate) const CHANGE_BYTES: u64 = 2048;
/// Bytes of a record beside its payload: a header sector of its own, and room in it.
pub(crate) const RECORD_BYTES: u64 = 8192;

/// All files of a pool.
#[derive(Debug)]
pub struct Files {
    pub(crate) datasets: Arc<Datasets>,
    pub(crate) pool: Arc<Pool>,
    verifier: AtomicU64,
    /// Held while a directory moves, one at a time: the check for cycles looks at several.
    pub(crate) directory_moves: AsyncMutex<()>,
    /// Held while a page of a comparison is made: each takes memory, and reads much.
    pub(crate) comparing: AsyncMutex<()>,
    pub(crate) scrubbing: Mutex<Scrubbing>,
    /// Objects that cannot be read of which the log was told lately.
    pub(crate) told: Mutex<Seldom<About>>,
    /// Itself, for tasks.
    pub(crate) this: Weak<Files>,
    pub(crate) places: Mutex<Places>,
    pub(crate) outcomes: Mutex<Outcomes>,
    pub(crate) turns: Turns,
    /// The datasets of which [`Files::tell_covered`] told.
    pub(crate) covered: Mutex<BTreeSet<Guid>>,
}

/// A change that has passed the entrance of its dataset, and was admitted.
pub(crate) struct Admitted {
    pub admission: Admission,
    pub passage: Passage,
}

/// A change in its txg. It is inside the entrance until it is made.
pub(crate) struct Held {
    hold: TxHold,
    _passage: Passage,
}

impl Deref for Held {
    type Target = TxHold;

    fn deref(&self) -> &TxHold {
        &self.hold
    }
}

/// A file that a handle names, with its dataset.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub dataset: Arc<Dataset>,
    pub object: Arc<Object>,
    /// Its handle, if it is a file as of a snapshot ([`crate::snapdir`]): the object's own is, or
    /// was, the live file's.
    pub shown: Option<FileHandle>,
}

impl Target {
    pub fn new(dataset: &Arc<Dataset>, object: Object) -> Target {
        Target { dataset: dataset.clone(), object: Arc::new(object), shown: None }
    }

    pub fn attributes(&self) -> Attributes {
        let own = attributes(&self.dataset, &self.object.inode());
        Attributes { handle: self.shown.unwrap_or(own.handle), ..own }
    }

    pub fn inode(&self) -> Inode {
        self.object.inode()
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.is_unstored() || self.dataset.properties().readonly
    }

    /// Whether it is in `.aquifer`, and so not an object of the dataset's table.
    pub fn is_unstored(&self) -> bool {
        self.shown.is_some() || snapdir::is_id(self.object.id)
    }
}

pub(crate) fn attributes(dataset: &Dataset, inode: &Inode) -> Attributes {
    let directory = inode.kind == FileKind::Directory;
    Attributes {
        handle: FileHandle {
            fs_guid: dataset.fs_guid,
            object: inode.object,
            generation: inode.generation,
        },
        kind: inode.kind,
        mode: inode.mode,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        size: if directory { directory_bytes(inode) } else { inode.size },
        used: inode.refer_bytes,
        rdev: (
            u32::try_from(inode.device() >> 32).unwrap_or(0),
            u32::try_from(inode.device() & 0xffff_ffff).unwrap_or(0),
        ),
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
        crtime: inode.crtime,
        change: inode.change,
    }
}

/// The size that a directory shows: it grows with the number of entries.
fn directory_bytes(inode: &Inode) -> u64 {
    inode.entries.saturating_mul(32).saturating_add(4096)
}

pub(crate) fn before(inode: &Inode) -> Before {
    let directory = inode.kind == FileKind::Directory;
    let size = if directory { directory_bytes(inode) } else { inode.size };
    Before { size, mtime: inode.mtime, ctime: inode.ctime }
}

/// Surroundings of an object that did not change.
pub(crate) fn unchanged(target: &Target) -> Around {
    let inode = target.inode();
    Around { before: Some(before(&inode)), after: Some(target.attributes()) }
}

impl Files {
    /// Files over the datasets of a pool.
    pub fn new(datasets: Arc<Datasets>) -> Arc<Files> {
        let pool = datasets.pool().clone();
        let verifier = AtomicU64::new(pool.world().random());
        Arc::new_cyclic(|this| Files {
            this: this.clone(),
            places: Mutex::default(),
            outcomes: Mutex::default(),
            turns: Turns::default(),
            datasets,
            pool,
            verifier,
            directory_moves: Default::default(),
            comparing: Default::default(),
            scrubbing: Mutex::default(),
            told: Mutex::default(),
            covered: Mutex::default(),
        })
    }

    /// The write verifier. It changes with every start of the service, and when a damaged file is
    /// accepted as it is: earlier UNSTABLE writes may be lost, and clients send them again.
    pub fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::Relaxed)
    }

    pub(crate) fn change_verifier(&self) {
        self.verifier.store(self.pool.world().random(), Ordering::Relaxed);
    }

    /// Whether the pool's disks owe answers for so long that a change should not begin.
    pub fn is_silent(&self) -> bool {
        self.pool.is_silent()
    }

    /// Waits until that is so.
    pub async fn silence(&self) {
        self.pool.silence().await;
    }

    /// The datasets below.
    pub fn datasets(&self) -> &Arc<Datasets> {
        &self.datasets
    }

    /// The root directory of a dataset (`tank/vms`) or a snapshot (`tank/vms@before`) by its full
    /// name, if it is in service.
    pub fn root(&self, dataset: &str) -> Option<FileHandle> {
        let dataset = match FullName::of(dataset) {
            FullName::Snapshot(..) => {
                let (dataset, snapshot) = self.datasets.snapshot_by_name(dataset).ok()?;
                self.datasets.view(&dataset, &snapshot).filter(|_| !dataset.is_standby())?
            }
            FullName::Dataset(_) | FullName::Bookmark(..) => {
                self.datasets.by_name(dataset).filter(|dataset| !dataset.is_standby())?
            }
        };
        let object = aquifer_dataset::ROOT_DIRECTORY;
        Some(FileHandle { fs_guid: dataset.fs_guid, object, generation: 0 })
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_ns(self.pool.world().wall_ns())
    }

    /// Whether a file, or its dataset, is being rolled back: then nobody gets a lock there.
    pub fn goes_back(&self, file: FileHandle) -> bool {
        let dataset = self.datasets.by_guid(file.fs_guid);
        dataset.is_some_and(|dataset| dataset.is_shut(file.object))
    }

    /// The file that a handle names; stale if it has no name any more.
    pub(crate) async fn target(&self, file: FileHandle) -> Result<Target, FsError> {
        let dataset = self.datasets.by_guid(file.fs_guid).ok_or(FsError::Stale)?;
        if let Some(of) = Unstored::of(file.object) {
            // Rare, and large: kept out of every request's future.
            return Box::pin(self.unstored(&dataset, (of, file.generation))).await;
        }
        let target = self.object(&dataset, file.object).await?;
        let inode = target.inode();
        if inode.generation != file.generation || inode.nlink == 0 {
            return Err(FsError::Stale);
        }
        Ok(target)
    }

    pub(crate) async fn directory(&self, file: FileHandle) -> Result<Target, FsError> {
        let target = self.target(file).await?;
        match target.object.kind() {
            FileKind::Directory => Ok(target),
            _ => Err(FsError::NotDirectory),
        }
    }

    pub(crate) async fn object(
        &self,
        dataset: &Arc<Dataset>,
        id: ObjectId,
    ) -> Result<Target, FsError> {
        if snapdir::is_id(id) {
            return Box::pin(self.hidden(dataset, id)).await;
        }
        self.stored(dataset, id).await
    }

    /// An object of a dataset's table.
    pub(crate) async fn stored(
        &self,
        dataset: &Arc<Dataset>,
        id: ObjectId,
    ) -> Result<Target, FsError> {
        if id == aquifer_dataset::ORPHANS {
            return Err(FsError::Stale);
        }
        match dataset.object(&self.pool, id).await {
            Err(error) => Err(self.unreadable_object(dataset, id, error).await),
            Ok(None) => Err(FsError::Stale),
            Ok(Some(object)) => Ok(Target { dataset: dataset.clone(), object, shown: None }),
        }
    }

    /// The list of objects without a name, which a removal adds to.
    pub(crate) async fn orphans(&self, dataset: &Arc<Dataset>) -> Result<Arc<Object>, FsError> {
        let list = dataset.object(&self.pool, aquifer_dataset::ORPHANS).await?;
        list.ok_or_else(|| PoolError::from(Corruption::NoOrphans(dataset.id)).into())
    }

    pub(crate) fn check_writable(&self, target: &Target) -> Result<(), FsError> {
        if target.is_read_only() {
            return Err(FsError::ReadOnly);
        }
        Ok(target.dataset.check_table()?)
    }

    /// Fails unless names in a directory may change.
    pub(crate) fn check_directory(&self, directory: &Target) -> Result<(), FsError> {
        self.check_writable(directory)?;
        Ok(directory.object.check()?)
    }

    /// Enters the open txg for a change of a dataset. Refuses one that was destroyed, or that is
    /// being received into.
    pub(crate) fn hold(&self, dataset: &Dataset, admitted: Admitted) -> Result<Held, FsError> {
        let Admitted { admission, passage } = admitted;
        let hold = self.pool.hold(admission)?;
        match dataset.takes_changes() {
            false => Err(FsError::Stale),
            true => Ok(Held { hold, _passage: passage }),
        }
    }

    /// Whether every write is stable before its reply.
    pub(crate) fn always_sync(&self, dataset: &Dataset) -> bool {
        dataset.properties().sync == SyncMode::Always
    }

    /// The lane of a change. A small change of an object that has not changed for a while waits for
    /// no other change.
    pub(crate) fn lane(&self, target: &Target) -> Lane {
        let changed = target.object.state.lock().inode.ctime;
        let rested = self.now().seconds.saturating_sub(changed.seconds);
        if rested >= RESTED_SECONDS { Lane::Sparse } else { Lane::Bulk }
    }

    /// Admission for a change of names or attributes. A change may be admitted while a dataset is
    /// not logged, and enter its txg when logging is on again. Then no room in the log is reserved
    /// for it. This concerns a few records at most, which at worst wait for the next root.
    pub(crate) async fn admit_names(
        &self,
        dataset: &Dataset,
        (class, lane): (SpaceClass, Lane),
    ) -> Result<Admitted, FsError> {
        let passage = dataset.pass().await;
        let demand = Demand {
            dirty_bytes: 4 * CHANGE_BYTES,
            sectors: 4 * TREE_SECTORS,
            log_bytes: if dataset.is_logged(&self.pool) { RECORD_BYTES } else { 0 },
            class,
            lane,
        };
        Ok(Admitted { admission: self.pool.admit(demand).await?, passage })
    }

    /// Enters the open txg, logs `changes` in one record with the call behind them, and applies
    /// them. In a dataset that is not logged there is no record. `given` is the object whose handle
    /// is in the answer. The caller has the writer locks of all changed objects.
    pub(crate) fn change(
        &self,
        cred: &Credentials,
        (dataset, given): (&Dataset, Option<&Inode>),
        admission: Admitted,
        changes: &[Change],
    ) -> Result<Promised, FsError> {
        let replies = self.datasets.replies();
        let given = given.map_or((ObjectId(0), 0), |inode| (inode.object, inode.generation));
        let hold = self.hold(dataset, admission)?;
        let reply = cred.call.and_then(|call| replies.entry(call, dataset.id, given));
        let log = || self.log(dataset, &hold, changes, Vec::new(), reply.as_ref());
        // Others may change a new object once they see it: their records come after this one.
        let ticket = dataset.logs(&hold).then(log);
        self.apply(dataset, &hold, changes, ticket.as_ref());
        if let Some(entry) = reply {
            // The reply table gets the entry with the changes, logged or not: nobody sees one
            // without the other.
            replies.record(hold.txg(), entry, ticket.clone());
        }
        Ok(Promised::new(ticket))
    }

    /// Records a call that succeeds without a change, if it must not run twice: when it comes
    /// again, its objects may have changed.
    pub(crate) async fn nothing_changed(
        &self,
        cred: &Credentials,
        (dataset, given): (&Dataset, Option<&Inode>),
    ) -> Result<Promised, FsError> {
        if cred.call.is_none() {
            return Ok(Promised::default());
        }
        let admission = self.admit_names(dataset, (SpaceClass::Remove, Lane::Bulk)).await?;
        self.change(cred, (dataset, given), admission, &[])
    }

    /// Applies changes under this hold. `ticket` is that of their record, if they have one.
    pub(crate) fn apply(
        &self,
        dataset: &Dataset,
        hold: &TxHold,
        changes: &[Change],
        ticket: Option<&Ticket>,
    ) {
        for place in change::apply(dataset, hold.txg(), changes, ticket) {
            self.pool.free_unsynced(hold.txg(), Run::new(place, 1));
        }
    }

    /// Logs changes, and the call behind them. The caller then applies them under this hold.
    pub(crate) fn log(
        &self,
        dataset: &Dataset,
        hold: &TxHold,
        changes: &[Change],
        early: Vec<EarlyWrite>,
        reply: Option<&ReplyEntry>,
    ) -> Ticket {
        let (record, payload) = change::record(dataset, hold.txg(), hold.txg(), changes, reply);
        self.pool.log().append(hold, record, payload, early)
    }

    /// Stores the record's ticket with each changed object, so that a later COMMIT waits for it.
    pub(crate) fn remember(&self, dataset: &Dataset, changes: &[Change], ticket: &Ticket) {
        let mut last = None;
        for id in changes.iter().map(Change::object) {
            // A write changes its file's attributes and its pages, in this order.
            if last.replace(id) != Some(id)
                && let Some(object) = dataset.cached(id)
            {
                object.state.lock().last_ticket = Some(ticket.clone());
            }
        }
    }
}

/// Writer locks of several objects, taken in the order of their ids.
pub(crate) struct Locks<'a> {
    _guards: Vec<AsyncMutexGuard<'a, ()>>,
}

pub(crate) async fn lock_all<'a>(objects: &[&'a Arc<Object>]) -> Locks<'a> {
    let ordered: BTreeMap<ObjectId, &'a Arc<Object>> =
        objects.iter().map(|object| (object.id, *object)).collect();
    let mut guards = Vec::with_capacity(ordered.len());
    for object in ordered.into_values() {
        guards.push(object.write().await);
    }
    Locks { _guards: guards }
}

/// Whether POSIX permission bits grant all of `wanted` (4 read, 2 write, 1 execute).
pub(crate) fn permits(cred: &Credentials, inode: &Inode, wanted: u32) -> bool {
    if cred.uid == 0 {
        let any_execute = inode.mode & 0o111 != 0 || inode.kind == FileKind::Directory;
        return wanted & 1 == 0 || any_execute;
    }
    let bits = if cred.uid == inode.uid {
        inode.mode >> 6
    } else if cred.in_group(inode.gid) {
        inode.mode >> 3
    } else {
        inode.mode
    };
    bits & wanted == wanted
}

/// Removes setuid and setgid when a caller other than root changes content or owner: the program
/// would otherwise run that caller's content with the old rights.
pub(crate) fn drop_set_id(cred: &Credentials, inode: &mut Inode) {
    if cred.uid != 0 {
        inode.mode &= !0o6000;
    }
}

/// The mode without setgid, if the caller may not grant the rights of this group.
pub(crate) fn without_foreign_set_gid(cred: &Credentials, gid: u32, mode: u32) -> u32 {
    if cred.uid == 0 || cred.in_group(gid) { mode } else { mode & !0o2000 }
}

pub(crate) fn require(cred: &Credentials, inode: &Inode, wanted: u32) -> Result<(), FsError> {
    if permits(cred, inode, wanted) { Ok(()) } else { Err(FsError::AccessDenied) }
}
