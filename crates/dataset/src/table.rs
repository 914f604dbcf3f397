//! The objects of a dataset that are in memory, and the roots of its object table.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use aquifer_object::Object;
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::{BlockPointer, ObjectId, Txg};

use crate::rollback::Back;

/// Clean objects (without changes) that stay in memory, in each dataset.
pub(crate) const CLEAN_OBJECTS_MAX: usize = 20_000;
/// New objects above that, between two searches for clean ones.
const CLEAN_LOOK_EVERY: usize = 1024;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub objects: HashMap<ObjectId, Arc<Object>, BuildHasherDefault<IdHasher>>,
    /// Objects with a version of each txg.
    pub dirty: BTreeMap<Txg, BTreeSet<ObjectId>>,
    pub committed: Option<BlockPointer>,
    pub synced: Option<BlockPointer>,
    /// What becomes of the objects, while the dataset is rolled back.
    pub back: Option<Back>,
    /// The least change attribute and time of the last change that objects show.
    pub least: (u64, Time),
}

/// A hash of ids that the pool gives out itself, one after the other. No client can choose ids that
/// collide, and each request looks up several.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        // Fibonacci hashing (Knuth, volume 3, section 6.4).
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

impl Table {
    pub fn insert(&mut self, object: Arc<Object>) {
        self.objects.insert(object.id, object);
        // Clients that only read commit nothing. This looks at all objects, so it runs only now and
        // then.
        let count = self.objects.len();
        if count > CLEAN_OBJECTS_MAX && count.is_multiple_of(CLEAN_LOOK_EVERY) {
            self.let_clean_ones_go();
        }
    }

    /// While the dataset is rolled back: the table of the snapshot, if it is not known yet what
    /// that says of an object.
    pub fn not_looked_back_at(&self, id: ObjectId) -> Option<Option<BlockPointer>> {
        self.back.as_ref()?.unknown(id)
    }

    /// The objects become what they were, and the list of those without a name.
    pub fn roll_back(&mut self, mut back: Back) -> BTreeSet<ObjectId> {
        let (change, ctime) = self.least;
        self.objects.retain(|id, object| match back.inode(*id) {
            Some(inode) => {
                object.roll_back(inode.at_least(change, ctime));
                true
            }
            None => {
                object.leave();
                false
            }
        });
        self.dirty.clear();
        back.into_orphans()
    }

    pub fn let_clean_ones_go(&mut self) {
        self.objects.retain(|_, object| {
            Arc::strong_count(object) > 1 || !object.state.lock().overlay.is_empty()
        });
    }
}
