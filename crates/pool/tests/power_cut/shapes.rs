//! Pools of several shapes on simulated disks.

use std::sync::Arc;

use aquifer_blockio::{Disk, World};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_sim::{DiskConfig, Image, Sim, SimDisk, SmallerDisk};
use aquifer_vdev::label_io::{DiskLabels, read_labels};

const SECTORS: u64 = 65536;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Single,
    Mirror,
    TwoSingles,
    TwoMirrors,
    /// A disk, and another for the log.
    SingleLog,
    /// A mirror, and a disk for the log.
    MirrorLog,
    /// A mirror, and another for the log.
    MirrorLogMirror,
    /// A disk, and two for the log.
    SingleTwoLogs,
}

/// Pools with log vdevs.
pub const LOG_SHAPES: [Shape; 4] =
    [Shape::SingleLog, Shape::MirrorLog, Shape::MirrorLogMirror, Shape::SingleTwoLogs];

pub const SHAPES: [Shape; 4] = [Shape::Single, Shape::Mirror, Shape::TwoSingles, Shape::TwoMirrors];

impl Shape {
    pub fn mirrored(self) -> bool {
        matches!(self, Shape::Mirror | Shape::TwoMirrors)
    }

    /// Disks that hold blocks; those of the log follow.
    pub fn data_disks(self) -> usize {
        match self {
            Shape::Single | Shape::SingleLog | Shape::SingleTwoLogs => 1,
            Shape::Mirror | Shape::TwoSingles | Shape::MirrorLog | Shape::MirrorLogMirror => 2,
            Shape::TwoMirrors => 4,
        }
    }

    fn disks(self) -> usize {
        self.data_disks()
            + match self {
                Shape::SingleLog | Shape::MirrorLog => 1,
                Shape::MirrorLogMirror | Shape::SingleTwoLogs => 2,
                _ => 0,
            }
    }

    pub fn spec(self, disks: Vec<NamedDisk>) -> PoolSpec {
        let (data, logs) = disks.split_at(self.data_disks());
        let mirrored = matches!(self, Shape::MirrorLog | Shape::MirrorLogMirror) || self.mirrored();
        PoolSpec {
            name: "tank".into(),
            vdevs: vdevs(data, mirrored),
            logs: vdevs(logs, self == Shape::MirrorLogMirror),
            force: false,
        }
    }
}

fn vdevs(disks: &[NamedDisk], mirrored: bool) -> Vec<VdevSpec> {
    let (redundancy, each) =
        if mirrored { (Redundancy::Mirror, 2) } else { (Redundancy::Single, 1) };
    let vdev = |disks: &[NamedDisk]| VdevSpec { redundancy, disks: disks.to_vec() };
    disks.chunks(each).map(vdev).collect()
}

pub fn named(disks: &[SimDisk]) -> Vec<NamedDisk> {
    let name = |disk: &SimDisk| NamedDisk {
        path: disk.name().to_string(),
        disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
    };
    disks.iter().map(name).collect()
}

/// A disk, and as much of it as a machine finds.
pub struct Found {
    pub disk: SimDisk,
    pub seen: Arc<SmallerDisk>,
}

impl Found {
    pub fn new(disk: SimDisk, sectors: u64) -> Found {
        Found { seen: Arc::new(SmallerDisk::new(disk.clone(), sectors)), disk }
    }

    pub fn name(&self) -> &str {
        self.disk.name()
    }

    pub fn named(&self) -> NamedDisk {
        NamedDisk { path: self.name().to_string(), disk: self.seen.clone() as Arc<dyn Disk> }
    }
}

/// A vdev of these disks: a mirror, if there are several.
pub fn vdev_of(disks: Vec<NamedDisk>) -> VdevSpec {
    let redundancy = if disks.len() == 1 { Redundancy::Single } else { Redundancy::Mirror };
    VdevSpec { redundancy, disks }
}

/// The labels of disks.
pub async fn labels_of(disks: &[NamedDisk]) -> Vec<Option<DiskLabels>> {
    let mut all = Vec::new();
    for disk in disks {
        all.push(read_labels(&disk.disk).await.ok());
    }
    all
}

/// The name of a disk of a pool.
pub fn disk_name(shape: Shape, at: usize) -> String {
    if at < shape.data_disks() { format!("d{at}") } else { format!("log{at}") }
}

/// The disks of a new pool, and one outside of it.
pub fn base_with_spare(shape: Shape) -> Vec<Image> {
    let mut disks = base(shape);
    disks.push(Image::new(SECTORS));
    disks
}

/// The disks of a new pool.
pub fn base(shape: Shape) -> Vec<Image> {
    let mut sim = Sim::new(7);
    let blank =
        |at| sim.add_disk(&disk_name(shape, at), Image::new(SECTORS), DiskConfig::default());
    let disks: Vec<SimDisk> = (0..shape.disks()).map(blank).collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let spec = shape.spec(named(&disks));
    sim.run_until(create(world, spec)).unwrap().unwrap();
    disks.iter().map(SimDisk::durable_image).collect()
}
