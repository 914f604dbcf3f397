//! A pool in service: brought up on a thread of its own, and taken down again.
//!
//! Taking it down has three steps, after clients are gone. [`export`](Serving::export) comes first.
//! Then the frontend releases the pool: the engine may have begun something on its runtimes that
//! the export had to wait for. [`let_go`](Serving::let_go) is last.
//!
//! Invariant: when `let_go` returns, only the caller holds the disks.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use aquifer_api::time;
use aquifer_api::{ApiError, DroppedLog};
use aquifer_blockio::{FileDisk, TokioWorld};
use aquifer_dataset::{DatasetInfo, Property, SyncMode};
use aquifer_files::Service;
use aquifer_pool::import::ImportOptions;
use parking_lot::Mutex;

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
    engine: EngineThread,
}

impl Serving {
    /// Imports the pool on these disks, which are open exclusively.
    pub async fn bring_up(
        name: &str,
        Claimed { leaves, disks }: Claimed,
        options: ImportOptions,
    ) -> Result<Serving, ApiError> {
        let failed = |error: std::io::Error| {
            ApiError::failed(format!("no thread for pool {name:?}: {error}"))
        };
        let engine = EngineThread::start(name).map_err(failed)?;
        let world = Arc::new(TokioWorld::new(engine.handle().clone()));
        let opened = engine.run(async move { Service::open(world, leaves, &options).await }).await;
        let error = match opened {
            Ok(Ok(service)) => return Ok(Serving::new(service, disks, engine)),
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
        let disks = Mutex::new(disks);
        Serving { service, disks, dropped_log, import_notes, engine }
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

    /// Disks that are held, and left the pool by themselves: each was replaced, and its successor
    /// holds everything.
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
        self.engine.run(work).await
    }

    /// Commits everything and marks the pool cleanly exported; it answers nothing any more. Returns
    /// the reason if it could not be marked. Clients must be gone.
    pub async fn export(&self) -> Option<String> {
        let pool = self.service.pool.clone();
        match self.engine.run(async move { pool.export().await }).await {
            Ok(exported) => exported.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Ends the engine; returns the disks, still open.
    pub async fn let_go(self: Arc<Self>) -> Vec<OpenDisk> {
        // A request for a status holds it for a moment.
        let mut shared = self;
        let serving = loop {
            match Arc::try_unwrap(shared) {
                Ok(serving) => break serving,
                Err(still) => shared = still,
            }
            tokio::time::sleep(POLL).await;
        };
        let Serving { service, engine, disks, .. } = serving;
        let disks = disks.into_inner();
        drop(service);
        engine.stop().await;
        released(&disks).await;
        disks
    }
}

/// The paths of the pool's disks.
fn own_paths(service: &Service) -> BTreeSet<String> {
    let status = service.pool.status();
    let leaves = status.vdevs.into_iter().flat_map(|vdev| vdev.leaves).map(|leaf| leaf.path);
    leaves.chain(status.spares.into_iter().map(|spare| spare.path)).collect()
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

/// What may be missing after an import that dropped something, and in which datasets.
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

/// Time between two checks whether the others have released them.
const POLL: Duration = Duration::from_millis(5);
/// 5 s in all.
const RELEASE_POLLS_MAX: u32 = 1000;
