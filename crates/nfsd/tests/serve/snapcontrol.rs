//! Snapshots that hosts take, destroy and rename over the wire: who may, and calls to a disk that
//! does not answer.

use std::thread;
use std::time::Duration;

use aquifer_nfs::proto::nlm::Nlm4Stats;
use aquifer_nfs::proto::v3::*;
use aquifer_nfs::{Access, Client as Host, Entry, Export, Squash, Whom};
use aquifer_rpc::message::Reply;
use aquifer_rpc::xdr::{Decode, Decoder, Span};

use crate::client::Client;
use crate::files::{mode, place, status};
use crate::fixture::{Fixture, config};
use crate::locks::locked;
use crate::silence::{silence, speak};
use crate::snapshots::walk;

/// The host that may, one that may not, and one that is excepted from its network.
const MAY: &str = "127.0.0.2";
const OTHER: &str = "127.0.1.1";
const EXCEPTED: &str = "127.0.0.3";

fn entry(text: &str) -> Entry {
    let (except, network) = match text.strip_prefix('-') {
        Some(network) => (true, network),
        None => (false, text),
    };
    Entry { client: Host::Network(network.parse().unwrap()), except }
}

fn export(of: Access) -> Export {
    let control = vec![entry("-127.0.0.3"), entry("127.0.0.0/24")];
    Export { access: Access { control, ..of }, ..Export::new("/vms", "tank/vms") }
}

/// Ports of a superuser, and of any user.
const LOW: std::ops::Range<u16> = 600..1024;
const HIGH: std::ops::Range<u16> = 30_000..32_000;

fn client(fixture: &Fixture, host: &str) -> (Client, NfsFh3) {
    client_at(fixture, host, LOW)
}

fn client_at(fixture: &Fixture, host: &str, ports: std::ops::Range<u16>) -> (Client, NfsFh3) {
    let mut client = Client::connect_from(host, ports, fixture.address());
    let root = client.mount("/vms").unwrap();
    let list = walk(&mut client, root, ".aquifer/snapshot").unwrap();
    (client, list)
}

/// The statuses of MKDIR, RENAME and RMDIR, and what ACCESS grants of changes.
fn tried(client: &mut Client, list: NfsFh3) -> ([Nfsstat3; 3], bool) {
    const CHANGES: u32 = access::MODIFY | access::EXTEND | access::DELETE;
    let granted = client.access(list) & CHANGES;
    assert!([0, CHANGES].contains(&granted));
    let made = client.mkdir(list, "a", mode(0o700)).map_or_else(|status| status, |_| Nfsstat3::Ok);
    let moved = status(&client.rename((list, "a"), (list, "b")));
    let gone = status(&client.rmdir(list, "b"));
    ([made, moved, gone], granted != 0)
}

#[test]
fn only_the_superuser_of_a_named_host_may() {
    use Nfsstat3::{Acces, Ok, Rofs};
    let read_write = Access::read_write;
    let read_only = Access { read_only: Whom::Listed(vec![entry(MAY)]), ..read_write() };
    let squashed = |access| Export { squash: Squash::Root, ..export(access) };
    let root = Access { root: vec![entry(MAY)], ..read_write() };
    for (export, host, uid, expected) in [
        (export(read_write()), MAY, 0, Ok),
        (export(read_write()), MAY, 7, Acces),
        (export(read_write()), OTHER, 0, Rofs),
        (export(read_write()), EXCEPTED, 0, Rofs),
        (export(read_only), MAY, 0, Rofs),
        (squashed(read_write()), MAY, 0, Acces),
        (squashed(root.clone()), MAY, 0, Ok),
        (squashed(root), MAY, 7, Acces),
        (Export { squash: Squash::All, ..export(read_write()) }, MAY, 0, Acces),
        (Export::new("/vms", "tank/vms"), MAY, 0, Rofs),
    ] {
        let case = format!("{export:?} {host} {uid}");
        let fixture = Fixture::with(config(), vec![export]);
        let (mut client, list) = client(&fixture, host);
        client.uid = uid;
        let (told, granted) = tried(&mut client, list);
        assert_eq!((told, granted), ([expected; 3], expected == Ok), "{case}");
        let left = fixture.pool().datasets.by_name("tank/vms").unwrap().snapshot_count();
        assert_eq!(left, 0, "{case}");
    }
}

/// On an export that takes calls from any port, any process of a host calls itself the superuser.
#[test]
fn no_process_without_a_low_port_acts_whatever_the_export_says() {
    let fixture = Fixture::with(config(), vec![export(Access::read_write())]);
    let (mut root, list) = client(&fixture, MAY);
    root.mkdir(list, "kept", mode(0o700)).unwrap();
    let (mut user, _) = client_at(&fixture, MAY, HIGH);
    assert_eq!(tried(&mut user, list), ([Nfsstat3::Rofs; 3], false));
    assert_eq!(status(&user.rmdir(list, "kept")), Nfsstat3::Rofs);
    assert!(user.lookup(list, "kept").is_ok(), "it may look");
    assert_eq!(status(&root.rmdir(list, "kept")), Nfsstat3::Ok);
}

/// A host asks for as many acts as it can; the administrator's act has to wait for two of them at
/// most, and another host has its turn.
#[test]
fn a_host_holds_up_neither_the_administrator_nor_other_hosts() {
    let fixture = Fixture::with(config(), vec![export(Access::read_write())]);
    let (mut greedy, list) = client(&fixture, MAY);
    let (mut other, _) = client(&fixture, "127.0.0.4");
    // The first snapshot writes labels, too: not part of this.
    assert!(other.mkdir(list, "early", mode(0)).is_ok());
    fixture.gate.close();
    let ask = |client: &mut Client, name: &str| {
        let args = Mkdir3Args { place: place(list, name), attributes: mode(0o700) };
        let record = client.nfs_record(&Args3::Mkdir(args));
        client.send(&record);
    };
    (0..100).for_each(|number| ask(&mut greedy, &format!("g{number}")));
    // Most hear "later" at once: so many of one host wait, and no more.
    let answered = |client: &mut Client| {
        let (_, answer) = client.answer();
        match answer.unwrap().decode::<Create3Res>() {
            Res3::Fail { status, .. } => status,
            Res3::Ok(_) => Nfsstat3::Ok,
        }
    };
    for _ in 0..100 - 16 {
        assert_eq!(answered(&mut greedy), Nfsstat3::Jukebox);
    }
    ask(&mut other, "other");
    let datasets = fixture.pool().datasets.clone();
    thread::scope(|scope| {
        let act = async move { datasets.snapshot(&["tank/iso@admin".into()], false).await };
        let act = scope.spawn(|| fixture.block_on(act));
        thread::sleep(Duration::from_millis(300));
        fixture.gate.open();
        assert!(act.join().unwrap().is_ok());
    });
    assert_eq!(answered(&mut other), Nfsstat3::Ok);
    for _ in 0..16 {
        assert_eq!(answered(&mut greedy), Nfsstat3::Ok);
    }
    let vms = fixture.pool().datasets.by_name("tank/vms").unwrap();
    let committed = fixture.pool().pool.committed_txg();
    let all = vms.snapshots(committed);
    let txg = |name: &str| all.iter().find(|of| of.record.name == name).unwrap().txg;
    let greedys = || all.iter().filter(|of| of.record.name.starts_with('g'));
    let before_other = greedys().filter(|of| of.txg < txg("other")).count();
    assert!(before_other <= 3, "{before_other} of the greedy host's came first");
    let iso = fixture.pool().datasets.by_name("tank/iso").unwrap();
    let admin = iso.snapshots(committed)[0].txg;
    let before_admin = greedys().filter(|of| of.txg < admin).count();
    assert!(before_admin <= 2, "{before_admin} acts of hosts came first");
}

#[test]
fn a_client_sees_what_it_and_others_did() {
    let fixture = Fixture::with(config(), vec![export(Access::read_write())]);
    let (mut client, list) = client(&fixture, MAY);
    let before = client.attributes(list);
    let made = client.mkdir(list, "a", mode(0o700)).unwrap();
    // A snapshot is read-only, whatever mode was asked for, and a file system of its own.
    assert_ne!(made.attributes.fsid, before.fsid);
    assert_eq!(client.lookup(list, "a").unwrap().object, made.file);
    let (after, now) = (made.dir_wcc.after.unwrap(), client.attributes(list));
    assert_eq!((after, made.dir_wcc.before), (now, None));
    assert!(before.mtime != now.mtime && now.nlink == before.nlink + 1);
    assert_eq!(client.mkdir(list, "a", mode(0o700)).err(), Some(Nfsstat3::Exist));
    for (name, why) in [("a%b", Nfsstat3::Inval), ("a\u{e9}", Nfsstat3::Inval)] {
        assert_eq!(client.mkdir(list, name, mode(0o700)).err(), Some(why), "{name}");
    }
    let long = "n".repeat(256);
    assert_eq!(client.mkdir(list, &long, mode(0)).err(), Some(Nfsstat3::NameTooLong));
    assert_eq!(status(&client.rmdir(list, "none")), Nfsstat3::NoEnt);
    assert_eq!(status(&client.remove(list, "a")), Nfsstat3::Rofs);
    assert_eq!(status(&client.rename((list, "a"), (list, "b"))), Nfsstat3::Ok);
    assert_eq!(client.lookup(list, "b").unwrap().object, made.file);
    assert_eq!(status(&client.rmdir(list, "b")), Nfsstat3::Ok);
    assert_eq!(client.getattr(made.file), Err(Nfsstat3::Stale));
}

/// A call under way when the disk stops is not answered before the disk is back, and made once. One
/// that comes later hears "later", and was not made.
#[test]
fn an_act_waits_for_a_disk_that_does_not_answer() {
    let fixture = Fixture::with(config(), vec![export(Access::read_write())]);
    let (mut first, list) = client(&fixture, MAY);
    // The first snapshot writes labels, too: not part of this.
    assert!(first.mkdir(list, "early", mode(0)).is_ok());
    fixture.gate.close();
    let args = Args3::Mkdir(Mkdir3Args { place: place(list, "a"), attributes: Sattr3::NONE });
    let record = first.nfs_record(&args);
    let xid = first.xid;
    first.send(&record);
    silence(&fixture);
    let (mut second, _) = client_of(&fixture);
    assert_eq!(second.mkdir(list, "b", mode(0)).err(), Some(Nfsstat3::Jukebox));
    // Sent again, on another connection.
    second.send(&record);
    thread::sleep(Duration::from_millis(600));
    speak(&fixture);
    let mut answers = Vec::new();
    for client in [&mut first, &mut second] {
        let reply = client.receive();
        let mut from = Decoder::new(&reply);
        assert_eq!(Reply::decode(&mut from).unwrap().xid, xid);
        let Res3::Ok(made) = Create3Res::decode(&mut from).unwrap() else { panic!("MKDIR") };
        answers.push(made.obj.unwrap());
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(first.lookup(list, "a").unwrap().object, answers[0]);
    assert_eq!(first.lookup(list, "b").err(), Some(Nfsstat3::NoEnt));
    assert_eq!(fixture.pool().datasets.by_name("tank/vms").unwrap().snapshot_count(), 2);
}

/// Connects from the same host again, whose pool does not answer.
fn client_of(fixture: &Fixture) -> (Client, NfsFh3) {
    let mut client = Client::connect_from(MAY, LOW, fixture.address());
    let root = client.mount("/vms").unwrap();
    (client, root)
}

/// `.aquifer/FILE` of a file `disk.raw`, and its `control`.
fn of_file(client: &mut Client, fixture: &Fixture) -> (NfsFh3, NfsFh3, NfsFh3) {
    let root = client.mount("/vms").unwrap();
    let file = client.file(root, "disk.raw");
    let versions = walk(client, root, ".aquifer/disk.raw").unwrap();
    let control = client.lookup(versions, "control").unwrap().object;
    assert_eq!(fixture.pool().datasets.by_name("tank/vms").unwrap().snapshot_count(), 0);
    (file, versions, control)
}

fn touch() -> CreateHow3 {
    CreateHow3::Unchecked(mode(0o644))
}

#[test]
fn a_file_is_snapshotted_rolled_back_and_cloned_beside_it() {
    let fixture = Fixture::with(config(), vec![export(Access::read_write())]);
    let (mut client, _) = client(&fixture, MAY);
    let (file, versions, control) = of_file(&mut client, &fixture);
    let write = |client: &mut Client, at, data: &[u8], how| {
        let Res3::Ok(wrote) = client.write(at, 0, data, how) else { panic!("WRITE") };
        wrote
    };
    write(&mut client, file, b"old", StableHow::FileSync);
    let made = client.create(versions, "before", touch()).unwrap();
    assert_eq!(client.lookup(versions, "before").unwrap().object, made.file);
    let times = Sattr3 { atime: SetTime::ServerTime, mtime: SetTime::ServerTime, ..Sattr3::NONE };
    assert_eq!(status(&client.setattr(made.file, times, None)), Nfsstat3::Ok);
    assert_eq!(client.create(versions, "before", touch()).err(), Some(Nfsstat3::Exist));
    let exclusive = client.create(versions, "x", CreateHow3::Exclusive([1; 8]));
    assert_eq!(exclusive.err(), Some(Nfsstat3::NotSupp));
    write(&mut client, file, b"new", StableHow::FileSync);

    // As a shell does: it empties what it opens.
    let empty = Sattr3 { size: Some(0), ..Sattr3::NONE };
    assert_eq!(status(&client.setattr(control, empty, None)), Nfsstat3::Ok);
    let wrote = write(&mut client, control, b"rollback before\n", StableHow::Unstable);
    assert_eq!((wrote.committed, wrote.count), (StableHow::FileSync, 16));
    // Nothing that a client would take for what it wrote.
    assert_eq!(wrote.file_wcc, WccData::NONE);
    assert_eq!(status(&client.commit(control, 0, 0)), Nfsstat3::Ok);
    assert_eq!(client.read(file, 0, 10), Ok((b"old".to_vec(), true)));
    let of = client.attributes(control);
    let (text, eof) = client.read(control, 0, 60_000).unwrap();
    assert!(eof && text.len() as u64 == of.size && text.ends_with(b": rollback before: done\n"));
    let cloned = write(&mut client, control, b"clone before copy\n", StableHow::FileSync);
    assert_eq!(cloned.count, 18);
    let root = client.mount("/vms").unwrap();
    let copy = client.lookup(root, "copy").unwrap().object;
    assert_eq!(client.read(copy, 0, 10), Ok((b"old".to_vec(), true)));
    for (line, why) in [
        (&b"rollback none\n"[..], Nfsstat3::NoEnt),
        (b"rollback before", Nfsstat3::Inval),
        (b"\xff\xff\xff\n", Nfsstat3::Inval),
        (b"clone before copy\n", Nfsstat3::Exist),
        (&[b'x'; 20_000], Nfsstat3::Fbig),
        // Whole pages take another way.
        (&[b'\n'; 8192], Nfsstat3::Fbig),
    ] {
        for how in [StableHow::Unstable, StableHow::FileSync] {
            assert_eq!(status(&client.write(control, 0, line, how)), why, "{line:?}");
        }
    }
    for name in ["before", "before"] {
        let gone = status(&client.remove(versions, name));
        assert!([Nfsstat3::Ok, Nfsstat3::NoEnt].contains(&gone));
    }
    assert_eq!(client.getattr(made.file), Err(Nfsstat3::Stale));
}

#[test]
fn only_the_superuser_of_a_named_host_may_act_on_a_file() {
    use Nfsstat3::{Acces, Ok, Rofs};
    let read_only = Access { read_only: Whom::Listed(vec![entry(MAY)]), ..Access::read_write() };
    for (export, host, uid, expected) in [
        (export(Access::read_write()), MAY, 0, Ok),
        (export(Access::read_write()), MAY, 7, Acces),
        (export(Access::read_write()), OTHER, 0, Rofs),
        (export(Access::read_write()), EXCEPTED, 0, Rofs),
        (export(read_only), MAY, 0, Rofs),
        (Export { squash: Squash::Root, ..export(Access::read_write()) }, MAY, 0, Acces),
    ] {
        let case = format!("{export:?} {host} {uid}");
        let fixture = Fixture::with(config(), vec![export]);
        let (mut owner, _) = client(&fixture, OTHER);
        let root = owner.mount("/vms").unwrap();
        let files = fixture.pool().files.clone();
        let make = async move {
            let how = aquifer_files::CreateHow::Unchecked(Default::default());
            let top = files.root("tank/vms").unwrap();
            let cred = aquifer_files::Credentials::root();
            files.create(&cred, top, b"disk.raw", how).await.kept().await.0.unwrap();
            let name = "tank/vms:disk.raw@before";
            let name = aquifer_files::FileSnapshotNames::parse(files.datasets(), name);
            files.snapshot_files(&[name.unwrap()]).await.unwrap();
        };
        fixture.block_on(make);
        let versions = walk(&mut owner, root, ".aquifer/disk.raw").unwrap();
        let control = owner.lookup(versions, "control").unwrap().object;
        let (mut client, _) = client(&fixture, host);
        client.uid = uid;
        let made = client.create(versions, "a", touch());
        let made = made.map_or_else(|status| status, |_| Ok);
        let gone = status(&client.remove(versions, "a"));
        let line = b"clone before copy\n";
        let wrote = status(&client.write(control, 0, line, StableHow::Unstable));
        assert_eq!([made, gone, wrote], [expected; 3], "{case}");
        assert_eq!(owner.lookup(root, "copy").is_ok(), expected == Ok, "{case}");
    }
}

/// A line that is sent again, on whatever connection, does nothing; a locked file stays as it is.
#[test]
fn a_line_acts_once_and_not_on_a_locked_file() {
    let fixture = Fixture::with(config(), vec![export(Access::read_write())]);
    let (mut first, _) = client(&fixture, MAY);
    let (file, versions, control) = of_file(&mut first, &fixture);
    first.write(file, 0, b"old", StableHow::FileSync);
    assert!(first.create(versions, "before", touch()).is_ok());
    first.write(file, 0, b"new", StableHow::FileSync);
    let head = Write3Head { file: control, offset: 70, count: 16, stable: StableHow::Unstable };
    let data = Span { offset: 0, bytes: b"rollback before\n" };
    let record = first.nfs_record(&Args3::Write(Write3Args { head, data }));
    let mut second = Client::connect_from(MAY, LOW, fixture.address());
    let mut answers = Vec::new();
    for round in 0..3 {
        let client = if round == 1 { &mut second } else { &mut first };
        client.send(&record);
        answers.push(client.receive());
        if round == 0 {
            assert_eq!(first.read(file, 0, 10), Ok((b"old".to_vec(), true)));
            first.write(file, 0, b"later", StableHow::FileSync);
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(first.read(file, 0, 10), Ok((b"later".to_vec(), true)));

    assert_eq!(locked(&mut first, &file, 1), Nlm4Stats::Granted);
    let said = first.write(control, 0, b"rollback before\n", StableHow::FileSync);
    assert_eq!(status(&said), Nfsstat3::Perm);
    let (text, _) = first.read(control, 0, 60_000).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("clients hold 1 locks on the file"), "{text}");
    assert_eq!(first.read(file, 0, 10), Ok((b"later".to_vec(), true)));
    // A clone leaves the file as it is.
    let said = first.write(control, 0, b"clone before copy\n", StableHow::FileSync);
    assert_eq!(status(&said), Nfsstat3::Ok);
}

/// A line under way when the disk stops is not answered before the disk is back, and acts once.
#[test]
fn a_line_waits_for_a_disk_that_does_not_answer() {
    let fixture = Fixture::with(config(), vec![export(Access::read_write())]);
    let (mut first, _) = client(&fixture, MAY);
    let (file, versions, control) = of_file(&mut first, &fixture);
    first.write(file, 0, b"old", StableHow::FileSync);
    assert!(first.create(versions, "before", touch()).is_ok());
    // The first clone writes labels, too: not part of this.
    let early = first.write(control, 0, b"clone before early\n", StableHow::FileSync);
    assert_eq!(status(&early), Nfsstat3::Ok);
    fixture.gate.close();
    let head = Write3Head { file: control, offset: 0, count: 18, stable: StableHow::Unstable };
    let data = Span { offset: 0, bytes: b"clone before copy\n" };
    let record = first.nfs_record(&Args3::Write(Write3Args { head, data }));
    first.send(&record);
    silence(&fixture);
    let (mut second, root) = client_of(&fixture);
    let late = second.write(control, 0, b"clone before late\n", StableHow::Unstable);
    assert_eq!(status(&late), Nfsstat3::Jukebox);
    speak(&fixture);
    // It heard "later", or was carried out: that is for the clone to say.
    let reply = first.receive();
    let mut from = Decoder::new(&reply);
    Reply::decode(&mut from).unwrap();
    let said = status(&Write3Res::decode(&mut from).unwrap());
    let is_there = second.lookup(root, "copy").is_ok();
    assert_eq!(is_there, said == Nfsstat3::Ok, "{said:?}");
    assert!([Nfsstat3::Ok, Nfsstat3::Jukebox].contains(&said), "{said:?}");
    assert_eq!(second.lookup(root, "late").err(), Some(Nfsstat3::NoEnt));
}
