//! A leaf that a drill takes away and gives back.

use std::sync::Arc;

use aquifer_blockio::{Disk, Page, World};
use aquifer_ondisk::config::{LeafConfig, Redundancy, VdevClass, VdevConfig};
use aquifer_ondisk::layout::LEAF_SEGMENTS_MIN;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_ondisk::{Guid, Txg};
use aquifer_sim::{DiskConfig, Fault, FaultRule, Image, Sim, SimDisk, When};
use aquifer_vdev::{Leaf, LeafState, Vdev};

const SECTORS: u64 = LEAF_SEGMENTS_MIN * SEGMENT_SECTORS;

fn mirror() -> (Sim, Vec<SimDisk>, Vdev) {
    let mut sim = Sim::new(7);
    let mut disk = |at| sim.add_disk(&format!("d{at}"), Image::new(SECTORS), DiskConfig::default());
    let disks: Vec<SimDisk> = (0..2).map(&mut disk).collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let leaf = |(guid, disk): (u64, &SimDisk)| {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Arc::new(Leaf::new(Guid(guid), format!("d{guid}"), Some(disk), world.clone()))
    };
    let leaves: Vec<Arc<Leaf>> = (0..).zip(&disks).map(leaf).collect();
    let of = |leaf: &Arc<Leaf>| LeafConfig::new(leaf.guid, SECTORS, leaf.path.clone());
    let (class, segments) = (VdevClass::Data, LEAF_SEGMENTS_MIN - 2);
    let mut config = VdevConfig::new(Guid(9), class, Redundancy::Mirror, segments, Txg(1));
    config.leaves = leaves.iter().map(of).collect();
    let vdev = Vdev::new(0, &config, leaves, world);
    (sim, disks, vdev)
}

#[test]
fn the_last_side_is_never_taken() {
    let (_sim, _, vdev) = mirror();
    let [one, other] = [&vdev.leaves[0], &vdev.leaves[1]];
    assert!(one.take_away());
    assert_eq!(one.state(), LeafState::Failed);
    assert!(!one.take_away(), "it is away already");
    assert!(one.is_in_drill(), "and stays so");
    assert!(!other.take_away() && other.is_online() && !other.is_in_drill());
}

#[test]
fn it_stays_away_until_it_is_given_back_and_is_read_where_nothing_else_is_good() {
    let (mut sim, disks, vdev) = mirror();
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
    let (_sim, _, vdev) = mirror();
    assert!(vdev.leaves[0].take_away());
    vdev.leaves[0].take_offline();
    vdev.leaves[0].give_back();
    assert!(!vdev.leaves[0].may_come_back());
}
