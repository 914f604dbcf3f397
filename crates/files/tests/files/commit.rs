//! COMMIT of ranges that begin and end anywhere.

use aquifer_files::Stability;

use crate::bed::{Bed, find, make, noise, read, root, write};

#[test]
fn every_page_that_a_commit_touches_is_durable() {
    for (offset, count, touched) in [
        (0, 0, 0..4),
        (0, 1, 0..1),
        (0, 4096, 0..1),
        (0, 4097, 0..2),
        (4095, 2, 0..2),
        (4096, 1, 1..2),
        (8191, 4097, 1..3),
        (12_288, 4096, 3..4),
        (1, 16_383, 0..4),
        (8192, 0, 2..4),
    ] {
        let mut bed = Bed::new(1, 65536);
        let new = noise(2, 4);
        bed.cut_life(async |service| {
            let top = service.files.root("tank").unwrap();
            let file = make(&service, top, "file").await;
            write(&service, file, 0, &noise(1, 4), Stability::FileSync).await.unwrap();
            service.pool.sync().await.unwrap();
            write(&service, file, 0, &new, Stability::Unstable).await.unwrap();
            service.files.commit(&root(), file, offset, count).await.kept().await.0.unwrap();
        });
        bed.life(async |service| {
            let file = find(&service, "tank", "file").await.unwrap();
            for page in touched {
                let at = page as usize * 4096;
                let content = read(&service, file, page).await.unwrap();
                assert!(content == new[at..at + 4096], "COMMIT {offset}+{count}: page {page}");
            }
        });
        bed.assert_clean();
    }
}
