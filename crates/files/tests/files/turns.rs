//! Acts that wait for what a rollback left to do hold no other act up; files that cannot go back
//! keep their later snapshots.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use aquifer_dataset::{DatasetError, RollbackOptions};
use aquifer_files::{FileHandle, Service, Stability};
use aquifer_sim::Corruption;
use futures_util::future::{LocalBoxFuture, join};

use crate::bed::{Bed, make, noise, read, settle, write};
use crate::by_text::ByText;
use crate::file_rollback::{GENTLY, one, roll_back, snapshot, take, with_disk};
use crate::spread::fill;

/// `tank/d` was rolled back, and the background files what came back: for many txgs.
async fn with_returning(service: &Service) -> FileHandle {
    let (_, disk) = with_disk(service).await;
    take(service, "f").await;
    // Each file's dead blocks are in a list of their own.
    let top = service.files.root("tank/d").unwrap();
    let mut files = Vec::new();
    for at in 0..200 {
        files.push(make(service, top, &format!("f{at}")).await);
    }
    for salt in [1, 2] {
        for file in &files {
            write(service, *file, 0, &noise(salt, 1), Stability::Unstable).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        if salt == 1 {
            snapshot(service, "a").await;
        }
    }
    fill(service, disk, 1000).await;
    service.datasets.rollback("tank/d@a", GENTLY).await.unwrap();
    disk
}

type Act = for<'a> fn(&'a Service) -> LocalBoxFuture<'a, ()>;

const WAITING: [(&str, Act); 4] = [
    ("rollback", |service| {
        Box::pin(async { drop(service.datasets.rollback("tank/d@a", GENTLY).await.unwrap()) })
    }),
    ("rollback of a file", |service| {
        Box::pin(async {
            let to = one(service, "f").await;
            roll_back(service, &to, GENTLY).await.unwrap();
        })
    }),
    ("destroy", |service| {
        Box::pin(async { service.datasets.destroy("tank/d", true).await.unwrap() })
    }),
    ("rollback that destroys", |service| {
        Box::pin(async {
            let options = RollbackOptions { destroy_later: true, force: false };
            drop(service.datasets.rollback("tank/d@a", options).await.unwrap());
        })
    }),
];

#[test]
pub fn an_act_that_waits_for_a_rollback_holds_none_up() {
    for (name, act) in WAITING {
        let mut bed = Bed::of_small_steps();
        bed.life(async |service| {
            with_returning(&service).await;
            let begun = service.pool.committed_txg().0;
            let waiting = async {
                act(&service).await;
                service.pool.committed_txg().0 - begun
            };
            let other = async {
                service.datasets.create("tank/other", &[]).await.unwrap();
                service.pool.committed_txg().0 - begun
            };
            let (waited, other) = join(waiting, other).await;
            assert!(waited > 8, "{name}: {waited} txgs are not worth a wait");
            assert!(other < waited / 2, "{name} took {waited} txgs, and another act {other}");
            settle(&service, 100).await;
        });
        bed.assert_clean();
    }
}

/// The inode of one file cannot be read when the sync comes to it.
#[test]
pub fn a_file_that_stays_keeps_its_later_snapshots() {
    let mut bed = Bed::of_small_steps();
    let name = |at: usize| format!("f{at}");
    let files = bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let top = service.files.root("tank/d").unwrap();
        let mut files = Vec::new();
        for at in 0..8 {
            let file = make(&service, top, &name(at)).await;
            write(&service, file, 0, &noise(1, 1), Stability::FileSync).await.unwrap();
            files.push(file);
        }
        for (at, of) in ["a", "b"].into_iter().enumerate() {
            service.files.take_named(&[format!("tank/d:f*@{of}")]).await.unwrap();
            for file in &files {
                let data = noise(2 + at as u64, 1);
                write(&service, *file, 0, &data, Stability::FileSync).await.unwrap();
            }
        }
        files
    });
    let begins = |at: &usize| bed.search_node(0, 0, files[*at].object.0).is_some();
    let lost = (1..8).find(begins).unwrap();
    let sector = bed.find_node(0, 0, files[lost].object.0);
    let kept = (1..8).rfind(|at| *at != lost && begins(at)).unwrap();
    let disks = bed.disks.clone();
    // The sync reads it from the disk.
    bed.options.scale.arc_bytes_max = 0;
    let names = async |service: &Service| {
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let all = dataset.file_snapshots(service.pool.committed_txg());
        let of = |path: &str| {
            let of = all.iter().filter(|of| of.record.path == path);
            of.map(|of| of.record.name.clone()).collect::<Vec<_>>()
        };
        [of(&name(lost)), of(&name(kept))]
    };
    bed.short_life(async |service| {
        for at in [lost, kept] {
            assert_eq!(read(&service, files[at], 0).await.unwrap(), noise(3, 1));
        }
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let all = dataset.file_snapshots(service.pool.committed_txg());
        let wanted = |path: &str| {
            all.iter().find(|of| of.record.path == path && of.record.name == "a").unwrap().id
        };
        let to = [wanted(&name(lost)), wanted(&name(kept))];
        disks.iter().for_each(|disk| disk.corrupt(sector, Corruption::Garbage));
        let options = RollbackOptions { destroy_later: true, force: false };
        let done = service.datasets.rollback_files(&dataset, &to, options).await;
        assert!(done.unwrap_err().to_string().contains("damaged"));
        let [lost, kept] = names(&service).await;
        assert_eq!((lost, kept), (vec!["a".to_string(), "b".into()], vec!["a".to_string()]));
    });
    bed.short_life(async |service| {
        let [lost, kept] = names(&service).await;
        assert_eq!((lost, kept), (vec!["a".to_string(), "b".into()], vec!["a".to_string()]));
    });
}

/// A rollback counts locks when none can be granted any more.
#[test]
fn locks_are_counted_behind_a_shut_door() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        take(&service, "f").await;
        snapshot(&service, "a").await;
        let (guid, locks) = (dataset.fs_guid, Arc::new(AtomicUsize::new(0)));
        let (files, held) = (Arc::downgrade(&service.files), locks.clone());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        service.datasets.count_locks_by(Arc::new(move |of, object| {
            assert_eq!(of, guid);
            assert!(files.upgrade().unwrap().goes_back(disk), "a lock could be granted now");
            noted.lock().unwrap().push(object);
            held.load(SeqCst)
        }));
        for count in [1, 0] {
            locks.store(count, SeqCst);
            let of_all = service.datasets.rollback("tank/d@a", GENTLY).await.map(drop);
            let to = one(&service, "f").await;
            let of_file = roll_back(&service, &to, GENTLY).await.map(drop);
            let refused = |name: &str| match count {
                0 => Ok(()),
                locks => Err(DatasetError::Locked { name: name.into(), locks }),
            };
            assert_eq!((of_all, of_file), (refused("tank/d"), refused("tank/d:disk@f")));
            assert!(!service.files.goes_back(disk), "the doors are open again");
            write(&service, disk, 0, &noise(8, 1), Stability::FileSync).await.unwrap();
        }
        let expected = [None, Some(disk.object)];
        assert_eq!(*asked.lock().unwrap(), [expected, expected].concat());
        locks.store(9, SeqCst);
        let force = RollbackOptions { force: true, ..GENTLY };
        service.datasets.rollback("tank/d@a", force).await.unwrap();
    });
    bed.assert_clean();
}
