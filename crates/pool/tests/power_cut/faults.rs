//! Faults of single disks: the pool's reaction, and the result of the next import.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::{Disk, World};
use aquifer_ondisk::config::Redundancy;
use aquifer_ondisk::layout::{Geometry, LABEL_SECTORS};
use aquifer_pool::PoolError;
use aquifer_pool::create::create;
use aquifer_pool::import::{ImportOptions, import, scan};
use aquifer_sim::{
    Corruption, CutMode, CutPlan, DiskConfig, Fault, FaultRule, Image, Sim, SimDisk, Stop, Vanish,
    When,
};
use aquifer_vdev::LeafState;

use crate::clients::{Open, open};
use crate::shapes::{Shape, base, named};
use crate::slots::{How, SLOTS, content, version_of};

pub struct Fixture {
    pub sim: Sim,
    pub world: Arc<dyn World>,
    pub disks: Vec<SimDisk>,
}

impl Fixture {
    pub fn new(shape: Shape) -> Fixture {
        Fixture::with_seed(shape, 11)
    }

    fn with_seed(shape: Shape, seed: u64) -> Fixture {
        let mut sim = Sim::new(seed);
        let images = base(shape).into_iter().enumerate();
        let disks = images
            .map(|(at, image)| sim.add_disk(&format!("d{at}"), image, DiskConfig::default()))
            .collect();
        Fixture { world: Arc::new(sim.world()), sim, disks }
    }

    /// Runs `work` on the imported pool, then ends the process without an export.
    pub fn with_pool<T>(&mut self, work: impl AsyncFnOnce(&Open) -> T) -> T {
        let done = self.live(work);
        self.sim.kill();
        done.unwrap()
    }

    /// Runs `work` on the imported pool.
    fn live<T>(&mut self, work: impl AsyncFnOnce(&Open) -> T) -> Result<T, Stop> {
        let (world, disks) = (self.world.clone(), named(&self.disks));
        self.sim.run_until(async {
            let open = open(world.clone(), disks, &ImportOptions::default()).await.unwrap();
            world.spawn("txg", open.pool.clone().run());
            work(&open).await
        })
    }
}

pub async fn write(open: &Open, slot: u64, version: u64) -> Result<(), PoolError> {
    let ticket = open.slots.write(slot, content(slot, version), How::Stable, 1).await?;
    ticket.unwrap().durable().await
}

pub async fn version(open: &Open, slot: u64) -> u64 {
    version_of(slot, &open.slots.read(slot).await.unwrap().unwrap())
}

pub fn states(open: &Open) -> Vec<LeafState> {
    let vdevs = open.pool.status().vdevs;
    vdevs.iter().flat_map(|vdev| &vdev.leaves).map(|leaf| leaf.state).collect()
}

/// A disk of the log is named by its path or its guid, and by nothing else.
#[test]
fn a_disk_of_the_log_has_two_names() {
    let mut fixture = Fixture::new(Shape::MirrorLogMirror);
    let disks = named(&fixture.disks);
    let log = disks[2].path.clone();
    fixture.with_pool(async |open| {
        let pool = &open.pool;
        let guid = pool.status().vdevs[1].leaves[0].guid.to_string();
        assert_eq!(pool.status().vdevs[1].leaves[0].path, log);
        for name in [&log, &guid] {
            pool.offline_disk(name, false).await.unwrap();
            assert_ne!(states(open)[2], LeafState::Online, "{name}");
            pool.online_disk(name, disks[2].clone(), false).await.unwrap();
            assert_eq!(states(open)[2], LeafState::Online, "{name}");
        }
        for name in ["nothing", ""] {
            let refused = pool.offline_disk(name, false).await.unwrap_err().to_string();
            assert!(refused.contains("no"), "{refused}");
        }
    });
}

#[test]
fn the_only_disk_fails_a_flush_and_serves_again_after_an_import() {
    let mut fixture = Fixture::new(Shape::Single);
    let disk = fixture.disks[0].clone();
    fixture.with_pool(async |open| {
        write(open, 1, 1).await.unwrap();
        open.pool.sync().await.unwrap();
        write(open, 2, 1).await.unwrap();
        disk.inject(FaultRule::new(Fault::FlushError, When::OnceAfter(0)));
        // This write and all later ones are not acknowledged, although the disk's next flush would
        // succeed.
        assert!(matches!(write(open, 3, 1).await, Err(PoolError::Suspended(_))));
        assert!(matches!(write(open, 4, 1).await, Err(PoolError::Suspended(_))));
        assert!(open.pool.sync().await.is_err());
        assert!(open.pool.suspended().is_some());
    });
    disk.clear_faults();
    fixture.with_pool(async |open| {
        assert_eq!(states(open), [LeafState::Online]);
        assert_eq!(version(open, 1).await, 1);
        assert_eq!(version(open, 2).await, 1);
        write(open, 3, 2).await.unwrap();
        open.pool.sync().await.unwrap();
    });
    fixture.with_pool(async |open| assert_eq!(version(open, 3).await, 2));
}

/// Reads may find first that the disks are gone. That is no I/O error of a file: clients wait until
/// the pool is back.
#[test]
fn a_read_from_disks_that_are_gone_suspends_the_pool() {
    for shape in [Shape::Single, Shape::Mirror] {
        let mut fixture = Fixture::new(shape);
        let disks = fixture.disks.clone();
        fixture.with_pool(async |open| {
            write(open, 1, 1).await.unwrap();
            open.pool.sync().await.unwrap();
        });
        fixture.with_pool(async |open| {
            disks.iter().for_each(|disk| disk.vanish(Vanish::LinkLost));
            let read = open.slots.read(1).await;
            assert!(matches!(read, Err(PoolError::Suspended(_))), "{shape:?}: {read:?}");
            assert!(open.pool.suspended().is_some());
        });
        disks.iter().for_each(SimDisk::come_back);
        fixture.with_pool(async |open| assert_eq!(version(open, 1).await, 1));
    }
}

/// A side that is gone, beside one that cannot read this place, is no reason to suspend the pool:
/// the other side answers.
#[test]
fn a_read_beside_a_side_that_is_gone_suspends_nothing() {
    for (gone, there) in [(0, 1), (1, 0)] {
        let mut fixture = Fixture::new(Shape::Mirror);
        let disks = fixture.disks.clone();
        fixture.with_pool(async |open| {
            write(open, 1, 1).await.unwrap();
            open.pool.sync().await.unwrap();
        });
        fixture.with_pool(async |open| {
            let place = open.slots.committed(1).unwrap().place;
            disks[there].mark_unreadable(place.sector()..place.sector() + 1);
            disks[gone].vanish(Vanish::LinkLost);
            let read = open.slots.read(1).await;
            assert!(matches!(read, Err(PoolError::Read(_))), "{gone} is gone: {read:?}");
            assert_eq!(open.pool.suspended(), None, "{gone} is gone");
        });
    }
}

#[test]
fn a_side_that_failed_a_flush_is_outdated_until_it_is_resilvered() {
    let mut fixture = Fixture::new(Shape::Mirror);
    let disk = fixture.disks[1].clone();
    fixture.with_pool(async |open| {
        write(open, 1, 1).await.unwrap();
        disk.inject(FaultRule::new(Fault::FlushError, When::OnceAfter(0)));
        write(open, 1, 2).await.unwrap();
        // Named before the acknowledgement: this side alone must not come up as whole.
        assert_eq!(states(open), [LeafState::Online, LeafState::Outdated]);
        assert!(open.pool.suspended().is_none());
    });
    disk.clear_faults();
    let world = fixture.world.clone();
    fixture.with_pool(async |open| {
        assert_eq!(states(open), [LeafState::Online, LeafState::Outdated]);
        assert_eq!(version(open, 1).await, 2);
        write(open, 1, 3).await.unwrap();
        while states(open) != [LeafState::Online, LeafState::Online] {
            world.sleep(Duration::from_millis(100)).await;
        }
    });
    // Alone it holds what it missed, and what came while it was resilvered.
    fixture.disks[0].vanish(Vanish::PowerLost);
    fixture.with_pool(async |open| {
        assert_eq!(states(open), [LeafState::Missing, LeafState::Online]);
        assert_eq!(version(open, 1).await, 3);
    });
}

/// A flush fails, and the process dies before anything on disk records that. The next process reads
/// early data there that no flush will ever make durable. If the data counts, it must count on each
/// side.
#[test]
fn what_a_failed_flush_left_in_a_cache_is_written_again() {
    let mut counted = 0;
    for (shape, event) in [Shape::Single, Shape::Mirror]
        .into_iter()
        .flat_map(|shape| (0..60).map(move |event| (shape, event)))
    {
        let mut fixture = Fixture::with_seed(shape, event);
        let bad = fixture.disks.last().unwrap().clone();
        let life = async |open: &Open| {
            bad.inject(FaultRule::new(Fault::FlushError, When::OnceAfter(0)));
            let ticket = open.slots.write(3, content(3, 1), How::Early, 1).await.unwrap();
            let _ = ticket.unwrap().durable().await;
        };
        fixture.sim.plan_cut(CutPlan::AtEvent(30 + event));
        let _ = fixture.live(life);
        fixture.sim.kill();
        bad.clear_faults();
        let found = fixture.with_pool(async |open| {
            let found = open.slots.read(3).await.unwrap().map(|page| version_of(3, &page));
            open.pool.sync().await.unwrap();
            let whole = states(open).iter().all(|state| *state == LeafState::Online);
            whole.then_some(found).flatten()
        });
        fixture.sim.power_cut(CutMode::AllLost);
        if let Some(found) = found {
            counted += 1;
            if let [other, _] = &fixture.disks[..] {
                other.vanish(Vanish::PowerLost);
            }
            assert_eq!(
                fixture.with_pool(async |open| version(open, 3).await),
                found,
                "{shape:?} {event}"
            );
        }
    }
    println!("{counted} counted");
    assert!(counted > 0, "the data was never found");
}

#[test]
fn what_cannot_be_made_leaves_the_disks_alone() {
    let mut sim = Sim::new(12);
    let world: Arc<dyn World> = Arc::new(sim.world());
    let config = DiskConfig::default();
    let images = base(Shape::Mirror);
    let disks: Vec<SimDisk> = images
        .iter()
        .enumerate()
        .map(|(at, image)| sim.add_disk(&format!("d{at}"), image.clone(), config))
        .collect();
    let small = sim.add_disk("small", Image::new(1024), config);
    let forced = |change: &dyn Fn(&mut aquifer_pool::create::PoolSpec)| {
        let mut spec = Shape::Mirror.spec(named(&disks));
        spec.force = true;
        change(&mut spec);
        spec
    };
    let refused = [
        forced(&|spec| spec.vdevs[0].disks[1].path = "x".repeat(2000)),
        forced(&|spec| spec.name = "1tank".into()),
        forced(&|spec| spec.vdevs[0].disks[1].path = "d0".into()),
        forced(&|spec| spec.vdevs[0].redundancy = Redundancy::Single),
        forced(&|spec| spec.vdevs[0].disks.extend(named(std::slice::from_ref(&small)))),
    ];
    for spec in refused {
        sim.run_until(create(world.clone(), spec)).unwrap().unwrap_err();
    }
    assert!(disks.iter().all(|disk| disk.counters().writes == 0), "a disk was written");
    let (pools, _) = sim.run_until(scan(named(&disks))).unwrap();
    assert_eq!(pools.len(), 1, "the pool that was there is there still");
}

/// A disk that does not return a bitmap at once is asked again: no metaslab is closed for that.
#[test]
fn a_bitmap_that_cannot_be_read_at_once_closes_nothing() {
    let mut fixture = Fixture::new(Shape::Mirror);
    let place = fixture.with_pool(async |open| {
        for slot in 0..SLOTS {
            write(open, slot, 1).await.unwrap();
        }
        for _ in 0..8 {
            open.pool.sync().await.unwrap();
        }
        open.slots.committed(0).unwrap().place
    });
    let geometry = Geometry::new(0, 63, Redundancy::Mirror);
    let index = place.sector() / geometry.metaslab_sectors();
    for slot in 0..4 {
        let first = geometry.slot_place(index, slot, 0).sector();
        let rule = FaultRule::once(Fault::ReadError).within(first..first + 1);
        fixture.disks.iter().for_each(|disk| disk.inject(rule.clone()));
    }
    fixture.with_pool(async |open| {
        write(open, 0, 2).await.unwrap();
        open.pool.sync().await.unwrap();
        assert_eq!(open.pool.status().closed_metaslabs, 0);
    });
}

/// Any single read of an import fails: nothing is given up for that, not even if the administrator
/// has ordered to drop damaged data.
#[test]
fn a_read_that_fails_once_at_import_loses_nothing() {
    let mut fixture = Fixture::new(Shape::Single);
    fixture.with_pool(async |open| {
        for slot in 0..8 {
            write(open, slot, 1).await.unwrap();
        }
    });
    for at in 0..60 {
        let version_now = 1 + at;
        let rule = FaultRule::new(Fault::ReadError, When::OnceAfter(at));
        fixture.disks[0].inject(rule);
        let (world, disks) = (fixture.world.clone(), named(&fixture.disks));
        let options = ImportOptions { discard_log: true, ..ImportOptions::default() };
        let life = fixture.sim.run_until(async {
            let open = open(world.clone(), disks, &options).await?;
            world.spawn("txg", open.pool.clone().run());
            for slot in 0..8 {
                assert_eq!(version(&open, slot).await, version_now, "read {at}, slot {slot}");
                write(&open, slot, version_now + 1).await.unwrap();
            }
            Ok::<(), String>(())
        });
        life.unwrap().unwrap();
        fixture.disks[0].clear_faults();
        fixture.sim.kill();
    }
}

/// A side of a mirror that returns nothing but its labels does not block the import.
#[test]
fn a_side_that_cannot_be_read_is_done_without() {
    let mut fixture = Fixture::new(Shape::Mirror);
    fixture.with_pool(async |open| {
        // Once round the log and further: old batches of several sectors are then at its end.
        for round in 0..1200 {
            write(open, round % SLOTS, 1).await.unwrap();
            if round % 100 == 0 {
                open.pool.sync().await.unwrap();
            }
        }
    });
    for life in 1..4 {
        let disk = &fixture.disks[0];
        disk.mark_unreadable(2 * LABEL_SECTORS..disk.sectors() - 2 * LABEL_SECTORS);
        fixture.with_pool(async |open| {
            for slot in 0..8 {
                assert_eq!(version(open, slot).await, life, "slot {slot}");
                write(open, slot, life + 1).await.unwrap();
            }
        });
    }
}

/// A metaslab whose bitmap is lost is closed. Nothing is allocated there, its records do not fill
/// the ring, early data there does no harm, and its space is promised to no change.
#[test]
fn a_lost_bitmap_closes_its_metaslab_and_nothing_else() {
    let mut fixture = Fixture::new(Shape::Mirror);
    let extent = fixture.with_pool(async |open| {
        for slot in 0..SLOTS {
            write(open, slot, 1).await.unwrap();
        }
        for _ in 0..8 {
            open.pool.sync().await.unwrap();
        }
        // In the log at the next import, with data in the metaslab that will be closed.
        let early = open.slots.write(0, content(0, 2), How::Early, 1).await.unwrap();
        early.unwrap().durable().await.unwrap();
        open.slots.committed(1).unwrap()
    });
    let geometry = Geometry::new(0, 63, Redundancy::Mirror);
    let index = extent.place.sector() / geometry.metaslab_sectors();
    for slot in 0..4 {
        let place = geometry.slot_place(index, slot, 0);
        for disk in &fixture.disks {
            disk.corrupt(place.sector(), Corruption::Garbage);
        }
    }
    for life in 0..3u64 {
        fixture.with_pool(async |open| {
            let status = open.pool.status();
            assert_eq!(status.closed_metaslabs, 1);
            let (first, count) = geometry.metaslab_range(index);
            let elsewhere = geometry.sectors() - count;
            assert!(open.pool.writable_bytes() / 4096 <= elsewhere);
            for round in 0..400 {
                let slot = round % SLOTS;
                write(open, slot, 10 + life * 1000 + round).await.unwrap();
                // Long records, to fill their ring if possible.
                open.slots.scatter(2000).await.unwrap();
                open.pool.sync().await.unwrap();
                let place = open.slots.committed(slot).unwrap().place;
                assert!(!(first..first + count).contains(&place.sector()), "{place:?} is closed");
            }
        });
    }
    fixture.with_pool(async |open| assert_eq!(version(open, 1).await, 10 + 2000 + 385));
    // The import itself did not need it, whatever the log named.
    let (mut pools, _) = fixture.sim.run_until(scan(named(&fixture.disks))).unwrap();
    let (_, found) = pools.pop_first().unwrap();
    let options = ImportOptions::default();
    fixture.sim.run_until(import(fixture.world.clone(), found, &options)).unwrap().unwrap();
}
