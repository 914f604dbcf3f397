//! A server with thousands of users: a call that is cheap with a few files, locks and exports must
//! not become expensive because others have many.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use aquifer_blockio::World;
use aquifer_nfs::lock::{Belief, Client, DurableList, GrantAnswer, Locks, Outside};
use aquifer_nfs::proto::nlm::{self, Limited, Lock4, LockArgs4};
use aquifer_nfs::proto::v3::{
    Args3, Create3Args, CreateHow3, DirOpArgs3, Mkdir3Args, NfsFh3, Sattr3, StableHow, Write3Args,
    Write3Head,
};
use aquifer_nfs::{Access, Export};
use aquifer_pool::BoxFuture;
use aquifer_rpc::xdr::Span;
use arbitrary::Unstructured;

use super::call::{self, Known, Sent};
use super::{Bed, PAUSE};

/// The files of the crowd.
pub struct Crowd {
    /// Files with as many locks as allowed, a directory of many files, and a file in many pieces.
    shown: Vec<NfsFh3>,
}

impl Crowd {
    pub fn gather(bed: &mut Bed) -> Crowd {
        let mut known = Known::new(&[]);
        let root = bed.roots[0];
        let many = bed.made(root, b"many", true);
        for name in 0..FILES {
            let name = format!("file {name}");
            bed.learn(vec![create(many, name.as_bytes())], &mut known);
        }
        let pieces = bed.made(root, b"pieces", false);
        for at in 0..PIECES {
            let data = [b'p'; 4096];
            let head = Write3Head {
                file: pieces,
                offset: at * 3 * 4096,
                count: 4096,
                stable: StableHow::Unstable,
            };
            let write = Write3Args { head, data: Span { offset: 0, bytes: &data } };
            bed.exchange(vec![call::nfs3(&Args3::Write(write))]);
        }
        let mut shown = vec![many, pieces];
        for file in 0..LOCKED_FILES {
            let file = bed.made(root, format!("locked {file}").as_bytes(), false);
            shown.push(file);
            let held = (0..HELD).map(|at| lock(file, at, at * 2, 1, false));
            // Each of these waits for one of the others, or for three.
            let waiting = (0..WAITING).map(|at| lock(file, at + 1, at * 8, 1 + at % 2 * 4, true));
            let nfs = bed.nfs.clone();
            let sent: Vec<Sent> = held.chain(waiting).collect();
            let answers = async move {
                for Sent { peer, record } in sent {
                    let mut out = aquifer_rpc::xdr::EncodeBuf::new();
                    nfs.answer(peer, &record, &mut out).await.unwrap();
                }
            };
            bed.sim.run_until(answers).unwrap();
        }
        let pause = bed.sim.world().sleep(PAUSE);
        bed.sim.run_until(pause).unwrap();
        // The first call of an address looks it up in all rules; after that the result is known.
        for peer in call::PEERS.into_iter().chain([member(0), member(1), member(2)]) {
            assert!(bed.nfs.exports().knows(peer.ip()));
        }
        let locks = bed.nfs.locks().list().len();
        assert_eq!(u64::try_from(locks).unwrap(), LOCKED_FILES * (HELD + WAITING));
        Crowd { shown }
    }

    /// Shows an input some of these handles.
    pub fn show(&self, from: &mut Unstructured<'_>, known: &mut Known) {
        let mut shown = self.shown.clone();
        shown.retain(|_| from.ratio(1, 3).unwrap_or(false));
        known.of_crowd(shown);
    }
}

impl Bed {
    /// Makes a directory or a file, and returns its handle.
    fn made(&mut self, dir: NfsFh3, name: &[u8], is_dir: bool) -> NfsFh3 {
        let sent = match is_dir {
            true => {
                let place = DirOpArgs3 { dir, name };
                call::nfs3(&Args3::Mkdir(Mkdir3Args { place, attributes: Sattr3::NONE }))
            }
            false => create(dir, name),
        };
        let mut known = Known::new(&[]);
        self.learn(vec![sent], &mut known);
        known.newest().unwrap()
    }
}

fn create(dir: NfsFh3, name: &[u8]) -> Sent {
    let (place, how) = (DirOpArgs3 { dir, name }, CreateHow3::Guarded(Sattr3::NONE));
    call::nfs3(&Args3::Create(Create3Args { place, how }))
}

/// A LOCK by a member of the crowd: as many owners as locks, on a few machines.
fn lock(file: NfsFh3, number: u64, l_offset: u64, l_len: u64, block: bool) -> Sent {
    let machine = u8::try_from(number % MACHINES).unwrap();
    let (caller_name, fh) = (Limited(&b"host"[..]), Limited(file.bytes()));
    let (oh, svid) = (Limited(&b"o"[..]), i32::try_from(number / MACHINES % OWNERS).unwrap());
    let alock = Lock4 { caller_name, fh, oh, svid, l_offset, l_len };
    let cookie = Limited(&b"c"[..]);
    let args = LockArgs4 { cookie, block, exclusive: true, alock, reclaim: false, state: 1 };
    let what = (nlm::PROGRAM, nlm::VERSION, nlm::Procedure::Lock.wire());
    Sent { peer: member(machine), ..call::plain(what, &args) }
}

/// A machine of the crowd.
pub fn member(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(20, 0, 0, number), 700))
}

/// Whether this address belongs to the crowd.
pub fn is_one_of(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.octets()[0] == 20)
}

/// Exports of datasets that do not exist here, each for a few hosts: they show the cost of finding
/// that none of them matches.
pub fn exports() -> Vec<Export> {
    let export = |number| {
        let hosts = (0..4).map(|host| format!("30.0.{host}.{}", number % 256).parse().unwrap());
        let name = format!("tank/vm{number}");
        Export { access: Access::read_write_for(hosts), ..Export::new(format!("/{name}"), name) }
    };
    (0..EXPORTS).map(export).collect()
}

/// Locks of a server that can call clients, so that requests may wait.
pub fn locks() -> Arc<Locks> {
    Arc::new(Locks::new(Arc::new(Willing), 1, None))
}

/// Calls hosts until there are no more messages: some accept, some do not answer.
pub fn attend(locks: &Locks, from: &mut Unstructured<'_>) {
    while let Some(host) = locks.next_host() {
        while let Some(callout) = locks.next_callout(host) {
            let Some(grant) = callout.grant else { continue };
            match from.int_in_range(0..=3).unwrap_or(2) {
                0 | 1 => locks.granted(grant, GrantAnswer::Given),
                2 => locks.granted(grant, GrantAnswer::Accepted),
                _ => drop(locks.unreachable(host)),
            }
        }
    }
    while let Some(restart) = locks.next_restart() {
        locks.restart_judged(&restart, Belief::OnItsWord);
        locks.restart_closed(&restart);
    }
}

/// Writes every list at once.
#[derive(Debug)]
struct Willing;

impl Outside for Willing {
    fn wake(&self) {}

    fn keep<'a>(
        &'a self,
        _: &'a Client,
        list: &'a (dyn DurableList + 'a),
    ) -> BoxFuture<'a, std::io::Result<()>> {
        if list.list().is_some() {
            list.written();
        }
        Box::pin(async { Ok(()) })
    }
}

/// Exports beside the used ones.
const EXPORTS: u32 = 4000;
/// Files in one directory.
const FILES: u32 = 1000;
/// Separate pages of a file.
const PIECES: u64 = 500;
/// Files with locks, and the number of locks of each: nearly as many as a file may have, and as all
/// may have together.
const LOCKED_FILES: u64 = 8;
const HELD: u64 = 1000;
const WAITING: u64 = 250;
const MACHINES: u64 = 16;
/// Owners on each machine, including those that inputs use.
const OWNERS: u64 = 3;
