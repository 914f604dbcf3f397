//! Each vdev of a pool in turn loses all but labels and bitmaps, and a scrub heals what leads to
//! the files: all names and attributes stay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::{Disk, World};
use aquifer_checker::bed::{SECTORS, Shape, open};
use aquifer_files::{Credentials, FileHandle, Service};
use aquifer_ondisk::config::Redundancy;
use aquifer_ondisk::inode::FileKind;
use aquifer_ondisk::layout::{Geometry, SLOTS_OFFSET, leaf_segments};
use aquifer_ondisk::scrub::ScrubState;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{Corruption, Sim, SimDisk};

/// Paths in all datasets, with the size behind each.
type Names = BTreeMap<String, u64>;

/// See the module's head. The pool was exported.
pub fn each_vdev_rots(
    sim: &mut Sim,
    (world, disks): (&Arc<dyn World>, &[SimDisk]),
    shape: Shape,
) -> Result<(), String> {
    let before = in_service(sim, world, disks, async |service| names(service).await)?;
    for vdev in disks.chunks(shape.sides()) {
        rot(vdev, shape);
        let after = in_service(sim, world, disks, async |service| {
            let found = names(service).await?;
            scrub(service).await.map(|()| found)
        })?;
        if after != before {
            let name = vdev[0].name();
            return Err(format!("{name} rots, and names change: {before:?}, now {after:?}"));
        }
    }
    Ok(())
}

fn in_service<T>(
    sim: &mut Sim,
    world: &Arc<dyn World>,
    disks: &[SimDisk],
    work: impl AsyncFnOnce(&Service) -> Result<T, String>,
) -> Result<T, String> {
    let done = sim.run_until(async {
        let service = open(world.clone(), disks, &ImportOptions::default()).await?;
        let done = work(&service).await?;
        service.pool.export().await.map_err(|error| error.to_string())?;
        Ok(done)
    });
    done.unwrap_or_else(|stop| Err(stop.to_string()))
}

/// All is gone but labels and bitmaps.
fn rot(disks: &[SimDisk], shape: Shape) {
    let redundancy = if shape.is_mirror() { Redundancy::Mirror } else { Redundancy::Single };
    let segments = leaf_segments(SECTORS) - 1;
    let geometry = Geometry::new(0, segments, redundancy);
    let slots: Vec<_> = (0..geometry.metaslabs()).flat_map(|at| geometry.reserved(at)).collect();
    for disk in disks {
        disk.durable_image().for_each(|sector, _| {
            let is_slot = slots.iter().any(|(at, count)| (*at..at + count).contains(&sector));
            if (SLOTS_OFFSET..segments * SEGMENT_SECTORS).contains(&sector) && !is_slot {
                disk.corrupt(sector, Corruption::Zeros);
            }
        });
    }
}

async fn scrub(service: &Service) -> Result<(), String> {
    service.files.start_scrub().await.map_err(|error| error.to_string())?;
    while service.files.scrub_status().is_none_or(|of| of.state != ScrubState::Finished) {
        service.pool.world().sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn names(service: &Service) -> Result<Names, String> {
    let mut found = Names::new();
    for dataset in ["tank", "tank/raw", "tank/vms"] {
        let top = service.files.root(dataset).ok_or(format!("{dataset} is gone"))?;
        let mut left: Vec<(String, FileHandle)> = vec![(dataset.to_string(), top)];
        while let Some((path, directory)) = left.pop() {
            for (name, handle, size) in entries(service, directory, &path).await? {
                let path = format!("{path}/{name}");
                if let Some(handle) = handle {
                    left.push((path.clone(), handle));
                }
                found.insert(path, size);
            }
        }
    }
    Ok(found)
}

/// The entries of a directory: name, handle of a directory, size of a file.
async fn entries(
    service: &Service,
    directory: FileHandle,
    path: &str,
) -> Result<Vec<(String, Option<FileHandle>, u64)>, String> {
    let (mut found, mut cookie) = (Vec::new(), 0);
    loop {
        let cred = Credentials::root();
        let listed = service.files.readdir(&cred, directory, cookie, 64, true).await;
        let (page, is_end, _) = listed.map_err(|error| format!("{path}: {error}"))?;
        for entry in page {
            cookie = entry.cookie;
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let of = entry.attributes.as_ref().ok_or(format!("{path}/{name}: no attributes"))?;
            let is_below = of.kind == FileKind::Directory;
            let is_within = is_below && name != "." && name != ".." && path != "tank";
            found.push((name, is_within.then_some(of.handle), if is_below { 0 } else { of.size }));
        }
        if is_end {
            return Ok(found);
        }
    }
}
