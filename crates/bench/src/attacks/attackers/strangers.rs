//! Machines that no export names, and users of one that is named: at the port of NFS and the
//! portmapper.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use aquifer_nfs::proto::mount::{self, DirPath, Path};
use aquifer_nfs::proto::v3::{
    self, Args3, Getattr3Args, NfsFh3, Read3Args, StableHow, Write3Args, Write3Head,
};
use aquifer_rig::random::Random;
use aquifer_rig::wire::call::{Caller, Source, datagram, of_mount, of_nfs, record};
use aquifer_rpc::portmap::{self, IPPROTO_TCP, Mapping};
use aquifer_rpc::xdr::Span;

use super::{Attacker, Field, Held, Pace};
use crate::attacks::place::{EXPORT, HOST, nfs, portmapper, stranger};

/// Connections that do nothing: of one address, of many, and of the portmapper.
pub(super) const IDLE: [Attacker; 3] = [idle_of_one, idle_of_many, idle_at_the_portmapper];

fn idle_of_one(field: &Field<'_>) {
    let mut held = Held::new(HELD_MAX);
    field.repeat(Pace::of(1500), |_| {
        held.add(Source::user(stranger(0)).connect_abrupt(nfs())?);
        Ok(1)
    });
}

fn idle_of_many(field: &Field<'_>) {
    let mut held = Held::new(HELD_MAX);
    field.repeat(Pace::of(1000), |number| {
        let mut stream = Source::user(stranger(number)).connect_abrupt(nfs())?;
        // A machine that has called once is still a stranger.
        stream.write_all(&null(number))?;
        held.add(stream);
        Ok(1)
    });
}

fn idle_at_the_portmapper(field: &Field<'_>) {
    let mut held = Held::new(HELD_MAX);
    field.repeat(Pace::of(500), |number| {
        held.add(Source::user(stranger(number)).connect_abrupt(portmapper())?);
        Ok(1)
    });
}

/// Data that is no call, from strangers, and from users of the host, who are admitted like the
/// host.
pub(super) const GARBAGE: [Attacker; 3] = [garbage_of_one, garbage_of_many, garbage_of_users];

fn garbage_of_one(field: &Field<'_>) {
    garbage(field, Pace::of(800), |_| Source::user(stranger(1)));
}

fn garbage_of_many(field: &Field<'_>) {
    garbage(field, Pace::of(800), |number| Source::user(stranger(number)));
}

fn garbage_of_users(field: &Field<'_>) {
    garbage(field, Pace::of(300), |_| Source::user(HOST));
}

fn garbage(field: &Field<'_>, pace: Pace, from: impl Fn(u32) -> Source) {
    let mut random = Random::of_clock();
    let mut held = Held::new(HELD_MAX / 2);
    field.repeat(pace, |number| {
        let mut stream = from(number).connect_abrupt(nfs())?;
        let bytes = spoilt(number, &mut random);
        stream.write_all(&bytes)?;
        if number % 3 == 0 {
            // The server waits for the rest.
            held.add(stream);
        }
        Ok(1)
    });
}

/// Bytes that may look like a record.
fn spoilt(number: u32, random: &mut Random) -> Vec<u8> {
    let word = |random: &mut Random| u32::try_from(random.below(1 << 32)).unwrap_or(0);
    let mark = |word: u32| word.to_be_bytes().to_vec();
    match number % 9 {
        // Any bytes.
        0 => (0..16).flat_map(|_| word(random).to_be_bytes()).collect(),
        // A record longer than the server accepts, each time another length.
        1 => mark(0xc000_0000 | word(random)),
        // Half of a call.
        2 => null(number).into_iter().take(20).collect(),
        // The beginning of a large record.
        3 => [mark(0x8000_0000 | (1 << 20)), vec![0; 64 << 10]].concat(),
        // A record of many fragments that never ends.
        4 => [0, 0, 0, 4, 1, 2, 3, 4].repeat(500),
        // Empty fragments.
        5 => vec![0; 4096],
        // A call, and then garbage.
        6 => [null(number), vec![0xff; 40]].concat(),
        // A record too short for a call; and a reply.
        7 => [mark(0x8000_0008), mark(number), mark(1)].concat(),
        // A WRITE that ends in the middle of its data, with an invalid handle.
        _ => {
            let data = Span { offset: 0, bytes: &vec![1; 64 << 10] };
            let (count, stable) = (64 << 10, StableHow::FileSync);
            let head = Write3Head { file: invented(number), offset: 0, count, stable };
            let args = Args3::Write(Write3Args { head, data });
            let mut call = record(number, of_nfs(&args), &args);
            call.truncate(30_000);
            call
        }
    }
}

/// Calls: each worker keeps some connections busy, from ports of users and of superusers.
pub(super) const CALLS: [Attacker; 3] = [calls_of_one, calls_of_many, portmap_datagrams];

fn calls_of_one(field: &Field<'_>) {
    let mut caller = None;
    let pace = Pace::of(500).with(BATCH);
    field.repeat(pace, |number| {
        let answered = batch(&mut caller, field, Source::user(stranger(2)), number);
        if answered.is_err() {
            caller = None;
        }
        answered
    });
}

/// Each batch comes from another machine's superuser, on a connection of its own.
fn calls_of_many(field: &Field<'_>) {
    field.repeat(Pace::of(100).with(BATCH), |number| {
        batch(&mut None, field, Source::root(stranger(number)), number)
    });
}

/// Sends some calls at once, and reads their answers.
fn batch(
    caller: &mut Option<Caller>,
    field: &Field<'_>,
    from: Source,
    number: u32,
) -> io::Result<u64> {
    let caller = match caller {
        Some(caller) => caller,
        none => none.insert(Caller::new(from.connect_abrupt(nfs())?)),
    };
    let place = field.place;
    let object = if number.is_multiple_of(2) { place.root } else { invented(number) };
    let file = if number.is_multiple_of(4) { place.file } else { invented(number) };
    let getattr = Args3::Getattr(Getattr3Args { object });
    let read = Args3::Read(Read3Args { file, offset: 0, count: 65_536 });
    let data = Span { offset: 0, bytes: &[1; 4096] };
    let head = Write3Head { file, offset: 0, count: 4096, stable: StableHow::FileSync };
    let write = Args3::Write(Write3Args { head, data });
    let path = |path| DirPath { path: Path(path) };
    let elsewhere = format!("/tank/{number}");
    let mut sent = 0;
    let mut put = |send: &dyn Fn(&mut Caller) -> io::Result<u32>| -> io::Result<()> {
        sent += 1;
        send(caller).map(drop)
    };
    put(&|it| it.send((v3::PROGRAM, v3::VERSION, 0), &()))?;
    put(&|it| it.send(of_nfs(&getattr), &getattr))?;
    put(&|it| it.send(of_nfs(&read), &read))?;
    put(&|it| it.send(of_nfs(&write), &write))?;
    put(&|it| it.send(of_mount(mount::Procedure::Mnt), &path(EXPORT.as_bytes())))?;
    put(&|it| it.send(of_mount(mount::Procedure::Mnt), &path(elsewhere.as_bytes())))?;
    put(&|it| it.send(of_mount(mount::Procedure::Export), &()))?;
    put(&|it| it.send((portmap::PROGRAM, portmap::VERSION, 4), &()))?;
    put(&|it| it.send((v3::PROGRAM, 4, 1), &()))?;
    put(&|it| it.send((v3::PROGRAM, v3::VERSION, 19), &()))?;
    let mut answered = 0;
    while answered < sent {
        caller.receive()?;
        answered += 1;
    }
    Ok(answered)
}

fn portmap_datagrams(field: &Field<'_>) {
    let Ok(socket) = Source::user(stranger(3)).datagrams(portmapper()) else { return };
    let args = Mapping { prog: v3::PROGRAM, vers: v3::VERSION, prot: IPPROTO_TCP, port: 0 };
    let mut reply = [0; 512];
    field.repeat(Pace::of(2000), |number| {
        let what = (portmap::PROGRAM, portmap::VERSION, portmap::Procedure::Getport.wire());
        socket.send(&datagram(number, what, &args))?;
        Ok(u64::from(socket.recv(&mut reply).is_ok()))
    });
}

/// A call of NULL.
pub(super) fn null(xid: u32) -> Vec<u8> {
    record(xid, (v3::PROGRAM, v3::VERSION, 0), &())
}

/// A handle of the right form that names nothing.
fn invented(number: u32) -> NfsFh3 {
    let bytes = [number.to_be_bytes(), number.wrapping_mul(0x9e37_79b9).to_be_bytes()].concat();
    NfsFh3::new(&bytes.repeat(3)).unwrap_or_else(|| unreachable!("24 bytes fit a handle"))
}

/// Reads the data that arrives within a moment.
pub(super) fn answer(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
    stream.set_read_timeout(Some(MOMENT))?;
    stream.read(into)
}

/// Most connections that an attacker holds.
pub(super) const HELD_MAX: usize = 2000;
const BATCH: u64 = 10;
const MOMENT: Duration = Duration::from_millis(500);
