//! Nodes that no copy gives. Reads, a sync, a replay and the freeing of a file meet them: the pool
//! goes on, and so do all other files.

use aquifer_dataset::DamageKind;
use aquifer_files::{Damaged, FileHandle, FsError, Service, SetAttributes, Stability};
use aquifer_inspect::Kind;
use aquifer_ondisk::types::ROOT_DIRECTORY;
use aquifer_ondisk::{Corruption, ObjectId};
use aquifer_pool::PoolError;
use aquifer_sim::{Fault, FaultRule, When};

use crate::bed::{Bed, find, make, noise, read, root, write};

/// Pages that lie apart, so that each is an extent of its own: some 140 make a leaf.
const PAGES: u64 = 1000;
const STEP: u64 = 2;
const DAMAGE: [Kind; 6] = [
    Kind::NodeUnreadable,
    Kind::ObjectDamaged,
    Kind::ReferBytes,
    Kind::LeakUnknown,
    Kind::CopyBad,
    Kind::Orphan,
];

fn is_io(error: &FsError) -> bool {
    matches!(error, FsError::Pool(PoolError::Read(_) | PoolError::Corrupt(_)))
}

/// The objects that lost changes.
async fn lost_changes(service: &Service) -> Vec<Damaged> {
    let damages = service.files.damages().await.into_iter();
    damages.filter(|damaged| damaged.damage.kind == DamageKind::Lost).collect()
}

/// The page ranges that are known to be unreadable.
fn unreadable(service: &Service) -> Vec<(ObjectId, Vec<(u64, u64)>)> {
    let damages = service.datasets.damages().into_iter();
    let unreadable = damages.filter(|damage| damage.kind == DamageKind::Unreadable);
    unreadable.map(|damage| (damage.object, damage.ranges)).collect()
}

async fn fill(service: &Service, name: &str) -> FileHandle {
    let top = service.files.root("tank").unwrap();
    let file = make(service, top, name).await;
    for at in 0..PAGES {
        write(service, file, at * STEP, &noise(at, 1), Stability::Unstable).await.unwrap();
    }
    file
}

/// A pool with files `a` and `b` of several leaves each. A node of `a` is damaged.
fn damaged(sides: usize, level: u8) -> (Bed, FileHandle) {
    let mut bed = Bed::new(sides, 65536);
    let a = bed.life(async |service| {
        let a = fill(&service, "a").await;
        fill(&service, "b").await;
        a
    });
    bed.assert_clean();
    let node = bed.find_node(a.object.0, level, 0);
    bed.rot(node);
    (bed, a)
}

#[test]
fn a_damaged_leaf_costs_what_lies_in_it() {
    for sides in [1, 2] {
        let (mut bed, a) = damaged(sides, 0);
        bed.life(async |service| {
            let b = find(&service, "tank", "b").await.unwrap();
            // Reads work in the rest of the file.
            assert!(is_io(&read(&service, a, 0).await.unwrap_err()));
            let last = (PAGES - 1) * STEP;
            assert_eq!(read(&service, a, last).await.unwrap(), noise(PAGES - 1, 1));
            assert_eq!(unreadable(&service), [(a.object, vec![(0, 1)])]);
            // Writes into the damage and elsewhere, of both files. All are acknowledged.
            for (file, page) in [(a, 0), (a, 1), (a, last), (b, 0), (b, last)] {
                let stability = Stability::FileSync;
                write(&service, file, page, &noise(7 + page, 1), stability).await.unwrap();
            }
            service.pool.sync().await.unwrap();
            let damages = lost_changes(&service).await;
            assert_eq!(damages.len(), 1);
            let found = &damages[0];
            assert_eq!((found.dataset.as_str(), found.path.as_deref()), ("tank", Some("/a")));
            assert_eq!(found.damage.ranges, [(0, 2)]);
            assert_eq!(found.damage.object, a.object);
            // From now on reads of the file fail, and show no stale data.
            for page in [0, 1, last] {
                assert!(is_io(&read(&service, a, page).await.unwrap_err()));
            }
            let refused = write(&service, a, last, &noise(1, 1), Stability::Unstable).await;
            assert!(is_io(&refused.unwrap_err()));
            assert!(is_io(
                &service.files.commit(&root(), a, 0, 0).await.kept().await.0.unwrap_err()
            ));
            assert_eq!(read(&service, b, last).await.unwrap(), noise(7 + last, 1));
            assert!(service.pool.suspended().is_none());
        });
        bed.assert_only(&DAMAGE);
        bed.life(async |service| {
            // The damage is remembered, until a person accepts the rest of the file.
            let last = (PAGES - 1) * STEP;
            assert!(is_io(&read(&service, a, last).await.unwrap_err()));
            // UNSTABLE writes are lost too: clients must send them again.
            let verifier = service.files.verifier();
            service.files.clear_damage("tank", a.object).await.unwrap();
            assert_ne!(service.files.verifier(), verifier);
            assert_eq!(read(&service, a, last).await.unwrap(), noise(7 + last, 1));
            assert!(is_io(&read(&service, a, 0).await.unwrap_err()));
            write(&service, a, last, &noise(1, 1), Stability::FileSync).await.unwrap();
            service.pool.sync().await.unwrap();
            assert_eq!(read(&service, a, last).await.unwrap(), noise(1, 1));
            // Truncation to zero needs no node: the file is whole again.
            let set = SetAttributes { size: Some(0), ..Default::default() };
            service.files.setattr(&root(), a, &set, None).await.kept().await.0.unwrap();
            write(&service, a, 0, &noise(2, 1), Stability::FileSync).await.unwrap();
            service.pool.sync().await.unwrap();
            assert_eq!(read(&service, a, 0).await.unwrap(), noise(2, 1));
            assert!(
                service
                    .files
                    .remove(&root(), service.files.root("tank").unwrap(), b"a")
                    .await
                    .kept()
                    .await
                    .0
                    .is_ok()
            );
            service.pool.sync().await.unwrap();
        });
        bed.assert_only(&DAMAGE);
    }
}

/// Reads of a sector fail, as often as `when` says.
fn refuse_reads(bed: &Bed, sector: u64, when: When) {
    for disk in &bed.disks {
        disk.inject(FaultRule::new(Fault::ReadError, when).within(sector..sector + 1));
    }
}

/// A disk that gives an error may still hold the data: a passing error costs nothing.
#[test]
pub fn a_read_error_that_passes_costs_nothing() {
    for sides in [1, 2] {
        let mut bed = Bed::new(sides, 65536);
        let a = bed.life(async |service| fill(&service, "a").await);
        let leaf = bed.find_node(a.object.0, 0, 0);
        let disks = bed.disks.clone();
        bed.life(async |service| {
            write(&service, a, 0, &noise(7, 1), Stability::FileSync).await.unwrap();
            for (at, disk) in disks.iter().enumerate() {
                // One after the other, so that each read meets one; the second try of each read,
                // too.
                for skipped in [0, at as u64] {
                    let rule = FaultRule::new(Fault::ReadError, When::OnceAfter(skipped));
                    disk.inject(rule.within(leaf..leaf + 1));
                }
            }
            service.pool.sync().await.unwrap();
            assert!(service.files.damages().await.is_empty());
            assert_eq!(read(&service, a, 0).await.unwrap(), noise(7, 1));
            assert_eq!(read(&service, a, 2).await.unwrap(), noise(1, 1));
        });
        bed.assert_clean();
    }
}

/// A lasting read error suspends the pool, and the log keeps all acknowledged changes. The pool
/// gives up the unreadable data only by order.
#[test]
pub fn a_read_error_that_stays_keeps_what_was_acknowledged() {
    let mut bed = Bed::new(1, 65536);
    let a = bed.life(async |service| fill(&service, "a").await);
    let leaf = bed.find_node(a.object.0, 0, 0);
    refuse_reads(&bed, leaf, When::Always);
    bed.short_life(async |service| {
        write(&service, a, 0, &noise(7, 1), Stability::FileSync).await.unwrap();
        let failed = service.pool.sync().await;
        assert!(matches!(failed, Err(PoolError::Suspended(_))), "{failed:?}");
        assert!(service.pool.suspended().is_some());
    });
    // The next import gets to the point where it would write the changes out, and stops there too.
    bed.short_life(async |service| {
        let failed = service.pool.sync().await;
        assert!(matches!(failed, Err(PoolError::Suspended(_))), "{failed:?}");
    });
    bed.disks[0].clear_faults();
    bed.life(async |service| {
        assert_eq!(read(&service, a, 0).await.unwrap(), noise(7, 1));
        assert!(service.files.damages().await.is_empty());
    });
    bed.assert_clean();
    refuse_reads(&bed, bed.find_node(a.object.0, 0, 0), When::Always);
    bed.short_life(async |service| {
        write(&service, a, 0, &noise(8, 1), Stability::FileSync).await.unwrap();
        assert!(service.pool.sync().await.is_err());
    });
    bed.options.discard_unreadable = true;
    bed.life(async |service| {
        service.pool.sync().await.unwrap();
        let found = lost_changes(&service).await;
        assert_eq!(found[0].damage.ranges, [(0, 1)]);
        // The order covers only the changes that the log brought.
        let b = make(&service, service.files.root("tank").unwrap(), "b").await;
        write(&service, b, 0, &noise(9, 1), Stability::FileSync).await.unwrap();
    });
}

#[test]
fn a_damaged_root_node_costs_the_file_and_nothing_else() {
    for sides in [1, 2] {
        let (mut bed, a) = damaged(sides, 1);
        bed.life(async |service| {
            let b = find(&service, "tank", "b").await.unwrap();
            for file in [a, b] {
                for page in [0, 500, 5000] {
                    let data = noise(3 + page, 4);
                    write(&service, file, page, &data, Stability::FileSync).await.unwrap();
                }
            }
            service.pool.sync().await.unwrap();
            let found = lost_changes(&service).await;
            assert_eq!(found[0].damage.ranges, [(0, 4), (500, 504), (5000, 5004)]);
            assert!(is_io(&read(&service, a, 5000).await.unwrap_err()));
            assert_eq!(read(&service, b, 5000).await.unwrap(), noise(5003, 4)[..4096]);
            // Removal works. The unreadable blocks stay allocated, and keep no txg busy.
            let top = service.files.root("tank").unwrap();
            service.files.remove(&root(), top, b"a").await.kept().await.0.unwrap();
            service.pool.sync().await.unwrap();
            service.pool.sync().await.unwrap();
            assert!(!service.datasets.has_background_work());
        });
        bed.assert_only(&DAMAGE);
        bed.life(async |service| {
            assert_eq!(find(&service, "tank", "a").await, Err(FsError::NotFound));
            let b = find(&service, "tank", "b").await.unwrap();
            assert_eq!(read(&service, b, 5000).await.unwrap(), noise(5003, 4)[..4096]);
        });
    }
}

/// Space that was allocated for an unreadable leaf is freed again.
#[test]
fn what_finds_no_place_takes_no_room() {
    const LOST_PAGES: usize = 200;
    let (mut bed, a) = damaged(1, 0);
    bed.life(async |service| {
        let settled_free = async || {
            for _ in 0..8 {
                service.pool.sync().await.unwrap();
            }
            service.pool.status().space.free()
        };
        let before = settled_free().await;
        let data = noise(7, LOST_PAGES);
        write(&service, a, 0, &data, Stability::Unstable).await.unwrap();
        let after = settled_free().await;
        assert_eq!(lost_changes(&service).await[0].damage.ranges, [(0, LOST_PAGES as u64)]);
        assert!(before - after < LOST_PAGES as u64 / 2, "{before} sectors free, then {after}");
    });
    bed.assert_only(&DAMAGE);
}

/// Some entries of a large directory cannot be changed.
#[test]
fn a_damaged_directory_loses_names_and_says_which() {
    let mut bed = Bed::new(1, 65536);
    let first = bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        for at in 0..500 {
            make(&service, top, &format!("f{at}")).await;
        }
        service.pool.sync().await.unwrap();
        let listed = service.files.readdir(&root(), top, 2, 1, false).await.unwrap().0;
        listed[0].clone()
    });
    let leaf = bed.find_node(ROOT_DIRECTORY.0, 0, first.cookie);
    bed.rot(leaf);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        assert!(is_io(&service.files.readdir(&root(), top, 0, 10, false).await.unwrap_err()));
        let mut refused = 0;
        let mut removed = 0;
        for at in 0..500 {
            let name = format!("f{at}");
            match service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0 {
                Ok(()) => removed += 1,
                Err(error) => {
                    assert!(is_io(&error), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 10 && removed > 300, "{refused} names in the leaf, {removed} elsewhere");
        assert!(lost_changes(&service).await.is_empty());
        assert_eq!(unreadable(&service), [(ROOT_DIRECTORY, Vec::new())]);
        service.pool.sync().await.unwrap();
        assert!(service.pool.suspended().is_none());
    });
    bed.assert_only(&[Kind::NodeUnreadable, Kind::LeakUnknown, Kind::Orphan]);
}

/// A damaged leaf of the object table. Its objects are lost, and the dataset takes no changes. The
/// pool goes on, and a later import works with records for those objects in its log.
#[test]
fn a_damaged_object_table_stops_its_dataset_only() {
    let mut bed = Bed::new(2, 65536);
    let files = bed.life(async |service| {
        service.datasets.create("tank/vms", &[]).await.unwrap();
        let top = service.files.root("tank/vms").unwrap();
        let mut files = Vec::new();
        for at in 0..100 {
            files.push(make(&service, top, &format!("f{at}")).await);
        }
        files
    });
    let begins = |file: &&FileHandle| bed.search_node(0, 0, file.object.0).is_some();
    let lost = *files.iter().find(begins).unwrap();
    let sector = bed.find_node(0, 0, lost.object.0);
    let kept = *files.first().unwrap();
    assert_ne!(kept, lost);
    // The file is in memory while its inode rots on disk: its changes have no place.
    let cloned = bed.disks.clone();
    bed.short_life(async |service| {
        for file in [lost, kept] {
            write(&service, file, 0, &noise(1, 1), Stability::FileSync).await.unwrap();
        }
        cloned.iter().for_each(|disk| disk.corrupt(sector, aquifer_sim::Corruption::Garbage));
    });
    bed.short_life(async |service| {
        // The replay skipped one record.
        let damages = lost_changes(&service).await;
        assert_eq!(damages.len(), 1);
        assert!(damages[0].damage.inode_lost);
        assert_eq!(damages[0].damage.object, lost.object);
        assert_eq!(read(&service, kept, 0).await.unwrap(), noise(1, 1));
        let refused = write(&service, kept, 0, &noise(2, 1), Stability::FileSync).await;
        assert!(is_io(&refused.unwrap_err()));
        let top = service.files.root("tank").unwrap();
        let other = make(&service, top, "elsewhere").await;
        write(&service, other, 0, &noise(3, 1), Stability::FileSync).await.unwrap();
        service.pool.sync().await.unwrap();
        assert!(service.pool.suspended().is_none());
    });
    bed.life(async |service| {
        let other = find(&service, "tank", "elsewhere").await.unwrap();
        assert_eq!(read(&service, other, 0).await.unwrap(), noise(3, 1));
        assert_eq!(read(&service, kept, 0).await.unwrap(), noise(1, 1));
        assert!(is_io(&read(&service, lost, 0).await.unwrap_err()));
        // The dataset can be destroyed all the same; its damaged blocks stay allocated.
        service.datasets.destroy("tank/vms", false).await.unwrap();
        for _ in 0..5 {
            service.pool.sync().await.unwrap();
        }
        assert!(!service.datasets.has_background_work());
    });
    bed.assert_only(&[Kind::NodeUnreadable, Kind::LeakUnknown, Kind::ReferBytes]);
}

/// Damage that only reads met is remembered too, by name and range, until it is overwritten.
#[test]
fn what_reads_do_not_get_is_remembered_until_it_is_written_over() {
    for sides in [1, 2] {
        let mut bed = Bed::new(sides, 65536);
        let (a, places) = bed.life(async |service| {
            let a = fill(&service, "a").await;
            let dataset = service.datasets.by_name("tank").unwrap();
            service.pool.sync().await.unwrap();
            let root = dataset.cached(a.object).unwrap().state.lock().root_to_read().unwrap();
            let extents =
                aquifer_object::extent_tree::lookup_range(service.pool.as_ref(), root, 0, 20);
            let extents = extents.await.unwrap();
            (a, extents.iter().map(|extent| extent.place.sector()).collect::<Vec<_>>())
        });
        // Pages 0, 2 and 8: the first two with a hole between them.
        for at in [0, 1, 4] {
            bed.rot(places[at]);
        }
        let remembered = unreadable;
        let all = vec![(a.object, vec![(0, 1), (2, 3), (8, 9)])];
        bed.life(async |service| {
            assert!(remembered(&service).is_empty());
            let cred = root();
            let read = service.files.read(&cred, a, 0, 20 * 4096).await;
            assert!(is_io(&read.unwrap_err()));
            assert_eq!(remembered(&service), all);
            let found = service.files.damages().await;
            assert_eq!(found[0].path.as_deref(), Some("/a"));
            // The file is not marked as damaged: the rest of it can be read and written.
            assert_eq!(read_page(&service, a, 4).await, noise(2, 1));
            service.pool.sync().await.unwrap();
        });
        let report = bed.inspect();
        let kinds: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
        assert!(kinds.contains(&Kind::DamageRemembered), "{report}");
        // Across a restart and a kill. A write covers one of the ranges, and a truncation another.
        bed.short_life(async |service| {
            assert_eq!(remembered(&service), all);
            write(&service, a, 0, &noise(7, 1), Stability::FileSync).await.unwrap();
            service.pool.sync().await.unwrap();
            assert_eq!(remembered(&service), [(a.object, vec![(2, 3), (8, 9)])]);
        });
        bed.life(async |service| {
            assert_eq!(remembered(&service), [(a.object, vec![(2, 3), (8, 9)])]);
            let set = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
            service.files.setattr(&root(), a, &set(4 * 4096), None).await.kept().await.0.unwrap();
            service.pool.sync().await.unwrap();
            assert_eq!(remembered(&service), [(a.object, vec![(2, 3)])]);
            let top = service.files.root("tank").unwrap();
            service.files.remove(&root(), top, b"a").await.kept().await.0.unwrap();
            for _ in 0..4 {
                service.pool.sync().await.unwrap();
            }
            assert!(remembered(&service).is_empty());
        });
        bed.life(async |service| assert!(remembered(&service).is_empty()));
        bed.assert_clean();
    }
}

async fn read_page(service: &Service, file: FileHandle, page: u64) -> Vec<u8> {
    read(service, file, page).await.unwrap()
}

/// The rest of a range, overwritten in many places, fits its record, however long it is.
#[test]
fn a_range_written_over_here_and_there_fits_its_record() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let a = make(&service, service.files.root("tank").unwrap(), "a").await;
        let dataset = service.datasets.by_name("tank").unwrap();
        let error = PoolError::from(Corruption::ExtentPages);
        service.datasets.note_unreadable(&dataset, a.object, vec![(0, 1 << 48)], &error);
        for page in 0..100 {
            write(&service, a, 2 * page, &noise(page, 1), Stability::Unstable).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        let found = unreadable(&service);
        assert_eq!((found[0].1.len(), found[0].1[0]), (40, (1, 2)));
    });
    bed.assert_clean();
}

/// The list of damage is bounded, however much is lost.
#[test]
fn what_is_remembered_is_bounded() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let dataset = service.datasets.by_name("tank").unwrap();
        let error = PoolError::Suspended("x".repeat(5000));
        for object in 1000..3000 {
            let ranges = (0..object % 100).map(|at| (3 * at, 3 * at + 1)).collect();
            service.datasets.note_unreadable(&dataset, ObjectId(object), ranges, &error);
        }
        assert_eq!(service.datasets.damaged_objects(), 1000);
        while service.datasets.has_background_work() {
            service.pool.sync().await.unwrap();
        }
    });
    bed.life(async |service| {
        assert_eq!(service.datasets.damaged_objects(), 1000);
        let of = |object| service.datasets.damages().into_iter().find(|d| d.object.0 == object);
        assert_eq!(of(1005).unwrap().ranges.len(), 5);
        assert!(of(1099).unwrap().more);
    });
    bed.assert_clean();
}
