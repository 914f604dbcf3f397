//! Records on the stream, however they come, and RPC's refusals.

use aquifer_nfs::proto::v3::{Args3, Nfsstat3, Res3, Setattr3Args, StableHow, WccData};
use aquifer_nfs::proto::v3::{NfsFh3, Sattr3, Write3Args, Write3Head};
use aquifer_rpc::message::Accepted;
use aquifer_rpc::xdr::Span;

use crate::client::{Client, Refusal};
use crate::fixture::Fixture;

/// A WRITE of `bytes` bytes to no file: refused when it has come whole.
fn write(client: &mut Client, bytes: usize) -> Vec<u8> {
    let data = vec![0x5a; bytes];
    let file = NfsFh3::new(&[7; 24]).unwrap();
    let count = u32::try_from(bytes).unwrap();
    let head = Write3Head { file, offset: 0, count, stable: StableHow::FileSync };
    let data = Span { offset: 0, bytes: &data };
    client.nfs_record(&Args3::Write(Write3Args { head, data }))
}

/// A record, its mark left out, in fragments of these lengths and one for the rest.
fn fragments(record: &[u8], lengths: &[usize]) -> Vec<u8> {
    let mut rest = &record[4..];
    let mut bytes = Vec::new();
    for length in lengths {
        let (fragment, after) = rest.split_at(*length);
        bytes.extend((*length as u32).to_be_bytes());
        bytes.extend(fragment);
        rest = after;
    }
    bytes.extend((0x8000_0000 | rest.len() as u32).to_be_bytes());
    bytes.extend(rest);
    bytes
}

/// XCP-ng's NFS driver (sm, nfs.py) opens port 2049, sends one newline and closes.
#[test]
fn a_stray_newline_is_harmless() {
    let fixture = Fixture::new();
    for _ in 0..100 {
        let mut probe = fixture.client();
        probe.send(b"\n");
        drop(probe);
    }
    fixture.client().ping();
    fixture.until("probes are gone", |fixture| fixture.server().load().connections <= 1);
    let load = fixture.server().load();
    assert_eq!((load.protocol_errors, load.panics, load.accepted), (0, 0, 101));
    assert_eq!(load.request_bytes + load.reply_bytes, 0);
}

#[test]
fn records_come_in_any_pieces() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for _ in 0..3 {
        let null = client.null_record();
        for byte in &null {
            client.send(&[*byte]);
        }
        client.receive();
    }
    // Every way to cut a stream of two calls in two: through marks, headers, arguments.
    let two = [client.null_record(), write(&mut client, 40)].concat();
    for cut in 1..two.len() {
        client.send(&two[..cut]);
        std::thread::yield_now();
        client.send(&two[cut..]);
        client.receive();
        client.receive();
    }
    let load = fixture.server().load();
    assert_eq!((load.protocol_errors, load.panics), (0, 0));
}

#[test]
fn records_of_several_fragments_are_joined() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let null = client.null_record();
    for lengths in [&[0][..], &[1], &[2, 0, 1], &[3, 3, 3, 3], &[8, 0, 0, 20]] {
        let bytes = fragments(&null, lengths);
        client.send(&bytes);
        client.receive();
        // Also byte by byte, so that every place between two reads occurs.
        for byte in &bytes {
            client.send(&[*byte]);
        }
        client.receive();
    }
    for lengths in [&[100, 300_000][..], &[1 << 20], &[65_536, 65_536, 200_000]] {
        let large = write(&mut client, 1 << 20);
        let bytes = [fragments(&large, lengths), client.null_record()].concat();
        client.send(&bytes);
        client.receive();
        client.receive();
    }
    client.ping();
    assert_eq!(fixture.server().load().protocol_errors, 0);
}

/// One WRITE of 1 MiB after the other, with small calls in between and all in one stream.
#[test]
fn large_records_and_small_ones_in_one_stream() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let mut stream = Vec::new();
    let sizes = [1 << 20, 0, 4096, 65_536, 65_400, 65_300, 1 << 20, 5, 262_144, 300_000];
    for bytes in sizes {
        stream.extend(write(&mut client, bytes));
        stream.extend(client.null_record());
    }
    let mut sender = client.another_half();
    let sending = std::thread::spawn(move || {
        for _ in 0..10 {
            sender.send(&stream);
        }
    });
    let mut statuses = Vec::new();
    for _ in 0..10 * 2 * sizes.len() {
        statuses.push(client.receive().len());
    }
    sending.join().unwrap();
    // NULL's reply is a header of 24 bytes, the refused WRITE's has status and empty wcc_data.
    let of = |bytes| statuses.iter().filter(|len| **len == bytes).count();
    assert_eq!((of(24), of(36)), (100, 100));
    fixture.until("all are counted", |fixture| fixture.server().load().requests == 200);
    let load = fixture.server().load();
    assert_eq!((load.protocol_errors, load.panics), (0, 0));
}

#[test]
fn what_is_no_rpc_ends_the_connection_and_only_that() {
    let fixture = Fixture::new();
    let mut other = fixture.client();
    let too_long = 0x8000_0000_u32 | (2 << 20);
    let reply = [0x8000_0008_u32, 1, 1].map(u32::to_be_bytes).concat();
    let empties = [0; 4].repeat(40);
    let noise: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\n\r\n", &too_long.to_be_bytes(), &reply, &empties, &[0xff; 64]];
    for bytes in noise {
        let mut client = fixture.client();
        let ping = client.null_record();
        // The earlier call is answered.
        client.send(&[&ping, bytes].concat());
        client.receive();
        client.closed();
        other.ping();
    }
    let load = fixture.server().load();
    assert_eq!((load.protocol_errors, load.panics), (5, 0));
}

#[test]
fn refusals_over_a_socket() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let mut refused = |what| client.call(what, &()).map(|_| ()).unwrap_err();
    // XCP-ng and Linux ask for NFSv4 first. They get the answer at once, so that they go on to v3.
    let versions = Accepted::ProgMismatch { low: 3, high: 3 };
    assert_eq!(refused((100_003, 4, 0)), Refusal::Accepted(versions));
    assert_eq!(refused((100_003, 3, 99)), Refusal::Accepted(Accepted::ProcUnavail));
    assert_eq!(refused((100_003, 3, 1)), Refusal::Accepted(Accepted::GarbageArgs));
    assert_eq!(refused((100_227, 3, 0)), Refusal::Accepted(Accepted::ProgUnavail));
    client.ping();
    let object = NfsFh3::new(&[7; 24]).unwrap();
    let set = Setattr3Args { object, new_attributes: Sattr3::NONE, guard: None };
    let stale = client.nfs(&Args3::Setattr(set));
    let resfail = WccData::NONE;
    assert_eq!(
        stale.decode::<Res3<WccData, WccData>>(),
        Res3::Fail { status: Nfsstat3::Stale, resfail }
    );
    let record = write(&mut client, 10);
    client.send(&record);
    client.receive();
}

/// A client may close its side when it has sent all: it still gets its replies.
#[test]
fn a_half_closed_connection_is_answered_to_the_end() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let many: Vec<u8> = (0..500).flat_map(|_| client.null_record()).collect();
    client.send(&many);
    client.shutdown();
    for _ in 0..500 {
        client.receive();
    }
    client.closed();
}
