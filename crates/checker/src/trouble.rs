//! The faults of a machine's disks for a whole seed. Every mirror keeps one side without faults, so
//! acknowledged data stays there.

use std::sync::Arc;

use aquifer_pool::create::NamedDisk;
use aquifer_sim::{Corruption, Fault, FaultRule, Rng, SimDisk, SmallerDisk, Vanish, When};

use crate::bed::{Shape, named};

/// The fault of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Nothing.
    Nothing,
    /// It goes away, comes back, fails single writes and flushes.
    Fickle,
    /// Sectors become garbage.
    Rots,
    /// Sectors cannot be read until they are written.
    Unreadable,
    /// Writes are lost or land elsewhere, reads come from elsewhere.
    Misleads,
    /// In some lives it is smaller than its label says.
    Shrinks,
}

/// The fault of each disk.
#[derive(Debug)]
pub struct Troubles(Vec<Trouble>);

/// In a million operations of a disk that misleads.
const MISLED_PPM: u32 = 2000;
/// Sectors that a shrinking disk lacks.
const LACKING_SECTORS: u64 = 4096;

impl Troubles {
    /// Of a pool of this shape.
    pub fn of(shape: Shape, rng: &mut Rng) -> Troubles {
        let mut troubles = vec![Trouble::Nothing; shape.disks()];
        if rng.below(3) == 0 {
            return Troubles(troubles);
        }
        for group in troubles.chunks_mut(shape.sides()) {
            let good = rng.index(group.len());
            for (at, side) in group.iter_mut().enumerate() {
                let kinds = [
                    Trouble::Fickle,
                    Trouble::Rots,
                    Trouble::Unreadable,
                    Trouble::Misleads,
                    Trouble::Shrinks,
                ];
                if at != good && rng.below(3) > 0 {
                    *side = kinds[rng.index(kinds.len())];
                }
            }
        }
        if shape == Shape::SingleLog && rng.coin() {
            troubles[shape.data_disks()] = Trouble::Fickle;
        }
        Troubles(troubles)
    }

    /// Whether a disk may go away.
    pub fn takes_disks(&self) -> bool {
        self.0.contains(&Trouble::Fickle)
    }

    /// Whether an inspection of a single copy may find an error.
    pub fn damages(&self) -> bool {
        let damages =
            |one: &Trouble| matches!(one, Trouble::Rots | Trouble::Unreadable | Trouble::Misleads);
        self.0.iter().any(damages)
    }

    fn each<'a>(&self, of: Trouble, disks: &'a [SimDisk]) -> impl Iterator<Item = &'a SimDisk> {
        let those = self.0.iter().map(move |trouble| *trouble == of).collect::<Vec<_>>();
        disks.iter().zip(those).filter_map(|(disk, is)| is.then_some(disk))
    }

    /// The faults of a life that begins.
    pub fn begin(&self, disks: &[SimDisk], rng: &mut Rng) {
        self.each(Trouble::Fickle, disks).for_each(|disk| upset(disk, rng));
        for disk in self.each(Trouble::Misleads, disks) {
            let faults = [
                Fault::LostWrite,
                Fault::MisdirectedWrite { to: None },
                Fault::MisdirectedRead { from: None },
            ];
            if let Some(fault) = rng.pick(&faults) {
                disk.inject(FaultRule::new(*fault, When::Ppm(MISLED_PPM)));
            }
        }
    }

    /// The faults of disks that nobody uses.
    pub fn rest(&self, disks: &[SimDisk], rng: &mut Rng) {
        let used = |disk: &SimDisk| {
            let mut used = Vec::new();
            disk.durable_image().for_each(|sector, _| used.push(sector));
            used
        };
        for disk in self.each(Trouble::Rots, disks) {
            let used = used(disk);
            for sector in (0..rng.below(6)).filter_map(|_| rng.pick(&used)) {
                disk.corrupt(*sector, Corruption::Garbage);
            }
        }
        for disk in self.each(Trouble::Unreadable, disks) {
            let used = used(disk);
            for sector in (0..rng.below(200)).filter_map(|_| rng.pick(&used)) {
                disk.mark_unreadable(*sector..sector + 2);
            }
        }
    }

    /// The disks as the machine finds them.
    pub fn found(&self, disks: &[SimDisk], rng: &mut Rng) -> Vec<NamedDisk> {
        let mut found = named(disks);
        for ((found, disk), trouble) in found.iter_mut().zip(disks).zip(&self.0) {
            if *trouble == Trouble::Shrinks && rng.below(4) == 0 {
                found.disk = Arc::new(SmallerDisk::new(
                    disk.clone(),
                    found.disk.sectors() - LACKING_SECTORS,
                ));
            }
        }
        found
    }
}

/// Lets a disk vanish at some time, or return, or fail a single operation.
pub fn upset(disk: &SimDisk, rng: &mut Rng) {
    disk.clear_faults();
    let rule = match rng.below(8) {
        0 => FaultRule::new(Fault::Vanish(Vanish::PowerLost), When::OnceAfter(20 + rng.below(300))),
        1 => FaultRule::new(Fault::WriteError, When::OnceAfter(rng.below(100))),
        2 => FaultRule::new(Fault::FlushError, When::OnceAfter(rng.below(30))),
        _ => return disk.come_back(),
    };
    disk.inject(rule);
}
