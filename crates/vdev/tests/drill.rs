//! A leaf that a drill takes away and gives back, and one that is taken out because it errs.

mod mirror;

use aquifer_blockio::Page;
use aquifer_sim::{DiskConfig, Fault, FaultRule, When};
use aquifer_vdev::LeafState;
use futures_util::future::join_all;

use mirror::{Mirror, mirror};

#[test]
fn the_last_side_is_never_taken() {
    let Mirror { vdev, sim: _sim, .. } = mirror(DiskConfig::default());
    let [one, other] = [&vdev.leaves[0], &vdev.leaves[1]];
    assert!(one.take_away());
    assert_eq!(one.state(), LeafState::Failed);
    assert!(!one.take_away(), "it is away already");
    assert!(one.is_in_drill(), "and stays so");
    assert!(!other.take_away() && other.is_online() && !other.is_in_drill());
}

#[test]
fn it_stays_away_until_it_is_given_back_and_is_read_where_nothing_else_is_good() {
    let Mirror { mut sim, disks, vdev } = mirror(DiskConfig::default());
    let [one, other] = [&vdev.leaves[0], &vdev.leaves[1]];
    let page = || vec![Page::with_prefix(&[7])];
    sim.run_until(vdev.write(600, page())).unwrap().unwrap();
    assert!(one.take_away());
    one.set_outdated();
    assert!(!one.may_come_back() && !one.was_asked_back());
    // It gets no writes.
    let before = disks[0].counters().writes;
    sim.run_until(vdev.write(601, page())).unwrap().unwrap();
    assert_eq!(disks[0].counters().writes, before);
    // What the other side does not give, it does.
    let is_it = |pages: &[Page]| pages.iter().all(|page| page[0] == 7);
    disks[1].inject(FaultRule::new(Fault::ReadError, When::Always));
    sim.run_until(vdev.read(600, 1, &is_it)).unwrap().unwrap();
    assert!(sim.run_until(vdev.read(601, 1, &is_it)).unwrap().is_err());
    assert!(other.is_online());
    one.give_back();
    assert!(one.may_come_back() && one.was_asked_back() && !one.is_in_drill());
}

#[test]
fn an_administrator_who_took_it_offline_meanwhile_has_the_last_word() {
    let Mirror { vdev, sim: _sim, .. } = mirror(DiskConfig::default());
    assert!(vdev.leaves[0].take_away());
    vdev.leaves[0].take_offline();
    vdev.leaves[0].give_back();
    assert!(!vdev.leaves[0].may_come_back());
}

/// Reads that were under way fail after it was taken out: the reason is still told.
#[test]
fn why_a_side_is_out_of_use_stays() {
    let Mirror { mut sim, disks, vdev } = mirror(DiskConfig::default());
    disks[0].inject(FaultRule::new(Fault::ReadError, When::Always));
    let is_it = |_: &[Page]| true;
    let reads = join_all((0..40).map(|at| vdev.read(600 + at, 1, &is_it)));
    assert!(sim.run_until(reads).unwrap().iter().all(Result::is_ok));
    let leaf = &vdev.leaves[0];
    assert!(leaf.is_faulted());
    let why = leaf.last_error().unwrap();
    assert!(why.starts_with("too many errors: 10 reads in 10 minutes; read at"), "{why}");
}
