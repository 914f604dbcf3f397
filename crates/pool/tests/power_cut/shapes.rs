//! Pools of several shapes on simulated disks.

use std::sync::Arc;

use aquifer_blockio::{Disk, World};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_sim::{DiskConfig, Image, Sim, SimDisk};

const SECTORS: u64 = 65536;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Single,
    Mirror,
    TwoSingles,
    TwoMirrors,
}

pub const SHAPES: [Shape; 4] = [Shape::Single, Shape::Mirror, Shape::TwoSingles, Shape::TwoMirrors];

impl Shape {
    pub fn mirrored(self) -> bool {
        matches!(self, Shape::Mirror | Shape::TwoMirrors)
    }

    fn disks(self) -> usize {
        match self {
            Shape::Single => 1,
            Shape::Mirror | Shape::TwoSingles => 2,
            Shape::TwoMirrors => 4,
        }
    }

    pub fn spec(self, disks: Vec<NamedDisk>) -> PoolSpec {
        let vdevs = match self {
            Shape::Single | Shape::TwoSingles => disks
                .into_iter()
                .map(|disk| VdevSpec { redundancy: Redundancy::Single, disks: vec![disk] })
                .collect(),
            Shape::Mirror | Shape::TwoMirrors => disks
                .chunks(2)
                .map(|pair| VdevSpec { redundancy: Redundancy::Mirror, disks: pair.to_vec() })
                .collect(),
        };
        PoolSpec { name: "tank".into(), vdevs, force: false }
    }
}

pub fn named(disks: &[SimDisk]) -> Vec<NamedDisk> {
    let name = |disk: &SimDisk| NamedDisk {
        path: disk.name().to_string(),
        disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
    };
    disks.iter().map(name).collect()
}

/// The disks of a fresh pool.
pub fn base(shape: Shape) -> Vec<Image> {
    let mut sim = Sim::new(7);
    let disks: Vec<SimDisk> = (0..shape.disks())
        .map(|at| sim.add_disk(&format!("d{at}"), Image::new(SECTORS), DiskConfig::default()))
        .collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let spec = shape.spec(named(&disks));
    sim.run_until(create(world, spec)).unwrap().unwrap();
    disks.iter().map(SimDisk::durable_image).collect()
}
