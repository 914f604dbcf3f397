//! The namespace of a pool, as an import reads it: datasets, their properties, and what is damaged.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_object::btree;
use aquifer_ondisk::dataset::{
    DatasetRecord, InheritedRecord, Item, ItemClass, ItemKey, LineRecord, ListerRecord,
};
use aquifer_ondisk::free_work::FreeWorkRecord;
use aquifer_ondisk::head_line::LeftHeadRecord;
use aquifer_ondisk::keeping::{HoldClock, KeepRecord};
use aquifer_ondisk::open_work::OpenWorkRecord;
use aquifer_ondisk::receiving::ReceivingRecord;
use aquifer_ondisk::resume::ResumeRecord;
use aquifer_ondisk::scrub::ScrubRecord;
use aquifer_ondisk::tree_node::Namespace;
use aquifer_ondisk::user_property::UserPieces;
use aquifer_ondisk::{BlockPointer, DatasetId, Reader, Space, Txg};
use aquifer_pool::{Pool, PoolError};

use crate::damage::{DamageList, DamageRecord};
use crate::lines::OnLine;
use crate::property::{LocalValues, Property};
use crate::property_name::{PropertyName, check_values};
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
    /// Datasets that list snapshots which are on another line.
    pub listers: BTreeMap<OnLine, Option<DatasetId>>,
    pub damages: DamageList,
    pub scrub: Scrubbed,
    /// The pool takes them.
    free_work: Vec<FreeWorkRecord>,
    open_work: Vec<OpenWorkRecord>,
    pub values: BTreeMap<DatasetId, LocalValues>,
    /// Those of them that users made up, as they lie.
    users: BTreeMap<DatasetId, UserPieces>,
    pub snapshots: BTreeMap<DatasetId, Snapshots>,
    pub keeping: BTreeMap<DatasetId, BTreeMap<Txg, KeepRecord>>,
    pub hold_clock: Option<HoldClock>,
    pub lines: BTreeMap<DatasetId, LineRecord>,
    /// Old heads that die in the dataset whose heads they were.
    pub left_heads: BTreeMap<DatasetId, LeftHeadRecord>,
    /// Datasets of which the head is half of something, with the snapshots to go back to.
    pub receiving: BTreeMap<DatasetId, Txg>,
    /// How far streams have come that may go on.
    pub resumes: BTreeMap<DatasetId, ResumeRecord>,
    /// Space that clones, and snapshots of them, have of their origins.
    pub inherited: BTreeMap<OnLine, Space>,
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
            free_work: Vec::new(),
            open_work: Vec::new(),
            values: BTreeMap::new(),
            users: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            keeping: BTreeMap::new(),
            hold_clock: None,
            lines: BTreeMap::new(),
            left_heads: BTreeMap::new(),
            receiving: BTreeMap::new(),
            resumes: BTreeMap::new(),
            inherited: BTreeMap::new(),
            next_dataset: 1,
        };
        let first = ItemKey { dataset: DatasetId(0), item: 0 };
        let mut scan = btree::Scan::<Namespace, Pool>::new(pool, root, first, None)?;
        while let Some(item) = scan.next().await? {
            found.take(&item)?;
        }
        found.join_users();
        pool.load_free_work(std::mem::take(&mut found.free_work));
        pool.load_open_work(std::mem::take(&mut found.open_work));
        Ok(found)
    }

    /// A property of a user that cannot be read must not prevent an import, nor too many of them.
    fn join_users(&mut self) {
        for (dataset, pieces) in std::mem::take(&mut self.users) {
            let values = self.values.entry(dataset).or_default();
            for of in pieces.properties().filter_map(|(_, property)| property.ok()) {
                let name = PropertyName::User(of.name);
                values.insert(name.clone(), of.value);
                if check_values(values).is_err() {
                    values.remove(&name);
                }
            }
        }
    }

    fn take(&mut self, Item { key, value }: &Item) -> Result<(), PoolError> {
        let (class, number) = key.class_and_number();
        let Some(class) = ItemClass::from_u8(class) else { return Ok(()) };
        match key.dataset {
            DatasetId(0) => self.take_of_pool(class, number, value),
            dataset => self.take_of_dataset(dataset, class, number, value),
        }
    }

    fn take_of_pool(
        &mut self,
        class: ItemClass,
        number: u64,
        value: &[u8],
    ) -> Result<(), PoolError> {
        match class {
            // An invalid damage record must not prevent an import.
            ItemClass::Damage => {
                let record = DamageRecord::decode(value).ok();
                record.into_iter().for_each(|record| self.damages.load(number, record));
            }
            // Nor an invalid record of a scrub: the next one begins from the start.
            ItemClass::Scrub => {
                let record = ScrubRecord::decode(value).ok();
                record.into_iter().for_each(|record| self.scrub.load(record));
            }
            ItemClass::Record => {
                self.next_dataset = Reader::new(value, "dataset counters").sequence()?;
            }
            ItemClass::HoldClock => self.hold_clock = Some(HoldClock::decode(value)?),
            // It is only shown.
            ItemClass::FreeWork => self.free_work.extend(FreeWorkRecord::decode(value)),
            // Of a record that cannot be read the work begins again when somebody says so.
            ItemClass::OpenWork => self.open_work.extend(OpenWorkRecord::decode(value)),
            ItemClass::Property => self.take_of_dataset(DatasetId(0), class, number, value)?,
            _ => {}
        }
        Ok(())
    }

    fn take_of_dataset(
        &mut self,
        dataset: DatasetId,
        class: ItemClass,
        number: u64,
        value: &[u8],
    ) -> Result<(), PoolError> {
        match class {
            ItemClass::Record => {
                self.records.push((dataset, DatasetRecord::decode(value)?));
            }
            ItemClass::Destroyed => {
                self.records.push((dataset, DatasetRecord::decode(value)?));
                self.destroyed.insert(dataset);
            }
            ItemClass::HiddenLine => {
                self.records.push((dataset, DatasetRecord::decode(value)?));
                self.hidden_lines.insert(dataset);
            }
            ItemClass::Inherited => {
                let record = InheritedRecord::decode(value)?;
                self.inherited.insert((dataset, Txg(number)), record.0);
            }
            ItemClass::Lister => {
                let record = ListerRecord::decode(value)?;
                self.listers.insert((dataset, Txg(number)), record.dataset);
            }
            ItemClass::Property => {
                let value = String::from_utf8_lossy(value).into_owned();
                if let Some(property) = Property::from_number(number) {
                    self.values.entry(dataset).or_default().insert(property.into(), value);
                }
            }
            ItemClass::Snapshot
            | ItemClass::Bookmark
            | ItemClass::Sweep
            | ItemClass::Rollback
            | ItemClass::HeadLine
            | ItemClass::FileSnapshot
            | ItemClass::FileSweep
            | ItemClass::FileRollback
            | ItemClass::FileClone
            | ItemClass::FileCloneAcross
            | ItemClass::FileLine
            | ItemClass::FileKeep
            | ItemClass::Covered => {
                let snapshots = self.snapshots.entry(dataset).or_default();
                snapshots.load(dataset, (class, number), value)?;
            }
            ItemClass::Keep => {
                let record = KeepRecord::decode(value)?;
                self.keeping.entry(dataset).or_default().insert(Txg(number), record);
            }
            // Datasets have one line, so far.
            ItemClass::Line => {
                self.lines.insert(dataset, LineRecord::decode(value)?);
            }
            ItemClass::UserProperty => {
                self.users.entry(dataset).or_default().take(number, value);
            }
            ItemClass::LeftHead => {
                self.left_heads.insert(dataset, LeftHeadRecord::decode(value)?);
            }
            ItemClass::Receiving => {
                self.receiving.insert(dataset, ReceivingRecord::decode(value)?.from);
            }
            ItemClass::Resume => {
                self.resumes.insert(dataset, ResumeRecord::decode(value)?);
            }
            // Of the pool alone.
            ItemClass::Damage
            | ItemClass::Scrub
            | ItemClass::HoldClock
            | ItemClass::FreeWork
            | ItemClass::OpenWork => {}
        }
        Ok(())
    }
}
