//! What lies in memory.

use aquifer_blockio::buf::Filling;
use aquifer_files::{FileHandle, Service, Stability};

use crate::bed::{Bed, make, noise, root};

/// As a server takes them from its socket: neighbours in memory.
async fn write_block(service: &Service, file: FileHandle, data: &[u8]) {
    let mut filling = Filling::new(data.len() / 4096);
    filling.put(data);
    let pages = filling.finish().unwrap();
    service.files.write_pages(&root(), file, 0, &pages, Stability::FileSync).await.0.unwrap();
}

#[test]
fn what_is_freed_leaves_the_cache() {
    let mut bed = Bed::new(1, 65_536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        let entries = || service.pool.cache_stats().class.data.entries;
        for seed in 0..4 {
            write_block(&service, file, &noise(seed, 256)).await;
            service.pool.sync().await.unwrap();
            assert_eq!(entries(), 256, "nothing of what was there before");
        }
        service.files.remove(&root(), top, b"file").await.0.unwrap();
        service.pool.sync().await.unwrap();
        while service.datasets.has_background_work() {
            service.pool.sync().await.unwrap();
        }
        assert_eq!(entries(), 0);
    });
}
