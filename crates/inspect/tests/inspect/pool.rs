//! A pool made by hand from the codecs of the format. A hook at every structure makes it wrong in
//! one place and right in all others.

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::Disk;
use aquifer_blockio::buf::bytes_of;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::codec::{checksum64, checksum128};
use aquifer_ondisk::config::{Label, LeafConfig, PoolConfig, Redundancy, VdevClass, VdevConfig};
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::layout::{CONFIG_OFFSET, Geometry, RING_OFFSET, label_sector};
use aquifer_ondisk::log_batch::{BatchHeader, LogRecord};
use aquifer_ondisk::pool_root::{LogRoot, TREES};
use aquifer_ondisk::tree_node::{Form, Node, NodeBody, NodeOwner};
use aquifer_ondisk::txg_record::{RecordPointer, SlotEntry, TxgRecord};
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::uberblock::{LogEnd, Uberblock};
use aquifer_ondisk::{BlockPointer, Guid, Place, Txg};

use crate::memory::MemoryDisk;

mod commit;

pub const POOL: Guid = Guid(0x7001);
pub const SECTORS: u64 = 65 * SEGMENT_SECTORS;
pub const CHAIN: u64 = 77;
pub const SESSION: u64 = 3;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    Single,
    Mirror,
    TwoSingles,
    /// A mirror and a log vdev of one disk.
    WithLog,
}

/// A node about to be written.
pub struct NodeDraft {
    pub kind: BlockKind,
    pub level: u8,
    /// How many nodes of this kind and level were written before.
    pub nth: usize,
    pub bytes: Vec<u8>,
    /// The checksum is filled in after the hook.
    pub pointer: BlockPointer,
}

type Hook<T> = Box<dyn FnMut(&mut T)>;

/// Each is called with the structure that is about to be written.
pub struct Hooks {
    pub node: Hook<NodeDraft>,
    pub bitmap: Hook<(SlotEntry, Vec<u8>)>,
    pub entry: Hook<SlotEntry>,
    pub record: Hook<TxgRecord>,
    pub record_bytes: Hook<Vec<u8>>,
    pub pointer: Hook<RecordPointer>,
    pub uberblock: Hook<Uberblock>,
    pub batch: Hook<BatchHeader>,
}

impl Default for Hooks {
    fn default() -> Self {
        Hooks {
            node: Box::new(|_| {}),
            bitmap: Box::new(|_| {}),
            entry: Box::new(|_| {}),
            record: Box::new(|_| {}),
            record_bytes: Box::new(|_| {}),
            pointer: Box::new(|_| {}),
            uberblock: Box::new(|_| {}),
            batch: Box::new(|_| {}),
        }
    }
}

pub struct HandPool {
    pub disks: Vec<Arc<MemoryDisk>>,
    pub leaves: Vec<(u16, Guid)>,
    pub config: PoolConfig,
    pub geometries: Vec<Geometry>,
    pub hooks: Hooks,
    pub txg: Txg,
    pub allocated: Vec<Run>,
    pub freed: Vec<Run>,
    /// Sectors in use, by vdev.
    pub used: Vec<Vec<bool>>,
    pub entries: BTreeMap<(u16, u32), SlotEntry>,
    pub records: Vec<Place>,
    pub record_offset: u64,
    pub previous: Option<RecordPointer>,
    pub trees: [Option<BlockPointer>; TREES],
    pub log: LogRoot,
    pub log_offset: u64,
    pub log_previous: u128,
    pub log_sequence: u64,
    pub uberblock: Uberblock,
    /// The next data goes here, by vdev.
    pub cursor: Vec<u64>,
    pub vdev: u16,
    nodes: BTreeMap<(u8, u8), usize>,
    /// Metaslabs whose slot the next commit leaves as it is.
    pub skip_slots: Vec<(u16, u32)>,
    /// Neighbours become one run, as the engine does it.
    pub merge_runs: bool,
}

fn vdev(guid: u64, class: VdevClass, leaves: &[(u16, Guid)], index: u16) -> VdevConfig {
    let own: Vec<LeafConfig> = leaves
        .iter()
        .filter(|(vdev, _)| *vdev == index)
        .map(|(_, guid)| LeafConfig::new(*guid, SECTORS, format!("disk{:x}", guid.0)))
        .collect();
    let redundancy = match own.len() {
        1 => Redundancy::Single,
        _ => Redundancy::Mirror,
    };
    let segments = SECTORS / SEGMENT_SECTORS - 1;
    let new = VdevConfig::new(Guid(guid), class, redundancy, segments, Txg(1));
    VdevConfig { leaves: own, ..new }
}

impl HandPool {
    /// Labels, reserved segments, no txg yet.
    pub fn new(shape: Shape) -> HandPool {
        let vdevs: &[u16] = match shape {
            Shape::Single => &[0],
            Shape::Mirror => &[0, 0],
            Shape::TwoSingles => &[0, 1],
            Shape::WithLog => &[0, 0, 1],
        };
        let leaves: Vec<(u16, Guid)> = (0xd0..).zip(vdevs).map(|(g, v)| (*v, Guid(g))).collect();
        let disks: Vec<_> = leaves
            .iter()
            .map(|(_, guid)| MemoryDisk::new(&format!("disk{:x}", guid.0), SECTORS))
            .collect();
        let count = 1 + *vdevs.last().unwrap();
        let class = |index| match shape {
            Shape::WithLog if index == 1 => VdevClass::Log,
            _ => VdevClass::Data,
        };
        let config = PoolConfig {
            config_sequence: 1,
            pool_guid: POOL,
            name: "tank".into(),
            features_read: vec![],
            features_write: vec![],
            vdevs: (0..count)
                .map(|at| vdev(0x50 + u64::from(at), class(at), &leaves, at))
                .collect(),
            spares: Vec::new(),
            caches: Vec::new(),
        };
        let geometry = |(at, config): (u16, &VdevConfig)| Geometry::of(at, config);
        let geometries: Vec<Geometry> = (0..).zip(&config.vdevs).map(geometry).collect();
        let mut pool = HandPool {
            used: geometries.iter().map(|g| vec![false; g.sectors() as usize]).collect(),
            cursor: vec![8 * SEGMENT_SECTORS; geometries.len()],
            disks,
            leaves,
            config,
            geometries,
            hooks: Hooks::default(),
            txg: Txg(10),
            allocated: vec![],
            freed: vec![],
            entries: BTreeMap::new(),
            records: vec![],
            record_offset: 0,
            previous: None,
            trees: [None; TREES],
            log: LogRoot::default(),
            log_offset: 0,
            log_previous: 0,
            log_sequence: 1,
            uberblock: first_uberblock(),
            vdev: 0,
            nodes: BTreeMap::new(),
            skip_slots: vec![],
            merge_runs: false,
        };
        pool.lay_out(shape);
        pool
    }

    fn lay_out(&mut self, shape: Shape) {
        for geometry in self.data_geometries() {
            for index in 0..geometry.metaslabs() {
                for (start, count) in geometry.reserved(index) {
                    self.used[usize::from(geometry.vdev)][start as usize..][..count as usize]
                        .fill(true);
                }
            }
        }
        let copies = self.copies();
        self.records =
            (0..2 * copies).map(|at| Place::new(0, (2 + at) * SEGMENT_SECTORS)).collect();
        for place in self.records.clone() {
            self.take_run(Run::new(place, SEGMENT_SECTORS));
        }
        let log_vdev = u16::from(shape == Shape::WithLog);
        let log = Run::new(Place::new(log_vdev, 6 * SEGMENT_SECTORS), 2 * SEGMENT_SECTORS);
        if log_vdev == 0 {
            self.take_run(log);
        }
        self.log = LogRoot {
            chain: CHAIN,
            head_sequence: 1,
            head_place: log.place,
            previous_checksum: 0,
            segments: vec![log],
        };
        self.write_labels();
    }

    /// The log's segments on data vdevs; a pool with a log vdev has none here.
    pub fn log_home(&self) -> Vec<Run> {
        let data =
            |run: &&Run| self.config.vdevs[usize::from(run.place.vdev())].class == VdevClass::Data;
        self.log.segments.iter().filter(data).copied().collect()
    }

    pub fn write_labels(&mut self) {
        for (at, (_, guid)) in self.leaves.clone().into_iter().enumerate() {
            for index in 0..4u8 {
                let label = Label { leaf_guid: guid, index, config: self.config.clone() };
                let sector = label_sector(index.into(), SECTORS) + CONFIG_OFFSET;
                self.disks[at].put(sector, &label.encode().unwrap());
            }
        }
    }

    pub fn data_geometries(&self) -> Vec<Geometry> {
        let data = self.config.vdevs.iter().map(|vdev| vdev.class == VdevClass::Data);
        self.geometries.iter().zip(data).filter(|(_, data)| *data).map(|(g, _)| *g).collect()
    }

    /// As the engine counts: records and nodes twice if any vdev for data is without redundancy.
    pub fn copies(&self) -> u64 {
        u64::from(self.data_geometries().iter().map(|g| g.copies).max().unwrap())
    }

    pub fn arcs(&self) -> Vec<Arc<dyn Disk>> {
        self.disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect()
    }

    /// The disks of a vdev.
    pub fn sides(&self, vdev: u16) -> Vec<Arc<MemoryDisk>> {
        let own = self.leaves.iter().zip(&self.disks).filter(|((of, _), _)| *of == vdev);
        own.map(|(_, disk)| disk.clone()).collect()
    }

    pub fn put(&self, place: Place, bytes: &[u8]) {
        for disk in self.sides(place.vdev()) {
            disk.put(place.sector(), bytes);
        }
    }

    pub fn bytes_at(&self, place: Place, sectors: u64) -> Vec<u8> {
        let disk = &self.sides(place.vdev())[0];
        let pages: Vec<_> = (0..sectors).map(|at| disk.page(place.sector() + at)).collect();
        bytes_of(&pages)
    }

    // ---- space --------------------------------------------------------------------------------

    fn take_run(&mut self, run: Run) {
        let used = &mut self.used[usize::from(run.place.vdev())];
        used[run.place.sector() as usize..][..run.sectors as usize].fill(true);
        self.allocated.push(run);
    }

    pub fn take(&mut self, sectors: u64) -> Place {
        let cursor = &mut self.cursor[usize::from(self.vdev)];
        // Extents do not cross segments.
        if *cursor / SEGMENT_SECTORS != (*cursor + sectors - 1) / SEGMENT_SECTORS {
            *cursor = cursor.next_multiple_of(SEGMENT_SECTORS);
        }
        let used = &self.used[usize::from(self.vdev)];
        while used[*cursor as usize..][..sectors as usize].contains(&true) {
            *cursor += 1;
        }
        let place = Place::new(self.vdev, *cursor);
        *cursor += sectors;
        self.take_run(Run::new(place, sectors));
        place
    }

    pub fn free(&mut self, run: Run) {
        let used = &mut self.used[usize::from(run.place.vdev())];
        used[run.place.sector() as usize..][..run.sectors as usize].fill(false);
        self.freed.push(run);
    }

    // ---- trees --------------------------------------------------------------------------------

    pub fn data(&mut self, page: u64, contents: &[u8]) -> Extent {
        let place = self.take(contents.len() as u64);
        self.data_at(page, contents, place)
    }

    pub fn data_at(&mut self, page: u64, contents: &[u8], place: Place) -> Extent {
        let mut sums = vec![];
        for (at, byte) in (0..).zip(contents) {
            let bytes = [*byte; 4096];
            sums.push(checksum64(&bytes));
            self.put(Place(place.0 + at), &bytes);
        }
        Extent {
            page,
            pages: sums.len() as u8,
            birth: self.txg,
            written: self.txg,
            place,
            counted: false,
            stored: Stored::Plain(sums.into_iter().collect()),
        }
    }

    pub fn node<F: Form>(
        &mut self,
        owner: NodeOwner,
        level: u8,
        body: NodeBody<F>,
    ) -> BlockPointer {
        let node = Node::<F> { level, owner, written: self.txg, body };
        let pool_wide =
            !matches!(F::KIND, BlockKind::Extents | BlockKind::Objects | BlockKind::Directory);
        let twice = self.copies() == 2 && (level > 0 || pool_wide);
        let nth = self.nodes.entry((F::KIND as u8, level)).or_default();
        *nth += 1;
        let nth = *nth - 1;
        let pointer = BlockPointer {
            places: [self.take(1), if twice { self.take(1) } else { Place::NULL }],
            logical_bytes: 4096,
            stored_bytes: 4096,
            kind: F::KIND,
            level,
            compression: 0,
            birth: self.txg,
            written: self.txg,
            checksum: 0,
        };
        let mut draft =
            NodeDraft { kind: F::KIND, level, nth, bytes: node.encode().unwrap(), pointer };
        (self.hooks.node)(&mut draft);
        draft.pointer.checksum = checksum128(&draft.bytes);
        for place in draft.pointer.copies() {
            if self.sides(place.vdev()).is_empty() || place.sector() >= SECTORS {
                continue;
            }
            self.put(place, &draft.bytes);
        }
        draft.pointer
    }

    /// A tree of these entries, that many in a node.
    pub fn tree<F: Form>(
        &mut self,
        owner: NodeOwner,
        entries: Vec<F::Entry>,
        fanout: usize,
    ) -> Option<BlockPointer> {
        let mut below: Vec<(F::Key, BlockPointer)> = entries
            .chunks(fanout)
            .map(|chunk| {
                let body = NodeBody::Leaf(chunk.to_vec());
                (F::key(&chunk[0]), self.node::<F>(owner, 0, body))
            })
            .collect();
        let mut level = 0;
        while below.len() > 1 {
            level += 1;
            below = below
                .chunks(fanout)
                .map(|chunk| {
                    let body = NodeBody::Inner(chunk.to_vec());
                    (chunk[0].0, self.node::<F>(owner, level, body))
                })
                .collect();
        }
        below.pop().map(|(_, pointer)| pointer)
    }

    // ---- log ----------------------------------------------------------------------------------

    /// Appends a batch; each record has as many payload pages as it has sums.
    pub fn batch(&mut self, mut records: Vec<LogRecord>, session: u64, mark: u64) -> Run {
        let mut payload = Vec::new();
        for record in &mut records {
            for sum in &mut record.page_sums {
                let page = [*sum as u8; 4096];
                *sum = checksum64(&page);
                payload.extend_from_slice(&page);
            }
        }
        let mut header = BatchHeader {
            pool_guid: POOL,
            place: Place(self.log.segments[0].place.0 + self.log_offset),
            chain: CHAIN,
            session,
            sequence: self.log_sequence,
            previous: self.log_previous,
            mark,
            records,
        };
        let place = header.place;
        (self.hooks.batch)(&mut header);
        let (mut bytes, sum) = header.encode().unwrap();
        bytes.extend(payload);
        self.put(place, &bytes);
        let sectors = bytes.len() as u64 / 4096;
        self.log_offset += sectors;
        self.log_previous = sum;
        self.log_sequence += 1;
        Run::new(place, sectors)
    }
}

/// Where an uberblock lies.
pub fn ring_sector(label: u8, sequence: u64) -> u64 {
    label_sector(label.into(), SECTORS) + RING_OFFSET + sequence % 64
}

fn first_uberblock() -> Uberblock {
    Uberblock {
        pool_guid: POOL,
        leaf_guid: Guid(0),
        label: 0,
        clean: false,
        sequence: 100,
        txg: Txg(0),
        wall_ns: 5,
        session: SESSION,
        session_first_txg: Txg(10),
        config_sequence: 1,
        mark: 0,
        log_end: LogEnd { chain: CHAIN, sequence: 0, checksum: 0 },
        restart_chain: 0,
        floor: Txg(0),
        roots: [None; 3],
        outdated: vec![],
        host: None,
        counted: 0,
    }
}
