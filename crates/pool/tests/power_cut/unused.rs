//! Disks that an import finds but does not take into use.

use std::sync::Arc;

use aquifer_blockio::World;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{DiskConfig, Sim, SimDisk, SmallerDisk, Vanish};
use aquifer_vdev::LeafState;

use crate::clients::{Open, open};
use crate::shapes::{Shape, base, named};
use crate::slots::{How, content, version_of};

fn states(open: &Open) -> Vec<LeafState> {
    let vdevs = open.pool.status().vdevs;
    vdevs.iter().flat_map(|vdev| &vdev.leaves).map(|leaf| leaf.state).collect()
}

/// Imports the pool, runs `work`, and exports it.
pub fn live<T>(
    sim: &mut Sim,
    disks: Vec<NamedDisk>,
    work: impl AsyncFnOnce(&Open) -> T,
) -> Result<T, String> {
    let world: Arc<dyn World> = Arc::new(sim.world());
    let done = sim.run_until(async {
        let open = open(world.clone(), disks, &ImportOptions::default()).await?;
        world.spawn("txg", open.pool.clone().run());
        let done = work(&open).await;
        open.pool.export().await.map_err(|error| error.to_string()).map(|()| done)
    });
    sim.kill();
    done.map_err(|stop| stop.to_string())?
}

/// One side of a mirror comes up smaller, misses writes, and has its old size the next time.
pub fn a_side_comes_up_smaller(seed: u64) -> Result<(), String> {
    let mut sim = Sim::new(seed);
    let images = base(Shape::Mirror).into_iter().enumerate();
    let disks: Vec<SimDisk> = images
        .map(|(at, image)| sim.add_disk(&format!("d{at}"), image, DiskConfig::default()))
        .collect();
    let mut cut = named(&disks);
    cut[1].disk = Arc::new(SmallerDisk::new(disks[1].clone(), 60 * SEGMENT_SECTORS));
    let write = async |open: &Open| {
        let ticket = open.slots.write(1, content(1, 1), How::Stable, 1).await.unwrap();
        ticket.unwrap().durable().await.unwrap();
        states(open)
    };
    if live(&mut sim, cut, write)?.contains(&LeafState::Failed) {
        return Err("an import does not fail what it can do without".into());
    }
    let found = live(&mut sim, named(&disks), async |open| states(open))?;
    // A side that counts as whole must be so alone.
    for (at, _) in found.iter().enumerate().filter(|(_, state)| **state == LeafState::Online) {
        disks[1 - at].vanish(Vanish::PowerLost);
        let version = live(&mut sim, named(&disks), async |open| {
            open.slots.read(1).await.unwrap().map(|page| version_of(1, &page))
        })?;
        disks[1 - at].come_back();
        if version != Some(1) {
            return Err(format!("disk {at} counts as whole, and holds version {version:?}"));
        }
    }
    match found[..] {
        [LeafState::Online, LeafState::Outdated] => Ok(()),
        _ => Err(format!("{found:?}: it missed a write")),
    }
}

#[test]
fn a_side_that_came_up_smaller_is_outdated() {
    a_side_comes_up_smaller(21).unwrap();
}
