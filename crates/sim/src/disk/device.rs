//! One simulated device: content, faults, latency, and the effect of each operation.
//!
//! Invariants:
//! - The end of an operation is decided at its submission (`judge`), and takes effect at its
//!   completion (`finish`).
//! - A read returns, for each sector, the newest write that had completed before the read was
//!   submitted, or one that overlaps the read in time.
//! - Latency and faults draw from streams of their own.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::{DiskError, Page, PageMut};

use crate::disk::fate::carried_out;
use crate::disk::fault::{Fault, FaultRules, Vanish};
use crate::disk::image::Image;
use crate::disk::op::{Body, IoResult, Op, Ops, Plan, Request};
use crate::disk::platter::{Corruption, Platter};
use crate::rng::Rng;
use crate::trace::{Action, Entry, Outcome, Trace};

/// How long operations take, in virtual nanoseconds. The device serves one operation after the
/// other for `service_ns` and `sector_ns`. After that they proceed side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// Serial time of each operation.
    pub service_ns: u64,
    /// Serial time of each sector read or written.
    pub sector_ns: u64,
    /// Least time of a read, write or discard after that.
    pub base_ns: u64,
    /// A random part of this is added, which puts completions out of order.
    pub spread_ns: u64,
    /// Least time of a flush.
    pub flush_base_ns: u64,
    /// A random part of this is added to a flush.
    pub flush_spread_ns: u64,
    /// How many of a million operations are outliers.
    pub outlier_ppm: u32,
    /// A random part of this is added to an outlier.
    pub outlier_ns_max: u64,
}

impl Latency {
    /// Every read, write and discard takes `base_ns`, every flush `flush_ns`, whatever else runs.
    pub const fn fixed(base_ns: u64, flush_ns: u64) -> Self {
        Latency {
            service_ns: 0,
            sector_ns: 0,
            base_ns,
            spread_ns: 0,
            flush_base_ns: flush_ns,
            flush_spread_ns: 0,
            outlier_ppm: 0,
            outlier_ns_max: 0,
        }
    }
}

impl Default for Latency {
    /// A fast SSD that reorders freely and sometimes pauses.
    fn default() -> Self {
        Latency {
            service_ns: 1_000,
            sector_ns: 1_000,
            base_ns: 20_000,
            spread_ns: 180_000,
            flush_base_ns: 50_000,
            flush_spread_ns: 950_000,
            outlier_ppm: 2_000,
            outlier_ns_max: 50_000_000,
        }
    }
}

/// The kind of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskConfig {
    /// How long operations take.
    pub latency: Latency,
    /// Longest time that an operation hangs when the device vanishes, before it fails.
    pub hang_max: Duration,
    /// A flush and a durable write are acknowledged and make nothing durable.
    pub lies_about_flushes: bool,
}

impl Default for DiskConfig {
    /// An honest SSD.
    fn default() -> Self {
        DiskConfig {
            latency: Latency::default(),
            hang_max: Duration::from_secs(30),
            lies_about_flushes: false,
        }
    }
}

/// Counts of operations since the disk was added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads submitted.
    pub reads: u64,
    /// Writes submitted, durable ones included.
    pub writes: u64,
    /// Flushes submitted.
    pub flushes: u64,
    /// Discards submitted.
    pub discards: u64,
    /// Sectors of those reads.
    pub read_sectors: u64,
    /// Sectors of those writes.
    pub written_sectors: u64,
    /// Operations that ended with an error.
    pub errors: u64,
}

/// One device, under the lock of the machine.
pub(crate) struct Device {
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    pub(crate) platter: Platter,
    pub(crate) config: DiskConfig,
    pub(crate) rules: FaultRules,
    pub(crate) counters: Counters,
    pub(crate) gone: bool,
    pub(crate) stalled_until_ns: u64,
    busy_until_ns: u64,
    /// How much longer the next operation takes.
    late_ns: u64,
    latency_rng: Rng,
    pub(crate) fault_rng: Rng,
    pub(crate) fate_rng: Rng,
    /// One possible content of a discarded sector.
    garbage: Page,
}

impl Device {
    pub(crate) fn new(
        (index, name): (usize, &str),
        seed: u64,
        image: Image,
        config: DiskConfig,
    ) -> Self {
        let stream = |kind: &str| Rng::stream(seed, &format!("disk{index}.{kind}"));
        let mut garbage = PageMut::zeroed();
        stream("garbage").fill(garbage.as_mut_slice());
        Device {
            index,
            name: Arc::from(name),
            platter: Platter::new(image),
            config,
            rules: FaultRules::default(),
            counters: Counters::default(),
            gone: false,
            stalled_until_ns: 0,
            busy_until_ns: 0,
            late_ns: 0,
            latency_rng: stream("latency"),
            fault_rng: stream("fault"),
            fate_rng: stream("fate"),
            garbage: garbage.freeze(),
        }
    }

    pub(crate) fn count(&mut self, action: Action, sectors: u64) {
        let counters = &mut self.counters;
        match action {
            Action::Read => {
                counters.reads += 1;
                counters.read_sectors += sectors;
            }
            Action::Write | Action::WriteDurable => {
                counters.writes += 1;
                counters.written_sectors += sectors;
            }
            Action::Flush => counters.flushes += 1,
            Action::Discard => counters.discards += 1,
            _ => {}
        }
    }

    /// Decides how an operation will end; `Err` if it makes the device vanish.
    pub(crate) fn judge(
        &mut self,
        (action, sector, count): (Action, u64, u64),
        now_ns: u64,
        trace: &mut Trace,
    ) -> Result<Plan, Vanish> {
        if self.gone {
            return Ok(Plan::Gone);
        }
        let Device { platter, rules, stalled_until_ns, late_ns, fault_rng, index, .. } = self;
        let disk = *index;
        let room = platter.sectors() - count.min(platter.sectors()) + 1;
        let fault = rules.ask((action, sector, count), fault_rng, |fault, range, rng| {
            let end = range.end.min(sector + count);
            let start = range.start.max(sector);
            match fault {
                Fault::Stall(time) => {
                    let until = now_ns.saturating_add(nanoseconds(time));
                    *stalled_until_ns = until.max(*stalled_until_ns);
                    trace.note(beside(now_ns, disk, Action::Stall, 0));
                }
                Fault::Late(time) | Fault::LateDiscard(time) => {
                    *late_ns = nanoseconds(time).max(*late_ns);
                }
                Fault::Corrupt(how) if start < end => {
                    let at = start + rng.below(end - start);
                    platter.corrupt(at, how, rng);
                    trace.note(beside(now_ns, disk, Action::Corrupt, at));
                }
                _ => {}
            }
        });
        let mut elsewhere = |place: Option<u64>| {
            // Never the right place, unless the disk has no other.
            let shift = 1 + self.fault_rng.below(room.saturating_sub(1));
            Plan::Misdirected(place.unwrap_or((sector + shift) % room))
        };
        Ok(match fault {
            Some(Fault::FlushError) if action == Action::WriteDurable => Plan::Unflushed,
            Some(
                Fault::ReadError | Fault::WriteError | Fault::FlushError | Fault::DiscardError,
            ) => Plan::Error,
            Some(Fault::LostWrite) => Plan::Phantom,
            Some(Fault::MisdirectedWrite { to: place }) => elsewhere(place),
            Some(Fault::MisdirectedRead { from: place }) => elsewhere(place),
            Some(Fault::Vanish(how)) => return Err(how),
            Some(Fault::Stall(_) | Fault::Late(_) | Fault::LateDiscard(_) | Fault::Corrupt(_))
            | None => Plan::Normal,
        })
    }

    /// The data of an operation while in flight.
    pub(crate) fn begin(&mut self, request: Request, sector: u64, plan: Plan) -> Body {
        match (request, plan) {
            (_, Plan::Gone) => Body::Void,
            (Request::Read { count }, _) => {
                let from = if let Plan::Misdirected(from) = plan { from } else { sector };
                let pages = self.platter.view(from, count);
                Body::Read { pages, seen: self.platter.completed() }
            }
            (Request::Write { pages, durable }, _) => Body::Write { pages, durable },
            (Request::Flush, _) => Body::Flush { covered: self.platter.completed() },
            (Request::Discard { count }, _) => Body::Discard { pages: self.discarded(count) },
        }
    }

    /// When an operation submitted now will complete.
    pub(crate) fn due_ns(&mut self, now_ns: u64, action: Action, count: u64) -> u64 {
        let latency = &self.config.latency;
        let sectors = if action == Action::Discard { 0 } else { count };
        let serial = latency.service_ns.saturating_add(latency.sector_ns.saturating_mul(sectors));
        self.busy_until_ns = self.busy_until_ns.max(now_ns).saturating_add(serial);
        let (base, spread) = match action {
            Action::Flush => (latency.flush_base_ns, latency.flush_spread_ns),
            _ => (latency.base_ns, latency.spread_ns),
        };
        let mut ripe = base.saturating_add(self.latency_rng.below(spread.saturating_add(1)));
        if self.latency_rng.chance_ppm(latency.outlier_ppm) {
            ripe = ripe.saturating_add(self.latency_rng.below(latency.outlier_ns_max));
        }
        let late_ns = std::mem::take(&mut self.late_ns);
        self.busy_until_ns.saturating_add(ripe).saturating_add(late_ns)
    }

    /// When an operation that came due during a stall will complete: soon after it, in any order.
    pub(crate) fn after_stall_ns(&mut self) -> u64 {
        let spread = self.config.latency.spread_ns.saturating_add(1);
        self.stalled_until_ns.saturating_add(self.latency_rng.below(spread))
    }

    /// How long an operation hangs that was in flight when the device vanished.
    pub(crate) fn hang_ns(&mut self) -> u64 {
        let longest = nanoseconds(self.config.hang_max);
        let soon = self.config.latency.base_ns.min(longest);
        let most = if self.fault_rng.coin() { longest } else { soon };
        self.fault_rng.below(most.saturating_add(1))
    }

    /// Carries out a part of a write in flight, for which nobody waits any more.
    pub(crate) fn carry_out(&mut self, op: &Op) -> Outcome {
        let Some((sector, pages)) = op.would_store() else {
            return Outcome::Lost;
        };
        let stored = carried_out(pages.len(), &mut self.fate_rng);
        self.platter.store(op.id, sector, pages.iter().take(stored).cloned());
        match stored {
            0 => Outcome::Lost,
            all if all == pages.len() => Outcome::Kept,
            _ => Outcome::Part,
        }
    }

    /// The operation ends: its effect, its result, and its outcome for the trace.
    pub(crate) fn finish(&mut self, op: &mut Op, ops: &Ops) -> (IoResult, Outcome) {
        let body = std::mem::replace(&mut op.body, Body::Void);
        let done = match (op.plan, body) {
            (Plan::Gone, _) | (_, Body::Void) => Err(DiskError::Gone),
            (plan, Body::Read { pages, seen }) => self.finish_read(op, plan, pages, seen, ops),
            (plan, Body::Write { pages, durable }) => self.finish_write(op, plan, pages, durable),
            (plan, Body::Flush { covered }) => self.finish_flush(plan, covered),
            (plan, Body::Discard { pages }) => self.finish_discard(op, plan, pages),
        };
        let outcome = match (&done, op.plan) {
            (Ok(_), Plan::Phantom) => Outcome::Phantom,
            (Ok(_), Plan::Misdirected(_)) => Outcome::Misdirected,
            (Ok(_), _) => Outcome::Done,
            (Err(DiskError::Gone), _) => Outcome::Gone,
            (Err(_), _) => Outcome::Failed,
        };
        if done.is_err() {
            self.counters.errors += 1;
        }
        (done, outcome)
    }

    fn finish_read(
        &mut self,
        op: &Op,
        plan: Plan,
        mut pages: Vec<Page>,
        seen: u64,
        ops: &Ops,
    ) -> IoResult {
        let range = op.sector..op.sector + op.count;
        if plan == Plan::Error || !self.platter.readable(range.clone()) {
            return Err(eio("read", op.sector));
        }
        if plan != Plan::Normal {
            return Ok(pages);
        }
        if seen != self.platter.completed() {
            for (sector, page) in range.clone().zip(&mut pages) {
                let newest = self.platter.newest(sector);
                if !newest.same(page) && self.fault_rng.coin() {
                    *page = newest;
                }
            }
        }
        for (first, written) in ops.in_flight(op.disk).filter_map(|(_, other)| other.would_store())
        {
            let skipped = range.start.saturating_sub(first);
            let offset = first.saturating_sub(range.start);
            let overlap = pages
                .iter_mut()
                .skip(usize::try_from(offset).unwrap_or(usize::MAX))
                .zip(written.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)));
            for (page, new) in overlap {
                if self.fault_rng.coin() {
                    *page = new.clone();
                }
            }
        }
        Ok(pages)
    }

    fn finish_write(
        &mut self,
        op: &Op,
        plan: Plan,
        mut pages: Vec<Page>,
        durable: bool,
    ) -> IoResult {
        let range = op.sector..op.sector + op.count;
        match plan {
            Plan::Phantom => {}
            Plan::Error => {
                pages.truncate(carried_out(pages.len(), &mut self.fault_rng));
                self.platter.store(op.id, op.sector, pages);
                return Err(eio("write", op.sector));
            }
            Plan::Unflushed => {
                self.platter.store(op.id, op.sector, pages);
                self.platter.flush_failed(self.platter.completed(), &mut self.fault_rng);
                return Err(eio("write", op.sector));
            }
            _ => {
                let sector = if let Plan::Misdirected(to) = plan { to } else { op.sector };
                if durable && !self.config.lies_about_flushes {
                    self.platter.store_durable(sector, pages);
                } else {
                    self.platter.store(op.id, sector, pages);
                }
                if plan == Plan::Normal {
                    self.platter.heal(range);
                }
            }
        }
        Ok(Vec::new())
    }

    fn finish_flush(&mut self, plan: Plan, covered: u64) -> IoResult {
        if plan == Plan::Error {
            self.platter.flush_failed(covered, &mut self.fault_rng);
            return Err(eio("flush", 0));
        }
        self.flush(covered);
        Ok(Vec::new())
    }

    pub(crate) fn flush(&mut self, covered: u64) {
        if !self.config.lies_about_flushes {
            self.platter.flush(covered);
        }
    }

    /// Returns the sectors that a discard stores: nothing, zeros, or garbage. A device may leave
    /// out any part of it, so of a huge one only the beginning is carried out.
    fn discarded(&mut self, count: u64) -> Vec<Page> {
        let page = match self.fault_rng.below(3) {
            0 => return Vec::new(),
            1 => self.platter.zero(),
            _ => self.garbage.clone(),
        };
        let count = usize::try_from(count.min(DISCARDED_SECTORS_MAX)).unwrap_or(0);
        vec![page; count]
    }

    /// Later reads return anything.
    fn finish_discard(&mut self, op: &Op, plan: Plan, mut pages: Vec<Page>) -> IoResult {
        if plan == Plan::Error {
            pages.truncate(carried_out(pages.len(), &mut self.fault_rng));
        }
        self.platter.store(op.id, op.sector, pages);
        if plan == Plan::Error { Err(eio("discard", op.sector)) } else { Ok(Vec::new()) }
    }

    /// The power was off: the queue is empty.
    pub(crate) fn idle(&mut self) {
        self.busy_until_ns = 0;
        self.stalled_until_ns = 0;
    }

    pub(crate) fn in_range(&self, sector: u64, count: u64) -> Result<Range<u64>, DiskError> {
        let sectors = self.platter.sectors();
        match sector.checked_add(count) {
            Some(end) if end <= sectors => Ok(sector..end),
            _ => Err(DiskError::OutOfRange { sector, count, sectors }),
        }
    }

    pub(crate) fn put_copy(&mut self, image: Image) {
        self.platter = Platter::new(image);
    }

    pub(crate) fn corrupt(&mut self, sector: u64, how: Corruption) {
        self.platter.corrupt(sector, how, &mut self.fault_rng);
    }
}

/// A duration in nanoseconds, at most 584 years.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn beside(at_ns: u64, disk: usize, action: Action, sector: u64) -> Entry {
    Entry { at_ns, disk, action, sector, count: 0, outcome: Outcome::Done }
}

fn eio(operation: &'static str, sector: u64) -> DiskError {
    DiskError::io(operation, sector, &io::Error::from_raw_os_error(EIO))
}

const EIO: i32 = 5;
const DISCARDED_SECTORS_MAX: u64 = 1 << 16;
