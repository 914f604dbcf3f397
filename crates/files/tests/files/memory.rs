//! Memory that data takes.

use aquifer_blockio::buf::Filling;
use aquifer_files::{FileHandle, Piece, Service, Stability};

use crate::bed::{Bed, find, make, noise, read, root};

/// Writes pages as a server gets them from its socket: neighbours in memory.
async fn write_block(service: &Service, file: FileHandle, data: &[u8]) {
    let mut filling = Filling::new(data.len() / 4096);
    filling.put(data);
    let pages = filling.finish().unwrap();
    let piece = Piece::of_pages(0, &pages);
    let made = service.files.write_batch(&root(), file, &[piece], Stability::FileSync).await;
    made.unwrap().promised.kept().await.unwrap();
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
        service.files.remove(&root(), top, b"file").await.kept().await.0.unwrap();
        service.pool.sync().await.unwrap();
        while service.datasets.has_background_work() {
            service.pool.sync().await.unwrap();
        }
        assert_eq!(entries(), 0);
    });
}

/// Data that is compressed on disk is uncompressed in memory, and counts with that size.
#[test]
fn compressed_blocks_count_for_what_they_take_in_memory() {
    const PAGES: usize = 256;
    let mut bed = Bed::new(1, 65_536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        let mut data = noise(1, PAGES);
        data.chunks_mut(4096).for_each(|page| page[1000..].fill(7));
        write_block(&service, file, &data).await;
        service.pool.sync().await.unwrap();
        let used = service.files.getattr(file).await.unwrap().used;
        assert!(used < PAGES as u64 * 4096 * 2 / 3, "{used} bytes: it is not compressed");
    });
    bed.life(async |service| {
        let file = find(&service, "tank", "file").await.unwrap();
        let before = service.pool.cache_stats().class.data.bytes;
        for page in 0..PAGES as u64 {
            read(&service, file, page).await.unwrap();
        }
        let took = service.pool.cache_stats().class.data.bytes - before;
        assert!(took >= PAGES as u64 * 4096, "{took} bytes");
    });
}
