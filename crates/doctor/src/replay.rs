//! Actions of hypervisors' clients, step by step. The order and the options of their calls are
//! those of their sources: xapi-project/sm (`nfs.py`, `NFSSR.py`, `FileSR.py`), Linux's `fs/nfs`
//! and `fs/lockd`, libnfs; that of ESXi as its users describe it.

mod esxi;
mod linux;
mod qemu;
mod read_only;
mod xcp_ng;

use std::net::SocketAddr;
use std::time::Instant;

use aquifer_client::wire::call::Source;
use aquifer_nfs::proto::v3::{
    Args3, Commit3Args, Commit3ResOk, Create3Args, Create3ResOk, CreateHow3, DirOpArgs3,
    Fsinfo3ResOk, Fsstat3ResOk, Getattr3Args, NfsFh3, PostOpAttr, Sattr3, StableHow, WccData,
    Write3Args, Write3Head, Write3ResOk,
};
use aquifer_rpc::xdr::Span;

use crate::codes;
use crate::report::{Finding, Replay, Report, Step};
use crate::scratch::Scratch;
use crate::session::{Session, Stop, Wrong, is_stopped};

/// Where clients are replayed.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    /// Where NFS listens.
    pub nfs: SocketAddr,
    /// Where the portmapper does.
    pub portmap: Option<SocketAddr>,
    /// Whence calls come.
    pub from: Source,
    /// Source of calls with the same address, from a port that everybody gets.
    pub from_high: Source,
    /// The export.
    pub path: String,
    /// Its dataset.
    pub dataset: String,
    /// Whether it takes changes from there.
    pub writes: bool,
    /// Whether it takes calls from all ports.
    pub insecure: bool,
    /// Whether its dataset has `sync=always`.
    pub sync_always: bool,
    /// Locks are not given yet, after a restart.
    pub grace: bool,
}

/// Replays all clients at an export.
pub(crate) fn replay(ground: &Ground, stop: Stop<'_>, report: &mut Report) {
    if !ground.writes {
        one(ground, "any", None, stop, report, read_only::steps);
        return;
    }
    let scratch = match Scratch::make(ground.from, ground.nfs, &ground.path) {
        Ok(scratch) => scratch,
        Err(wrong) => {
            let what = format!("{}: no directory could be made there: {wrong}", ground.path);
            report.add(failed(what, &wrong, ground));
            return;
        }
    };
    let ahead_ms = scratch.ahead_ms;
    let clients: [(&'static str, Steps); 4] = [
        ("xcp-ng", xcp_ng::steps),
        ("esxi", esxi::steps),
        ("linux", linux::steps),
        ("qemu", qemu::steps),
    ];
    let of_users = |client: &str| client != "qemu" || ground.insecure && ground.portmap.is_some();
    for (client, steps) in clients.into_iter().filter(|(client, _)| of_users(client)) {
        one(ground, client, Some(&scratch), stop, report, steps);
    }
    let left = format!("{}/{}", ground.path, scratch.name);
    if let Err(wrong) = scratch.remove() {
        let what = format!("{left} could not be removed: {wrong}; a later doctor removes it");
        report.add(Finding::new(codes::PROBE_LEFT, what).mend("aquifer doctor"));
    }
    clock(ahead_ms, report);
}

fn clock(ahead_ms: i64, report: &mut Report) {
    let off = ahead_ms.abs();
    report.add(if off > CLOCK_OFF_MS {
        let way = if ahead_ms > 0 { "ahead of" } else { "behind" };
        let what = format!(
            "the server's clock is {}.{:03} s {way} this machine's: times of files, schedules and \
             logs differ",
            off / 1000,
            off % 1000
        );
        Finding::new(codes::CLOCK_SKEW, what).mend("timedatectl set-ntp true   # on both")
    } else {
        Finding::new(codes::CLOCK_RIGHT, "the server's clock is this machine's")
    });
}

type Steps = fn(&mut Walk<'_>) -> Result<(), Failed>;

/// A step has failed, and is noted.
pub(crate) struct Failed(Wrong);

fn one(
    ground: &Ground,
    client: &'static str,
    scratch: Option<&Scratch>,
    stop: Stop<'_>,
    report: &mut Report,
    steps: Steps,
) {
    if is_stopped(stop) {
        return;
    }
    let replay = Replay { client, path: ground.path.clone(), steps: Vec::new() };
    let mut walk = Walk { ground, scratch, stop, replay, notes: Vec::new() };
    let ended = steps(&mut walk);
    let Walk { replay, notes, .. } = walk;
    notes.into_iter().for_each(|note| report.add(note));
    match ended {
        Ok(()) => {
            let what = format!("{}: {client}: {} steps work", ground.path, replay.steps.len());
            report.add(Finding::new(codes::EXPORT_READY, what));
        }
        Err(Failed(Wrong::Stopped)) => {}
        Err(Failed(wrong)) => {
            let step = replay.failed().map(|step| step.name.clone()).unwrap_or_default();
            let what = format!("{}: {client}: {step}: {wrong}", ground.path);
            report.add(failed(what, &wrong, ground));
        }
    }
    report.replays.push(replay);
}

fn failed(what: String, wrong: &Wrong, ground: &Ground) -> Finding {
    Finding::new(codes::REPLAY_FAILED, what).mend(wrong.mend(&ground.dataset))
}

/// A replay under way.
pub(crate) struct Walk<'a> {
    pub ground: &'a Ground,
    scratch: Option<&'a Scratch>,
    stop: Stop<'a>,
    replay: Replay,
    notes: Vec<Finding>,
}

impl Walk<'_> {
    /// Does a step, and notes how it went.
    pub fn step<T>(
        &mut self,
        name: &str,
        act: impl FnOnce() -> Result<T, Wrong>,
    ) -> Result<T, Failed> {
        if is_stopped(self.stop) {
            return Err(Failed(Wrong::Stopped));
        }
        let began = Instant::now();
        let ended = act();
        let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let error = ended.as_ref().err().map(ToString::to_string);
        self.replay.steps.push(Step { name: name.into(), took_us, error });
        ended.map_err(Failed)
    }

    pub fn note(&mut self, note: Finding) {
        self.notes.push(note);
    }

    /// The directory for all that is written.
    pub fn scratch(&self) -> Result<&Scratch, Failed> {
        self.scratch.ok_or_else(|| Failed(Wrong::Differs("no directory of the doctor's".into())))
    }

    /// Mounts the export over a connection from a port of the superuser's, if this process may have
    /// one, and asks what every client asks then. Returns the root, too.
    pub fn mount(&mut self) -> Result<(Session, NfsFh3), Failed> {
        let (ground, to) = (self.ground, self.ground.nfs);
        let mut session =
            self.step(&format!("connect to TCP {to}"), || Session::open(ground.from, to))?;
        let root = self.step(&format!("MNT {}", ground.path), || session.mount(&ground.path))?;
        self.file_system(&mut session, root)?;
        Ok((session, root))
    }

    fn file_system(&mut self, session: &mut Session, root: NfsFh3) -> Result<(), Failed> {
        let object = Getattr3Args { object: root };
        self.step("FSINFO: sizes of READ and WRITE, and files of 62 TiB", || {
            let info = session.nfs::<Fsinfo3ResOk, PostOpAttr>(&Args3::Fsinfo(object))?;
            must(info.rtmax >= DATA_BYTES && info.wtmax >= DATA_BYTES, || {
                format!("READ takes {} bytes and WRITE {}", info.rtmax, info.wtmax)
            })?;
            let largest = info.maxfilesize;
            must(largest >= LARGEST, || format!("the largest file has {largest} bytes"))
        })?;
        self.step("FSSTAT: a size, and what is free of it", || {
            let stat = session.nfs::<Fsstat3ResOk, PostOpAttr>(&Args3::Fsstat(object))?;
            must(
                stat.tbytes > 0 && stat.abytes <= stat.fbytes && stat.fbytes <= stat.tbytes,
                || format!("{} of {} bytes are free", stat.fbytes, stat.tbytes),
            )
        })
    }
}

/// Makes a file; fails if the name is there.
pub(crate) fn create(session: &mut Session, dir: NfsFh3, name: &str) -> Result<NfsFh3, Wrong> {
    let attributes = Sattr3 { mode: Some(0o600), ..Sattr3::NONE };
    create_how(session, dir, name, CreateHow3::Guarded(attributes))
}

pub(crate) fn create_how(
    session: &mut Session,
    dir: NfsFh3,
    name: &str,
    how: CreateHow3,
) -> Result<NfsFh3, Wrong> {
    let args = Args3::Create(Create3Args { place: place(dir, name), how });
    let made = session.nfs::<Create3ResOk, WccData>(&args)?;
    made.obj.ok_or_else(|| Wrong::Differs("CREATE gave no handle".into()))
}

pub(crate) fn place(dir: NfsFh3, name: &str) -> DirOpArgs3<'_> {
    DirOpArgs3 { dir, name: name.as_bytes() }
}

/// Writes bytes; they must be taken as durably as asked.
pub(crate) fn write(
    session: &mut Session,
    file: NfsFh3,
    offset: u64,
    bytes: &[u8],
    stable: StableHow,
) -> Result<[u8; 8], Wrong> {
    let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let head = Write3Head { file, offset, count, stable };
    let args = Args3::Write(Write3Args { head, data: Span { offset: 0, bytes } });
    let done = session.nfs::<Write3ResOk, WccData>(&args)?;
    must(done.count == count, || format!("WRITE took {} of {count} bytes", done.count))?;
    must(done.committed.wire() >= stable.wire(), || {
        format!("WRITE asked for {stable:?} and got {:?}", done.committed)
    })?;
    Ok(done.verf)
}

/// COMMIT of a whole file; its verifier must be that of the WRITEs.
pub(crate) fn commit(session: &mut Session, file: NfsFh3, verifier: [u8; 8]) -> Result<(), Wrong> {
    let args = Args3::Commit(Commit3Args { file, offset: 0, count: 0 });
    let done = session.nfs::<Commit3ResOk, WccData>(&args)?;
    must(done.verf == verifier, || "the write verifier changed: the server restarted".into())
}

/// Reads bytes back, which must be these.
pub(crate) fn read_back(
    session: &mut Session,
    file: NfsFh3,
    offset: u64,
    bytes: &[u8],
) -> Result<(), Wrong> {
    let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let found = session.read(file, offset, count)?;
    must(found == bytes, || "READ gave other bytes than WRITE took".into())
}

pub(crate) fn remove(session: &mut Session, dir: NfsFh3, name: &str) -> Result<(), Wrong> {
    session.do_nfs(&Args3::Remove(place(dir, name)))
}

pub(crate) fn must(holds: bool, what: impl FnOnce() -> String) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(Wrong::Differs(what())) }
}

/// Bytes that no compression makes small: so a WRITE crosses the network in full frames.
pub(crate) fn data() -> Vec<u8> {
    let mut random = aquifer_client::random::Random::new(7);
    let words = (0..DATA_BYTES / 8).map(|_| random.next_u64());
    words.flat_map(u64::to_le_bytes).collect()
}

/// Of a WRITE: many frames of any network.
const DATA_BYTES: u32 = 64 * 1024;
/// The largest disk of ESXi.
const LARGEST: u64 = 62 << 40;
/// Clocks that NTP keeps are nearer.
const CLOCK_OFF_MS: i64 = 1000;
