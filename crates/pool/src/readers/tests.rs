//! Readers of several epochs, compared with the places that may be reused.

use aquifer_ondisk::Txg;
use proptest::prelude::*;

use super::{EPOCHS, Readers, Seat};

#[test]
fn nobody_reads_nothing_is_held() {
    let readers = Readers::new();
    for txg in 1..100 {
        readers.retire(Txg(txg));
        assert_eq!(readers.oldest_read(), None);
    }
    assert!(!readers.is_busy());
}

#[test]
fn a_reader_holds_what_was_freed_after_it_came() {
    let readers = Readers::new();
    readers.retire(Txg(1));
    let seat = readers.enter();
    for txg in 2..=4 * EPOCHS {
        readers.retire(Txg(txg));
        assert_eq!(readers.oldest_read(), Some(Txg(2)), "however long it stays");
    }
    readers.leave(seat);
    assert_eq!(readers.oldest_read(), None);
}

#[test]
fn a_repair_is_counted_as_long_as_its_reader() {
    let readers = Readers::new();
    let reader = readers.enter();
    for txg in 1..=3 {
        readers.retire(Txg(txg));
    }
    // The reader is cancelled, but the write of its repair is not.
    let repair = readers.enter_oldest();
    readers.leave(reader);
    readers.retire(Txg(4));
    assert_eq!(readers.oldest_read(), Some(Txg(1)));
    readers.leave(repair);
    assert_eq!(readers.oldest_read(), None);
}

proptest! {
    /// Blocks that a reader may have seen are never released while it reads, whatever else happens.
    #[test]
    fn what_a_reader_may_see_is_held(ops in prop::collection::vec((0u8..4, any::<u8>()), 1..200)) {
        let readers = Readers::new();
        let mut sitting: Vec<(Seat, u64)> = Vec::new();
        let mut committed = 0;
        for (op, pick) in ops {
            match op {
                0 => sitting.push((readers.enter(), committed)),
                1 if !sitting.is_empty() => {
                    let (seat, _) = sitting.swap_remove(usize::from(pick) % sitting.len());
                    readers.leave(seat);
                }
                _ => {
                    committed += 1;
                    readers.retire(Txg(committed));
                }
            }
            let held_from = readers.oldest_read().map_or(committed + 1, |txg| txg.0);
            for (_, saw) in &sitting {
                // It took the root of `saw`: it can reach blocks that later txgs freed.
                prop_assert!(*saw >= committed || held_from <= saw + 1);
            }
            prop_assert!(!sitting.is_empty() || held_from == committed + 1);
        }
    }
}
