//! The accesses of guests, on disks that are copy-on-write trees.

use std::collections::{BTreeSet, HashMap};

use aquifer_arc::{Class, Key};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::policies::Policy;

#[derive(Clone, Copy, Debug)]
pub enum Workload {
    /// Every page of a disk as likely as any other.
    Uniform,
    /// Pages of one disk by Zipf's law (exponent 0.9), scattered.
    Zipf,
    /// Regions of 256 KiB of one disk by Zipf's law (exponent 0.9), scattered.
    ZipfRegions,
    /// Half of the reads on another disk, page by page: a backup. Only the guest's reads count.
    ZipfAndScan,
    /// Four backups beside it, each as fast as the guest.
    ZipfAndFourScans,
    /// The scan is read ahead, 16 pages at a time.
    ZipfAndScanAhead,
    /// The scan reads the 8 pages of each decompressed extent of 32 KiB.
    ZipfAndScanExtents,
    /// 6000 pages in a row, which fit, beside three scans; their leaves hardly matter.
    HotAndScans,
    /// Zipf by regions whose ranks move every 200,000 reads.
    Phases,
    /// Half uniform on one disk, half Zipf on the first 256 MiB of another.
    TwoGuests,
    /// Zipf by regions, half writes; a txg every 20,000 accesses.
    ReadWrite,
    /// Zipf by regions, half writes, beside two scans; a txg every 20,000 accesses.
    ReadWriteAndScan,
    /// Again and again over 1.25 times 32 MiB of data.
    Loop,
}

use Workload as W;

pub const WORKLOADS: [Workload; 13] = [
    W::Uniform,
    W::Zipf,
    W::ZipfRegions,
    W::ZipfAndScan,
    W::ZipfAndFourScans,
    W::ZipfAndScanAhead,
    W::ZipfAndScanExtents,
    W::HotAndScans,
    W::Phases,
    W::TwoGuests,
    W::ReadWrite,
    W::ReadWriteAndScan,
    W::Loop,
];

/// Device reads for each client read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub inner: f64,
    pub leaf: f64,
    pub data: f64,
}

impl Outcome {
    pub fn device_reads(&self) -> f64 {
        self.inner + self.leaf + self.data
    }
}

/// Runs `accesses`, the first third of which warms up.
pub fn run(workload: Workload, policy: &mut dyn Policy, accesses: u64) -> Outcome {
    let rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let (written, dirty) = Default::default();
    let mut world = World { policy, rng, written, dirty, txg: 2, missed: [0; 3] };
    let (mut reads, mut counted) = (0_u64, [0_u64; 3]);
    for step in 0..accesses {
        let before = world.missed;
        let access = world.step(workload, step);
        if step < accesses / 3 || access == Access::Aside {
            continue;
        }
        reads += u64::from(access == Access::Read);
        for (sum, (after, before)) in counted.iter_mut().zip(world.missed.iter().zip(before)) {
            *sum += after - before;
        }
    }
    let [inner, leaf, data] = counted.map(|count| count as f64 / reads as f64);
    Outcome { inner, leaf, data }
}

/// Disk, level (0 data, 1 leaf, 2 to 4 inner), number.
type Block = (u64, u64, u64);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// By the guest.
    Read,
    /// By the guest. The sync's reads count too.
    Write,
    /// By a backup: not counted.
    Aside,
}

struct World<'a> {
    policy: &'a mut dyn Policy,
    rng: Xoshiro256PlusPlus,
    /// Txg of the blocks that were rewritten.
    written: HashMap<Block, u64>,
    dirty: BTreeSet<Block>,
    txg: u64,
    /// Reads from the device: inner nodes, leaves, data.
    missed: [u64; 3],
}

impl World<'_> {
    fn step(&mut self, workload: Workload, step: u64) -> Access {
        match (workload, step % 2, step % 4, step % 5) {
            (W::ZipfAndScan, 1, ..) => self.scan(1, step / 2),
            (W::ZipfAndFourScans, _, _, disk @ 1..) => self.scan(disk, step / 5),
            (W::ZipfAndScanAhead, 1, ..) => {
                let page = step / 2;
                if page.is_multiple_of(16) {
                    (page + 16..page + 32).for_each(|ahead| self.read(1, ahead));
                }
                self.scan(1, page)
            }
            (W::ZipfAndScanExtents, 1, ..) => {
                let page = step / 2;
                self.visit((1, 1, page / LEAF_PAGES), 4096);
                self.visit((1, 0, page / 8), 32 << 10);
                Access::Aside
            }
            (W::HotAndScans, _, scan @ 1.., _) => self.scan(1, step / 4 * 3 + scan),
            (W::ReadWriteAndScan, _, 2.., _) => self.scan(1, step / 2),
            (W::ReadWrite | W::ReadWriteAndScan, 1, ..) => {
                let page = self.page(workload, step);
                self.write(0, page);
                if step % 20_000 == 19_997 {
                    self.sync();
                }
                Access::Write
            }
            (W::TwoGuests, 1, ..) => {
                let page = self.zipf(1 << 16, 0.8, 0);
                self.read(1, page);
                Access::Read
            }
            _ => {
                let page = self.page(workload, step);
                self.read(0, page);
                Access::Read
            }
        }
    }

    /// The next page of the first disk that the guest wants.
    fn page(&mut self, workload: Workload, step: u64) -> u64 {
        match workload {
            W::Uniform | W::TwoGuests => self.pick(DISK_PAGES),
            W::Zipf => self.zipf(DISK_PAGES, 0.9, 0),
            W::HotAndScans => 1000 + self.pick(6000),
            W::Phases => {
                let turn = step / 200_000 * 7919;
                self.zipf(DISK_PAGES / 64, 1.0, turn) * 64 + self.pick(64)
            }
            W::Loop => step % (10 << 10),
            _ => self.zipf(DISK_PAGES / 64, 0.9, 0) * 64 + self.pick(64),
        }
    }

    fn scan(&mut self, disk: u64, page: u64) -> Access {
        self.read(disk, page);
        Access::Aside
    }

    fn read(&mut self, disk: u64, page: u64) {
        let [leaf, low, middle, high] = path(page);
        for (level, number) in [(4, high), (3, middle), (2, low), (1, leaf), (0, page)] {
            self.visit((disk, level, number), 4096);
        }
    }

    /// A written page enters the cache at once; its leaf and the nodes above are rewritten at
    /// the sync.
    fn write(&mut self, disk: u64, page: u64) {
        let old = self.key((disk, 0, page));
        self.written.insert((disk, 0, page), self.txg);
        let new = self.key((disk, 0, page));
        self.policy.replace(old, new, 4096, Class::Data);
        let [leaf, low, middle, high] = path(page);
        self.dirty.extend([(disk, 1, leaf), (disk, 2, low), (disk, 3, middle), (disk, 4, high)]);
    }

    fn sync(&mut self) {
        self.txg += 1;
        for node in std::mem::take(&mut self.dirty) {
            self.visit(node, 4096);
            let old = self.key(node);
            self.written.insert(node, self.txg);
            let new = self.key(node);
            self.policy.replace(old, new, 4096, Class::Node);
        }
    }

    fn visit(&mut self, block: Block, bytes: u32) {
        let key = self.key(block);
        if self.policy.get(key) {
            return;
        }
        let [inner, leaf, data] = &mut self.missed;
        let (missed, class) = match block {
            (_, 0, _) => (data, Class::Data),
            (_, 1, _) => (leaf, Class::Node),
            _ => (inner, Class::Node),
        };
        *missed += 1;
        self.policy.insert(key, bytes, class);
    }

    fn key(&self, block: Block) -> Key {
        let (disk, level, number) = block;
        let written = self.written.get(&block).copied().unwrap_or(1);
        Key { place: disk << 48 | level << 40 | number, written }
    }

    fn pick(&mut self, count: u64) -> u64 {
        scale(self.rng.next_u64(), count)
    }

    /// One of `count` by Zipf's law, the ranks scattered; `turn` gives the ranks to other ones.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank lies between 1 and `count`"
    )]
    fn zipf(&mut self, count: u64, exponent: f64, turn: u64) -> u64 {
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = if exponent == 1.0 {
            (count as f64).powf(uniform)
        } else {
            let rest = 1.0 - exponent;
            (((count as f64).powf(rest) - 1.0) * uniform + 1.0).powf(1.0 / rest)
        };
        let mixed = (rank as u64 + turn).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
        scale(mixed.wrapping_mul(0xD1B5_4A32_D192_ED03), count)
    }
}

/// Numbers of leaf and inner nodes above a page, from below.
fn path(page: u64) -> [u64; 4] {
    let leaf = page / LEAF_PAGES;
    [leaf, leaf / INNER_NODES, leaf / INNER_NODES.pow(2), leaf / INNER_NODES.pow(3)]
}

fn scale(random: u64, count: u64) -> u64 {
    ((u128::from(random) * u128::from(count)) >> 64) as u64
}

const DISK_PAGES: u64 = 4 << 20;
/// Entries of a leaf that holds 28-byte entries at 70 %.
const LEAF_PAGES: u64 = 100;
const INNER_NODES: u64 = 88;
