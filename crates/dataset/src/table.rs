//! The objects of a dataset that are in memory, and the roots of its object table.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};

use aquifer_object::Object;
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::{BlockPointer, ObjectId, Txg};
use aquifer_pool::{Owner, Room, Shelf, Verdict};
use aquifer_sync::{Mutex, MutexGuard};

use crate::rollback::Back;

/// Bytes of an object in memory: itself, the counts of its `Arc`, and its place in a
/// map that is half full.
const OBJECT_BYTES: u64 = (size_of::<Object>() + 2 * size_of::<usize>()) as u64
    + 2 * (size_of::<ObjectId>() + size_of::<Arc<Object>>() + 1) as u64;

/// The objects of a dataset in memory. Those without changes (*clean* ones) stay as long as the
/// pools' shelf has room for them.
#[derive(Debug)]
pub(crate) struct Objects {
    shelf: Arc<Shelf>,
    shared: Arc<Shared>,
}

/// A table that its dataset has, and the shelf while the dataset does.
#[derive(Debug)]
struct Shared(Mutex<Table>);

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub objects: HashMap<ObjectId, Arc<Object>, BuildHasherDefault<IdHasher>>,
    /// Objects with a version of each txg.
    pub dirty: BTreeMap<Txg, BTreeSet<ObjectId>>,
    pub committed: Option<BlockPointer>,
    pub synced: Option<BlockPointer>,
    /// State that the objects go back to, while the dataset is rolled back.
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

impl Objects {
    pub fn new(shelf: &Arc<Shelf>, table: Table) -> Objects {
        Objects { shelf: Arc::clone(shelf), shared: Arc::new(Shared(Mutex::new(table))) }
    }

    pub fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    pub fn lock(&self) -> MutexGuard<'_, Table> {
        self.shared.0.lock()
    }

    /// Room for an object that is about to come. Asked for with no lock held.
    pub fn room(&self) -> Room {
        self.shelf.room(OBJECT_BYTES)
    }

    /// Puts an object into the locked table. [`Objects::tidy`] comes after, without the lock.
    pub fn insert(&self, table: &mut Table, object: &Arc<Object>) {
        if let Some(room) = &object.room {
            let owner: Weak<Shared> = Arc::downgrade(&self.shared);
            self.shelf.put(room, owner, object.id.0);
        }
        table.objects.insert(object.id, Arc::clone(object));
    }

    /// Objects came: others may have to go, of this dataset or of others.
    pub fn tidy(&self) {
        self.shelf.tidy();
    }
}

impl Owner for Shared {
    fn let_go(&self, key: u64, number: u64) -> Verdict {
        let mut table = self.0.lock();
        let id = ObjectId(key);
        let known = table.objects.get(&id).and_then(|object| Some((object, object.room.as_ref()?)));
        let Some((object, room)) = known.filter(|(_, room)| room.number() == number) else {
            return Verdict::Gone;
        };
        if room.was_used() || !is_idle(object) {
            return Verdict::Stays;
        }
        let gone = table.objects.remove(&id);
        // The caches take its memory: not under this lock.
        drop(table);
        drop(gone);
        Verdict::Gone
    }
}

/// Whether an object of a locked table is clean, and nobody has it.
fn is_idle(object: &Arc<Object>) -> bool {
    Arc::strong_count(object) == 1 && object.state.lock().overlay.is_empty()
}

impl Table {
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

    /// Whether nobody has any of the objects, and none has changes.
    pub fn is_idle(&self) -> bool {
        self.objects.values().all(is_idle)
    }

    /// Lets all clean objects go that nobody has.
    pub fn let_clean_ones_go(&mut self) {
        self.objects.retain(|_, object| !is_idle(object));
    }
}
