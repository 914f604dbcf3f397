//! What of a pool's content was found damaged when it was to be changed, for status and events.

use aquifer_object::Damage;
use aquifer_ondisk::{DatasetId, ObjectId, Txg};
use aquifer_pool::PoolError;
use parking_lot::Mutex;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;

/// Damages kept for people; all are logged.
const DAMAGES_MAX: usize = 1000;

/// A damaged object, or object table.
#[derive(Debug, Clone)]
pub struct DamagedObject {
    /// Its dataset.
    pub dataset: DatasetId,
    /// The object.
    pub object: ObjectId,
    /// The txg in whose sync the damage was met; 0: by a replay.
    pub txg: Txg,
    /// What could not be read.
    pub error: String,
    /// Ranges of pages whose newest content was lost.
    pub lost_pages: Vec<(u64, u64)>,
    /// Names whose making or removal was lost.
    pub lost_names: Vec<Vec<u8>>,
    /// Its inode could not be written: nothing of the txg is in it.
    pub inode_lost: bool,
}

/// The newest damages.
#[derive(Debug, Default)]
pub(crate) struct DamageList {
    list: Mutex<Vec<DamagedObject>>,
}

impl Datasets {
    /// The damages met since the import, oldest first; the first 1000 of them. The path of an
    /// object is for `files` to find.
    pub fn damages(&self) -> Vec<DamagedObject> {
        self.damages.list.lock().clone()
    }

    /// Notes changes that were lost. `inode_lost`: the object's place in the table is damaged, not
    /// its own tree.
    pub(crate) fn note_damage(
        &self,
        dataset: &Dataset,
        object: ObjectId,
        txg: Txg,
        damage: Damage,
        inode_lost: bool,
    ) {
        let Damage { error, pages, names, cut } = damage;
        let shown: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
        tracing::error!(
            class = "file.damaged", dataset = %self.full_name(dataset), %object, %txg, %error,
            lost_pages = ?pages, lost_names = ?shown, lost_truncation = cut, inode_lost,
            "damaged: changes were lost, and nothing more is written to it"
        );
        let mut list = self.damages.list.lock();
        if list.len() < DAMAGES_MAX {
            list.push(DamagedObject {
                dataset: dataset.id,
                object,
                txg,
                error: error.to_string(),
                lost_pages: pages,
                lost_names: names,
                inode_lost,
            });
        }
    }

    /// Notes that a dataset's object table cannot take changes of `object`: from now on nothing is
    /// changed in the dataset, until an import finds the table whole. (A new object would go to the
    /// same leaf as the last one, so that what a client makes could be lost again and again.)
    pub fn note_table_damage(&self, dataset: &Dataset, object: ObjectId, txg: Txg, damage: Damage) {
        dataset.set_table_damaged();
        if let Some(object) = dataset.cached(object) {
            object.state.lock().damaged = true;
        }
        self.note_damage(dataset, object, txg, damage, true);
    }

    /// Takes a damaged object as it is on disk now: it is read and written again. What was lost
    /// stays lost. On disk when this returns.
    ///
    /// # Errors
    /// A dataset or object that does not exist; what the pool gives.
    pub async fn clear_damage(&self, name: &str, object: ObjectId) -> Result<(), DatasetError> {
        let dataset = self.by_name(name).ok_or_else(|| DatasetError::NotFound(name.into()))?;
        let _act = self.acts.lock().await;
        let found = dataset.object(&self.pool, object).await?;
        let found = found.ok_or_else(|| DatasetError::NotFound(format!("{name}, {object}")))?;
        {
            let hold = self.hold_act().await?;
            if dataset.is_destroyed() {
                return Err(DatasetError::NotFound(name.into()));
            }
            dataset.mark_dirty(hold.txg(), object);
            let mut state = found.state.lock();
            state.damaged = false;
            let inode = state.inode.clone();
            state.overlay.version(hold.txg(), &inode);
        }
        self.damages.list.lock().retain(|d| (d.dataset, d.object) != (dataset.id, object));
        self.pool.sync().await?;
        let damaged = found.check();
        Ok(damaged?)
    }
}

/// Damage that only an error tells of.
pub fn only(error: PoolError) -> Damage {
    Damage { error, pages: Vec::new(), names: Vec::new(), cut: false }
}
