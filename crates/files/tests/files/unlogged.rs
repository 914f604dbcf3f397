//! `sync=disabled`: such a dataset has no log records, and can be logged again at any moment. The
//! power-cut simulator tries power cuts on it at random.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use aquifer_dataset::ROOT_DIRECTORY;
use aquifer_files::{FsError, SetAttributes, Stability};
use futures_util::future::{join, select};

use crate::bed::{Bed, find, make, noise, read, root, write};

const DISABLED: Option<&str> = Some("disabled:a test");

#[test]
fn nothing_is_logged_and_every_answer_says_what_was_asked_for() {
    let mut bed = Bed::new(1, 65536);
    bed.short_life(async |service| {
        let reason = ("sync".to_string(), "disabled:a test".to_string());
        service.datasets.create("tank/scratch", &[reason]).await.unwrap();
        service.datasets.create("tank/vms", &[]).await.unwrap();
        let [scratch, vms] = ["tank/scratch", "tank/vms"].map(|of| service.files.root(of).unwrap());
        let mark = service.pool.log().mark();
        let file = make(&service, scratch, "file").await;
        for (at, asked) in
            [Stability::Unstable, Stability::DataSync, Stability::FileSync].into_iter().enumerate()
        {
            let data = noise(at as u64, 40);
            let offset = at as u64 * 40 * 4096;
            let said = service.files.write(&root(), file, offset, &data, asked).await.0.unwrap();
            assert!(said >= asked && (said == asked || asked == Stability::DataSync), "{said:?}");
        }
        service.files.commit(&root(), file, 0, 0).await.kept().await.0.unwrap();
        service.files.remove(&root(), scratch, b"file").await.kept().await.0.unwrap();
        let kept = make(&service, scratch, "kept").await;
        assert_eq!(service.pool.log().mark(), mark, "something was logged");
        let other = make(&service, vms, "file").await;
        assert!(service.pool.log().mark() > mark);
        // This dataset is not logged; all others are.
        service.pool.sync().await.unwrap();
        write(&service, kept, 0, &noise(7, 1), Stability::FileSync).await.unwrap();
        write(&service, other, 0, &noise(8, 1), Stability::FileSync).await.unwrap();
    });
    bed.life(async |service| {
        let kept = find(&service, "tank/scratch", "kept").await.unwrap();
        assert_eq!(find(&service, "tank/scratch", "file").await, Err(FsError::NotFound));
        assert_eq!(read(&service, kept, 0).await.unwrap(), b"");
        let other = find(&service, "tank/vms", "file").await.unwrap();
        assert_eq!(read(&service, other, 0).await.unwrap(), noise(8, 1));
    });
    bed.assert_clean();
}

/// The one place where timing decides. Two changes are past the gate when it is shut. One enters
/// its txg after the commit that was meant to be the last one. The other is logged as soon as
/// logging is on, and its record holds the directory with the first change. There the machine dies.
#[test]
fn a_late_change_is_on_disk_before_anything_is_logged() {
    let mut bed = Bed::new(1, 65536);
    let world = bed.world();
    bed.short_life(async |service| {
        service.datasets.create("tank/scratch", &[]).await.unwrap();
        service.datasets.set("tank/scratch", "sync", DISABLED).await.unwrap();
        let top = service.files.root("tank/scratch").unwrap();
        let set = SetAttributes::default();
        let below =
            service.files.mkdir(&root(), top, b"below", &set).await.kept().await.0.unwrap().handle;
        make(&service, below, "file").await;
        service.pool.sync().await.unwrap();
        let dataset = service.datasets.by_name("tank/scratch").unwrap();
        let object = async |id| dataset.object(&service.pool, id).await.unwrap().unwrap();
        let (top_object, below_object) = (object(ROOT_DIRECTORY).await, object(below.object).await);
        let (top_lock, below_lock) =
            (top_object.writer.lock().await, below_object.writer.lock().await);
        let changes = async {
            let moved = async {
                let (from, to) = ((below, &b"file"[..]), (top, &b"moved"[..]));
                service.files.rename(&root(), from, to).await.kept().await.0.unwrap();
            };
            join(make(&service, top, "late"), moved).await;
        };
        let switch = async {
            // After the others, which wait for the directory by now.
            world.sleep(Duration::from_micros(1)).await;
            let open = service.pool.open_txg();
            let set = service.datasets.set("tank/scratch", "sync", Some("standard"));
            let let_go = async {
                while service.pool.open_txg() == open {
                    world.sleep(Duration::from_nanos(100)).await;
                }
                drop(top_lock);
                while !dataset.is_logged(&service.pool) {
                    world.sleep(Duration::from_nanos(100)).await;
                }
                drop(below_lock);
            };
            let (set, ()) = join(set, let_go).await;
            set.unwrap();
            panic!("the switch was over before the machine could die");
        };
        select(pin!(changes), pin!(switch)).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        find(&service, "tank/scratch", "late").await.unwrap();
        find(&service, "tank/scratch", "moved").await.unwrap();
    });
    bed.assert_clean();
}

/// Writers that never pause do not keep the dataset from being logged again.
#[test]
fn a_busy_dataset_is_logged_again_soon() {
    const WRITES_MAX: u64 = 20_000;
    const TXGS_MAX: u64 = 8;
    let mut bed = Bed::new(1, 65536);
    let world = bed.world();
    bed.life(async |service| {
        service.datasets.create("tank/scratch", &[]).await.unwrap();
        service.datasets.set("tank/scratch", "sync", DISABLED).await.unwrap();
        for _ in 0..3 {
            service.pool.sync().await.unwrap();
        }
        let top = service.files.root("tank/scratch").unwrap();
        let file = make(&service, top, "file").await;
        let is_set = Cell::new(false);
        let writes = async {
            for at in 0..WRITES_MAX {
                if is_set.get() {
                    break;
                }
                write(&service, file, at % 64, &noise(at, 1), Stability::FileSync).await.unwrap();
                world.sleep(Duration::from_micros(50)).await;
            }
        };
        let set = async {
            let before = service.pool.open_txg().0;
            service.datasets.set("tank/scratch", "sync", Some("standard")).await.unwrap();
            is_set.set(true);
            service.pool.open_txg().0 - before
        };
        let ((), txgs) = join(writes, set).await;
        println!("DBG {txgs} {:?}", world.now());
        assert!(txgs <= TXGS_MAX, "after {txgs} txgs");
    });
    bed.assert_clean();
}

/// A handle that was lost with the machine never names another file, whatever is made later.
#[test]
fn a_lost_handle_never_names_another_file() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/scratch", &[]).await.unwrap();
        service.datasets.set("tank/scratch", "sync", DISABLED).await.unwrap();
    });
    let mut lost = Vec::new();
    for _ in 0..3 {
        let made = bed.short_life(async |service| {
            let top = service.files.root("tank/scratch").unwrap();
            let mut made = Vec::new();
            for number in 0..5 {
                made.push(make(&service, top, &format!("f{number}")).await);
            }
            for file in &lost {
                let found = service.files.getattr(*file).await.map(drop);
                assert_eq!(found, Err(FsError::Stale), "{file:?}");
            }
            made
        });
        lost.extend(made);
    }
}
