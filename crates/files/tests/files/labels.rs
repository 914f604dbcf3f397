//! Labels that rot on one side of a mirror.

use std::sync::Arc;

use aquifer_blockio::Disk;
use aquifer_ondisk::layout::{CONFIG_OFFSET, label_sector};
use aquifer_sim::Corruption;
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
