//! The turn of acts: one act at a time, each on disk before the next one.
//!
//! Some acts cannot begin while the background files what an earlier rollback brought back. That
//! may take minutes, and concerns one dataset. So an act looks at what it needs with the turn; if
//! that must be waited for, it gives the turn back, waits, and begins once more.
//!
//! An act that waits for changes of clients which are under way keeps the turn. Such a change waits
//! for admission at most, for which every act waits.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_sync::AsyncMutexGuard;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;

impl Datasets {
    /// Whether the dead tree still names what a rollback brought back, of the dataset or of a file.
    pub(crate) fn is_returning(&self, dataset: &Dataset) -> bool {
        let snapshots = dataset.snapshots.lock();
        snapshots.returning().is_some() || snapshots.files.are_returning()
    }

    /// The turn of acts, and what `look` finds with it: once nothing is returning of the datasets
    /// that it names.
    ///
    /// # Errors
    /// Those of `look`; something of these datasets cannot be read; errors of the pool.
    pub(crate) async fn turn_when_filed<T>(
        &self,
        look: impl Fn() -> Result<(T, Vec<Arc<Dataset>>), DatasetError>,
    ) -> Result<(AsyncMutexGuard<'_, ()>, T), DatasetError> {
        loop {
            let act = self.acts.lock().await;
            let (found, needed) = look()?;
            let waits = needed.into_iter().find(|of| self.is_returning(of));
            let Some(waits) = waits.filter(|_| !left_out(Rule::WaitersGiveTheTurnBack)) else {
                return Ok((act, found));
            };
            drop((act, found));
            self.wait_for_returning(&waits).await?;
        }
    }

    /// Takes the turn of acts as [`Datasets::turn_when_filed`], for one dataset, which is rolled
    /// back first if somebody left something half.
    ///
    /// # Errors
    /// As there; something is being received into the dataset.
    pub(crate) async fn turn_when_settled<T>(
        &self,
        look: impl Fn() -> Result<(T, Arc<Dataset>), DatasetError>,
    ) -> Result<(AsyncMutexGuard<'_, ()>, T), DatasetError> {
        loop {
            let look = || look().map(|(found, of)| ((found, of.clone()), vec![of]));
            let (act, (found, dataset)) = self.turn_when_filed(look).await?;
            self.settle(&dataset).await?;
            if !self.is_returning(&dataset) || left_out(Rule::WaitersGiveTheTurnBack) {
                return Ok((act, found));
            }
        }
    }
}
