//! Keeps calls outstanding on one connection and checks every reply.
//!
//! A worker issues calls while fewer than `depth` are outstanding, sends them together, and takes
//! all replies that one read brought. The time of a call runs from when it enters the send buffer,
//! until the read that brought its reply.
//!
//! With `commit_after`, a COMMIT of the whole file follows that many UNSTABLE writes. It is sent
//! when all of them are answered, and answered before the next write, like an fsync.

use std::time::{Duration, Instant};

use aquifer_nfs::proto::v3::{
    Args3, Commit3Args, Commit3Res, Getattr3Args, Getattr3Res, NfsFh3, Read3Args, Read3Res,
    StableHow, Write3Args, Write3Head, Write3Res, WriteVerf3,
};
use aquifer_rpc::xdr::{Decoder, Span};
use hdrhistogram::Histogram;

use crate::pages::Share;
use crate::random::Random;
use crate::wire::{Connection, decode, granted, results};
use crate::{Error, Result};

/// The work of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Reads or writes, or neither.
    pub mix: Mix,
    /// Bytes of one READ or WRITE; a multiple of 4 KiB.
    pub bytes: u32,
    /// The blocks and their order.
    pub order: Order,
    /// The durability that WRITE asks for.
    pub stable: StableHow,
    /// Number of calls outstanding.
    pub depth: usize,
    /// A COMMIT after this many writes.
    pub commit_after: Option<u64>,
}

/// The kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// GETATTR only.
    Getattr,
    /// READ for this percentage of calls, WRITE for the others.
    Data {
        /// 0 to 100.
        read_percent: u8,
    },
}

/// The blocks that are used, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any block each time.
    Random,
    /// One after the other, then again from the first.
    Sequential,
    /// Each once, in random order; then again in the same order.
    Shuffled,
}

/// How long a worker runs.
#[derive(Clone, Copy, Debug)]
pub enum Life {
    /// Each block once, in order; all calls count.
    Once,
    /// This many calls; all count.
    Calls(u32),
    /// Calls are sent until a time, at least one; all count, however late they are answered.
    Sent {
        /// The end.
        until: Instant,
    },
    /// Until a time; calls answered before `from` or behind the end do not count. A window much
    /// longer than the slowest call leaves few out.
    Window {
        /// The end of the warm-up.
        from: Instant,
        /// The end.
        until: Instant,
    },
}

/// The results of a worker.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Nanoseconds of each GETATTR.
    pub getattrs: Histogram<u64>,
    /// Nanoseconds of each READ.
    pub reads: Histogram<u64>,
    /// Nanoseconds of each WRITE.
    pub writes: Histogram<u64>,
    /// Nanoseconds of each COMMIT.
    pub commits: Histogram<u64>,
    /// GETATTRs, READs and WRITEs answered in each millisecond of a window.
    pub timeline: Vec<u32>,
}

impl Default for Tally {
    fn default() -> Self {
        let empty = || Histogram::new(3).expect("three digits are a resolution that there is");
        let (getattrs, reads, writes, commits) = (empty(), empty(), empty(), empty());
        Tally { getattrs, reads, writes, commits, timeline: Vec::new() }
    }
}

impl Tally {
    /// Adds another worker's results.
    pub fn add(&mut self, other: &Tally) {
        for (to, from) in [
            (&mut self.getattrs, &other.getattrs),
            (&mut self.reads, &other.reads),
            (&mut self.writes, &other.writes),
            (&mut self.commits, &other.commits),
        ] {
            *to += from;
        }
        self.timeline.resize(self.timeline.len().max(other.timeline.len()), 0);
        for (to, from) in self.timeline.iter_mut().zip(&other.timeline) {
            *to += from;
        }
    }
}

/// Runs a plan on one connection.
///
/// # Errors
/// [`Error::Mismatch`] if content, an attribute or a verifier is wrong; the server's error; I/O.
pub fn run(
    connection: &mut Connection,
    file: NfsFh3,
    plan: &Plan,
    share: &mut Share<'_>,
    life: Life,
    file_bytes: u64,
) -> Result<Tally> {
    let mut worker = Worker {
        file,
        plan,
        share,
        life,
        file_bytes,
        slots: vec![None; plan.depth],
        outstanding: 0,
        calls: 0,
        next_block: 0,
        shuffled: Vec::new(),
        random: Random::of_clock(),
        uncommitted: 0,
        verifier: None,
        payload: Vec::new(),
        tally: Tally::default(),
    };
    worker.prepare();
    loop {
        while connection.unsent() == 0 && worker.issue(connection) {
            connection.send_some()?;
        }
        if worker.outstanding == 0 {
            return Ok(worker.tally);
        }
        connection.exchange()?;
        let now = Instant::now();
        while let Some(reply) = connection.next_reply()? {
            worker.reply(reply, now)?;
        }
    }
}

struct Worker<'a, 'p> {
    file: NfsFh3,
    plan: &'a Plan,
    share: &'a mut Share<'p>,
    life: Life,
    file_bytes: u64,
    /// Indexed by the lower half of a call's xid.
    slots: Vec<Option<Outstanding>>,
    outstanding: usize,
    calls: u32,
    next_block: usize,
    /// All blocks, if the order is shuffled.
    shuffled: Vec<usize>,
    random: Random,
    /// Writes since the last COMMIT.
    uncommitted: u64,
    /// The first verifier that was received.
    verifier: Option<WriteVerf3>,
    payload: Vec<u8>,
    tally: Tally,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    xid: u32,
    sent: Instant,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Getattr,
    Read { block: usize },
    Write { block: usize },
    Commit,
}

impl Worker<'_, '_> {
    /// Work to do before time runs.
    fn prepare(&mut self) {
        if let Life::Window { from, until } = self.life {
            let window = until.saturating_duration_since(from);
            self.tally.timeline.resize(millisecond(window) + 1, 0);
        }
        if self.plan.order == Order::Shuffled {
            self.shuffled = self.random.order(self.share.blocks());
        }
    }

    /// Appends calls to the send buffer. Returns whether there were any.
    fn issue(&mut self, connection: &mut Connection) -> bool {
        let now = Instant::now();
        let mut issued = false;
        while self.outstanding < self.slots.len() && connection.unsent() < BATCH_BYTES {
            let Some(what) = self.choose(now) else { break };
            let Some(slot) = self.slots.iter().position(Option::is_none) else { break };
            self.calls = self.calls.wrapping_add(1);
            let xid = self.calls << 16 | u32::try_from(slot).unwrap_or(u32::from(u16::MAX));
            self.put(connection, xid, what);
            if let Some(free) = self.slots.get_mut(slot) {
                *free = Some(Outstanding { xid, sent: now, what });
            }
            self.outstanding += 1;
            issued = true;
        }
        issued
    }

    /// The next call, for which it takes the block; `None` if there is none for now.
    fn choose(&mut self, now: Instant) -> Option<What> {
        let over = match self.life {
            Life::Once => self.next_block >= self.share.blocks(),
            Life::Calls(calls) => self.calls >= calls,
            Life::Sent { until } => now >= until && self.calls > 0,
            Life::Window { until, .. } => now >= until,
        };
        let commits = self.plan.commit_after.is_some_and(|after| self.uncommitted >= after);
        if commits || over && self.uncommitted > 0 && self.plan.commit_after.is_some() {
            let commit = self.outstanding == 0;
            self.uncommitted = if commit { 0 } else { self.uncommitted };
            return commit.then_some(What::Commit);
        }
        if over {
            return None;
        }
        let Mix::Data { read_percent } = self.plan.mix else { return Some(What::Getattr) };
        let reads = self.random.below(100) < u64::from(read_percent);
        let blocks = self.share.blocks();
        let first = match self.plan.order {
            Order::Random => self.random.index(blocks),
            Order::Sequential => self.next_block % blocks,
            Order::Shuffled => *self.shuffled.get(self.next_block % blocks)?,
        };
        let free = |block: &usize| match reads {
            true => self.share.begin_read(*block),
            false => self.share.begin_write(*block, &mut self.payload),
        };
        let block = match self.plan.order {
            // The neighbours of a busy block are just as random.
            Order::Random => (first..blocks).chain(0..first).find(free)?,
            Order::Sequential | Order::Shuffled => Some(first).filter(free)?,
        };
        self.next_block += 1;
        self.uncommitted += u64::from(!reads);
        Some(if reads { What::Read { block } } else { What::Write { block } })
    }

    fn put(&self, connection: &mut Connection, xid: u32, what: What) {
        let (file, count) = (self.file, self.plan.bytes);
        let args = match what {
            What::Getattr => Args3::Getattr(Getattr3Args { object: file }),
            What::Read { block } => {
                Args3::Read(Read3Args { file, offset: self.share.offset(block), count })
            }
            What::Write { block } => {
                let (offset, stable) = (self.share.offset(block), self.plan.stable);
                let head = Write3Head { file, offset, count, stable };
                Args3::Write(Write3Args { head, data: Span { offset: 0, bytes: &self.payload } })
            }
            What::Commit => Args3::Commit(Commit3Args { file, offset: 0, count: 0 }),
        };
        connection.put_nfs(xid, &args);
    }

    fn reply(&mut self, reply: &[u8], now: Instant) -> Result<()> {
        let (xid, from) = results(reply)?;
        let slot = usize::try_from(xid & 0xffff).unwrap_or(usize::MAX);
        let call = self.slots.get_mut(slot).and_then(Option::take);
        let call = call
            .filter(|call| call.xid == xid)
            .ok_or_else(|| Error::Malformed(format!("a reply to no call: {xid:#x}")))?;
        self.outstanding -= 1;
        self.judge(call.what, from)?;
        let counts = match self.life {
            Life::Once | Life::Calls(_) | Life::Sent { .. } => true,
            Life::Window { from, until } => now >= from && now < until,
        };
        if counts {
            let tally = match call.what {
                What::Getattr => &mut self.tally.getattrs,
                What::Read { .. } => &mut self.tally.reads,
                What::Write { .. } => &mut self.tally.writes,
                What::Commit => &mut self.tally.commits,
            };
            if let (Life::Window { from, .. }, false) = (self.life, call.what == What::Commit) {
                let at = millisecond(now.saturating_duration_since(from));
                self.tally.timeline.get_mut(at).into_iter().for_each(|ops| *ops += 1);
            }
            let took = now.duration_since(call.sent).min(LATENCY_MAX);
            let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            // The histogram grows as needed, up to LATENCY_MAX.
            tally.record(nanoseconds).map_err(|error| Error::Malformed(error.to_string()))?;
        }
        Ok(())
    }

    /// Checks a reply.
    fn judge(&mut self, what: What, mut from: Decoder<'_>) -> Result<()> {
        let from = &mut from;
        match what {
            What::Getattr => {
                let found = granted("GETATTR", decode::<Getattr3Res>(from)?)?;
                match found.size == self.file_bytes {
                    true => Ok(()),
                    false => Err(wrong("size", found.size, self.file_bytes)),
                }
            }
            What::Read { block } => {
                let read = granted("READ", decode::<Read3Res<'_>>(from)?)?;
                self.share.end_read(block, &read.data)
            }
            What::Write { block } => {
                let done = granted("WRITE", decode::<Write3Res>(from)?)?;
                if done.count != self.plan.bytes {
                    return Err(wrong("count of WRITE", done.count, self.plan.bytes));
                }
                let (committed, stable) = (done.committed.wire(), self.plan.stable.wire());
                if committed < stable {
                    return Err(wrong("committed", committed, stable));
                }
                self.share.end_write(block);
                self.same_verifier(done.verf)
            }
            What::Commit => {
                self.same_verifier(granted("COMMIT", decode::<Commit3Res>(from)?)?.verf)
            }
        }
    }

    fn same_verifier(&mut self, found: WriteVerf3) -> Result<()> {
        let first = *self.verifier.get_or_insert(found);
        match first == found {
            true => Ok(()),
            false => Err(Error::Mismatch(format!("verifier {first:?} became {found:?}"))),
        }
    }
}

fn wrong<T: std::fmt::Display>(what: &str, found: T, expected: T) -> Error {
    Error::Mismatch(format!("{what} is {found}, not {expected}"))
}

/// The index of this time's millisecond.
fn millisecond(since: Duration) -> usize {
    usize::try_from(since.as_millis()).unwrap_or(usize::MAX)
}

/// Most bytes of calls put together before they are sent.
const BATCH_BYTES: usize = 256 * 1024;

/// Most calls outstanding on a connection: a slot is 16 bits of the xid.
pub const DEPTH_MAX: usize = 1 << 14;

/// Longest time in the histograms.
const LATENCY_MAX: Duration = Duration::from_secs(60);
