//! One shard, compared with a naive model, and its invariants under any operations.

mod model;

use proptest::prelude::*;

use super::{Arrival, Shard, TABLE_BUCKETS_MIN};
use crate::budget::Budget;
use crate::slab::Queue;
use crate::{Class, Key};
use model::Model;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A get, and an insert if it missed.
    Read(u64),
    /// An insert without a get: read ahead, or written.
    Insert(u64),
    Remove(u64),
    Replace(u64, u64),
}

fn key(name: u64) -> Key {
    Key { place: name, written: name % 3 }
}

fn class(name: u64) -> Class {
    if name.is_multiple_of(5) { Class::Node } else { Class::Data }
}

fn insert(shard: &mut Shard<u64>, name: u64, charge_bytes: u32) {
    let (key, class) = (key(name), class(name));
    let arrival = Arrival { key, value: name, charge_bytes, class, standing: None };
    shard.insert(key.mixed(), arrival);
}

/// Gets, and inserts on a miss. Returns whether it hit.
fn read(shard: &mut Shard<u64>, name: u64, charge_bytes: u32) -> bool {
    let found = shard.get(key(name).mixed(), &key(name));
    match found {
        Some(value) => assert_eq!(value, name),
        None => insert(shard, name, charge_bytes),
    }
    found.is_some()
}

fn replace(shard: &mut Shard<u64>, old: u64, new: u64, charge_bytes: u32) {
    let standing = shard.remove(key(old).mixed(), &key(old)).map(|(_, standing)| standing);
    let (key, class) = (key(new), class(new));
    let arrival = Arrival { key, value: new, charge_bytes, class, standing };
    shard.insert(key.mixed(), arrival);
}

/// The names in a queue, newest first; checks every invariant of the shard on the way.
fn checked(shard: &Shard<u64>) -> [Vec<u64>; 4] {
    let Budget { residents, ghosts, capacity, .. } = shard.budget;
    let mut nodes = (0, 0);
    let mut data = (0, 0);
    let names = [Queue::T1, Queue::T2, Queue::B1, Queue::B2].map(|queue| {
        let resident = matches!(queue, Queue::T1 | Queue::T2);
        let names = shard.slab.checked(queue).into_iter().map(|index| {
            let slot = shard.slab.slot(index);
            assert_eq!(slot.value.is_some(), resident);
            assert_eq!(shard.find(slot.key.mixed(), &slot.key), Some(index));
            let sum = if slot.class == Class::Node { &mut nodes } else { &mut data };
            if resident {
                *sum = (sum.0 + 1, sum.1 + u64::from(slot.cost));
            }
            slot.key.place
        });
        names.collect::<Vec<_>>()
    });
    assert_eq!(names.iter().map(Vec::len).sum::<usize>(), shard.slab.len() as usize);
    assert_eq!(shard.table.len(), shard.slab.len() as usize);
    let buckets = shard.table.num_buckets();
    assert!(buckets <= TABLE_BUCKETS_MIN || 7 * buckets <= 32 * shard.table.len());
    let stats = shard.stats();
    assert_eq!((stats.class.node.entries, stats.class.node.bytes), nodes);
    assert_eq!((stats.class.data.entries, stats.class.data.bytes), data);
    for (class, sum) in [(stats.class.node, nodes), (stats.class.data, data)] {
        assert_eq!(class.inserts - class.evictions - class.removals, sum.0);
    }
    let bytes = |queue| shard.slab.list(queue).bytes;
    assert!(bytes(Queue::T1) + bytes(Queue::T2) <= residents);
    assert!(bytes(Queue::T1) + bytes(Queue::B1) <= residents);
    assert!(bytes(Queue::B1) + bytes(Queue::B2) <= residents);
    assert!(stats.ghosts <= ghosts && stats.recent_target_bytes <= residents);
    assert!(stats.resident_bytes <= capacity);
    names
}

fn any_op(names: u64) -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..names).prop_map(Op::Read),
        // Skewed towards few names, so that some become frequent.
        12 => (0..names * names).prop_map(move |product| Op::Read(product.isqrt() / 4)),
        4 => (0..names).prop_map(Op::Insert),
        1 => (0..names).prop_map(Op::Remove),
        1 => (0..names, 0..names).prop_map(|(old, new)| Op::Replace(old, new)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// With equal charges: the same hits, and the same names in all four lists in the same order.
    #[test]
    fn equals_the_model(entries in 1_u64..40, ops in prop::collection::vec(any_op(120), 1..1500)) {
        // Large values, so that ARC's own limits bind, not the number of ghosts.
        let charge = 1 << 20;
        let mut shard = Shard::<u64>::new(0);
        let cost = u64::from(charge + shard.budget.overhead);
        // An entry may have a quarter of the shard: not fewer than four fit.
        let room = (entries + 4) * cost + cost / 2;
        shard.set_capacity((room + shard.budget.base) * 48 / 47 + 1000);
        prop_assert_eq!(shard.budget.residents / cost, entries + 4);
        let mut model = Model::new(cost, shard.budget.residents);
        for op in ops {
            match op {
                Op::Read(name) => {
                    prop_assert_eq!(read(&mut shard, name, charge), model.read(name, class(name)));
                }
                Op::Insert(name) => {
                    insert(&mut shard, name, charge);
                    model.insert(name, class(name), None);
                }
                Op::Remove(name) => {
                    shard.remove(key(name).mixed(), &key(name));
                    model.remove(name);
                }
                Op::Replace(old, new) => {
                    replace(&mut shard, old, new, charge);
                    model.replace(old, new, class(new));
                }
            }
            prop_assert_eq!(checked(&shard), model.names());
            prop_assert_eq!(shard.stats.recent_target_bytes, model.target());
        }
        prop_assert_eq!(shard.stats.hits(), model.hits);
    }

    /// For any charges and capacity: the cap and every invariant hold.
    #[test]
    fn stays_under_any_cap(
        ops in prop::collection::vec((any_op(400), 0_u32..40_000), 1..800),
        caps in prop::collection::vec(0_u64..4_000_000, 1..6),
    ) {
        let mut shard = Shard::<u64>::new(1_000_000);
        let pace = ops.len().div_ceil(caps.len());
        for (step, (op, charge)) in ops.into_iter().enumerate() {
            if step % pace == pace / 2 {
                shard.set_capacity(caps[step / pace]);
                checked(&shard);
            }
            match op {
                Op::Read(name) => {
                    read(&mut shard, name, charge);
                }
                Op::Insert(name) => insert(&mut shard, name, charge % 64),
                Op::Remove(name) => {
                    shard.remove(key(name).mixed(), &key(name));
                    prop_assert!(!shard.contains(key(name).mixed(), &key(name)));
                }
                Op::Replace(old, new) => replace(&mut shard, old, new, charge),
            }
            prop_assert!(shard.resident_bytes() <= shard.budget.capacity);
        }
        checked(&shard);
        shard.set_capacity(0);
        prop_assert_eq!(shard.resident_bytes(), 0);
        prop_assert_eq!(checked(&shard), [const { Vec::new() }; 4]);
    }
}

#[test]
fn many_small_values_leave_both_ghost_lists_a_length() {
    let mut shard = Shard::<u64>::new(2 << 20);
    // 100 bytes and nearly as many of overhead: the number of ghosts binds, not their bytes.
    for round in 0..20_u64 {
        // Two sets that become frequent in turn, so that T2 has something to evict.
        let hot = round % 2 * 100_000;
        for name in (hot..hot + 7000).chain(hot..hot + 7000).chain(hot..hot + 7000) {
            read(&mut shard, name, 100);
        }
        for name in 0..6000 {
            read(&mut shard, 1_000_000 + round * 6000 + name, 100);
        }
    }
    let [_, _, b1, b2] = checked(&shard);
    let third = usize::try_from(shard.budget.ghosts / 3).unwrap();
    assert!(b1.len() >= third && b2.len() >= third, "B1 {} B2 {}", b1.len(), b2.len());
}

#[test]
fn a_ghost_comes_back_with_the_charge_it_then_has() {
    let mut shard = Shard::<u64>::new(1 << 20);
    // Data only, as `class` decides. A few become frequent, because a full T1 leaves B1 no room.
    let data = |n: u64| n * 5 + 1;
    for name in (0..100).chain(0..100).chain(0..1000).map(data) {
        read(&mut shard, name, 4096);
    }
    let [_, before, b1, _] = checked(&shard);
    let bytes = shard.stats().frequent_bytes;
    read(&mut shard, b1[0], 9000);
    let [_, after, _, _] = checked(&shard);
    assert_eq!(after, [&b1[..1], &before[..]].concat());
    assert_eq!(shard.stats().frequent_bytes - bytes, 9000 + u64::from(shard.budget.overhead));
}

#[test]
fn one_eviction_passes_a_bounded_number_of_marked_entries() {
    let mut shard = Shard::<u64>::new(8 << 20);
    let fitting = shard.budget.residents / u64::from(4096 + shard.budget.overhead);
    for name in (0..fitting).chain(0..fitting) {
        read(&mut shard, name, 4096);
    }
    assert_eq!(shard.stats.hits(), fitting);
    // Every entry is marked now: many more than the hand may pass.
    read(&mut shard, 1_000_000, 4096);
    let [_, t2, b1, b2] = checked(&shard);
    assert_eq!((t2.len() as u64, b1.len() + b2.len()), (super::SWEEP_MAX, 1));
}
