use std::sync::Arc;

use aquifer_blockio::{FileDisk, OpenOptions, TokioWorld};
use aquifer_ondisk::config::{Redundancy, VdevClass};
use aquifer_ondisk::uberblock::{Host, Outdated};
use aquifer_pool::create::{NamedDisk, PoolSpec, VdevSpec, create};
use aquifer_pool::import::scan;
use tokio::runtime::{Builder, Handle};

use super::*;

const HOST: u64 = 7;

/// The disks of a new pool: a mirror and a single disk. And the pool's entry in the list, as it is
/// after a suspension.
fn pool() -> (tempfile::TempDir, Vec<FoundLeaf>, CachedPool) {
    let dir = tempfile::tempdir().unwrap();
    let disk = |name: &str| {
        let path = dir.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
        let disk = Arc::new(FileDisk::open(&path, OpenOptions::exclusive()).unwrap());
        NamedDisk { path: path.to_str().unwrap().into(), disk }
    };
    let disks = ["a", "b", "c"].map(disk);
    let [a, b, c] = disks.clone();
    let vdev = |redundancy, disks| VdevSpec { redundancy, disks };
    let vdevs = vec![vdev(Redundancy::Mirror, vec![a, b]), vdev(Redundancy::Single, vec![c])];
    let spec = PoolSpec { name: "tank".into(), vdevs, logs: Vec::new(), force: true };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut leaves: Vec<FoundLeaf> = runtime.block_on(async move {
        let world = Arc::new(TokioWorld::new(Handle::current()));
        let guid = create(world, spec).await.unwrap().pool_guid;
        scan(disks.into()).await.0.remove(&guid).unwrap()
    });
    // A new pool is clean, until it is in service.
    leaves.iter_mut().for_each(|leaf| leaf.labels.uberblocks[0].clean = false);
    let config = &leaves[0].labels.label.config;
    assert!(config.vdevs.iter().all(|vdev| vdev.class == VdevClass::Data));
    let note = |leaf: &aquifer_ondisk::config::LeafConfig| WholeDisk {
        guid: guid_text(leaf.guid.0),
        path: leaf.path.clone().into(),
    };
    let of_vdev =
        |vdev: &aquifer_ondisk::config::VdevConfig| vdev.leaves.iter().map(note).collect();
    let vdevs = config.vdevs.iter().map(of_vdev).collect();
    let sequence = leaves[0].labels.uberblocks[0].sequence;
    let cached = CachedPool {
        name: "tank".into(),
        guid: guid_text(config.pool_guid.0),
        disks: all_paths(&leaves),
        whole: Some(WholeNote { vdevs, sequence }),
        two_persons: None,
    };
    (dir, leaves, cached)
}

fn without(leaves: &[FoundLeaf], gone: &[usize]) -> Vec<FoundLeaf> {
    let there = leaves.iter().enumerate().filter(|(at, _)| !gone.contains(at));
    there.map(|(_, leaf)| leaf.clone()).collect()
}

fn lacks(leaves: &[FoundLeaf], cached: &CachedPool) -> String {
    match enough(leaves, cached, HOST) {
        Enough::No(why) => why,
        enough => panic!("{enough:?}"),
    }
}

#[test]
fn each_vdev_needs_one_that_held_everything() {
    let (_dir, all, mut cached) = pool();
    assert_eq!(enough(&all, &cached, HOST), Enough::All);
    assert_eq!(enough(&without(&all, &[0]), &cached, HOST), Enough::Some);
    assert_eq!(enough(&without(&all, &[1]), &cached, HOST), Enough::Some);
    let [a, b, c] = [0, 1, 2].map(|at| all[at].disk.path.clone());
    assert_eq!(lacks(&without(&all, &[2]), &cached), format!("{c} is missing"));
    let both = format!("{a} is missing, {b} is missing");
    assert_eq!(lacks(&without(&all, &[0, 1]), &cached), both);
    assert_eq!(lacks(&[], &cached), format!("{both}; {c} is missing"));
    // The second side failed before: it counts for nothing, but may come with the others.
    cached.whole.as_mut().unwrap().vdevs[0].pop();
    assert_eq!(enough(&without(&all, &[1]), &cached, HOST), Enough::Some);
    assert_eq!(lacks(&without(&all, &[0]), &cached), format!("{a} is missing"));
    // A vdev that the pool did without, as it does without a lost log, is not waited for.
    cached.whole.as_mut().unwrap().vdevs[1].clear();
    assert_eq!(enough(&without(&all, &[2]), &cached, HOST), Enough::Some);
    // Nor is a side that an uberblock names.
    let named = Outdated { leaf: all[1].labels.label.leaf_guid, since: 0 };
    let mut named_by = all.clone();
    named_by[0].labels.uberblocks[0].sequence += 1;
    named_by[0].labels.uberblocks[0].outdated.push(named);
    assert_eq!(enough(&without(&named_by, &[1]), &cached, HOST), Enough::All);
}

#[test]
fn a_disk_must_be_what_it_was() {
    let (_dir, all, cached) = pool();
    let path = all[2].disk.path.clone();
    let changed = |change: &dyn Fn(&mut Vec<aquifer_ondisk::uberblock::Uberblock>)| {
        let mut leaves = all.clone();
        change(&mut leaves[2].labels.uberblocks);
        enough(&leaves, &cached, HOST)
    };
    let no = |why: &str| Enough::No(format!("{path} {why}"));
    let older = no("holds an older state, as a copy made before does");
    assert_eq!(changed(&|all| all[0].sequence -= 1), older);
    assert_eq!(changed(&|all| all.clear()), no("has no valid uberblock"));
    let by = |id| Some(Host { id, name: "other".into() });
    let used = no("was used by another host since");
    assert_eq!(changed(&|all| all[0].host = by(HOST + 1)), used);
    assert_eq!(changed(&|all| all[0].clean = true), used);
    // One of this host, which was not counted when the pool was suspended, or by an import since.
    assert_eq!(changed(&|all| (all[0].sequence, all[0].host) = (9, by(HOST))), Enough::All);
}

/// A side that an import does without may fall behind: it does not bring the pool up alone later.
#[test]
fn what_an_import_does_without_is_struck() {
    let (_dir, all, cached) = pool();
    let whole = without_others(cached.whole.as_ref().unwrap(), &without(&all, &[1]));
    let narrowed = CachedPool { whole: Some(whole), ..cached };
    assert_eq!(enough(&without(&all, &[1]), &narrowed, HOST), Enough::Some);
    let missing = format!("{} is missing", all[0].disk.path);
    assert_eq!(lacks(&without(&all, &[0]), &narrowed), missing);
}

/// Without a note it goes by what an import needs.
#[test]
fn a_pool_that_was_not_suspended_needs_what_an_import_needs() {
    let (_dir, mut all, cached) = pool();
    let cached = CachedPool { whole: None, ..cached };
    assert_eq!(enough(&all, &cached, HOST), Enough::All);
    assert_eq!(enough(&without(&all, &[0]), &cached, HOST), Enough::Some);
    let missing = format!("disks are missing or outdated: {}", all[2].disk.path);
    assert_eq!(lacks(&without(&all, &[2]), &cached), missing);
    assert!(lacks(&[], &cached).starts_with("none of its disks was found: "));
    // One that another names outdated does not count.
    let outdated = all[1].labels.label.leaf_guid;
    let named = Outdated { leaf: outdated, since: 0 };
    all[2].labels.uberblocks[0].outdated.push(named);
    assert!(matches!(enough(&without(&all, &[0]), &cached, HOST), Enough::No(_)));
    assert_eq!(enough(&without(&all, &[1]), &cached, HOST), Enough::All);
}
