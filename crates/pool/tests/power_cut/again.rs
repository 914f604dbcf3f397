//! A spare that could not be wiped when it left, and is put in once more.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::{ImportOptions, import, scan};
use aquifer_sim::{CutMode, CutPlan, DiskConfig, Image, Sim, SimDisk, Vanish};
use aquifer_vdev::LeafState;

use crate::clients::{Open, open};
use crate::faults::{Fixture, states};
use crate::shapes::{Shape, named};

/// I/O events of a life that is cut off: an import, and a spare that is put in.
const EVENTS: std::ops::Range<u64> = 1..400;

/// The images of a mirror of `d1` and `new`, and of a spare that has uberblocks of the time when it
/// stood beside a disk that has left since.
fn left_unwiped() -> Vec<(String, Image)> {
    let mut fixture = Fixture::new(Shape::Mirror);
    for name in ["spare", "new"] {
        let disk = fixture.sim.add_disk(name, Image::new(65_536), DiskConfig::default());
        fixture.disks.push(disk);
    }
    let (world, disks) = (fixture.world.clone(), fixture.disks.clone());
    fixture.with_pool(async |open| {
        let pool = &open.pool;
        let named = |at: usize| -> NamedDisk { named(&disks[at..=at]).remove(0) };
        pool.add_spare(named(2), false).await.unwrap();
        pool.offline_disk("d1", true).await.unwrap();
        pool.use_spare("d1", pool.status().spares[0].guid).await.unwrap();
        until(&world, open, |states| states[2] == LeafState::Online).await;
        // It cannot be wiped as it leaves.
        disks[2].vanish(Vanish::PowerLost);
        pool.online_disk("d1", named(1), false).await.unwrap();
        until(&world, open, |states| states == [LeafState::Online; 2]).await;
        disks[2].come_back();
        pool.replace_disk("d0", named(3), false).await.unwrap();
        until(&world, open, |states| states == [LeafState::Online; 2]).await;
        pool.export().await.unwrap();
    });
    fixture.disks.remove(0);
    let image = |disk: &SimDisk| (aquifer_blockio::Disk::name(disk).into(), disk.durable_image());
    fixture.disks.iter().map(image).collect()
}

async fn until(world: &Arc<dyn World>, open: &Open, holds: impl Fn(&[LeafState]) -> bool) {
    while !holds(&states(open)) {
        world.sleep(Duration::from_millis(50)).await;
    }
}

/// Power fails between the uberblock that names it since 0 and its labels: none of its uberblocks
/// counts.
#[test]
pub fn a_spare_that_is_put_in_once_more_has_no_past() {
    let images = left_unwiped();
    for at in EVENTS {
        let mut sim = Sim::new(at);
        let disks: Vec<SimDisk> = (images.iter())
            .map(|(name, image)| sim.add_disk(name, image.clone(), DiskConfig::default()))
            .collect();
        let world: Arc<dyn World> = Arc::new(sim.world());
        sim.plan_cut(CutPlan::AtEvent(at));
        let _ = sim.run_until(async {
            let open = open(world.clone(), named(&disks), &ImportOptions::default()).await.unwrap();
            world.spawn("txg", open.pool.clone().run());
            let pool = &open.pool;
            pool.offline_disk("d1", true).await.unwrap();
            pool.use_spare("d1", pool.status().spares[0].guid).await.unwrap();
        });
        sim.power_cut(CutMode::AllKept);
        sim.plan_cut(CutPlan::Never);
        let imported = sim.run_until(async {
            let (mut pools, _) = scan(named(&disks)).await;
            let (_, found) = pools.pop_first().unwrap();
            import(world.clone(), found, &ImportOptions::default()).await.map(|_| ())
        });
        let imported = imported.unwrap();
        assert!(imported.is_ok(), "cut at {at}: {imported:?}");
    }
}
