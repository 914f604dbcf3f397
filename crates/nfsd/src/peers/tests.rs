//! Which connection is evicted for which.

use std::task::Waker;

use super::*;

const MOST: usize = 64;

fn address(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

fn is_gone(seat: &Seat) -> bool {
    seat.is_evicted(&Context::from_waker(Waker::noop()))
}

/// Some time after the server began.
fn after_a_while() -> Peers {
    let began = Instant::now().checked_sub(2 * STRANGER_IDLE_MAX).unwrap();
    Peers { began, ..Peers::new() }
}

/// So that later seats have later times.
fn wait() {
    std::thread::sleep(Duration::from_millis(3));
}

#[test]
fn strangers_have_a_small_part_and_push_out_each_other() {
    let peers = Peers::new();
    let host = peers.take(address(1), false, MOST).unwrap();
    let strangers: Vec<_> = (0..4)
        .map(|number| {
            wait();
            peers.take(address(100 + number), true, MOST).unwrap()
        })
        .collect();
    strangers[0].is_busy();
    let more: Vec<_> = (0..2).map(|_| peers.take(address(200), true, MOST).unwrap()).collect();
    assert!(!is_gone(&host) && !is_gone(&strangers[0]), "a request under way is not cut off");
    assert_eq!([1, 2, 3].map(|at| is_gone(&strangers[at])), [true, true, false]);
    more.iter().chain(&strangers[3..]).for_each(|seat| seat.is_busy());
    assert!(peers.take(address(201), true, MOST).is_none(), "all of them are busy");
    peers.leave(&more[0]);
    assert!(peers.take(address(201), true, MOST).is_some());
}

#[test]
fn when_all_are_taken_strangers_go_first_and_then_the_idle_of_the_greediest() {
    let peers = after_a_while();
    let stranger = peers.take(address(100), true, MOST).unwrap();
    let greedy: Vec<_> =
        (0..MOST / 2).map(|_| peers.take(address(1), false, MOST).unwrap()).collect();
    assert!(peers.take(address(1), false, MOST).is_none(), "one address has no more than half");
    let others: Vec<_> = (2..33).map(|it| peers.take(address(it), false, MOST).unwrap()).collect();
    assert!(!is_gone(&stranger));
    let newcomer = peers.take(address(90), false, MOST).unwrap();
    assert!(is_gone(&stranger));
    // All are taken by clients that were just heard from: one that has some is turned away.
    assert!(peers.take(address(90), false, MOST).is_none());
    for (since, seat) in (0..).zip(greedy.iter().chain(&others)) {
        seat.heard_ms.store(since, Ordering::Relaxed);
    }
    greedy[0].is_idle();
    greedy[1].is_busy();
    let second = peers.take(address(90), false, MOST).unwrap();
    let gone: Vec<_> = (0..greedy.len()).filter(|at| is_gone(&greedy[*at])).collect();
    assert_eq!(gone, [2], "the longest idle of those that can go");
    // An address that has most loses one of its own.
    assert!(!others.iter().chain([&newcomer, &second]).any(|seat| is_gone(seat)));
    let again = peers.take(address(1), false, MOST).unwrap();
    assert!(is_gone(&greedy[3]) && !is_gone(&again));
}

/// Admitted hosts that open and keep busy as many as they may, all of them young.
#[test]
fn greedy_hosts_give_up_places_to_hosts_with_few() {
    let peers = after_a_while();
    let mut greedy = Vec::new();
    for number in [1, 2].into_iter().cycle().take(2 * MOST) {
        greedy.extend(peers.take(address(number), false, MOST));
    }
    greedy.iter().for_each(|seat| seat.is_busy());
    assert_eq!(peers.seats.lock().len(), MOST - MOST / 8, "the rest is for hosts with few");
    let hosts: Vec<_> = (10..25).map(|it| peers.take(address(it), false, MOST).unwrap()).collect();
    assert!(!hosts.iter().any(|seat| is_gone(seat)), "they push out each other");
    assert_eq!(peers.seats.lock().len(), MOST);
    assert_eq!(greedy.iter().filter(|seat| is_gone(seat)).count(), 7, "eight had places left");
    // No host of 15 loses its only one to those, whoever is idle for how long.
    hosts.iter().for_each(|seat| seat.heard_ms.store(0, Ordering::Relaxed));
    assert!((0..9).all(|_| peers.take(address(1), false, MOST).is_none()));
    assert!(peers.take(address(30), true, MOST).is_some(), "the longest idle goes");
}

/// One machine has a network of IPv6.
#[test]
fn a_network_of_64_bits_is_one_site() {
    let peers = after_a_while();
    let at = |number: u16| [0x2001, 0xdb8, 0, 1, 0, 0, 0, number].into();
    let taken: Vec<_> = (0..u16::try_from(MOST).expect("a small number"))
        .filter_map(|it| peers.take(at(it), false, MOST))
        .collect();
    assert_eq!(taken.len(), MOST / 2);
    let strangers: Vec<_> = (0..8).map(|it| peers.take(at(it), true, MOST)).collect();
    assert_eq!(strangers.into_iter().flatten().count(), 0, "those too");
}

#[test]
fn strangers_that_do_nothing_are_swept_out() {
    let peers = after_a_while();
    let seats = [true, false].map(|stranger| peers.take(address(1), stranger, MOST).unwrap());
    peers.sweep();
    assert!(!is_gone(&seats[0]));
    seats.iter().for_each(|seat| seat.heard_ms.store(0, Ordering::Relaxed));
    peers.sweep();
    assert_eq!(seats.each_ref().map(|seat| is_gone(seat)), [true, false]);
    // An evicted seat has left; leaving again changes nothing.
    peers.leave(&seats[0]);
    let left = peers.seats.lock();
    assert_eq!((left.len(), left.of_rank(STRANGER), left.of_site(address(1))), (1, 0, 1));
}

/// This machine's own connections are not counted by address.
#[test]
fn this_machine_may_have_all() {
    let peers = after_a_while();
    let here: Vec<_> =
        (0..MOST).filter_map(|_| peers.take([127, 0, 0, 1].into(), false, MOST)).collect();
    assert_eq!(here.len(), MOST);
    assert!(peers.take([127, 0, 0, 1].into(), false, MOST).is_none());
}
