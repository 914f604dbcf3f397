//! Fresh pools for the worlds of sides that come and go.

use std::sync::Arc;

use aquifer_blockio::{Disk, World};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::create::{PoolSpec, VdevSpec, create};
use aquifer_sim::{DiskConfig, Image, Sim, SimDisk};

use crate::shapes::named;

/// A fresh pool.
pub struct Base {
    pub names: Vec<String>,
    pub images: Vec<Image>,
    /// A disk of each vdev.
    pub keepers: Vec<usize>,
}

/// Fresh mirrors of two and of three sides.
pub fn mirrors() -> Vec<Base> {
    [2, 3].map(|sides| base(&[sides], &[])).into()
}

/// Fresh pools of several vdevs: the sides of those that hold data, and of those for the log.
pub fn pools() -> Vec<Base> {
    let layouts: [(&[usize], &[usize]); 7] = [
        (&[2, 2], &[]),
        (&[3, 2], &[]),
        (&[1, 2], &[]),
        (&[2], &[1]),
        (&[2, 2], &[2]),
        (&[1, 3], &[2]),
        (&[3], &[2, 1]),
    ];
    layouts.map(|(data, logs)| base(data, logs)).into()
}

fn base(data: &[usize], logs: &[usize]) -> Base {
    // No seed of a world: its disks would get the same identities.
    let mut sim = Sim::new(u64::MAX);
    let mut disks: Vec<SimDisk> = Vec::new();
    let mut keepers = Vec::new();
    let mut vdev = |sim: &mut Sim, kind: &str, sides: usize| {
        keepers.push(disks.len());
        for _ in 0..sides {
            let name = format!("{kind}{}", disks.len());
            disks.push(sim.add_disk(&name, Image::new(65536), DiskConfig::default()));
        }
        let redundancy = if sides == 1 { Redundancy::Single } else { Redundancy::Mirror };
        VdevSpec { redundancy, disks: named(&disks[disks.len() - sides..]) }
    };
    let vdevs = data.iter().map(|sides| vdev(&mut sim, "d", *sides)).collect();
    let logs = logs.iter().map(|sides| vdev(&mut sim, "log", *sides)).collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let spec = PoolSpec { name: "tank".into(), vdevs, logs, force: false };
    sim.run_until(create(world, spec)).unwrap().unwrap();
    let names = disks.iter().map(|disk| disk.name().to_string()).collect();
    Base { names, images: disks.iter().map(SimDisk::durable_image).collect(), keepers }
}
