//! Owners that keep what nobody asks them for.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use aquifer_sync::Mutex;

use super::{Owner, Room, Shelf, Verdict};
use crate::Memory;

const CAP: u64 = 16 << 20;
const BYTES: u64 = 700;

#[derive(Debug, Default)]
struct Shop(Mutex<BTreeMap<u64, Arc<Room>>>);

impl Owner for Shop {
    fn let_go(&self, key: u64, number: u64) -> Verdict {
        let mut all = self.0.lock();
        let Some(room) = all.get(&key).filter(|room| room.number() == number) else {
            return Verdict::Gone;
        };
        if Arc::strong_count(room) > 1 || room.was_used() {
            return Verdict::Stays;
        }
        all.remove(&key);
        Verdict::Gone
    }
}

/// Looks a thing up; it is made if it is not there.
fn visit(shelf: &Arc<Shelf>, shop: &Arc<Shop>, key: u64) -> Arc<Room> {
    if let Some(room) = shop.0.lock().get(&key) {
        room.is_used();
        return Arc::clone(room);
    }
    let room = Arc::new(shelf.room(BYTES));
    let known: Weak<Shop> = Arc::downgrade(shop);
    shelf.put(&room, known, key);
    shop.0.lock().insert(key, Arc::clone(&room));
    shelf.tidy();
    room
}

#[test]
fn owners_together_keep_no_more_than_the_cap() {
    let memory = Memory::new(CAP);
    let shelf = memory.shelf();
    let shops: Vec<Arc<Shop>> = (0..200).map(|_| Arc::default()).collect();
    for shop in &shops {
        for key in 0..5_000 {
            visit(&shelf, shop, key);
            assert!(shelf.held_bytes() <= shelf.cap_bytes() + BYTES + 200);
        }
    }
    assert!(shelf.held_bytes() > shelf.cap_bytes() / 10 * 9, "and that much they may keep");
    assert!(memory.charged_bytes() >= shelf.held_bytes());
    let kept: usize = shops.iter().map(|shop| shop.0.lock().len()).sum();
    assert!(kept as u64 * BYTES <= shelf.cap_bytes());
    drop(shops);
    assert_eq!(shelf.held_bytes(), 0);
    assert!(shelf.charged_bytes() <= 2 * CAP / 256, "what is gone is charged to nobody");
}

#[test]
fn what_is_in_use_or_used_again_outlives_a_scan() {
    let memory = Memory::new(CAP);
    let (shelf, shop) = (memory.shelf(), Arc::<Shop>::default());
    let held = visit(&shelf, &shop, 1_000_000);
    for key in 0..100_000 {
        visit(&shelf, &shop, key);
        visit(&shelf, &shop, 1_000_001);
    }
    let all = shop.0.lock();
    assert!(Arc::ptr_eq(&all[&1_000_000], &held));
    assert!(all.contains_key(&1_000_001));
    assert!(!all.contains_key(&0), "used once, and longest ago");
}

#[test]
fn all_in_use_stays_and_goes_once_it_is_not() {
    let memory = Memory::new(CAP);
    let (shelf, shop) = (memory.shelf(), Arc::<Shop>::default());
    let held: Vec<Arc<Room>> = (0..3_000).map(|key| visit(&shelf, &shop, key)).collect();
    assert!(shelf.held_bytes() > shelf.cap_bytes());
    shelf.trim();
    assert_eq!(shop.0.lock().len(), 3_000);
    drop(held);
    shelf.trim();
    assert!(shelf.held_bytes() <= shelf.cap_bytes());
}

#[test]
fn things_that_leave_by_themselves_leave_no_places() {
    let memory = Memory::new(CAP);
    let (shelf, shop) = (memory.shelf(), Arc::<Shop>::default());
    for key in 0..100_000 {
        visit(&shelf, &shop, key);
        shop.0.lock().remove(&key);
    }
    assert!(shelf.line.lock().things.len() < 100);
    assert!(shelf.line.lock().things.capacity() < 1_000);
}
