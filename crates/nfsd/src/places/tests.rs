//! Random places beside a plain list of them.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use proptest::prelude::*;

use super::{GREEDY, Holder, Places, Principal, Rank, Taken};

#[derive(Debug, Clone, Copy)]
struct Idle(Option<u64>);

impl Holder for Idle {
    fn idle_since(&self) -> Option<u64> {
        self.0
    }
}

/// The list: what each number is.
type List = Vec<(u64, Taken<Idle>)>;

fn has(list: &List, rank: Rank, principal: &Principal) -> usize {
    let is_its = |taken: &Taken<Idle>| taken.rank == rank && taken.principal == *principal;
    list.iter().filter(|(_, taken)| is_its(taken)).count()
}

/// The module's first invariant, word for word.
fn first(
    list: &List,
    ranks: &RangeInclusive<Rank>,
    newcomer_has: usize,
    may: impl Fn(&Taken<Idle>) -> bool,
) -> Option<u64> {
    let may_go = list.iter().filter(|(_, taken)| ranks.contains(&taken.rank) && may(taken));
    let order = |(number, taken): &(u64, Taken<Idle>)| {
        let count = has(list, taken.rank, &taken.principal);
        let since = taken.holder.0;
        let order = (taken.rank, Reverse(count), since.is_none(), since, *number);
        (count >= newcomer_has).then_some(order)
    };
    may_go.filter_map(order).min().map(|(.., number)| number)
}

fn site(number: u64) -> IpAddr {
    IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()])
}

fn principal(number: u64) -> Principal {
    match number {
        0 => Principal::Token("t".into()),
        number => Principal::Site(site(number)),
    }
}

/// Step that happens next.
#[derive(Debug, Clone)]
enum Step {
    Take(Rank, u64, u64, Option<u64>),
    Change(prop::sample::Index, Rank, u64),
    Leave(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let (rank, of, since) = (0..3_u8, 0..4_u64, prop::option::of(0..9_u64));
    prop_oneof![
        3 => (rank.clone(), of.clone(), 1..4_u64, since)
            .prop_map(|(rank, of, site, since)| Step::Take(rank, of, site, since)),
        2 => (any::<prop::sample::Index>(), rank, of)
            .prop_map(|(at, rank, of)| Step::Change(at, rank, of)),
        1 => any::<prop::sample::Index>().prop_map(Step::Leave),
    ]
}

fn take(step: Step, places: &mut Places<Idle>, list: &mut List) {
    match step {
        Step::Take(rank, of, at, since) => {
            let (site, holder) = (site(at), Idle(since));
            let taken = || Taken { site, principal: principal(of), rank, holder };
            list.push((places.take(taken()), taken()));
        }
        Step::Change(at, rank, of) if !list.is_empty() => {
            let at = at.index(list.len());
            let (number, taken) = &mut list[at];
            places.change(*number, rank, &principal(of));
            (taken.rank, taken.principal) = (rank, principal(of));
        }
        Step::Leave(at) if !list.is_empty() => {
            let (number, taken) = list.remove(at.index(list.len()));
            assert_eq!(places.leave(number).map(|idle| idle.0), Some(taken.holder.0));
            assert!(places.leave(number).is_none());
        }
        Step::Change(..) | Step::Leave(_) => {}
    }
}

proptest! {
    #[test]
    fn the_first_to_go_is_that_of_a_plain_list(
        steps in prop::collection::vec(step(), 1..60),
        early in 0..9_u64,
        least in 0..6_usize,
    ) {
        let (mut places, mut list) = (Places::default(), List::new());
        for step in steps {
            take(step, &mut places, &mut list);
            for (low, high) in [(0, 0), (0, 1), (1, 2), (0, 2), (2, 0)] {
                let ranks = low..=high;
                let may = |taken: &Taken<Idle>| taken.holder.0.is_some_and(|since| since <= early);
                let found = places.first(ranks.clone(), least, may);
                prop_assert_eq!(found, first(&list, &ranks, least, may));
                let greedy = GREEDY * (least + 1) + 1;
                let found = places.first_of_greedy(ranks.clone(), least);
                prop_assert_eq!(found, first(&list, &ranks, greedy, |_| true));
            }
            prop_assert_eq!(places.len(), list.len());
            let of_site = list.iter().filter(|(_, taken)| taken.site == site(1)).count();
            prop_assert_eq!(places.of_site(site(1)), of_site);
            prop_assert_eq!(places.of(1, &principal(0)), has(&list, 1, &principal(0)));
            let of_rank = list.iter().filter(|(_, taken)| taken.rank == 1).count();
            prop_assert_eq!(places.of_rank(1), of_rank);
        }
    }
}
