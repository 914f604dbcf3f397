//! Refusals of RPC and of the export table, before any file is used; MOUNT's lists; and that no
//! bytes cause a panic. Tests with the daemon cover most procedures over real files.

mod files;
mod fuzz;
mod mount;
mod refusals;

use std::ops::Deref;
use std::sync::Arc;

use aquifer_blockio::{Disk, FileDisk, OpenOptions, TokioWorld, World, create_image};
use aquifer_files::{FileHandle, Service};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_pool::import::{ImportOptions, scan};
use aquifer_rpc::auth::{AuthSys, Gids, OpaqueAuth};
use aquifer_rpc::message::ReplyBody;
use aquifer_rpc::xdr::Encode;

use super::*;
use crate::access::Access;
use crate::export::Export;
use crate::proto::v3::*;
use crate::volume::Volume;

const XID: u32 = 0x5eed_0001;

fn client(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 700))
}

/// A server over a pool without exported datasets: a handle that the table admits is stale.
struct Served {
    nfs: Nfs,
    _pool: Service,
    _image: tempfile::TempDir,
}

impl Deref for Served {
    type Target = Nfs;
    fn deref(&self) -> &Nfs {
        &self.nfs
    }
}

/// `/rw` and `/ro` for everybody, `/one` for 10.0.0.1; datasets have the guids 1, 2 and 3.
async fn nfs() -> Served {
    let image = tempfile::tempdir().unwrap();
    let pool = pool(&image.path().join("disk")).await;
    let read_only = Export { access: Access::read_only(), ..Export::new("/ro", "ro") };
    let access = Access::read_write_for(["10.0.0.1".parse().unwrap()]);
    let one = Export { access, ..Export::new("/one", "one") };
    let exports = vec![Export::new("/rw", "rw"), read_only, one];
    let volume = Volume::new(pool.files.clone());
    let root_of = move |dataset: &str| match dataset {
        "rw" => Some(volume.root(file(1))),
        "ro" => Some(volume.root(file(2))),
        "one" => Some(volume.root(file(3))),
        _ => None,
    };
    let nfs = Nfs::new(Exports::new(exports, root_of).unwrap());
    Served { nfs, _pool: pool, _image: image }
}

pub(crate) async fn pool(image: &std::path::Path) -> Service {
    create_image(image, 256 << 8).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(image, OpenOptions::exclusive()).unwrap());
    let named = || NamedDisk { path: "disk".into(), disk: disk.clone() };
    let world: Arc<dyn World> = Arc::new(TokioWorld::new(tokio::runtime::Handle::current()));
    let vdev = VdevSpec { redundancy: Redundancy::Single, disks: vec![named()] };
    let spec = PoolSpec { name: "tank".into(), vdevs: vec![vdev], logs: Vec::new(), force: false };
    create(world.clone(), spec).await.unwrap();
    let (mut pools, _) = scan(vec![named()]).await;
    let (_, found) = pools.pop_first().unwrap();
    Service::open(world, found, &ImportOptions::default()).await.unwrap()
}

fn file(guid: u8) -> FileHandle {
    let mut bytes = [0; 24];
    (bytes[0], bytes[8], bytes[16]) = (guid, 1, 1);
    FileHandle::decode(&bytes).unwrap()
}

fn handle(guid: u8) -> NfsFh3 {
    NfsFh3::new(&file(guid).encode()).unwrap()
}

fn credential() -> Credential<'static> {
    let gids = Gids::new(&[]).unwrap();
    Credential::Sys(AuthSys { stamp: 1, machine_name: b"test", uid: 0, gid: 0, gids })
}

fn call(program: u32, version: u32, procedure: u32, args: &impl Encode) -> Vec<u8> {
    call_as(credential(), program, version, procedure, args)
}

fn call_as(
    credential: Credential<'_>,
    program: u32,
    version: u32,
    procedure: u32,
    args: &impl Encode,
) -> Vec<u8> {
    let verifier = OpaqueAuth::NONE;
    let mut to = EncodeBuf::new();
    to.put(&Call { xid: XID, program, version, procedure, credential, verifier });
    to.put(args);
    to.to_vec()
}

fn nfs3(args: &Args3<'_>) -> Vec<u8> {
    call(PROGRAM, VERSION, args.procedure().wire(), args)
}

/// The reply without its mark. Checks the mark, and that the reply fits the announced size.
async fn answer(nfs: &Nfs, peer: SocketAddr, record: &[u8]) -> Vec<u8> {
    let announced = nfs.reply_bytes_max(record);
    let mut out = EncodeBuf::new();
    out.u32(7);
    nfs.answer(peer, record, &mut out).await.unwrap();
    let bytes = out.to_vec();
    let (before, reply) = bytes.split_at(4);
    let (mark, body) = reply.split_at(4);
    assert_eq!(before, [0, 0, 0, 7], "what was in the buffer stays");
    let mark = u32::from_be_bytes(mark.try_into().unwrap());
    assert_eq!(mark, 0x8000_0000 | u32::try_from(body.len()).unwrap());
    assert!(reply.len() <= announced, "{} bytes, announced {announced}", reply.len());
    body.to_vec()
}

fn reply_of(body: &[u8]) -> (ReplyBody<'_>, Decoder<'_>) {
    let mut from = Decoder::new(body);
    let reply = Reply::decode(&mut from).unwrap();
    assert_eq!(reply.xid, XID);
    (reply.body, from)
}

/// RPC's status for a call.
async fn accepted(nfs: &Nfs, record: &[u8]) -> Accepted {
    let body = answer(nfs, client(1), record).await;
    match reply_of(&body).0 {
        ReplyBody::Accepted { status, .. } => status,
        ReplyBody::Denied(why) => panic!("denied: {why:?}"),
    }
}

/// The status of a procedure's result. The result must decode as that procedure's, to its last
/// byte.
async fn status(nfs: &Nfs, peer: SocketAddr, args: &Args3<'_>) -> Nfsstat3 {
    let body = answer(nfs, peer, &nfs3(args)).await;
    let (reply, mut from) = reply_of(&body);
    assert!(matches!(reply, ReplyBody::Accepted { status: Accepted::Success, .. }));
    let status = decode_result(args.procedure(), &mut from);
    assert!(from.remaining().is_empty(), "{args:?}");
    status
}

fn decode_result(procedure: Procedure3, from: &mut Decoder<'_>) -> Nfsstat3 {
    fn of<'a, T: Decode<'a>, F: Decode<'a>>(from: &mut Decoder<'a>) -> Nfsstat3 {
        Res3::<T, F>::decode(from).unwrap().status()
    }
    match procedure {
        Procedure3::Null => Nfsstat3::Ok,
        Procedure3::Getattr => of::<Fattr3, ()>(from),
        Procedure3::Lookup => of::<Lookup3ResOk, PostOpAttr>(from),
        Procedure3::Access => of::<Access3ResOk, PostOpAttr>(from),
        Procedure3::Readlink => of::<Readlink3ResOk<'_>, PostOpAttr>(from),
        Procedure3::Read => of::<Read3ResOk<'_>, PostOpAttr>(from),
        Procedure3::Write => of::<Write3ResOk, WccData>(from),
        Procedure3::Create | Procedure3::Mkdir | Procedure3::Symlink | Procedure3::Mknod => {
            of::<Create3ResOk, WccData>(from)
        }
        Procedure3::Setattr | Procedure3::Remove | Procedure3::Rmdir => {
            of::<WccData, WccData>(from)
        }
        Procedure3::Rename => of::<RenameWcc, RenameWcc>(from),
        Procedure3::Link => of::<LinkWcc, LinkWcc>(from),
        Procedure3::Readdir => of::<Readdir3ResOk<'_>, PostOpAttr>(from),
        Procedure3::Readdirplus => of::<Readdirplus3ResOk<'_>, PostOpAttr>(from),
        Procedure3::Fsstat => of::<Fsstat3ResOk, PostOpAttr>(from),
        Procedure3::Fsinfo => of::<Fsinfo3ResOk, PostOpAttr>(from),
        Procedure3::Pathconf => of::<Pathconf3ResOk, PostOpAttr>(from),
        Procedure3::Commit => of::<Commit3ResOk, WccData>(from),
    }
}

/// Every procedure that changes nothing, on `object`.
fn looks(object: NfsFh3, name: &[u8]) -> Vec<Args3<'_>> {
    let only = Getattr3Args { object };
    let (dir, cookie, cookieverf) = (object, 0, [0; 8]);
    vec![
        Args3::Getattr(only),
        Args3::Lookup(DirOpArgs3 { dir, name }),
        Args3::Access(Access3Args { object, access: 63 }),
        Args3::Readlink(only),
        Args3::Read(Read3Args { file: object, offset: 0, count: 4096 }),
        Args3::Readdir(Readdir3Args { dir, cookie, cookieverf, count: 4096 }),
        Args3::Readdirplus(Readdirplus3Args {
            dir,
            cookie,
            cookieverf,
            dircount: 4096,
            maxcount: 4096,
        }),
        Args3::Fsstat(only),
        Args3::Fsinfo(only),
        Args3::Pathconf(only),
        Args3::Commit(Commit3Args { file: object, offset: 0, count: 0 }),
    ]
}

/// Every procedure that changes something, on `object`.
fn changes(object: NfsFh3, name: &[u8]) -> Vec<Args3<'_>> {
    let new_attributes = Sattr3::NONE;
    let head = Write3Head { file: object, offset: 0, count: 4, stable: StableHow::FileSync };
    let data = aquifer_rpc::xdr::Span { offset: 0, bytes: b"data" };
    let mut all = vec![
        Args3::Setattr(Setattr3Args { object, new_attributes, guard: None }),
        Args3::Write(Write3Args { head, data }),
    ];
    all.extend(names_changed(object, name));
    all
}

/// Every procedure that changes the entry `name` of `dir`.
fn names_changed(dir: NfsFh3, name: &[u8]) -> Vec<Args3<'_>> {
    let place = DirOpArgs3 { dir, name };
    let attributes = Sattr3::NONE;
    let symlink = SymlinkData3 { symlink_attributes: attributes, symlink_data: b"to" };
    let what = MknodData3::Fifo(attributes);
    vec![
        Args3::Create(Create3Args { place, how: CreateHow3::Guarded(attributes) }),
        Args3::Mkdir(Mkdir3Args { place, attributes }),
        Args3::Symlink(Symlink3Args { place, symlink }),
        Args3::Mknod(Mknod3Args { place, what }),
        Args3::Remove(place),
        Args3::Rmdir(place),
        Args3::Rename(Rename3Args { from: place, to: place }),
        Args3::Link(Link3Args { file: dir, link: place }),
    ]
}
