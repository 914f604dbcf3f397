//! The entries of one shard: slots in a slab, linked by index into the lists of the policy.
//!
//! Invariants:
//! - The slab is dense: exactly the indices below `len` are in use. Freeing a slot moves the last
//!   one into the gap, so memory follows the number of entries down as well as up.
//! - Every slot is in exactly one list; a list's `bytes` and `entries` are sums over its slots.
//! - Slots live in chunks that are never copied: growth needs no second copy of the slab.

use crate::{Class, Key};

/// The four lists of ARC (Megiddo and Modha, FAST 2003, section III), each from newest to oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Resident, seen once lately.
    T1,
    /// Resident, seen at least twice lately.
    T2,
    /// Ghosts (keys only) of what was evicted from T1.
    B1,
    /// Ghosts of what was evicted from T2.
    B2,
}

/// One cached block or the ghost of one.
pub(crate) struct Slot<V> {
    pub key: Key,
    /// None in a ghost.
    pub value: Option<V>,
    newer: u32,
    older: u32,
    /// What the entry costs while resident: charge and overhead, in bytes. A ghost keeps it.
    pub cost: u32,
    /// The shard's tick at which it became resident.
    pub born: u32,
    pub class: Class,
    queue: Queue,
    /// Seen since the clock's hand last passed.
    pub referenced: bool,
}

impl<V> Slot<V> {
    pub(crate) fn new(key: Key, value: V, cost: u32, born: u32, class: Class) -> Self {
        let (newer, older) = (NONE, NONE);
        let (queue, referenced) = (Queue::T1, false);
        Slot { key, value: Some(value), newer, older, cost, born, class, queue, referenced }
    }

    pub(crate) fn queue(&self) -> Queue {
        self.queue
    }
}

/// Size of one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    newest: u32,
    oldest: u32,
    pub entries: u32,
    /// Sum of the entries' costs, of ghosts too.
    pub bytes: u64,
}

pub(crate) struct Slab<V> {
    chunks: Vec<Vec<Slot<V>>>,
    lists: [List; 8],
    len: u32,
}

impl<V> Slab<V> {
    pub(crate) fn new() -> Self {
        let empty = List { newest: NONE, oldest: NONE, entries: 0, bytes: 0 };
        Slab { chunks: Vec::new(), lists: [empty; 8], len: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[expect(clippy::indexing_slicing, reason = "two classes of four queues: below 8")]
    pub(crate) fn list(&self, class: Class, queue: Queue) -> &List {
        &self.lists[class as usize * 4 + queue as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "two classes of four queues: below 8")]
    fn list_mut(&mut self, class: Class, queue: Queue) -> &mut List {
        &mut self.lists[class as usize * 4 + queue as usize]
    }

    /// The entry that has been in the list longest.
    pub(crate) fn oldest(&self, class: Class, queue: Queue) -> Option<u32> {
        let list = self.list(class, queue);
        (list.oldest != NONE).then_some(list.oldest)
    }

    #[expect(clippy::indexing_slicing, reason = "the table and the links name slots in use")]
    pub(crate) fn slot(&self, index: u32) -> &Slot<V> {
        &self.chunks[(index / CHUNK_SLOTS) as usize][(index % CHUNK_SLOTS) as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "the table and the links name slots in use")]
    pub(crate) fn slot_mut(&mut self, index: u32) -> &mut Slot<V> {
        &mut self.chunks[(index / CHUNK_SLOTS) as usize][(index % CHUNK_SLOTS) as usize]
    }

    /// Adds a slot as the newest of its class's T1; gives its index.
    pub(crate) fn push(&mut self, slot: Slot<V>) -> u32 {
        let index = self.len;
        assert!(index < NONE, "a shard holds fewer than 2^32 - 1 entries");
        if index.is_multiple_of(CHUNK_SLOTS) {
            self.chunks.push(Vec::with_capacity(CHUNK_SLOTS as usize));
        }
        let chunk = self.chunks.last_mut().expect("a chunk with room was just ensured");
        chunk.push(slot);
        self.len += 1;
        self.link(index, Queue::T1);
        index
    }

    /// Makes the slot the newest of another (or the same) list of its class.
    pub(crate) fn relink(&mut self, index: u32, queue: Queue) {
        self.unlink(index);
        self.link(index, queue);
    }

    /// Frees a slot. The last slot takes its index: returns that slot's key and its old index,
    /// which the caller's table still names.
    pub(crate) fn release(&mut self, index: u32) -> Option<(Key, u32)> {
        self.unlink(index);
        let last = self.len - 1;
        let chunk = self.chunks.last_mut().expect("a slot is in use");
        let moved = chunk.pop().expect("the last chunk is never empty");
        if chunk.is_empty() {
            self.chunks.pop();
        }
        self.len = last;
        if index == last {
            return None;
        }
        let key = moved.key;
        let (newer, older, class, queue) = (moved.newer, moved.older, moved.class, moved.queue);
        *self.slot_mut(index) = moved;
        match newer {
            NONE => self.list_mut(class, queue).newest = index,
            newer => self.slot_mut(newer).older = index,
        }
        match older {
            NONE => self.list_mut(class, queue).oldest = index,
            older => self.slot_mut(older).newer = index,
        }
        Some((key, last))
    }

    fn link(&mut self, index: u32, queue: Queue) {
        let slot = self.slot_mut(index);
        let (class, cost) = (slot.class, slot.cost);
        slot.queue = queue;
        let list = self.list_mut(class, queue);
        let second = list.newest;
        list.newest = index;
        list.entries += 1;
        list.bytes += u64::from(cost);
        match second {
            NONE => list.oldest = index,
            second => self.slot_mut(second).newer = index,
        }
        let slot = self.slot_mut(index);
        slot.newer = NONE;
        slot.older = second;
    }

    fn unlink(&mut self, index: u32) {
        let slot = self.slot(index);
        let (newer, older, class, queue) = (slot.newer, slot.older, slot.class, slot.queue);
        let cost = slot.cost;
        let list = self.list_mut(class, queue);
        list.entries -= 1;
        list.bytes -= u64::from(cost);
        match newer {
            NONE => list.newest = older,
            newer => self.slot_mut(newer).older = older,
        }
        match older {
            NONE => self.list_mut(class, queue).oldest = newer,
            older => self.slot_mut(older).newer = newer,
        }
    }
}

/// No slot.
const NONE: u32 = u32::MAX;
/// Slots of one allocation: 3 KiB with a value of one pointer.
pub(crate) const CHUNK_SLOTS: u32 = 64;
