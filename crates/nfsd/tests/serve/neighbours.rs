//! Hostile neighbours: users who share a host's address (a guest behind its NAT, a user without
//! privileges), machines on the network that no export names, senders of forged datagrams. None of
//! them can end another's locks, take its place, or keep it from being served.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use aquifer_nfs::lock::LockState;
use aquifer_nfs::proto::nlm::*;
use aquifer_nfs::proto::nsm::{self, StatChge};
use aquifer_nfs::proto::v3::NfsFh3;
use aquifer_nfs::{Access, Export};
use aquifer_rpc::auth::AuthStat;
use aquifer_rpc::message::Rejection;

use crate::client::{Client, Refusal};
use crate::fixture::{Fixture, config};
use crate::locks::{COOKIE, NameAndState, Place, call, free_all, lock, lock_args, locked};

/// A hypervisor.
const HOST: &str = "127.0.0.1";
/// Another one.
const OTHER: &str = "127.0.0.3";
/// A machine that no export names.
const STRANGER: &str = "127.0.0.9";
/// Ports of a superuser, and of any user.
const LOW: std::ops::Range<u16> = 600..1024;
const HIGH: std::ops::Range<u16> = 10_000..20_000;

fn exports() -> Vec<Export> {
    let access = Access::read_write_for([HOST, OTHER].map(|host| host.parse().unwrap()));
    vec![Export { access, secure_ports: true, ..Export::new("/vms", "tank/vms") }]
}

impl Place {
    fn from(&self, address: &str, ports: std::ops::Range<u16>) -> Client {
        Client::connect_from(address, ports, self.fixture.address())
    }

    /// Another host does not get the lock: it is held.
    #[track_caller]
    fn is_held(&self) {
        assert_eq!(locked(&mut self.from(OTHER, LOW), &self.file, 9), Nlm4Stats::Denied);
    }
}

/// Sends a datagram with any source, as a forger does; returns its answer.
fn datagram(place: &Place, from: (&str, u16), record: &[u8]) -> Option<Vec<u8>> {
    let socket = (from.1..from.1 + 200).find_map(|port| UdpSocket::bind((from.0, port)).ok());
    let socket = socket.expect("a port is free");
    socket.connect(place.fixture.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.send(&record[4..]).unwrap();
    let mut reply = vec![0; 4096];
    let bytes = socket.recv(&mut reply).ok()?;
    reply.truncate(bytes);
    Some(reply)
}

fn unlock_args(file: &NfsFh3, svid: i32) -> UnlockArgs4<'_> {
    UnlockArgs4 { cookie: COOKIE, alock: lock(file, svid, 0, 0) }
}

fn notify(state: i32) -> StatChge<'static> {
    StatChge { mon_name: Limited(b"pve1"), state }
}

const NOTIFY: (u32, u32, u32) = (nsm::PROGRAM, nsm::VERSION, 6);

fn of(procedure: Procedure) -> (u32, u32, u32) {
    (PROGRAM, VERSION, procedure.wire())
}

/// A guest behind the host's NAT, or a user without privileges: from the host's address, and from a
/// port that any user has.
#[test]
fn who_shares_a_hosts_address_ends_none_of_its_locks() {
    let place = Place::with(exports);
    let mut host = place.from(HOST, LOW);
    assert_eq!(locked(&mut host, &place.file, 1), Nlm4Stats::Granted);
    let mut guest = place.from(HOST, HIGH);
    let refused = Err(Refusal::Denied(Rejection::AuthError(AuthStat::TooWeak)));
    let file = &place.file;
    let mut said = |what, args: &dyn Fn(&mut Client) -> Result<(), Refusal>| {
        let said = args(&mut guest);
        assert_eq!(said, refused, "{what}");
    };
    said("UNLOCK", &|guest| guest.call(of(Procedure::Unlock), &unlock_args(file, 1)).map(drop));
    said("UNLOCK_MSG", &|guest| {
        guest.call(of(Procedure::UnlockMsg), &unlock_args(file, 1)).map(drop)
    });
    let cancel =
        CancArgs4 { cookie: COOKIE, block: true, exclusive: true, alock: lock(file, 1, 0, 0) };
    said("CANCEL", &|guest| guest.call(of(Procedure::Cancel), &cancel).map(drop));
    said("LOCK", &|guest| {
        let args = lock_args(lock(file, 7, 0, 1), true, false);
        guest.call(of(Procedure::Lock), &args).map(drop)
    });
    let name = NameAndState(Limited(b"pve1"), 3);
    said("FREE_ALL", &|guest| guest.call(of(Procedure::FreeAll), &name).map(drop));
    place.is_held();
    // Anybody may claim that the host has restarted: the server asks its own monitor.
    place.host.has_state(Some(1));
    for state in [1, 3, 77] {
        assert!(guest.call(NOTIFY, &notify(state)).is_ok());
    }
    place.host.wait(nsm::PROGRAM, nsm::Procedure::Stat.wire());
    std::thread::sleep(Duration::from_millis(200));
    place.is_held();
    // A low port does not help either, where the host's NAT leaves it to a guest.
    let mut root = place.from(HOST, LOW);
    assert!(root.call(NOTIFY, &notify(5)).is_ok());
    free_all(&mut root, b"pve1");
    std::thread::sleep(Duration::from_millis(200));
    place.is_held();
    assert_eq!(call(&mut host, Procedure::Unlock, &unlock_args(file, 1)), Nlm4Stats::Granted);
    assert_eq!(locked(&mut place.from(OTHER, LOW), file, 9), Nlm4Stats::Granted);
}

#[test]
fn a_stranger_gets_nothing_and_ends_nothing() {
    let place = Place::with(exports);
    let mut host = place.from(HOST, LOW);
    assert_eq!(locked(&mut host, &place.file, 1), Nlm4Stats::Granted);
    let file = &place.file;
    for ports in [LOW, HIGH] {
        let mut stranger = place.from(STRANGER, ports);
        let refused = Refusal::Denied(Rejection::AuthError(AuthStat::TooWeak));
        let mut refuses = |what, args: &dyn Fn(&mut Client) -> Result<(), Refusal>| {
            assert_eq!(args(&mut stranger).as_ref(), Err(&refused), "{what}");
        };
        refuses("LOCK", &|one| {
            let args = lock_args(lock(file, 7, 0, 1), false, false);
            one.call(of(Procedure::Lock), &args).map(drop)
        });
        refuses("UNLOCK", &|one| one.call(of(Procedure::Unlock), &unlock_args(file, 1)).map(drop));
        refuses("NOTIFY", &|one| one.call(NOTIFY, &notify(5)).map(drop));
        refuses("STAT", &|one| {
            one.call((nsm::PROGRAM, nsm::VERSION, 1), &Limited::<1024>(b"x")).map(drop)
        });
        // NULL is for everybody.
        assert!(stranger.call(of(Procedure::Null), &()).is_ok());
    }
    assert!(place.host.is_quiet(), "nobody is called on its behalf");
    place.is_held();
}

/// Datagrams that claim to come from a host, from a port of its superuser.
#[test]
fn forged_datagrams_end_no_locks() {
    let mut place = Place::with(exports);
    let mut host = place.from(HOST, LOW);
    assert_eq!(locked(&mut host, &place.file, 1), Nlm4Stats::Granted);
    place.host.has_state(Some(1));
    let file = place.file;
    let forged = |place: &mut Place, what, args: &dyn Fn(&mut Client) -> Vec<u8>| {
        let record = args(&mut place.client);
        let reply = datagram(place, (HOST, LOW.start), &record);
        assert!(reply.is_some(), "{what}");
    };
    forged(&mut place, "UNLOCK", &|it| it.record(of(Procedure::Unlock), &unlock_args(&file, 1)));
    forged(&mut place, "NOTIFY", &|it| it.record(NOTIFY, &notify(5)));
    let name = || NameAndState(Limited(b"pve1"), 3);
    forged(&mut place, "FREE_ALL", &|it| it.record(of(Procedure::FreeAll), &name()));
    place.host.wait(nsm::PROGRAM, nsm::Procedure::Stat.wire());
    std::thread::sleep(Duration::from_millis(200));
    place.is_held();
    // A host that locks over UDP unlocks over UDP.
    let alock = || Lock4 { caller_name: Limited(b"bsd"), ..lock(&file, 1, 0, 0) };
    assert_eq!(call(&mut host, Procedure::Unlock, &unlock_args(&file, 1)), Nlm4Stats::Granted);
    forged(&mut place, "LOCK", &|it| {
        it.record(of(Procedure::Lock), &lock_args(alock(), false, false))
    });
    place.is_held();
    forged(&mut place, "UNLOCK", &|it| {
        it.record(of(Procedure::Unlock), &UnlockArgs4 { cookie: COOKIE, alock: alock() })
    });
    assert!(place.locks().is_empty());
}

/// Calls whose results come in a call of ours would make us call hosts that a stranger names, while
/// others wait.
#[test]
fn results_for_others_do_not_delay_a_grant() {
    let mut place = Place::with(exports);
    let mut host = place.from(HOST, LOW);
    assert_eq!(locked(&mut host, &place.file, 1), Nlm4Stats::Granted);
    let args = lock_args(lock(&place.file, 2, 0, 0), true, false);
    assert_eq!(call(&mut host, Procedure::Lock, &args), Nlm4Stats::Blocked);
    // A host that does not answer: its portmapper takes calls, and that is all.
    let deaf = UdpSocket::bind((OTHER, place.host.port)).unwrap();
    let deaf_too = std::net::TcpListener::bind((OTHER, place.host.port)).unwrap();
    let mut flood = place.from(OTHER, LOW);
    let mut stranger = place.from(STRANGER, HIGH);
    for _ in 0..320 {
        let args = TestArgs4 { cookie: COOKIE, exclusive: true, alock: lock(&place.file, 3, 0, 0) };
        assert!(flood.call(of(Procedure::TestMsg), &args).is_ok());
        assert!(stranger.call(of(Procedure::TestMsg), &args).is_err());
    }
    let begun = Instant::now();
    assert_eq!(
        call(&mut host, Procedure::Unlock, &unlock_args(&place.file, 1)),
        Nlm4Stats::Granted
    );
    assert_eq!(place.host.granted(), 2);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "told after {took:?}");
    drop((deaf, deaf_too));
    place.client = place.fixture.client();
}

/// A server restarts. One address had 70 names and is dead. Another host is still notified of the
/// restart, and reclaims its lock.
#[test]
fn dead_names_do_not_keep_others_from_being_told() {
    let mut place = Place::with(exports);
    let mut host = place.from(HOST, LOW);
    assert_eq!(locked(&mut host, &place.file, 1), Nlm4Stats::Granted);
    let deaf = UdpSocket::bind((OTHER, place.host.port)).unwrap();
    let deaf_too = std::net::TcpListener::bind((OTHER, place.host.port)).unwrap();
    // As written by a version that let one address have any number of names. Those come first.
    let list = place.state.path().join("lock-clients.json");
    let mut content: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&list).unwrap()).unwrap();
    let clients = content["clients"].as_array_mut().unwrap();
    let dead = (0..70).map(
        |number| serde_json::json!({ "address": OTHER, "name": format!("a{number}"), "via": HOST }),
    );
    clients.splice(0..0, dead);
    std::fs::write(&list, content.to_string()).unwrap();
    let begun = Instant::now();
    place.restart(Duration::from_secs(10));
    place.host.wait(nsm::PROGRAM, nsm::Procedure::Notify.wire());
    assert!(begun.elapsed() < Duration::from_secs(4), "told after {:?}", begun.elapsed());
    let claim = |place: &Place, from: &str, name: &'static [u8]| {
        let alock = Lock4 { caller_name: Limited(name), ..lock(&place.file, 1, 0, 0) };
        let args = lock_args(alock, false, true);
        call(&mut place.from(from, LOW), Procedure::Lock, &args)
    };
    // Only clients that had locks can reclaim.
    assert_eq!(claim(&place, OTHER, b"new"), Nlm4Stats::DeniedGracePeriod);
    assert_eq!(claim(&place, HOST, b"pve1"), Nlm4Stats::Granted);
    assert!(place.locks().iter().all(|lock| lock.state == LockState::Held));
    drop((deaf, deaf_too));
}

/// Two admitted hosts hold as many connections as they can, from ports of any user that the export
/// refuses, and from ports of a superuser. Fifteen others come in all the same.
#[test]
fn admitted_hosts_do_not_shut_out_others() {
    let hosts: Vec<String> = (20..35).map(|number| format!("127.0.0.{number}")).collect();
    let all = hosts.iter().map(String::as_str).chain([HOST, OTHER]);
    let access = Access::read_write_for(all.map(|host| host.parse().unwrap()));
    let export = Export { access, secure_ports: true, ..Export::new("/vms", "tank/vms") };
    let mut config = config();
    config.limits.connections_max = 64;
    for ports in [HIGH, LOW] {
        let fixture = Fixture::with(config.clone(), vec![export.clone()]);
        let from = |host: &str| Client::connect_from(host, ports.clone(), fixture.address());
        let mut greedy: Vec<Client> = (0..80).map(|at| from([HOST, OTHER][at % 2])).collect();
        let come = |host: &String| Client::connect_from(host, LOW, fixture.address());
        let mut clients: Vec<Client> = hosts.iter().map(come).collect();
        for (host, client) in hosts.iter().zip(&mut clients) {
            assert!(client.mount("/vms").is_ok(), "{host} was shut out");
        }
        // They stay in, however many more come.
        greedy.extend((0..40).map(|at| from([HOST, OTHER][at % 2])));
        for (host, client) in hosts.iter().zip(&mut clients) {
            assert!(client.mount("/vms").is_ok(), "{host} was pushed out");
        }
    }
}
