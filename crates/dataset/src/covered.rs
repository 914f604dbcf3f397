//! How much of a head snapshots show: what is written over there frees nothing.
//!
//! A `refreservation` keeps room for a head to be written over, so it must know how much of the
//! head is nobody else's ([`crate::refreserved`]). Nothing is walked for that. Two kinds of sums
//! are kept, each of own bytes of the head:
//!
//! - what snapshots of the dataset show: all of it, when one is taken;
//! - what snapshots of a file show of that file: all of that, when one is taken.
//!
//! What dies and is filed leaves them. What is overwritten and was born later is in none.
//!
//! Invariants:
//! - A sum is never less than what snapshots of its kind show of the head. So the room that is
//!   kept is never too small.
//! - It is exact from the next snapshot of its kind on, as long as the newest one stays, and from
//!   a rollback to it on. If it goes, the sum is at most what the one before it refers to.
//! - A file counts by itself only if a snapshot of it is later than all of the dataset.
//! - The sums of a dataset with a `refreservation` are on disk, with the txg that changed them.

use std::collections::BTreeMap;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::Filed;
use aquifer_ondisk::covered::CoveredRecord;
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::dead::DeadKind;
use aquifer_ondisk::{DatasetId, FormatError, Txg};
use aquifer_sync::atomic::Ordering;

use crate::dataset::{Dataset, Phase};
use crate::snapshots::{Snapshot, Snapshots};

/// Bytes of a dataset's head that its snapshots show, and the sums as they are on disk.
#[derive(Debug, Default)]
pub(crate) struct Covered {
    /// At most so many bytes; `None`: that is not known.
    of_dataset: Option<u64>,
    /// By the numbers of their items.
    on_disk: BTreeMap<u64, u64>,
}

impl Covered {
    /// The keys of its items.
    pub fn keys(&self, line: DatasetId) -> impl Iterator<Item = ItemKey> {
        self.on_disk.keys().map(move |number| ItemKey::new(line, ItemClass::Covered, *number))
    }
}

/// Items have numbers below that.
const NUMBER_LIMIT: u64 = 1 << 56;

impl Snapshot {
    /// Own bytes of the head of then.
    fn own_bytes(&self) -> u64 {
        let inherited = self.inherited.unwrap_or_default().bytes;
        self.record.refer_bytes.saturating_sub(inherited)
    }
}

impl Snapshots {
    /// Import: a sum, behind the snapshots themselves.
    pub fn load_covered(&mut self, number: u64, value: &[u8]) -> Result<(), FormatError> {
        let CoveredRecord(bytes) = CoveredRecord::decode(value)?;
        self.covered.on_disk.insert(number, bytes);
        match number {
            0 => self.covered.of_dataset = Some(bytes),
            object => self.files.load_covered(object, bytes),
        }
        Ok(())
    }

    /// A snapshot of the dataset is taken, or its head is as if one were: these own bytes.
    pub fn covers_all_of(&mut self, own_bytes: u64) {
        self.covered.of_dataset = Some(own_bytes);
    }

    /// A part of the head went back: the newest snapshot says how much it shows.
    pub fn covers_what_is_newest(&mut self) {
        if !left_out(Rule::RollbackCovers) {
            self.covered.of_dataset = None;
        }
    }

    /// The head went back, with all its files: the newest snapshots of these say how much they
    /// show, too. A block that died since has left the sum of its file, and is in the head again.
    pub fn covers_as_it_was(&mut self) {
        self.covers_what_is_newest();
        if !left_out(Rule::RollbackCovers) {
            self.files.covers_what_is_newest();
        }
    }

    /// These died in a sync, and snapshots show them.
    pub fn covered_died(&mut self, filed: &Filed) {
        let newest = self.newest();
        let mut of_dataset = 0u64;
        for ((_, object, _), blocks) in filed {
            let of_file = self.files.newest_of(*object);
            let sum = |newest: Option<Txg>| {
                let is_it = |birth| newest.is_some_and(|newest| birth <= newest);
                let extents = blocks.iter().filter(|of| of.kind == DeadKind::Extent);
                let sectors = extents.filter(|of| is_it(of.birth)).map(|of| of.run.sectors);
                sectors.fold(0, u64::saturating_add).saturating_mul(4096)
            };
            of_dataset = of_dataset.saturating_add(sum(newest));
            self.files.covered_died(*object, sum(of_file));
        }
        if let Some(bytes) = &mut self.covered.of_dataset {
            *bytes = bytes.saturating_sub(of_dataset);
        }
    }

    /// Own bytes of the head that snapshots show, at most.
    pub fn covered_bytes(&mut self) -> u64 {
        let Some(newest) = self.newest() else {
            self.covered.of_dataset = None;
            return self.files.covered_after(Txg(0));
        };
        let most = self.get(newest).map_or(u64::MAX, |newest| newest.own_bytes());
        let of_dataset = self.covered.of_dataset.unwrap_or(u64::MAX).min(most);
        self.covered.of_dataset = self.covered.of_dataset.map(|_| of_dataset);
        of_dataset.saturating_add(self.files.covered_after(newest))
    }

    /// The newest snapshot says what is not known. Behind the acts of a sync: a rollback may take
    /// later ones away with it.
    fn know_covered(&mut self) {
        let newest = self.newest().and_then(|newest| self.get(newest));
        if self.covered.of_dataset.is_none() {
            self.covered.of_dataset = newest.map(|newest| newest.own_bytes());
        }
    }

    /// Items that make the disk know these sums, or none.
    fn settle_covered(&mut self, id: DatasetId, are_kept: bool) -> Vec<(ItemKey, Option<Item>)> {
        let of_dataset = self.covered.of_dataset.map(|bytes| (0, bytes));
        let all = of_dataset.into_iter().chain(self.files.covered());
        let now: BTreeMap<u64, u64> = match are_kept && !left_out(Rule::CoveredIsOnDisk) {
            true => all.filter(|(number, _)| *number < NUMBER_LIMIT).collect(),
            false => BTreeMap::new(),
        };
        let key = |number: &u64| ItemKey::new(id, ItemClass::Covered, *number);
        let gone = self.covered.on_disk.keys().filter(|number| !now.contains_key(number));
        let gone: Vec<_> = gone.map(|number| (key(number), None)).collect();
        let changed = now.iter().filter(|of| self.covered.on_disk.get(of.0) != Some(of.1));
        let changed = changed.map(|(number, bytes)| {
            let key = key(number);
            (key, Some(Item { key, value: CoveredRecord(*bytes).encode() }))
        });
        let items = gone.into_iter().chain(changed).collect();
        self.covered.on_disk = now;
        items
    }
}

impl Dataset {
    /// Sums what snapshots show of its head.
    pub(crate) fn sum_covered(&self) {
        let bytes = self.snapshots.lock().covered_bytes();
        self.covered_bytes.store(bytes, Ordering::SeqCst);
    }

    /// Whether the disk knows sums of it.
    pub(crate) fn has_sums_on_disk(&self) -> bool {
        !self.snapshots.lock().covered.on_disk.is_empty()
    }

    /// Sums what snapshots show of its head, behind the acts of a sync. Returns the items that
    /// change.
    pub(crate) fn settle_covered(&self, txg: Txg) -> Vec<(ItemKey, Option<Item>)> {
        let lives = matches!(self.phase(txg), Phase::Dataset | Phase::Received);
        let are_kept = lives && self.refreserved_bytes() > 0;
        if are_kept {
            self.snapshots.lock().know_covered();
            self.sum_covered();
        } else if !self.has_sums_on_disk() {
            return Vec::new();
        }
        self.snapshots.lock().settle_covered(self.id, are_kept)
    }
}
