//! Snapshots that hosts take, destroy and rename over the wire: who may, and calls to a disk that
//! does not answer.

use std::thread;
use std::time::Duration;

use aquifer_nfs::proto::v3::*;
use aquifer_nfs::{Access, Client as Host, Entry, Export, Squash, Whom};
use aquifer_rpc::message::Reply;
use aquifer_rpc::xdr::{Decode, Decoder};

use crate::client::Client;
use crate::files::{mode, place, status};
use crate::fixture::{Fixture, config};
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

fn client(fixture: &Fixture, host: &str) -> (Client, NfsFh3) {
    let mut client = Client::connect_from(host, 30_000..32_000, fixture.address());
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

/// The same host again, whose pool does not answer.
fn client_of(fixture: &Fixture) -> (Client, NfsFh3) {
    let mut client = Client::connect_from(MAY, 30_000..32_000, fixture.address());
    let root = client.mount("/vms").unwrap();
    (client, root)
}
