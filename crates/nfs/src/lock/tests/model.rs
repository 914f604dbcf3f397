//! The table compared with a model: an array of bytes for each owner, and a queue that is searched
//! from its head after every change.
#![expect(clippy::cast_possible_truncation, reason = "offsets of a dozen bytes")]

use proptest::prelude::*;

use super::*;

const BYTES: u64 = 12;
const OWNERS: u8 = 4;

#[derive(Clone, Debug)]
enum Act {
    Lock { by: u8, first: u64, length: u64, exclusive: bool, waits: bool },
    Unlock { by: u8, first: u64, length: u64 },
    Cancel { by: u8 },
    Answer { accepted: bool },
    Free { by: u8 },
}

fn act() -> impl Strategy<Value = Act> {
    let by = 1..=OWNERS;
    let range = (0..BYTES).prop_flat_map(|first| (Just(first), 1..=BYTES - first));
    prop_oneof![
        6 => (by.clone(), range.clone(), any::<bool>(), any::<bool>()).prop_map(
            |(by, (first, length), exclusive, waits)| {
                Act::Lock { by, first, length, exclusive, waits }
            }
        ),
        4 => (by.clone(), range)
            .prop_map(|(by, (first, length))| Act::Unlock { by, first, length }),
        1 => by.clone().prop_map(|by| Act::Cancel { by }),
        2 => any::<bool>().prop_map(|accepted| Act::Answer { accepted }),
        1 => by.prop_map(|by| Act::Free { by }),
    ]
}

/// The lock that each owner holds on each byte.
type Bytes = [[Option<bool>; BYTES as usize]; OWNERS as usize];

#[derive(Clone, Debug, PartialEq)]
struct Wish {
    by: u8,
    first: u64,
    length: u64,
    exclusive: bool,
}

impl Wish {
    fn bytes(&self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.length) as usize
    }

    fn against(&self, other: &Wish) -> bool {
        self.by != other.by
            && (self.exclusive || other.exclusive)
            && self.bytes().start < other.bytes().end
            && other.bytes().start < self.bytes().end
    }
}

#[derive(Default)]
struct Model {
    held: Bytes,
    queue: Vec<Wish>,
    granted: Vec<Wish>,
}

impl Model {
    fn is_free(&self, wish: &Wish) -> bool {
        (1..=OWNERS).filter(|other| *other != wish.by).all(|other| {
            let row = &self.held[usize::from(other) - 1];
            row[wish.bytes()].iter().flatten().all(|exclusive| !exclusive && !wish.exclusive)
        })
    }

    fn queues_behind(&self, wish: &Wish, place: usize) -> bool {
        let holds = self.held[usize::from(wish.by) - 1].iter().any(Option::is_some);
        !holds && self.queue[..place].iter().any(|other| other.against(wish))
    }

    fn put(&mut self, wish: &Wish, kind: Option<bool>) {
        self.held[usize::from(wish.by) - 1][wish.bytes()].fill(kind);
    }

    fn settle(&mut self, wish: &Wish) {
        self.granted.retain(|grant| {
            let apart =
                grant.bytes().end <= wish.bytes().start || wish.bytes().end <= grant.bytes().start;
            grant.by != wish.by || apart
        });
    }

    fn serve(&mut self) {
        let next = |this: &Model| {
            let served = |(place, wish): (usize, &Wish)| {
                this.is_free(wish) && !this.queues_behind(wish, place)
            };
            this.queue.iter().enumerate().position(served)
        };
        while let Some(place) = next(self) {
            let wish = self.queue.remove(place);
            self.put(&wish, Some(wish.exclusive));
            self.granted.push(wish);
        }
    }

    fn lock(&mut self, wish: Wish, waits: bool) -> &'static str {
        let place = self.queue.iter().position(|other| *other == wish);
        let free = self.is_free(&wish);
        if !free && !waits {
            return "denied";
        }
        if !free || waits && self.queues_behind(&wish, place.unwrap_or(self.queue.len())) {
            if place.is_none() {
                self.queue.push(wish);
            }
            return "blocked";
        }
        place.map(|place| self.queue.remove(place));
        self.settle(&wish);
        self.put(&wish, Some(wish.exclusive));
        self.serve();
        "granted"
    }
}

fn bytes_of(table: &Table) -> Bytes {
    let mut bytes = Bytes::default();
    for view in table.list().iter().filter(|view| view.state != LockState::Waiting) {
        let (range, exclusive) = match view.kind {
            LockKind::Shared(range) => (range, false),
            LockKind::Exclusive(range) => (range, true),
            LockKind::Share { .. } => continue,
        };
        let by = (1..=OWNERS).position(|by| view.owner == owner(by, 1)).unwrap();
        for byte in range.first..=range.last {
            assert_eq!(bytes[by][byte as usize], None, "an owner's locks do not overlap");
            bytes[by][byte as usize] = Some(exclusive);
        }
    }
    bytes
}

fn told(table: &mut Table) -> Vec<(u64, Wish)> {
    let each = table.grants.take_new().into_iter().filter_map(|(_, grant)| {
        let waiter = &table.grants.get(grant)?.waiter;
        let by = (1..=OWNERS).find(|by| *waiter.owner == *owner(*by, 1)).unwrap();
        let (first, length) = (waiter.range.first, waiter.range.length());
        Some((grant, Wish { by, first, length, exclusive: waiter.exclusive }))
    });
    each.collect()
}

/// An owner with two grants refused the wider one, and then held nothing. The server does not
/// announce the other grant after the owner has unlocked.
#[test]
fn a_grant_ends_with_unlock_although_nothing_is_held() {
    let (mut table, one, four) = (Table::default(), owner(1, 1), owner(4, 1));
    let granted = |locked: &Locked| matches!(locked, Locked::Granted);
    assert!(granted(&table.lock(file(1), &ask(&one, 8, 1, true), false)));
    assert!(!granted(&table.lock(file(1), &ask(&four, 4, 6, true), true)));
    assert!(!granted(&table.lock(file(1), &ask(&four, 3, 9, false), true)));
    assert!(table.unlock(file(1), &one, Range::new(8, 1).unwrap()));
    let grants: Vec<u64> = told(&mut table).into_iter().map(|(grant, _)| grant).collect();
    assert_eq!(grants.len(), 2);
    table.answered(grants[1], false);
    assert!(table.grants.get(grants[0]).is_some());
    assert!(table.unlock(file(1), &four, Range::new(9, 1).unwrap()));
    assert!(table.grants.get(grants[0]).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn the_table_does_what_the_model_does(acts in prop::collection::vec(act(), 1..60)) {
        let (mut table, mut model) = (Table::default(), Model::default());
        let mut on_their_way: Vec<(u64, Wish)> = Vec::new();
        for act in acts {
            match act {
                Act::Lock { by, first, length, exclusive, waits } => {
                    let wish = ask(&owner(by, 1), first, length, exclusive);
                    let outcome = match table.lock(file(1), &wish, waits) {
                        Locked::Granted => "granted",
                        Locked::Denied(_) => "denied",
                        Locked::Blocked => "blocked",
                        Locked::NoLocks | Locked::Later => "too many",
                    };
                    let expected = model.lock(Wish { by, first, length, exclusive }, waits);
                    prop_assert_eq!(outcome, expected);
                }
                Act::Unlock { by, first, length } => {
                    let range = Range::new(first, length).unwrap();
                    prop_assert!(table.unlock(file(1), &owner(by, 1), range));
                    let wish = Wish { by, first, length, exclusive: true };
                    model.settle(&wish);
                    model.put(&wish, None);
                    model.serve();
                }
                Act::Cancel { by } => {
                    let Some(place) = model.queue.iter().position(|wish| wish.by == by) else {
                        continue;
                    };
                    let wish = model.queue.remove(place);
                    let cancelled = ask(&owner(by, 1), wish.first, wish.length, wish.exclusive);
                    prop_assert!(table.cancel(file(1), &cancelled));
                    model.serve();
                }
                Act::Answer { accepted } => {
                    let Some((grant, wish)) = on_their_way.pop() else { continue };
                    table.answered(grant, accepted);
                    let known = model.granted.iter().position(|other| *other == wish);
                    if let Some(known) = known {
                        model.granted.remove(known);
                        if !accepted {
                            model.put(&wish, None);
                            model.serve();
                        }
                    }
                }
                Act::Free { by } => {
                    table.free(|client| *client == *owner(by, 1).client);
                    model.held[usize::from(by) - 1].fill(None);
                    model.queue.retain(|wish| wish.by != by);
                    model.granted.retain(|wish| wish.by != by);
                    model.serve();
                }
            }
            prop_assert_eq!(bytes_of(&table), model.held);
            on_their_way.extend(told(&mut table));
            on_their_way.retain(|(grant, _)| table.grants.get(*grant).is_some());
            let mut going: Vec<_> = on_their_way.iter().map(|(_, wish)| wish.clone()).collect();
            let mut expected = model.granted.clone();
            let order = |wish: &Wish| (wish.by, wish.first, wish.length, wish.exclusive);
            going.sort_by_key(order);
            expected.sort_by_key(order);
            prop_assert_eq!(going, expected);
            let list = table.list();
            let waiting = list.iter().filter(|view| view.state == LockState::Waiting);
            prop_assert_eq!(waiting.count(), model.queue.len());
        }
        table.free(|_| true);
        prop_assert!(table.list().is_empty() && table.clients().count() == 0);
    }
}
