//! A pool brought into service: imported, replayed, its txgs running, its files ready.

use std::sync::Arc;

use aquifer_blockio::World;
use aquifer_dataset::{DatasetError, Datasets};
use aquifer_pool::import::{FoundLeaf, ImportOptions, ImportReport, import};
use aquifer_pool::{BoxFuture, ImportError, Pool, PoolError, Trees};

use crate::core::Files;

/// A pool in service.
#[derive(Debug, Clone)]
pub struct Service {
    /// The pool.
    pub pool: Arc<Pool>,
    /// Its datasets.
    pub datasets: Arc<Datasets>,
    /// Their files.
    pub files: Arc<Files>,
    /// The report of the import.
    pub report: ImportReport,
}

/// A pool could not be brought into service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The import failed.
    #[error("{0}")]
    Import(#[from] ImportError),
    /// The datasets could not be read or made.
    #[error("{0}")]
    Dataset(#[from] DatasetError),
}

impl From<PoolError> for ServiceError {
    fn from(error: PoolError) -> Self {
        ServiceError::Import(error.into())
    }
}

impl Service {
    /// Imports the pool on these disks, replays its log, and starts its txgs on the world's
    /// executor. Clients may connect when this returns. A pool that is imported read-only stays as
    /// it is.
    ///
    /// # Errors
    /// The reason why the pool cannot come into service.
    pub fn open(
        world: Arc<dyn World>,
        found: Vec<FoundLeaf>,
        options: &ImportOptions,
    ) -> BoxFuture<'_, Result<Service, ServiceError>> {
        Box::pin(async move {
            let (pool, report) = import(world.clone(), found, options).await?;
            let datasets = Datasets::open(pool.clone()).await?;
            let trees: Arc<dyn Trees> = datasets.clone();
            pool.attach(Arc::downgrade(&trees));
            let files = Files::new(datasets.clone());
            if pool.is_read_only() {
                return Ok(Service { pool, datasets, files, report });
            }
            pool.replay(files.as_ref()).await?;
            world.spawn("txg", pool.clone().run());
            datasets.ensure_root().await?;
            datasets.settle_all().await;
            if datasets.has_background_work() {
                // Objects that a crash left to be freed do not wait for a client's change.
                pool.request_txg();
            }
            files.go_on_scrubbing();
            Ok(Service { pool, datasets, files, report })
        })
    }
}
