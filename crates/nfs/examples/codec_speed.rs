//! The cost of the wire format for a request, without socket and file system: nanoseconds per
//! request, median of several rounds. `cargo run --release -p aquifer-nfs --example codec_speed`

use std::hint::black_box;
use std::io::IoSlice;
use std::time::Instant;

use aquifer_blockio::Page;
use aquifer_nfs::proto::v3::{self, *};
use aquifer_rpc::auth::{AuthSys, Credential, Gids, OpaqueAuth};
use aquifer_rpc::limits::{RECEIVE_BUFFER_BYTES, RECORD_BYTES_MAX};
use aquifer_rpc::message::{Accepted, Call, Reply};
use aquifer_rpc::record::{RecordReader, begin_record, end_record};
use aquifer_rpc::xdr::{Decoder, EncodeBuf, PagePiece};

fn main() {
    let page = Page::with_prefix(&[7; 4096]);
    let write = |pages: usize| {
        let head = Write3Head {
            file: handle(),
            offset: 0,
            count: u32::try_from(pages * 4096).unwrap_or(0),
            stable: StableHow::FileSync,
        };
        stream(|to| head.encode_with(to, vec![PagePiece::whole(page.clone()); pages]), 7)
    };
    let read = Read3Args { file: handle(), offset: 0, count: 4096 };
    let reads = stream(|to| to.put(&read), 6);
    report("decode WRITE 4 KiB", || receive(&write(1)));
    report("decode WRITE 1 MiB", || receive(&write(256)));
    report("decode READ", || receive(&reads));
    report("encode WRITE reply", || {
        send(|to| {
            let committed = StableHow::FileSync;
            let (file_wcc, verf) = (wcc(), [1; 8]);
            to.put(&Write3Res::Ok(Write3ResOk { file_wcc, count: 4096, committed, verf }));
        })
    });
    for (name, pages) in [("encode READ 4 KiB reply", 1), ("encode READ 1 MiB reply", 256)] {
        report(name, || {
            send(|to| {
                let head = Read3Head { file_attributes: Some(attributes()), eof: false };
                head.encode_with(to, (0..pages).map(|_| PagePiece::whole(page.clone())));
            })
        });
    }
    report("encode READDIRPLUS reply, 64 KiB", || send(list));
}

/// About 4 MiB of records with one call each, and their number.
fn stream(args: impl Fn(&mut EncodeBuf), procedure: u32) -> (Vec<u8>, u32) {
    let (mut to, mut calls) = (EncodeBuf::new(), 0);
    while to.len() < 4 << 20 {
        let record = begin_record(&mut to);
        let gids = Gids::new(&[0, 10]).unwrap_or_default();
        let sys = AuthSys { stamp: 1, machine_name: b"hypervisor", uid: 0, gid: 0, gids };
        to.put(&Call {
            xid: calls,
            program: v3::PROGRAM,
            version: v3::VERSION,
            procedure,
            credential: Credential::Sys(sys),
            verifier: OpaqueAuth::NONE,
        });
        args(&mut to);
        end_record(&mut to, record);
        calls += 1;
    }
    (to.to_vec(), calls)
}

/// Receives and decodes a stream in large reads; the time includes one copy into the reader's
/// buffer, which stands for the socket's.
fn receive((stream, calls): &(Vec<u8>, u32)) -> f64 {
    let mut reader = RecordReader::new(RECORD_BYTES_MAX, RECEIVE_BUFFER_BYTES);
    let (mut rest, mut found) = (stream.as_slice(), 0);
    let start = Instant::now();
    while !rest.is_empty() {
        let space = reader.space();
        let (now, later) = rest.split_at(space.len().min(rest.len()));
        for (to, from) in space.chunks_mut(4096).zip(now.chunks(4096)) {
            if let Some(to) = to.get_mut(..from.len()) {
                to.copy_from_slice(from);
            }
        }
        reader.filled(now.len());
        rest = later;
        while let Ok(Some(record)) = reader.next_record() {
            let mut from = Decoder::new(record);
            let call = Call::decode(&mut from);
            let procedure = call.ok().and_then(|call| Procedure3::from_wire(call.procedure));
            let args = procedure.and_then(|it| Args3::decode(it, &mut from).ok());
            found += u32::from(black_box(args).is_some());
        }
    }
    assert_eq!(found, *calls);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(*calls)
}

/// Encodes batches of 32 replies and gathers their slices.
fn send(result: impl Fn(&mut EncodeBuf)) -> f64 {
    const BATCH: u32 = 32;
    const ROUNDS: u32 = 100;
    let mut to = EncodeBuf::new();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        to.clear();
        for xid in 0..BATCH {
            let record = begin_record(&mut to);
            to.put(&Reply::accepted(xid, Accepted::Success));
            result(&mut to);
            end_record(&mut to, record);
        }
        let mut sent = 0;
        while sent < to.len() {
            let mut slices = [IoSlice::new(&[]); 1024];
            let filled = to.io_slices(sent, usize::MAX, &mut slices);
            sent += slices.iter().take(filled).map(|slice| slice.len()).sum::<usize>();
            black_box(&slices);
        }
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH * ROUNDS)
}

fn list(to: &mut EncodeBuf) {
    let dir = Some(attributes());
    let Ok(mut list) = Readdirplus3Encoder::begin(to, u32::MAX, 65_536, &dir, [0; 8]) else {
        return;
    };
    for cookie in 1.. {
        let (name_attributes, name_handle) = (Some(attributes()), Some(handle()));
        let name = b"0123456789-disk.vhd";
        let entry = EntryPlus3 { fileid: cookie, name, cookie, name_attributes, name_handle };
        if list.entry(&entry) == Fit::Full {
            break;
        }
    }
    black_box(list.finish(false).is_ok());
}

fn report(what: &str, mut round: impl FnMut() -> f64) {
    let mut rounds: Vec<f64> = (0..9).map(|_| round()).collect();
    rounds.sort_by(f64::total_cmp);
    let at = |i: usize| rounds.get(i).copied().unwrap_or(0.0);
    println!("{what:35} {:9.0} ns ({:.0} to {:.0})", at(4), at(0), at(8));
}

fn handle() -> NfsFh3 {
    NfsFh3::new(&[0xa5; 28]).unwrap_or_else(|| unreachable!("28 bytes fit a handle"))
}

fn wcc() -> WccData {
    let time = Nfstime3 { seconds: 1, nseconds: 2 };
    WccData {
        before: Some(WccAttr { size: 1, mtime: time, ctime: time }),
        after: Some(attributes()),
    }
}

fn attributes() -> Fattr3 {
    let time = Nfstime3 { seconds: 1, nseconds: 2 };
    Fattr3 {
        ftype: Ftype3::Reg,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 1 << 40,
        used: 1 << 40,
        rdev: SpecData3 { specdata1: 0, specdata2: 0 },
        fsid: 1,
        fileid: 2,
        atime: time,
        mtime: time,
        ctime: time,
    }
}
