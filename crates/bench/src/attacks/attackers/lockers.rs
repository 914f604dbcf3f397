//! Attackers that try to end the host's locks, or to leave it none: users and guests at its
//! address, another admitted host, and senders of forged datagrams.

use std::io;
use std::net::{TcpListener, UdpSocket};

use aquifer_nfs::proto::nlm::{
    CancArgs4, Limited, Lock4, LockArgs4, Name, Netobj, Procedure, TestArgs4, UnlockArgs4,
};
use aquifer_nfs::proto::nsm::{self, StatChge};
use aquifer_nfs::proto::v3::NfsFh3;
use aquifer_rig::wire::call::{Caller, Source, What, datagram, of_nlm};
use aquifer_rpc::xdr::{Encode, EncodeBuf};

use super::{Attacker, Field, Pace};
use crate::attacks::admitted;
use crate::attacks::place::{HOST, NEIGHBOUR, PORTMAP_PORT, nfs};

/// Users at the host's address, from ports that any user gets.
pub(super) const GUEST: [Attacker; 2] = [guest_by_stream, guest_by_datagram];
/// Another host's superuser.
pub(super) const NAMES: [Attacker; 2] = [names, queue];
/// Senders that claim to be the host's superuser.
pub(super) const DATAGRAMS: [Attacker; 2] = [forged, forged_notices];

fn guest_by_stream(field: &Field<'_>) {
    let mut caller = None;
    field.repeat(Pace::of(3000), |number| {
        let answered = call(&mut caller, Source::user(HOST), |caller| {
            wicked(&field.place.locked, number, &mut |what, args| {
                caller.call(what, &args).map(drop)
            })
        });
        answered.map(|()| 1)
    });
}

fn guest_by_datagram(field: &Field<'_>) {
    by_datagram(field, Source::user(HOST), Pace::of(3000), false);
}

fn forged(field: &Field<'_>) {
    by_datagram(field, Source::root(HOST), Pace::of(4000), false);
}

fn forged_notices(field: &Field<'_>) {
    by_datagram(field, Source::root(HOST), Pace::of(1000), true);
}

fn by_datagram(field: &Field<'_>, from: Source, pace: Pace, only_notices: bool) {
    let Ok(socket) = from.datagrams(nfs()) else { return };
    let mut reply = [0; 4096];
    field.repeat(pace, |number| {
        let send = &mut |what, args| socket.send(&datagram(number, what, &args)).map(drop);
        match only_notices {
            true => notice(number, send)?,
            false => wicked(&field.place.locked, number, send)?,
        }
        // Reads answers only to make room for more, and does not wait for them.
        let mut answered = 0;
        while socket.recv(&mut reply).is_ok() {
            answered += 1;
        }
        Ok(answered)
    });
}

/// A message that would end the host's locks if the server believed it; `number` chooses which.
fn wicked(
    files: &[NfsFh3],
    number: u32,
    send: &mut dyn FnMut(What, Any) -> io::Result<()>,
) -> io::Result<()> {
    let file = at(files, number);
    // One of the host's processes, and one of its ranges.
    let svid = i32::try_from(number % 8).unwrap_or(0) + 1;
    let alock = || {
        let (fh, oh) = (Limited(file.bytes()), Limited(b"owner"));
        Lock4 { caller_name: Limited(admitted::NAME), fh, oh, svid, l_offset: 0, l_len: 0 }
    };
    let unlock = UnlockArgs4 { cookie: COOKIE, alock: alock() };
    let test = TestArgs4 { cookie: COOKIE, exclusive: true, alock: alock() };
    match number / 8 % 9 {
        0 => send(of_nlm(Procedure::Unlock), any(&unlock)),
        1 => send(of_nlm(Procedure::UnlockMsg), any(&unlock)),
        2 => {
            let args = CancArgs4 { cookie: COOKIE, block: true, exclusive: true, alock: alock() };
            send(of_nlm(Procedure::Cancel), any(&args))
        }
        3 => send(of_nlm(Procedure::FreeAll), any(&FreeAll(Limited(admitted::NAME)))),
        4 => send(of_nlm(Procedure::Lock), any(&lock_args(alock(), false))),
        5 => send(of_nlm(Procedure::LockMsg), any(&lock_args(alock(), true))),
        6 => send(of_nlm(Procedure::TestMsg), any(&test)),
        7 => send((nsm::PROGRAM, nsm::VERSION, 5), any(&())),
        _ => notice(number, send),
    }
}

/// Sends a notice that the host has restarted: under spellings of its name, and under its address.
fn notice(number: u32, send: &mut dyn FnMut(What, Any) -> io::Result<()>) -> io::Result<()> {
    let name = match number % 4 {
        0 => "hv1".to_owned(),
        1 => format!("hv1.domain{number}"),
        2 => HOST.to_string(),
        _ => format!("::ffff:{HOST}"),
    };
    let state = i32::try_from(number % 1_000_000).unwrap_or(0) | 1;
    let args = StatChge { mon_name: Limited(name.as_bytes()), state };
    send((nsm::PROGRAM, nsm::VERSION, nsm::Procedure::Notify.wire()), any(&args))
}

/// Locks under ever new names, monitored and not, and releases them. Also takes as many locks on
/// one file as it gets.
fn names(field: &Field<'_>) {
    let mut caller = None;
    field.repeat(Pace::of(2000).with(2), |number| {
        let name = format!("name{}", number / 4);
        let file = at(&field.place.locked, 0);
        call(&mut caller, Source::root(NEIGHBOUR), |caller| {
            let args = lock_args(lock(file, name.as_bytes(), number), false);
            let (procedure, frees) = match number % 4 {
                // Never released, as long as there is room.
                0 | 1 => (Procedure::Lock, false),
                _ => (Procedure::NmLock, true),
            };
            caller.call(of_nlm(procedure), &args)?;
            match frees {
                true => caller.call(of_nlm(Procedure::FreeAll), &FreeAll(Limited(name.as_bytes()))),
                false => caller.call(
                    of_nlm(Procedure::Test),
                    &TestArgs4 {
                        cookie: COOKIE,
                        exclusive: true,
                        alock: lock(file, b"tester", number),
                    },
                ),
            }
            .map(drop)
        })
        .map(|()| 2)
    });
}

/// Waits for locks of its own and releases them, so that the server calls a deaf host: its
/// portmapper receives calls and answers none.
fn queue(field: &Field<'_>) {
    let _deaf = UdpSocket::bind((NEIGHBOUR, PORTMAP_PORT));
    let _deaf_too = TcpListener::bind((NEIGHBOUR, PORTMAP_PORT));
    let mut caller = None;
    field.repeat(Pace::of(500).with(2), |number| {
        let file = at(&field.place.locked, 1);
        call(&mut caller, Source::root(NEIGHBOUR), |caller| {
            let owner = i32::try_from(number % 300).unwrap_or(0);
            let alock = || Lock4 { svid: owner, ..lock(file, b"queue", 0) };
            caller.call(of_nlm(Procedure::Lock), &lock_args(alock(), true))?;
            let args = UnlockArgs4 { cookie: COOKIE, alock: alock() };
            caller.call(of_nlm(Procedure::Unlock), &args).map(drop)
        })
        .map(|()| 2)
    });
}

/// Calls on a connection, which it opens if there is none.
fn call(
    caller: &mut Option<Caller>,
    from: Source,
    work: impl FnOnce(&mut Caller) -> io::Result<()>,
) -> io::Result<()> {
    let open = match caller.take() {
        Some(open) => Ok(open),
        None => from.connect_abrupt(nfs()).map(Caller::new),
    };
    let mut open = open?;
    work(&mut open)?;
    *caller = Some(open);
    Ok(())
}

/// One byte beyond the host's locks.
fn lock<'a>(file: &'a NfsFh3, name: &'a [u8], number: u32) -> Lock4<'a> {
    let l_offset = (1 << 20) + u64::from(number) * 2;
    let (fh, oh) = (Limited(file.bytes()), Limited(b"neighbour"));
    Lock4 { caller_name: Limited(name), fh, oh, svid: 1, l_offset, l_len: 1 }
}

fn lock_args(alock: Lock4<'_>, block: bool) -> LockArgs4<'_> {
    LockArgs4 { cookie: COOKIE, block, exclusive: true, alock, reclaim: false, state: 1 }
}

fn at(files: &[NfsFh3], number: u32) -> &NfsFh3 {
    let number = usize::try_from(number).unwrap_or(0) % files.len().max(1);
    files.get(number).unwrap_or_else(|| unreachable!("there are files"))
}

/// `struct nlm4_notify`.
struct FreeAll<'a>(Name<'a>);

impl Encode for FreeAll<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.put(&self.0);
        to.i32(3);
    }
}

/// The encoded arguments of any call.
struct Any(Vec<u8>);

fn any(args: &impl Encode) -> Any {
    let mut out = EncodeBuf::new();
    out.put(args);
    Any(out.to_vec())
}

impl Encode for Any {
    fn encode(&self, to: &mut EncodeBuf) {
        // Whole words, like everything in XDR.
        to.opaque_fixed(&self.0);
    }
}

const COOKIE: Netobj<'static> = Limited(b"cookie");
