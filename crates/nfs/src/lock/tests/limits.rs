//! Locks that no client can take from others, and the highest cost of a call.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "numbers of a few thousand"
)]

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use super::calls::{lock_as, locks};
use super::*;
use crate::limits::*;
use crate::lock::callouts::{Callouts, Next};

fn named(number: u8, name: usize) -> Arc<Client> {
    let name = name.to_string().into_bytes().into();
    Arc::new(Client { address: [10, 0, 0, number].into(), name })
}

fn owner_of(client: &Arc<Client>, svid: i32) -> Arc<Owner> {
    Arc::new(Owner { client: client.clone(), svid, oh: Box::default() })
}

/// A file of its own for each lock.
fn any_file(number: u64) -> FileHandle {
    let mut bytes = [1; 24];
    bytes[8..16].copy_from_slice(&(number + 1).to_le_bytes());
    FileHandle::decode(&bytes).unwrap()
}

/// One address makes up names; other addresses still get the locks that they need.
#[test]
fn names_do_not_exhaust_the_table() {
    let mut table = Table::default();
    let mut files = (0..).map(any_file);
    let mut grab = |table: &mut Table, number: u8, names: usize, each: usize| {
        let mut got = 0;
        for name in 0..names {
            let owner = owner_of(&named(number, name), 1);
            for _ in 0..each {
                let locked = table.lock(files.next().unwrap(), &ask(&owner, 0, 0, true), false);
                got += usize::from(locked == Locked::Granted);
            }
        }
        got
    };
    assert_eq!(grab(&mut table, 1, SITE_NAMES_MAX + 9, 3), SITE_NAMES_MAX * 3, "names");
    // The last lock is refused: a request may need two.
    let most = SITE_LOCKS_MAX - SITE_NAMES_MAX * 3 - 1;
    assert_eq!(grab(&mut table, 1, SITE_NAMES_MAX, 200), most, "locks");
    for number in 2..=3 {
        assert_eq!(grab(&mut table, number, 1, SITE_LOCKS_MAX), SITE_LOCKS_MAX - 1);
    }
    assert!(grab(&mut table, 4, 1, 1000) <= SITE_LOCKS_SMALL, "the rest is for small ones");
    assert!(grab(&mut table, 9, 1, 1000) >= SITE_LOCKS_SMALL - 1, "others get some in any case");
    let all = table.list().len();
    assert!(all <= LOCKS_MAX, "{all}");
    // Released locks can be had again, under other names.
    table.free(|client| client.address == IpAddr::from([10, 0, 0, 1]));
    assert_eq!(grab(&mut table, 1, SITE_NAMES_MAX + 9, 3), SITE_NAMES_MAX * 3);
    table.free(|_| true);
    assert!(table.list().is_empty() && !table.knows([10, 0, 0, 1].into()));
}

/// An IPv6 machine has any number of addresses.
#[test]
fn a_network_of_64_bits_is_one_site() {
    let mut table = Table::default();
    let got = (0..2 * SITE_LOCKS_MAX as u64).filter(|number| {
        let address = Ipv6Addr::from_bits(0xfd << 120 | u128::from(*number)).into();
        let client = Arc::new(Client { address, name: (*b"host").into() });
        let owner = owner_of(&client, 1);
        table.lock(any_file(*number), &ask(&owner, 0, 0, true), false) == Locked::Granted
    });
    assert_eq!(got.count(), SITE_NAMES_MAX);
}

/// All the locks and waiters that one file may have, arranged so that a call finds most to do. It
/// took 80 ms and more when a file could have 8,000 of each.
#[test]
fn no_call_takes_long_whatever_is_held() {
    let mut table = Table::default();
    let (one, two) = (named(1, 1), named(2, 2));
    let held = (0..2 * FILE_LOCKS_MAX as u64).filter(|at| {
        let ask = ask(&owner_of(&one, *at as i32), at * 2, 1, true);
        table.lock(any_file(0), &ask, false) == Locked::Granted
    });
    assert_eq!(held.count(), FILE_LOCKS_MAX - 1);
    let waits = |svid: i32| ask(&owner_of(&two, svid), 0, 0, false);
    let queued = (0..2 * FILE_WAITERS_MAX as i32)
        .filter(|svid| table.lock(any_file(0), &waits(*svid), true) == Locked::Blocked);
    assert_eq!(queued.count(), FILE_WAITERS_MAX);
    let mut slowest = Duration::ZERO;
    for at in 0..FILE_LOCKS_MAX as u64 - 1 {
        let owner = owner_of(&one, at as i32);
        let began = Instant::now();
        assert!(table.unlock(any_file(0), &owner, Range::new(at * 2, 1).unwrap()));
        slowest = slowest.max(began.elapsed());
    }
    let views = table.list();
    assert!(views.iter().all(|view| view.state == LockState::Granting), "all were served");
    assert_eq!(views.len(), FILE_WAITERS_MAX);
    // The figure is printed; the limit is only there to notice a very different one.
    eprintln!("the slowest UNLOCK took {slowest:?}");
    assert!(slowest < Duration::from_millis(50), "{slowest:?}");
}

fn result() -> Callout {
    Callout { via: None, procedure: 11, args: Vec::new(), grant: None }
}

#[test]
fn results_are_bounded_and_grants_go_first() {
    let (_disk, locks) = locks();
    let address = |number: usize| IpAddr::from([10, 0, 1, number as u8]);
    for number in 0..200 {
        for _ in 0..100 {
            locks.send(address(number), result());
        }
    }
    let mut callouts = Callouts::default();
    callouts.add_result(address(1), result());
    callouts.add_result(address(2), result());
    callouts.add_grant(address(2), 7, |_| true);
    callouts.add_grant(address(3), 8, |_| true);
    let next = |callouts: &mut Callouts| callouts.next_host().unwrap();
    assert_eq!(next(&mut callouts), address(2));
    assert!(matches!(callouts.next_for(address(2)), Some(Next::Grant(7))));
    assert_eq!(next(&mut callouts), address(3));
    assert_eq!(next(&mut callouts), address(1));
    assert_eq!(callouts.next_host(), None, "each is attended to");
    // Messages that come meanwhile are for the caller that serves the host.
    callouts.add_grant(address(3), 9, |_| true);
    assert_eq!(callouts.next_host(), None);
    assert_eq!(callouts.give_up(address(3)), [8, 9]);
    assert!(callouts.next_for(address(3)).is_none());
    callouts.add_grant(address(3), 10, |_| true);
    assert_eq!(next(&mut callouts), address(3));
    // Some for each host, and no more than the limit for all.
    let mut sent = 0;
    while let Some(host) = locks.next_host() {
        let mut own = 0;
        while locks.next_callout(host).is_some() {
            own += 1;
        }
        assert_eq!(own, HOST_MESSAGES_MAX);
        sent += own;
    }
    assert_eq!(sent, MESSAGES_MAX);
}

/// A server that stops while it calls a host leaves nothing undone: the next server calls again.
#[test]
fn a_grant_that_a_stopped_server_was_about_to_tell_is_told() {
    let (_disk, locks) = locks();
    let manner = Manner { may_wait: true, is_monitored: true, by_stream: true, state: 1 };
    let (a, b) = (owner(1, 1), owner(2, 1));
    assert_eq!(lock_as(&locks, &ask(&a, 0, 1, true), manner), Locked::Granted);
    assert_eq!(lock_as(&locks, &ask(&b, 0, 1, true), manner), Locked::Blocked);
    locks.unlock(file(1), &a, Range::new(0, 1).unwrap());
    let host = locks.next_host().unwrap();
    let told = locks.next_callout(host).unwrap();
    assert_eq!(locks.next_host(), None);
    locks.begin_anew();
    assert_eq!(locks.next_host(), Some(host));
    assert_eq!(locks.next_callout(host), Some(told));
    assert_eq!(locks.unreachable(host), 0, "it is not in the queue");
    assert_eq!(locks.list().len(), 1);
}

/// Locks in a file system that is gone count no more.
#[test]
fn what_is_gone_takes_no_locks_from_its_clients() {
    let mut table = Table::default();
    let owner = owner_of(&named(1, 1), 1);
    let in_system = |system: u8, number: u64| {
        let mut bytes = [1; 24];
        bytes[0] = system;
        bytes[8..16].copy_from_slice(&(number + 1).to_le_bytes());
        FileHandle::decode(&bytes).unwrap()
    };
    let take = |table: &mut Table, system| {
        let locked =
            |number| table.lock(in_system(system, number), &ask(&owner, 0, 0, true), false);
        (0..2000).map(locked).filter(|locked| *locked == Locked::Granted).count()
    };
    assert_eq!((take(&mut table, 1), take(&mut table, 2)), (2000, 2000));
    assert!(take(&mut table, 3) < 100, "all that one address may have");
    let gone = in_system(2, 0).fs_guid;
    assert_eq!(table.forget_all(|guid| guid == gone), 2000);
    assert!(!table.list().iter().any(|lock| lock.file.fs_guid == gone));
    assert!(take(&mut table, 3) > 1800);
}
