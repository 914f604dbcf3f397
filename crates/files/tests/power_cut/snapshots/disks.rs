//! An operator beside all the others: sides of mirrors go off line and come back, and scrubs run.
//!
//! The first side is always there. At the end each other one must have become as good.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::{Disk, World};
use aquifer_checker::bed::named;
use aquifer_files::Service;
use aquifer_ondisk::scrub::ScrubState;
use aquifer_pool::import::ImportOptions;
use aquifer_pool::{LeafState, LeafStatus};
use aquifer_sim::{Rng, SimDisk};

use super::{Run, tell};
use crate::open;

fn sides(service: &Service) -> Vec<LeafStatus> {
    service.pool.status().vdevs.into_iter().flat_map(|vdev| vdev.leaves).collect()
}

/// Acts on disks and scrubs, until the power goes. An act that makes no sense now is refused.
pub(super) async fn operator(
    service: &Service,
    world: &Arc<dyn World>,
    disks: &[SimDisk],
    mut rng: Rng,
    run: &Mutex<Run>,
) -> Result<(), String> {
    let haste = 1 + rng.below(20);
    loop {
        world.sleep(Duration::from_micros(rng.below(4000 * haste))).await;
        let at = 1 + rng.index(disks.len() - 1);
        let name = disks[at].name();
        let (pool, files) = (&service.pool, &service.files);
        let (act, done) = match rng.below(8) {
            0 => ("offline for now", pool.offline_disk(name, true).await.is_ok()),
            1 => ("offline", pool.offline_disk(name, false).await.is_ok()),
            2..=4 => {
                let again = named(&disks[at..=at]).remove(0);
                ("online", pool.online_disk(name, again, false).await.is_ok())
            }
            5 => ("scrub paused", files.end_scrub(true).await.is_ok()),
            _ => ("scrub", files.start_scrub().await.is_ok()),
        };
        tell(&format!("{act} {name}: {done}"));
        check(service)?;
        run.lock().unwrap().on_disks += u64::from(done);
    }
}

/// No scrub finds anything: no disk errs here, and no copy rots.
fn check(service: &Service) -> Result<(), String> {
    let unreadable = service.files.scrub_status().map_or(0, |record| record.unreadable_blocks);
    let wrong: u64 = sides(service).iter().map(|side| side.checksum_errors).sum();
    match (unreadable, wrong) {
        (0, 0) => Ok(()),
        _ => Err(format!("{unreadable} blocks without a good copy, {wrong} wrong copies")),
    }
}

/// All sides come back and get what they missed, and a scrub looks at them.
pub(super) async fn make_whole(world: Arc<dyn World>, disks: &[SimDisk]) -> Result<(), String> {
    let service = open(world.clone(), disks, &ImportOptions::default()).await?;
    for (at, disk) in disks.iter().enumerate() {
        if sides(&service).iter().any(|side| side.path == disk.name() && side.offline) {
            let again = named(&disks[at..=at]).remove(0);
            let done = service.pool.online_disk(disk.name(), again, false).await;
            done.map_err(|error| format!("online {}: {error}", disk.name()))?;
        }
    }
    wait(&world, "all sides are whole", || {
        sides(&service).iter().all(|side| side.state == LeafState::Online)
    })
    .await?;
    // One that went on since the import is ended: this one looks at all.
    let _ = service.files.end_scrub(false).await;
    service.files.start_scrub().await.map_err(|error| error.to_string())?;
    wait(&world, "the scrub has ended", || {
        service.files.scrub_status().is_some_and(|record| record.state == ScrubState::Finished)
    })
    .await?;
    check(&service)?;
    service.pool.export().await.map_err(|error| error.to_string())
}

async fn wait(world: &Arc<dyn World>, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    for _ in 0..10_000 {
        if is_so() {
            return Ok(());
        }
        world.sleep(Duration::from_millis(100)).await;
    }
    Err(format!("waited in vain until {what}"))
}
