//! Files of many extents: every other page, each in an extent of its own.

use aquifer_files::{FileHandle, Service, SetAttributes, Stability};

use crate::bed::{noise, read, root, write};

/// How many pages there are, and extents.
pub const PAGES: u64 = 120;

/// Writes a file whole.
pub async fn fill(service: &Service, file: FileHandle, salt: u64) {
    for at in 0..PAGES {
        write(service, file, at * 2, &noise(salt + at, 1), Stability::Unstable).await.unwrap();
    }
    service.pool.sync().await.unwrap();
}

/// Fails unless a file is as it was filled.
pub async fn is_filled(service: &Service, file: FileHandle, salt: u64) {
    for at in 0..PAGES {
        let page = read(service, file, at * 2).await.unwrap();
        assert_eq!(page, noise(salt + at, 1), "page {at} of {salt} in {file:?}");
    }
    assert_eq!(service.files.getattr(file).await.unwrap().size, (2 * PAGES - 1) * 4096);
}

/// Cuts a file to so many pages.
pub async fn cut(service: &Service, file: FileHandle, pages: u64) {
    let size = SetAttributes { size: Some(pages * 4096), ..SetAttributes::default() };
    service.files.setattr(&root(), file, &size, None).await.kept().await.0.unwrap();
}
