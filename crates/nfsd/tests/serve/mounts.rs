//! MOUNT and the export table over a real pool.

use std::net::{SocketAddr, TcpStream};

use aquifer_nfs::proto::mount::{self, MountList, MountRes3, MountStat3, Procedure};
use aquifer_nfs::proto::v3::{self, *};
use aquifer_nfs::{Access, Export, Squash};
use aquifer_nfsd::{Config, Portmap, PortmapState};
use aquifer_rpc::message::Accepted;
use aquifer_rpc::xdr::{Encode, EncodeBuf};

use crate::client::{Client, Refusal};
use crate::files::{mode, place, status};
use crate::fixture::{Fixture, config};

fn only(networks: &[&str]) -> Access {
    Access::read_write_for(networks.iter().map(|network| network.parse().unwrap()))
}

/// XCP-ng makes `<export>/<uuid>` and then mounts that.
#[test]
fn directories_below_an_export_are_mounted() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let sr = client.dir(root, "6a3f-sr");
    let deep = client.dir(sr, "deep");
    client.file(root, "file");
    client.symlink(root, "link", "6a3f-sr").unwrap();
    for (path, expected) in [
        ("/vms", Ok(root)),
        ("//vms/", Ok(root)),
        ("/vms/6a3f-sr", Ok(sr)),
        ("/vms/6a3f-sr/", Ok(sr)),
        ("/vms//6a3f-sr/./deep//", Ok(deep)),
        ("/vms/none", Err(MountStat3::NoEnt)),
        ("/vms/file", Err(MountStat3::NotDir)),
        ("/vms/file/x", Err(MountStat3::NotDir)),
        ("/vms/link", Err(MountStat3::NotDir)),
        ("/vms/6a3f-sr/..", Err(MountStat3::Inval)),
        ("/vm", Err(MountStat3::NoEnt)),
        ("/", Err(MountStat3::NoEnt)),
    ] {
        assert_eq!(client.mount(path), expected, "{path}");
    }
    let long = format!("/vms/{}", "n".repeat(256));
    assert_eq!(client.mount(&long), Err(MountStat3::NameTooLong));
    let dump = |client: &mut crate::client::Client| {
        let results = client.mount_call(Procedure::Dump, "");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let list = results.decode::<MountList<'_>>();
        list.0.iter().map(|body| text(body.hostname.0) + text(body.directory.0).as_str()).collect()
    };
    let listed: Vec<String> = dump(&mut client);
    let expected = ["127.0.0.1/vms", "127.0.0.1/vms/6a3f-sr", "127.0.0.1/vms/6a3f-sr/deep"];
    assert_eq!(listed, expected);
    client.mount_call(Procedure::Umnt, "/vms/6a3f-sr/");
    let listed: Vec<String> = dump(&mut client);
    assert_eq!(listed, [expected[0], expected[2]]);
    client.mount_call(Procedure::Umntall, "");
    assert_eq!(dump(&mut client), Vec::<String>::new());
}

/// A path of any bytes, also longer than a `dirpath` may be.
struct AnyPath(Vec<u8>);

impl Encode for AnyPath {
    fn encode(&self, to: &mut EncodeBuf) {
        to.opaque(&self.0);
    }
}

/// The answer to a path that no client's user typed: a status of MOUNT, or RPC's GARBAGE_ARGS for
/// bytes that are no `dirpath` at all (RFC 1813 section 5.1.2: 1024 bytes). The connection stays.
#[test]
fn hostile_paths_are_refused_in_the_protocols_words() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let name = |bytes: usize| vec![b'n'; bytes];
    let (longest, below) =
        (String::from_utf8(name(255)).unwrap(), String::from_utf8(name(200)).unwrap());
    let dir = client.dir(root, &longest);
    let mut deep = dir;
    for _ in 0..3 {
        deep = client.dir(deep, &below);
    }
    let under = |path: &[u8]| [b"/vms/", path].concat();
    let below = format!("{longest}/{below}/{below}/{below}");
    let padded = |bytes: usize| {
        let path = under(below.as_bytes());
        let slashes = vec![b'/'; bytes - path.len()];
        [path, slashes].concat()
    };
    for (path, expected) in [
        (b"/vms/..".to_vec(), Err(MountStat3::Inval)),
        (b"/vms/../vms".to_vec(), Err(MountStat3::Inval)),
        (b"/../vms".to_vec(), Err(MountStat3::Inval)),
        (b"..".to_vec(), Err(MountStat3::NoEnt)),
        (b"".to_vec(), Err(MountStat3::NoEnt)),
        (b"vms".to_vec(), Err(MountStat3::NoEnt)),
        (b"//////".to_vec(), Err(MountStat3::NoEnt)),
        (b"/vms/...".to_vec(), Err(MountStat3::NoEnt)),
        (b"//vms//.//".to_vec(), Ok(root)),
        (b"/vms\0".to_vec(), Err(MountStat3::NoEnt)),
        (b"/vms\0/sub".to_vec(), Err(MountStat3::NoEnt)),
        (b"/vms/\0".to_vec(), Err(MountStat3::Acces)),
        (b"/vms/a\0b".to_vec(), Err(MountStat3::Acces)),
        (under(b"\xff\xfe\xc0\x80"), Err(MountStat3::NoEnt)),
        (under(b"\n\r\x1b[2J%s%n"), Err(MountStat3::NoEnt)),
        (under(longest.as_bytes()), Ok(dir)),
        (under(&name(256)), Err(MountStat3::NameTooLong)),
        (under(&[&name(256)[..], b"/x"].concat()), Err(MountStat3::NameTooLong)),
        (padded(1023), Ok(deep)),
        (padded(1024), Ok(deep)),
        ([b"/".to_vec(), name(1023)].concat(), Err(MountStat3::NoEnt)),
    ] {
        let shown = String::from_utf8_lossy(&path).into_owned();
        let call = (mount::PROGRAM, mount::VERSION, Procedure::Mnt.wire());
        let said = match client.call(call, &AnyPath(path)).unwrap().decode() {
            MountRes3::Ok { fhandle, .. } => Ok(fhandle),
            MountRes3::Fail(status) => Err(status),
        };
        assert_eq!(said, expected, "{shown:?}");
    }
    for procedure in [Procedure::Mnt, Procedure::Umnt] {
        for bytes in [1025, 4096, 60_000] {
            let call = (mount::PROGRAM, mount::VERSION, procedure.wire());
            let refused = client.call(call, &AnyPath(vec![b'/'; bytes])).err();
            assert_eq!(refused, Some(Refusal::Accepted(Accepted::GarbageArgs)), "{bytes} bytes");
        }
    }
    // The list then has the directories in their one form, and nothing else.
    let results = client.mount_call(Procedure::Dump, "");
    let list = results.decode::<MountList<'_>>();
    let paths: Vec<_> = list.0.iter().map(|body| body.directory.0.to_vec()).collect();
    assert_eq!(paths, [b"/vms".to_vec(), under(longest.as_bytes()), under(below.as_bytes())]);
    client.attributes(root);
}

/// share_nfs(1M) of Solaris: "causes the server file system to silently ignore any attempt to
/// enable the setuid or setgid mode bits".
#[test]
fn nosuid_leaves_the_bits_out_of_every_mode_that_is_set() {
    let bits = |export: Export, expected: u32| {
        let fixture = Fixture::with(config(), vec![export]);
        let mut client = fixture.client();
        let root = client.mount("/vms").unwrap();
        let file = client.create(root, "file", CreateHow3::Guarded(mode(0o6755))).unwrap();
        assert_eq!(file.attributes.mode, 0o755 | expected, "CREATE");
        assert_eq!(status(&client.setattr(file.file, mode(0o7711), None)), Nfsstat3::Ok);
        assert_eq!(client.attributes(file.file).mode, 0o1711 | expected, "SETATTR");
        let what = (v3::PROGRAM, v3::VERSION);
        let dir = Args3::Mkdir(Mkdir3Args { place: place(root, "dir"), attributes: mode(0o6755) });
        let fifo = MknodData3::Fifo(mode(0o6644));
        let fifo = Args3::Mknod(Mknod3Args { place: place(root, "fifo"), what: fifo });
        for (args, others) in [(dir, 0o755), (fifo, 0o644)] {
            let call = (what.0, what.1, args.procedure().wire());
            let made = client.call(call, &args).unwrap().decode::<Create3Res>();
            let Res3::Ok(made) = made else { panic!("{made:?}") };
            assert_eq!(made.obj_attributes.unwrap().mode, others | expected, "{args:?}");
        }
    };
    bits(Export { nosuid: true, ..Export::new("/vms", "tank/vms") }, 0);
    bits(Export::new("/vms", "tank/vms"), 0o6000);
}

#[test]
fn exports_are_separate_and_options_hold() {
    let squashed = Export {
        squash: Squash::Root,
        anon_uid: 77,
        anon_gid: 78,
        ..Export::new("/vms", "tank/vms")
    };
    let iso = Export { access: Access::read_only(), ..Export::new("/vms/iso", "tank/iso") };
    let elsewhere = Export { access: only(&["10.0.0.0/8"]), ..Export::new("/pool", "tank") };
    let gone = Export::new("/gone", "tank/gone");
    let fixture = Fixture::with(config(), vec![squashed, iso, elsewhere, gone]);
    let mut client = fixture.client();
    let vms = client.mount("/vms").unwrap();
    let iso = client.mount("/vms/iso").unwrap();
    assert_ne!(client.attributes(vms).fsid, client.attributes(iso).fsid);
    assert_eq!(client.mount("/pool"), Err(MountStat3::Acces));
    assert_eq!(client.mount("/gone"), Err(MountStat3::NoEnt));
    // The pool's own dataset is exported, but not to this client: a guessed handle is useless.
    let pool = fixture.pool().files.root("tank").unwrap();
    let pool = NfsFh3::new(&pool.encode()).unwrap();
    assert_eq!(client.getattr(pool), Err(Nfsstat3::Acces));
    // Read-only for every user; ACCESS says so beforehand.
    let made = client.create(iso, "file", CreateHow3::Guarded(mode(0o644)));
    assert_eq!(made.map(|_| ()), Err(Nfsstat3::Rofs));
    assert_eq!(client.access(iso), access::READ | access::LOOKUP);
    let refused = client.remove(iso, "file");
    let Res3::Fail { status: Nfsstat3::Rofs, resfail } = refused else { panic!("{refused:?}") };
    assert_eq!(resfail.after, Some(client.attributes(iso)));
    // Root is mapped to nobody there: the root directory belongs to the superuser.
    let made = client.create(vms, "file", CreateHow3::Guarded(mode(0o644)));
    assert_eq!(made.map(|_| ()), Err(Nfsstat3::Acces));
    let cred = aquifer_files::Credentials::root();
    let open = aquifer_files::SetAttributes { mode: Some(0o777), ..Default::default() };
    let files = &fixture.pool().files;
    let root = fixture.root();
    fixture
        .block_on(async { files.setattr(&cred, root, &open, None).await.kept().await })
        .0
        .unwrap();
    let made = client.create(vms, "file", CreateHow3::Guarded(mode(0o644))).unwrap();
    assert_eq!((made.attributes.uid, made.attributes.gid), (77, 78));
    client.uid = 500;
    let made = client.create(vms, "own", CreateHow3::Guarded(mode(0o644))).unwrap();
    assert_eq!((made.attributes.uid, made.attributes.gid), (500, 500));
}

#[test]
fn a_withdrawn_export_is_stale_at_once_and_comes_back() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let exports = fixture.server().nfs().exports();
    let listed = exports.list();
    exports.replace(vec![Export::new("/iso", "tank/iso")]).unwrap();
    assert_eq!(client.getattr(root), Err(Nfsstat3::Stale));
    assert_eq!(client.mount("/vms"), Err(MountStat3::NoEnt));
    exports.replace(listed).unwrap();
    client.attributes(root);
}

/// Different datasets are different file systems (RFC 1813 sections 3.3.14 and 3.3.15).
#[test]
fn nothing_is_linked_or_renamed_across_exports() {
    let exports = vec![Export::new("/vms", "tank/vms"), Export::new("/iso", "tank/iso")];
    let fixture = Fixture::with(config(), exports);
    let mut client = fixture.client();
    let (vms, iso) = (client.mount("/vms").unwrap(), client.mount("/iso").unwrap());
    let file = client.file(vms, "file");
    assert_eq!(status(&client.link(file, iso, "file")), Nfsstat3::Xdev);
    assert_eq!(status(&client.rename((vms, "file"), (iso, "file"))), Nfsstat3::Xdev);
}

/// The server listens on the chosen addresses only.
#[test]
fn only_the_chosen_addresses_are_listened_on() {
    let on = |address: &str| SocketAddr::new(address.parse().unwrap(), 0);
    let portmap = Portmap::At(vec![on("127.0.0.2"), on("::1")]);
    let listen = vec![on("127.0.0.2"), on("::1")];
    let fixture = Fixture::with(
        Config { listen, portmap, ..config() },
        vec![Export::new("/vms", "tank/vms")],
    );
    let server = fixture.server();
    let PortmapState::Own(portmappers) = server.portmap() else { panic!("{:?}", server.portmap()) };
    for chosen in [server.addresses(), portmappers] {
        assert_eq!(chosen.len(), 2);
        for address in &chosen {
            let mut client = Client::connect(*address);
            client.ping();
            assert!(client.mount("/vms").is_ok());
        }
        let elsewhere = SocketAddr::from(([127, 0, 0, 1], chosen[0].port()));
        assert!(TcpStream::connect(elsewhere).is_err(), "{elsewhere}");
    }
    // Each family has its own port, and clients learn it.
    let mut listed = Vec::new();
    for service in server.nfs().portmap().iter().filter(|it| it.prog == v3::PROGRAM) {
        listed.push((service.netid(), service.at));
    }
    let addresses = server.addresses();
    assert_eq!(listed, [("tcp", addresses[0]), ("tcp6", addresses[1])]);
}
