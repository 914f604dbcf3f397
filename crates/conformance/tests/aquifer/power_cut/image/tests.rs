//! The contents that a cut may leave after few writes and one flush.

use std::collections::BTreeSet;

use super::*;
use crate::recorder::Flush;

/// Sector 5 holds 1 from moment 2 on, durable from 4 on; it holds 2 from 6 on, and 3 is in progress
/// at 7.
fn tape() -> Tape {
    let mut tape = Tape::default();
    let mut write = |fill: u8, began, ended: Option<u64>| {
        let number = tape.begin(began, (5, 1), Some(&[fill; SECTOR_BYTES]));
        if let Some(ended) = ended {
            tape.end(number, ended, false);
        }
    };
    write(1, 1, Some(2));
    write(2, 5, Some(6));
    write(3, 7, None);
    tape.flushed(Flush { began: 3, ended: 4 });
    tape
}

fn found(moment: u64, mode: Mode, trusted: u64) -> BTreeSet<u8> {
    let (tape, mut random) = (tape(), Random::new(7));
    let cut = Cut { moment, mode, loser: 0, trusted };
    (0..200).map(|_| Image::after(&cut, &tape, 0, &mut random).sector(5)).collect()
}

#[test]
fn cut_keeps_what_a_flush_has_covered_and_may_keep_or_lose_the_rest() {
    let holds = |moment, mode| Vec::from_iter(found(moment, mode, u64::MAX));
    for mode in Mode::ALL {
        assert_eq!(holds(0, mode), [0], "{mode:?}");
        assert_eq!(holds(4, mode), [1], "{mode:?}");
    }
    // Written but not flushed: the flush in progress has not ended.
    assert_eq!(holds(3, Mode::PerWrite), [0, 1]);
    assert_eq!(holds(7, Mode::PerWrite), [1, 2, 3]);
    assert_eq!(holds(7, Mode::PerSector), [1, 2, 3]);
    assert_eq!(holds(7, Mode::AllLost), [1]);
    assert_eq!(holds(7, Mode::OneDiskLoses), [1]);
    assert_eq!(holds(7, Mode::AllKept), [3]);
    assert_eq!(holds(7, Mode::AllTorn), [1, 3]);
}

#[test]
fn cut_of_a_disk_that_lies_loses_what_it_said_was_flushed() {
    assert_eq!(Vec::from_iter(found(4, Mode::PerWrite, 0)), [0, 1]);
    assert_eq!(Vec::from_iter(found(4, Mode::AllLost, 0)), [0]);
    assert_eq!(Vec::from_iter(found(4, Mode::AllLost, 4)), [1]);
}

#[test]
fn cut_writes_the_image_that_it_leaves() {
    let mut random = Random::new(1);
    let tape = tape();
    let cut = Cut { moment: 7, mode: Mode::AllKept, loser: 0, trusted: u64::MAX };
    let dir = aquifer_rig::work::WorkDir::open().unwrap().scratch("image").unwrap();
    let image = Image::after(&cut, &tape, 0, &mut random);
    image.write(&dir.join("disk"), 1 << 20).unwrap();
    let bytes = std::fs::read(dir.join("disk")).unwrap();
    assert_eq!(bytes.len(), 1 << 20);
    let holds = |byte: &u8| bytes.iter().filter(|found| *found == byte).count();
    assert_eq!((holds(&3), holds(&0)), (SECTOR_BYTES, (1 << 20) - SECTOR_BYTES));
    assert!(bytes[5 * SECTOR_BYTES..6 * SECTOR_BYTES].iter().all(|byte| *byte == 3));
}
