//! A store of nodes in memory that trusts no caller: it verifies checksums, refuses to read nodes
//! that were freed or never written, and panics at a double free. Reads complete in random order,
//! one at a time and only when no future can go on otherwise, unless the store is made instant.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use std::collections::{BTreeSet, HashMap};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use aquifer_blockio::Page;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::tree_node::{
    Form, NODE_CAPACITY_BYTES, NODE_HEADER_BYTES, Node, NodeBody, NodeOwner,
};
use aquifer_ondisk::{BlockPointer, DatasetId, FormatError, ObjectId, Place, Txg};

use crate::btree::{NodeSink, NodeStore, Packed, TreeError};

pub(crate) const OWNER: NodeOwner = NodeOwner { dataset: DatasetId(3), object: ObjectId(7) };

#[derive(Debug, PartialEq)]
pub(crate) enum MemError {
    Format(FormatError),
    Tree(TreeError),
    /// An injected fault.
    Fault,
}

impl From<FormatError> for MemError {
    fn from(error: FormatError) -> Self {
        MemError::Format(error)
    }
}

impl From<TreeError> for MemError {
    fn from(error: TreeError) -> Self {
        MemError::Tree(error)
    }
}

#[derive(Default)]
struct State {
    nodes: HashMap<Place, (BlockPointer, Page)>,
    next_sector: u64,
    /// Reads that wait to be let through, by ticket.
    waiting: Vec<(u64, Waker)>,
    done: BTreeSet<u64>,
    tickets: u64,
    in_flight_max: usize,
    reads: u64,
    writes: u64,
    /// Reads until the one that fails.
    fail_read: Option<u64>,
    fail_write: Option<u64>,
    /// A read of a missing node is an error, not a bug.
    lenient: bool,
    rng: Rng,
}

pub(crate) struct MemStore {
    state: Mutex<State>,
    txg: AtomicU64,
    instant: bool,
}

impl MemStore {
    /// Reads complete in random order.
    pub(crate) fn new() -> Self {
        let state = State { next_sector: 1, ..State::default() };
        MemStore { state: Mutex::new(state), txg: AtomicU64::new(1), instant: false }
    }

    /// Reads complete at once.
    pub(crate) fn instant() -> Self {
        MemStore { instant: true, ..Self::new() }
    }

    /// For tests that follow wild pointers: a read of a missing node is an error.
    pub(crate) fn lenient() -> Self {
        let store = Self::instant();
        store.state.lock().unwrap().lenient = true;
        store
    }

    pub(crate) fn next_txg(&self) {
        self.txg.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn live(&self) -> BTreeSet<Place> {
        self.state.lock().unwrap().nodes.keys().copied().collect()
    }

    /// Nodes written in this txg that are not freed.
    pub(crate) fn live_of(&self, txg: Txg) -> Vec<BlockPointer> {
        let state = self.state.lock().unwrap();
        let pointers = state.nodes.values().map(|(pointer, _)| *pointer);
        pointers.filter(|pointer| pointer.birth == txg).collect()
    }

    pub(crate) fn fail_read_after(&self, reads: Option<u64>) {
        self.state.lock().unwrap().fail_read = reads;
    }

    pub(crate) fn fail_write_after(&self, writes: Option<u64>) {
        self.state.lock().unwrap().fail_write = writes;
    }

    /// Reads and writes since the last call, and the most reads in flight at once ever.
    pub(crate) fn take_counts(&self) -> (u64, u64, usize) {
        let mut state = self.state.lock().unwrap();
        let counts = (state.reads, state.writes, state.in_flight_max);
        (state.reads, state.writes) = (0, 0);
        counts
    }

    pub(crate) fn sector(&self, pointer: &BlockPointer) -> Page {
        let state = self.state.lock().unwrap();
        let (stored, page) = state.nodes.get(&pointer.places[0]).expect("a live node");
        assert_eq!(stored, pointer, "a pointer of another life");
        assert!(pointer.verify(page.as_slice()));
        page.clone()
    }

    /// Puts any bytes behind a valid pointer.
    pub(crate) fn plant(&self, kind: BlockKind, level: u8, bytes: &[u8]) -> BlockPointer {
        self.write_node(kind, (level, false), OWNER, Page::with_prefix(bytes)).unwrap()
    }

    /// Forgets reads whose futures are gone.
    pub(crate) fn forget_reads(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting.clear();
        state.done.clear();
    }

    /// Lets one waiting read through; `false` if there is none.
    pub(crate) fn complete_one(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        let count = state.waiting.len();
        if count == 0 {
            return false;
        }
        let at = state.rng.below(count as u64) as usize;
        let (ticket, waker) = state.waiting.swap_remove(at);
        state.done.insert(ticket);
        drop(state);
        waker.wake();
        true
    }

    async fn wait(&self) {
        let mut ticket = None;
        poll_fn(|cx| {
            let mut state = self.state.lock().unwrap();
            if let Some(ticket) = ticket {
                return match state.done.remove(&ticket) {
                    true => Poll::Ready(()),
                    false => {
                        let mine = state.waiting.iter_mut().find(|(other, _)| *other == ticket);
                        mine.expect("a read that waits").1 = cx.waker().clone();
                        Poll::Pending
                    }
                };
            }
            state.tickets += 1;
            ticket = Some(state.tickets);
            let waiter = (state.tickets, cx.waker().clone());
            state.waiting.push(waiter);
            state.in_flight_max = state.in_flight_max.max(state.waiting.len());
            Poll::Pending
        })
        .await
    }

    /// Runs a future to its end, completing reads only when it cannot go on otherwise.
    pub(crate) fn run<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        let mut output = None;
        self.drive(pin!(async { output = Some(future.await) }));
        output.expect("driven to its end")
    }

    /// One loop for all futures: a copy of it for each took a seventh of what these tests compile.
    fn drive(&self, mut future: Pin<&mut (dyn Future<Output = ()> + Send)>) {
        struct Flag(AtomicBool);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        loop {
            if flag.0.swap(false, Ordering::Relaxed) {
                if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    return;
                }
            } else {
                assert!(self.complete_one(), "a lost wake-up: nothing is in flight");
            }
        }
    }
}

fn count_down(counter: &mut Option<u64>) -> Result<(), MemError> {
    match counter {
        Some(0) => Err(MemError::Fault),
        Some(left) => {
            *left -= 1;
            Ok(())
        }
        None => Ok(()),
    }
}

impl NodeStore for MemStore {
    type Error = MemError;

    async fn read(&self, pointer: &BlockPointer) -> Result<Page, MemError> {
        if !self.instant {
            self.wait().await;
        }
        {
            let mut state = self.state.lock().unwrap();
            state.reads += 1;
            count_down(&mut state.fail_read)?;
            let found = state.nodes.get(&pointer.places[0]);
            if state.lenient && found.is_none_or(|(stored, _)| stored != pointer) {
                return Err(MemError::Fault);
            }
        }
        Ok(self.sector(pointer))
    }
}

impl NodeSink for MemStore {
    fn txg(&self) -> Txg {
        Txg(self.txg.load(Ordering::Relaxed))
    }

    fn write_node(
        &self,
        kind: BlockKind,
        (level, _): (u8, bool),
        owner: NodeOwner,
        page: Page,
    ) -> Result<BlockPointer, MemError> {
        assert_eq!(owner, OWNER);
        let mut state = self.state.lock().unwrap();
        count_down(&mut state.fail_write)?;
        state.writes += 1;
        let place = Place::new(1, state.next_sector);
        state.next_sector += 1;
        let pointer = BlockPointer {
            places: [place, Place::NULL],
            logical_bytes: 4096,
            stored_bytes: 4096,
            kind,
            level,
            compression: 0,
            birth: self.txg(),
            written: self.txg(),
            checksum: checksum128(page.as_slice()),
        };
        state.nodes.insert(place, (pointer, page));
        Ok(pointer)
    }

    fn free_node(&self, _: NodeOwner, pointer: &BlockPointer) {
        let mut state = self.state.lock().unwrap();
        let freed = state.nodes.remove(&pointer.places[0]);
        assert_eq!(freed.map(|(stored, _)| stored), Some(*pointer), "a double or wrong free");
    }
}

/// A store that keeps freed nodes, as if a snapshot covered them.
pub(crate) struct Keeping<'a>(pub(crate) &'a MemStore);

impl NodeStore for Keeping<'_> {
    type Error = MemError;
    async fn read(&self, pointer: &BlockPointer) -> Result<Page, MemError> {
        self.0.read(pointer).await
    }
}

impl NodeSink for Keeping<'_> {
    fn txg(&self) -> Txg {
        self.0.txg()
    }
    fn write_node(
        &self,
        kind: BlockKind,
        node: (u8, bool),
        owner: NodeOwner,
        page: Page,
    ) -> Result<BlockPointer, MemError> {
        self.0.write_node(kind, node, owner, page)
    }
    fn free_node(&self, _: NodeOwner, _: &BlockPointer) {}
}

/// xorshift64*.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Default for Rng {
    fn default() -> Self {
        Rng(0x9E37_79B9_7F4A_7C15)
    }
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..8).for_each(|_| assert_ne!(rng.next(), 0));
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The result of a full walk.
pub(crate) struct Shape<F: Form> {
    pub(crate) entries: Vec<F::Entry>,
    pub(crate) nodes: BTreeSet<Place>,
    /// Bytes used in each leaf, in order.
    pub(crate) leaf_bytes: Vec<usize>,
    /// Entries in each leaf, in order.
    pub(crate) leaf_counts: Vec<usize>,
    /// Nodes under a quarter full that have a sibling, off the right edge.
    pub(crate) light: usize,
    pub(crate) levels: u8,
}

impl<F: Form> Shape<F> {
    pub(crate) fn leaf_fill(&self) -> f64 {
        let bytes: usize = self.leaf_bytes.iter().sum();
        bytes as f64 / (self.leaf_bytes.len().max(1) * NODE_CAPACITY_BYTES) as f64
    }
}

/// Walks a whole tree and checks every rule of its shape.
pub(crate) fn check_tree<F: Packed>(store: &MemStore, root: Option<BlockPointer>) -> Shape<F> {
    let mut shape = Shape {
        entries: Vec::new(),
        nodes: BTreeSet::new(),
        leaf_bytes: Vec::new(),
        leaf_counts: Vec::new(),
        light: 0,
        levels: root.map_or(0, |root| root.level + 1),
    };
    if let Some(root) = root {
        let first = check_node::<F>(store, &root, (None, None), (true, true), &mut shape);
        assert!(first.is_some());
        if root.level > 0 {
            let body = Node::<F>::decode(store.sector(&root).as_slice(), &root).unwrap().body;
            assert!(
                !matches!(body, NodeBody::Inner(list) if list.len() < 2),
                "a root of one child"
            );
        }
    }
    let keys: Vec<F::Key> = shape.entries.iter().map(F::key).collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "order");
    shape
}

/// Returns the first key below the node.
fn check_node<F: Packed>(
    store: &MemStore,
    pointer: &BlockPointer,
    (lower, upper): (Option<F::Key>, Option<F::Key>),
    (leftmost, rightmost): (bool, bool),
    shape: &mut Shape<F>,
) -> Option<F::Key> {
    assert!(shape.nodes.insert(pointer.places[0]), "a node referred to twice");
    let page = store.sector(pointer);
    let node = Node::<F>::decode(page.as_slice(), pointer).unwrap();
    assert_eq!((node.level, node.owner, node.written), (pointer.level, OWNER, pointer.written));
    let inside = |key: F::Key| {
        lower.is_none_or(|lower| lower <= key) && upper.is_none_or(|upper| key < upper)
    };
    match node.body {
        NodeBody::Leaf(entries) => {
            assert!(!entries.is_empty(), "an empty leaf");
            assert!(entries.iter().all(|entry| inside(F::key(entry))), "a key out of range");
            shape.leaf_bytes.push(entries.iter().map(F::entry_bytes).sum());
            shape.leaf_counts.push(entries.len());
            let first = entries.first().map(F::key);
            shape.entries.extend(entries);
            first
        }
        NodeBody::Inner(children) => {
            assert!(!children.is_empty(), "an inner node without children");
            let mut first = None;
            for (at, (key, child)) in children.iter().enumerate() {
                assert_eq!(child.level + 1, pointer.level);
                assert!(child.birth <= pointer.birth, "a node older than what it points at");
                let edges = (leftmost && at == 0, rightmost && at + 1 == children.len());
                let low = if at == 0 { lower } else { Some(*key) };
                let high = children.get(at + 1).map_or(upper, |(next, _)| Some(*next));
                let found = check_node::<F>(store, child, (low, high), edges, shape).unwrap();
                if edges.0 {
                    assert!(*key <= found, "a bound above the first key");
                } else {
                    assert_eq!(*key, found, "a child's key is its first entry's");
                }
                let used = store.sector(child);
                let used = u16::from_le_bytes(used[10..12].try_into().unwrap());
                let light = usize::from(used) < NODE_CAPACITY_BYTES / 4;
                shape.light += usize::from(light && children.len() > 1 && !edges.1);
                first = first.or(Some(found));
            }
            first
        }
    }
}

const _: () = assert!(NODE_HEADER_BYTES == 64, "`used_bytes` stands at 10");
