//! What the locks ask of the world: who is written down, who is told, what a restart ends.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use aquifer_pool::BoxFuture;
use aquifer_rpc::xdr::{Decode, Decoder};
use parking_lot::Mutex;

use super::*;
use crate::proto::nlm::{Limited, Procedure, TestArgs4};

/// A disk for the list that may fail.
#[derive(Debug, Default)]
struct Disk {
    lists: Mutex<Vec<Vec<Monitored>>>,
    fails: AtomicBool,
    woken: AtomicUsize,
}

impl Outside for Disk {
    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    fn keep<'a>(
        &'a self,
        list: &'a (dyn Fn() -> Vec<Monitored> + Send + Sync),
    ) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if self.fails.load(Ordering::Relaxed) {
                return Err(io::Error::other("full"));
            }
            self.lists.lock().push(list());
            Ok(())
        })
    }
}

fn locks() -> (Arc<Disk>, Locks) {
    let disk = Arc::new(Disk::default());
    (disk.clone(), Locks::new(disk, 3, false))
}

/// Locks without waiting for anything but the disk, which is at once.
fn lock(locks: &Locks, ask: &Ask, monitored: bool) -> Locked {
    let locking = pin!(locks.lock(file(1), ask, true, monitored));
    match locking.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(locked) => locked,
        Poll::Pending => panic!("the disk answers at once"),
    }
}

#[test]
fn a_client_is_written_down_before_its_first_lock_and_only_then() {
    let (disk, locks) = locks();
    let (a, b) = (owner(1, 1), owner(2, 1));
    assert_eq!(lock(&locks, &ask(&a, 0, 1, true), true), Locked::Granted);
    assert_eq!(lock(&locks, &ask(&a, 5, 1, true), true), Locked::Granted);
    assert_eq!(lock(&locks, &ask(&owner(3, 1), 7, 1, true), false), Locked::Granted);
    let names = |disk: &Disk| -> Vec<Vec<IpAddr>> {
        let lists = disk.lists.lock();
        let addresses = |list: &Vec<Monitored>| {
            let mut all: Vec<_> = list.iter().map(|one| one.client.address).collect();
            all.sort_unstable();
            all
        };
        lists.iter().map(addresses).collect()
    };
    let address = |number| IpAddr::from([10, 0, 0, number]);
    assert_eq!(names(&disk), [vec![address(1)]], "once, and not who is not monitored");
    // Who has none any more leaves when somebody joins; back again, it is written anew.
    locks.free(&a.client);
    assert_eq!(lock(&locks, &ask(&b, 0, 1, true), true), Locked::Granted);
    assert_eq!(lock(&locks, &ask(&a, 5, 1, true), true), Locked::Granted);
    let expected = [vec![address(1)], vec![address(2)], vec![address(1), address(2)]];
    assert_eq!(names(&disk), expected);
}

#[test]
fn a_lock_that_cannot_be_remembered_is_none() {
    let (disk, locks) = locks();
    disk.fails.store(true, Ordering::Relaxed);
    assert_eq!(lock(&locks, &ask(&owner(1, 1), 0, 1, true), true), Locked::NoLocks);
    assert!(locks.list().is_empty());
    disk.fails.store(false, Ordering::Relaxed);
    assert_eq!(lock(&locks, &ask(&owner(2, 1), 0, 1, true), true), Locked::Granted);
}

#[test]
fn a_grant_tells_what_was_asked_for() {
    let (disk, locks) = locks();
    let (a, b) = (owner(1, 1), owner(2, 9));
    lock(&locks, &ask(&a, 0, 0, true), true);
    let wish = Ask { via: Some([10, 0, 0, 9].into()), ..ask(&b, 100, 104, true) };
    assert_eq!(lock(&locks, &wish, true), Locked::Blocked);
    assert_eq!((disk.woken.load(Ordering::Relaxed), locks.next_callout()), (0, None));
    locks.unlock(file(1), &a, Range::new(0, 0).unwrap());
    assert_eq!(disk.woken.load(Ordering::Relaxed), 1);
    let callout = locks.next_callout().unwrap();
    assert_eq!((callout.to, callout.via), (b.client.address, wish.via));
    assert_eq!(callout.procedure, Procedure::Granted.wire());
    let args = TestArgs4::decode(&mut Decoder::new(&callout.args)).unwrap();
    assert_eq!((args.exclusive, args.alock.svid), (true, 9));
    assert_eq!((args.alock.l_offset, args.alock.l_len), (100, 104));
    assert_eq!((args.alock.fh, args.alock.oh), (Limited(&file(1).encode()), Limited(&b.oh)));
    let grant = callout.grant.unwrap();
    locks.granted(grant, GrantAnswer::Later);
    assert!(locks.is_on_its_way(grant));
    locks.granted(grant, GrantAnswer::Accepted);
    assert!(!locks.is_on_its_way(grant) && locks.list().len() == 1);
}

#[test]
fn what_the_client_answers_is_read_with_care() {
    let answer = |stat: u8| GrantAnswer::of(&[0, 0, 0, 0, 0, 0, 0, stat]);
    assert_eq!(answer(0), GrantAnswer::Accepted);
    assert_eq!(answer(4), GrantAnswer::Later);
    for results in [answer(1), answer(99), GrantAnswer::of(b""), GrantAnswer::of(&[255; 9])] {
        assert_eq!(results, GrantAnswer::Given);
    }
}

#[test]
fn a_host_that_was_restarted_ends_its_own_locks_once() {
    let (_disk, locks) = locks();
    let of = |number: u8, name: &[u8]| {
        let client = Client { address: [10, 0, 0, number].into(), name: name.into() };
        Arc::new(Owner { client: Arc::new(client), svid: 1, oh: Box::default() })
    };
    let says = |number: u8, name: &[u8], state| {
        let address = [10, 0, 0, number].into();
        locks.rebooted(Client { address, name: name.into() }, state)
    };
    // Two hosts behind one address, and one with the same name elsewhere.
    for (at, owner) in [of(1, b"a"), of(1, b"b"), of(2, b"a")].iter().enumerate() {
        lock(&locks, &ask(owner, at as u64 * 10, 1, true), true);
    }
    assert_eq!(says(3, b"a", 5), 0, "from nowhere");
    assert_eq!(says(1, b"c", 5), 0, "neither of the two");
    assert_eq!(says(1, b"A.example.org", 5), 1);
    assert_eq!(locks.list().len(), 2);
    // Back, it locks again; the same word, late, ends nothing.
    lock(&locks, &ask(&of(1, b"a"), 0, 1, true), true);
    assert_eq!(says(1, b"A.example.org", 5), 0);
    assert_eq!(says(1, b"A.example.org", 7), 1);
    // Alone behind its address, it may be named as its monitor likes.
    assert_eq!(says(2, b"10.0.0.2", 1), 1);
    assert_eq!(locks.list().len(), 1);
}

#[test]
fn messages_are_bounded() {
    let (_disk, locks) = locks();
    let to = [10, 0, 0, 1].into();
    for _ in 0..10_000 {
        locks.send(Callout { to, via: None, procedure: 11, args: Vec::new(), grant: None });
    }
    let sent = std::iter::from_fn(|| locks.next_callout()).count();
    assert_eq!(sent, crate::limits::MESSAGES_MAX);
}
