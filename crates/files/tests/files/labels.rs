//! Labels that rot on one side of a mirror.

use std::sync::Arc;

use aquifer_blockio::{Disk, World};
use aquifer_files::Service;
use aquifer_ondisk::config::Redundancy;
use aquifer_ondisk::layout::{CONFIG_OFFSET, label_sector};
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_pool::import::{ImportOptions, scan};
use aquifer_sim::{Corruption, DiskConfig, Image, Sim, SmallerDisk};
use aquifer_vdev::label_io::read_labels;

use crate::bed::Bed;

#[test]
fn a_damaged_label_is_written_again_by_the_next_import() {
    for (side, label) in (0..2).flat_map(|side| (0..4).map(move |label| (side, label))) {
        let mut bed = Bed::new(2, 65536);
        let disk = bed.disks[side].clone();
        disk.corrupt(label_sector(label, disk.sectors()) + CONFIG_OFFSET, Corruption::Garbage);
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let damaged =
            |bed: &mut Bed| bed.sim.run_until(read_labels(&disk)).unwrap().unwrap().damaged;
        assert_eq!(damaged(&mut bed), 1);
        bed.life(async |_| {});
        assert_eq!(damaged(&mut bed), 0, "side {side}, label {label}");
        bed.assert_clean();
    }
}

/// A vdev grows with all its disks: if one of them is not online, no other one is left without
/// labels at its new end.
#[test]
fn no_disk_grows_alone() {
    let mut sim = Sim::new(3);
    let world: Arc<dyn World> = Arc::new(sim.world());
    let disk = |name| {
        let disk = sim.add_disk(name, Image::new(131_072), DiskConfig::default());
        Arc::new(SmallerDisk::new(disk, 65_536))
    };
    let disks = ["a", "b"].map(disk);
    let named = || {
        let named = |disk: &Arc<SmallerDisk>| {
            let (path, disk) = (disk.name().to_string(), disk.clone() as Arc<dyn Disk>);
            NamedDisk { path, disk }
        };
        disks.iter().map(named).collect::<Vec<_>>()
    };
    let work = async {
        let vdevs = vec![VdevSpec { redundancy: Redundancy::Mirror, disks: named() }];
        let spec = PoolSpec { name: "tank".into(), vdevs, logs: Vec::new(), force: false };
        create(world.clone(), spec).await.unwrap();
        let (mut pools, _) = scan(named()).await;
        let (_, found) = pools.pop_first().unwrap();
        let service = Service::open(world, found, &ImportOptions::default()).await.unwrap();
        service.pool.offline_disk("b", false).await.unwrap();
        disks.iter().for_each(|disk| disk.grows_to(131_072));
        let refused = service.pool.expand("a").await.unwrap_err().to_string();
        assert!(refused.contains("is not online"), "{refused}");
        service.pool.export().await.unwrap();
        let a: Arc<dyn Disk> = disks[0].clone();
        assert_eq!(read_labels(&a).await.unwrap().damaged, 0);
        let (mut pools, _) = scan(named()).await;
        assert_eq!(pools.pop_first().unwrap().1.len(), 2);
    };
    sim.run_until(work).unwrap();
}
