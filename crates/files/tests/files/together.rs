//! Small writes that become one change.

use std::time::Duration;

use aquifer_blockio::Page;
use aquifer_blockio::buf::pages_of;
use aquifer_files::{
    Around, FileHandle, Piece, Service, Stability, TOGETHER_MAX, TOGETHER_PAGES_MAX,
};

use crate::bed::{Bed, find, make, noise, read, root, write};

async fn together(
    service: &Service,
    file: FileHandle,
    writes: &[(u64, Vec<Page>)],
) -> Option<Vec<Around>> {
    let pieces: Vec<Piece<'_>> =
        writes.iter().map(|(at, pages)| Piece::of_pages(*at, pages)).collect();
    let made = service.files.write_batch(&root(), file, &pieces, Stability::FileSync).await;
    let made = made.ok()?;
    made.promised.kept().await.unwrap();
    assert_eq!(made.stability, Stability::FileSync);
    assert_eq!(made.arounds.len(), writes.len());
    Some(made.arounds)
}

/// Writes that cannot be coalesced change nothing; coalesced ones are all there after the server
/// was killed.
#[test]
fn writes_are_made_together_whole_or_not_at_all() {
    let mut bed = Bed::new(1, 65_536);
    let write_at = |page: u64, pages: usize| (page * 4096, pages_of(&noise(page, pages)));
    let writes: Vec<_> = (0..TOGETHER_MAX as u64).map(|at| write_at(at * 3 % 64, 1)).collect();
    let world = bed.world();
    bed.short_life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        let refused = [
            vec![],
            vec![write_at(1, 1), (4095, pages_of(&noise(1, 1)))],
            vec![write_at(1, 1), write_at(9, TOGETHER_PAGES_MAX + 1)],
            vec![write_at(1, 1), (4096, vec![])],
            vec![write_at(1, 1), (u64::MAX - 4095, pages_of(&noise(1, 1)))],
            (0..=TOGETHER_MAX as u64).map(|page| write_at(page, 1)).collect(),
        ];
        for writes in &refused {
            assert!(together(&service, file, writes).await.is_none());
        }
        let two = &[write_at(0, 1), write_at(1, 1)];
        assert!(together(&service, top, two).await.is_none(), "a directory");
        assert_eq!(service.files.getattr(file).await.unwrap().size, 0);
        let arounds = together(&service, file, &writes).await.unwrap();
        for (around, next) in arounds.iter().zip(&arounds[1..]) {
            assert_eq!(around.after.unwrap().size, next.before.unwrap().size);
        }
        assert!(together(&service, file, two).await.is_some());
        // The first batch after a rest waits for no other.
        world.sleep(Duration::from_secs(3)).await;
        write(&service, file, 0, &noise(77, 1), Stability::FileSync).await.unwrap();
        let latest = &[write_at(70, 4), write_at(71, 1)];
        assert!(together(&service, file, latest).await.is_some());
    });
    bed.life(async |service| {
        let file = find(&service, "tank", "file").await.unwrap();
        assert_eq!(service.files.getattr(file).await.unwrap().size, 74 * 4096);
        for (offset, pages) in &writes[1..] {
            let found = read(&service, file, offset / 4096).await.unwrap();
            assert!(found == pages[0].as_slice(), "page {}", offset / 4096);
        }
        assert!(read(&service, file, 0).await.unwrap() == noise(77, 1));
        assert!(read(&service, file, 71).await.unwrap() == noise(71, 1), "the later of two");
        assert!(read(&service, file, 72).await.unwrap() == noise(70, 4)[8192..12_288]);
        assert_eq!(read(&service, file, 74).await, Ok(Vec::new()));
    });
}
