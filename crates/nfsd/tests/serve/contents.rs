//! READ, WRITE, COMMIT, SETATTR of the size, CREATE in its three ways, over a real pool.

use aquifer_conformance::pattern;
use aquifer_nfs::proto::v3::*;
use aquifer_rpc::xdr::Span;

use crate::files::{both, mode, wcc_attr};
use crate::fixture::Fixture;

const MIB: u64 = 1 << 20;

pub fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    pattern::fill(seed, 0, &mut bytes);
    bytes
}

#[track_caller]
pub fn written(res: Write3Res) -> Write3ResOk {
    match res {
        Res3::Ok(written) => written,
        Res3::Fail { status, .. } => panic!("WRITE: {status:?}"),
    }
}

#[test]
fn what_is_written_is_read_at_any_offset_and_length() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "file");
    let mut model = Vec::new();
    let writes = [(0, 10), (4090, 20), (100_000, 65_536), (5, 4096), (300_001, 1 << 20)];
    for (seed, (offset, count)) in (1..).zip(writes) {
        let data = bytes(seed, count);
        let stable = [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync];
        let asked = stable[seed as usize % 3];
        let said = written(client.write(file, offset, &data, asked));
        assert_eq!(said.count as usize, count);
        assert!(said.committed.wire() >= asked.wire());
        let end = offset as usize + count;
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].copy_from_slice(&data);
    }
    let size = model.len() as u64;
    assert_eq!(client.attributes(file).size, size);
    for offset in [0, 1, 4095, 4096, 99_999, 165_536, 300_001, size - 1, size, size + 1, u64::MAX] {
        for count in [0, 1, 4095, 4097, 1 << 20, u32::MAX] {
            let (data, eof) = client.read(file, offset, count).unwrap();
            let from = offset.min(size) as usize;
            let end = offset.saturating_add(u64::from(count).min(MIB)).min(size) as usize;
            let end = end.max(from);
            assert!(data == model[from..end], "{offset}+{count}: {} bytes", data.len());
            assert_eq!(eof, offset.saturating_add(data.len() as u64) >= size, "{offset}+{count}");
        }
    }
}

/// Data of whole pages is received into pages, after such a record or not, however the bytes come.
/// Bytes in between are neither lost nor taken for data.
#[test]
fn large_writes_among_others_in_any_pieces_are_what_is_read() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    // WRITEs under way together do not overlap: their order would be the server's.
    let (unstable, stable) = (StableHow::Unstable, StableHow::FileSync);
    let first = [
        (0, 1 << 20, unstable),
        (1 << 20, 65_536, unstable),
        (1_114_112, 65_536, stable),
        (1_179_648, 100_001, unstable),
        (1_280_000, 10, unstable),
        (3 << 20, 131_072, unstable),
    ];
    let second = [
        (5, 100_000, unstable),
        (106_496, 131_072, StableHow::DataSync),
        (300_000, 100_001, unstable),
        (450_560, 262_144, unstable),
        (2 << 20, 1 << 20, unstable),
        (1_048_577, 65_536, stable),
    ];
    for (turn, piece) in [usize::MAX, 200_000, 65_700, 4096, 1009].into_iter().enumerate() {
        let file = client.file(root, &format!("file-{turn}"));
        let mut model = Vec::new();
        for (seed, writes) in [(1, first), (100, second)] {
            let mut stream = Vec::new();
            let mut xids = Vec::new();
            for (seed, (offset, count, stable)) in (seed..).zip(writes) {
                let mut data = bytes(seed, count);
                // Some pages of zeros.
                data.iter_mut().skip(8192).take(8192).for_each(|byte| *byte = 0);
                let head = Write3Head { file, offset, count: count as u32, stable };
                let span = Span { offset: 0, bytes: &data };
                stream.extend(client.nfs_record(&Args3::Write(Write3Args { head, data: span })));
                xids.push(client.xid);
                if seed % 2 == 0 {
                    stream.extend(client.null_record());
                    xids.push(client.xid);
                }
                let end = offset as usize + count;
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&data);
            }
            let mut sender = client.another_half();
            let sending = std::thread::spawn(move || {
                stream.chunks(piece.min(stream.len())).for_each(|piece| sender.send(piece));
            });
            let mut answered: Vec<u32> = xids.iter().map(|_| client.receive_xid()).collect();
            sending.join().unwrap();
            answered.sort_unstable();
            assert_eq!(answered, xids);
        }
        assert!(matches!(client.commit(file, 0, 0), Res3::Ok(_)));
        for (offset, expected) in (0..).step_by(1 << 20).zip(model.chunks(1 << 20)) {
            let (found, _) = client.read(file, offset, 1 << 20).unwrap();
            assert!(found == expected, "pieces of {piece}, from {offset}");
        }
    }
}

/// READs behind the first run on the other thread, and each has its own answer.
#[test]
fn large_reads_at_a_time_are_shared_with_an_idle_thread() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "file");
    let data = bytes(1, 4 << 20);
    for (offset, part) in (0..).step_by(1 << 20).zip(data.chunks(1 << 20)) {
        written(client.write(file, offset, part, StableHow::FileSync));
    }
    let waited = || fixture.server().load().requests_waited;
    let before = waited();
    client.read(file, 0, 1 << 20).unwrap();
    assert_eq!(waited(), before, "what is in memory is read at once");
    let mut stream = Vec::new();
    let mut expected = std::collections::BTreeMap::new();
    for (at, part) in (0..8).zip(data.chunks(1 << 20).cycle()) {
        let offset = at % 4 * MIB;
        stream.extend(client.nfs_record(&Args3::Read(Read3Args { file, offset, count: 1 << 20 })));
        expected.insert(client.xid, part);
    }
    client.send(&stream);
    for _ in 0..8 {
        let reply = client.receive();
        let xid = u32::from_be_bytes(reply[..4].try_into().unwrap());
        let part = expected.remove(&xid).unwrap();
        assert!(reply.ends_with(part), "{xid}");
    }
    fixture.until("somebody helped", |fixture| fixture.server().load().requests_waited > before);
}

/// RFC 1813 section 3.3.7 and 2.6: before and after in one piece with the change.
#[test]
fn wcc_data_of_a_write_is_exact() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "file");
    for (offset, count) in [(0, 100), (50, 10), (1000, 1), (0, 0)] {
        let before = client.attributes(file);
        let said = written(client.write(file, offset, &bytes(1, count), StableHow::FileSync));
        let (pre, post) = both(&said.file_wcc);
        assert_eq!(pre, wcc_attr(&before));
        assert_eq!(post, client.attributes(file));
        assert_eq!(post.size, before.size.max(if count == 0 { 0 } else { offset + count as u64 }));
    }
    let before = client.attributes(file);
    let commit = match client.commit(file, 0, 0) {
        Res3::Ok(commit) => commit,
        Res3::Fail { status, .. } => panic!("{status:?}"),
    };
    assert_eq!(both(&commit.file_wcc), (wcc_attr(&before), before));
}

/// Many writers of one file: each one's `after` is the next one's `before`.
#[test]
fn wcc_data_of_concurrent_writes_forms_one_chain() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "file");
    let first = wcc_attr(&client.attributes(file));
    let mut steps: Vec<(WccAttr, WccAttr)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|writer| {
                let mut client = fixture.client();
                scope.spawn(move || {
                    let write = |number: u64| {
                        let offset = (number * 4 + writer) * 5000;
                        let stable = if number.is_multiple_of(2) {
                            StableHow::FileSync
                        } else {
                            StableHow::Unstable
                        };
                        let said = written(client.write(file, offset, &bytes(number, 100), stable));
                        let (pre, post) = both(&said.file_wcc);
                        (pre, wcc_attr(&post))
                    };
                    (0..50).map(write).collect::<Vec<_>>()
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let mut at = first;
    while !steps.is_empty() {
        let next = steps.iter().position(|(pre, _)| *pre == at);
        at = steps.swap_remove(next.expect("a step that begins where the last one ended")).1;
    }
    assert_eq!(at, wcc_attr(&client.attributes(file)));
}

/// RFC 1813 section 3.3.21: the verifier shows whether the server may have lost unstable data.
#[test]
fn the_write_verifier_changes_with_a_restart_and_not_before() {
    let mut fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "file");
    let unstable = written(client.write(file, 0, &bytes(1, 10_000), StableHow::Unstable));
    let verifier = |res: Commit3Res| match res {
        Res3::Ok(commit) => commit.verf,
        Res3::Fail { status, .. } => panic!("{status:?}"),
    };
    assert_eq!(verifier(client.commit(file, 0, 0)), unstable.verf);
    assert_eq!(verifier(client.commit(file, 5000, 100)), unstable.verf);
    assert_eq!(verifier(fixture.client().commit(file, 0, 0)), unstable.verf);
    fixture.stop();
    fixture.open();
    fixture.serve(crate::fixture::config(), vec![aquifer_nfs::Export::new("/vms", "tank/vms")]);
    let mut client = fixture.client();
    assert_eq!(client.read(file, 0, 10_000).unwrap(), (bytes(1, 10_000), true), "was committed");
    assert_ne!(verifier(client.commit(file, 0, 0)), unstable.verf);
}

/// RFC 1813 section 3.3.8.
#[test]
fn create_in_its_three_ways() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let exclusive = |verf: u64| CreateHow3::Exclusive(verf.to_be_bytes());
    let made = client.create(root, "file", CreateHow3::Guarded(mode(0o640))).unwrap();
    assert_eq!((made.attributes.mode, made.attributes.ftype), (0o640, Ftype3::Reg));
    let file = made.file;
    written(client.write(file, 0, b"content", StableHow::FileSync));
    for how in [CreateHow3::Guarded(mode(0o600)), exclusive(0), exclusive(1), exclusive(7)] {
        assert_eq!(client.create(root, "file", how).map(|_| ()), Err(Nfsstat3::Exist), "{how:?}");
    }
    let taken = client.create(root, "file", CreateHow3::Unchecked(mode(0o600))).unwrap();
    assert_eq!((taken.file, taken.attributes.size), (file, 7));
    let empty = Sattr3 { size: Some(0), ..Sattr3::NONE };
    let taken = client.create(root, "file", CreateHow3::Unchecked(empty)).unwrap();
    assert_eq!((taken.file, taken.attributes.size), (file, 0));
    assert_eq!(client.mkdir(root, "file", mode(0o755)).map(|_| ()), Err(Nfsstat3::Exist));
    client.dir(root, "dir");
    for how in [CreateHow3::Unchecked(mode(0o600)), CreateHow3::Guarded(mode(0o600)), exclusive(1)]
    {
        assert_eq!(client.create(root, "dir", how).map(|_| ()), Err(Nfsstat3::Exist), "{how:?}");
    }
}

/// ESXi's locks and every client's O_EXCL depend on this. A retransmission gets its file, and
/// others are refused, also when the file was written, and after a restart.
#[test]
fn exclusive_create_is_exact() {
    let mut fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let exclusive = |verf: u64| CreateHow3::Exclusive(verf.to_be_bytes());
    for verf in [0, 1, 0x1234_5678_9abc_def0, u64::MAX] {
        let name = format!("{verf:x}");
        let made = client.create(root, &name, exclusive(verf)).unwrap();
        let again = client.create(root, &name, exclusive(verf)).unwrap();
        assert_eq!((made.file, made.attributes.fileid), (again.file, again.attributes.fileid));
        let other = client.create(root, &name, exclusive(verf ^ 0x10)).map(|_| ());
        assert_eq!(other, Err(Nfsstat3::Exist));
    }
    let mut winners = 0;
    std::thread::scope(|scope| {
        let racers: Vec<_> = (0..8_u64)
            .map(|racer| {
                let mut client = fixture.client();
                scope.spawn(move || client.create(root, "race", exclusive(100 + racer)).is_ok())
            })
            .collect();
        winners = racers
            .into_iter()
            .filter(|_| true)
            .map(|racer| racer.join().unwrap())
            .filter(|won| *won)
            .count();
    });
    assert_eq!(winners, 1);
    let made = client.create(root, "kept", exclusive(5)).unwrap();
    fixture.stop();
    fixture.open();
    fixture.serve(crate::fixture::config(), vec![aquifer_nfs::Export::new("/vms", "tank/vms")]);
    let mut client = fixture.client();
    assert_eq!(client.create(root, "kept", exclusive(5)).unwrap().file, made.file);
    assert_eq!(client.create(root, "kept", exclusive(6)).map(|_| ()), Err(Nfsstat3::Exist));
}

/// RFC 1813 section 3.3.2.
#[test]
fn setattr_sets_what_is_named_if_the_guard_holds() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "file");
    written(client.write(file, 0, &bytes(1, 10_000), StableHow::FileSync));
    let before = client.attributes(file);
    let time = |seconds| Nfstime3 { seconds, nseconds: 123_456_789 };
    let set = Sattr3 {
        mode: Some(0o600),
        uid: Some(1000),
        gid: Some(1001),
        size: Some(5000),
        atime: SetTime::ClientTime(time(1_000_000)),
        mtime: SetTime::ClientTime(time(2_000_000)),
    };
    let stale_guard = Nfstime3 { nseconds: before.ctime.nseconds ^ 1, ..before.ctime };
    let refused = client.setattr(file, set, Some(stale_guard));
    let Res3::Fail { status: Nfsstat3::NotSync, resfail } = refused else { panic!("{refused:?}") };
    assert_eq!(both(&resfail), (wcc_attr(&before), before));
    let done = client.setattr(file, set, Some(before.ctime));
    let Res3::Ok(wcc) = done else { panic!("{done:?}") };
    let after = client.attributes(file);
    assert_eq!(both(&wcc), (wcc_attr(&before), after));
    let shown = (after.mode, after.uid, after.gid, after.size, after.atime, after.mtime);
    assert_eq!(shown, (0o600, 1000, 1001, 5000, time(1_000_000), time(2_000_000)));
    assert_eq!(client.read(file, 0, 10_000).unwrap(), (bytes(1, 5000), true));
    let longer = Sattr3 { size: Some(1 << 40), mtime: SetTime::ServerTime, ..Sattr3::NONE };
    assert!(matches!(client.setattr(file, longer, None), Res3::Ok(_)));
    let after = client.attributes(file);
    assert_eq!((after.size, after.mode), (1 << 40, 0o600));
    assert!(after.mtime.seconds > 2_000_000 && after.used < MIB);
    assert_eq!(client.read(file, 4990, 20).unwrap().0[10..], [0; 10]);
    assert_eq!(client.read(file, (1 << 40) - 1, 20).unwrap(), (vec![0], true));
}

/// 10 GiB apart: thin, as virtual disks are.
#[test]
fn far_offsets_are_thin() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "disk");
    for at in [0, 10 << 30, 20 << 30, (1 << 60) - 4096] {
        written(client.write(file, at, &bytes(at, 4096), StableHow::FileSync));
    }
    assert_eq!(client.attributes(file).size, 1 << 60);
    assert_eq!(client.read(file, 20 << 30, 4096).unwrap(), (bytes(20 << 30, 4096), false));
    assert_eq!(client.read(file, 5 << 30, 4096).unwrap(), (vec![0; 4096], false));
    let beyond = client.write(file, 1 << 60, b"x", StableHow::FileSync);
    assert_eq!(beyond.status(), Nfsstat3::Fbig);
}
