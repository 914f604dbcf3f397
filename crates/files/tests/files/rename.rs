//! RENAME over an existing name: no reader ever finds it missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aquifer_dataset::ROOT_DIRECTORY;
use aquifer_files::{FileHandle, FsError, SetAttributes};

use crate::bed::{Bed, make, root};

/// A directory can move anywhere except below itself.
#[test]
fn a_directory_is_moved_with_all_below_it() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let files = &service.files;
        let top = files.root("tank").unwrap();
        let set = SetAttributes::default();
        let mut path = vec![top];
        for name in ["a", "b", "c"] {
            let made = files
                .mkdir(&root(), path[path.len() - 1], name.as_bytes(), &set)
                .await
                .kept()
                .await
                .0;
            path.push(made.unwrap().handle);
        }
        let file = make(&service, path[3], "file").await;
        let rename = async |from: (FileHandle, &str), to: (FileHandle, &str)| {
            let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
            files.rename(&root(), from, to).await.kept().await.0
        };
        for below in &path[1..] {
            assert_eq!(rename((top, "a"), (*below, "x")).await, Err(FsError::Invalid));
        }
        // Two levels up, and down again under another one.
        rename((path[2], "c"), (top, "c")).await.unwrap();
        rename((top, "a"), (path[3], "a")).await.unwrap();
        let mut at = top;
        for name in ["c", "a", "b"] {
            at = files.lookup(&root(), at, name.as_bytes()).await.0.unwrap().handle;
        }
        assert_eq!(at, path[2]);
        assert_eq!(files.lookup(&root(), path[1], b"..").await.0.unwrap().handle, path[3]);
        assert_eq!(files.lookup(&root(), path[3], b"file").await.0.unwrap().handle, file);
        assert_eq!(rename((top, "c"), (at, "x")).await, Err(FsError::Invalid), "below itself now");
    });
    bed.assert_clean();
}

/// On another thread: the daemon has one for each core.
#[test]
fn a_name_that_is_replaced_is_never_missing() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        for dataset in ["one", "two"] {
            make(&service, top, dataset).await;
        }
        let directory = service.datasets.by_name("tank").unwrap().cached(ROOT_DIRECTORY).unwrap();
        service.pool.sync().await.unwrap();
        let key_of_one = {
            let entries = directory.read_entries(&service.pool, 0, u64::MAX - 1, 9).await.unwrap();
            entries.into_iter().find(|entry| entry.name == b"one").unwrap().key
        };
        let done = Arc::new(AtomicBool::new(false));
        let look = {
            let (directory, done) = (directory.clone(), done.clone());
            move || {
                let (mut looks, mut missing) = (0_u64, 0_u64);
                while !done.load(Ordering::Relaxed) {
                    let seen = directory.state.lock().overlay.entries(key_of_one, key_of_one);
                    looks += 1;
                    // A name that is not in the overlay is in the tree.
                    missing += u64::from(seen.get(&key_of_one).is_some_and(Option::is_none));
                }
                (looks, missing)
            }
        };
        let looker = std::thread::spawn(look);
        for _ in 0..3000 {
            let (from, to) = ((top, &b"two"[..]), (top, &b"one"[..]));
            service.files.rename(&root(), from, to).await.kept().await.0.unwrap();
            make(&service, top, "two").await;
        }
        done.store(true, Ordering::Relaxed);
        let (looks, missing) = looker.join().unwrap();
        assert!(looks > 1000);
        assert_eq!(missing, 0, "of {looks} looks");
    });
}
