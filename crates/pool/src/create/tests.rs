use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_sim::{DiskConfig, Image, Sim};

use super::*;

const GIB: u64 = (1 << 30) / 4096;
const TIB: u64 = 1024 * GIB;

/// Bytes of bitmaps in memory while a pool of these vdevs was created, and sectors written.
fn made(redundancy: Redundancy, disks: usize, sectors: u64) -> (u64, u64) {
    let mut sim = Sim::new(3);
    let each = if redundancy == Redundancy::Mirror { 2 } else { 1 };
    let disks: Vec<_> = (0..disks)
        .map(|at| sim.add_disk(&format!("d{at}"), Image::new(sectors), DiskConfig::default()))
        .collect();
    let named = |disk: &aquifer_sim::SimDisk| NamedDisk {
        path: disk.name().into(),
        disk: Arc::new(disk.clone()),
    };
    let vdev = |disks: &[aquifer_sim::SimDisk]| VdevSpec {
        redundancy,
        disks: disks.iter().map(named).collect(),
    };
    let spec = PoolSpec {
        name: "tank".into(),
        vdevs: disks.chunks(each).map(vdev).collect(),
        logs: Vec::new(),
        force: false,
    };
    let world: Arc<dyn World> = Arc::new(sim.world());
    let (config, vdevs) = plan(&world, &spec);
    let reserving = reserve(&vdevs, record_copies(&config)).unwrap().space.bitmap_bytes();
    let pool = sim.run_until(format(world, config, vdevs)).unwrap().unwrap();
    let bytes = pool.space.lock().bitmap_bytes();
    (bytes.max(reserving), disks.iter().map(|disk| disk.counters().written_sectors).sum())
}

#[test]
fn making_a_pool_takes_as_much_memory_whatever_its_size() {
    for redundancy in [Redundancy::Mirror, Redundancy::Single] {
        let (small, written) = made(redundancy, 2, GIB);
        assert!(small <= 256 * 1024, "{small}");
        assert!(written > 4 * SEGMENT_SECTORS / 8, "{written}");
        // One metaslab of each vdev for log and records, another for their second copies.
        let (large, written) = made(redundancy, 4, TIB);
        assert!(large <= 8 << 20, "{large}");
        assert!(written < 16 * SEGMENT_SECTORS, "{written}");
        let (larger, _) = made(redundancy, 4, 16 * TIB);
        assert!(larger <= 8 << 20, "{larger}");
    }
}
