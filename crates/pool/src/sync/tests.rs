use aquifer_ondisk::Guid;
use proptest::prelude::*;

use super::*;

fn runs(count: u64, vdevs: u64) -> Vec<Run> {
    let each = count.div_ceil(vdevs).max(1);
    let run = |at: u64| {
        let vdev = u16::try_from(at / each).unwrap();
        Run::new(Place::new(vdev, 4096 + at % each * 3), 2)
    };
    (0..count).map(run).collect()
}

fn slots(count: u32) -> Vec<SlotEntry> {
    let slot = |metaslab| SlotEntry {
        vdev: 0,
        metaslab,
        slot: 0,
        as_of: Txg(1),
        checksum: 7,
        free_sectors: 9,
        longest_run: 5,
    };
    (0..count).map(slot).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// However much a txg changed, every part can be written, and together they hold all of it.
    #[test]
    fn parts_of_a_record_fit_and_leave_nothing_out(
        (allocated, freed) in (0u64..300_000, 0u64..300_000),
        metaslabs in 0u32..20_000,
        vdevs in 1u64..9,
    ) {
        let (allocated, freed) = (runs(allocated, vdevs), runs(freed, vdevs));
        let slots = slots(metaslabs);
        let parts = split_parts(allocated.clone(), freed.clone(), slots.clone());
        for part in &parts {
            let record = TxgRecord {
                pool_guid: Guid(1),
                txg: Txg(2),
                place: Place::NULL,
                window_start: Txg(1),
                previous: None,
                slots: part.slots.clone(),
                allocated: part.allocated.clone(),
                freed: part.freed.clone(),
                root: None,
            };
            // Leaves room for the root, which the last part has too.
            let bytes = record.encode().unwrap().len();
            prop_assert!(bytes <= RECORD_SECTORS_MAX * 4096 * 7 / 8, "{} bytes", bytes);
        }
        let all = |of: fn(&Part) -> &Vec<Run>| parts.iter().flat_map(of).copied().collect();
        let (taken, given): (Vec<Run>, Vec<Run>) = (all(|p| &p.allocated), all(|p| &p.freed));
        prop_assert!(taken == allocated && given == freed);
        let named: Vec<_> = parts.iter().flat_map(|part| &part.slots).copied().collect();
        prop_assert!(named == slots);
        // The number of parts is small: each but the last is half full, by its runs or by its
        // slots.
        let runs = all(|p| &p.allocated).len() + all(|p| &p.freed).len();
        let bytes = runs * RUN_BYTES + 3 * named.len() * 44;
        let most = 2 + 4 * bytes / (RECORD_SECTORS_MAX * 4096);
        prop_assert!(parts.len() <= most, "{} parts, {} would do", parts.len(), most);
    }
}
