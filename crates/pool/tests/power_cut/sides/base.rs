//! Fresh pools for the worlds of sides that come and go.

use std::sync::Arc;

use aquifer_blockio::{Disk, World};
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_pool::PoolError;
use aquifer_pool::create::{NamedDisk, PoolSpec, create};
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{DiskConfig, Image, Rng, Sim, SimDisk};

use crate::clients::{check_space, open};
use crate::shapes::{Found, vdev_of};

/// Sectors of a disk when a pool is made, and those that it may have later.
pub const DISK_SECTORS: u64 = 64 * SEGMENT_SECTORS;
pub const DISK_SECTORS_MAX: u64 = 130 * SEGMENT_SECTORS;

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

/// Fresh pools of disks that may become larger.
pub fn growing_pools() -> Vec<Base> {
    let layouts: [&[usize]; 4] = [&[2], &[3], &[2, 2], &[1, 2]];
    layouts.map(|data| base(data, &[])).into()
}

/// Mirrors of two and of three sides of which 95 of 100 sectors are used, with small holes between
/// blocks.
pub fn dense_mirrors() -> Vec<Base> {
    mirrors().into_iter().map(aged).collect()
}

/// Disks as they are when a pool is made.
fn found(disks: &[SimDisk]) -> Vec<NamedDisk> {
    disks.iter().map(|disk| Found::new(disk.clone(), DISK_SECTORS).named()).collect()
}

fn aged(base: Base) -> Base {
    let mut sim = Sim::new(u64::MAX - 3);
    let disks: Vec<SimDisk> = (base.names.iter().zip(base.images))
        .map(|(name, image)| sim.add_disk(name, image, DiskConfig::default()))
        .collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let filled = sim.run_until(async {
        let open = open(world.clone(), found(&disks), &ImportOptions::default()).await?;
        world.spawn("txg", open.pool.clone().run());
        let rng = Rng::stream(u64::MAX - 3, "filler");
        let told = |error: PoolError| error.to_string();
        open.slots.fill(rng).await.map_err(told)?;
        // So that a rewind finds it.
        for _ in 0..3 {
            open.pool.sync().await.map_err(told)?;
        }
        check_space(&open)?;
        open.pool.export().await.map_err(told)
    });
    filled.unwrap().unwrap();
    Base { images: disks.iter().map(SimDisk::durable_image).collect(), ..base }
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
            disks.push(sim.add_disk(&name, Image::new(DISK_SECTORS_MAX), DiskConfig::default()));
        }
        vdev_of(found(&disks[disks.len() - sides..]))
    };
    let vdevs = data.iter().map(|sides| vdev(&mut sim, "d", *sides)).collect();
    let logs = logs.iter().map(|sides| vdev(&mut sim, "log", *sides)).collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let spec = PoolSpec { name: "tank".into(), vdevs, logs, force: false };
    sim.run_until(create(world, spec)).unwrap().unwrap();
    let names = disks.iter().map(|disk| disk.name().to_string()).collect();
    Base { names, images: disks.iter().map(SimDisk::durable_image).collect(), keepers }
}
