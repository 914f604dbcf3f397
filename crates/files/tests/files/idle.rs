//! An idle pool: it frees removed files, and then does nothing.

use std::time::Duration;

use aquifer_files::{Service, Stability};

use crate::bed::{Bed, make, noise, root, write};

async fn pass(service: &Service, seconds: u64) {
    service.pool.world().sleep(Duration::from_secs(seconds)).await;
}

#[test]
fn what_is_removed_is_free_soon_and_then_the_pool_rests() {
    let mut bed = Bed::new(2, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        make(&service, top, "kept").await;
        service.pool.sync().await.unwrap();
        pass(&service, 120).await;
        let free = service.pool.status().space.free();
        let file = make(&service, top, "file").await;
        for at in 0..100 {
            let page = at * 200;
            write(&service, file, page, &noise(at, 200), Stability::Unstable).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        let full = service.pool.status().space.free();
        assert!(full + 20_000 < free, "{full} of {free}");
        service.files.remove(&root(), top, b"file").await.kept().await.0.unwrap();
        pass(&service, 120).await;
        let space = service.pool.status().space;
        // Trees may have grown by a node or two.
        assert!(space.held == 0 && space.free() + 20 > free, "{space:?}, {free} were free");
        let txg = service.pool.committed_txg();
        pass(&service, 3600).await;
        assert_eq!(service.pool.committed_txg(), txg, "an idle pool commits nothing");
    });
    bed.assert_clean();
}

/// Freeing that takes several txgs gets them soon after each other, without a request.
#[test]
fn an_idle_pool_frees_without_long_pauses() {
    let mut bed = Bed::new(1, 65536);
    bed.options.scale.reap_entries_max = 100;
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        // An extent for each page.
        for at in 0..1000 {
            write(&service, file, at * 2, &noise(at, 1), Stability::Unstable).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        service.files.remove(&root(), top, b"file").await.kept().await.0.unwrap();
        let begun = service.pool.world().now();
        let (first, mut txgs) = (service.pool.committed_txg(), 0);
        while service.datasets.has_background_work() || txgs == 0 {
            pass(&service, 1).await;
            txgs = service.pool.committed_txg().0 - first.0;
        }
        let took = service.pool.world().now() - begun;
        assert!(txgs >= 3, "{txgs} txgs: freed at once, which shows nothing");
        assert!(took < Duration::from_secs(15 * (txgs - 1)), "{txgs} txgs in {took:?}");
    });
}

/// Among many datasets a sync looks at those that changed, and at those for which work waits.
#[test]
fn a_sync_looks_at_what_changed() {
    let mut bed = Bed::new(1, 65536);
    bed.options.scale.reap_entries_max = 100;
    bed.life(async |service| {
        for number in 0..50 {
            let name = format!("tank/of{number}");
            service.datasets.create(&name, &[]).await.unwrap();
        }
        pass(&service, 120).await;
        assert_eq!(service.datasets.awake_count(), 0, "all rest");
        let of = async |number: u32| {
            let top = service.files.root(&format!("tank/of{number}")).unwrap();
            let file = make(&service, top, "file").await;
            write(&service, file, 0, &noise(0, 1), Stability::Unstable).await.unwrap();
            top
        };
        of(7).await;
        let top = of(8).await;
        assert_eq!(service.datasets.awake_count(), 2);
        service.pool.sync().await.unwrap();
        service.pool.sync().await.unwrap();
        assert_eq!(service.datasets.awake_count(), 0, "they are on disk");
        // Its end takes several txgs.
        let file = make(&service, top, "large").await;
        for at in 0..1000 {
            write(&service, file, at * 2, &noise(at, 1), Stability::Unstable).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        service.files.remove(&root(), top, b"large").await.kept().await.0.unwrap();
        service.pool.sync().await.unwrap();
        assert_eq!(service.datasets.awake_count(), 1, "it is being freed");
        service.datasets.snapshot(&["tank/of8@one".into()], false).await.unwrap();
        service.datasets.destroy("tank/of8", true).await.unwrap();
        assert!(service.datasets.awake_count() > 0);
        pass(&service, 600).await;
        assert_eq!(service.datasets.awake_count(), 0, "one that is gone does not stay awake");
    });
    bed.assert_clean();
    // All of an import are looked at once.
    bed.life(async |service| {
        assert_eq!(service.datasets.awake_count(), 50, "all of them, and the own one of the pool");
        let top = service.files.root("tank/of9").unwrap();
        make(&service, top, "file").await;
        service.pool.sync().await.unwrap();
        pass(&service, 120).await;
        assert_eq!(service.datasets.awake_count(), 0);
    });
    bed.assert_clean();
}
