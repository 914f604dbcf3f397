//! Attributes in a reply equal those of a GETATTR right after it, to the last field: clients keep
//! both in one cache.

use aquifer_nfs::proto::v3::*;

use crate::client::Client;
use crate::contents::bytes;
use crate::files::{mode, place};
use crate::fixture::Fixture;

/// Attributes in a reply are the present ones.
#[track_caller]
fn agree(client: &mut Client, file: NfsFh3, said: Option<Fattr3>, call: &str) {
    assert_eq!(said.expect(call), client.attributes(file), "{call}");
}

#[track_caller]
fn ok<T, F>(res: Res3<T, F>, call: &str) -> T {
    match res {
        Res3::Ok(resok) => resok,
        Res3::Fail { status, .. } => panic!("{call}: {status:?}"),
    }
}

#[track_caller]
fn failed<T, F>(res: Res3<T, F>, call: &str) -> F {
    match res {
        Res3::Ok(_) => panic!("{call} should fail"),
        Res3::Fail { resfail, .. } => resfail,
    }
}

#[test]
fn calls_that_make_say_what_getattr_says() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let dir = client.dir(root, "dir");
    let set = Sattr3 { size: Some(5000), uid: Some(7), ..mode(0o600) };
    let device = MknodData3::Blk(DeviceData3 {
        dev_attributes: mode(0o600),
        spec: SpecData3 { specdata1: 8, specdata2: 1 },
    });
    let long = "x".repeat(1000);
    let made = [
        ("guarded", client.create(dir, "guarded", CreateHow3::Guarded(set))),
        ("unchecked", client.create(dir, "unchecked", CreateHow3::Unchecked(set))),
        ("exclusive", client.create(dir, "exclusive", CreateHow3::Exclusive([7; 8]))),
        ("mkdir", client.mkdir(dir, "mkdir", mode(0o711))),
        ("symlink", client.symlink(dir, "symlink", "guarded")),
        ("long symlink", client.symlink(dir, "long symlink", &long)),
        ("fifo", client.mknod(dir, "fifo", MknodData3::Fifo(mode(0o644)))),
        ("socket", client.mknod(dir, "socket", MknodData3::Sock(mode(0o644)))),
        ("device", client.mknod(dir, "device", device)),
    ];
    for (call, made) in made {
        let made = made.unwrap();
        agree(&mut client, made.file, Some(made.attributes), call);
    }
    // An existing file, with content.
    let file = client.file(dir, "again");
    ok(client.write(file, 0, &bytes(1, 10_000), StableHow::FileSync), "WRITE");
    for size in [None, Some(4097), Some(0)] {
        let how = CreateHow3::Unchecked(Sattr3 { size, ..Sattr3::NONE });
        let made = client.create(dir, "again", how).unwrap();
        agree(&mut client, file, Some(made.attributes), "CREATE of what is there");
        agree(&mut client, dir, made.dir_wcc.after, "the directory of what is there");
    }
    let made = client.create(dir, "exclusive", CreateHow3::Exclusive([7; 8])).unwrap();
    agree(&mut client, made.file, Some(made.attributes), "the same CREATE again");
}

#[test]
fn calls_that_change_names_say_what_getattr_says() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let (dir, other) = (client.dir(root, "dir"), client.dir(root, "other"));
    let file = client.file(dir, "file");
    ok(client.write(file, 0, &bytes(1, 10_000), StableHow::FileSync), "WRITE");
    let made = client.symlink(dir, "symlink", "file").unwrap();
    agree(&mut client, dir, made.dir_wcc.after, "SYMLINK");
    let made = client.mkdir(dir, "sub", mode(0o755)).unwrap();
    agree(&mut client, dir, made.dir_wcc.after, "MKDIR");
    let made = client.mknod(dir, "fifo", MknodData3::Fifo(mode(0o644))).unwrap();
    agree(&mut client, dir, made.dir_wcc.after, "MKNOD");
    let linked = ok(client.link(file, other, "link"), "LINK");
    agree(&mut client, file, linked.file_attributes, "LINK");
    agree(&mut client, other, linked.linkdir_wcc.after, "LINK");
    let again = failed(client.link(file, other, "link"), "LINK");
    agree(&mut client, file, again.file_attributes, "LINK of what is there");
    agree(&mut client, other, again.linkdir_wcc.after, "LINK of what is there");
    for (from, to) in [("file", "moved"), ("symlink", "moved")] {
        let renamed = ok(client.rename((dir, from), (other, to)), "RENAME");
        agree(&mut client, dir, renamed.fromdir_wcc.after, "RENAME");
        agree(&mut client, other, renamed.todir_wcc.after, "RENAME");
    }
    let missing = failed(client.rename((dir, "none"), (other, "x")), "RENAME");
    agree(&mut client, dir, missing.fromdir_wcc.after, "RENAME of nothing");
    agree(&mut client, other, missing.todir_wcc.after, "RENAME of nothing");
    let removed = ok(client.remove(other, "moved"), "REMOVE");
    agree(&mut client, other, removed.after, "REMOVE");
    let removed = ok(client.rmdir(dir, "sub"), "RMDIR");
    agree(&mut client, dir, removed.after, "RMDIR");
    let missing = failed(client.remove(other, "moved"), "REMOVE");
    agree(&mut client, other, missing.after, "REMOVE of nothing");
    let missing = failed(client.rmdir(dir, "sub"), "RMDIR");
    agree(&mut client, dir, missing.after, "RMDIR of nothing");
}

#[test]
fn calls_that_change_a_file_say_what_getattr_says() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "file");
    let writes = [
        (0, 10_000, StableHow::FileSync),
        (20_000, 100, StableHow::Unstable),
        (4096, 65_536, StableHow::DataSync),
        (1 << 20, 1 << 20, StableHow::Unstable),
        (4 << 20, 1 << 20, StableHow::FileSync),
        (0, 0, StableHow::FileSync),
    ];
    for (offset, count, stable) in writes {
        let wrote = ok(client.write(file, offset, &bytes(2, count), stable), "WRITE");
        agree(&mut client, file, wrote.file_wcc.after, "WRITE");
        let committed = ok(client.commit(file, 0, 0), "COMMIT");
        agree(&mut client, file, committed.file_wcc.after, "COMMIT");
    }
    let wrote = ok(client.write(file, 0, &[0; 8192], StableHow::FileSync), "WRITE");
    agree(&mut client, file, wrote.file_wcc.after, "WRITE of zeros");
    let sizes = [Some(70_000), Some(4096), Some(100_000), Some(0)];
    let sets = sizes.map(|size| Sattr3 { size, ..Sattr3::NONE });
    for set in sets.into_iter().chain([mode(0o600)]) {
        let wcc = ok(client.setattr(file, set, None), "SETATTR");
        agree(&mut client, file, wcc.after, "SETATTR");
        let guard = Some(Nfstime3 { seconds: 1, nseconds: 1 });
        let wcc = failed(client.setattr(file, set, guard), "SETATTR");
        agree(&mut client, file, wcc.after, "SETATTR with a guard that fails");
    }
    let wcc = failed(client.write(root, 0, &[1], StableHow::FileSync), "WRITE");
    agree(&mut client, root, wcc.after, "WRITE to a directory");
}

#[test]
fn calls_that_look_say_what_getattr_says() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "file");
    ok(client.write(file, 0, &bytes(1, 10_000), StableHow::Unstable), "WRITE");
    let link = client.symlink(root, "link", "file").unwrap().file;
    for (name, object) in [("file", file), ("link", link)] {
        let found = client.lookup(root, name).unwrap();
        agree(&mut client, object, found.obj_attributes, "LOOKUP");
        agree(&mut client, root, found.dir_attributes, "LOOKUP");
        let results = client.nfs(&Args3::Access(Access3Args { object, access: 0x3f }));
        let said = ok(results.decode::<Access3Res>(), "ACCESS");
        agree(&mut client, object, said.obj_attributes, "ACCESS");
        let results = client.nfs(&Args3::Pathconf(Getattr3Args { object }));
        let said = ok(results.decode::<Pathconf3Res>(), "PATHCONF");
        agree(&mut client, object, said.obj_attributes, "PATHCONF");
    }
    let results = client.nfs(&Args3::Lookup(place(root, "none")));
    let said = failed(results.decode::<Lookup3Res>(), "LOOKUP");
    agree(&mut client, root, said, "LOOKUP of nothing");
    let results = client.nfs(&Args3::Readlink(Getattr3Args { object: link }));
    let said = ok(results.decode::<Readlink3Res<'_>>(), "READLINK").symlink_attributes;
    agree(&mut client, link, said, "READLINK");
    let results = client.nfs(&Args3::Read(Read3Args { file, offset: 0, count: 100 }));
    let said = ok(results.decode::<Read3Res<'_>>(), "READ").head.file_attributes;
    agree(&mut client, file, said, "READ");
    let results = client.nfs(&Args3::Fsstat(Getattr3Args { object: root }));
    let said = ok(results.decode::<Fsstat3Res>(), "FSSTAT").obj_attributes;
    agree(&mut client, root, said, "FSSTAT");
    let results = client.nfs(&Args3::Fsinfo(Getattr3Args { object: root }));
    let said = ok(results.decode::<Fsinfo3Res>(), "FSINFO").obj_attributes;
    agree(&mut client, root, said, "FSINFO");
    let args = Readdir3Args { dir: root, cookie: 0, cookieverf: [0; 8], count: 4096 };
    let results = client.nfs(&Args3::Readdir(args));
    let said = ok(results.decode::<Readdir3Res<'_>>(), "READDIR").dir_attributes;
    agree(&mut client, root, said, "READDIR");
    let (cookieverf, dircount, maxcount) = ([0; 8], 4096, 8192);
    let args = Readdirplus3Args { dir: root, cookie: 0, cookieverf, dircount, maxcount };
    let results = client.nfs(&Args3::Readdirplus(args));
    let listed = ok(results.decode::<Readdirplus3Res<'_>>(), "READDIRPLUS");
    agree(&mut client, root, listed.dir_attributes, "READDIRPLUS");
    assert_eq!(listed.entries.len(), 4);
    for entry in listed.entries {
        agree(&mut client, entry.name_handle.unwrap(), entry.name_attributes, "READDIRPLUS");
    }
}
