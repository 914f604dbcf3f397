//! The simulated disk: handle and futures. `platter` has its content, `device` its behaviour.
//!
//! Invariants:
//! - Content, cache and faults belong to the simulation and outlive every incarnation of the
//!   machine; a handle may be kept over power cuts.
//! - An operation is submitted at the first poll of its future; dropping the future does not cancel
//!   it.

pub(crate) mod device;
pub(crate) mod fate;
pub(crate) mod fault;
pub(crate) mod image;
pub(crate) mod op;
pub(crate) mod platter;
pub(crate) mod smaller;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aquifer_blockio::{Disk, IoFuture, Page};

pub use crate::disk::device::{Counters, DiskConfig, Latency};
pub use crate::disk::fate::CutMode;
pub use crate::disk::fault::{Fault, FaultRule, Vanish, When};
pub use crate::disk::image::Image;
pub use crate::disk::platter::Corruption;
pub use crate::disk::smaller::SmallerDisk;

use crate::disk::device::{Device, nanoseconds};
use crate::disk::op::{IoResult, Request, Ticket};
use crate::machine::{Machine, Shared, Submission};
use crate::trace::{Action, Outcome};

/// A handle on one simulated disk: for the pool a [`Disk`], for the test the place to set faults.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
    index: usize,
    name: Arc<str>,
    sectors: u64,
}

impl SimDisk {
    pub(crate) fn new(shared: Arc<Shared>, device: &Device) -> Self {
        SimDisk {
            shared,
            index: device.index,
            name: Arc::clone(&device.name),
            sectors: device.platter.sectors(),
        }
    }

    /// Its index in the order in which disks were added.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Counts of the operations so far.
    pub fn counters(&self) -> Counters {
        self.with(|device| device.counters).unwrap_or_default()
    }

    /// The durable content, which a power cut cannot take. Constant time.
    pub fn durable_image(&self) -> Image {
        self.with(|device| device.platter.durable.clone()).unwrap_or(Image::new(self.sectors))
    }

    /// The durable content of one sector; zeros past the end.
    pub fn durable_page(&self, sector: u64) -> Page {
        self.with(|device| device.platter.durable(sector)).unwrap_or_else(Page::zeroed)
    }

    /// The newest completed content of one sector; zeros past the end.
    pub fn newest_page(&self, sector: u64) -> Page {
        self.with(|device| device.platter.newest(sector)).unwrap_or_else(Page::zeroed)
    }

    /// Sectors whose newest completed content is not durable.
    pub fn volatile_sectors(&self) -> u64 {
        self.with(|device| device.platter.cache.len() as u64).unwrap_or(0)
    }

    /// Adds a fault; rules apply in the order in which they were added.
    pub fn inject(&self, rule: FaultRule) {
        self.with(|device| device.rules.add(rule));
    }

    /// Forgets all rules. Their effects stay.
    pub fn clear_faults(&self) {
        self.with(|device| device.rules.clear());
    }

    /// Reads that touch these sectors fail until the sectors are written.
    pub fn mark_unreadable(&self, sectors: Range<u64>) {
        self.with(|device| device.platter.mark_unreadable(sectors));
    }

    /// Damages the durable copy of a sector, now.
    pub fn corrupt(&self, sector: u64, how: Corruption) {
        self.with(|device| device.corrupt(sector, how));
        self.machine(|machine| {
            machine.note((self.index, Action::Corrupt, sector, 1), Outcome::Done);
        });
    }

    /// Puts other content in its place, all of it durable: a copy of some disk of this size. Only
    /// while nothing is on its way to it.
    pub fn put_copy(&self, image: Image) {
        assert_eq!(image.sectors(), self.sectors, "a copy has the size of its disk");
        self.with(|device| device.put_copy(image));
    }

    /// Takes the device away, now. Operations in flight fail within `DiskConfig::hang_max`, later
    /// ones at once, until `come_back`.
    pub fn vanish(&self, how: Vanish) {
        self.machine(|machine| machine.vanish(self.index, how));
    }

    /// Whether it went away and has not come back.
    pub fn is_gone(&self) -> bool {
        self.with(|device| device.gone).unwrap_or(true)
    }

    /// Brings the device back with its content. Failed operations stay failed.
    pub fn come_back(&self) {
        self.with(|device| device.gone = false);
        self.machine(|machine| machine.note((self.index, Action::Return, 0, 0), Outcome::Done));
    }

    /// Completes nothing for this time from now on.
    pub fn stall(&self, time: Duration) {
        self.machine(|machine| {
            let until_ns = machine.clock.now_ns().saturating_add(nanoseconds(time));
            if let Some(device) = machine.devices.get_mut(self.index) {
                device.stalled_until_ns = device.stalled_until_ns.max(until_ns);
            }
            machine.note((self.index, Action::Stall, 0, 0), Outcome::Done);
        });
    }

    /// From now on operations take so long.
    pub fn set_latency(&self, latency: Latency) {
        self.with(|device| device.config.latency = latency);
    }

    /// From now on flushes and durable writes make nothing durable, or again do.
    pub fn lie_about_flushes(&self, lies: bool) {
        self.with(|device| device.config.lies_about_flushes = lies);
    }

    fn machine<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> T {
        act(&mut self.shared.machine.lock())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Device) -> T) -> Option<T> {
        self.machine(|machine| machine.devices.get_mut(self.index).map(act))
    }

    fn start<T: FromPages + 'static>(&self, sector: u64, request: Request) -> IoFuture<'_, T> {
        let state = State::New(request);
        Box::pin(DiskOp { disk: self, sector, state, returns: PhantomData })
    }
}

impl Disk for SimDisk {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self, sector: u64, count: usize) -> IoFuture<'_, Vec<Page>> {
        self.start(sector, Request::Read { count })
    }

    fn write(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        self.start(sector, Request::Write { pages, durable: false })
    }

    fn write_durable(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        self.start(sector, Request::Write { pages, durable: true })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        self.start(0, Request::Flush)
    }

    fn discard(&self, sector: u64, count: u64) -> IoFuture<'_, ()> {
        self.start(sector, Request::Discard { count })
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk({}, {} sectors)", self.name, self.sectors)
    }
}

/// The result type of an operation, made of the pages it returned.
trait FromPages {
    fn from_pages(pages: Vec<Page>) -> Self;
}

impl FromPages for Vec<Page> {
    fn from_pages(pages: Vec<Page>) -> Self {
        pages
    }
}

impl FromPages for () {
    fn from_pages(_: Vec<Page>) -> Self {}
}

enum State {
    New(Request),
    InFlight(Ticket),
    /// Taken, or the power is off and no result will come.
    Over,
}

struct DiskOp<'a, T> {
    disk: &'a SimDisk,
    sector: u64,
    state: State,
    returns: PhantomData<fn() -> T>,
}

impl<T> DiskOp<'_, T> {
    fn submit(&mut self, request: Request, context: &Context<'_>) -> Poll<IoResult> {
        let mut machine = self.disk.shared.machine.lock();
        match machine.submit(self.disk.index, self.sector, request, context.waker()) {
            Submission::InFlight(ticket) => {
                self.state = State::InFlight(ticket);
                Poll::Pending
            }
            Submission::Refused(error) => Poll::Ready(Err(error)),
            Submission::Never => Poll::Pending,
        }
    }
}

impl<T: FromPages> Future for DiskOp<'_, T> {
    type Output = Result<T, aquifer_blockio::DiskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match mem::replace(&mut self.state, State::Over) {
            State::New(request) => self.submit(request, context),
            State::InFlight(ticket) => {
                let mut machine = self.disk.shared.machine.lock();
                let (result, replaced) = machine.ops.poll(ticket, context.waker());
                drop(machine);
                drop(replaced);
                if result.is_pending() {
                    self.state = State::InFlight(ticket);
                }
                result
            }
            State::Over => Poll::Pending,
        };
        result.map(|done| done.map(T::from_pages))
    }
}

impl<T> Drop for DiskOp<'_, T> {
    fn drop(&mut self) {
        if let State::InFlight(ticket) = self.state {
            let mut machine = self.disk.shared.machine.lock();
            let waker = machine.ops.abandon(ticket);
            drop(machine);
            drop(waker);
        }
    }
}
