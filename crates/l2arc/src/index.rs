//! Which blocks lie where on a cache disk: 9 bytes for each, and the room of a hash table.
//!
//! An entry has no key, only 40 bits of its hash. So one of 17,000 misses of an index of 64 million
//! finds another block's entry. Its content does not verify then.

use aquifer_ondisk::{Place, Txg};
use aquifer_sync::Mutex;
use hashbrown::HashTable;

/// Tables: each is small, so that it grows in little time.
const SHARDS: usize = 256;
/// Memory of an entry, when its table has just grown: 9 bytes, and more than half of it is empty.
pub(crate) const ENTRY_BYTES_MAX: u64 = 21;
/// An odd number without structure: of the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The sector of a cache disk for each block.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Vec<Mutex<HashTable<Entry>>>,
}

/// 32 bits of the hash over the sector.
#[derive(Debug, Clone, Copy)]
struct Entry {
    tag: [u8; 4],
    sector: [u8; 4],
}

impl Entry {
    fn new(tag: u32, sector: u32) -> Entry {
        Entry { tag: tag.to_le_bytes(), sector: sector.to_le_bytes() }
    }

    fn tag(&self) -> u32 {
        u32::from_le_bytes(self.tag)
    }

    fn sector(&self) -> u32 {
        u32::from_le_bytes(self.sector)
    }
}

/// The name of a block: its place is written once in a txg.
pub(crate) type Key = (Place, Txg);

impl Index {
    pub fn new() -> Index {
        Index { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    pub fn get(&self, key: Key) -> Option<u32> {
        let (shard, tag) = split(key);
        let table = self.shards.get(shard)?.lock();
        table.find(spread(tag), |entry| entry.tag() == tag).map(Entry::sector)
    }

    /// The block lies there now.
    pub fn put(&self, key: Key, sector: u32) {
        let (shard, tag) = split(key);
        let Some(shard) = self.shards.get(shard) else { return };
        let mut table = shard.lock();
        match table.find_mut(spread(tag), |entry| entry.tag() == tag) {
            Some(entry) => *entry = Entry::new(tag, sector),
            None => {
                table.insert_unique(spread(tag), Entry::new(tag, sector), |of| spread(of.tag()));
            }
        }
    }

    /// Forgets a block if it lies in such a sector. Whether it did.
    pub fn remove_if(&self, key: Key, lies_there: impl Fn(u32) -> bool) -> bool {
        let (shard, tag) = split(key);
        let Some(shard) = self.shards.get(shard) else { return false };
        let mut table = shard.lock();
        let is_it = |entry: &Entry| entry.tag() == tag && lies_there(entry.sector());
        match table.find_entry(spread(tag), is_it) {
            Ok(entry) => {
                entry.remove();
                true
            }
            Err(_) => false,
        }
    }

    /// Forgets what lies in such sectors. Looks at every entry.
    pub fn remove_all(&self, lies_there: impl Fn(u32) -> bool) {
        for shard in &self.shards {
            shard.lock().retain(|entry| !lies_there(entry.sector()));
        }
    }

    /// Blocks, and the memory of the tables in bytes.
    pub fn size(&self) -> (u64, u64) {
        let of = |shard: &Mutex<HashTable<Entry>>| {
            let table = shard.lock();
            (table.len() as u64, table.allocation_size() as u64)
        };
        let sizes = self.shards.iter().map(of);
        sizes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }
}

fn split((place, written): Key) -> (usize, u32) {
    let hash = aquifer_arc::Key { place: place.0, written: written.0 }.mixed();
    let [shard, .., a, b, c, d] = hash.to_be_bytes();
    (usize::from(shard) % SHARDS, u32::from_be_bytes([a, b, c, d]))
}

/// A table takes its place from the low bits of a hash, and a mark from the high ones. A tag is a
/// hash already: only the high ones are missing.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(SPREAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_where_it_was_last_put() {
        let index = Index::new();
        let key = |sector, written| (Place::new(1, sector), Txg(written));
        for sector in 0..10_000 {
            index.put(key(sector, 7), u32::try_from(sector).unwrap() + 1);
        }
        assert!((0..10_000).all(|sector| index.get(key(sector, 7)).is_some()));
        // Another txg, another vdev: another block.
        assert!((0..10_000).all(|sector| index.get(key(sector, 8)).is_none()));
        assert_eq!(index.get((Place::new(2, 5), Txg(7))), None);
        index.put(key(5, 7), 99);
        assert_eq!(index.get(key(5, 7)), Some(99));
        assert!(!index.remove_if(key(5, 7), |sector| sector == 6));
        assert!(index.remove_if(key(5, 7), |sector| sector == 99));
        assert_eq!(index.get(key(5, 7)), None);
        index.remove_all(|sector| sector > 100);
        let (blocks, bytes) = index.size();
        assert_eq!(blocks, 99);
        assert!(bytes <= 10_000 * ENTRY_BYTES_MAX + 256 * 64, "{bytes}");
    }
}
