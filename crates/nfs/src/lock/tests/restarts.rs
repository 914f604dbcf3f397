//! Which locks end on a notice that a host has restarted.

use super::calls::{lock_as, locks};
use super::*;

fn of(number: u8, name: &[u8]) -> Arc<Owner> {
    let client = Client { address: [10, 0, 0, number].into(), name: name.into() };
    Arc::new(Owner { client: Arc::new(client), svid: 1, oh: Box::default() })
}

fn restart(number: u8, name: &[u8], state: i32) -> Restart {
    let host = Client { address: [10, 0, 0, number].into(), name: name.into() };
    Restart { host, state, via: None, is_from_root: false }
}

/// Locks byte `at`, in a life of the host with this state.
fn lock(locks: &Locks, owner: &Arc<Owner>, at: u64, state: i32) {
    let manner = Manner { may_wait: false, is_monitored: true, by_stream: true, state };
    assert_eq!(lock_as(locks, &ask(owner, at, 1, true), manner), Locked::Granted);
}

/// The host's monitor confirms the notice. Returns the number of locks that end.
fn confirmed(locks: &Locks, restart: Restart) -> Option<usize> {
    let state = restart.state;
    locks.says_restarted(restart);
    let next = locks.next_restart()?;
    let freed = locks.restart_judged(&next, Belief::Confirmed(state));
    locks.restart_closed(&next);
    freed
}

#[test]
fn a_host_that_was_restarted_ends_its_own_locks_once() {
    let (_disk, locks) = locks();
    // Two hosts behind one address, and one with the same name elsewhere.
    for (at, owner) in [of(1, b"a"), of(1, b"b"), of(2, b"a")].iter().enumerate() {
        lock(&locks, owner, at as u64 * 10, 3);
    }
    assert_eq!(confirmed(&locks, restart(3, b"a", 5)), None, "from nowhere");
    assert_eq!(confirmed(&locks, restart(1, b"c", 5)), None, "neither of the two");
    assert_eq!(confirmed(&locks, restart(2, b"x", 5)), None, "alone, and another name");
    assert_eq!(confirmed(&locks, restart(1, b"a", 3)), None, "it locked in this life");
    assert_eq!(confirmed(&locks, restart(1, b"A.example.org", 5)), Some(1));
    assert_eq!(locks.list().len(), 2);
    // The host is back and locks again; the same notice, late, ends nothing.
    lock(&locks, &of(1, b"a"), 0, 5);
    assert_eq!(confirmed(&locks, restart(1, b"A.example.org", 5)), None);
    assert_eq!(confirmed(&locks, restart(1, b"A.example.org", 7)), Some(1));
    // Some monitors name themselves by their address.
    assert_eq!(confirmed(&locks, restart(2, b"10.0.0.1", 5)), None);
    assert_eq!(confirmed(&locks, restart(2, b"10.0.0.2", 5)), Some(1));
    assert_eq!(locks.list().len(), 1);
}

/// The host's own monitor decides, not the notice.
#[test]
fn nothing_ends_by_a_word_alone() {
    let (disk, locks) = locks();
    lock(&locks, &of(1, b"a"), 0, 3);
    locks.says_restarted(restart(1, b"a", 5));
    assert_eq!(disk.woken(), 1);
    let said = locks.next_restart().unwrap();
    // More notices arrive while one is verified; one more verification is enough for them.
    locks.says_restarted(restart(1, b"a", 7));
    locks.says_restarted(restart(1, b"a", 9));
    assert_eq!(locks.next_restart(), None);
    assert_eq!(locks.restart_judged(&said, Belief::None), None);
    assert_eq!(locks.next_restart(), None, "it has its pause");
    locks.restart_closed(&said);
    let again = locks.next_restart().unwrap();
    assert_eq!((again.state, locks.next_restart()), (9, None));
    // The host is still in the state in which it locked.
    assert_eq!(locks.restart_judged(&again, Belief::Confirmed(3)), None);
    locks.restart_closed(&again);
    assert_eq!(locks.list().len(), 1);
    // A server that stopped meanwhile verifies the notice when it is back.
    locks.says_restarted(restart(1, b"a", 9));
    let said = locks.next_restart().unwrap();
    locks.begin_anew();
    assert_eq!(locks.next_restart(), Some(said.clone()));
    locks.restart_closed(&said);
    // The host has restarted, although the notice had another state.
    locks.says_restarted(restart(1, b"a", 11));
    let said = locks.next_restart().unwrap();
    assert_eq!(locks.restart_judged(&said, Belief::Confirmed(5)), Some(1));
    locks.restart_closed(&said);
    // A client that never sent its state: only the very state of the notice counts.
    lock(&locks, &of(2, b"b"), 0, 0);
    locks.says_restarted(restart(2, b"b", 4));
    let said = locks.next_restart().unwrap();
    assert_eq!(locks.restart_judged(&said, Belief::Confirmed(3)), None);
    assert_eq!(locks.restart_judged(&said, Belief::OnItsWord), Some(1));
}

/// A sender that makes up domains of a host has its monitor asked once at a time.
#[test]
fn names_that_are_made_up_are_one_host() {
    let (_disk, locks) = locks();
    lock(&locks, &of(1, b"a"), 0, 3);
    for number in 0..100 {
        let name = format!("A.domain{number}");
        locks.says_restarted(restart(1, name.as_bytes(), 5));
    }
    let said = locks.next_restart().unwrap();
    assert_eq!(locks.next_restart(), None);
    locks.says_restarted(restart(1, b"a", 7));
    assert_eq!(locks.restart_judged(&said, Belief::None), None);
    locks.restart_closed(&said);
    // The last notice is from the host.
    let said = locks.next_restart().unwrap();
    assert_eq!((&*said.host.name, said.state), (&b"a"[..], 7));
    assert_eq!(locks.restart_judged(&said, Belief::Confirmed(7)), Some(1));
    locks.restart_closed(&said);
    assert_eq!(locks.next_restart(), None);
}

/// FREE_ALL is for clients without monitoring.
#[test]
fn a_monitored_client_does_not_give_up_all() {
    let (_disk, locks) = locks();
    let (a, b) = (of(1, b"a"), of(2, b"b"));
    lock(&locks, &a, 0, 1);
    let manner = Manner { may_wait: false, is_monitored: false, by_stream: true, state: 1 };
    assert_eq!(lock_as(&locks, &ask(&b, 5, 1, true), manner), Locked::Granted);
    assert_eq!((locks.free_all(&a.client), locks.free_all(&b.client)), (0, 1));
    assert_eq!(locks.clear(a.client.address, Some(b"other")), 0);
    assert_eq!(locks.clear(a.client.address, Some(b"a")), 1);
}

/// Only earlier holders may reclaim locks: until the grace period has ended, and until they had
/// their time.
#[test]
fn only_who_had_locks_claims_them() {
    let (disk, _) = locks();
    let (a, b) = (of(1, b"a"), of(2, b"b"));
    let listed = [(*a.client).clone()].into();
    let locks = Locks::new(disk.clone(), 3, Some(Claimants::Listed(listed)));
    assert!(locks.in_grace() && locks.may_claim(&a.client) && !locks.may_claim(&b.client));
    locks.end_grace();
    assert!(!locks.in_grace() && locks.may_claim(&a.client), "it was not told yet");
    locks.end_claims(&a.client);
    assert!(!locks.may_claim(&a.client));
    let locks = Locks::new(disk, 3, Some(Claimants::Everybody));
    assert!(locks.in_grace() && locks.may_claim(&b.client), "who had some is not known");
    locks.end_grace();
    assert!(!locks.may_claim(&b.client));
}
