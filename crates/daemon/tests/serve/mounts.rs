//! MOUNT and the export table over a real pool.

use aquifer_nfs::proto::mount::{MountList, MountStat3, Procedure};
use aquifer_nfs::proto::v3::*;
use aquifer_nfs::{Clients, Export, Squash};

use crate::files::{mode, status};
use crate::fixture::{Fixture, config};

fn only(networks: &[&str]) -> Clients {
    Clients::Only(networks.iter().map(|network| network.parse().unwrap()).collect())
}

/// XCP-ng makes `<export>/<uuid>` and then mounts that (CLIENTS.md).
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

#[test]
fn exports_are_separate_and_options_hold() {
    let squashed = Export {
        squash: Squash::Root,
        anon_uid: 77,
        anon_gid: 78,
        ..Export::new("/vms", "tank/vms")
    };
    let iso = Export { read_only: true, ..Export::new("/vms/iso", "tank/iso") };
    let elsewhere = Export { clients: only(&["10.0.0.0/8"]), ..Export::new("/pool", "tank") };
    let gone = Export::new("/gone", "tank/gone");
    let fixture = Fixture::with(config(), vec![squashed, iso, elsewhere, gone]);
    let mut client = fixture.client();
    let vms = client.mount("/vms").unwrap();
    let iso = client.mount("/vms/iso").unwrap();
    assert_ne!(client.attributes(vms).fsid, client.attributes(iso).fsid);
    assert_eq!(client.mount("/pool"), Err(MountStat3::Acces));
    assert_eq!(client.mount("/gone"), Err(MountStat3::NoEnt));
    // The pool's own dataset is exported, but not to this client: a guessed handle is of no use.
    let pool = fixture.pool().files.root("tank").unwrap();
    let pool = NfsFh3::new(&pool.encode()).unwrap();
    assert_eq!(client.getattr(pool), Err(Nfsstat3::Acces));
    // Read-only, whoever asks; ACCESS says so beforehand.
    let made = client.create(iso, "file", CreateHow3::Guarded(mode(0o644)));
    assert_eq!(made.map(|_| ()), Err(Nfsstat3::Rofs));
    assert_eq!(client.access(iso), access::READ | access::LOOKUP);
    let refused = client.remove(iso, "file");
    let Res3::Fail { status: Nfsstat3::Rofs, resfail } = refused else { panic!("{refused:?}") };
    assert_eq!(resfail.after, Some(client.attributes(iso)));
    // Root is nobody there: the root directory belongs to the superuser.
    let made = client.create(vms, "file", CreateHow3::Guarded(mode(0o644)));
    assert_eq!(made.map(|_| ()), Err(Nfsstat3::Acces));
    let cred = aquifer_files::Credentials::root();
    let open = aquifer_files::SetAttributes { mode: Some(0o777), ..Default::default() };
    let files = &fixture.pool().files;
    fixture.block_on(files.setattr(&cred, fixture.root(), &open, None)).0.unwrap();
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
