//! The table compared with a model that keeps every byte, and the messages to clients.

mod calls;
mod limits;
mod model;
mod restarts;

use super::table::{Shared, Table};
use super::*;

fn file(object: u8) -> FileHandle {
    let mut bytes = [0; 24];
    (bytes[0], bytes[8], bytes[16]) = (1, object, 1);
    FileHandle::decode(&bytes).unwrap()
}

fn client(number: u8) -> Arc<Client> {
    Arc::new(Client { address: [10, 0, 0, number].into(), name: (*b"host").into() })
}

/// Process `svid` of client `number`.
fn owner(number: u8, svid: i32) -> Arc<Owner> {
    Arc::new(Owner { client: client(number), svid, oh: (*b"oh").into() })
}

fn ask(owner: &Arc<Owner>, offset: u64, length: u64, exclusive: bool) -> Ask {
    let range = Range::new(offset, length).unwrap();
    Ask { owner: owner.clone(), range, exclusive, via: None }
}

/// Grants since the last call, with their owners.
fn new_grants(table: &mut Table) -> Vec<(u64, Arc<Owner>)> {
    let new = table.grants.take_new().into_iter();
    new.filter_map(|(_, grant)| Some((grant, table.grants.get(grant)?.waiter.owner.clone())))
        .collect()
}

fn held_by(table: &Table, number: u8) -> Vec<(u64, u64, bool)> {
    let views = table
        .list()
        .into_iter()
        .filter(|view| view.owner.client == client(number) && view.state != LockState::Waiting);
    let mut held: Vec<_> = views
        .filter_map(|view| match view.kind {
            LockKind::Shared(range) => Some((range.first, range.length(), false)),
            LockKind::Exclusive(range) => Some((range.first, range.length(), true)),
            LockKind::Share { .. } => None,
        })
        .collect();
    held.sort_unstable();
    held
}

#[test]
fn ranges_reach_to_the_end_of_64_bits_and_not_beyond() {
    assert_eq!(Range::new(5, 0), Some(Range { first: 5, last: u64::MAX }));
    assert_eq!(Range::new(u64::MAX, 1).map(|range| range.length()), Some(0));
    assert_eq!(Range::new(u64::MAX, 2), None);
    assert_eq!(Range::new(1, u64::MAX), Some(Range { first: 1, last: u64::MAX }));
    assert_eq!(Range::new(100, 104).map(|range| range.length()), Some(104));
}

/// POSIX on fcntl: an owner's locks replace each other, split and join.
#[test]
fn locks_of_an_owner_split_and_join() {
    let (mut table, me) = (Table::default(), owner(1, 1));
    assert_eq!(table.lock(file(1), &ask(&me, 0, 100, true), false), Locked::Granted);
    assert_eq!(table.lock(file(1), &ask(&me, 40, 20, false), false), Locked::Granted);
    assert_eq!(held_by(&table, 1), [(0, 40, true), (40, 20, false), (60, 40, true)]);
    assert!(table.unlock(file(1), &me, Range::new(10, 10).unwrap()));
    assert_eq!(
        held_by(&table, 1),
        [(0, 10, true), (20, 20, true), (40, 20, false), (60, 40, true)]
    );
    assert_eq!(table.lock(file(1), &ask(&me, 10, 50, true), false), Locked::Granted);
    assert_eq!(held_by(&table, 1), [(0, 100, true)]);
    assert_eq!(table.lock(file(1), &ask(&me, 100, 0, true), false), Locked::Granted);
    assert_eq!(held_by(&table, 1), [(0, 0, true)]);
    assert!(table.unlock(file(1), &me, Range::new(0, 0).unwrap()));
    assert_eq!((table.list(), table.clients().count()), (vec![], 0));
}

#[test]
fn who_waits_is_served_in_order_and_told_once() {
    let (mut table, of) = (Table::default(), |number| owner(number, 7));
    let whole = |number, exclusive| ask(&of(number), 0, 0, exclusive);
    assert_eq!(table.lock(file(1), &whole(1, true), true), Locked::Granted);
    for number in [2, 3, 4] {
        let exclusive = number == 3;
        assert_eq!(table.lock(file(1), &whole(number, exclusive), true), Locked::Blocked);
        // A repeated request is in the queue once.
        assert_eq!(table.lock(file(1), &whole(number, exclusive), true), Locked::Blocked);
    }
    assert!(new_grants(&mut table).is_empty());
    table.unlock(file(1), &of(1), Range::new(0, 0).unwrap());
    // The reader behind the writer waits for it.
    let granted = new_grants(&mut table);
    let [(first, ref told)] = granted[..] else { panic!("{granted:?}") };
    assert_eq!(*told, of(2));
    assert!(table.grants.get(first).is_some());
    // Not even a new reader goes before the writer; one that asks without waiting may.
    assert_eq!(table.lock(file(1), &whole(5, false), true), Locked::Blocked);
    assert_eq!(table.lock(file(1), &whole(6, false), false), Locked::Granted);
    table.answered(first, true);
    assert!(table.grants.get(first).is_none());
    table.unlock(file(1), &of(6), Range::new(0, 0).unwrap());
    table.unlock(file(1), &of(2), Range::new(0, 0).unwrap());
    let granted = new_grants(&mut table);
    let [(second, ref told)] = granted[..] else { panic!("{granted:?}") };
    assert_eq!(*told, of(3));
    // It does not want the lock any more: both readers have their turn.
    table.answered(second, false);
    let told: Vec<_> = new_grants(&mut table).into_iter().map(|(_, owner)| owner).collect();
    assert_eq!(told, [of(4), of(5)]);
}

#[test]
fn a_grant_on_its_way_is_settled_by_what_the_client_says() {
    let (mut table, me, other) = (Table::default(), owner(1, 1), owner(2, 1));
    let wish = ask(&me, 10, 10, true);
    let blocked = |table: &mut Table| {
        assert_eq!(table.lock(file(1), &ask(&other, 0, 0, true), false), Locked::Granted);
        assert_eq!(table.lock(file(1), &wish, true), Locked::Blocked);
        table.unlock(file(1), &other, Range::new(0, 0).unwrap());
        new_grants(table)[0].0
    };
    // The client asks again and has its lock: a late "no" to the grant takes nothing away.
    let grant = blocked(&mut table);
    assert_eq!(table.lock(file(1), &wish, true), Locked::Granted);
    table.answered(grant, false);
    assert_eq!(held_by(&table, 1), [(10, 10, true)]);
    assert!(table.unlock(file(1), &me, wish.range));
    // It cancels, and the lock goes back.
    let grant = blocked(&mut table);
    assert!(table.cancel(file(1), &wish) && table.grants.get(grant).is_none());
    assert!(held_by(&table, 1).is_empty() && !table.cancel(file(1), &wish));
    // It is told, and unlocks before its answer arrives.
    let grant = blocked(&mut table);
    assert!(table.unlock(file(1), &me, wish.range));
    assert_eq!(table.lock(file(1), &ask(&other, 0, 0, true), false), Locked::Granted);
    table.answered(grant, true);
    assert_eq!((held_by(&table, 1).len(), held_by(&table, 2).len()), (0, 1));
}

/// An owner that others wait for must not wait behind them.
#[test]
fn a_holder_goes_before_those_who_wait_for_it() {
    let (mut table, reader, writer) = (Table::default(), owner(1, 1), owner(2, 1));
    assert_eq!(table.lock(file(1), &ask(&reader, 0, 10, false), true), Locked::Granted);
    assert_eq!(table.lock(file(1), &ask(&writer, 0, 20, true), true), Locked::Blocked);
    assert_eq!(table.lock(file(1), &ask(&reader, 10, 10, false), true), Locked::Granted);
}

#[test]
fn the_end_of_a_client_or_a_file_ends_its_locks() {
    let (mut table, gone, stays) = (Table::default(), owner(1, 1), owner(2, 1));
    for object in [1, 2] {
        assert_eq!(table.lock(file(object), &ask(&gone, 0, 5, true), false), Locked::Granted);
        assert_eq!(table.lock(file(object), &ask(&stays, 0, 9, true), true), Locked::Blocked);
    }
    assert_eq!(table.share(file(2), &gone, 1, 3), Shared::Granted);
    assert_eq!(table.free(|client| *client == *gone.client), 3);
    assert_eq!(held_by(&table, 2), [(0, 9, true), (0, 9, true)]);
    assert!(!table.has_client(&gone.client));
    table.forget(file(1));
    assert_eq!(held_by(&table, 2), [(0, 9, true)]);
    assert_eq!(new_grants(&mut table).len(), 1, "of the file that is left");
    table.forget(file(2));
    assert_eq!(table.clients().count(), 0);
}

#[test]
fn reservations_exclude_as_dos_has_it() {
    let (mut table, a, b) = (Table::default(), owner(1, 0), owner(2, 0));
    let (read, write, none) = (1, 2, 0);
    assert_eq!(table.share(file(1), &a, read, write), Shared::Granted);
    assert_eq!(table.share(file(1), &b, write, none), Shared::Denied);
    assert_eq!(table.share(file(1), &b, read, read), Shared::Denied);
    assert_eq!(table.share(file(1), &b, read, write), Shared::Granted);
    // An owner's own reservation is replaced.
    assert_eq!(table.share(file(1), &a, read, none), Shared::Granted);
    table.unshare(file(1), &b);
    assert_eq!(table.share(file(1), &b, write, none), Shared::Granted);
    table.unshare(file(1), &a);
    table.unshare(file(1), &b);
    assert_eq!(table.clients().count(), 0);
}

/// One client fills a file; others have theirs. Splitting counts.
#[test]
fn locks_of_a_file_are_bounded() {
    let (mut table, greedy, other) = (Table::default(), owner(1, 1), owner(2, 1));
    let limit = crate::limits::FILE_LOCKS_MAX;
    let granted = (0..2 * limit as u64)
        .take_while(|at| {
            let wish = ask(&greedy, at * 10, 5, true);
            table.lock(file(1), &wish, false) == Locked::Granted
        })
        .count();
    assert!((limit - 2..=limit).contains(&granted), "{granted}");
    assert_eq!(table.lock(file(2), &ask(&other, 0, 1, true), false), Locked::Granted);
    assert_eq!(table.lock(file(1), &ask(&other, 9, 1, true), true), Locked::NoLocks);
    let mut holes = 0;
    while table.unlock(file(1), &greedy, Range::new(holes * 10 + 2, 1).unwrap()) {
        holes += 1;
    }
    assert!(holes <= 2, "{holes}");
    assert!(table.unlock(file(1), &greedy, Range::new(0, 0).unwrap()));
    assert!(!table.has_client(&greedy.client));
}
