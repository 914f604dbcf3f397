//! A pool in service: brought up on a thread of its own, and taken down again.
//!
//! The way down has three steps, after clients are gone: [`export`](Serving::export); the frontend
//! lets go, on whose runtimes the engine may have begun something that the export had to wait for;
//! [`let_go`](Serving::let_go).
//!
//! Invariant: when `let_go` returns, nobody holds the disks but the caller.

use std::sync::{Arc, Weak};
use std::time::Duration;

use aquifer_blockio::{Disk, TokioWorld};
use aquifer_files::Service;
use aquifer_pool::PoolError;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::{FoundLeaf, ImportOptions};

use crate::api::ApiError;
use crate::engine::{EngineThread, Unfinished};

/// A pool in service.
#[derive(Debug)]
pub(super) struct Serving {
    service: Service,
    disks: Vec<NamedDisk>,
    engine: EngineThread,
}

impl Serving {
    /// Imports the pool on these disks, which are opened exclusively.
    pub async fn bring_up(
        name: &str,
        leaves: Vec<FoundLeaf>,
        options: ImportOptions,
    ) -> Result<Serving, ApiError> {
        let failed = |error: std::io::Error| {
            ApiError::failed(format!("no thread for pool {name:?}: {error}"))
        };
        let engine = EngineThread::start(name).map_err(failed)?;
        let world = Arc::new(TokioWorld::new(engine.handle().clone()));
        let disks = leaves.iter().map(|leaf| leaf.disk.clone()).collect();
        let opened = engine.run(async move { Service::open(world, leaves, &options).await }).await;
        let error = match opened {
            Ok(Ok(service)) => return Ok(Serving { service, disks, engine }),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        engine.stop().await;
        Err(ApiError::failed(format!("pool {name:?} cannot be imported: {error}")))
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
        &self.service.report.notes
    }

    /// Its disks.
    pub fn disks(&self) -> &[NamedDisk] {
        &self.disks
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
    pub async fn export(&self) -> Option<PoolError> {
        let pool = self.service.pool.clone();
        match self.engine.run(async move { pool.export().await }).await {
            Ok(exported) => exported.err(),
            Err(error) => Some(PoolError::Contradiction(error.to_string())),
        }
    }

    /// Ends the engine; gives back the disks, still open.
    pub async fn let_go(self: Arc<Self>) -> Vec<NamedDisk> {
        // Whoever asks for a status holds it for a moment.
        let mut shared = self;
        let serving = loop {
            match Arc::try_unwrap(shared) {
                Ok(serving) => break serving,
                Err(still) => shared = still,
            }
            tokio::time::sleep(POLL).await;
        };
        let Serving { service, engine, disks } = serving;
        drop(service);
        engine.stop().await;
        released(&disks).await;
        disks
    }
}

/// Closes disks that nobody else holds.
pub(super) async fn close(disks: Vec<NamedDisk>) {
    let held: Vec<Weak<dyn Disk>> = disks.iter().map(|disk| Arc::downgrade(&disk.disk)).collect();
    drop(disks);
    if held.iter().any(|disk| disk.strong_count() > 0) {
        tracing::error!("a disk of an exported pool is still held: it cannot be used elsewhere");
    }
}

/// Waits until nobody else holds the disks: what the engine had begun ends within moments.
async fn released(disks: &[NamedDisk]) {
    for _ in 0..RELEASE_POLLS_MAX {
        if disks.iter().all(|disk| Arc::strong_count(&disk.disk) == 1) {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
    tracing::warn!("an exported pool's disks are still held after {RELEASE_POLLS_MAX} looks");
}

/// Between two looks whether somebody has let go.
const POLL: Duration = Duration::from_millis(5);
/// 5 s in all.
const RELEASE_POLLS_MAX: u32 = 1000;
