//! Calls that must not run twice, sent again: on the same connection, on another, while the first
//! is under way. (Across restarts: with the real binary, in `crates/aquifer`.)

use std::net::SocketAddr;
use std::time::Duration;

use aquifer_nfs::proto::v3::*;
use aquifer_rpc::message::Reply;
use aquifer_rpc::xdr::{Decode, Decoder};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::client::Client;
use crate::files::{mode, place};
use crate::fixture::Fixture;

fn exchange(client: &mut Client, record: &[u8]) -> Vec<u8> {
    client.send(record);
    client.receive()
}

fn status(reply: &[u8]) -> Nfsstat3 {
    let mut from = Decoder::new(reply);
    Reply::decode(&mut from).unwrap();
    Nfsstat3::decode(&mut from).unwrap()
}

fn create<'n>(dir: NfsFh3, name: &'n str) -> Args3<'n> {
    let how = CreateHow3::Guarded(mode(0o644));
    Args3::Create(Create3Args { place: place(dir, name), how })
}

#[test]
fn a_call_sent_again_gets_the_same_bytes() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let other = client.file(root, "other");
    let attributes = mode(0o755);
    let symlink = SymlinkData3 { symlink_attributes: attributes, symlink_data: b"to" };
    let calls = [
        create(root, "a"),
        Args3::Mkdir(Mkdir3Args { place: place(root, "d"), attributes }),
        Args3::Symlink(Symlink3Args { place: place(root, "s"), symlink }),
        Args3::Mknod(Mknod3Args { place: place(root, "p"), what: MknodData3::Fifo(attributes) }),
        Args3::Link(Link3Args { file: other, link: place(root, "l") }),
        Args3::Rename(Rename3Args { from: place(root, "a"), to: place(root, "b") }),
        Args3::Remove(place(root, "s")),
        Args3::Rmdir(place(root, "d")),
        Args3::Setattr(Setattr3Args { object: other, new_attributes: mode(0o600), guard: None }),
    ];
    let records: Vec<_> = calls.iter().map(|args| client.nfs_record(args)).collect();
    let first: Vec<_> = records.iter().map(|record| exchange(&mut client, record)).collect();
    assert!(first.iter().all(|reply| status(reply) == Nfsstat3::Ok));
    let mut new_port = fixture.client();
    // The attributes in the answers are those of the first time, whatever happened since.
    client.file(root, "later");
    for client in [&mut client, &mut new_port] {
        for ((record, first), args) in records.iter().zip(&first).zip(&calls) {
            assert_eq!(exchange(client, record), *first, "{args:?}");
        }
    }
    // All of it at once, answered in any order.
    new_port.send(&records.concat());
    let mut again: Vec<_> = records.iter().map(|_| new_port.receive()).collect();
    let mut first = first;
    again.sort();
    first.sort();
    assert_eq!(again, first);
}

#[test]
fn a_failure_sent_again_is_the_same_failure() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let record = client.nfs_record(&Args3::Remove(place(root, "a")));
    let first = exchange(&mut client, &record);
    assert_eq!(status(&first), Nfsstat3::NoEnt);
    client.file(root, "a");
    assert_eq!(exchange(&mut fixture.client(), &record), first);
    assert!(client.lookup(root, "a").is_ok(), "a late REMOVE took what was made since");
}

/// Any of these may differ: address, transaction id, caller, arguments. Only the port does not
/// count.
#[test]
fn another_call_is_carried_out() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let record = client.nfs_record(&create(root, "a"));
    assert_eq!(status(&exchange(&mut client, &record)), Nfsstat3::Ok);
    // In the record: mark, then the transaction id. The last name is 1 byte and 3 of padding,
    // before the mode of creation.
    let other_xid = [&record[..4], &[0xaa; 4], &record[8..]].concat();
    assert_eq!(status(&exchange(&mut client, &other_xid)), Nfsstat3::Exist);
    let at = record.windows(8).rposition(|bytes| bytes == *b"\0\0\0\x01a\0\0\0").unwrap();
    let mut other_name = record.clone();
    other_name[at + 4] = b'b';
    assert_eq!(status(&exchange(&mut client, &other_name)), Nfsstat3::Ok);
    assert!(client.lookup(root, "b").is_ok());
    let mut elsewhere = fixture.client();
    elsewhere.stream = from_address([127, 0, 0, 2], fixture.address());
    assert_eq!(status(&exchange(&mut elsewhere, &record)), Nfsstat3::Exist);
    let at = record.windows(4).position(|bytes| bytes == *b"test").unwrap();
    let mut other_machine = record;
    other_machine[at] = b'r';
    assert_eq!(status(&exchange(&mut client, &other_machine)), Nfsstat3::Exist);
}

fn from_address(ip: [u8; 4], server: SocketAddr) -> std::net::TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from((ip, 0))).unwrap();
    connect(&socket, &server).unwrap();
    socket.into()
}

#[test]
fn a_call_under_way_is_waited_for() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let record = client.nfs_record(&create(root, "a"));
    let mut others = [fixture.client(), fixture.client()];
    fixture.gate.close();
    client.send(&record);
    fixture.until("the log is written", |fixture| fixture.gate.waiting() > 0);
    for other in &mut others {
        other.send(&record);
    }
    client.send(&record);
    std::thread::sleep(Duration::from_millis(100));
    for other in &others {
        other.stream.set_nonblocking(true).unwrap();
        let nothing = other.stream.peek(&mut [0]).map_err(|error| error.kind());
        assert_eq!(nothing, Err(std::io::ErrorKind::WouldBlock), "answered before it is durable");
        other.stream.set_nonblocking(false).unwrap();
    }
    fixture.gate.open();
    let first = client.receive();
    assert_eq!(status(&first), Nfsstat3::Ok);
    assert_eq!(client.receive(), first);
    for other in &mut others {
        assert_eq!(other.receive(), first);
    }
}

/// The connection breaks while the call is under way. The call may still be carried out.
#[test]
fn a_call_whose_connection_broke_is_answered_on_the_next() {
    let fixture = Fixture::new();
    let (client, root) = fixture.mounted();
    for at in 0..10 {
        let name = format!("f{at}");
        let mut broken = fixture.client();
        let record = broken.nfs_record(&create(root, &name));
        let before = fixture.gate.waiting();
        fixture.gate.close();
        broken.send(&record);
        fixture.until("the log is written", |fixture| fixture.gate.waiting() > before);
        drop(broken);
        let mut next = fixture.client();
        next.send(&record);
        std::thread::sleep(Duration::from_millis(10 * at));
        fixture.gate.open();
        assert_eq!(status(&next.receive()), Nfsstat3::Ok, "{name}");
    }
    drop(client);
}
