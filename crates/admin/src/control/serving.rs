//! A pool in service: brought up on a thread of its own, and taken down again.
//!
//! Taking it down has three steps, after clients are gone. [`export`](Serving::export) comes first.
//! Then the frontend releases the pool: the engine may have begun something on its runtimes that
//! the export had to wait for. [`let_go`](Serving::let_go) is last.
//!
//! What does not answer cannot be taken down so. [`leave`](Serving::leave) ends it in a task of its
//! own, and returns the [`Remnant`] at once.
//!
//! # Invariants
//! - When `let_go` returns, only the caller holds the disks.
//! - A disk of a remnant is claimed as long as anything of the old instance can still change it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use aquifer_api::time;
use aquifer_api::{ApiError, DroppedLog, guid_text};
use aquifer_blockio::{FileDisk, Remains, TokioWorld};
use aquifer_dataset::{DatasetInfo, Property, SyncMode};
use aquifer_files::{HostLimits, Service};
use aquifer_ondisk::Guid;
use aquifer_pool::import::ImportOptions;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::astray::Astray;
use super::beside;
use super::drill::NewestDrill;
use super::freeing::Freeing;
use super::load::LoadMeter;
use crate::devices::{Claimed, OpenDisk};
use crate::engine::{EngineThread, Unfinished};

/// A pool in service.
#[derive(Debug)]
pub(super) struct Serving {
    service: Service,
    /// The disks that are present, those included that the engine does not use at the moment.
    disks: Mutex<Vec<OpenDisk>>,
    dropped_log: Option<DroppedLog>,
    import_notes: Vec<String>,
    /// Its newest drill.
    pub drill: NewestDrill,
    /// Count of what the background still frees.
    pub freeing: Arc<Freeing>,
    /// Problems that a look at all its snapshots found.
    pub kept: Mutex<beside::Kept>,
    /// Its image files that are not what they should be.
    pub astray: Arc<Astray>,
    /// Counts from which its load is measured.
    pub load: LoadMeter,
    /// Its datasets were offered to clients.
    pub is_offered: AtomicBool,
    engine: EngineThread,
    /// The pool was left: who waits for its work gives up.
    left: Left,
}

/// Whether a pool was left.
#[derive(Debug, Default)]
struct Left {
    is_left: AtomicBool,
    changed: Notify,
}

impl Left {
    fn cancel(&self) {
        self.is_left.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    async fn wait(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_left.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }
}

impl Serving {
    /// Imports the pool on these disks, which are open exclusively.
    pub async fn bring_up(
        name: &str,
        Claimed { leaves, disks }: Claimed,
        (options, hosts): (ImportOptions, HostLimits),
    ) -> Result<Serving, ApiError> {
        let failed = |error: std::io::Error| {
            ApiError::failed(format!("no thread for pool {name:?}: {error}"))
        };
        let engine = EngineThread::start(name).map_err(failed)?;
        let world = Arc::new(TokioWorld::new(engine.handle().clone()));
        let opened = engine.run(async move { Service::open(world, leaves, &options).await }).await;
        let error = match opened {
            Ok(Ok(service)) => {
                service.files.set_host_limits(hosts);
                return Ok(Serving::new(service, disks, engine));
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        engine.stop().await;
        Err(ApiError::failed(format!("pool {name:?} cannot be imported: {error}")))
    }

    fn new(service: Service, mut disks: Vec<OpenDisk>, engine: EngineThread) -> Serving {
        // A disk may still have labels of the pool and be none of its disks any more: its removal
        // was interrupted. Such a disk is released.
        let own = own_paths(&service);
        disks.retain(|disk| own.contains(&disk.path));
        let dropped_log = dropped_log(&service);
        let import_notes = service.report.notes.clone();
        if let Some(DroppedLog { from_txg, since_ns, rewound, datasets }) = &dropped_log {
            tracing::error!(
                class = "log.dropped",
                pool = service.pool.name(),
                from_txg,
                since = time::text(*since_ns),
                rewound,
                datasets = datasets.join(", "),
                "imported without its log or the end of it: acknowledged changes may be missing"
            );
        }
        let (disks, left) = (Mutex::new(disks), Left::default());
        let drill = NewestDrill::default();
        let load = LoadMeter::default();
        Serving {
            service,
            disks,
            dropped_log,
            import_notes,
            drill,
            freeing: Arc::default(),
            load,
            kept: Mutex::default(),
            astray: Arc::default(),
            is_offered: AtomicBool::new(false),
            engine,
            left,
        }
    }

    /// The engine.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.service.pool.name()
    }

    /// The notes of the import.
    pub fn import_notes(&self) -> &[String] {
        &self.import_notes
    }

    /// The log that the import dropped.
    pub fn dropped_log(&self) -> Option<&DroppedLog> {
        self.dropped_log.as_ref()
    }

    /// Its disks.
    pub fn disks(&self) -> Vec<OpenDisk> {
        self.disks.lock().clone()
    }

    /// Adds disks of the pool.
    pub fn take_disks(&self, disks: Vec<OpenDisk>) {
        self.disks.lock().extend(disks);
    }

    /// Removes disks that are no longer the pool's, and closes them once the engine has released
    /// them.
    pub async fn drop_disks(&self, paths: &[String]) {
        let is_gone = |disk: &mut OpenDisk| paths.contains(&disk.path);
        let gone: Vec<OpenDisk> = self.disks.lock().extract_if(.., is_gone).collect();
        released(&gone).await;
        close(gone).await;
    }

    /// Removes and closes the disks that are no longer the pool's. Returns their paths.
    pub async fn drop_left(&self) -> Vec<String> {
        let left = self.left();
        self.drop_disks(&left).await;
        left
    }

    /// Disks that are held and no longer the pool's: an act took them out, or each was replaced,
    /// and its successor holds everything.
    pub fn left(&self) -> Vec<String> {
        let own = own_paths(&self.service);
        let disks = self.disks.lock();
        disks.iter().map(|disk| disk.path.clone()).filter(|path| !own.contains(path)).collect()
    }

    /// Runs `work` on the pool's thread.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Unfinished> {
        tokio::select! {
            done = self.engine.run(work) => done,
            () = self.left.wait() => Err(Unfinished::of_left()),
        }
    }

    /// Begins `work` on the pool's thread, and waits for nothing.
    pub fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.engine.handle().spawn(work);
    }

    /// Ends the pool without waiting for its disks, and all acts that wait for it.
    pub fn abandon(&self) {
        self.service.pool.abandon();
        self.left.cancel();
    }

    /// Commits everything and marks the pool cleanly exported; it answers nothing any more. Returns
    /// the reason if it could not be marked. Clients must be gone.
    pub async fn export(&self) -> Option<String> {
        self.service.datasets.history().load().leaves();
        let pool = self.service.pool.clone();
        match self.engine.run(async move { pool.export().await }).await {
            Ok(exported) => exported.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// The disks that do not answer, if clients and acts should not wait for them.
    pub fn silent(&self) -> Option<Vec<String>> {
        let pool = &self.service.pool;
        pool.is_silent().then(|| pool.silent_disks())
    }

    /// Waits for an answer of a pool in service.
    ///
    /// # Errors
    /// The disks do not answer: these. The work goes on.
    pub async fn while_it_answers<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, Vec<String>> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.service.pool.silence() => Err(self.service.pool.silent_disks()),
        }
    }

    /// Waits for work on a pool that is on no list, and to whose disks nobody listens else.
    ///
    /// # Errors
    /// The disks do not answer: these. The work goes on.
    pub async fn unless_silent<T>(&self, work: impl Future<Output = T>) -> Result<T, Vec<String>> {
        let silence = async {
            loop {
                tokio::time::sleep(LISTEN_EVERY).await;
                self.service.pool.listen();
                if let Some(disks) = self.silent() {
                    return disks;
                }
            }
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            disks = silence => Err(disks),
        }
    }

    /// Ends the engine; returns the disks, still open.
    pub async fn let_go(self: Arc<Self>) -> Vec<OpenDisk> {
        let Serving { service, engine, disks, .. } = self.alone().await;
        let disks = disks.into_inner();
        drop(service);
        engine.stop().await;
        released(&disks).await;
        disks
    }

    /// Leaves a pool that answers nothing any more, and is on no list: all that still runs for it
    /// ends by itself, at the latest when its disks have answered.
    pub fn leave(self: Arc<Self>) -> Remnant {
        self.abandon();
        let pool = &self.service.pool;
        let leaves = pool.leaves();
        let leaves = leaves.iter().map(|leaf| (leaf.guid, leaf.path.as_str()));
        let remnant = Remnant::new((pool.name(), pool.guid()), leaves, &self.disks());
        tokio::spawn(end(self, remnant.clone()));
        remnant
    }

    /// It, once nobody else holds it: a request for a status does for a moment.
    async fn alone(self: Arc<Self>) -> Serving {
        let mut shared = self;
        loop {
            match Arc::try_unwrap(shared) {
                Ok(serving) => return serving,
                Err(still) => shared = still,
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Remains of a pool that was left: disks that have not answered, and what waits for them.
#[derive(Debug, Clone)]
pub(super) struct Remnant {
    /// The pool's name.
    pub name: String,
    /// The pool's guid, as text.
    pub guid: String,
    disks: Arc<Vec<(Guid, String, Remains)>>,
}

impl Remnant {
    /// That of a pool with these leaves, on those of these disks that are theirs.
    pub fn new<'a>(
        (name, guid): (&str, Guid),
        leaves: impl Iterator<Item = (Guid, &'a str)>,
        held: &[OpenDisk],
    ) -> Remnant {
        let of_leaf = |(guid, path): (Guid, &str)| {
            let disk = held.iter().find(|disk| disk.path == path)?;
            Some((guid, path.to_string(), disk.file.remains()))
        };
        let disks = Arc::new(leaves.filter_map(of_leaf).collect());
        Remnant { name: name.into(), guid: guid_text(guid.0), disks }
    }

    /// The disks that it still holds.
    pub fn holds(&self) -> Vec<String> {
        self.held().map(|(_, path)| path.to_string()).collect()
    }

    /// Whether it still holds one of these.
    pub fn holds_any(&self, disks: &[Guid]) -> bool {
        self.held().any(|(guid, _)| disks.contains(&guid))
    }

    fn held(&self) -> impl Iterator<Item = (Guid, &str)> {
        let held = self.disks.iter().filter(|(_, _, remains)| !remains.is_over());
        held.map(|(guid, path, _)| (*guid, path.as_str()))
    }

    /// Waits until it holds nothing any more, at most so long. Whether that is so.
    pub async fn over_within(&self, patience: Duration) -> bool {
        let over = async {
            while self.held().next().is_some() {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(patience, over).await.is_ok()
    }
}

/// Ends what was left: first all that uses the pool, then its thread. While a disk owes answers the
/// thread stays: it holds the memory of those answers.
async fn end(serving: Arc<Serving>, remnant: Remnant) {
    let leaves = serving.service.pool.leaves();
    let leaves: Vec<_> = leaves.iter().map(Arc::downgrade).collect();
    let Serving { service, engine, disks, .. } = serving.alone().await;
    drop((service, disks));
    let mut quiet_looks = 0;
    while !remnant.holds().is_empty() && quiet_looks < QUIET_LOOKS {
        tokio::time::sleep(POLL).await;
        let mut used = leaves.iter().filter_map(Weak::upgrade);
        quiet_looks = if used.all(|leaf| leaf.is_quiet()) { quiet_looks + 1 } else { 0 };
    }
    engine.stop().await;
}

/// The paths of the pool's disks.
fn own_paths(service: &Service) -> BTreeSet<String> {
    service.pool.status().paths().map(str::to_string).collect()
}

/// Closes disks that no one else holds.
pub(super) async fn close(disks: Vec<OpenDisk>) {
    let held: Vec<Weak<FileDisk>> = disks.iter().map(|disk| Arc::downgrade(&disk.file)).collect();
    drop(disks);
    if held.iter().any(|disk| disk.strong_count() > 0) {
        tracing::error!("a disk that was let go is still held: it cannot be used elsewhere");
    }
}

/// Waits until no one else holds the disks: the engine's remaining work ends within moments.
async fn released(disks: &[OpenDisk]) {
    for _ in 0..RELEASE_POLLS_MAX {
        if disks.iter().all(|disk| Arc::strong_count(&disk.file) == 1) {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
    tracing::warn!("disks that were let go are still held after {RELEASE_POLLS_MAX} looks");
}

/// Finds what may be missing after an import that dropped something, and in which datasets.
fn dropped_log(service: &Service) -> Option<DroppedLog> {
    let dropped = service.report.dropped_log?;
    let datasets = service.datasets.list().into_iter();
    let rewound = dropped.rewound;
    let affected = datasets.filter(|info| rewound || may_have_lost(info)).map(|info| info.name);
    let (from_txg, since_ns) = (dropped.from.0, dropped.since_ns);
    Some(DroppedLog { from_txg, since_ns, rewound, datasets: affected.collect() })
}

/// Whether only the log held some acknowledged changes of a dataset. A read-only dataset has none,
/// and one with `sync=disabled` was never logged.
fn may_have_lost(info: &DatasetInfo) -> bool {
    !info.properties.iter().any(|(property, value, _)| match property {
        Property::Readonly => value == "on",
        Property::Sync => SyncMode::of(value) == SyncMode::Disabled,
        _ => false,
    })
}

/// As the pool expects.
const LISTEN_EVERY: Duration = Duration::from_secs(1);
/// Time between two checks whether the others have released them.
const POLL: Duration = Duration::from_millis(5);
/// Looks at a disk that owes no answer before its pool's thread is stopped: half a second, in which
/// tasks end that had something to do after the answer.
const QUIET_LOOKS: u32 = 100;
/// 5 s in all.
const RELEASE_POLLS_MAX: u32 = 1000;
