//! The table of tasks: which are ready, and which runs next.
//!
//! Invariants:
//! - One thread polls; wakers may be called from anywhere but only mark a task as ready.
//! - A task is in the ready list at most once. A wake for a task that has ended does nothing, even
//!   if its slot serves another task by then: keys carry a generation.
//! - No future and no waker is dropped, polled or called while the table is locked, because each of
//!   them may call the table.
//! - A closed table (the power is off) holds no task and takes none.

use std::sync::Arc;
use std::task::{Wake, Waker};

use aquifer_blockio::world::Task;
use parking_lot::Mutex;

use crate::rng::Rng;

#[cfg(test)]
mod tests;

/// Names one task for the whole life of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) slot: usize,
    generation: u64,
}

/// The polled part: taken out of the table during the poll.
pub(crate) struct Body {
    /// `None` for the root, which lives on the stack of `run_until`.
    pub(crate) future: Option<Task>,
    pub(crate) waker: Waker,
}

/// The tasks of one machine.
pub(crate) struct Tasks(Mutex<Table>);

struct Table {
    slots: Vec<Slot>,
    free: Vec<usize>,
    ready: Vec<Key>,
    closed: bool,
}

struct Slot {
    generation: u64,
    name: &'static str,
    live: bool,
    queued: bool,
    body: Option<Body>,
}

impl Tasks {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Tasks(Mutex::new(Table {
            slots: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            closed: false,
        })))
    }

    /// Adds a task, ready at once. A closed table drops it and returns `None`.
    pub(crate) fn add(self: &Arc<Self>, name: &'static str, future: Option<Task>) -> Option<Key> {
        let mut table = self.0.lock();
        if table.closed {
            drop(table);
            drop(future);
            return None;
        }
        let slot = table.free.pop().unwrap_or(table.slots.len());
        if slot == table.slots.len() {
            table.slots.push(Slot { generation: 0, name, live: false, queued: false, body: None });
        }
        let place = table.slots.get_mut(slot)?;
        let key = Key { slot, generation: place.generation };
        let waker = Waker::from(Arc::new(TaskWaker { key, tasks: Arc::clone(self) }));
        place.name = name;
        place.live = true;
        place.queued = true;
        place.body = Some(Body { future, waker });
        table.ready.push(key);
        Some(key)
    }

    /// Takes one of the ready tasks, at random.
    pub(crate) fn pick(&self, rng: &mut Rng) -> Option<(Key, Body)> {
        let mut table = self.0.lock();
        loop {
            let index = match table.ready.len() {
                0 => return None,
                1 => 0,
                len => rng.index(len),
            };
            let key = table.ready.swap_remove(index);
            if let Some(slot) = table.slot(key) {
                slot.queued = false;
                if let Some(body) = slot.body.take() {
                    return Some((key, body));
                }
            }
        }
    }

    /// Gives back a task that is not done.
    pub(crate) fn put_back(&self, key: Key, body: Body) {
        let mut table = self.0.lock();
        match table.slot(key) {
            Some(slot) => slot.body = Some(body),
            None => {
                drop(table);
                drop(body);
            }
        }
    }

    /// Ends a task: its key is void from here on.
    pub(crate) fn end(&self, key: Key) {
        let mut table = self.0.lock();
        let Some(slot) = table.slot(key) else { return };
        slot.generation += 1;
        slot.live = false;
        slot.queued = false;
        let body = slot.body.take();
        table.free.push(key.slot);
        drop(table);
        drop(body);
    }

    /// Names of all tasks that have not ended, in the order of their slots.
    pub(crate) fn pending(&self) -> Vec<&'static str> {
        self.0.lock().slots.iter().filter(|slot| slot.live).map(|slot| slot.name).collect()
    }

    /// Drops every task and takes no new one until `reopen`.
    pub(crate) fn close(&self) {
        let mut table = self.0.lock();
        table.closed = true;
        table.ready.clear();
        let mut bodies = Vec::new();
        for slot in &mut table.slots {
            slot.generation += 1;
            slot.live = false;
            slot.queued = false;
            bodies.extend(slot.body.take());
        }
        table.free = (0..table.slots.len()).rev().collect();
        drop(table);
        drop(bodies);
    }

    pub(crate) fn reopen(&self) {
        self.0.lock().closed = false;
    }

    fn wake(&self, key: Key) {
        let mut table = self.0.lock();
        let Some(slot) = table.slot(key) else { return };
        if slot.live && !slot.queued {
            slot.queued = true;
            table.ready.push(key);
        }
    }
}

impl Table {
    fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        self.slots.get_mut(key.slot).filter(|slot| slot.generation == key.generation)
    }
}

/// Marks one task as ready.
struct TaskWaker {
    key: Key,
    tasks: Arc<Tasks>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.tasks.wake(self.key);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.tasks.wake(self.key);
    }
}
