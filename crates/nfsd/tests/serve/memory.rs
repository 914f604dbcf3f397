//! The places of content in memory, over the wire and on a real disk.

use aquifer_blockio::Page;
use aquifer_blockio::buf::bytes_of;
use aquifer_files::{Credentials, FileHandle};
use aquifer_nfs::proto::v3::{NfsFh3, StableHow};

use crate::client::Client;
use crate::contents::{bytes, written};
use crate::fixture::Fixture;

/// The first block of a file.
fn shown(fixture: &Fixture, file: FileHandle) -> Vec<Page> {
    let root = Credentials::root();
    let data = fixture.block_on(fixture.pool().files.read(&root, file, 0, 65_536));
    data.unwrap().into_pieces().map(|(page, _)| page).collect()
}

/// The number of its pieces in memory. It must have this content.
fn pieces(fixture: &Fixture, file: FileHandle, content: &[u8]) -> usize {
    let pages = shown(fixture, file);
    assert!(bytes_of(&pages) == content);
    let (mut rest, mut pieces) = (&pages[..], 0);
    while let Some((_, count)) = Page::neighbours(rest) {
        (rest, pieces) = (&rest[count..], pieces + 1);
    }
    pieces
}

fn write(client: &mut Client, file: NfsFh3, page: usize, content: &mut [u8], data: &[u8]) {
    let at = page * 4096;
    written(client.write(file, at as u64, data, StableHow::FileSync));
    content[at..at + data.len()].copy_from_slice(data);
}

#[test]
fn a_page_written_anew_lies_where_the_old_one_lay() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mounted();
    let file = client.file(root, "file");
    let root = Credentials::root();
    let sync = || fixture.block_on(fixture.pool().pool.sync()).unwrap();
    let mut content = vec![0; 65_536];
    write(&mut client, file, 0, &mut content, &bytes(1, 65_536));
    let found = fixture.block_on(fixture.pool().files.lookup(&root, fixture.root(), b"file"));
    let own = found.0.unwrap().handle;
    sync();
    assert_eq!(pieces(&fixture, own, &content), 1);
    // Every page, several in one txg, in no order, and some of them again.
    let turns = [&[3, 9, 10, 0, 15][..], &[9], &[1, 2, 4, 5, 6, 7, 8, 11, 12, 13, 14], &[8, 9, 3]];
    for (seed, pages) in (2..).zip(turns) {
        for page in pages {
            write(&mut client, file, *page, &mut content, &bytes(seed * 100 + *page as u64, 4096));
        }
        pieces(&fixture, own, &content);
        sync();
        assert_eq!(pieces(&fixture, own, &content), 1, "{pages:?}");
    }
    // Pages that a reader holds meanwhile keep their content.
    let (looked_at, before) = (shown(&fixture, own), content.clone());
    write(&mut client, file, 5, &mut content, &bytes(9, 4096));
    sync();
    assert_eq!(pieces(&fixture, own, &content), 3);
    assert!(bytes_of(&looked_at) == before);
}
