//! Unreadable or lost parts of a pool's content: the pool remembers them on disk until they are
//! whole.
//!
//! A read, a sync or a replay meets a damage and notes it here. The next sync writes it into the
//! namespace, so that no restart makes the pool look whole. The record goes when its object is
//! removed, its pages are overwritten or cut off, or a person clears it.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_object::overlay::Version;
use aquifer_object::{Damage, Object};
use aquifer_ondisk::damage::DAMAGES_MAX;
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::{DatasetId, ObjectId, Txg};
use aquifer_pool::PoolError;
use aquifer_sync::Mutex;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;

pub use aquifer_ondisk::damage::{DamageKind, DamageRecord};

/// Records that a sync writes at most: it reserves no space for them.
const WRITTEN_MAX: usize = 32;

#[derive(Debug, Default)]
struct Slots {
    records: BTreeMap<u64, DamageRecord>,
    /// Slots that differ from what is on disk.
    changed: BTreeSet<u64>,
}

/// The damages that a pool remembers.
#[derive(Debug, Default)]
pub(crate) struct DamageList {
    slots: Mutex<Slots>,
}

impl DamageList {
    /// Import: a record from disk.
    pub fn load(&self, slot: u64, mut record: DamageRecord) {
        record.shorten();
        self.slots.lock().records.insert(slot, record);
    }

    fn knows(&self, dataset: DatasetId, object: ObjectId, ranges: &[(u64, u64)]) -> bool {
        let slots = self.slots.lock();
        let of_it = slots.records.values().filter(|r| (r.dataset, r.object) == (dataset, object));
        let mut of_it = of_it.filter(|record| record.kind == DamageKind::Unreadable).peekable();
        // One that is full of ranges has no room for another.
        let covers = |record: &DamageRecord, range: &(u64, u64)| {
            record.more
                || record.ranges.iter().any(|known| known.0 <= range.0 && range.1 <= known.1)
        };
        of_it.peek().is_some()
            && of_it.all(|record| ranges.iter().all(|range| covers(record, range)))
    }

    /// Adds to the known damage of an object. Returns whether there was room for it.
    fn note(&self, mut new: DamageRecord) -> bool {
        let slots = &mut *self.slots.lock();
        let is_same = |known: &DamageRecord| {
            (known.dataset, known.object, known.kind) == (new.dataset, new.object, new.kind)
        };
        let known = slots.records.iter_mut().find(|(_, record)| is_same(record));
        let slot = match known {
            Some((slot, known)) => {
                known.ranges.append(&mut new.ranges);
                known.names.append(&mut new.names);
                known.inode_lost |= new.inode_lost;
                (known.txg, known.error) = (new.txg, new.error);
                if std::mem::take(&mut known.accepted) {
                    known.since = new.since;
                }
                join(&mut known.ranges);
                known.shorten();
                *slot
            }
            None => {
                let free = (0..DAMAGES_MAX as u64).find(|slot| !slots.records.contains_key(slot));
                let accepted = || {
                    let mut records = slots.records.iter();
                    records.find(|(_, record)| record.accepted).map(|(slot, _)| *slot)
                };
                let Some(slot) = free.or_else(accepted) else { return false };
                join(&mut new.ranges);
                new.shorten();
                slots.records.insert(slot, new);
                slot
            }
        };
        slots.changed.insert(slot);
        true
    }

    /// Changes the records of known damage. Removes those for which `change` returns `false`.
    fn revise(&self, mut change: impl FnMut(&mut DamageRecord) -> bool) {
        let Slots { records, changed } = &mut *self.slots.lock();
        records.retain(|slot, record| {
            let before = record.ranges.clone();
            let stays = change(record);
            // A range may fall into many parts.
            record.shorten();
            if !stays || record.ranges != before {
                changed.insert(*slot);
            }
            stays
        });
    }

    /// Forgets records of content that could not be read, for which this holds.
    fn forget_unreadable(&self, mut is_whole: impl FnMut(&DamageRecord) -> bool) {
        self.revise(|record| record.kind != DamageKind::Unreadable || !is_whole(record));
    }

    /// A person takes an object as it is. Changes that it lost are forgotten. What cannot be read
    /// stays remembered: it is met again by the next read, import or scrub. Whether there was any.
    pub fn accept(&self, dataset: DatasetId, object: ObjectId) -> bool {
        let Slots { records, changed } = &mut *self.slots.lock();
        let mut is_known = false;
        records.retain(|slot, record| {
            if (record.dataset, record.object) != (dataset, object) {
                return true;
            }
            is_known = true;
            changed.insert(*slot);
            record.accepted = true;
            record.kind == DamageKind::Unreadable
        });
        is_known
    }

    /// An object is gone.
    pub fn forget(&self, dataset: DatasetId, object: ObjectId) {
        self.revise(|record| (record.dataset, record.object) != (dataset, object));
    }

    /// A dataset is gone.
    pub fn forget_dataset(&self, dataset: DatasetId) {
        self.revise(|record| record.dataset != dataset);
    }

    /// A sync wrote out a file's version: the pages that it replaced or cut off are no longer
    /// unreadable.
    pub fn overwritten(&self, dataset: DatasetId, object: ObjectId, version: &Version) {
        self.revise(|record| {
            let concerned = (record.dataset, record.object) == (dataset, object)
                && record.kind == DamageKind::Unreadable
                && !record.ranges.is_empty();
            if !concerned {
                return true;
            }
            let cut = version.cut.unwrap_or(u64::MAX);
            record.ranges.retain_mut(|(from, to)| {
                *to = (*to).min(cut);
                from < to
            });
            for (page, _) in version.pages.iter() {
                let ranges = &mut record.ranges;
                if let Some(at) = ranges.iter().position(|(from, to)| (*from..*to).contains(&page))
                {
                    let (from, to) = ranges.swap_remove(at);
                    let halves = [(from, page), (page + 1, to)];
                    ranges.extend(halves.into_iter().filter(|(from, to)| from < to));
                }
            }
            join(&mut record.ranges);
            !record.ranges.is_empty() || record.more
        });
    }

    /// The items that the next sync writes.
    pub fn take_items(&self) -> Vec<(ItemKey, Option<Item>)> {
        let Slots { records, changed } = &mut *self.slots.lock();
        let now: Vec<u64> = changed.iter().copied().take(WRITTEN_MAX).collect();
        let item = |slot: u64| {
            changed.remove(&slot);
            let key = ItemKey::new(DatasetId(0), ItemClass::Damage, slot);
            (key, records.get(&slot).map(|record| Item { key, value: record.encode() }))
        };
        now.into_iter().map(item).collect()
    }

    /// Whether a sync still has something to write.
    pub fn waits(&self) -> bool {
        !self.slots.lock().changed.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.slots.lock().records.is_empty()
    }
}

/// Sorts ranges, and joins those that touch.
fn join(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (from, to) in ranges.drain(..) {
        match joined.last_mut() {
            Some((_, end)) if *end >= from => *end = (*end).max(to),
            _ => joined.push((from, to)),
        }
    }
    *ranges = joined;
}

impl Datasets {
    /// The first 1000 damaged objects, without those that a person has accepted. `files` finds the
    /// path of an object.
    pub fn damages(&self) -> Vec<DamageRecord> {
        let all = self.damages_remembered().into_iter();
        all.filter(|record| !record.accepted).collect()
    }

    /// All damage that the pool remembers, also what a person has accepted.
    pub fn damages_remembered(&self) -> Vec<DamageRecord> {
        self.damages.slots.lock().records.values().cloned().collect()
    }

    /// How many objects are known to be damaged, and not accepted as they are.
    pub fn damaged_objects(&self) -> usize {
        let slots = self.damages.slots.lock();
        slots.records.values().filter(|record| !record.accepted).count()
    }

    /// Notes lost changes. `inode_lost`: the object's place in the table is damaged, not its own
    /// tree.
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
        self.damages.note(DamageRecord {
            kind: DamageKind::Lost,
            inode_lost,
            more: false,
            accepted: false,
            dataset: dataset.id,
            object,
            txg,
            since: self.now(),
            error: error.to_string(),
            ranges: pages,
            names,
        });
    }

    /// Whether these ranges are already known to be unreadable.
    pub fn knows_unreadable(
        &self,
        dataset: &Dataset,
        object: ObjectId,
        ranges: &[(u64, u64)],
    ) -> bool {
        self.damages.knows(dataset.id, object, ranges)
    }

    /// Notes what a read could not get: page ranges for a file, none for any other object. The
    /// record reaches the pool with the next txg, which this requests. Returns `false` if there is
    /// no room for more records.
    pub fn note_unreadable(
        &self,
        dataset: &Dataset,
        object: ObjectId,
        ranges: Vec<(u64, u64)>,
        error: &PoolError,
    ) -> bool {
        let noted = self.damages.note(DamageRecord {
            kind: DamageKind::Unreadable,
            inode_lost: false,
            more: false,
            accepted: false,
            dataset: dataset.id,
            object,
            txg: Txg(0),
            since: self.now(),
            error: error.to_string(),
            ranges,
            names: Vec::new(),
        });
        if noted {
            self.pool.request_txg();
        }
        noted
    }

    /// A sync has written out an object's version of `txg` whole.
    pub(crate) fn note_written(&self, dataset: &Dataset, object: &Object, txg: Txg) {
        if self.damages.is_empty() {
            return;
        }
        if let Some(version) = object.state.lock().overlay.get(txg) {
            self.damages.overwritten(dataset.id, object.id, version);
        }
    }

    /// Forgets a record of unreadable content, if it is still the same: all of it was found whole.
    pub fn found_whole(&self, whole: &DamageRecord) {
        self.damages.forget_unreadable(|record| record == whole);
    }

    fn now(&self) -> Time {
        Time::from_ns(self.pool.world().wall_ns())
    }

    /// Notes that a dataset's object table cannot take changes of `object`. From now on the dataset
    /// takes no change, until an import finds the table whole. (A new object would go to the same
    /// leaf as the last one, so a client could lose its changes again and again.)
    pub fn note_table_damage(&self, dataset: &Dataset, object: ObjectId, txg: Txg, damage: Damage) {
        dataset.set_table_damaged();
        if let Some(object) = dataset.cached(object) {
            object.state.lock().damaged = true;
        }
        self.note_damage(dataset, object, txg, damage, true);
    }

    /// Accepts a damaged object as it is on disk now: clients can read and write it again. Lost
    /// changes stay lost. What cannot be read stays so, and is not told again. On disk when this
    /// returns.
    ///
    /// # Errors
    /// A dataset or object that does not exist; errors of the pool.
    pub async fn clear_damage(&self, name: &str, object: ObjectId) -> Result<(), DatasetError> {
        let dataset = self.by_name(name).ok_or_else(|| DatasetError::NotFound(name.into()))?;
        let _act = self.acts.lock().await;
        let found = match dataset.object(&self.pool, object).await {
            // Its inode is part of what is lost.
            Err(error) if error.cannot_be_read() => None,
            found => found?,
        };
        if let Some(found) = &found {
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
        if !self.damages.accept(dataset.id, object) && found.is_none() {
            return Err(DatasetError::NotFound(format!("{name}, {object}")));
        }
        // A txg writes some records.
        for _ in 0..=DAMAGES_MAX / WRITTEN_MAX {
            self.act_on_disk().await?;
            if !self.damages.waits() {
                break;
            }
        }
        found.map_or(Ok(()), |found| Ok(found.check()?))
    }
}

/// Damage of which only the error is known.
pub fn only(error: PoolError) -> Damage {
    Damage { error, pages: Vec::new(), names: Vec::new(), cut: false }
}
