//! Destroyed datasets: clients see them go at once, and the background frees them on disk.

use aquifer_dataset::DatasetError;
use aquifer_files::{FsError, Service, SetAttributes, Stability};

use crate::bed::{Bed, find, make, noise, read, root, write};

async fn settle(service: &Service) -> u64 {
    let mut txgs = 0;
    while service.datasets.has_background_work() || txgs < 3 {
        service.pool.sync().await.unwrap();
        txgs += 1;
        assert!(txgs < 200, "freeing ends");
    }
    txgs
}

async fn populate(service: &Service, dataset: &str) {
    let top = service.files.root(dataset).unwrap();
    let set = SetAttributes::default();
    let below =
        service.files.mkdir(&root(), top, b"below", &set).await.kept().await.0.unwrap().handle;
    for at in 0..200 {
        let file = make(service, below, &format!("f{at}")).await;
        write(service, file, at % 7, &noise(at, 3), Stability::Unstable).await.unwrap();
    }
    service.files.symlink(&root(), below, b"link", b"f1", &set).await.kept().await.0.unwrap();
}

#[test]
fn a_destroyed_dataset_is_gone_and_its_space_comes_back() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/keep", &[]).await.unwrap();
        populate(&service, "tank/keep").await;
        service.pool.sync().await.unwrap();
        let used = service.pool.used_sectors();
        service.datasets.create("tank/vms", &[]).await.unwrap();
        service.datasets.create("tank/vms/deep", &[("quota".into(), "1G".into())]).await.unwrap();
        for dataset in ["tank/vms", "tank/vms/deep"] {
            populate(&service, dataset).await;
        }
        // Some of it is on disk, some is not, and some has early data in its place.
        service.pool.sync().await.unwrap();
        let top = service.files.root("tank/vms").unwrap();
        let early = make(&service, top, "early").await;
        write(&service, early, 0, &noise(1, 100), Stability::FileSync).await.unwrap();
        let refused = service.datasets.destroy("tank/vms", false).await;
        assert_eq!(refused, Err(DatasetError::HasChildren("tank/vms".into())));
        assert!(service.datasets.destroy("tank", true).await.is_err());
        let missing = service.datasets.destroy("tank/nothing", true).await;
        assert_eq!(missing, Err(DatasetError::NotFound("tank/nothing".into())));

        service.datasets.destroy("tank/vms", true).await.unwrap();
        assert_eq!(read(&service, early, 0).await, Err(FsError::Stale));
        let refused = write(&service, early, 0, &noise(2, 1), Stability::FileSync).await;
        assert_eq!(refused, Err(FsError::Stale));
        let names: Vec<_> = service.datasets.list().into_iter().map(|of| of.name).collect();
        assert_eq!(names, ["tank", "tank/keep"]);
        // The name is free at once.
        service.datasets.create("tank/vms", &[]).await.unwrap();
        assert_eq!(find(&service, "tank/vms", "early").await, Err(FsError::NotFound));
        service.datasets.destroy("tank/vms", false).await.unwrap();
        settle(&service).await;
        assert_eq!(service.datasets.freeing_bytes(), 0);
        let after = service.pool.used_sectors();
        assert!(after <= used + 8, "{used} sectors before, {after} after");
    });
    bed.assert_clean();
}

/// Many entries of a file's tree may be of one extent. The rest of such a file is not passed over.
#[test]
fn a_file_that_takes_several_txgs_is_freed_whole() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        service.datasets.create("tank/vms", &[]).await.unwrap();
        service.pool.sync().await.unwrap();
        let used = service.pool.used_sectors();
        let top = service.files.root("tank/vms").unwrap();
        let file = make(&service, top, "disk").await;
        // Eight pages to an extent, and then every other page of them again.
        write(&service, file, 0, &vec![7; 200 * 4096], Stability::Unstable).await.unwrap();
        service.pool.sync().await.unwrap();
        for page in 0..100 {
            write(&service, file, page * 2, &noise(page, 1), Stability::Unstable).await.unwrap();
        }
        let small = make(&service, top, "small").await;
        write(&service, small, 0, &noise(2, 1), Stability::Unstable).await.unwrap();
        service.pool.sync().await.unwrap();
        service.datasets.destroy("tank/vms", false).await.unwrap();
        settle(&service).await;
        assert_eq!(service.datasets.freeing_bytes(), 0);
        let after = service.pool.used_sectors();
        assert!(after <= used + 8, "{used} sectors before, {after} after");
    });
    bed.assert_clean();
}

/// A kill or a power cut at any moment of a destroy: either it did not happen, or it goes on.
#[test]
fn a_crash_in_the_middle_goes_on_after_import() {
    let (mut undone, mut unfinished) = (0, 0);
    for cut in 0..60 {
        let mut bed = Bed::new(1, 65536);
        bed.life(async |service| {
            service.datasets.create("tank/vms", &[]).await.unwrap();
            let top = service.files.root("tank/vms").unwrap();
            for at in 0..20 {
                let file = make(&service, top, &format!("f{at}")).await;
                for page in 0..20 {
                    let data = noise(page, 1);
                    write(&service, file, page * 2, &data, Stability::Unstable).await.unwrap();
                }
            }
        });
        bed.sim.plan_cut(aquifer_sim::CutPlan::AtEvent(200 + cut * 4));
        let mut crashed = false;
        let (world, disks) = (bed.world(), bed.disks.clone());
        let end = bed.sim.run_until(async {
            let service = crate::bed::open(world, &disks).await;
            let handle = find(&service, "tank/vms", "f3").await.unwrap();
            let writer = async {
                // Other clients write to it all the while.
                for page in 0..100 {
                    let data = noise(page, 20);
                    match write(&service, handle, page, &data, Stability::FileSync).await {
                        Ok(()) | Err(FsError::Stale) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            };
            let destroyer = async {
                service.datasets.destroy("tank/vms", false).await.unwrap();
                for _ in 0..8 {
                    service.pool.sync().await.unwrap();
                }
            };
            futures_util::future::join(writer, destroyer).await;
        });
        if end.is_err() {
            crashed = true;
        }
        if cut % 2 == 0 {
            bed.sim.kill();
        } else {
            bed.sim.power_cut_any();
        }
        bed.assert_clean();
        let (alive, busy) = bed.life(async |service| {
            let alive = service.datasets.by_name("tank/vms").is_some();
            let busy = service.datasets.has_background_work();
            if alive {
                let file = find(&service, "tank/vms", "f3").await.unwrap();
                assert!(read(&service, file, 0).await.is_ok());
                service.datasets.destroy("tank/vms", false).await.unwrap();
            }
            settle(&service).await;
            let left = service.pool.used_sectors() - service.pool.own_sectors();
            assert!(left < 24, "{left} sectors are left");
            (alive, busy)
        });
        undone += u32::from(alive && crashed);
        unfinished += u32::from(busy && !alive);
        bed.assert_clean();
    }
    assert!(undone > 5 && unfinished > 5, "{undone} undone, {unfinished} unfinished");
}

/// A write of part of a page waits for its turn with the file in hand. Meanwhile its dataset goes
/// and its blocks become another file's.
#[test]
pub fn what_waits_while_its_dataset_goes_reads_nothing_of_what_comes_after() {
    let mut bed = Bed::new(2, 65536);
    bed.life(async |service| {
        let off = [("compression".to_string(), "off".to_string())];
        for name in ["tank/gone", "tank/next"] {
            service.datasets.create(name, &off).await.unwrap();
            let file = make(&service, service.files.root(name).unwrap(), "file").await;
            write(&service, file, 0, &noise(1, 20), Stability::FileSync).await.unwrap();
        }
    });
    bed.life(async |service| {
        let gone = find(&service, "tank/gone", "file").await.unwrap();
        let next = find(&service, "tank/next", "file").await.unwrap();
        let object = service.datasets.by_name("tank/gone").unwrap().cached(gone.object).unwrap();
        let others_turn = object.writer.lock().await;
        let cred = root();
        let waiting = service.files.write(&cred, gone, 7, b"part", Stability::Unstable);
        let going = async {
            service.datasets.destroy("tank/gone", false).await.unwrap();
            settle(&service).await;
            let mut at = 0;
            let full = loop {
                let data = noise(at, 256);
                let written = write(&service, next, 256 * at, &data, Stability::Unstable).await;
                match written {
                    Ok(()) => at += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(full, FsError::NoSpace);
            service.pool.sync().await.unwrap();
            drop(others_turn);
        };
        let (written, ()) = futures_util::future::join(waiting, going).await;
        assert_eq!(written.0, Err(FsError::Stale));
    });
    bed.assert_clean();
}

#[test]
fn destroy_works_on_a_full_pool() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let off = [("compression".to_string(), "off".to_string())];
        service.datasets.create("tank/vms", &off).await.unwrap();
        let top = service.files.root("tank/vms").unwrap();
        let file = make(&service, top, "filler").await;
        let mut page = 0;
        loop {
            // Single pages apart: as many extents as there can be.
            match write(&service, file, page * 2, &noise(page, 1), Stability::Unstable).await {
                Ok(()) => page += 1,
                Err(FsError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(page > 20_000, "{page} pages");
        service.pool.sync().await.unwrap();
        let before = service.pool.committed_txg();
        service.datasets.destroy("tank/vms", false).await.unwrap();
        let txgs = settle(&service).await;
        assert!(txgs >= 3, "in pieces: {txgs}");
        let took = service.pool.committed_txg().0 - before.0;
        assert!(took < 60, "{took} txgs for {page} extents");
        for _ in 0..2 {
            // The last frees are held back for two more.
            service.pool.sync().await.unwrap();
        }
        assert!(service.pool.writable_bytes() > 180 << 20);
    });
    bed.assert_clean();
}

#[test]
fn whatever_lies_below_goes_too_however_deep() {
    let mut bed = Bed::new(1, 65536);
    let below = ["tank/a", "tank/a/b", "tank/a/b/c", "tank/a/b/c/d"];
    bed.life(async |service| {
        for name in below.iter().chain(&["tank/ab"]) {
            service.datasets.create(name, &[]).await.unwrap();
        }
        assert!(service.datasets.destroy("tank/a", false).await.is_err());
        service.datasets.destroy("tank/a", true).await.unwrap();
        assert!(below.iter().all(|name| service.datasets.by_name(name).is_none()));
    });
    bed.life(async |service| {
        assert!(below.iter().all(|name| service.datasets.by_name(name).is_none()));
        assert!(service.datasets.by_name("tank/ab").is_some());
    });
    bed.assert_clean();
}
