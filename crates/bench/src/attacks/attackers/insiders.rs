//! Hosts that an export lets in: with many addresses, from ports that any user has, with calls that
//! make the daemon remember much, and with snapshots.

use std::io::{self, Write};

use aquifer_nfs::proto::v3::{
    Args3, DirOpArgs3, Getattr3Args, Lookup3Res, Mkdir3Args, NfsFh3, Readdirplus3Args,
    Readdirplus3Res, Sattr3,
};
use aquifer_rig::wire::call::{Caller, Source, of_nfs, record};
use aquifer_rig::wire::{decode, granted, results};

use super::strangers::HELD_MAX;
use super::{Attacker, Field, Held, Pace};
use crate::attacks::grounds::{lab_host, lookup, snapshot_of};
use crate::attacks::place::{HOST, NEIGHBOUR, nfs};

/// Connections of hosts that are let in, or would be from another port.
pub(super) const ADDRESSES: [Attacker; 3] = [of_many, of_a_few, from_high_ports];
/// Readers of snapshots.
pub(super) const READERS: [Attacker; 2] = [reader_from_the_first, reader_from_the_last];
/// Takers of snapshots.
pub(super) const SNAPSHOTS: [Attacker; 2] = [taker, user_as_taker];

/// Each of the lab's machines calls once, as one does that is served, and stays.
fn of_many(field: &Field<'_>) {
    admitted(field, Pace::of(800), |number| Source::user(lab_host(number)));
}

fn of_a_few(field: &Field<'_>) {
    admitted(field, Pace::of(800), |number| Source::user(lab_host(number % 2)));
}

fn admitted(field: &Field<'_>, pace: Pace, from: impl Fn(u32) -> Source) {
    let mut held = Held::new(HELD_MAX);
    let args = Args3::Getattr(Getattr3Args { object: field.place.grounds.lab });
    field.repeat(pace, |number| {
        let mut stream = from(number).connect_abrupt(nfs())?;
        stream.write_all(&record(number, of_nfs(&args), &args))?;
        held.add(stream);
        Ok(1)
    });
}

/// Users at the addresses of hosts that are named, from ports that their export refuses.
fn from_high_ports(field: &Field<'_>) {
    let mut held = Held::new(HELD_MAX);
    let args = Args3::Getattr(Getattr3Args { object: field.place.file });
    field.repeat(Pace::of(800), |number| {
        let host = if number % 2 == 0 { NEIGHBOUR } else { HOST };
        let mut stream = Source::user(host).connect_abrupt(nfs())?;
        stream.write_all(&record(number, of_nfs(&args), &args))?;
        held.add(stream);
        Ok(1)
    });
}

fn reader_from_the_first(field: &Field<'_>) {
    let all = field.place.grounds.snapshots;
    read_all(field, lab_host(5), (0..all).map(snapshot_of).collect());
}

fn reader_from_the_last(field: &Field<'_>) {
    let all = field.place.grounds.snapshots;
    read_all(field, lab_host(6), (0..all).rev().map(snapshot_of).collect());
}

/// Lists snapshots with the attributes of all files, one after the other, as `find` does.
fn read_all(field: &Field<'_>, from: std::net::Ipv4Addr, snapshots: Vec<String>) {
    let mut open: Option<Caller> = None;
    let mut place: Option<(NfsFh3, u64)> = None;
    let mut next = snapshots.iter().cycle();
    field.repeat(Pace::of(400), |_| {
        // Both are given back if all goes well.
        let mut caller = match open.take() {
            Some(caller) => caller,
            None => Caller::new(Source::user(from).connect_abrupt(nfs())?),
        };
        let (dir, cookie) = match place.take() {
            Some(place) => place,
            None => {
                let hidden = find(&mut caller, field.place.grounds.lab, ".aquifer")?;
                let list = find(&mut caller, hidden, "snapshot")?;
                let name = next.next().map(String::as_str).unwrap_or_default();
                (find(&mut caller, list, name)?, 0)
            }
        };
        place = list(&mut caller, dir, cookie)?.map(|cookie| (dir, cookie));
        open = Some(caller);
        Ok(1)
    });
}

fn find(caller: &mut Caller, dir: NfsFh3, name: &str) -> io::Result<NfsFh3> {
    let args = lookup(dir, name);
    let reply = caller.call(of_nfs(&args), &args)?;
    let (_, mut from) = results(&reply).map_err(io::Error::other)?;
    let found = decode::<Lookup3Res>(&mut from).and_then(|found| granted("LOOKUP", found));
    found.map(|found| found.object).map_err(io::Error::other)
}

/// A part of a directory. Returns where the next one begins; `None` if it was the last.
fn list(caller: &mut Caller, dir: NfsFh3, cookie: u64) -> io::Result<Option<u64>> {
    let (dircount, maxcount) = (PART_BYTES, PART_BYTES);
    // The daemon takes any verifier for an old one, but none.
    let cookieverf = Default::default();
    let args = Args3::Readdirplus(Readdirplus3Args { dir, cookie, cookieverf, dircount, maxcount });
    let reply = caller.call(of_nfs(&args), &args)?;
    let (_, mut from) = results(&reply).map_err(io::Error::other)?;
    let part = decode::<Readdirplus3Res<'_>>(&mut from);
    let part = part.and_then(|part| granted("READDIRPLUS", part)).map_err(io::Error::other)?;
    let last = part.entries.last().map(|entry| entry.cookie);
    Ok(last.filter(|_| !part.eof))
}

/// The host that may take snapshots takes and destroys them, on as many connections as it gets.
fn taker(field: &Field<'_>) {
    take(field, Source::root(NEIGHBOUR), "root");
}

/// A user of that host, who may not.
fn user_as_taker(field: &Field<'_>) {
    take(field, Source::user(NEIGHBOUR), "user");
}

/// Takes and destroys snapshots whose names begin with `kind`.
fn take(field: &Field<'_>, from: Source, kind: &str) {
    let mut callers: Vec<Caller> = Vec::new();
    let mut list = None;
    field.repeat(Pace::of(20).with(2 * TAKERS as u64), |number| {
        let done = (|| {
            while callers.len() < TAKERS {
                callers.push(Caller::new(from.connect_abrupt(nfs())?));
            }
            let Some(first) = callers.first_mut() else { return Ok(0) };
            let dir = match list {
                Some(dir) => dir,
                None => {
                    let hidden = find(first, field.place.grounds.lab, ".aquifer")?;
                    *list.insert(find(first, hidden, "snapshot")?)
                }
            };
            let name = |at: usize| format!("{kind}-{number}-{at}");
            each(&mut callers, name, |name| {
                let place = DirOpArgs3 { dir, name };
                Args3::Mkdir(Mkdir3Args { place, attributes: Sattr3::NONE })
            })?;
            each(&mut callers, name, |name| Args3::Rmdir(DirOpArgs3 { dir, name }))?;
            Ok(2 * TAKERS as u64)
        })();
        if done.is_err() {
            callers.clear();
        }
        done
    });
}

/// One call on each connection; then their answers.
fn each(
    callers: &mut [Caller],
    name: impl Fn(usize) -> String,
    args: impl for<'a> Fn(&'a [u8]) -> Args3<'a>,
) -> io::Result<()> {
    for (at, caller) in callers.iter_mut().enumerate() {
        let name = name(at);
        let args = args(name.as_bytes());
        caller.send(of_nfs(&args), &args)?;
    }
    callers.iter_mut().try_for_each(|caller| caller.receive().map(drop))
}

const PART_BYTES: u32 = 1 << 20;
/// Connections of a taker.
const TAKERS: usize = 16;
