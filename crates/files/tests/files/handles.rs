//! Handles: no handle ever names two files, in whatever life of the pool a client got it.

use std::time::Duration;

use aquifer_files::{CreateHow, FsError, Service, SetAttributes, Stability};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::types::SEQUENCE_LIMIT;

use crate::bed::{Bed, find, make, noise, read, root, write};

/// Clients saw files that a rewind drops. Their handles must not name files that are made later.
#[test]
pub fn a_rewind_gives_no_handle_out_again() {
    let mut bed = Bed::new(1, 65536);
    let old = bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        for at in 0..3 {
            make(&service, top, &format!("kept{at}")).await;
            service.pool.sync().await.unwrap();
        }
        let old = make(&service, top, "old").await;
        write(&service, old, 0, &noise(1, 1), Stability::FileSync).await.unwrap();
        service.pool.sync().await.unwrap();
        old
    });
    bed.options.rewind = 2;
    bed.life(async |service| {
        assert_eq!(find(&service, "tank", "old").await, Err(FsError::NotFound));
        let top = service.files.root("tank").unwrap();
        for at in 0..5 {
            let new = make(&service, top, &format!("new{at}")).await;
            write(&service, new, 0, &noise(2, 1), Stability::FileSync).await.unwrap();
        }
        assert_eq!(read(&service, old, 0).await, Err(FsError::Stale));
        let written = write(&service, old, 0, &noise(3, 1), Stability::FileSync).await;
        assert_eq!(written, Err(FsError::Stale));
    });
    bed.options.rewind = 0;
    bed.assert_clean();
}

/// A client can look up a name before its CREATE is durable. A power cut takes the file, and the
/// client still has its handle.
#[test]
pub fn a_file_seen_before_it_was_durable_leaves_no_handle_behind() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        make(&service, service.files.root("tank").unwrap(), "first").await;
    });
    let shown = bed.cut_life(async |service| {
        let top = service.files.root("tank").unwrap();
        let looked = async {
            loop {
                if let Ok(found) = find(&service, "tank", "second").await {
                    return found;
                }
                futures_util::future::ready(()).await;
                service.pool.world().sleep(Duration::from_nanos(1)).await;
            }
        };
        let created = make(&service, top, "second");
        match futures_util::future::select(std::pin::pin!(created), std::pin::pin!(looked)).await {
            futures_util::future::Either::Left(_) => panic!("created before it was seen"),
            futures_util::future::Either::Right((found, _)) => found,
        }
    });
    bed.life(async |service| {
        assert_eq!(find(&service, "tank", "second").await, Err(FsError::NotFound));
        let top = service.files.root("tank").unwrap();
        let third = make(&service, top, "third").await;
        assert_ne!(third, shown);
        assert_eq!(read(&service, shown, 0).await, Err(FsError::Stale));
    });
    bed.assert_clean();
}

/// A handle opens its file without a LOOKUP of the directories above, so it is a secret. A client
/// that has many learns nothing about others.
#[test]
pub fn a_handle_cannot_be_guessed_from_others() {
    const FILES: usize = 200;
    let mut bed = Bed::new(1, 65536);
    let mut all = bed.life(async |service| several(&service, 0..FILES / 2).await);
    all.extend(bed.life(async |service| several(&service, FILES / 2..FILES).await));
    all.sort_unstable();
    let nearest = all.windows(2).map(|pair| pair[1] - pair[0]).min();
    // Of 200 random numbers below 2^63 two are nearer than this once in 200,000 runs.
    assert!(nearest > Some(1 << 30), "two generations are {nearest:?} apart");
    assert!(all[FILES / 2] > 1 << 55, "half of them are below {}", all[FILES / 2]);
}

async fn several(service: &Service, range: std::ops::Range<usize>) -> Vec<u64> {
    let top = service.files.root("tank").unwrap();
    let mut generations = Vec::new();
    for at in range {
        generations.push(make(service, top, &format!("file{at}")).await.generation);
    }
    generations
}

/// A hostile disk may claim that nearly all ids are in use. The last one is given out, and no
/// other; data written then can be read.
#[test]
fn ids_end_before_what_the_format_can_hold() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let dataset = service.datasets.by_name("tank").unwrap();
        dataset.keep_id(ObjectId(SEQUENCE_LIMIT - 3));
        make(&service, top, "last").await;
        for _ in 0..2 {
            let how = CreateHow::Guarded(SetAttributes::default());
            let made = service.files.create(&root(), top, b"more", how).await.kept().await.0;
            assert_eq!(made.map(|made| made.handle), Err(FsError::NoSpace));
        }
        service.pool.sync().await.unwrap();
    });
    bed.life(async |service| {
        find(&service, "tank", "last").await.unwrap();
        assert_eq!(find(&service, "tank", "more").await, Err(FsError::NotFound));
    });
    bed.assert_clean();
}
