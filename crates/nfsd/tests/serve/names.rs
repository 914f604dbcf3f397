//! LOOKUP, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK, and their permissions, over a real
//! pool.

use aquifer_nfs::proto::v3::*;

use crate::files::{both, mode, status, wcc_attr};
use crate::fixture::Fixture;

#[test]
fn lookup_finds_names_dots_and_nothing_else() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let dir = client.dir(root, "dir");
    let file = client.file(dir, "file");
    let found = client.lookup(dir, "file").unwrap();
    assert_eq!(found.object, file);
    assert_eq!(found.obj_attributes, Some(client.attributes(file)));
    assert_eq!(found.dir_attributes, Some(client.attributes(dir)));
    assert_eq!(client.lookup(dir, ".").unwrap().object, dir);
    assert_eq!(client.lookup(dir, "..").unwrap().object, root);
    assert_eq!(client.lookup(root, "..").unwrap().object, root, "the end of the export");
    let missing = client.nfs(&Args3::Lookup(crate::files::place(dir, "File")));
    let dir_now = client.attributes(dir);
    assert_eq!(
        missing.decode::<Lookup3Res>(),
        Res3::Fail { status: Nfsstat3::NoEnt, resfail: Some(dir_now) }
    );
    assert_eq!(client.lookup(file, "x"), Err(Nfsstat3::NotDir));
    let longest = "n".repeat(255);
    let made = client.file(dir, &longest);
    assert_eq!(client.lookup(dir, &longest).unwrap().object, made);
    let odd = "\u{fc} \n\t*?\\";
    let made = client.file(dir, odd);
    assert_eq!(client.lookup(dir, odd).unwrap().object, made);
}

/// ESXi names its lock files by fileid: it is stable, unique, and the same in every view.
#[test]
fn fileid_and_fsid_are_the_same_in_every_view() {
    let mut fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let files: Vec<_> = (0..20).map(|number| client.file(root, &format!("f{number}"))).collect();
    let ids: Vec<_> = files.iter().map(|file| client.attributes(*file)).collect();
    let mut unique: Vec<_> = ids.iter().map(|attributes| attributes.fileid).collect();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 20);
    assert!(ids.iter().all(|attributes| attributes.fsid == ids[0].fsid && attributes.fsid != 0));
    client.rename((root, "f3"), (root, "renamed"));
    fixture.stop();
    fixture.open();
    fixture.serve(crate::fixture::config(), vec![aquifer_nfs::Export::new("/vms", "tank/vms")]);
    let mut client = fixture.client();
    for (file, before) in files.iter().zip(&ids) {
        let now = client.attributes(*file);
        assert_eq!((now.fsid, now.fileid), (before.fsid, before.fileid));
    }
    assert_eq!(client.lookup(root, "renamed").unwrap().object, files[3]);
}

#[test]
fn wcc_data_of_a_directory_is_exact() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let dir = client.dir(root, "dir");
    let mut before = client.attributes(dir);
    let mut step = |client: &mut crate::client::Client, wcc: WccData| {
        let after = client.attributes(dir);
        assert_eq!(both(&wcc), (wcc_attr(&before), after));
        assert_ne!(before.ctime, after.ctime, "a change shows");
        before = after;
    };
    let made = client.create(dir, "a", CreateHow3::Guarded(mode(0o644))).unwrap();
    step(&mut client, made.dir_wcc);
    let made = client.mkdir(dir, "d", mode(0o755)).unwrap();
    step(&mut client, made.dir_wcc);
    let made = client.symlink(dir, "s", "a").unwrap();
    step(&mut client, made.dir_wcc);
    let made = client.mknod(dir, "p", MknodData3::Fifo(mode(0o644))).unwrap();
    step(&mut client, made.dir_wcc);
    let Res3::Ok(wcc) = client.remove(dir, "s") else { panic!("REMOVE") };
    step(&mut client, wcc);
    let Res3::Ok(wcc) = client.rmdir(dir, "d") else { panic!("RMDIR") };
    step(&mut client, wcc);
    let Res3::Ok(wcc) = client.rename((dir, "a"), (dir, "b")) else { panic!("RENAME") };
    assert_eq!(wcc.fromdir_wcc, wcc.todir_wcc);
    step(&mut client, wcc.fromdir_wcc);
    let file = client.lookup(dir, "b").unwrap().object;
    let Res3::Ok(linked) = client.link(file, dir, "c") else { panic!("LINK") };
    assert_eq!(linked.file_attributes, Some(client.attributes(file)));
    step(&mut client, linked.linkdir_wcc);
    // A failure shows an unchanged directory.
    let Res3::Fail { status: Nfsstat3::NoEnt, resfail } = client.remove(dir, "none") else {
        panic!("REMOVE of nothing")
    };
    assert_eq!(both(&resfail), (wcc_attr(&before), before));
    let Res3::Fail { status: Nfsstat3::Inval, resfail } = client.rename((dir, "."), (dir, "x"))
    else {
        panic!("RENAME of .")
    };
    assert_eq!(resfail.fromdir_wcc.after, Some(before));
}

#[test]
fn symlinks_and_nodes() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let longest = "t".repeat(4095);
    for (name, to) in [("short", "a/../b"), ("long", longest.as_str())] {
        let made = client.symlink(root, name, to).unwrap();
        assert_eq!((made.attributes.ftype, made.attributes.size), (Ftype3::Lnk, to.len() as u64));
        assert_eq!(client.readlink(made.file), Ok(to.as_bytes().to_vec()));
        assert_eq!(client.read(made.file, 0, 10), Err(Nfsstat3::Inval));
    }
    let file = client.file(root, "file");
    assert_eq!(client.readlink(file), Err(Nfsstat3::Inval));
    let spec = SpecData3 { specdata1: 8, specdata2: 17 };
    let device = DeviceData3 { dev_attributes: mode(0o660), spec };
    for (name, what, ftype) in [
        ("blk", MknodData3::Blk(device), Ftype3::Blk),
        ("chr", MknodData3::Chr(device), Ftype3::Chr),
        ("fifo", MknodData3::Fifo(mode(0o600)), Ftype3::Fifo),
        ("sock", MknodData3::Sock(mode(0o600)), Ftype3::Sock),
    ] {
        let made = client.mknod(root, name, what).unwrap();
        let expected = match what {
            MknodData3::Blk(_) | MknodData3::Chr(_) => spec,
            _ => SpecData3 { specdata1: 0, specdata2: 0 },
        };
        assert_eq!((made.attributes.ftype, made.attributes.rdev), (ftype, expected));
        assert_eq!(client.attributes(made.file), made.attributes);
    }
}

#[test]
fn removing_and_what_is_left() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let dir = client.dir(root, "dir");
    let file = client.file(dir, "file");
    assert_eq!(status(&client.rmdir(root, "dir")), Nfsstat3::NotEmpty);
    assert_eq!(status(&client.rmdir(dir, "file")), Nfsstat3::NotDir);
    assert_eq!(status(&client.remove(root, "dir")), Nfsstat3::IsDir);
    assert!(matches!(client.link(file, root, "other"), Res3::Ok(_)));
    assert_eq!(client.attributes(file).nlink, 2);
    assert_eq!(status(&client.link(file, root, "other")), Nfsstat3::Exist);
    assert_eq!(status(&client.link(dir, root, "dirlink")), Nfsstat3::Perm);
    assert!(matches!(client.remove(dir, "file"), Res3::Ok(_)));
    assert_eq!(client.attributes(file).nlink, 1, "the other name is left");
    let links = client.attributes(root).nlink;
    assert!(matches!(client.rmdir(root, "dir"), Res3::Ok(_)));
    assert_eq!(client.attributes(root).nlink, links - 1);
    assert!(matches!(client.remove(root, "other"), Res3::Ok(_)));
    for gone in [dir, file] {
        assert_eq!(client.getattr(gone), Err(Nfsstat3::Stale));
        assert_eq!(client.read(gone, 0, 10).map(|_| ()), Err(Nfsstat3::Stale));
    }
}

#[test]
fn renaming() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let (a, b) = (client.dir(root, "a"), client.dir(root, "b"));
    let (one, two) = (client.file(a, "one"), client.file(b, "two"));
    let before = (client.attributes(a), client.attributes(b));
    let Res3::Ok(wcc) = client.rename((a, "one"), (b, "two")) else { panic!("over a file") };
    let (from, to) = (both(&wcc.fromdir_wcc), both(&wcc.todir_wcc));
    assert_eq!((from.0, to.0), (wcc_attr(&before.0), wcc_attr(&before.1)));
    assert_eq!((from.1, to.1), (client.attributes(a), client.attributes(b)));
    assert_eq!(client.lookup(b, "two").unwrap().object, one);
    assert_eq!(client.getattr(two), Err(Nfsstat3::Stale));
    let mut fails = |from, to, expected: &[Nfsstat3]| {
        let said = status(&client.rename(from, to));
        assert!(expected.contains(&said), "{said:?} {expected:?}");
    };
    fails((a, "one"), (b, "x"), &[Nfsstat3::NoEnt]);
    fails((root, "a"), (b, "two"), &[Nfsstat3::NotDir]);
    fails((b, "two"), (root, "a"), &[Nfsstat3::IsDir]);
    fails((root, "a"), (root, "b"), &[Nfsstat3::NotEmpty, Nfsstat3::Exist]);
    fails((root, "a"), (a, "self"), &[Nfsstat3::Inval]);
    assert!(matches!(client.rename((root, "a"), (b, "a")), Res3::Ok(_)), "a directory moves");
    assert_eq!(client.lookup(a, "..").unwrap().object, b);
    assert_eq!(client.lookup(b, "a").unwrap().object, a);
    assert!(matches!(client.rename((b, "two"), (b, "two")), Res3::Ok(_)), "onto itself");
}

/// Permission bits, and ACCESS's answer about them.
#[test]
fn permissions_are_by_the_credential_of_each_call() {
    let fixture = Fixture::new();
    let (mut admin, root) = fixture.mounted();
    let dir = admin.mkdir(root, "dir", mode(0o711)).unwrap().file;
    let file = admin.create(dir, "file", CreateHow3::Guarded(mode(0o640))).unwrap().file;
    let own = Sattr3 { uid: Some(500), gid: Some(600), ..Sattr3::NONE };
    assert!(matches!(admin.setattr(file, own, None), Res3::Ok(_)));
    let mut user = fixture.client();
    user.uid = 700;
    let deny = Err(Nfsstat3::Acces);
    assert_eq!(user.lookup(dir, "file").map(|found| found.object), Ok(file), "x on the directory");
    assert_eq!(user.read(file, 0, 1).map(|_| ()), deny);
    assert_eq!(status(&user.write(file, 0, b"x", StableHow::FileSync)), Nfsstat3::Acces);
    assert_eq!(user.create(dir, "new", CreateHow3::Guarded(mode(0o644))).map(|_| ()), deny);
    assert_eq!(status(&user.remove(dir, "file")), Nfsstat3::Acces);
    assert_eq!(status(&user.setattr(file, mode(0o777), None)), Nfsstat3::Perm);
    assert_eq!(user.access(file), 0);
    assert_eq!(user.access(dir), access::LOOKUP);
    let mut owner = fixture.client();
    owner.uid = 500;
    let rw = access::READ | access::MODIFY | access::EXTEND;
    assert_eq!(owner.access(file), rw);
    assert!(matches!(owner.write(file, 0, b"x", StableHow::FileSync), Res3::Ok(_)));
    let all_of_a_dir = rw | access::LOOKUP | access::DELETE;
    assert_eq!(admin.access(dir), all_of_a_dir);
}
