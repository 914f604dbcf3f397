//! Vdevs that have grown.

use aquifer_ondisk::Txg;
use aquifer_ondisk::config::Redundancy;
use aquifer_ondisk::layout::Geometry;
use aquifer_ondisk::txg_record::SlotEntry;

use crate::Allocator;

/// A root of before a vdev grew is imported: a metaslab is longer than its slot tells, and another
/// one is new, of which the root has counted nothing.
#[test]
fn what_has_grown_since_the_root_counts_as_free_but_for_its_slots() {
    let before = Geometry::new(0, 40, Redundancy::Mirror);
    let grown = Geometry { segments: 56, lengthened: Some(2), ..before };
    let (root, fresh) = (Allocator::new(&[Some(before)]), Allocator::new(&[Some(grown)]));
    let mut imported = Allocator::new(&[Some(grown)]);
    let (_, sectors) = before.metaslab_range(2);
    let entry = SlotEntry {
        vdev: 0,
        metaslab: 2,
        slot: 0,
        as_of: Txg(1),
        checksum: 0,
        free_sectors: sectors - 4,
        longest_run: 0,
    };
    imported.set_entry(entry).unwrap();
    imported.was_used(&root.used_per_vdev());
    assert_eq!(imported.used_per_vdev(), fresh.used_per_vdev());
    assert_eq!(imported.space_use().taken, fresh.space_use().taken);
    // A root of after it has counted all.
    let mut later = Allocator::new(&[Some(grown)]);
    let (_, sectors) = grown.metaslab_range(2);
    later.set_entry(SlotEntry { free_sectors: sectors - 4, ..entry }).unwrap();
    later.was_used(&fresh.used_per_vdev());
    assert_eq!(later.used_per_vdev(), fresh.used_per_vdev());
}
