//! Small WRITEs that a client sends one after the other: coalesced or not, each gets its own
//! answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use aquifer_nfs::proto::v3::*;
use aquifer_rpc::message::Reply;
use aquifer_rpc::xdr::{Decode, Decoder, Span};

use crate::client::Client;
use crate::contents::{bytes, written};
use crate::files::{both, mode, status, wcc_attr};
use crate::fixture::Fixture;

const PAGE: u64 = 4096;

/// A WRITE to send among others.
struct Write {
    file: NfsFh3,
    offset: u64,
    data: Vec<u8>,
    stable: StableHow,
}

impl Write {
    fn new(file: NfsFh3, offset: u64, count: u64) -> Self {
        let data = bytes(offset ^ count, count as usize);
        Write { file, offset, data, stable: StableHow::FileSync }
    }

    fn record(&self, client: &mut Client) -> Vec<u8> {
        let Write { file, offset, data, stable } = self;
        let (file, offset, count, stable) = (*file, *offset, data.len() as u32, *stable);
        let data = Span { offset: 0, bytes: data };
        let head = Write3Head { file, offset, count, stable };
        client.nfs_record(&Args3::Write(Write3Args { head, data }))
    }
}

/// Sends them all at once; returns the answers, in the order of sending.
fn send(client: &mut Client, writes: &[Write]) -> Vec<Write3Res> {
    let mut stream = Vec::new();
    let mut xids = Vec::new();
    for write in writes {
        stream.extend(write.record(client));
        xids.push(client.xid);
    }
    let mut sender = client.another_half();
    let sending = std::thread::spawn(move || sender.send(&stream));
    let mut answers: BTreeMap<u32, Write3Res> = BTreeMap::new();
    for _ in writes {
        let record = client.receive();
        let mut from = Decoder::new(&record);
        let xid = Reply::decode(&mut from).unwrap().xid;
        let answer = Write3Res::decode(&mut from).unwrap();
        assert!(from.remaining().is_empty());
        assert!(answers.insert(xid, answer).is_none(), "answered twice");
    }
    sending.join().unwrap();
    assert_eq!(answers.keys().copied().collect::<Vec<_>>(), xids);
    answers.into_values().collect()
}

/// A file that has just been written to, so that its next WRITEs use the bulk lane.
fn fresh(client: &mut Client, root: NfsFh3, name: &str) -> NfsFh3 {
    let file = client.file(root, name);
    written(client.write(file, 0, b"x", StableHow::FileSync));
    file
}

#[test]
fn writes_sent_together_are_answered_as_if_made_one_after_the_other() {
    let fixture = Fixture::new();
    for (name, stable) in [("stable", StableHow::FileSync), ("unstable", StableHow::Unstable)] {
        go_together(&fixture, name, stable);
    }
}

/// Of WRITEs to one place, among those to another file, the last one holds.
#[test]
fn writes_between_others_keep_their_order() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let files = ["one", "other"].map(|name| fresh(&mut client, root, name));
    for round in 0..20 {
        let one =
            |at: u64| Write { data: bytes(round * 8 + at, 4096), ..Write::new(files[0], 0, PAGE) };
        let writes: Vec<Write> =
            (0..8).flat_map(|at| [one(at), Write::new(files[1], at * PAGE, PAGE)]).collect();
        for answer in send(&mut client, &writes) {
            written(answer);
        }
        let (found, _) = client.read(files[0], 0, 4096).unwrap();
        assert!(found == one(7).data, "round {round}");
    }
}

fn go_together(fixture: &Fixture, name: &str, stable: StableHow) {
    let (mut client, root) = fixture.mounted();
    let file = fresh(&mut client, root, name);
    let mut before = client.attributes(file);
    // One page is written twice: the later content holds.
    let pages = [0, 7, 1, 40, 3, 1, 39, 80, 5, 6, 100, 2];
    let mut writes: Vec<Write> =
        pages.iter().map(|page| Write::new(file, page * PAGE, PAGE)).collect();
    writes[5].data.fill(9);
    writes.push(Write::new(file, 101 * PAGE, 4 * PAGE));
    writes.iter_mut().for_each(|write| write.stable = stable);
    let load = fixture.server().load();
    let (begun, waited) = (load.requests, load.requests_waited);
    let answers = send(&mut client, &writes);
    let mut instants = BTreeSet::new();
    for (write, answer) in writes.iter().zip(answers) {
        let answer = written(answer);
        assert_eq!(answer.count as usize, write.data.len());
        assert_eq!(answer.committed, stable);
        let (was, is) = both(&answer.file_wcc);
        assert_eq!(was, wcc_attr(&before));
        assert_eq!(is.size, before.size.max(write.offset + write.data.len() as u64));
        let instant = |time: Nfstime3| (time.seconds, time.nseconds);
        assert!(instant(is.mtime) >= instant(before.mtime) && is.ctime == is.mtime);
        instants.insert(instant(is.mtime));
        before = is;
    }
    assert!(instants.len() < writes.len() / 2, "{} changes", instants.len());
    // A txg under way to disk counts rewritten pages twice.
    assert!(before.used >= 15 * PAGE && before.used <= 17 * PAGE, "{}", before.used);
    assert_eq!(client.attributes(file), Fattr3 { used: client.attributes(file).used, ..before });
    for (at, write) in writes.iter().enumerate() {
        let (found, _) = client.read(file, write.offset, write.data.len() as u32).unwrap();
        let over = at == 2;
        assert_eq!(found == write.data, !over, "write {at}");
    }
    // Counted at the end of a turn, and its replies may be here before that.
    fixture.until("each is counted", |fixture| {
        fixture.server().load().requests - begun >= writes.len() as u64
    });
    let has_waited = fixture.server().load().requests_waited > waited;
    assert_eq!(has_waited, stable == StableHow::FileSync, "only what is stable waits for a disk");
    fixture.until("what was leased is given back", |fixture| {
        let load = fixture.server().load();
        load.reply_bytes + load.request_bytes == 0
    });
}

/// They are also coalesced if calls to other files come between, as those of other guests do.
#[test]
fn writes_to_several_files_go_together_by_file() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let files = ["one", "two", "three"].map(|name| fresh(&mut client, root, name));
    let writes: Vec<Write> =
        (0..24).map(|at| Write::new(files[at as usize % 3], at * PAGE, PAGE)).collect();
    let mut instants: BTreeMap<Vec<u8>, BTreeSet<_>> = BTreeMap::new();
    for (write, answer) in writes.iter().zip(send(&mut client, &writes)) {
        let (_, is) = both(&written(answer).file_wcc);
        let instant = (is.mtime.seconds, is.mtime.nseconds);
        instants.entry(write.file.bytes().to_vec()).or_default().insert(instant);
        let (found, _) = client.read(write.file, write.offset, PAGE as u32).unwrap();
        assert!(found == write.data);
    }
    assert!(instants.values().all(|of_one| of_one.len() < 5), "{instants:?}");
}

/// A refusal of one WRITE does not affect the others.
#[test]
fn each_of_several_writes_has_its_own_error() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let (file, other) = (fresh(&mut client, root, "file"), fresh(&mut client, root, "other"));
    let removed = fresh(&mut client, root, "removed");
    assert_eq!(status(&client.remove(root, "removed")), Nfsstat3::Ok);
    let unstable = |write| Write { stable: StableHow::Unstable, ..write };
    let directory = client.mkdir(root, "directory", mode(0o755)).unwrap().file;
    let writes = [
        (Write::new(file, 0, PAGE), Nfsstat3::Ok),
        (Write::new(file, PAGE, PAGE), Nfsstat3::Ok),
        (Write::new(file, u64::MAX - PAGE + 1, PAGE), Nfsstat3::Fbig),
        (Write::new(file, 2 * PAGE, PAGE), Nfsstat3::Ok),
        (Write::new(other, 0, PAGE), Nfsstat3::Ok),
        (Write::new(other, PAGE, PAGE), Nfsstat3::Ok),
        (Write::new(removed, 0, PAGE), Nfsstat3::Stale),
        (Write::new(removed, PAGE, PAGE), Nfsstat3::Stale),
        (Write::new(directory, 0, PAGE), Nfsstat3::IsDir),
        (Write::new(directory, PAGE, PAGE), Nfsstat3::IsDir),
        (unstable(Write::new(file, 3 * PAGE, PAGE)), Nfsstat3::Ok),
        (unstable(Write::new(file, 4 * PAGE, PAGE)), Nfsstat3::Ok),
        (Write::new(file, 5 * PAGE, PAGE), Nfsstat3::Ok),
        (Write::new(file, 6 * PAGE + 1, PAGE), Nfsstat3::Ok),
        (Write::new(file, 9 * PAGE, 100), Nfsstat3::Ok),
        (Write::new(NfsFh3::new(&[7; 5]).unwrap(), 0, PAGE), Nfsstat3::BadHandle),
        (Write::new(NfsFh3::new(&[7; 5]).unwrap(), PAGE, PAGE), Nfsstat3::BadHandle),
    ];
    let (writes, expected): (Vec<Write>, Vec<Nfsstat3>) = writes.into_iter().unzip();
    let answers = send(&mut client, &writes);
    assert_eq!(answers.iter().map(status).collect::<Vec<_>>(), expected);
    for (write, _) in writes.iter().zip(&expected).filter(|(_, status)| **status == Nfsstat3::Ok) {
        let (found, _) = client.read(write.file, write.offset, write.data.len() as u32).unwrap();
        assert!(found == write.data, "at {}", write.offset);
    }
    let mut stranger = fixture.client();
    stranger.uid = 700;
    let writes: Vec<Write> = (0..8).map(|page| Write::new(other, page * PAGE, PAGE)).collect();
    let answers = send(&mut stranger, &writes);
    assert!(answers.iter().all(|answer| status(answer) == Nfsstat3::Acces));
    assert_eq!(client.attributes(other).size, 2 * PAGE);
}

/// Near a quota, the WRITEs that find room succeed.
#[test]
fn of_several_writes_those_are_made_that_a_quota_has_room_for() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = fresh(&mut client, root, "file");
    let datasets = &fixture.pool().datasets;
    fixture.block_on(datasets.set("tank/vms", "quota", Some("1M"))).unwrap();
    let writes: Vec<Write> = (0..512).map(|page| Write::new(file, page * PAGE, PAGE)).collect();
    let answers: Vec<Nfsstat3> = send(&mut client, &writes).iter().map(status).collect();
    let made = answers.iter().filter(|status| **status == Nfsstat3::Ok).count();
    assert!((200..=256).contains(&made), "{made} made");
    assert!(answers.iter().all(|status| [Nfsstat3::Ok, Nfsstat3::Dquot].contains(status)));
    for (write, status) in writes.iter().zip(answers) {
        let (found, _) = client.read(file, write.offset, PAGE as u32).unwrap();
        let (is_there, is_made) = (found == write.data, status == Nfsstat3::Ok);
        assert_eq!(is_there, is_made, "at {}", write.offset);
    }
}

/// A bug that one call meets ends its connection; so it is with several.
#[test]
fn a_panic_ends_the_connection_of_several_writes_and_nothing_else() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let mut hit = fixture.client();
    let panics = hit.mount("/panics").unwrap();
    fixture.panics.store(true, Ordering::Relaxed);
    let writes: Vec<Write> = (0..8).map(|page| Write::new(panics, page * PAGE, PAGE)).collect();
    let stream: Vec<u8> = writes.iter().flat_map(|write| write.record(&mut hit)).collect();
    hit.send(&stream);
    hit.closed();
    fixture.until("it is gone", |fixture| fixture.server().load().connections == 1);
    fixture.panics.store(false, Ordering::Relaxed);
    let load = fixture.server().load();
    assert!(load.panics > 0);
    assert_eq!(load.request_bytes + load.reply_bytes, 0);
    client.attributes(root);
}
