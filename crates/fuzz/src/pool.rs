//! A whole hostile pool: the image of a small one with changed bytes, imported and read back, and
//! inspected before and after.
//!
//! For half of the inputs the checksums are corrected, up to the uberblock ([`sums`]): a liar can
//! write such a disk. The other inputs are what a faulty disk can do.
//!
//! The target checks these invariants:
//! - no panic, whatever the disk contains; the import ends, in bounded memory and steps;
//! - with wrong checksums, a read returns data that some txg had there, or an error: never other
//!   bytes, and no name that nobody gave;
//! - with wrong checksums, a refused import spoils nothing: with the original bytes, the pool
//!   imports and is whole.

mod sums;
pub(crate) mod tank;

use std::collections::BTreeMap;

use aquifer_blockio::{Page, PageMut, SECTOR_BYTES};
use aquifer_pool::import::ImportOptions;
use aquifer_sim::Image;
use arbitrary::{Result, Unstructured};

use crate::cost::{Limit, cost_of};
use sums::Sums;
use tank::{Machine, Opened};

/// Tries one input.
pub fn run(input: &[u8]) {
    BASE.with(|base| {
        let (_, cost) = cost_of(|| base.attempt(&mut Unstructured::new(input)).ok());
        cost.check("a pool", input.len(), &LIMIT);
    });
}

thread_local! {
    static BASE: Base = Base::new();
}

/// The pool that is changed.
struct Base {
    image: Image,
    /// Sectors with content.
    sectors: Vec<u64>,
    sums: Sums,
}

type Sector = [u8; SECTOR_BYTES];

impl Base {
    fn new() -> Base {
        let image = tank::made();
        let mut sectors = Vec::new();
        image.for_each(|sector, _| sectors.push(sector));
        let sums = Sums::of(&image, &sectors);
        Base { image, sectors, sums }
    }

    fn attempt(&self, from: &mut Unstructured<'_>) -> Result<()> {
        let right_sums = from.arbitrary()?;
        let options = options(from)?;
        let changed = self.changed(from, right_sums)?;
        let mut image = self.image.clone();
        for (sector, bytes) in &changed {
            image.set(*sector, page_of(bytes));
        }
        let mut machine = Machine::new(image, !right_sums);
        machine.inspect();
        let opened = machine.import_and_read(&options);
        machine.inspect();
        let is_plain = options.rewind == 0 && !options.discard_log;
        if opened == Opened::Refused && !right_sums && is_plain {
            // Changed sectors that were not written since get their original bytes back.
            let mut image = machine.image();
            for (sector, bytes) in &changed {
                if image.get(*sector).is_none_or(|page| **page == *bytes) {
                    let before = self.image.get(*sector).cloned();
                    image.set(*sector, before.unwrap_or_else(Page::zeroed));
                }
            }
            let mut machine = Machine::new(image, true);
            let again = machine.import_and_read(&ImportOptions::default());
            assert_eq!(again, Opened::Whole, "after a refused import");
        }
        Ok(())
    }

    /// The sectors that the input changes.
    fn changed(
        &self,
        from: &mut Unstructured<'_>,
        right_sums: bool,
    ) -> Result<BTreeMap<u64, Sector>> {
        let mut changed = BTreeMap::new();
        for _ in 0..from.int_in_range(1..=EDITS_MAX)? {
            // Most sectors are of labels and data; the others are structures with a checksum of the
            // whole.
            let sector = match from.ratio(3, 4)? {
                true => *from.choose(self.sums.structures())?,
                false => *from.choose(&self.sectors)?,
            };
            let other = *from.choose(&self.sectors)?;
            let other = self.bytes(other);
            let bytes = changed.entry(sector).or_insert_with(|| self.bytes(sector));
            edit(from, bytes, &other)?;
        }
        if right_sums {
            self.change_copies(&mut changed);
            self.sums.make_right(&mut changed, |sector| self.bytes(sector));
        }
        changed.retain(|sector, bytes| *bytes != self.bytes(*sector));
        Ok(changed)
    }

    /// Changes a block with two copies in both places, since the loss of one copy is no loss.
    fn change_copies(&self, changed: &mut BTreeMap<u64, Sector>) {
        for (sector, bytes) in changed.clone() {
            let before = self.bytes(sector);
            for copy in self.sums.structures() {
                if *copy != sector && self.bytes(*copy) == before {
                    changed.insert(*copy, bytes);
                }
            }
        }
    }

    fn bytes(&self, sector: u64) -> Sector {
        self.image.get(sector).map_or([0; SECTOR_BYTES], |page| **page)
    }
}

fn page_of(bytes: &Sector) -> Page {
    let mut page = PageMut::zeroed();
    page.copy_from_slice(bytes);
    page.freeze()
}

fn options(from: &mut Unstructured<'_>) -> Result<ImportOptions> {
    let bits: u8 = from.arbitrary()?;
    Ok(ImportOptions {
        rewind: u64::from(bits & 3) * u64::from(bits & 16 != 0),
        discard_log: bits & 4 != 0 && bits & 32 != 0,
        discard_unreadable: bits & 8 != 0,
        take_over: true,
        ..ImportOptions::default()
    })
}

/// Changes a few bytes of a sector: words mostly, since most fields are.
fn edit(from: &mut Unstructured<'_>, bytes: &mut Sector, other: &Sector) -> Result<()> {
    let at = from.int_in_range(0..=SECTOR_BYTES - 1)?;
    let word = at / 8 * 8;
    match from.int_in_range(0..=9)? {
        0 => bytes[at] ^= from.arbitrary::<u8>()?,
        1 => bytes[at] = from.arbitrary()?,
        2 => bytes[word..word + 8].copy_from_slice(&from.arbitrary::<u64>()?.to_le_bytes()),
        3 => {
            let edges = [0, 1, 0xffff, 1 << 31, u64::from(u32::MAX), 1 << 48, 1 << 63, u64::MAX];
            bytes[word..word + 8].copy_from_slice(&from.choose(&edges)?.to_le_bytes());
        }
        4 => {
            let value = u64::from_le_bytes(*bytes[word..].first_chunk().unwrap());
            let value = value.wrapping_add(from.int_in_range(-3..=3i64)?.cast_unsigned());
            bytes[word..word + 8].copy_from_slice(&value.to_le_bytes());
        }
        5 => bytes[word..].copy_from_slice(&other[word..]),
        6 => bytes[word..word + 8].copy_from_slice(&other[word..word + 8]),
        7 => *bytes = *other,
        8 => bytes[at..].fill(0),
        _ => {
            let length = from.int_in_range(1..=SECTOR_BYTES - at)?;
            let to = from.int_in_range(0..=SECTOR_BYTES - length)?;
            bytes.copy_within(at..at + length, to);
        }
    }
    Ok(())
}

const EDITS_MAX: u32 = 6;
/// Most of it is the cost of importing the unchanged pool.
const LIMIT: Limit =
    Limit { peak: 256 << 20, peak_per_byte: 0, steps: 50_000_000, steps_per_byte: 0 };

#[test]
fn a_pool_that_nobody_changed_is_read_whole() {
    let base = Base::new();
    let mut machine = Machine::new(base.image.clone(), true);
    assert_eq!(machine.import_and_read(&ImportOptions::default()), Opened::Whole);
}

/// For each structure in turn: in a third of the cases every checksum in the image is right
/// afterwards. In the others some are not, which wastes such inputs: they end at a wrong checksum.
#[test]
fn checksums_are_made_right_up_to_the_uberblock() {
    let base = Base::new();
    let structures = base.sums.structures();
    let made_right = structures.iter().filter(|sector| {
        let mut changed = BTreeMap::from([(**sector, base.bytes(**sector))]);
        changed.values_mut().for_each(|bytes| bytes[100] ^= 1);
        let now = |changed: &BTreeMap<u64, Sector>, sector| {
            changed.get(&sector).copied().unwrap_or_else(|| base.bytes(sector))
        };
        assert!(base.sums.wrong(|sector| now(&changed, sector)) > 0, "{sector}");
        base.change_copies(&mut changed);
        base.sums.make_right(&mut changed, |sector| base.bytes(sector));
        base.sums.wrong(|sector| now(&changed, sector)) == 0
    });
    let (all, made_right) = (structures.len(), made_right.count());
    assert!(all > 200 && made_right > all / 4, "{made_right} of {all}");
}
