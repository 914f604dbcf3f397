//! Names of one file.

use aquifer_files::{SetAttributes, Stability};
use futures_util::future::{join, join_all};

use crate::bed::{Bed, find, make, noise, root, write};

/// Links are made at once, in directories that must be read first, while the file is written and
/// changed. Each is counted, and no change of the others is lost.
#[test]
fn names_made_at_once_are_all_counted() {
    const DIRECTORIES: u32 = 12;
    let name = |at: u32| format!("d{at}");
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        make(&service, top, "file").await;
        for at in 0..DIRECTORIES {
            let set = SetAttributes::default();
            let made =
                service.files.mkdir(&root(), top, name(at).as_bytes(), &set).await.kept().await.0;
            make(&service, made.unwrap().handle, "beside").await;
        }
    });
    bed.life(async |service| {
        let file = find(&service, "tank", "file").await.unwrap();
        let mut directories = Vec::new();
        for at in 0..DIRECTORIES {
            directories.push(find(&service, "tank", &name(at)).await.unwrap());
        }
        let root = root();
        let link = async |at| service.files.link(&root, file, at, b"name").await.kept().await;
        let links = directories.iter().map(|at| link(*at));
        let changes = async {
            for page in 0..u64::from(DIRECTORIES) {
                write(&service, file, page, &noise(page, 1), Stability::FileSync).await.unwrap();
                let set = SetAttributes { mode: Some(page as u32), ..SetAttributes::default() };
                service.files.setattr(&root, file, &set, None).await.kept().await.0.unwrap();
            }
        };
        let (linked, ()) = join(join_all(links), changes).await;
        linked.into_iter().for_each(|linked| linked.0.unwrap());
        let seen = service.files.getattr(file).await.unwrap();
        assert_eq!(seen.nlink, 1 + DIRECTORIES);
        assert_eq!((seen.size, seen.mode), (u64::from(DIRECTORIES) * 4096, DIRECTORIES - 1));
    });
    bed.assert_clean();
}
