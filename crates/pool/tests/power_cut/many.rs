//! A pool of as many disks as there may be.

use std::sync::Arc;

use aquifer_blockio::World;
use aquifer_ondisk::layout::LEAVES_MAX;
use aquifer_pool::create::{PoolSpec, create};
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{DiskConfig, Image, Sim};
use aquifer_vdev::LeafState;

use crate::clients::open;
use crate::hangs::states;
use crate::shapes::{named, vdev_of};

/// A healthy disk and the new one would be in the pool together: the error says what to do.
#[test]
fn a_disk_of_a_full_pool_is_replaced_once_it_is_out_of_use() {
    let mut sim = Sim::new(70);
    let disks: Vec<_> = (0..=LEAVES_MAX)
        .map(|at| sim.add_disk(&format!("d{at}"), Image::new(65_536), DiskConfig::default()))
        .collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let (own, new) = disks.split_at(LEAVES_MAX);
    sim.run_until(async {
        let (single, mirror) = own.split_at(1);
        let vdevs = vec![vdev_of(named(single)), vdev_of(named(mirror))];
        let spec = PoolSpec { name: "tank".into(), vdevs, logs: Vec::new(), force: false };
        create(world.clone(), spec).await.unwrap();
        let open = open(world.clone(), named(own), &ImportOptions::default()).await.unwrap();
        world.spawn("txg", open.pool.clone().run());
        let replace = async |old| {
            let new = named(new).remove(0);
            open.pool.replace_disk(old, new, false).await.map_err(|error| error.to_string())
        };
        let full = "a pool has at most 128 disks";
        let refused = replace("d1").await.unwrap_err();
        let wanted = "and d1 stays until the new one holds everything; take it out of use first: \
                      `aquifer pool offline tank d1`";
        assert!(refused.contains(&format!("{full}, {wanted}")), "{refused}");
        let refused = replace("d0").await.unwrap_err();
        let wanted = "`aquifer pool remove tank` a spare, or `detach` a disk, first";
        assert!(refused.contains(full) && refused.contains(wanted), "{refused}");
        assert!(states(&open).iter().all(|state| *state == LeafState::Online));

        open.pool.offline_disk("d1", false).await.unwrap();
        assert_eq!(replace("d1").await, Ok(true));
        open.pool.detach_disk("d2").await.unwrap();
        // Now there is room for one.
        let again = named(&disks[2..3]).remove(0);
        assert!(!open.pool.replace_disk("d3", again, false).await.unwrap());
        open.pool.export().await.unwrap();
    })
    .unwrap();
}
