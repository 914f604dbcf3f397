//! A whole server over a pool on a simulated disk: calls that are nearly right, and any record.
//!
//! Each input works in a directory of its own, through handles from earlier replies. The pool lives
//! for [`INPUTS_MAX`] inputs, so that damage by one would affect the next. Then it is exported and
//! inspected. The world is simulated: one thread with its own clock, the same every time.
//!
//! The target checks these invariants:
//! - a call is answered once, in one record, with its xid and at most the announced number of
//!   bytes, or not at all if it is no call; so are coalesced WRITEs;
//! - the reply parses as its procedure's reply, to the last byte, and keeps to the call's counts;
//! - a change of names or attributes that is sent again gets its first answer byte for byte;
//! - the same of snapshots, clones and rollbacks that a host asks for by names in `.aquifer`;
//! - no two owners hold conflicting locks;
//! - a call takes steps in proportion to its own bytes, its reply and the data that it must look at
//!   ([`limits`]);
//! - no input takes more than [`MEMORY_MAX`]; the pool stays in service and is consistent
//!   afterwards.

mod call;
mod crowd;
mod limits;
mod reply;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::buf::pages_of;
use aquifer_blockio::{Disk, World};
use aquifer_files::Service;
use aquifer_inspect::{Options, inspect};
use aquifer_nfs::lock::{LockKind, LockState, LockView, Range};
use aquifer_nfs::proto::mount::{self, DirPath, MountRes3, Path};
use aquifer_nfs::proto::v3::{Args3, Mkdir3Args};
use aquifer_nfs::proto::v3::{DirOpArgs3, NfsFh3, Sattr3};
use aquifer_nfs::{Access, Export, Exports, Nfs, PagedWrite, Squash, Volume};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::SILENT_AFTER;
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_pool::import::{ImportOptions, scan};
use aquifer_rpc::xdr::{Decode, EncodeBuf};
use aquifer_sim::{DiskConfig, Image, Sim, SimDisk};
use arbitrary::Unstructured;
use futures_util::future::join_all;

use crate::cost::{Metered, cost_of};
use call::{Known, Sent};
use crowd::Crowd;

/// Tries calls made from the input.
pub fn calls(input: &[u8]) {
    with_bed(false, |bed| bed.calls(&mut Unstructured::new(input)));
}

/// Tries calls made from the input, on a server with thousands of users.
pub fn crowd(input: &[u8]) {
    with_bed(true, |bed| bed.calls(&mut Unstructured::new(input)));
}

/// Tries the input as a record.
pub fn bytes(input: &[u8]) {
    with_bed(false, |bed| {
        let peer = SocketAddr::from(([10, 0, 0, 1], 700));
        bed.exchange(vec![Sent { peer, record: input.to_vec() }]);
    });
}

thread_local! {
    static BED: RefCell<Option<Bed>> = const { RefCell::new(None) };
}

fn with_bed(is_crowded: bool, work: impl FnOnce(&mut Bed)) {
    BED.with_borrow_mut(|slot| {
        // Tests give inputs to one target after the other.
        if slot.as_ref().is_some_and(|bed| bed.crowd.is_some() != is_crowded)
            && let Some(bed) = slot.take()
        {
            bed.finish();
        }
        let bed = slot.get_or_insert_with(|| Bed::new(is_crowded));
        bed.inputs += 1;
        bed.bytes = 0;
        let ((), cost) = cost_of(|| work(bed));
        assert!(cost.peak <= MEMORY_MAX, "{} bytes of memory for one input", cost.peak);
        assert_eq!(bed.service.pool.suspended(), None);
        if bed.inputs >= INPUTS_MAX
            && let Some(bed) = slot.take()
        {
            bed.finish();
        }
    });
}

/// A server, its pool, and the machine that they run on.
struct Bed {
    sim: Sim,
    disk: SimDisk,
    service: Service,
    nfs: Arc<Nfs>,
    /// The roots of the exports; everybody may change the first one.
    roots: Vec<NfsFh3>,
    inputs: u32,
    /// Bytes that this input has sent and received so far.
    bytes: usize,
    crowd: Option<Crowd>,
}

impl Bed {
    fn new(is_crowded: bool) -> Bed {
        let mut sim = Sim::new(1);
        let disk = sim.add_disk("disk", Image::new(DISK_SECTORS), DiskConfig::default());
        let world: Arc<dyn World> = Arc::new(sim.world());
        let service = sim.run_until(service(world, disk.clone())).unwrap();
        let more = if is_crowded { crowd::exports() } else { Vec::new() };
        let exports = exports(&service, more);
        let nfs = match is_crowded {
            true => Nfs::with_locks(exports, crowd::locks()),
            false => Nfs::new(exports),
        };
        let (nfs, roots) = (Arc::new(nfs), Vec::new());
        let mut bed = Bed { sim, disk, service, nfs, roots, inputs: 0, bytes: 0, crowd: None };
        for path in ["/tank", "/tank/ro", "/tank/one"] {
            let root = bed.mount(path);
            bed.roots.push(root);
        }
        if is_crowded {
            bed.crowd = Some(Crowd::gather(&mut bed));
        }
        bed
    }

    fn mount(&mut self, path: &str) -> NfsFh3 {
        let what = (mount::PROGRAM, mount::VERSION, mount::Procedure::Mnt.wire());
        let args = DirPath { path: Path(path.as_bytes()) };
        let [reply] = &self.exchange(vec![call::plain(what, &args)])[..] else { unreachable!() };
        let mut results = reply::results(reply.as_ref().unwrap()).unwrap();
        match MountRes3::decode(&mut results).unwrap() {
            MountRes3::Ok { fhandle, .. } => fhandle,
            MountRes3::Fail(status) => panic!("{path}: {status:?}"),
        }
    }

    /// Makes calls, some of them at once, until the input is used up.
    fn calls(&mut self, from: &mut Unstructured<'_>) {
        let mut known = Known::new(&self.roots);
        let name = self.inputs.to_string();
        let place = DirOpArgs3 { dir: self.roots[0], name: name.as_bytes() };
        let home = Args3::Mkdir(Mkdir3Args { place, attributes: Sattr3::NONE });
        self.learn(vec![call::nfs3(&home)], &mut known);
        if let Some(crowd) = &self.crowd {
            crowd.show(from, &mut known);
        }
        for _ in 0..ROUNDS_MAX {
            if from.is_empty() {
                break;
            }
            let at_once = from.int_in_range(1..=3).unwrap_or(1);
            let sent = (0..at_once).map_while(|_| call::arbitrary(from, &known).ok()).collect();
            self.learn(sent, &mut known);
            if self.crowd.is_none() {
                self.check_locks();
            }
            if from.ratio(1, 16).unwrap_or(false) {
                match self.crowd.is_none() && from.ratio(1, 4).unwrap_or(false) {
                    true => self.calls_in_silence(from, &mut known),
                    false => self.rest(PAUSE),
                }
                if self.crowd.is_some() {
                    crowd::attend(self.nfs.locks(), from);
                }
            }
        }
        self.check_locks();
    }

    fn rest(&mut self, pause: Duration) {
        let pause = self.sim.world().sleep(pause);
        self.sim.run_until(pause).unwrap();
    }

    /// Makes calls while the disk does not answer. They hear "later", or wait for it.
    fn calls_in_silence(&mut self, from: &mut Unstructured<'_>, known: &mut Known) {
        let pool = Arc::clone(&self.service.pool);
        // Something waits for the disk.
        let syncing = Arc::clone(&pool);
        let sync = async move {
            syncing.sync().await.unwrap();
        };
        self.disk.stall(SILENCE);
        self.sim.world().spawn("sync", Box::pin(sync));
        for _ in 0..SILENT_AFTER + 2 {
            self.rest(LISTENS_EVERY);
            pool.listen();
        }
        assert!(pool.is_silent(), "the disk does not answer");
        let at_once = from.int_in_range(1..=3).unwrap_or(1);
        let sent = (0..at_once).map_while(|_| call::arbitrary(from, known).ok()).collect();
        self.learn(sent, known);
        self.rest(SILENCE);
        pool.listen();
        assert!(!pool.is_silent(), "the disk answers again");
    }

    /// Exchanges, and remembers the handles in the replies. Sends each change again, like a client
    /// without an answer: it must not run twice.
    fn learn(&mut self, sent: Vec<Sent>, known: &mut Known) {
        let answers = self.exchange(sent.clone());
        let mut again = Vec::new();
        for (sent, answer) in sent.into_iter().zip(answers) {
            if let Some(answer) = answer
                && reply::check(&sent.record, &answer, known)
            {
                again.push((sent, answer));
            }
        }
        let (sent, first): (Vec<Sent>, Vec<Vec<u8>>) = again.into_iter().unzip();
        let second = self.exchange(sent);
        assert_eq!(second, first.into_iter().map(Some).collect::<Vec<_>>(), "first answers again");
    }

    /// Checks that no two owners' locks conflict.
    fn check_locks(&self) {
        let mut locks = self.nfs.locks().list();
        // The crowd's own locks are many, and the same each time.
        locks.retain(|lock| !crowd::is_one_of(lock.owner.client.address));
        let held = |lock: &&LockView| lock.state != LockState::Waiting;
        for (at, lock) in locks.iter().enumerate().filter(|(_, lock)| held(lock)) {
            for other in locks[..at].iter().filter(held) {
                if (lock.file, &lock.owner) == (other.file, &other.owner) || lock.file != other.file
                {
                    continue;
                }
                let (Some((one, wide)), Some((two, broad))) = (range(lock), range(other)) else {
                    continue;
                };
                let apart = one.last < two.first || two.last < one.first;
                assert!(apart || !(wide || broad), "{lock:?} and {other:?}");
            }
        }
    }

    /// Sends records at once; returns their replies, without marks.
    fn exchange(&mut self, sent: Vec<Sent>) -> Vec<Option<Vec<u8>>> {
        let nfs = &self.nfs;
        let answers = sent.iter().map(|Sent { peer, record }| async move {
            twice_together(nfs, *peer, record).await;
            let announced = nfs.reply_bytes_max(record);
            let mut out = EncodeBuf::new();
            let (answered, steps) = Metered::new(nfs.answer(*peer, record, &mut out)).await;
            assert!(out.len() <= announced, "{} bytes, announced {announced}", out.len());
            if answered.is_err() {
                assert!(out.is_empty(), "what is no call gets no answer");
                return (None, steps);
            }
            (Some(body(&out, record)), steps)
        });
        let answers = self.sim.run_until(join_all(answers)).unwrap();
        let own = sent
            .iter()
            .zip(&answers)
            .map(|(sent, (reply, _))| sent.record.len() + reply.as_ref().map_or(0, Vec::len));
        let own: Vec<usize> = own.collect();
        self.bytes += own.iter().sum::<usize>();
        for ((Sent { record, .. }, (_, steps)), own) in sent.iter().zip(&answers).zip(own) {
            limits::check(record, *steps, [own, self.bytes], &self.nfs);
        }
        answers.into_iter().map(|(reply, _)| reply).collect()
    }

    /// Exports the pool and inspects it.
    fn finish(self) {
        let Bed { mut sim, disk, service, nfs, .. } = self;
        sim.run_until(service.pool.export()).unwrap().unwrap();
        drop((nfs, service));
        let disks = vec![Arc::new(disk) as Arc<dyn Disk>];
        let options = Options { data: true, ..Options::default() };
        let report = sim.run_until(inspect(disks, &options)).unwrap();
        assert!(report.is_clean(), "{report}");
    }
}

/// Sends a WRITE that can be coalesced twice, on the path for coalesced WRITEs.
async fn twice_together(nfs: &Nfs, peer: SocketAddr, record: &[u8]) {
    let Some(data) = aquifer_nfs::write_data(record, record.len()) else { return };
    let pages = pages_of(&record[data.clone()]);
    let write = PagedWrite { head: &record[..data.start], pages: &pages };
    if !write.may_take(&write) {
        return;
    }
    let answers = nfs.answer_together(&peer.into(), &[write, write]).await;
    assert_eq!(answers.len(), 2, "one for each");
    for (reply, _) in answers.iter().filter(|(_, done)| done.is_ok()) {
        assert!(reply.len() <= nfs.reply_bytes_max(record));
        body(reply, record);
    }
}

/// The single record of a reply to the call in `record`, without its mark.
fn body(reply: &EncodeBuf, record: &[u8]) -> Vec<u8> {
    let reply = reply.to_vec();
    let (mark, body) = reply.split_first_chunk().unwrap();
    let length = u32::try_from(body.len()).unwrap();
    assert_eq!(u32::from_be_bytes(*mark), length | 1 << 31, "one record");
    assert_eq!(body[..4], record[..4], "the call's xid");
    reply::header(body);
    body.to_vec()
}

/// The byte range of a lock, and whether it is exclusive.
fn range(lock: &LockView) -> Option<(Range, bool)> {
    match lock.kind {
        LockKind::Shared(range) => Some((range, false)),
        LockKind::Exclusive(range) => Some((range, true)),
        LockKind::Share { .. } => None,
    }
}

async fn service(world: Arc<dyn World>, disk: SimDisk) -> Service {
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let named = || vec![NamedDisk { path: "disk".into(), disk: disk.clone() }];
    let vdevs = vec![VdevSpec { redundancy: Redundancy::Single, disks: named() }];
    let spec = PoolSpec { name: "tank".into(), vdevs, logs: Vec::new(), force: false };
    create(world.clone(), spec).await.unwrap();
    let (mut pools, _) = scan(named()).await;
    let (_, found) = pools.pop_first().unwrap();
    let service = Service::open(world, found, &ImportOptions::default()).await.unwrap();
    for dataset in ["tank/ro", "tank/one"] {
        service.datasets.create(dataset, &[]).await.unwrap();
    }
    service.datasets.set("tank", "snapcontrol", Some("10.0.0.1")).await.unwrap();
    service
}

/// One export for everybody, one that is read-only, one for a host whose users are squashed.
fn exports(service: &Service, more: Vec<Export>) -> Exports {
    let read_only = Export { access: Access::read_only(), ..Export::new("/tank/ro", "tank/ro") };
    let access = Access::read_write_for(["10.0.0.1".parse().unwrap()]);
    let one = Export { access, squash: Squash::All, ..Export::new("/tank/one", "tank/one") };
    let files = Arc::clone(&service.files);
    let volume = Volume::new(Arc::clone(&files));
    let root_of = move |dataset: &str| Some(volume.root(files.root(dataset)?));
    let own = vec![Export::new("/tank", "tank"), read_only, one];
    Exports::new([own, more].concat(), root_of).unwrap()
}

/// Inputs in the life of a pool.
const INPUTS_MAX: u32 = 200;
/// Rounds of calls from one input.
const ROUNDS_MAX: usize = 16;
/// Sectors of the disk: a GiB, of which only a little is ever written.
const DISK_SECTORS: u64 = 256 << 10;
/// Time that passes now and then: longer than a txg stays open.
const PAUSE: Duration = Duration::from_secs(10);
/// Time for which the disk does not answer: the pool is silent for a part of it.
const SILENCE: Duration = Duration::from_secs(20);
/// How often the daemon finds out whether the disks answer.
const LISTENS_EVERY: Duration = Duration::from_secs(1);
/// Memory for one input: the data of its WRITEs in the open txg, and a sync of it.
const MEMORY_MAX: usize = 128 << 20;
