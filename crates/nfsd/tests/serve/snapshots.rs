//! Snapshots, read over the wire.

use std::collections::BTreeSet;

use aquifer_files::FileSnapshotNames;
use aquifer_nfs::proto::nlm::Nlm4Stats;
use aquifer_nfs::proto::v3::*;
use aquifer_nfs::{Access, Export};

use crate::client::Client;
use crate::files::{mode, status};
use crate::fixture::{Fixture, config};
use crate::locks::{Place, locked};

const OLD: &[u8] = b"as it was";

fn snapshot(fixture: &Fixture, full: &str) {
    let datasets = fixture.pool().datasets.clone();
    let names = [full.to_owned()];
    fixture.block_on(async move { datasets.snapshot(&names, false).await }).unwrap();
}

pub fn walk(client: &mut Client, root: NfsFh3, path: &str) -> Result<NfsFh3, Nfsstat3> {
    path.split('/').try_fold(root, |at, name| Ok(client.lookup(at, name)?.object))
}

/// A file that has changed since the snapshot `before`: its handle there.
fn changed(fixture: &Fixture, client: &mut Client, root: NfsFh3) -> NfsFh3 {
    let file = client.file(root, "disk.raw");
    assert_eq!(status(&client.write(file, 0, OLD, StableHow::FileSync)), Nfsstat3::Ok);
    snapshot(fixture, "tank/vms@before");
    assert_eq!(status(&client.write(file, 0, b"now", StableHow::FileSync)), Nfsstat3::Ok);
    walk(client, root, ".aquifer/snapshot/before/disk.raw").unwrap()
}

#[test]
fn old_content_is_read_and_nothing_changes() {
    let mut fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let old = changed(&fixture, &mut client, root);
    assert_eq!(client.read(old, 0, 100), Ok((OLD.to_vec(), true)));
    // A file system of its own: a client caches nothing of the live one under its name.
    let list = walk(&mut client, root, ".aquifer/snapshot").unwrap();
    let found = client.lookup(list, "before").unwrap();
    let (top, live) = (found.obj_attributes.unwrap(), client.attributes(root));
    assert_eq!(found.dir_attributes.unwrap().fsid, live.fsid);
    assert_ne!(top.fsid, live.fsid);
    assert_eq!((top.fsid, top.fileid), (client.attributes(old).fsid, live.fileid));
    assert_eq!(client.lookup(found.object, "..").unwrap().object, list);
    assert_eq!(client.mount("/vms/.aquifer/snapshot/before"), Ok(found.object));
    let Res3::Ok(space) =
        client.nfs(&Args3::Fsstat(Getattr3Args { object: old })).decode::<Fsstat3Res>()
    else {
        panic!("no space");
    };
    assert_eq!((space.fbytes, space.abytes), (0, 0));
    for args in [Args3::Fsinfo as fn(_) -> _, Args3::Pathconf] {
        for object in [list, found.object] {
            client.nfs(&args(Getattr3Args { object }));
        }
    }

    for directory in [root, list, found.object] {
        let changes = access::MODIFY | access::EXTEND | access::DELETE;
        let expected = if directory == root { changes } else { 0 };
        assert_eq!(client.access(directory) & changes, expected);
    }
    for directory in [list, found.object] {
        let made = client.create(directory, "new", CreateHow3::Unchecked(mode(0o644)));
        assert_eq!(made.err(), Some(Nfsstat3::Rofs));
        assert_eq!(status(&client.remove(directory, "disk.raw")), Nfsstat3::Rofs);
        assert_eq!(status(&client.rmdir(directory, "before")), Nfsstat3::Rofs);
    }
    let written = client.write(old, 0, b"x", StableHow::Unstable);
    assert_eq!(status(&written), Nfsstat3::Rofs);
    assert_eq!(status(&client.setattr(old, mode(0), None)), Nfsstat3::Rofs);
    assert_eq!(status(&client.commit(old, 0, 0)), Nfsstat3::Ok);
    assert_eq!(status(&client.link(old, root, "linked")), Nfsstat3::Xdev);

    fixture.stop();
    fixture.open();
    fixture.serve(config(), vec![Export::new("/vms", "tank/vms")]);
    let mut client = fixture.client();
    assert_eq!(client.read(old, 0, 100), Ok((OLD.to_vec(), true)));
    let datasets = fixture.pool().datasets.clone();
    let destroyed = async move {
        let (dataset, gone) = datasets.snapshot_by_name("tank/vms@before").unwrap();
        let doomed = [(dataset.clone(), BTreeSet::from([gone.txg]))];
        datasets.destroy_snapshots(&doomed, false).await
    };
    fixture.block_on(destroyed).unwrap();
    assert_eq!(client.read(old, 0, 100), Err(Nfsstat3::Stale));
    assert_eq!(client.lookup(list, "before").err(), Some(Nfsstat3::NoEnt));
}

/// A client that may not use a dataset does not read its snapshots either.
#[test]
fn a_snapshot_is_as_open_as_its_dataset() {
    let mut fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let old = changed(&fixture, &mut client, root);
    let elsewhere = Access::read_write_for(["10.0.0.0/8".parse().unwrap()]);
    for (exports, expected) in [
        (vec![Export { access: elsewhere, ..Export::new("/vms", "tank/vms") }], Nfsstat3::Acces),
        (vec![Export::new("/iso", "tank/iso")], Nfsstat3::Stale),
        (vec![Export::new("/vms", "tank/vms")], Nfsstat3::Ok),
    ] {
        fixture.server().nfs().exports().replace(exports).unwrap();
        let said = client.getattr(old).err().unwrap_or(Nfsstat3::Ok);
        assert_eq!(said, expected);
    }
    let datasets = fixture.pool().datasets.clone();
    let disabled = async move { datasets.set("tank/vms", "snapdir", Some("disabled")).await };
    fixture.block_on(disabled).unwrap();
    assert_eq!(client.getattr(old).err(), Some(Nfsstat3::Stale));
    assert_eq!(client.lookup(root, ".aquifer").err(), Some(Nfsstat3::NoEnt));
    fixture.stop();
}

#[test]
fn a_lock_on_a_file_of_a_snapshot_is_not_one_on_the_live_file() {
    let place = Place::with(|| vec![Export::new("/vms", "tank/vms")]);
    let Place { fixture, mut client, file: live, .. } = place;
    let root = client.mount("/vms").unwrap();
    snapshot(&fixture, "tank/vms@before");
    let old = walk(&mut client, root, ".aquifer/snapshot/before/disk.raw").unwrap();
    assert_eq!(locked(&mut client, &live, 1), Nlm4Stats::Granted);
    assert_eq!(locked(&mut client, &live, 2), Nlm4Stats::Denied);
    assert_eq!(locked(&mut client, &old, 2), Nlm4Stats::Granted);
}

/// A version of a file, beside it: a client tells it from the live file, and reads it after a
/// restart.
#[test]
fn versions_of_a_file_are_files_of_their_own() {
    let mut fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let dir = client.dir(root, "web");
    let file = client.file(dir, "disk.raw");
    assert_eq!(status(&client.write(file, 0, OLD, StableHow::Unstable)), Nfsstat3::Ok);
    snapshot(&fixture, "tank/vms@whole");
    let files = fixture.pool().files.clone();
    let name = FileSnapshotNames::parse(files.datasets(), "tank/vms:web/disk.raw@own");
    let names = [name.unwrap()];
    fixture.block_on(async move { files.snapshot_files(&names).await }).unwrap();
    assert_eq!(status(&client.write(file, 0, b"now", StableHow::FileSync)), Nfsstat3::Ok);
    let versions = walk(&mut client, dir, ".aquifer/disk.raw").unwrap();
    let live = client.attributes(file);
    let mut seen = vec![(live.fsid, live.fileid)];
    let mut found = Vec::new();
    for name in ["own", "whole"] {
        let old = client.lookup(versions, name).unwrap();
        let of = old.obj_attributes.unwrap();
        assert_eq!((of.ftype, of.size), (Ftype3::Reg, OLD.len() as u64));
        assert_eq!(client.read(old.object, 0, 100), Ok((OLD.to_vec(), true)));
        assert!(seen.iter().all(|(fsid, fileid)| *fsid != of.fsid && *fileid != of.fileid));
        seen.push((of.fsid, of.fileid));
        let args = Readdir3Args { dir: versions, cookie: 0, cookieverf: [0; 8], count: 4096 };
        let listed = client.nfs(&Args3::Readdir(args));
        let listed: Readdir3Res = listed.decode();
        let Res3::Ok(listed) = listed else { panic!("READDIR") };
        let entry = listed.entries.iter().find(|entry| entry.name == name.as_bytes());
        assert_eq!(entry.unwrap().fileid, of.fileid);
        assert_eq!(status(&client.write(old.object, 0, b"x", StableHow::Unstable)), Nfsstat3::Rofs);
        assert_eq!(status(&client.link(old.object, dir, "linked")), Nfsstat3::Xdev);
        found.push(old.object);
    }
    let made = client.create(versions, "new", CreateHow3::Unchecked(mode(0o644)));
    assert_eq!(made.err(), Some(Nfsstat3::Rofs));
    fixture.stop();
    fixture.open();
    fixture.serve(config(), vec![Export::new("/vms", "tank/vms")]);
    let mut client = fixture.client();
    for old in found {
        assert_eq!(client.read(old, 0, 100), Ok((OLD.to_vec(), true)));
    }
    assert_eq!(client.lookup(versions, "none").err(), Some(Nfsstat3::NoEnt));
}
