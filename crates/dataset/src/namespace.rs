//! The namespace of a pool, as an import reads it: datasets, their properties, and what is damaged.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_object::btree;
use aquifer_ondisk::dataset::{
    DatasetRecord, InheritedRecord, Item, ItemClass, ItemKey, LineRecord, ListerRecord,
    RollbackRecord, SnapshotRecord, SweepRecord,
};
use aquifer_ondisk::keeping::{HoldClock, KeepRecord};
use aquifer_ondisk::scrub::ScrubRecord;
use aquifer_ondisk::tree_node::Namespace;
use aquifer_ondisk::{BlockPointer, DatasetId, Reader, Txg};
use aquifer_pool::{Pool, PoolError};

use crate::damage::{DamageList, DamageRecord};
use crate::lines::OnLine;
use crate::property::{LocalValues, Property};
use crate::scrub::Scrubbed;
use crate::snapshots::Snapshots;

/// The content of the namespace.
#[derive(Debug)]
pub(crate) struct Found {
    pub records: Vec<(DatasetId, DatasetRecord)>,
    /// Of them, those that are being emptied.
    pub destroyed: BTreeSet<DatasetId>,
    /// Of them, hidden lines.
    pub hidden_lines: BTreeSet<DatasetId>,
    /// Who lists snapshots that are on another line.
    pub listers: BTreeMap<OnLine, Option<DatasetId>>,
    pub damages: DamageList,
    pub scrub: Scrubbed,
    pub values: BTreeMap<DatasetId, LocalValues>,
    pub snapshots: BTreeMap<DatasetId, Snapshots>,
    pub keeping: BTreeMap<DatasetId, BTreeMap<Txg, KeepRecord>>,
    pub hold_clock: Option<HoldClock>,
    pub lines: BTreeMap<DatasetId, LineRecord>,
    /// What clones, and snapshots of them, have of their origins.
    pub inherited: BTreeMap<OnLine, u64>,
    pub next_dataset: u64,
}

impl Found {
    pub async fn read(pool: &Pool, root: Option<BlockPointer>) -> Result<Found, PoolError> {
        let mut found = Found {
            records: Vec::new(),
            destroyed: BTreeSet::new(),
            hidden_lines: BTreeSet::new(),
            listers: BTreeMap::new(),
            damages: DamageList::default(),
            scrub: Scrubbed::default(),
            values: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            keeping: BTreeMap::new(),
            hold_clock: None,
            lines: BTreeMap::new(),
            inherited: BTreeMap::new(),
            next_dataset: 1,
        };
        let first = ItemKey { dataset: DatasetId(0), item: 0 };
        let mut scan = btree::Scan::<Namespace, Pool>::new(pool, root, first, None)?;
        while let Some(item) = scan.next().await? {
            found.take(&item)?;
        }
        Ok(found)
    }

    fn take(&mut self, Item { key, value }: &Item) -> Result<(), PoolError> {
        let (class, number) = key.class_and_number();
        let dataset = key.dataset;
        match (ItemClass::from_u8(class), dataset.0) {
            // An invalid damage record must not prevent an import.
            (Some(ItemClass::Damage), 0) => {
                let record = DamageRecord::decode(value).ok();
                record.into_iter().for_each(|record| self.damages.load(number, record));
            }
            // Nor an invalid record of a scrub: the next one begins from the start.
            (Some(ItemClass::Scrub), 0) => {
                let record = ScrubRecord::decode(value).ok();
                record.into_iter().for_each(|record| self.scrub.load(record));
            }
            (Some(ItemClass::Record), 0) => {
                self.next_dataset = Reader::new(value, "dataset counters").sequence()?;
            }
            (Some(ItemClass::Record), _) => {
                self.records.push((dataset, DatasetRecord::decode(value)?));
            }
            (Some(ItemClass::Destroyed), _) => {
                self.records.push((dataset, DatasetRecord::decode(value)?));
                self.destroyed.insert(dataset);
            }
            (Some(ItemClass::HiddenLine), _) => {
                self.records.push((dataset, DatasetRecord::decode(value)?));
                self.hidden_lines.insert(dataset);
            }
            (Some(ItemClass::Inherited), _) => {
                let record = InheritedRecord::decode(value)?;
                self.inherited.insert((dataset, Txg(number)), record.bytes);
            }
            (Some(ItemClass::Lister), _) => {
                let record = ListerRecord::decode(value)?;
                self.listers.insert((dataset, Txg(number)), record.dataset);
            }
            (Some(ItemClass::Property), _) => {
                let value = String::from_utf8_lossy(value).into_owned();
                if let Some(property) = Property::from_number(number) {
                    self.values.entry(dataset).or_default().insert(property, value);
                }
            }
            (Some(ItemClass::Snapshot), _) => {
                let record = SnapshotRecord::decode(value)?;
                self.snapshots.entry(dataset).or_default().load(dataset, Txg(number), record);
            }
            (Some(ItemClass::Sweep), _) => {
                let record = SweepRecord::decode(value)?;
                self.snapshots.entry(dataset).or_default().load_sweep(Txg(number), record);
            }
            (Some(ItemClass::Keep), _) => {
                let record = KeepRecord::decode(value)?;
                self.keeping.entry(dataset).or_default().insert(Txg(number), record);
            }
            (Some(ItemClass::HoldClock), 0) => self.hold_clock = Some(HoldClock::decode(value)?),
            (Some(ItemClass::Rollback), _) => {
                let record = RollbackRecord::decode(value)?;
                self.snapshots.entry(dataset).or_default().rollback = Some(record);
            }
            // Datasets have one line, so far.
            (Some(ItemClass::Line), _) => {
                self.lines.insert(dataset, LineRecord::decode(value)?);
            }
            (None, _) | (Some(ItemClass::Damage | ItemClass::Scrub | ItemClass::HoldClock), _) => {}
        }
        Ok(())
    }
}
