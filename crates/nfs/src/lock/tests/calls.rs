//! Effects on the outside world: the list on disk, messages to clients, and the ends of locks after
//! a restart.

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

/// A disk for the list, which may fail.
#[derive(Debug, Default)]
pub(super) struct Disk {
    lists: Mutex<Vec<Vec<Monitored>>>,
    fails: AtomicBool,
    woken: AtomicUsize,
}

impl Disk {
    pub(super) fn woken(&self) -> usize {
        self.woken.load(Ordering::Relaxed)
    }
}

impl Outside for Disk {
    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    fn keep<'a>(
        &'a self,
        _newcomer: &'a Client,
        list: &'a (dyn DurableList + 'a),
    ) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if self.fails.load(Ordering::Relaxed) {
                return Err(io::Error::other("full"));
            }
            if let Some(clients) = list.list() {
                self.lists.lock().push(clients);
                list.written();
            }
            Ok(())
        })
    }
}

pub(super) fn locks() -> (Arc<Disk>, Locks) {
    let disk = Arc::new(Disk::default());
    (disk.clone(), Locks::new(disk, 3, None))
}

/// Locks, and waits only for the disk, which is immediate.
fn lock(locks: &Locks, ask: &Ask, is_monitored: bool) -> Locked {
    lock_as(locks, ask, Manner { may_wait: true, is_monitored, by_stream: true, state: 1 })
}

pub(super) fn lock_as(locks: &Locks, ask: &Ask, manner: Manner) -> Locked {
    let locking = pin!(locks.lock(file(1), ask, manner, || false));
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
    // A client without locks leaves the list when another joins; when it returns, the list is
    // written again.
    assert_eq!(locks.clear(a.client.address, None), 2);
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
    assert_eq!((disk.woken(), locks.next_host()), (0, None));
    locks.unlock(file(1), &a, Range::new(0, 0).unwrap());
    assert_eq!(disk.woken(), 1);
    assert_eq!(locks.next_host(), Some(b.client.address));
    let callout = locks.next_callout(b.client.address).unwrap();
    assert_eq!(callout.via, wish.via);
    assert_eq!(callout.procedure, Procedure::Granted.wire());
    let args = TestArgs4::decode(&mut Decoder::new(&callout.args)).unwrap();
    assert_eq!((args.exclusive, args.alock.svid), (true, 9));
    assert_eq!((args.alock.l_offset, args.alock.l_len), (100, 104));
    assert_eq!((args.alock.fh, args.alock.oh), (Limited(&file(1).encode()), Limited(&b.oh)));
    let grant = callout.grant.unwrap();
    locks.granted(grant, GrantAnswer::Later);
    assert!(locks.is_on_its_way(grant));
    assert_eq!(locks.next_host(), None, "one attends to it");
    assert_eq!(locks.next_callout(b.client.address), Some(callout), "again");
    locks.granted(grant, GrantAnswer::Accepted);
    assert!(!locks.is_on_its_way(grant) && locks.list().len() == 1);
    assert_eq!(locks.next_callout(b.client.address), None);
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

/// A rollback shuts the file first, and counts its locks then: none comes behind that.
#[test]
fn a_file_that_goes_back_is_not_locked() {
    let (_, locks) = locks();
    let ask = ask(&owner(1, 1), 0, 1, true);
    let manner = Manner { may_wait: true, is_monitored: false, by_stream: true, state: 1 };
    let locking = pin!(locks.lock(file(1), &ask, manner, || true));
    let locked = locking.poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(locked, Poll::Ready(Locked::Later));
    assert_eq!(locks.share(file(1), &ask.owner, (1, 0), || true), None);
    assert_eq!(locks.list(), []);
    assert_eq!(lock(&locks, &ask, false), Locked::Granted);
}
