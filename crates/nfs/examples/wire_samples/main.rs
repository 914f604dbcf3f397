//! Writes a packet capture with a call and two replies of every NFSv3 and MOUNT procedure. Another
//! implementation can then show how it reads them:
//!
//! ```text
//! cargo run -p aquifer-nfs --example wire_samples -- samples.pcap
//! tshark -r samples.pcap -V
//! ```
//! Nothing may be malformed, and no bytes may be left over.

mod capture;
mod values;

use std::io::{self, Write};

use aquifer_nfs::proto::mount;
use aquifer_nfs::proto::v3::{self, *};
use aquifer_rpc::portmap;
use aquifer_rpc::xdr::{Encode, EncodeBuf, Span};

use capture::{Capture, credential};
use values::{attributes, handle, sattr, wcc};

fn main() -> io::Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        return Err(io::Error::other("usage: wire_samples FILE.pcap"));
    };
    let mut capture = Capture::default();
    for (at, args) in all_args().into_iter().enumerate() {
        let procedure = args.procedure();
        let (ok, fail) = (results(procedure), failure(procedure));
        for (round, result) in [ok, fail].into_iter().enumerate() {
            let xid = u32::try_from(at * 2 + round).unwrap_or(0) + 0x1000;
            let ports = (NFS_PORT, NFS_CALLER);
            capture.exchange(ports, xid, (v3::PROGRAM, 3, procedure.wire()), &args, &result);
        }
    }
    mount_samples(&mut capture);
    portmap_samples(&mut capture);
    std::fs::File::create(path)?.write_all(&capture.finish())
}

/// Every procedure, CREATE and MKNOD in several forms.
fn all_args() -> Vec<Args3<'static>> {
    [args_on_files(), args_on_names(), args_on_listings()].concat()
}

fn args_on_files() -> Vec<Args3<'static>> {
    let object = handle();
    let one = Getattr3Args { object };
    let guard = Some(Nfstime3 { seconds: 1, nseconds: 2 });
    let setattr = Setattr3Args { object, new_attributes: sattr(), guard };
    let head = Write3Head { file: object, offset: 4096, count: 5, stable: StableHow::DataSync };
    let data = Span { offset: 0, bytes: b"abcde" };
    vec![
        Args3::Null,
        Args3::Getattr(one),
        Args3::Setattr(setattr),
        Args3::Lookup(place()),
        Args3::Access(Access3Args { object, access: 0x3f }),
        Args3::Readlink(one),
        Args3::Read(Read3Args { file: object, offset: 4096, count: 4096 }),
        Args3::Write(Write3Args { head, data }),
    ]
}

fn args_on_names() -> Vec<Args3<'static>> {
    let (place, attributes) = (place(), sattr());
    let spec = SpecData3 { specdata1: 8, specdata2: 1 };
    let device = DeviceData3 { dev_attributes: attributes, spec };
    let symlink = SymlinkData3 { symlink_attributes: attributes, symlink_data: b"../target" };
    let create = |how| Args3::Create(Create3Args { place, how });
    let mknod = |what| Args3::Mknod(Mknod3Args { place, what });
    vec![
        create(CreateHow3::Unchecked(attributes)),
        create(CreateHow3::Guarded(attributes)),
        create(CreateHow3::Exclusive(*b"verifier")),
        Args3::Mkdir(Mkdir3Args { place, attributes }),
        Args3::Symlink(Symlink3Args { place, symlink }),
        mknod(MknodData3::Chr(device)),
        mknod(MknodData3::Fifo(attributes)),
        Args3::Remove(place),
        Args3::Rmdir(place),
        Args3::Rename(Rename3Args { from: place, to: place }),
        Args3::Link(Link3Args { file: handle(), link: place }),
    ]
}

fn args_on_listings() -> Vec<Args3<'static>> {
    let (dir, cookie, cookieverf) = (handle(), 7, *b"cookieve");
    let readdir = Readdir3Args { dir, cookie, cookieverf, count: 4096 };
    let (dircount, maxcount) = (512, 8192);
    let readdirplus = Readdirplus3Args { dir, cookie, cookieverf, dircount, maxcount };
    let one = Getattr3Args { object: handle() };
    vec![
        Args3::Readdir(readdir),
        Args3::Readdirplus(readdirplus),
        Args3::Fsstat(one),
        Args3::Fsinfo(one),
        Args3::Pathconf(one),
        Args3::Commit(Commit3Args { file: handle(), offset: 0, count: 0 }),
    ]
}

fn place() -> DirOpArgs3<'static> {
    DirOpArgs3 { dir: handle(), name: b"disk-1.vhd" }
}

/// A success of `procedure`.
fn results(procedure: Procedure3) -> EncodeBuf {
    let some = Some(attributes());
    let wcc = wcc();
    let made = Create3ResOk { obj: Some(handle()), obj_attributes: some, dir_wcc: wcc };
    match procedure {
        Procedure3::Null => buf(&()),
        Procedure3::Getattr => buf(&Getattr3Res::Ok(attributes())),
        Procedure3::Setattr | Procedure3::Remove | Procedure3::Rmdir => buf(&Setattr3Res::Ok(wcc)),
        Procedure3::Lookup => buf(&Lookup3Res::Ok(Lookup3ResOk {
            object: handle(),
            obj_attributes: some,
            dir_attributes: some,
        })),
        Procedure3::Access => {
            buf(&Access3Res::Ok(Access3ResOk { obj_attributes: some, access: 0x1f }))
        }
        Procedure3::Readlink => {
            buf(&Readlink3Res::Ok(Readlink3ResOk { symlink_attributes: some, data: b"../target" }))
        }
        Procedure3::Read => buf(&Read3Res::Ok(Read3ResOk {
            head: Read3Head { file_attributes: some, eof: true },
            data: Span { offset: 0, bytes: b"abcde" },
        })),
        Procedure3::Write => {
            let committed = StableHow::FileSync;
            let verf = *b"verifier";
            buf(&Write3Res::Ok(Write3ResOk { file_wcc: wcc, count: 5, committed, verf }))
        }
        Procedure3::Create | Procedure3::Mkdir | Procedure3::Symlink | Procedure3::Mknod => {
            buf(&Create3Res::Ok(made))
        }
        Procedure3::Rename => buf(&Rename3Res::Ok(RenameWcc { fromdir_wcc: wcc, todir_wcc: wcc })),
        Procedure3::Link => buf(&Link3Res::Ok(LinkWcc { file_attributes: some, linkdir_wcc: wcc })),
        Procedure3::Readdir => readdir(),
        Procedure3::Readdirplus => readdirplus(),
        _ => file_system_results(procedure),
    }
}

fn file_system_results(procedure: Procedure3) -> EncodeBuf {
    let obj_attributes = Some(attributes());
    match procedure {
        Procedure3::Fsstat => buf(&Fsstat3Res::Ok(Fsstat3ResOk {
            obj_attributes,
            tbytes: 1 << 40,
            fbytes: 1 << 39,
            abytes: 1 << 38,
            tfiles: 3,
            ffiles: 2,
            afiles: 1,
            invarsec: 0,
        })),
        Procedure3::Fsinfo => buf(&Fsinfo3Res::Ok(Fsinfo3ResOk {
            obj_attributes,
            rtmax: 1 << 20,
            rtpref: 1 << 20,
            rtmult: 4096,
            wtmax: 1 << 20,
            wtpref: 1 << 20,
            wtmult: 4096,
            dtpref: 65_536,
            maxfilesize: 1 << 62,
            time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
            properties: fsf::LINK | fsf::SYMLINK | fsf::HOMOGENEOUS | fsf::CANSETTIME,
        })),
        Procedure3::Pathconf => buf(&Pathconf3Res::Ok(Pathconf3ResOk {
            obj_attributes,
            linkmax: 65_535,
            name_max: 255,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        })),
        _ => buf(&Commit3Res::Ok(Commit3ResOk { file_wcc: wcc(), verf: *b"verifier" })),
    }
}

/// A failure of `procedure`, with all the attributes that it may carry.
fn failure(procedure: Procedure3) -> EncodeBuf {
    let status = Nfsstat3::Stale;
    let (some, wcc) = (Some(attributes()), wcc());
    match procedure {
        Procedure3::Null => buf(&()),
        Procedure3::Getattr => buf(&Getattr3Res::Fail { status, resfail: () }),
        Procedure3::Setattr
        | Procedure3::Write
        | Procedure3::Create
        | Procedure3::Mkdir
        | Procedure3::Symlink
        | Procedure3::Mknod
        | Procedure3::Remove
        | Procedure3::Rmdir
        | Procedure3::Commit => buf(&Setattr3Res::Fail { status, resfail: wcc }),
        Procedure3::Rename => {
            let resfail = RenameWcc { fromdir_wcc: wcc, todir_wcc: wcc };
            buf(&Rename3Res::Fail { status, resfail })
        }
        Procedure3::Link => {
            let resfail = LinkWcc { file_attributes: some, linkdir_wcc: wcc };
            buf(&Link3Res::Fail { status, resfail })
        }
        _ => buf(&Access3Res::Fail { status, resfail: some }),
    }
}

fn readdir() -> EncodeBuf {
    let mut to = EncodeBuf::new();
    if let Ok(mut list) = Readdir3Encoder::begin(&mut to, 4096, &None, *b"cookieve") {
        for (cookie, name) in (3..).zip([&b"."[..], b"..", b"disk-1.vhd"]) {
            if list.entry(&Entry3 { fileid: cookie, name, cookie }) == Fit::Full {
                break;
            }
        }
        let taken = list.finish(true);
        assert_eq!(taken, Ok(3), "three entries fit 4 KiB");
    }
    to
}

fn readdirplus() -> EncodeBuf {
    let mut to = EncodeBuf::new();
    let some = Some(attributes());
    if let Ok(mut list) = Readdirplus3Encoder::begin(&mut to, 512, 4096, &some, *b"cookieve") {
        for (cookie, name) in (3..).zip([&b"."[..], b"..", b"disk-1.vhd"]) {
            let (name_attributes, name_handle) = (some, Some(handle()));
            let entry = EntryPlus3 { fileid: cookie, name, cookie, name_attributes, name_handle };
            if list.entry(&entry) == Fit::Full {
                break;
            }
        }
        let taken = list.finish(true);
        assert_eq!(taken, Ok(3), "three entries fit 4 KiB");
    }
    to
}

fn mount_samples(capture: &mut Capture) {
    let path = mount::DirPath { path: mount::Path(b"/tank") };
    let body = mount::MountBody { hostname: mount::Name(b"xcp1"), directory: path.path };
    let groups = vec![mount::Name(b"10.0.0.0/8"), mount::Name(b"esx")];
    let export = mount::ExportNode { dir: path.path, groups };
    let ok = mount::MountRes3::Ok { fhandle: handle(), auth_flavors: vec![1, 0] };
    let fail = mount::MountRes3::Fail(mount::MountStat3::Acces);
    let samples = [
        (mount::Procedure::Null, buf(&()), buf(&())),
        (mount::Procedure::Mnt, buf(&path), buf(&ok)),
        (mount::Procedure::Mnt, buf(&path), buf(&fail)),
        (mount::Procedure::Dump, buf(&()), buf(&mount::MountList(vec![body, body]))),
        (mount::Procedure::Umnt, buf(&path), buf(&())),
        (mount::Procedure::Umntall, buf(&()), buf(&())),
        (mount::Procedure::Export, buf(&()), buf(&mount::Exports(vec![export.clone(), export]))),
    ];
    for (xid, (procedure, args, result)) in (0x2000..).zip(samples) {
        let program = (mount::PROGRAM, mount::VERSION, procedure.wire());
        capture.exchange((MOUNT_PORT, MOUNT_CALLER), xid, program, &Raw(&args), &result);
    }
}

fn portmap_samples(capture: &mut Capture) {
    let nfs = portmap::Mapping { prog: 100_003, vers: 3, prot: 6, port: 2049 };
    let requests = [
        portmap::Request::Null,
        portmap::Request::Set(nfs),
        portmap::Request::Unset(nfs),
        portmap::Request::Getport(nfs),
        portmap::Request::Dump,
    ];
    for (xid, request) in (0x3000..).zip(requests) {
        let mut call = EncodeBuf::new();
        request.encode(xid, credential(), &mut call);
        let mut reply = EncodeBuf::new();
        let message = call.to_vec();
        let framing = portmap::Framing::Datagram;
        let at = ([0, 0, 0, 0], 2049).into();
        let service = portmap::Service { prog: 100_003, vers: 3, prot: 6, at };
        let peer = std::net::Ipv4Addr::LOCALHOST.into();
        let answered = portmap::answer(&[service, service], peer, &message, framing, &mut reply);
        assert_eq!(answered, Ok(()), "our own call");
        capture.message((PMAP_PORT, PMAP_CALLER), false, &call);
        capture.message((PMAP_PORT, PMAP_CALLER), true, &reply);
    }
}

fn buf(value: &impl Encode) -> EncodeBuf {
    let mut to = EncodeBuf::new();
    to.put(value);
    to
}

/// Bytes that are already encoded.
struct Raw<'a>(&'a EncodeBuf);

impl Encode for Raw<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.append(self.0.clone());
    }
}

const NFS_PORT: u16 = v3::PORT;
const NFS_CALLER: u16 = 1001;
const MOUNT_PORT: u16 = 20_048;
const MOUNT_CALLER: u16 = 1002;
const PMAP_PORT: u16 = portmap::PORT;
const PMAP_CALLER: u16 = 1003;
