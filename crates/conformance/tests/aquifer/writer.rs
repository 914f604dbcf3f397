//! A client that writes one file, STABLE and UNSTABLE with COMMITs, as long as its server lives,
//! and continues with the next server. It keeps calls outstanding, and honours the write verifier
//! as RFC 1813 (3.3.21) requires.
//!
//! Invariant: the [`Ledger`] calls a unit durable only if the server reported it: a WRITE that is
//! answered as stable, or a COMMIT with the same verifier as the WRITE.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use aquifer_conformance::{Error, Result};
use aquifer_nfs::proto::v3::{
    Args3, Commit3Args, Commit3Res, NfsFh3, Read3Args, Read3Res, StableHow, Write3Args, Write3Head,
    Write3Res, WriteVerf3,
};
use aquifer_rig::random::Random;
use aquifer_rig::wire::{Connection, decode, granted, results};
use aquifer_rpc::xdr::{Decoder, Span};

use crate::diary::{Clock, Diary};
use crate::ledger::{Ledger, Run, UNIT_BYTES};
use crate::place::EXPORT;

/// The work of a life.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Calls outstanding.
    pub depth: usize,
    /// Percentage of WRITEs that are stable.
    pub stable_percent: u64,
    /// Their sizes.
    pub size: Size,
    /// A COMMIT after this many UNSTABLE ones.
    pub commit_after: usize,
}

/// Sizes of WRITEs, in units of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Up to 8 KiB, anywhere.
    Sectors,
    /// 4 KiB, aligned.
    Page,
    /// Up to 128 KiB, anywhere.
    Any,
    /// 1 MiB, aligned.
    Large,
    /// Any of these.
    Mixed,
}

impl Plan {
    pub fn new(random: &mut Random) -> Self {
        let sizes = [Size::Sectors, Size::Page, Size::Any, Size::Large, Size::Mixed];
        Self {
            depth: [1, 4, 16, 48][random.index(4)],
            stable_percent: [100, 0, 50, 10][random.index(4)],
            size: sizes[random.index(5)],
            commit_after: 1 + random.index(60),
        }
    }
}

/// The results of all lives so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// WRITEs that were answered as stable.
    pub stable: u64,
    /// WRITEs that a COMMIT made durable.
    pub committed: u64,
    /// COMMITs answered.
    pub commits: u64,
    /// WRITEs sent again because their COMMIT returned another verifier.
    pub sent_again: u64,
    /// Units that were verified after a restart.
    pub verified: u64,
    /// Those of them with newer content than was promised.
    pub newer: u64,
}

impl Tally {
    /// Adds another client's results.
    pub fn add(&mut self, other: Self) {
        self.stable += other.stable;
        self.committed += other.committed;
        self.commits += other.commits;
        self.sent_again += other.sent_again;
        self.verified += other.verified;
        self.newer += other.newer;
    }
}

/// A client.
pub struct Writer {
    name: String,
    ledger: Ledger,
    random: Random,
    handle: Option<NfsFh3>,
    /// When the handle was learnt.
    learnt: Diary<NfsFh3>,
    /// Units to send again: the first, and their number.
    again: Vec<(usize, usize)>,
    /// WRITEs answered as UNSTABLE.
    uncommitted: Vec<(Run, WriteVerf3)>,
    calls: HashMap<u32, Call>,
    xid: u32,
    payload: Vec<u8>,
    pub tally: Tally,
}

enum Call {
    Write { run: Run, stable: StableHow },
    Commit { covered: Vec<(Run, WriteVerf3)> },
}

impl Writer {
    pub fn new(number: u32, seed: u64) -> Self {
        Self {
            name: format!("file{number}"),
            ledger: Ledger::new(number, FILE_UNITS),
            random: Random::new(seed),
            handle: None,
            learnt: Diary::default(),
            again: Vec::new(),
            uncommitted: Vec::new(),
            calls: HashMap::new(),
            xid: 0,
            payload: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// A client that can reproduce its state at a moment of `clock`.
    pub fn with_diary(mut self, clock: &Clock) -> Self {
        self.ledger.keep_diary(clock);
        self.learnt = Diary::new(clock);
        self
    }

    /// The client as it was at `moment`, with its server gone.
    pub fn as_of(&self, moment: u64) -> Self {
        let ledger = self.ledger.as_of(moment);
        let handle = self.learnt.until(moment).last().copied();
        Self { name: self.name.clone(), ledger, handle, ..Self::new(0, 0) }
    }

    /// Continues from its state at `moment`. Its calls have new numbers nevertheless.
    pub fn rewind(&mut self, moment: u64) {
        self.ledger.rewind(moment);
        self.learnt.rewind(moment);
        self.handle = self.learnt.until(moment).last().copied();
        (self.again, self.uncommitted) = (Vec::new(), Vec::new());
        self.calls.clear();
    }

    /// The moments at which the server reported something as durable.
    pub fn promises(&self) -> Vec<u64> {
        self.ledger.promises()
    }

    /// Verifies the whole file, adds one to `verified`, and writes until the connection breaks.
    /// Without a plan it only verifies.
    ///
    /// # Errors
    /// [`Error::Io`] when the connection breaks; [`Error::Mismatch`] if something is lost.
    pub fn live(
        &mut self,
        connection: &mut Connection,
        plan: Option<Plan>,
        verified: &AtomicU32,
    ) -> Result<()> {
        self.outlive();
        let root = connection.mount(EXPORT)?;
        let file = connection.create(root, &self.name)?;
        if *self.handle.get_or_insert(file) != file {
            let what = format!("LOST: {} was made, and has another handle now", self.name);
            return Err(Error::Mismatch(what));
        }
        self.learnt.note(|| file);
        self.verify(connection, file)?;
        verified.fetch_add(1, Ordering::SeqCst);
        let Some(plan) = plan else { return Ok(()) };
        loop {
            while connection.unsent() == 0 && self.issue(connection, file, plan) {
                connection.send_some()?;
            }
            connection.exchange()?;
            while let Some(reply) = connection.next_reply()? {
                let (xid, from) = results(reply)?;
                self.answered(xid, from)?;
            }
        }
    }

    /// Queues the calls that the last server left unanswered, to send them again.
    fn outlive(&mut self) {
        for (_, call) in self.calls.drain() {
            match call {
                Call::Write { run, .. } => {
                    self.ledger.end(&run);
                    self.again.push((run.first, run.generations.len()));
                }
                Call::Commit { covered } => self.uncommitted.extend(covered),
            }
        }
    }

    fn verify(&mut self, connection: &mut Connection, file: NfsFh3) -> Result<()> {
        for first in (0..self.ledger.len()).step_by(READ_UNITS) {
            let count = READ_UNITS.min(self.ledger.len() - first);
            let (offset, bytes) = ((first * UNIT_BYTES) as u64, (count * UNIT_BYTES) as u32);
            let args = Args3::Read(Read3Args { file, offset, count: bytes });
            let found = connection.call_nfs(&args, |from| {
                let read = granted("READ", decode::<Read3Res<'_>>(from)?)?;
                Ok(self.ledger.found(first, count, &read.data))
            })?;
            let found = found.map_err(Error::Mismatch)?;
            self.tally.verified += found.durable + found.newer;
            self.tally.newer += found.newer;
        }
        Ok(())
    }

    /// Appends a call to the send buffer, if there is one to make.
    fn issue(&mut self, connection: &mut Connection, file: NfsFh3, plan: Plan) -> bool {
        if self.calls.len() >= plan.depth {
            return false;
        }
        self.xid += 1;
        let commits = self.calls.values().any(|call| matches!(call, Call::Commit { .. }));
        if self.uncommitted.len() >= plan.commit_after && !commits {
            // The WRITEs answered by now, while others are in progress.
            let covered = std::mem::take(&mut self.uncommitted);
            connection.put_nfs(self.xid, &Args3::Commit(Commit3Args { file, offset: 0, count: 0 }));
            self.calls.insert(self.xid, Call::Commit { covered });
            return true;
        }
        let Some(run) = self.choose(plan) else { return false };
        let stable = match self.random.below(100) < plan.stable_percent {
            true => [StableHow::FileSync, StableHow::DataSync][self.random.index(2)],
            false => StableHow::Unstable,
        };
        self.ledger.content(&run, &mut self.payload);
        let count = self.payload.len() as u32;
        let head = Write3Head { file, offset: run.offset(), count, stable };
        let data = Span { offset: 0, bytes: &self.payload };
        connection.put_nfs(self.xid, &Args3::Write(Write3Args { head, data }));
        self.calls.insert(self.xid, Call::Write { run, stable });
        true
    }

    fn choose(&mut self, plan: Plan) -> Option<Run> {
        if let Some((first, count)) = self.again.pop() {
            let run = self.ledger.again(first, count);
            if run.is_none() {
                self.again.push((first, count));
            }
            return run;
        }
        for _ in 0..TRIES {
            let sizes = [Size::Sectors, Size::Page, Size::Any, Size::Large];
            let size = match plan.size {
                Size::Mixed => sizes[self.random.index(4)],
                size => size,
            };
            let (count, step) = match size {
                Size::Sectors => (1 + self.random.index(16), 1),
                Size::Page => (8, 8),
                Size::Any | Size::Mixed => (1 + self.random.index(256), 1),
                Size::Large => (2048, 2048),
            };
            let first = self.random.index((self.ledger.len() - count) / step + 1) * step;
            let run = self.ledger.begin(first, count);
            if run.is_some() {
                return run;
            }
        }
        None
    }

    fn answered(&mut self, xid: u32, mut from: Decoder<'_>) -> Result<()> {
        let call = self.calls.remove(&xid);
        match call.ok_or_else(|| Error::Malformed(format!("a reply to no call: {xid:#x}")))? {
            Call::Write { run, stable } => {
                let done = granted("WRITE", decode::<Write3Res>(&mut from)?)?;
                self.ledger.end(&run);
                let bytes = run.generations.len() * UNIT_BYTES;
                if done.count as usize != bytes || done.committed.wire() < stable.wire() {
                    let what = format!("{bytes} bytes, {stable:?}, answered with {done:?}");
                    return Err(Error::Mismatch(what));
                }
                if done.committed == StableHow::Unstable {
                    self.uncommitted.push((run, done.verf));
                } else {
                    self.ledger.durable(&run);
                    self.tally.stable += 1;
                }
            }
            Call::Commit { covered } => {
                let done = granted("COMMIT", decode::<Commit3Res>(&mut from)?)?;
                self.committed(covered, done.verf);
            }
        }
        Ok(())
    }

    fn committed(&mut self, covered: Vec<(Run, WriteVerf3)>, verifier: WriteVerf3) {
        self.tally.commits += 1;
        for (run, written) in covered {
            if written == verifier {
                self.ledger.durable(&run);
                self.tally.committed += 1;
            } else {
                self.again.push((run.first, run.generations.len()));
                self.tally.sent_again += 1;
            }
        }
    }
}

/// 12 MiB.
const FILE_UNITS: usize = 24 << 10;
/// 1 MiB.
const READ_UNITS: usize = 2048;
/// Attempts to find units that are in no call.
const TRIES: u32 = 8;
