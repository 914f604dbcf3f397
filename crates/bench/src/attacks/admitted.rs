//! The host that the export names: its steady work, and how well the daemon serves it.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aquifer_nfs::proto::nlm::{
    Limited, Lock4, LockArgs4, Nlm4Res, Nlm4Stats, Procedure, TestArgs4, TestRes4, UnlockArgs4,
};
use aquifer_nfs::proto::nsm;
use aquifer_nfs::proto::v3::{
    Args3, NfsFh3, Read3Args, Read3Res, StableHow, Write3Args, Write3Head, Write3Res,
};
use aquifer_rig::random::Random;
use aquifer_rig::wire::call::{Caller, Source, of_nfs, of_nlm};
use aquifer_rig::wire::{decode, granted, results};
use aquifer_rpc::message::{Accepted, Call, Reply};
use aquifer_rpc::portmap;
use aquifer_rpc::xdr::{Decoder, EncodeBuf, Span};
use hdrhistogram::Histogram;

use super::place::{HOST, PORTMAP_PORT, nfs};
use crate::pages::Share;
use crate::pattern::PAGE_BYTES;
use crate::{Error, Result};

/// The name that it gives itself.
pub(super) const NAME: &[u8] = b"hv1";
/// Locks that it holds.
pub(super) const LOCKS: usize = 8;
/// Calls per second on each of its two connections.
pub(super) const CALLS_PER_S: u32 = 250;

/// The purpose of a connection. Reads wait for no disk: on a connection of their own they show the
/// daemon and its processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Read,
    Write,
}

/// The results of its calls.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub reads: Histogram<u64>,
    pub writes: Histogram<u64>,
    /// Repeated calls: the connection was closed, or the call refused.
    pub again: u64,
}

impl Default for Served {
    fn default() -> Self {
        let empty = || Histogram::new(3).expect("three digits are a resolution that there is");
        Served { reads: empty(), writes: empty(), again: 0 }
    }
}

impl Served {
    pub fn add(&mut self, other: &Served) {
        self.reads += &other.reads;
        self.writes += &other.writes;
        self.again += other.again;
    }
}

/// Reads or writes 4 KiB at a steady pace, and compares the data that it reads. The time of a call
/// runs from its due time if the previous call was late, and from sending otherwise. So every wait
/// for the server counts, and no wait of the generator for its timer. Calls count from `counts` on.
pub(super) fn work(
    file: NfsFh3,
    (work, share): (Work, &mut Share<'_>),
    counts: Instant,
    over: &AtomicBool,
) -> Result<Served> {
    let reads = work == Work::Read;
    let mut served = Served::default();
    let mut random = Random::of_clock();
    let mut payload = Vec::new();
    let mut caller = None;
    let (begun, pause) = (Instant::now(), Duration::from_secs(1) / CALLS_PER_S);
    let mut done = begun;
    for number in 0.. {
        let due = begun + pause * number;
        let is_late = done > due;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if over.load(Ordering::Relaxed) {
            break;
        }
        let from = if is_late { due } else { Instant::now() };
        let block = random.index(share.blocks());
        // Nobody else is at these blocks, so both are always to be had.
        let _ = match reads {
            true => share.begin_read(block),
            false => share.begin_write(block, &mut payload),
        };
        loop {
            let place = (file, share.offset(block));
            let data = (!reads).then_some((&payload, StableHow::FileSync));
            let answered = exchange(&mut caller, place, data);
            match answered {
                Ok(data) if reads => share.end_read(block, &data)?,
                Ok(_) => share.end_write(block),
                Err(error) => {
                    // It opens a broken connection again; a long time without an answer ends it.
                    if from.elapsed() > GIVEN_UP {
                        return Err(Error::io("read or write")(error));
                    }
                    caller = None;
                    served.again += 1;
                    std::thread::sleep(AGAIN);
                    continue;
                }
            }
            break;
        }
        done = Instant::now();
        if done >= counts {
            let times = if reads { &mut served.reads } else { &mut served.writes };
            let nanoseconds = u64::try_from((done - from).as_nanos()).unwrap_or(u64::MAX);
            times.record(nanoseconds).map_err(|error| Error::Malformed(error.to_string()))?;
        }
    }
    Ok(served)
}

/// Writes each block once, with UNSTABLE writes that wait for no disk.
///
/// # Errors
/// Those of the first write that fails.
pub(super) fn fill(file: NfsFh3, share: &mut Share<'_>) -> Result<()> {
    let (mut caller, mut payload) = (None, Vec::new());
    for block in 0..share.blocks() {
        share.begin_write(block, &mut payload);
        let (place, data) = ((file, share.offset(block)), (&payload, StableHow::Unstable));
        let written = exchange(&mut caller, place, Some(data));
        written.map_err(Error::io("write"))?;
        share.end_write(block);
    }
    Ok(())
}

/// Reads all blocks and compares them.
///
/// # Errors
/// [`Error::Mismatch`]; those of the first read that fails.
pub(super) fn compare(file: NfsFh3, share: &mut Share<'_>) -> Result<()> {
    let mut caller = None;
    for block in 0..share.blocks() {
        share.begin_read(block);
        let found = exchange(&mut caller, (file, share.offset(block)), None);
        share.end_read(block, &found.map_err(Error::io("read"))?)?;
    }
    Ok(())
}

/// Sends a READ, or a WRITE of `payload`. Returns the data that it read.
fn exchange(
    caller: &mut Option<Caller>,
    (file, offset): (NfsFh3, u64),
    payload: Option<(&Vec<u8>, StableHow)>,
) -> io::Result<Vec<u8>> {
    let caller = match caller {
        Some(caller) => caller,
        none => none.insert(Caller::connect(Source::root(HOST), nfs())?),
    };
    let count = u32::try_from(PAGE_BYTES).unwrap_or_default();
    let args = match payload {
        None => Args3::Read(Read3Args { file, offset, count }),
        Some((payload, stable)) => {
            let head = Write3Head { file, offset, count, stable };
            Args3::Write(Write3Args { head, data: Span { offset: 0, bytes: payload } })
        }
    };
    let reply = caller.call(of_nfs(&args), &args)?;
    let (_, mut from) = results(&reply).map_err(io::Error::other)?;
    match payload {
        None => {
            let read = decode::<Read3Res<'_>>(&mut from).and_then(|read| granted("READ", read));
            Ok(read.map_err(io::Error::other)?.data.bytes.to_vec())
        }
        Some(_) => {
            let done = decode::<Write3Res>(&mut from).and_then(|done| granted("WRITE", done));
            done.map(|_| Vec::new()).map_err(io::Error::other)
        }
    }
}

/// The state of its locks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    /// The smallest number of its locks that kept another owner out.
    pub held_least: usize,
    /// How often it asked for a new lock.
    pub asked: u64,
    /// How often the new lock was refused.
    pub refused: u64,
}

/// A lock of the host's on part of a file.
fn lock(file: &NfsFh3, svid: i32, range: u64) -> Lock4<'_> {
    let (caller_name, fh, oh) = (Limited(NAME), Limited(file.bytes()), Limited(b"owner"));
    Lock4 { caller_name, fh, oh, svid, l_offset: range * RANGE_BYTES, l_len: RANGE_BYTES }
}

/// Its locks: file and range of each. The last range of the last file is for new locks.
fn own(files: &[NfsFh3]) -> impl Iterator<Item = (i32, &NfsFh3, u64)> {
    let places = files.iter().flat_map(|file| [(file, 0), (file, 1)]);
    (1..).zip(places).take(LOCKS).map(|(svid, (file, range))| (svid, file, range))
}

fn stat(reply: &[u8]) -> Result<Nlm4Stats> {
    let (_, mut from) = results(reply)?;
    Ok(decode::<Nlm4Res<'_>>(&mut from)?.stat)
}

/// Takes the locks.
///
/// # Errors
/// [`Error::Failed`] if one is refused.
pub(super) fn take_locks(files: &[NfsFh3]) -> Result<()> {
    let mut caller = Caller::connect(Source::root(HOST), nfs()).map_err(Error::io("connect"))?;
    for (svid, file, range) in own(files) {
        let said = take(&mut caller, lock(file, svid, range))?;
        if said != Nlm4Stats::Granted {
            return Err(Error::Failed { what: "LOCK".into(), said: format!("{said:?}") });
        }
    }
    Ok(())
}

fn take(caller: &mut Caller, alock: Lock4<'_>) -> Result<Nlm4Stats> {
    let cookie = Limited(b"cookie");
    let args = LockArgs4 { cookie, block: false, exclusive: true, alock, reclaim: false, state: 1 };
    stat(&caller.call(of_nlm(Procedure::Lock), &args).map_err(Error::io("LOCK"))?)
}

/// Checks once a second that the locks still keep others out. Also takes and releases a new lock,
/// like a virtual machine that starts or stops.
///
/// # Errors
/// No answer for a long time.
pub(super) fn watch_locks(files: &[NfsFh3], over: &AtomicBool) -> Result<Kept> {
    let mut kept = Kept { held_least: LOCKS, ..Kept::default() };
    let mut answered = Instant::now();
    let mut caller = None;
    while !over.load(Ordering::Relaxed) {
        let looked = look(&mut caller, files, &mut kept);
        match looked {
            Ok(held) => {
                kept.held_least = kept.held_least.min(held);
                answered = Instant::now();
            }
            // The next attempt connects again.
            Err(error) if answered.elapsed() > GIVEN_UP => return Err(error),
            Err(_) => caller = None,
        }
        std::thread::sleep(LOOK);
    }
    // A last look, once all calls in progress have had their effect.
    caller = None;
    let held = look(&mut caller, files, &mut kept)?;
    kept.held_least = kept.held_least.min(held);
    Ok(kept)
}

fn look(caller: &mut Option<Caller>, files: &[NfsFh3], kept: &mut Kept) -> Result<usize> {
    let caller = match caller {
        Some(caller) => caller,
        none => {
            let connected = Caller::connect(Source::root(HOST), nfs());
            none.insert(connected.map_err(Error::io("connect"))?)
        }
    };
    let mut held = 0;
    for (_, file, range) in own(files) {
        let alock = lock(file, OTHER, range);
        let args = TestArgs4 { cookie: Limited(b"cookie"), exclusive: true, alock };
        let reply = caller.call(of_nlm(Procedure::Test), &args).map_err(Error::io("TEST"))?;
        let (_, mut from) = results(&reply)?;
        let found = decode::<TestRes4<'_>>(&mut from)?;
        held += usize::from(found.stat == Nlm4Stats::Denied);
    }
    if let Some(file) = files.last() {
        kept.asked += 1;
        let said = take(caller, lock(file, OTHER, 2))?;
        kept.refused += u64::from(said != Nlm4Stats::Granted);
        let args = UnlockArgs4 { cookie: Limited(b"cookie"), alock: lock(file, OTHER, 2) };
        let _ = caller.call(of_nlm(Procedure::Unlock), &args).map_err(Error::io("UNLOCK"))?;
    }
    Ok(held)
}

/// The host's portmapper and status monitor, which report that it has not restarted.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn monitor(over: &AtomicBool) -> Result<()> {
    let socket = UdpSocket::bind((HOST, PORTMAP_PORT)).map_err(Error::io("bind port 111"))?;
    socket.set_read_timeout(Some(AGAIN * 10)).map_err(Error::io("set a timeout"))?;
    let mut datagram = [0; 4096];
    while !over.load(Ordering::Relaxed) {
        let Ok((bytes, from)) = socket.recv_from(&mut datagram) else { continue };
        let call = datagram.get(..bytes).unwrap_or_default();
        let Ok(call) = Call::decode(&mut Decoder::new(call)) else { continue };
        let mut reply = EncodeBuf::new();
        reply.put(&Reply::accepted(call.xid, Accepted::Success));
        match call.program {
            portmap::PROGRAM => reply.u32(PORTMAP_PORT.into()),
            nsm::PROGRAM => reply.put(&nsm::StatRes { res_stat: nsm::Res::Fail, state: 1 }),
            _ => reply.put(&Nlm4Res { cookie: Limited(b"x"), stat: Nlm4Stats::Granted }),
        }
        // A caller without an answer asks again.
        let _ = socket.send_to(&reply.to_vec(), from);
    }
    Ok(())
}

const RANGE_BYTES: u64 = 1000;
/// A process of the host that holds no lock.
const OTHER: i32 = 99;
const LOOK: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(10);
const GIVEN_UP: Duration = Duration::from_secs(20);
