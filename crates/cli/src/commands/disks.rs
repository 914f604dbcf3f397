//! `aquifer pool add`, `remove`, `attach`, `detach`, `replace`, `offline`, `online`: the disks of a
//! pool in service.

use aquifer_api::client::Client;
use aquifer_api::{
    AddVdevs, AttachDisk, DetachDisk, DiskRequest, Health, LeafState, OfflineDisk, On, OnlineDisk,
    PoolDone, PoolQuery, PoolStatus, RemoveDisk, ReplaceDisk, ResilverInfo, ScanState, ScrubState,
};

use super::pool::layout;
use super::progress::{LOOK_EVERY, Progress, Unit, Work};
use super::{Output, scrub, tell};
use crate::args::{CreateArgs, Vdevs, vdevs};
use crate::failure::Failure;

pub(super) async fn add(client: &Client, output: Output, wish: CreateArgs) -> Result<(), Failure> {
    let Vdevs { data: vdevs, logs, spares, caches } = vdevs(&wish.disks).map_err(Failure::usage)?;
    let CreateArgs { force, dry_run, create_size: create_bytes, name, .. } = wish;
    let request =
        AddVdevs { vdevs, logs, spares, caches, force, dry_run, create_bytes, held_until_s: None };
    let added = client.ask(&On::new(&name, request)).await?;
    output.answer(&added, |added| match added.dry_run {
        true => format!("would add to pool {name:?}:\n\n{}", layout(added, output)),
        false => String::new(),
    })?;
    tell(output, &added.notes);
    Ok(())
}

pub(super) async fn remove(
    client: &Client,
    output: Output,
    name: &str,
    disk: String,
) -> Result<(), Failure> {
    done(output, &client.ask(&On::new(name, RemoveDisk(DiskRequest { disk }))).await?)
}

pub(super) async fn replace(
    client: &Client,
    output: Output,
    name: &str,
    request: ReplaceDisk,
    waits: bool,
) -> Result<(), Failure> {
    let done = client.ask(&On::new(name, request)).await?;
    done_and_waited(client, output, &done, waits).await
}

pub(super) async fn attach(
    client: &Client,
    output: Output,
    name: &str,
    request: ReplaceDisk,
    waits: bool,
) -> Result<(), Failure> {
    let done = client.ask(&On::new(name, AttachDisk(request))).await?;
    done_and_waited(client, output, &done, waits).await
}

pub(super) async fn detach(
    client: &Client,
    output: Output,
    name: &str,
    disk: String,
) -> Result<(), Failure> {
    done(output, &client.ask(&On::new(name, DetachDisk(DiskRequest { disk }))).await?)
}

/// Looks in a row without a resilver after which none is expected: one that was asked for begins
/// within a second.
const QUIET_LOOKS: u32 = 12;

/// Waits until no disk is being resilvered, and no scrub goes on. Fails if a disk is not up to date
/// after that.
pub(super) async fn wait(client: &Client, output: Output, name: &str) -> Result<(), Failure> {
    let (mut quiet, mut progress) = (0, Progress::new(output));
    loop {
        let pool = client.ask(&On::new(name, PoolQuery)).await?;
        match pool.summary.health {
            Health::Importing => {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            // Of its disks nothing is known.
            Health::Unavail if pool.vdevs.is_empty() => {
                return Err(Failure::failed(format!(
                    "{name}: is not in service; see `aquifer pool status {name}`"
                )));
            }
            _ => {}
        }
        let mut leaves = pool.vdevs.iter().flat_map(|vdev| &vdev.leaves);
        let runs = pool.scan.as_ref().is_some_and(|scan| scan.state == ScanState::Running);
        let all_online = leaves.clone().all(|leaf| leaf.state.is_in_use());
        let resilvers = runs || leaves.any(|leaf| leaf.state == LeafState::Resilvering);
        let scrubs = pool.scrub.as_ref().is_some_and(|scrub| scrub.state == ScrubState::Running);
        let leaves_yet = pool.vdevs.iter().flat_map(|vdev| &vdev.leaves);
        let all_online = all_online && !leaves_yet.clone().any(|leaf| leaf.replaces.is_some());
        quiet = if resilvers || scrubs { 0 } else { quiet + 1 };
        if !runs && !scrubs && all_online {
            drop(progress);
            return output.answer(&pool.summary, |_| String::new());
        }
        if let Some(work) = work(&pool, output) {
            progress.show(&work);
        }
        if quiet > QUIET_LOOKS {
            return Err(Failure::failed(format!(
                "not every disk is up to date; see `aquifer pool status {name}`"
            )));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// How far the resilver is that goes on; else the scrub.
fn work(pool: &PoolStatus, output: Output) -> Option<Work> {
    let is_running = |scan: &&ResilverInfo| scan.state == ScanState::Running;
    if let Some(scan) = pool.scan.as_ref().filter(is_running) {
        return Some(Work {
            what: format!("resilver of {}", scan.disk),
            done: scan.copied_bytes,
            total: scan.total_bytes,
            unit: Unit::Bytes,
            took_ms: scan.took_ms,
            note: String::new(),
        });
    }
    let scrub = pool.scrub.as_ref().filter(|scrub| scrub.state == ScrubState::Running);
    scrub.map(|running| scrub::work(&pool.summary.name, running, output))
}

pub(super) async fn offline(
    client: &Client,
    output: Output,
    name: &str,
    request: OfflineDisk,
) -> Result<(), Failure> {
    done(output, &client.ask(&On::new(name, request)).await?)
}

pub(super) async fn online(
    client: &Client,
    output: Output,
    name: &str,
    request: OnlineDisk,
    waits: bool,
) -> Result<(), Failure> {
    let done = client.ask(&On::new(name, request)).await?;
    done_and_waited(client, output, &done, waits).await
}

/// The result of an act; with `waits`, after its resilver.
async fn done_and_waited(
    client: &Client,
    output: Output,
    act: &PoolDone,
    waits: bool,
) -> Result<(), Failure> {
    if !waits {
        return done(output, act);
    }
    tell(output, &act.notes);
    wait(client, output, &act.name).await
}

fn done(output: Output, done: &PoolDone) -> Result<(), Failure> {
    output.answer(done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}
