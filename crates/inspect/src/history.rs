//! The history: counters, records below them, a limited number of each class, and the load.

use std::collections::BTreeMap;

use aquifer_ondisk::dataset::Item;
use aquifer_ondisk::history::{HistoryClass, HistoryCounters, HistoryRecord, history_place};
use aquifer_ondisk::load::{LOAD_RECORDS_MAX, LoadGrain, LoadRecord, load_grain};
use aquifer_ondisk::pool_root::{PoolRoot, TreeSlot};
use aquifer_ondisk::tree_node::{Namespace, NodeOwner};
use aquifer_ondisk::types::{ObjectId, Place};

use crate::finding::{At, Kind};
use crate::scan::Scan;
use crate::tree::Walk;

/// Walks the history of a pool, if it has one.
pub(crate) async fn walk(scan: &mut Scan<'_>, root: &PoolRoot) {
    let pointer = root.trees.get(TreeSlot::History as usize).copied().flatten();
    let owner = NodeOwner::default();
    let mut tree = Walk::<Namespace>::new(owner, ObjectId(0), pointer, scan.txg, None);
    let (mut counters, mut records) = (None, BTreeMap::<HistoryClass, u64>::new());
    let mut load = BTreeMap::<LoadGrain, u64>::new();
    while let Some(leaf) = tree.next(scan).await {
        let place = leaf.pointer.places[0];
        for item in &leaf.entries {
            if let Err(why) = check(&mut counters, item) {
                invalid(scan, place, item, &why);
            }
            if let Some((class, _)) = history_place(item.key) {
                *records.entry(class).or_default() += 1;
            }
            if let Some(grain) = load_grain(item.key) {
                *load.entry(grain).or_default() += 1;
            }
        }
    }
    for (class, count) in records.into_iter().filter(|(class, count)| *count > class.kept()) {
        scan.findings.add(Kind::HistoryInvalid, At::nowhere(), || {
            format!("{count} records of class {class:?} in the history, at most {}", class.kept())
        });
    }
    for (grain, count) in load {
        let most = grain.slots() * LOAD_RECORDS_MAX;
        if count > most {
            scan.findings.add(Kind::HistoryInvalid, At::nowhere(), || {
                format!("{count} records of load in {grain:?}, at most {most}")
            });
        }
    }
    if pointer.is_some() && tree.whole && counters.is_none() {
        scan.findings
            .add(Kind::HistoryInvalid, At::nowhere(), || "the history has no counters".to_string());
    }
}

fn check(counters: &mut Option<HistoryCounters>, item: &Item) -> Result<(), String> {
    if item.key == HistoryCounters::KEY {
        let read = HistoryCounters::decode(&item.value).map_err(|error| error.to_string())?;
        *counters = Some(read);
        return Ok(());
    }
    if let Some(grain) = load_grain(item.key) {
        let record = LoadRecord::decode(grain, &item.value).map_err(|error| error.to_string())?;
        return match record.key() == item.key {
            true => Ok(()),
            false => Err(format!("a record of {:?} from {} s", record.of, record.begin_s)),
        };
    }
    let (class, number) = history_place(item.key).ok_or("of no known class")?;
    let record = HistoryRecord::decode(&item.value).map_err(|error| error.to_string())?;
    // The counters are the first item: without them, their absence is the finding.
    let Some(HistoryCounters { order, act, attempt }) = *counters else { return Ok(()) };
    if record.order >= order {
        return Err(format!("order {}, and the next is {order}", record.order));
    }
    let next = match class {
        HistoryClass::Act => act,
        HistoryClass::Attempt => attempt,
        HistoryClass::Begun | HistoryClass::Event => order,
        // Their numbers are counted by themselves.
        HistoryClass::OfHost => HistoryCounters::LIMIT,
    };
    match number < next {
        true => Ok(()),
        false => Err(format!("the next is {next}")),
    }
}

fn invalid(scan: &mut Scan<'_>, place: Place, item: &Item, why: &str) {
    scan.findings.add(Kind::HistoryInvalid, At::place(place, 1), || {
        let (class, number) = item.key.class_and_number();
        format!("item {class}:{number} of the history: {why}")
    });
}
