//! How a run ends: the dataset, or all its snapshots and clones, are destroyed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_checker::lives::SCALE;
use aquifer_files::Service;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{Rng, SimDisk};
use futures_util::future::{Either, select};

use super::acts::destroy;
use super::client::client;
use super::{DATASET, Model, check, check_past, clones, look, tell};
use crate::{inspected, open};

/// A client changes the dataset while it is destroyed, with all its snapshots.
pub(super) async fn doom(
    world: Arc<dyn World>,
    disks: &[SimDisk],
    model: &Mutex<Model>,
    (seed, ops): (u64, u64),
) -> Result<(), String> {
    let mut rng = Rng::stream(seed, "doom");
    let options = ImportOptions { scale: SCALE, ..ImportOptions::default() };
    let service = open(world.clone(), disks, &options).await?;
    if model.lock().unwrap().rewound {
        check_past(&service, model).await?;
        clones::check_past(&service, model).await?;
        model.lock().unwrap().rewound = false;
    }
    check(&service, model).await?;
    clones::check(&service, model).await?;
    let work = client(&service, model, Rng::stream(seed, "client"), ops);
    let destroyed = async {
        world.sleep(Duration::from_micros(rng.below(4000))).await;
        tell("destroy the dataset");
        model.lock().unwrap().doomed = true;
        let done = service.datasets.destroy_all(&[DATASET.into()], true, true).await;
        done.map_err(|error| error.to_string())?;
        model.lock().unwrap().gone = true;
        loop {
            world.sleep(Duration::from_millis(1)).await;
            service.pool.sync().await.map_err(|error| error.to_string())?;
        }
    };
    match select(std::pin::pin!(work), std::pin::pin!(destroyed)).await {
        // Its handles are stale now.
        Either::Left((Err(_), _)) if model.lock().unwrap().doomed => Ok(()),
        Either::Left((done, _)) | Either::Right((done, _)) => done,
    }
}

/// Destroys everything. Then nothing may be left.
pub(super) async fn end(
    world: Arc<dyn World>,
    disks: &[SimDisk],
    model: &Mutex<Model>,
) -> Result<(), String> {
    let service = open(world, disks, &ImportOptions::default()).await?;
    if service.datasets.by_name(DATASET).is_none() {
        if !model.lock().unwrap().doomed {
            return Err("the dataset is gone".into());
        }
        let clones: Vec<String> = model.lock().unwrap().clones.keys().cloned().collect();
        if let Some(left) = clones.iter().find(|name| service.datasets.by_name(name).is_some()) {
            return Err(format!("{left} outlives its origin"));
        }
        return settle(&service, disks).await;
    }
    if model.lock().unwrap().gone {
        return Err("the dataset was destroyed, and is there".into());
    }
    if model.lock().unwrap().rewound {
        check_past(&service, model).await?;
        clones::check_past(&service, model).await?;
    }
    check(&service, model).await?;
    clones::check(&service, model).await?;
    clones::destroy_all(&service, model).await?;
    let names: Vec<String> = model.lock().unwrap().snapshots.keys().cloned().collect();
    for names in names.chunks(2) {
        destroy(&service, model, names).await?;
    }
    let dataset = service.datasets.by_name(DATASET).ok_or("the dataset is gone")?;
    quiesce(&service).await?;
    if dataset.dead_bytes() > 0 {
        return Err(format!("{} bytes are left of snapshots", dataset.dead_bytes()));
    }
    let root = service.files.root(DATASET).ok_or("the dataset is gone")?;
    let found = look(&service.files, root).await.map_err(|error| error.to_string())?;
    if found != *model.lock().unwrap().head() {
        return Err("the head went with the snapshots".into());
    }
    settle(&service, disks).await
}

/// Waits until nothing is freed in the background any more.
async fn quiesce(service: &Service) -> Result<(), String> {
    for _ in 0..200 {
        if !service.datasets.has_background_work() {
            return Ok(());
        }
        service.pool.sync().await.map_err(|error| error.to_string())?;
    }
    Err("what was destroyed is not freed".into())
}

async fn settle(service: &Service, disks: &[SimDisk]) -> Result<(), String> {
    quiesce(service).await?;
    service.pool.export().await.map_err(|error| error.to_string())?;
    inspected(disks, true, 2).await
}
