//! A pool that two machines reach: only one of them may use it.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_ondisk::uberblock::Host;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{DiskConfig, Sim, SimDisk};

use crate::clients::{Open, open};
use crate::shapes::{Shape, base, named};
use crate::slots::{How, content, version_of};

/// Options of an import as this host. `take_over` ignores another host that seems to use the pool.
fn host(id: u64, take_over: bool) -> ImportOptions {
    let host = Some(Host { id, name: format!("h{id}") });
    ImportOptions { host, take_over, ..ImportOptions::default() }
}

fn machine(seed: u64) -> (Sim, Arc<dyn World>, Vec<SimDisk>) {
    let mut sim = Sim::new(seed);
    let images = base(Shape::Mirror).into_iter().enumerate();
    let disks = images
        .map(|(at, image)| sim.add_disk(&format!("d{at}"), image, DiskConfig::default()))
        .collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    (sim, world, disks)
}

async fn bring_up(
    world: &Arc<dyn World>,
    disks: &[SimDisk],
    options: &ImportOptions,
) -> Result<Open, String> {
    let open = open(world.clone(), named(disks), options).await?;
    world.spawn("txg", open.pool.clone().run());
    Ok(open)
}

async fn write(open: &Open, slot: u64, version: u64) -> Result<(), String> {
    let written = open.slots.write(slot, content(slot, version), How::Stable, 1).await;
    let ticket = written.map_err(|error| error.to_string())?;
    ticket.unwrap().durable().await.map_err(|error| error.to_string())
}

fn must_be_refused(import: Result<Open, String>) -> Result<(), String> {
    match import {
        Err(why) if why.contains("host \"h1\"") && why.contains("import -f") => Ok(()),
        Err(why) => Err(why),
        Ok(_) => Err("a pool that another host uses was imported".into()),
    }
}

/// The second host is refused while the first one is there, idle or not. Once the second takes the
/// pool over, the first one stops.
pub fn one_host_at_a_time(seed: u64) -> Result<(), String> {
    let (mut sim, world, disks) = machine(seed);
    let done = sim.run_until(async {
        let first = bring_up(&world, &disks, &host(1, false)).await?;
        write(&first, 1, 1).await?;
        must_be_refused(bring_up(&world, &disks, &host(2, false)).await)?;
        world.sleep(Duration::from_secs(3600)).await;
        must_be_refused(bring_up(&world, &disks, &host(2, false)).await)?;
        let second = bring_up(&world, &disks, &host(2, true)).await?;
        world.sleep(Duration::from_secs(12)).await;
        match first.pool.suspended() {
            Some(why) if why.contains("host \"h2\"") => {}
            other => return Err(format!("two hosts write to one pool: {other:?}")),
        }
        if write(&first, 2, 7).await.is_ok() || first.pool.export().await.is_ok() {
            return Err("a host that lost the pool goes on".into());
        }
        for version in 1..4 {
            write(&second, 2, version).await?;
            second.pool.sync().await.map_err(|error| error.to_string())?;
        }
        second.pool.export().await.map_err(|error| error.to_string())?;
        // It was exported: any host may import it.
        let third = bring_up(&world, &disks, &host(3, false)).await?;
        for (slot, version) in [(1, 1), (2, 3)] {
            let page = third.slots.read(slot).await.map_err(|error| error.to_string())?;
            assert_eq!(page.map(|page| version_of(slot, &page)), Some(version));
        }
        Ok(())
    });
    done.map_err(|stop| stop.to_string())?
}

#[test]
fn a_second_host_is_refused_and_the_first_one_stops_for_it() {
    (0..20).for_each(|seed| one_host_at_a_time(seed).unwrap());
}

/// A host that went down counts as gone after a minute; the same host may come back at once.
#[test]
fn a_host_that_went_down_is_waited_for_a_minute() {
    let (mut sim, world, disks) = machine(5);
    let life = async |options: ImportOptions, wait_s: u64| {
        world.sleep(Duration::from_secs(wait_s)).await;
        let open = bring_up(&world, &disks, &options).await?;
        write(&open, 1, 1).await
    };
    // Pools of the first releases do not name the host that uses them.
    sim.run_until(life(ImportOptions::default(), 0)).unwrap().unwrap();
    sim.kill();
    sim.run_until(life(host(1, false), 0)).unwrap().unwrap();
    sim.kill();
    sim.run_until(life(host(1, false), 0)).unwrap().unwrap();
    sim.kill();
    let refused = sim.run_until(life(host(2, false), 1)).unwrap().unwrap_err();
    assert!(refused.contains("host \"h1\" (id 0000000000000001) used the pool 1 s ago"));
    sim.run_until(life(host(2, false), 61)).unwrap().unwrap();
    sim.kill();
    sim.run_until(life(host(1, true), 0)).unwrap().unwrap();
    sim.kill();
    // A host without identity counts as another one.
    assert!(sim.run_until(life(ImportOptions::default(), 0)).unwrap().is_err());
}

/// Nothing is written after an export, although the pool regularly wrote that it was in use.
#[test]
fn an_exported_pool_is_left_alone() {
    let (mut sim, world, disks) = machine(6);
    let done = sim.run_until(async {
        let open = bring_up(&world, &disks, &host(1, false)).await?;
        write(&open, 1, 1).await?;
        world.sleep(Duration::from_secs(95)).await;
        open.pool.export().await.map_err(|error| error.to_string())?;
        let writes = || disks.iter().map(|disk| disk.counters().writes).sum::<u64>();
        let before = writes();
        world.sleep(Duration::from_secs(600)).await;
        assert_eq!(writes(), before);
        Ok::<(), String>(())
    });
    done.unwrap().unwrap();
}
