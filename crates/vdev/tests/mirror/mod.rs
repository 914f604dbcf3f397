//! A mirror of two simulated disks.

use std::sync::Arc;

use aquifer_blockio::{Disk, World};
use aquifer_ondisk::config::{LeafConfig, Redundancy, VdevClass, VdevConfig};
use aquifer_ondisk::layout::LEAF_SEGMENTS_MIN;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_ondisk::{Guid, Txg};
use aquifer_sim::{DiskConfig, Image, Sim, SimDisk};
use aquifer_vdev::{Leaf, Vdev};

/// Of each disk.
pub const SECTORS: u64 = LEAF_SEGMENTS_MIN * SEGMENT_SECTORS;

pub struct Mirror {
    pub sim: Sim,
    pub disks: Vec<SimDisk>,
    pub vdev: Vdev,
}

pub fn mirror(disk: DiskConfig) -> Mirror {
    let mut sim = Sim::new(7);
    let disks: Vec<SimDisk> =
        (0..2).map(|at| sim.add_disk(&format!("d{at}"), Image::new(SECTORS), disk)).collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let leaf = |(guid, disk): (u64, &SimDisk)| {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Arc::new(Leaf::new(Guid(guid), format!("d{guid}"), Some(disk), world.clone()))
    };
    let leaves: Vec<Arc<Leaf>> = (0..).zip(&disks).map(leaf).collect();
    let of = |leaf: &Arc<Leaf>| LeafConfig::new(leaf.guid, SECTORS, leaf.path.clone());
    let (class, segments) = (VdevClass::Data, LEAF_SEGMENTS_MIN - 2);
    let mut config = VdevConfig::new(Guid(9), class, Redundancy::Mirror, segments, Txg(1));
    config.leaves = leaves.iter().map(of).collect();
    let vdev = Vdev::new(0, &config, leaves, world);
    Mirror { sim, disks, vdev }
}
