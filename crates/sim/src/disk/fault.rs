//! Faults that a disk gets from the test, and when.
//!
//! Invariants:
//! - Rules apply in the order in which they were given, when an operation is submitted. `Stall`,
//!   `Late` and `Corrupt` act beside the operation, and the next rule applies too. Of the others
//!   the first that fires decides.
//! - A rule draws from the disk's own fault stream, and only for operations it applies to.

use std::ops::Range;
use std::time::Duration;

use crate::disk::platter::Corruption;
use crate::rng::Rng;
use crate::trace::Action;

/// How a device goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vanish {
    /// The link is lost and the device keeps its power: its volatile cache stays, not durable.
    LinkLost,
    /// The device loses its power: each write in its cache survives, is lost, or survives in part.
    PowerLost,
}

/// One kind of misbehaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A read fails with EIO.
    ReadError,
    /// A write fails with EIO; all, nothing or a prefix of it was stored.
    WriteError,
    /// A flush fails with EIO. Some of the sectors it covered are durable, and the next flush makes
    /// some durable. Some never will be, although reads still return them. A durable write may meet
    /// it too, after it was stored, because it is a write and a flush in one.
    FlushError,
    /// A discard fails with EIO; all, nothing or a prefix of it was carried out.
    DiscardError,
    /// A write is acknowledged and stored nowhere.
    LostWrite,
    /// A write lands at `to`, or at a random other place, and is acknowledged.
    MisdirectedWrite {
        /// First sector of the wrong place.
        to: Option<u64>,
    },
    /// A read returns what lies at `from`, or at a random other place.
    MisdirectedRead {
        /// First sector of the wrong place.
        from: Option<u64>,
    },
    /// One sector of a read's range is damaged at rest before the read.
    Corrupt(Corruption),
    /// The device goes away when it gets any operation.
    Vanish(Vanish),
    /// When it gets any operation the device stops completing anything for this long.
    Stall(Duration),
    /// One operation takes this much longer than others, which go on. Then it is carried out: a
    /// write lands late. [`Duration::MAX`] is for good.
    Late(Duration),
    /// One discard takes this much longer than others; otherwise as `Late`.
    LateDiscard(Duration),
}

/// How often a rule fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Once, after this many operations it applies to have passed.
    OnceAfter(u64),
    /// In this many of a million operations it applies to.
    Ppm(u32),
    /// For every operation it applies to.
    Always,
}

/// One fault, for some sectors, at some times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultRule {
    /// The fault.
    pub fault: Fault,
    /// Operations that touch one of these sectors; a flush touches all.
    pub sectors: Range<u64>,
    /// How often.
    pub when: When,
}

impl FaultRule {
    /// The fault on any sector.
    pub fn new(fault: Fault, when: When) -> Self {
        FaultRule { fault, sectors: 0..u64::MAX, when }
    }

    /// The next operation that the fault applies to.
    pub fn once(fault: Fault) -> Self {
        FaultRule::new(fault, When::OnceAfter(0))
    }

    /// Only for these sectors.
    pub fn within(self, sectors: Range<u64>) -> Self {
        FaultRule { sectors, ..self }
    }

    fn applies(&self, action: Action, sector: u64, count: u64) -> bool {
        let read = action == Action::Read;
        let write = matches!(action, Action::Write | Action::WriteDurable);
        let flush = action == Action::Flush;
        let kind = match self.fault {
            Fault::ReadError | Fault::MisdirectedRead { .. } | Fault::Corrupt(_) => read,
            Fault::WriteError | Fault::LostWrite | Fault::MisdirectedWrite { .. } => write,
            Fault::DiscardError | Fault::LateDiscard(_) => action == Action::Discard,
            Fault::FlushError => flush || action == Action::WriteDurable,
            Fault::Vanish(_) | Fault::Stall(_) | Fault::Late(_) => true,
        };
        let end = sector.saturating_add(count);
        kind && (flush || (sector < self.sectors.end && self.sectors.start < end))
    }
}

/// The rules of one disk.
#[derive(Debug, Default)]
pub(crate) struct FaultRules(Vec<FaultRule>);

impl FaultRules {
    pub(crate) fn add(&mut self, rule: FaultRule) {
        self.0.push(rule);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Applies the rules to one operation. Calls `beside` for each fault that acts beside it, and
    /// returns the fault of the operation itself.
    pub(crate) fn ask(
        &mut self,
        (action, sector, count): (Action, u64, u64),
        rng: &mut Rng,
        mut beside: impl FnMut(Fault, Range<u64>, &mut Rng),
    ) -> Option<Fault> {
        let mut index = 0;
        while let Some(rule) = self.0.get_mut(index) {
            index += 1;
            if !rule.applies(action, sector, count) {
                continue;
            }
            let (fault, sectors) = (rule.fault, rule.sectors.clone());
            match &mut rule.when {
                When::Always => {}
                When::Ppm(ppm) if rng.chance_ppm(*ppm) => {}
                When::Ppm(_) => continue,
                When::OnceAfter(0) => {
                    index -= 1;
                    self.0.remove(index);
                }
                When::OnceAfter(left) => {
                    *left -= 1;
                    continue;
                }
            }
            let is_beside = matches!(
                fault,
                Fault::Stall(_) | Fault::Late(_) | Fault::LateDiscard(_) | Fault::Corrupt(_)
            );
            if is_beside {
                beside(fault, sectors, rng);
            } else {
                return Some(fault);
            }
        }
        None
    }
}
