//! A pool in service: brought up on a thread of its own, and taken down again.
//!
//! The way down has three steps, after clients are gone: [`export`](Serving::export); the frontend
//! lets go, on whose runtimes the engine may have begun something that the export had to wait for;
//! [`let_go`](Serving::let_go).
//!
//! Invariant: when `let_go` returns, nobody holds the disks but the caller.

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
    /// The disks that are there, also those that the engine does not use at the moment.
    disks: Mutex<Vec<OpenDisk>>,
    dropped_log: Option<DroppedLog>,
    import_notes: Vec<String>,
    engine: EngineThread,
}

impl Serving {
    /// Imports the pool on these disks, which are opened exclusively.
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
        // One that still has labels of the pool, but is none of its disks any more, belongs to
        // nobody: its removal was cut off.
        let status = service.pool.status();
        let own = |disk: &OpenDisk| {
            status.vdevs.iter().flat_map(|vdev| &vdev.leaves).any(|leaf| leaf.path == disk.path)
        };
        disks.retain(own);
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
        Serving { service, disks: Mutex::new(disks), dropped_log, import_notes, engine }
    }

    /// The engine.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.service.pool.name()
    }

    /// What the import had to say.
    pub fn import_notes(&self) -> &[String] {
        &self.import_notes
    }

    /// What the import has dropped.
    pub fn dropped_log(&self) -> Option<&DroppedLog> {
        self.dropped_log.as_ref()
    }

    /// Its disks.
    pub fn disks(&self) -> Vec<OpenDisk> {
        self.disks.lock().clone()
    }

    /// These are disks of the pool from now on.
    pub fn take_disks(&self, disks: Vec<OpenDisk>) {
        self.disks.lock().extend(disks);
    }

    /// These are no disks of the pool any more: closes them, once the engine has let go.
    pub async fn drop_disks(&self, paths: &[String]) {
        let (gone, kept) =
            self.disks.lock().drain(..).partition(|disk: &OpenDisk| paths.contains(&disk.path));
        *self.disks.lock() = kept;
        released(&gone).await;
        close(gone).await;
    }

    /// Runs `work` on the pool's thread.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Unfinished> {
        self.engine.run(work).await
    }

    /// Commits everything and marks the pool cleanly exported; it answers nothing any more. Says
    /// why it could not be marked. Clients must be gone.
    pub async fn export(&self) -> Option<String> {
        let pool = self.service.pool.clone();
        match self.engine.run(async move { pool.export().await }).await {
            Ok(exported) => exported.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Ends the engine; gives back the disks, still open.
    pub async fn let_go(self: Arc<Self>) -> Vec<OpenDisk> {
        // Whoever asks for a status holds it for a moment.
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

/// Closes disks that nobody else holds.
pub(super) async fn close(disks: Vec<OpenDisk>) {
    let held: Vec<Weak<FileDisk>> = disks.iter().map(|disk| Arc::downgrade(&disk.file)).collect();
    drop(disks);
    if held.iter().any(|disk| disk.strong_count() > 0) {
        tracing::error!("a disk that was let go is still held: it cannot be used elsewhere");
    }
}

/// Waits until nobody else holds the disks: what the engine had begun ends within moments.
async fn released(disks: &[OpenDisk]) {
    for _ in 0..RELEASE_POLLS_MAX {
        if disks.iter().all(|disk| Arc::strong_count(&disk.file) == 1) {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
    tracing::warn!("disks that were let go are still held after {RELEASE_POLLS_MAX} looks");
}

/// What is missing of a pool of which an import has dropped something, and where.
fn dropped_log(service: &Service) -> Option<DroppedLog> {
    let dropped = service.report.dropped_log?;
    let datasets = service.datasets.list().into_iter();
    let rewound = dropped.rewound;
    let affected = datasets.filter(|info| rewound || may_have_lost(info)).map(|info| info.name);
    let (from_txg, since_ns) = (dropped.from.0, dropped.since_ns);
    Some(DroppedLog { from_txg, since_ns, rewound, datasets: affected.collect() })
}

/// Whether changes of a dataset were acknowledged that only the log held. What is read-only has
/// none, and what is `sync=disabled` was never logged.
fn may_have_lost(info: &DatasetInfo) -> bool {
    !info.properties.iter().any(|(property, value, _)| match property {
        Property::Readonly => value == "on",
        Property::Sync => SyncMode::of(value) == SyncMode::Disabled,
        _ => false,
    })
}

/// Between two looks whether somebody has let go.
const POLL: Duration = Duration::from_millis(5);
/// 5 s in all.
const RELEASE_POLLS_MAX: u32 = 1000;
