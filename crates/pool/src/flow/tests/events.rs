//! Events of a flow as values, so that the same ones can be fed again.

use std::time::Duration;

use super::super::batches::{Batches, Gathered};
use super::super::*;
use crate::limits::Scale;
use crate::txg::{Demand, Lane, SpaceClass};

pub const MIB: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    Asks { sparse: bool, bytes: u64, log_bytes: u64, taken: Taken, log: LogRoom },
    LogDelays(LogRoom),
    Fills(Held),
    Queues { share: f64, fill: f64 },
    Waits { turn: Turn, fill: f64 },
    Closed(Closed),
    Stepped,
    LooksAhead { fill: f64, awaited: bool },
    HandsOut(u64),
    Wrote(SyncWrite),
    Landed,
    Synced,
    LogMoved { home: bool },
    DevicesTook(Devices),
    RecordGathered { gathered: Gathered, moving: bool },
    BatchCameBack { full: usize },
    SenderEnds,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Plan {
    Nothing,
    Entry(Entry),
    Turn(Option<Turn>),
    Delay(Option<Duration>),
    Fill(f64),
    Yes(bool),
    Resize(Resize),
}

/// A flow, and all its events with their plans.
pub struct Traced {
    pub limits: Limits,
    flow: Flow,
    batches: Batches,
    pub trace: Vec<(Duration, Event, Plan)>,
}

fn demand(sparse: bool, bytes: u64, log_bytes: u64) -> Demand {
    let lane = if sparse { Lane::Sparse } else { Lane::Bulk };
    let sectors = bytes / 4096;
    Demand { dirty_bytes: bytes, sectors, log_bytes, class: SpaceClass::Write, lane }
}

pub const LOG_BYTES: u64 = 64 * MIB;
pub const BOUNDS: Bounds = Bounds { log_bytes: LOG_BYTES, sectors: 1 << 30 };

impl Traced {
    pub fn new() -> Traced {
        let scale = Scale { txg_dirty_bytes_max: 16 * MIB, ..Scale::REAL };
        let limits = Limits::new(1024 * MIB, LOG_BYTES >> 22, scale);
        let flow = Flow::new(limits, Memory::new(1024 * MIB), true);
        Traced { limits, flow, batches: Batches::default(), trace: Vec::new() }
    }

    /// Tells an event, and remembers it.
    pub fn happens(&mut self, now: Duration, event: Event) -> Plan {
        let plan = self.tell(now, &event);
        self.trace.push((now, event, plan));
        plan
    }

    pub fn tell(&mut self, now: Duration, event: &Event) -> Plan {
        let flow = &self.flow;
        match *event {
            Event::Asks { sparse, bytes, log_bytes, taken, log } => {
                let demand = demand(sparse, bytes, log_bytes);
                return Plan::Entry(flow.entry(&demand, taken, log));
            }
            Event::LogDelays(log) => return Plan::Delay(flow.log_delay(log)),
            Event::Fills(held) => return Plan::Fill(flow.fill(held, BOUNDS)),
            Event::Queues { share, fill } => return Plan::Turn(flow.queue(now, share, fill)),
            Event::Waits { turn, fill } => return Plan::Delay(flow.delay(now, turn, fill)),
            Event::Closed(closed) => flow.txg_closed(now, closed),
            Event::Stepped => return Plan::Yes(flow.sync_stepped()),
            Event::LooksAhead { fill, awaited } => {
                return Plan::Yes(flow.sync_is_ahead(now, fill, awaited));
            }
            Event::HandsOut(sectors) => flow.sync_hands_out(sectors),
            Event::Wrote(write) => return Plan::Resize(flow.sync_wrote(write)),
            Event::Landed => flow.sync_landed(now),
            Event::Synced => flow.txg_synced(now),
            Event::LogMoved { home } => {
                flow.log_moved(home);
                return Plan::Yes(flow.goes_early());
            }
            Event::DevicesTook(devices) => {
                flow.devices_took(devices);
                return Plan::Yes(flow.goes_early());
            }
            Event::RecordGathered { gathered, moving } => {
                return Plan::Yes(self.batches.record_gathered(gathered, moving));
            }
            Event::BatchCameBack { full } => {
                return Plan::Yes(self.batches.batch_came_back(full));
            }
            Event::SenderEnds => self.batches.sender_ends(),
        }
        Plan::Nothing
    }

    /// Whether a txg is on its way, as the flow has it.
    pub fn is_syncing(&self) -> bool {
        self.flow.is_syncing()
    }

    /// The window, as the flow has it.
    pub fn window(&self) -> usize {
        self.flow.window_sectors.load(Ordering::Relaxed)
    }
}
