//! Hand-made captures of a LOOKUP and its reply: whole ones are sound, and each kind of damage is
//! found.

use std::fs;

use aquifer_rig::work::WorkDir;

use super::*;

const CLIENT: u16 = 700;
const SERVER: u16 = 2049;
const XID: u32 = 0x0bad_cafe;

/// Big-endian words.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// LOOKUP of "name" in the directory of an 8 byte handle, without credentials.
fn call() -> Vec<u8> {
    let mut call = words(&[XID, 0, 2, 100_003, 3, 3, 0, 0, 0, 0, 8, 1, 2, 4]);
    call.extend(b"name");
    call
}

/// Accepted, NFS3_OK, an 8 byte handle, no attributes of either object.
fn reply() -> Vec<u8> {
    words(&[XID, 1, 0, 0, 0, 0, 0, 8, 3, 4, 0, 0])
}

/// A capture file of a connection with these records: the sending port, the length in the record
/// mark, and the bytes of each.
fn capture(scratch: &Scratch, records: &[(u16, usize, &[u8])]) -> PathBuf {
    saved(scratch, &frames(records))
}

fn saved(scratch: &Scratch, frames: &[Vec<u8>]) -> PathBuf {
    // Magic, version 2.4, no time zone, longest frame, link type "raw IP".
    let mut file = words(&[0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 101]);
    file.extend(frames.concat());
    let path = scratch.join("made.pcap");
    fs::write(&path, file).unwrap();
    path
}

/// Three frames to connect, then one for each record.
fn frames(records: &[(u16, usize, &[u8])]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut next = [(CLIENT, 1000), (SERVER, 5000)];
    let mut segment = |from: u16, flags: u8, payload: &[u8]| {
        let (to, hosts) = match from {
            CLIENT => (SERVER, [0x0a00_0001, 0x0a00_0002]),
            _ => (CLIENT, [0x0a00_0002, 0x0a00_0001]),
        };
        let acked = next.iter().find(|(port, _)| *port == to).unwrap().1;
        let sequence = &mut next.iter_mut().find(|(port, _)| *port == from).unwrap().1;
        let length = u32::try_from(40 + payload.len()).unwrap();
        let mut frame = words(&[1_700_000_000, 0, length, length]);
        // IPv4 without options: version and length, identification, TTL 64 and TCP, addresses.
        frame.extend(words(&[0x4500_0000 | length, 0, 0x4006_0000, hosts[0], hosts[1]]));
        frame.extend(words(&[u32::from(from) << 16 | u32::from(to), *sequence, acked]));
        frame.extend(words(&[0x5000_2000 | u32::from(flags) << 16, 0]));
        frame.extend(payload);
        frames.push(frame);
        *sequence += u32::try_from(payload.len()).unwrap() + u32::from(flags & SYN != 0);
    };
    segment(CLIENT, SYN, &[]);
    segment(SERVER, SYN | ACK, &[]);
    segment(CLIENT, ACK, &[]);
    for (from, length, bytes) in records {
        let mut record = words(&[0x8000_0000 | u32::try_from(*length).unwrap()]);
        record.extend(*bytes);
        segment(*from, ACK | PUSH, &record);
    }
    frames
}

const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;

fn judge(reply: &[u8]) -> Talk {
    let scratch = WorkDir::open().unwrap().scratch("capture").unwrap();
    let call = call();
    let file = capture(&scratch, &[(CLIENT, call.len(), &call), (SERVER, reply.len(), reply)]);
    Talk::read(&file).unwrap()
}

const LOOKUP: &[(u32, &[u32])] = &[(100_003, &[3])];

#[test]
fn a_sound_reply_is_counted_and_a_missing_one_is_missed() {
    let talk = judge(&reply());
    assert_eq!((talk.replies(100_003, 3), talk.replies(100_003, 1)), (1, 0));
    talk.is_sound_with(LOOKUP).unwrap();
    let missing = talk.is_sound_with(&[(100_003, &[3, 21])]).unwrap_err().to_string();
    assert!(missing.contains("(100003, 21)") && !missing.contains("[(100003, 3)"), "{missing}");
    assert!(Talk::default().is_sound_with(LOOKUP).is_err(), "a capture of nothing");
}

#[test]
fn every_damage_of_a_reply_is_found() {
    let sound = reply();
    let edited = |word: usize, value: u32| {
        let mut reply = sound.clone();
        reply[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
        reply
    };
    let long = [&sound[..], &[0; 4]].concat();
    let damaged = [
        ("handle longer than the reply", edited(7, 64)),
        ("attributes that do not follow", edited(10, 1)),
        ("verifier longer than the reply", edited(4, 400)),
        ("reply cut short", sound[..sound.len() - 4].to_vec()),
        ("four bytes too many", long),
    ];
    for (what, reply) in damaged {
        let talk = judge(&reply);
        let found = talk.is_sound_with(LOOKUP);
        eprintln!("{what}: {talk:?}");
        assert!(found.is_err() && !talk.faults.is_empty(), "{what}: {talk:?}");
    }
    let mut talk = judge(&edited(0, XID + 1));
    assert!(talk.is_sound_with(&[]).is_err() && talk.unmatched.len() == 1, "{talk:?}");
    // In a thousand replies, tshark itself may have missed one call.
    talk.replies.insert((100_003, 3), 1000);
    talk.is_sound_with(LOOKUP).unwrap();
}

#[test]
fn a_stray_byte_of_a_client_is_no_fault_and_one_of_the_server_is() {
    let scratch = WorkDir::open().unwrap().scratch("capture-stray").unwrap();
    let (call, reply) = (call(), reply());
    let said = [(CLIENT, call.len(), &call[..]), (SERVER, reply.len(), &reply[..])];
    // The record mark announces 10 bytes, too few for a call.
    let stray = (CLIENT, 10, &b"0123456789"[..]);
    let talk = Talk::read(&capture(&scratch, &[said[0], said[1], stray])).unwrap();
    talk.is_sound_with(LOOKUP).unwrap();
    let stray = (SERVER, 10, &b"0123456789"[..]);
    let talk = Talk::read(&capture(&scratch, &[said[0], said[1], stray])).unwrap();
    assert!(!talk.faults.is_empty(), "{talk:?}");
}

#[test]
fn segments_that_overtake_each_other_are_no_fault() {
    let scratch = WorkDir::open().unwrap().scratch("capture-order").unwrap();
    let numbered = |mut record: Vec<u8>, number| {
        record[3] = number;
        record
    };
    let calls = [1, 2, 3].map(|number| (CLIENT, numbered(call(), number)));
    let replies = [1, 2, 3].map(|number| (SERVER, numbered(reply(), number)));
    let said = [&calls[0], &calls[1], &replies[0], &replies[1], &calls[2], &replies[2]];
    let frames = frames(&said.map(|(from, record)| (*from, record.len(), &record[..])));
    // Two calls, two replies, a call after replies, a call after its own reply.
    for (one, other) in [(3, 4), (5, 6), (4, 6), (7, 8)] {
        let mut frames = frames.clone();
        frames.swap(one, other);
        let talk = Talk::read(&saved(&scratch, &frames)).unwrap();
        talk.is_sound_with(LOOKUP).unwrap();
        assert_eq!(talk.replies(100_003, 3), 3, "{one} and {other}: {talk:?}");
    }
}

#[test]
fn a_capture_that_missed_packets_is_known() {
    let line = |counts: &str| {
        format!("File: x\nPackets received/dropped on interface 'Loopback: lo': {counts} (pcap)\n")
    };
    assert!(is_complete(&line("5094/0")));
    assert!(!is_complete(&line("5094/3")) && !is_complete("File: x\n"));
}
