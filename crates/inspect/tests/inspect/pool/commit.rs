//! Making a txg: slots, record, uberblock.

use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::config::VdevClass;
use aquifer_ondisk::layout::Geometry;
use aquifer_ondisk::pool_root::PoolRoot;
use aquifer_ondisk::txg_record::{RUN_SECTORS_MAX, RecordPointer, SlotEntry, TxgRecord};
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::uberblock::Uberblock;
use aquifer_ondisk::{Place, Txg};

use super::{HandPool, POOL, ring_sector};

impl HandPool {
    fn write_slots(&mut self, window_start: &mut Txg) -> Vec<SlotEntry> {
        let mut written = vec![];
        for geometry in self.data_geometries() {
            for index in 0..geometry.metaslabs() {
                let id = (geometry.vdev, index as u32);
                if self.skip_slots.contains(&id) {
                    let as_of = self.entries.get(&id).map(|entry| entry.as_of);
                    *window_start = (*window_start).min(as_of.unwrap_or(self.txg));
                    continue;
                }
                written.push(self.write_slot(geometry, index));
            }
        }
        written
    }

    fn write_slot(&mut self, geometry: Geometry, index: u64) -> SlotEntry {
        let (start, count) = geometry.metaslab_range(index);
        let flags = &self.used[usize::from(geometry.vdev)][start as usize..][..count as usize];
        let mut bytes = vec![0u8; geometry.slot_sectors() as usize * 4096];
        for (at, _) in flags.iter().enumerate().filter(|(_, used)| **used) {
            bytes[at / 8] |= 1 << (at % 8);
        }
        let longest = flags.split(|used| *used).map(<[bool]>::len).max().unwrap();
        let id = (geometry.vdev, index as u32);
        let entry = SlotEntry {
            vdev: geometry.vdev,
            metaslab: index as u32,
            slot: self.entries.get(&id).map_or(0, |entry| (entry.slot + 1) % 4),
            as_of: self.txg,
            checksum: 0,
            free_sectors: flags.iter().filter(|used| !**used).count() as u64,
            longest_run: longest as u32,
        };
        let mut draft = (entry, bytes);
        (self.hooks.bitmap)(&mut draft);
        let (mut entry, bytes) = draft;
        entry.checksum = checksum128(&bytes);
        for copy in 0..geometry.copies {
            self.put(geometry.slot_place(index, entry.slot, copy), &bytes);
        }
        self.entries.insert(id, entry);
        (self.hooks.entry)(&mut entry);
        entry
    }

    fn allocated_sectors(&self) -> Vec<u64> {
        let data = self.config.vdevs.iter().map(|vdev| vdev.class == VdevClass::Data);
        let count = |used: &Vec<bool>| used.iter().filter(|used| **used).count() as u64;
        self.used.iter().zip(data).map(|(used, data)| if data { count(used) } else { 0 }).collect()
    }

    fn record_runs(&self) -> Vec<Run> {
        self.records.iter().map(|place| Run::new(*place, SEGMENT_SECTORS)).collect()
    }

    /// Writes one part of a record.
    pub fn part(&mut self, mut record: TxgRecord) -> RecordPointer {
        let sectors = record.encode().unwrap().len() as u64 / 4096;
        let half = self.records.len() / self.copies() as usize;
        let offset = self.record_offset;
        self.record_offset += sectors;
        let place = |start: &Place| Place(start.0 + offset);
        let second = (half < self.records.len()).then(|| place(&self.records[half]));
        let places = [place(&self.records[0]), second.unwrap_or(Place::NULL)];
        record.place = places[0];
        if let Some(root) = &mut record.root {
            root.record_next = Place(self.records[0].0 + self.record_offset);
        }
        (self.hooks.record)(&mut record);
        let mut bytes = record.encode().unwrap();
        (self.hooks.record_bytes)(&mut bytes);
        let mut pointer = RecordPointer {
            txg: record.txg,
            places,
            sectors: bytes.len() as u32 / 4096,
            checksum: checksum128(&bytes),
        };
        for place in pointer.copies() {
            self.put(place, &bytes);
        }
        (self.hooks.pointer)(&mut pointer);
        pointer
    }

    /// Makes the changes a txg, and begins the next one.
    pub fn commit(&mut self) {
        let mut window_start = self.txg;
        let slots = self.write_slots(&mut window_start);
        let root = PoolRoot {
            txg: self.txg,
            wall_ns: 1,
            trees: self.trees,
            log: self.log.clone(),
            log_home: self.log_home(),
            record_segments: self.record_runs(),
            record_copies: None,
            record_next: Place::NULL,
            allocated_sectors: self.allocated_sectors(),
        };
        let mut allocated = std::mem::take(&mut self.allocated);
        let mut freed = std::mem::take(&mut self.freed);
        allocated.sort();
        freed.sort();
        if self.merge_runs {
            allocated.dedup_by(|next, run| {
                let joins = next.place.0 == run.place.0 + run.sectors
                    && run.sectors + next.sectors <= RUN_SECTORS_MAX
                    && next.place.sector() % SEGMENT_SECTORS != 0;
                run.sectors += if joins { next.sectors } else { 0 };
                joins
            });
        }
        let record = TxgRecord {
            pool_guid: POOL,
            txg: self.txg,
            place: Place::NULL,
            window_start,
            previous: self.previous,
            slots,
            allocated,
            freed,
            root: Some(root),
        };
        let pointer = self.part(record);
        self.previous = Some(pointer);
        self.uberblock.roots.rotate_right(1);
        self.uberblock.roots[0] = Some(pointer);
        self.uberblock.txg = self.txg;
        self.uberblock.floor = self.txg;
        self.write_uberblock();
        self.txg = self.txg.next();
    }

    pub fn write_uberblock(&mut self) {
        self.uberblock.sequence += 1;
        let mut uberblock = self.uberblock.clone();
        (self.hooks.uberblock)(&mut uberblock);
        for at in 0..self.disks.len() {
            if !uberblock.outdated.iter().any(|named| named.leaf == self.leaves[at].1) {
                self.write_uberblock_to(at, &uberblock);
            }
        }
    }

    pub fn write_uberblock_to(&self, disk: usize, uberblock: &Uberblock) {
        for label in 0..4u8 {
            let bytes = uberblock.encode_for(self.leaves[disk].1, label).unwrap();
            self.disks[disk].put(ring_sector(label, uberblock.sequence), &bytes);
        }
    }
}
