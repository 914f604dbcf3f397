//! The cache as its users see it: shards behind locks.

use parking_lot::Mutex;

use crate::shard::Shard;
use crate::stats::Stats;
use crate::{Class, Key};

/// The cache.
pub struct Cache<V> {
    shards: Box<[Padded<V>]>,
    capacity: Mutex<u64>,
}

#[repr(align(128))]
struct Padded<V>(Mutex<Shard<V>>);

impl<V: Clone> Cache<V> {
    /// New.
    pub fn new(capacity_bytes: u64, shards: usize) -> Self {
        let mut count = shards.next_power_of_two();
        while count > 1 && capacity_bytes / (count as u64) < SHARD_BYTES_MIN {
            count /= 2;
        }
        let each = capacity_bytes / count as u64;
        let shards = (0..count).map(|_| Padded(Mutex::new(Shard::new(each)))).collect();
        Cache { shards, capacity: Mutex::new(capacity_bytes) }
    }
    /// Get.
    #[inline]
    pub fn get(&self, key: &Key) -> Option<V> {
        let hash = key.hash();
        self.shard(hash).lock().get(hash, key)
    }
    /// contains
    pub fn contains(&self, key: &Key) -> bool {
        let hash = key.hash();
        self.shard(hash).lock().contains(hash, key)
    }
    /// insert
    pub fn insert(&self, key: Key, value: V, charge_bytes: u32, class: Class) {
        let hash = key.hash();
        self.shard(hash).lock().insert(hash, key, value, charge_bytes, class);
    }
    /// remove
    pub fn remove(&self, key: &Key) -> bool {
        let hash = key.hash();
        self.shard(hash).lock().remove(hash, key)
    }
    /// set
    pub fn set_capacity(&self, capacity_bytes: u64) {
        let mut capacity = self.capacity.lock();
        *capacity = capacity_bytes;
        let each = capacity_bytes / self.shards.len() as u64;
        for shard in &self.shards { shard.0.lock().set_capacity(each); }
    }
    /// bytes
    pub fn resident_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock().resident_bytes()).sum()
    }
    /// stats
    pub fn stats(&self) -> Stats {
        let mut total = Stats::default();
        for shard in &self.shards { total += shard.0.lock().stats(); }
        total
    }
    #[expect(clippy::indexing_slicing, reason = "masked")]
    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard<V>> {
        &self.shards[(hash >> 40) as usize & (self.shards.len() - 1)].0
    }
}

impl Key {
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        let product = u128::from(self.place ^ 0x9E37_79B9_7F4A_7C15) * u128::from(self.written ^ 0xD1B5_4A32_D192_ED03);
        let folded = (product >> 64) as u64 ^ product as u64;
        folded
    }
}
const SHARD_BYTES_MIN: u64 = 4 << 20;
