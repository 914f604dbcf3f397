//! Calls that must not run twice: sent, answered, and sent again, byte for byte, from a new port to
//! a server that was killed in between.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use aquifer_nfs::proto::mount::{self, DirPath, MountRes3, Path};
use aquifer_nfs::proto::v3::{
    Args3, Create3Args, Create3Res, CreateHow3, DirOpArgs3, Getattr3Args, Getattr3Res, Link3Args,
    Link3Res, Lookup3Res, Mkdir3Args, Mknod3Args, MknodData3, NfsFh3, Read3Args, Read3Res,
    Remove3Res, Rename3Args, Rename3Res, Res3, Sattr3, Setattr3Args, Setattr3Res, StableHow,
    Symlink3Args, SymlinkData3, Write3Args, Write3Head, Write3Res,
};
use aquifer_rig::wire::call::{Caller, of_mount, of_nfs, record_of};
use aquifer_rig::wire::results;
use aquifer_rpc::auth::{AuthSys, Gids};
use aquifer_rpc::xdr::{Decode, Decoder, Span};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, socket_with};

use crate::exports::address;
use crate::support::Place;

/// A call as it is on the wire. The stamp is that of old Linux: a new one each time.
pub fn nfs3(xid: u32, stamp: u32, args: &Args3<'_>) -> Vec<u8> {
    record_of(caller(stamp), xid, of_nfs(args), args)
}

fn caller(stamp: u32) -> AuthSys<'static> {
    let gids = Gids::new(&[5, 6]).unwrap();
    AuthSys { stamp, machine_name: b"esx7", uid: 0, gid: 0, gids }
}

/// Connects from a low port, as the superuser of a host: acts on snapshots take no others.
pub fn connect(nfs: &str) -> TcpStream {
    let server: SocketAddr = nfs.parse().unwrap();
    for port in (600..1024).rev() {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        // Connections that have ended may still have the port.
        set_socket_reuseaddr(&socket, true).unwrap();
        let own = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        if net::bind(&socket, &own).is_ok() && net::connect(&socket, &server).is_ok() {
            return TcpStream::from(socket);
        }
    }
    panic!("no low port is free");
}

/// Sends a record on a connection of its own; returns the results.
pub fn exchange(nfs: &str, record: &[u8]) -> Vec<u8> {
    let mut stream = connect(nfs);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(record).unwrap();
    let reply = Caller::new(stream).receive().unwrap();
    let (_, from) = results(&reply).unwrap();
    from.remaining().to_vec()
}

fn decode<'a, T: Decode<'a>>(results: &'a [u8]) -> T {
    let mut from = Decoder::new(results);
    let value = T::decode(&mut from).unwrap();
    assert!(from.remaining().is_empty());
    value
}

/// The handle of an export.
pub fn mounted(nfs: &str, path: &str) -> NfsFh3 {
    let path = DirPath { path: Path(path.as_bytes()) };
    let mnt = record_of(caller(0), 1, of_mount(mount::Procedure::Mnt), &path);
    let mounted = exchange(nfs, &mnt);
    let MountRes3::Ok { fhandle, .. } = decode(&mounted) else { panic!("MNT") };
    fhandle
}

/// A call that only reads.
fn ask(nfs: &str, args: &Args3<'_>) -> Vec<u8> {
    exchange(nfs, &nfs3(1, 0, args))
}

pub fn place<'n>(dir: NfsFh3, name: &'n str) -> DirOpArgs3<'n> {
    DirOpArgs3 { dir, name: name.as_bytes() }
}

fn size(size: u64) -> Sattr3 {
    Sattr3 { size: Some(size), ..Sattr3::NONE }
}

/// A client's memory of a call: how to send it again, its status, and the handle that it got.
pub struct Sent<'a> {
    xid: u32,
    args: Args3<'a>,
    answer: (u32, Option<NfsFh3>),
}

/// The status of an answer, and the handle in it; the answer must be whole.
pub fn answer(args: &Args3<'_>, results: &[u8]) -> (u32, Option<NfsFh3>) {
    let status = u32::from_be_bytes(results[..4].try_into().unwrap());
    let mut handle = None;
    match args {
        Args3::Create(_) | Args3::Mkdir(_) | Args3::Symlink(_) | Args3::Mknod(_) => {
            if let Res3::Ok(made) = decode::<Create3Res>(results) {
                handle = made.obj;
                let now = made.dir_wcc.after.expect("the directory is there");
                assert!(now.nlink >= 2);
            }
        }
        Args3::Setattr(_) => drop(decode::<Setattr3Res>(results)),
        Args3::Remove(_) | Args3::Rmdir(_) => drop(decode::<Remove3Res>(results)),
        Args3::Rename(_) => drop(decode::<Rename3Res>(results)),
        Args3::Link(_) => drop(decode::<Link3Res>(results)),
        Args3::Write(_) => drop(decode::<Write3Res>(results)),
        other => panic!("{other:?}"),
    }
    (status, handle)
}

pub struct Client<'a> {
    pub nfs: String,
    pub sent: Vec<Sent<'a>>,
}

impl<'a> Client<'a> {
    pub fn call(&mut self, args: Args3<'a>) -> Option<NfsFh3> {
        let xid = 0x7000_0000 + u32::try_from(self.sent.len()).unwrap();
        let results = exchange(&self.nfs, &nfs3(xid, 1, &args));
        let answer = answer(&args, &results);
        assert_eq!(answer.0, 0, "{args:?}");
        self.sent.push(Sent { xid, args, answer });
        answer.1
    }

    /// Sends everything again.
    fn again(&self) {
        for sent in &self.sent {
            let results = exchange(&self.nfs, &nfs3(sent.xid, 2, &sent.args));
            assert_eq!(answer(&sent.args, &results), sent.answer, "{:?}", sent.args);
        }
    }

    /// The first bytes of a file.
    pub fn read(&self, file: NfsFh3, count: u32) -> Vec<u8> {
        let read = ask(&self.nfs, &Args3::Read(Read3Args { file, offset: 0, count }));
        let Res3::Ok(read) = decode::<Read3Res<'_>>(&read) else { panic!("READ") };
        read.data.bytes.to_vec()
    }

    pub fn lookup(&self, dir: NfsFh3, name: &str) -> Option<NfsFh3> {
        match decode::<Lookup3Res>(&ask(&self.nfs, &Args3::Lookup(place(dir, name)))) {
            Res3::Ok(found) => Some(found.object),
            Res3::Fail { .. } => None,
        }
    }
}

const DATA: &[u8] = b"written after the truncation";

/// Every procedure that must not run twice, each of which would fail or destroy something if it
/// did. Returns the handles of `a` and `x`.
fn work(client: &mut Client<'_>, root: NfsFh3) -> (NfsFh3, NfsFh3) {
    let attributes = Sattr3::NONE;
    let create = |name, how| Args3::Create(Create3Args { place: place(root, name), how });
    let a = client.call(create("a", CreateHow3::Guarded(size(10)))).unwrap();
    let x = client.call(create("x", CreateHow3::Exclusive(*b"verifier"))).unwrap();
    client.call(create("u", CreateHow3::Unchecked(attributes)));
    // It exists already: nothing changes, and that stays so when `u` is another file.
    client.call(create("u", CreateHow3::Unchecked(attributes)));
    client.call(Args3::Mkdir(Mkdir3Args { place: place(root, "d"), attributes }));
    let symlink = SymlinkData3 { symlink_attributes: attributes, symlink_data: b"to" };
    client.call(Args3::Symlink(Symlink3Args { place: place(root, "s"), symlink }));
    let what = MknodData3::Fifo(attributes);
    client.call(Args3::Mknod(Mknod3Args { place: place(root, "p"), what }));
    client.call(Args3::Link(Link3Args { file: a, link: place(root, "l") }));
    let (from, to) = (place(root, "u"), place(root, "v"));
    client.call(Args3::Rename(Rename3Args { from, to }));
    client.call(Args3::Remove(place(root, "s")));
    client.call(Args3::Rmdir(place(root, "d")));
    let resize = Setattr3Args { object: a, new_attributes: size(0), guard: None };
    client.call(Args3::Setattr(resize));
    let now = ask(&client.nfs, &Args3::Getattr(Getattr3Args { object: x }));
    let Res3::Ok(now) = decode::<Getattr3Res>(&now) else { panic!("GETATTR") };
    let new_attributes = Sattr3 { mode: Some(0o600), ..attributes };
    let guarded = Setattr3Args { object: x, new_attributes, guard: Some(now.ctime) };
    client.call(Args3::Setattr(guarded));
    // A late SETATTR must not cut off data written since.
    let count = u32::try_from(DATA.len()).unwrap();
    let head = Write3Head { file: a, offset: 0, count, stable: StableHow::FileSync };
    let data = Span { offset: 0, bytes: DATA };
    let wrote = ask(&client.nfs, &Args3::Write(Write3Args { head, data }));
    assert!(matches!(decode::<Write3Res>(&wrote), Res3::Ok(_)));
    (a, x)
}

fn check(client: &Client<'_>, root: NfsFh3, (a, x): (NfsFh3, NfsFh3)) {
    for (name, is_there) in [("p", true), ("v", true), ("u", false), ("s", false), ("d", false)] {
        assert_eq!(client.lookup(root, name).is_some(), is_there, "{name}");
    }
    assert_eq!((client.lookup(root, "a"), client.lookup(root, "l")), (Some(a), Some(a)));
    assert_eq!(client.lookup(root, "x"), Some(x));
    assert_eq!(client.read(a, 100), DATA);
}

fn calls_get_their_first_answer_again(commit: bool) {
    let place = Place::new();
    let image = place.image("a");
    let mut daemon = place.serve();
    place.must(&["pool", "create", "tank", &image]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    let nfs = address(&place);
    let root = mounted(&nfs, "/tank/vms");
    let mut client = Client { nfs, sent: Vec::new() };
    let files = work(&mut client, root);
    client.again();
    check(&client, root, files);
    // A second life finds the calls of the first one in the log, or in the table; a third one finds
    // what the second one made of them.
    for _ in 0..2 {
        if commit {
            // An act of the administrator is answered when its txg is on disk.
            place.must(&["set", "compression=lz4", "tank/vms"]);
        }
        daemon.kill9();
        daemon = place.serve();
        place.wait_for(|| address(&place) != client.nfs);
        client.nfs = address(&place);
        client.again();
        check(&client, root, files);
    }
    // The same after an orderly end.
    place.must(&["pool", "export", "tank"]);
    let report = place.json(&["inspect", &image]);
    assert_eq!(report["errors"], 0, "{report:#}");
    place.must(&["pool", "import", "tank", "-d", &image]);
    client.nfs = address(&place);
    client.again();
    check(&client, root, files);
}

#[test]
fn calls_in_the_log_get_their_first_answer_again_after_kill_9() {
    calls_get_their_first_answer_again(false);
}

#[test]
fn calls_in_a_committed_txg_get_their_first_answer_again_after_kill_9() {
    calls_get_their_first_answer_again(true);
}
