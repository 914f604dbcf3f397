//! The config of a small pool's labels, changed field by field, with right checksums: imported,
//! read and inspected.
//!
//! The fields of version 2 are what mostly changes: sizes of metaslabs, vdevs that grew, disks that
//! stand for others, spares. A liar can write such a label; so can a mistake of ours.
//!
//! The target checks these invariants:
//! - a config that can be written is read back as it was;
//! - no panic, whatever it says; the import ends, in bounded memory and steps.

use std::collections::BTreeMap;

use aquifer_blockio::{Page, PageMut, SECTOR_BYTES};
use aquifer_ondisk::config::{
    Label, LeafConfig, PoolConfig, Redundancy, Stands, VdevClass, VdevConfig,
};
use aquifer_ondisk::layout::{CONFIG_OFFSET, CONFIG_SECTORS, LABELS, label_sector};
use aquifer_ondisk::types::SEQUENCE_LIMIT;
use aquifer_ondisk::{Guid, Txg};
use aquifer_pool::import::ImportOptions;
use aquifer_sim::Image;
use arbitrary::{Result, Unstructured};

use crate::cost::{Limit, cost_of};
use crate::pool::tank::{self, Machine, Opened};
use crate::structures::reseal;

/// Tries one input.
pub fn run(input: &[u8]) {
    BASE.with(|base| {
        let (_, cost) = cost_of(|| base.attempt(&mut Unstructured::new(input)).ok());
        cost.check("a config", input.len(), &LIMIT);
    });
}

thread_local! {
    static BASE: Base = Base::new();
}

/// The pool whose config is changed.
struct Base {
    image: Image,
    label: Label,
}

impl Base {
    fn new() -> Base {
        let image = tank::made();
        let first = sectors_of(0);
        let bytes: Vec<u8> = first.flat_map(|sector| page(&image, sector).to_vec()).collect();
        let label = Label::decode(&bytes).unwrap();
        Base { image, label }
    }

    fn attempt(&self, from: &mut Unstructured<'_>) -> Result<Opened> {
        let mut config = self.label.config.clone();
        for _ in 0..from.int_in_range(0..=EDITS_MAX)? {
            edit(from, &mut config)?;
        }
        let spoils: BTreeMap<usize, u8> = match from.ratio(1, 4)? {
            true => from.arbitrary()?,
            false => BTreeMap::new(),
        };
        let options =
            ImportOptions { take_over: true, discard_unreadable: true, ..Default::default() };
        // A config that breaks a rule is not written.
        let Some(image) = self.with(&config, &spoils) else { return Ok(Opened::Refused) };
        let mut machine = Machine::new(image, false);
        machine.inspect();
        let opened = machine.import_and_read(&options);
        machine.inspect();
        Ok(opened)
    }

    /// The pool with this config in all labels, with some bytes of it changed; `None` if it cannot
    /// be written.
    fn with(&self, config: &PoolConfig, spoils: &BTreeMap<usize, u8>) -> Option<Image> {
        let mut image = self.image.clone();
        for index in 0..LABELS {
            let index_u8 = u8::try_from(index).unwrap();
            let label = Label { index: index_u8, config: config.clone(), ..self.label.clone() };
            let mut bytes = label.encode().ok()?;
            assert_eq!(Label::decode(&bytes).as_ref(), Ok(&label));
            if !spoils.is_empty() {
                spoils.iter().for_each(|(at, by)| bytes[at % SPOILT_BYTES] ^= by);
                reseal(&mut bytes);
            }
            for (sector, bytes) in sectors_of(index).zip(bytes.chunks(SECTOR_BYTES)) {
                let mut page = PageMut::zeroed();
                page[..bytes.len()].copy_from_slice(bytes);
                image.set(sector, page.freeze());
            }
        }
        Some(image)
    }
}

/// Sectors of the config of a label.
fn sectors_of(label: u64) -> std::ops::Range<u64> {
    let first = label_sector(label, tank::SECTORS) + CONFIG_OFFSET;
    first..first + CONFIG_SECTORS
}

fn page(image: &Image, sector: u64) -> Page {
    image.get(sector).cloned().unwrap_or_else(Page::zeroed)
}

fn edit(from: &mut Unstructured<'_>, config: &mut PoolConfig) -> Result<()> {
    let spare = from.ratio(1, 4)?;
    let vdevs = config.vdevs.len();
    let at = from.int_in_range(0..=vdevs.saturating_sub(1))?;
    let Some(vdev) = config.vdevs.get_mut(at) else { return Ok(()) };
    let leaves = if spare { &mut config.spares } else { &mut vdev.leaves };
    let which = from.int_in_range(0..=leaves.len().saturating_sub(1))?;
    match from.int_in_range(0..=11)? {
        0 => vdev.metaslab_segments = 1 << from.int_in_range(0..=16)?,
        1 => vdev.grown_from_segments = near(from, vdev.segments)?,
        2 => vdev.segments = near(from, vdev.segments)?,
        3 => vdev.birth = txg(near(from, vdev.birth.0)?),
        4 => vdev.redundancy = *from.choose(&[Redundancy::Single, Redundancy::Mirror])?,
        5 => vdev.class = *from.choose(&[VdevClass::Data, VdevClass::Log, VdevClass::Hole])?,
        6 => {
            let guid = guid(from, leaves)?;
            leaves.push(LeafConfig::new(guid, near(from, tank::SECTORS)?, "other".into()));
        }
        7 if !leaves.is_empty() => drop(leaves.remove(which)),
        8 => {
            let stands = stands(from, leaves)?;
            leaves.iter_mut().skip(which).take(1).for_each(|leaf| leaf.stands = stands);
        }
        9 => leaves.iter_mut().skip(which).take(1).for_each(|leaf| leaf.offline ^= true),
        10 => {
            let (class, segments) = (vdev.class, near(from, vdev.segments)?);
            let new = VdevConfig::new(
                Guid(from.arbitrary()?),
                class,
                vdev.redundancy,
                segments.min(SEGMENTS_MAX),
                txg(near(from, vdev.birth.0)?),
            );
            let leaf = LeafConfig::new(guid(from, &vdev.leaves)?, tank::SECTORS, "more".into());
            config.vdevs.push(VdevConfig { leaves: vec![leaf], ..new });
        }
        _ => config.config_sequence = near(from, config.config_sequence)?.min(SEQUENCE_LIMIT - 1),
    }
    Ok(())
}

/// A txg that is written: a pool reaches no larger one, and none is read.
fn txg(number: u64) -> Txg {
    Txg(number.min(Txg::LIMIT - 1))
}

/// A number near this one, or anywhere.
fn near(from: &mut Unstructured<'_>, number: u64) -> Result<u64> {
    Ok(match from.int_in_range(0..=5)? {
        0 => from.arbitrary()?,
        1 => *from.choose(&[0, 1, 16, 1 << 16, u64::MAX])?,
        2 => number / 2,
        3 => number.saturating_mul(2),
        _ => number.wrapping_add(from.int_in_range(-2..=2i64)?.cast_unsigned()),
    })
}

/// The guid of one of these, or another one.
fn guid(from: &mut Unstructured<'_>, of: &[LeafConfig]) -> Result<Guid> {
    match of.is_empty() || from.arbitrary()? {
        true => Ok(Guid(from.arbitrary()?)),
        false => Ok(from.choose(of)?.guid),
    }
}

fn stands(from: &mut Unstructured<'_>, of: &[LeafConfig]) -> Result<Stands> {
    let whom = guid(from, of)?;
    Ok(*from.choose(&[Stands::ForItself, Stands::Replaces(whom), Stands::SpareFor(whom)])?)
}

const EDITS_MAX: u32 = 6;
/// The part of a label in which bytes are changed: what it says is at its beginning.
const SPOILT_BYTES: usize = 512;
/// A vdev that is added has no more.
const SEGMENTS_MAX: u64 = 1 << 20;
/// Most of it is the cost of importing the unchanged pool.
const LIMIT: Limit =
    Limit { peak: 256 << 20, peak_per_byte: 0, steps: 50_000_000, steps_per_byte: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    /// All that each field of version 2 reaches is imported.
    #[test]
    fn a_config_that_only_says_more_is_imported() {
        let base = Base::new();
        let open = |change: &dyn Fn(&mut PoolConfig)| {
            let mut config = base.label.config.clone();
            change(&mut config);
            let image = base.with(&config, &BTreeMap::new()).unwrap();
            let options = ImportOptions { take_over: true, ..Default::default() };
            Machine::new(image, true).import_and_read(&options)
        };
        assert_eq!(open(&|_| {}), Opened::Whole);
        let spare = LeafConfig::new(Guid(77), tank::SECTORS, "spare".into());
        assert_eq!(open(&|config| config.spares.push(spare.clone())), Opened::Whole);
        let old = |config: &mut PoolConfig| {
            config.vdevs[0].leaves[0].stands = Stands::Replaces(Guid(78));
        };
        assert_eq!(open(&old), Opened::Whole, "the old one has left: it is a disk like others");
    }
}
