//! How a run ends: the dataset, or all its snapshots and clones, are destroyed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_checker::lives::SCALE;
use aquifer_dataset::DatasetError;
use aquifer_files::Service;
use aquifer_ondisk::Txg;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{Rng, SimDisk};
use futures_util::future::{Either, select};

use super::acts::destroy;
use super::client::client;
use super::{
    Model, Top, bookmarks, check, check_past, clones, come_back, file_clones, files, holds, look,
    reserved, tell,
};
use crate::{inspected, open};

/// Destroys the dataset with all its snapshots and clones, once none is held.
async fn destroy_dataset(
    service: &Service,
    world: &Arc<dyn World>,
    model: &Mutex<Model>,
) -> Result<(), String> {
    let is_held = || {
        let model = model.lock().unwrap();
        let served = model.served.until(world.now());
        model.snapshots.values().any(|known| known.must_stay(served))
    };
    let name = model.lock().unwrap().dataset.clone();
    if is_held() {
        match service.datasets.destroy_all(std::slice::from_ref(&name), true, true).await {
            Err(DatasetError::Held { .. }) => {}
            done if is_held() => return Err(format!("destroyed, and one is held: {done:?}")),
            _ => {}
        }
    }
    holds::release_all(service, world, model).await?;
    tell("destroy the dataset");
    model.lock().unwrap().doomed = true;
    let done = service.datasets.destroy_all(&[name], true, true).await;
    done.map_err(|error| error.to_string())?;
    model.lock().unwrap().gone = true;
    Ok(())
}

/// A client changes the dataset while it is destroyed, with all its snapshots.
pub(super) async fn doom(
    world: Arc<dyn World>,
    disks: &[SimDisk],
    top: &Top,
    (seed, ops): (u64, u64),
) -> Result<(), String> {
    let model = &top.now();
    let mut rng = Rng::stream(seed, "doom");
    let options = ImportOptions { scale: SCALE, ..ImportOptions::default() };
    model.lock().unwrap().served.begin(world.now());
    let service = open(world.clone(), disks, &options).await?;
    come_back(&service, model).await?;
    clones::find_promotion(&service, top);
    let model = &top.now();
    if model.lock().unwrap().rewound {
        check_past(&service, model).await?;
        clones::check_past(&service, model).await?;
        bookmarks::destroy_all(&service, model).await?;
        model.lock().unwrap().rewound = false;
    }
    check(&service, model).await?;
    bookmarks::check(&service, model).await?;
    clones::check(&service, model).await?;
    let run = Mutex::default();
    let work = client(&service, model, Rng::stream(seed, "client"), ops, &run);
    let destroyed = async {
        world.sleep(Duration::from_micros(rng.below(4000))).await;
        destroy_dataset(&service, &world, model).await?;
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
pub(super) async fn end(world: Arc<dyn World>, disks: &[SimDisk], top: &Top) -> Result<(), String> {
    let model = &top.now();
    model.lock().unwrap().served.begin(world.now());
    let service = open(world.clone(), disks, &ImportOptions::default()).await?;
    come_back(&service, model).await?;
    clones::find_promotion(&service, top);
    let model = &top.now();
    let name = model.lock().unwrap().dataset.clone();
    if service.datasets.by_name(&name).is_none() {
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
        bookmarks::destroy_all(&service, model).await?;
    }
    check(&service, model).await?;
    bookmarks::check(&service, model).await?;
    // Some outlive their snapshots: then these give up fewer nodes.
    let outlive = model.lock().unwrap().next().is_multiple_of(2);
    if !outlive {
        bookmarks::destroy_all(&service, model).await?;
    }
    clones::check(&service, model).await?;
    clones::destroy_all(&service, model).await?;
    holds::release_all(&service, &world, model).await?;
    let names: Vec<String> = model.lock().unwrap().snapshots.keys().cloned().collect();
    let dataset = service.datasets.by_name(&name).ok_or("the dataset is gone")?;
    files::destroy_sets(&service, model, 2).await?;
    for names in names.chunks(2) {
        let listed = dataset.snapshots(service.pool.committed_txg());
        let these = listed.iter().filter(|of| names.contains(&of.record.name));
        let these: BTreeSet<Txg> = these.map(|of| of.txg).collect();
        let destroy = destroy(&service, &world, model, (names, false));
        let promoted = model.lock().unwrap().promoted;
        match promoted {
            // Some are on other lines.
            true => destroy.await?,
            false => files::exactly(&service, &dataset, &these.into(), destroy).await?,
        }
    }
    files::destroy_sets(&service, model, usize::MAX).await?;
    bookmarks::destroy_all(&service, model).await?;
    file_clones::remove_all(&service, model).await?;
    quiesce(&service).await?;
    // What a head has of the snapshot as which it began again stays with it.
    let is_on_line = model.lock().unwrap().lines && dataset.dead_bytes() > 0;
    if dataset.dead_bytes() > 0 && !is_on_line {
        return Err(format!("{} bytes are left of snapshots", dataset.dead_bytes()));
    }
    reserved::check_end(&service, model).await?;
    let root = service.files.root(&name).ok_or("the dataset is gone")?;
    let found = look(&service.files, root).await.map_err(|error| error.to_string())?;
    if found != *model.lock().unwrap().head() {
        return Err("the head went with the snapshots".into());
    }
    if is_on_line {
        let done = service.datasets.destroy(&name, true).await;
        done.map_err(|error| format!("destroy {name}: {error}"))?;
    }
    settle(&service, disks).await
}

/// Waits until nothing is freed in the background any more.
pub(super) async fn quiesce(service: &Service) -> Result<(), String> {
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
