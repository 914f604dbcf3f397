//! The entries of one shard: slots in a slab, linked by index into the lists of the policy.
//!
//! Invariants:
//! - The slab is dense: exactly the indices below `len` are in use. Freeing a slot moves the last
//!   one into the gap, so memory follows the number of entries down as well as up.
//! - Every slot is in exactly one list; a list's `bytes` and `entries` are sums over its slots.
//! - Slots live in chunks that are never copied: growing needs no second copy of the slab.

use crate::{Class, Key};

/// The four lists of ARC, each from newest to oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Resident, seen once lately.
    T1,
    /// Resident, seen again.
    T2,
    /// Ghosts of what was evicted from T1.
    B1,
    /// Ghosts of what was evicted from T2.
    B2,
}

/// One cached block, or the ghost of one.
pub(crate) struct Slot<V> {
    pub key: Key,
    /// None in a ghost.
    pub value: Option<V>,
    newer: u32,
    older: u32,
    /// Charge and overhead in bytes, while resident. A ghost keeps it: ARC sizes ghost lists by the
    /// entries that they would bring back.
    pub cost: u32,
    /// The shard's tick at which it became resident.
    pub born: u32,
    pub class: Class,
    queue: Queue,
    /// How often the clock's hand will pass it before it is evicted.
    pub lives: u8,
}

impl<V> Slot<V> {
    pub(crate) fn queue(&self) -> Queue {
        self.queue
    }
}

/// Parts of a new slot.
pub(crate) struct Fresh<V> {
    pub key: Key,
    pub value: V,
    pub cost: u32,
    pub born: u32,
    pub class: Class,
    pub lives: u8,
}

#[derive(Clone, Copy)]
pub(crate) struct List {
    newest: u32,
    oldest: u32,
    pub entries: u32,
    /// Sum of the entries' costs, also for ghosts.
    pub bytes: u64,
}

pub(crate) struct Slab<V> {
    chunks: Vec<Vec<Slot<V>>>,
    lists: [List; 4],
    len: u32,
}

impl<V> Slab<V> {
    pub(crate) fn new() -> Self {
        let empty = List { newest: NONE, oldest: NONE, entries: 0, bytes: 0 };
        Slab { chunks: Vec::new(), lists: [empty; 4], len: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[expect(clippy::indexing_slicing, reason = "four queues, four lists")]
    pub(crate) fn list(&self, queue: Queue) -> &List {
        &self.lists[queue as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "the table and the links name slots in use")]
    pub(crate) fn slot(&self, index: u32) -> &Slot<V> {
        &self.chunks[(index / CHUNK_SLOTS) as usize][(index % CHUNK_SLOTS) as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "the table and the links name slots in use")]
    pub(crate) fn slot_mut(&mut self, index: u32) -> &mut Slot<V> {
        &mut self.chunks[(index / CHUNK_SLOTS) as usize][(index % CHUNK_SLOTS) as usize]
    }

    /// The slot after this one, if it is in use.
    pub(crate) fn beside(&self, index: u32) -> Option<u32> {
        Some(index + 1).filter(|&next| next < self.len)
    }

    /// The entry that has been in the list longest.
    pub(crate) fn oldest(&self, queue: Queue) -> Option<u32> {
        Some(self.list(queue).oldest).filter(|&index| index != NONE)
    }

    /// Adds a slot as the newest of a list and returns its index.
    pub(crate) fn push(&mut self, fresh: Fresh<V>, queue: Queue) -> u32 {
        let index = self.len;
        assert!(index < NONE, "a shard holds fewer than 2^32 - 1 entries");
        if index.is_multiple_of(CHUNK_SLOTS) {
            self.chunks.push(Vec::with_capacity(CHUNK_SLOTS as usize));
        }
        let Fresh { key, value, cost, born, class, lives } = fresh;
        let (newer, older, value) = (NONE, NONE, Some(value));
        let chunk = self.chunks.last_mut().expect("a chunk with room was just ensured");
        chunk.push(Slot { key, value, newer, older, cost, born, class, queue, lives });
        self.len += 1;
        self.link(index, queue);
        index
    }

    /// Changes a slot and makes it the newest of another (or the same) list.
    pub(crate) fn relink(&mut self, index: u32, to: Queue, change: impl FnOnce(&mut Slot<V>)) {
        self.unlink(index);
        change(self.slot_mut(index));
        self.link(index, to);
    }

    /// Frees a slot. The last slot takes its index: returns that slot's key and its old index,
    /// under which the caller's table still knows it.
    pub(crate) fn release(&mut self, index: u32) -> Option<(Key, u32)> {
        self.unlink(index);
        self.len -= 1;
        let last = self.len;
        let chunk = self.chunks.last_mut().expect("a slot is in use");
        let moved = chunk.pop().expect("the last chunk is never empty");
        if chunk.is_empty() {
            self.chunks.pop();
        }
        if index == last {
            return None;
        }
        let (key, queue, newer, older) = (moved.key, moved.queue, moved.newer, moved.older);
        *self.slot_mut(index) = moved;
        self.set_older_of(newer, queue, index);
        self.set_newer_of(older, queue, index);
        Some((key, last))
    }

    /// Frees unused memory of the list of chunks; the chunks themselves went at once.
    pub(crate) fn shrink(&mut self) {
        self.chunks.shrink_to_fit();
    }

    fn link(&mut self, index: u32, queue: Queue) {
        let second = self.list(queue).newest;
        let slot = self.slot_mut(index);
        (slot.newer, slot.older, slot.queue) = (NONE, second, queue);
        let cost = slot.cost;
        self.set_older_of(NONE, queue, index);
        self.set_newer_of(second, queue, index);
        let list = self.list_mut(queue);
        list.entries += 1;
        list.bytes += u64::from(cost);
    }

    fn unlink(&mut self, index: u32) {
        let slot = self.slot(index);
        let (newer, older, queue, cost) = (slot.newer, slot.older, slot.queue, slot.cost);
        self.set_older_of(newer, queue, older);
        self.set_newer_of(older, queue, newer);
        let list = self.list_mut(queue);
        list.entries -= 1;
        list.bytes -= u64::from(cost);
    }

    /// Sets the slot that follows `index` on the way to the oldest; NONE is before the newest.
    fn set_older_of(&mut self, index: u32, queue: Queue, older: u32) {
        match index {
            NONE => self.list_mut(queue).newest = older,
            index => self.slot_mut(index).older = older,
        }
    }

    /// Sets the slot that follows `index` on the way to the newest; NONE is behind the oldest.
    fn set_newer_of(&mut self, index: u32, queue: Queue, newer: u32) {
        match index {
            NONE => self.list_mut(queue).oldest = newer,
            index => self.slot_mut(index).newer = newer,
        }
    }

    #[expect(clippy::indexing_slicing, reason = "four queues, four lists")]
    fn list_mut(&mut self, queue: Queue) -> &mut List {
        &mut self.lists[queue as usize]
    }
}

#[cfg(test)]
impl<V> Slab<V> {
    /// The slots of a list from newest to oldest; checks its links and sums on the way.
    pub(crate) fn checked(&self, queue: Queue) -> Vec<u32> {
        let list = self.list(queue);
        let (mut indices, mut bytes, mut newer, mut at) = (Vec::new(), 0, NONE, list.newest);
        while at != NONE {
            let slot = self.slot(at);
            assert_eq!((slot.newer, slot.queue), (newer, queue));
            bytes += u64::from(slot.cost);
            indices.push(at);
            (newer, at) = (at, slot.older);
        }
        assert_eq!((list.oldest, list.bytes), (newer, bytes));
        assert_eq!(list.entries as usize, indices.len());
        indices
    }
}

/// No slot.
const NONE: u32 = u32::MAX;
/// Slots of one allocation. Larger chunks leave more slack. Smaller ones need a list of chunks that
/// does not stay in the CPU's cache: 64 cost 10 ns more for each get than 512.
pub(crate) const CHUNK_SLOTS: u32 = 512;
