//! A directory's entries: names, keys, and the objects that they name.
//!
//! The list of orphans is a directory too, but its keys follow from the objects: id * 256, and its
//! names are the ids in decimal.

use aquifer_ondisk::dirent::{COLLISIONS_MAX, Dirent, NAME_BYTES_MAX, hash_key};
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, NodeOwner};
use aquifer_ondisk::types::{ORPHANS, ObjectId};

use crate::finding::{At, Kind};
use crate::scan::Scan;
use crate::tree::{Walk, name};

/// One entry's claims about the object that it names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference {
    /// The directory.
    pub directory: ObjectId,
    pub object: ObjectId,
    pub generation: u64,
    pub kind: FileKind,
}

/// Walks a directory; puts the claims of its entries into `references`. Returns the number of
/// entries, `None` if it could not be read to its end.
pub(crate) async fn walk(
    scan: &mut Scan<'_>,
    mut tree: Walk<Directory>,
    owner: NodeOwner,
    inode: &Inode,
    references: &mut Vec<Reference>,
) -> Option<u64> {
    let mut count = 0;
    // Names with equal hashes are neighbours.
    let mut equal: Vec<Dirent> = Vec::new();
    while let Some(leaf) = tree.next(scan).await {
        for entry in leaf.entries {
            count += 1;
            references.push(Reference {
                directory: inode.object,
                object: entry.object,
                generation: entry.generation,
                kind: entry.kind,
            });
            check_entry(scan, owner, inode, &entry);
            if equal.first().is_some_and(|first| bucket(first.key) != bucket(entry.key)) {
                equal.clear();
            }
            if equal.iter().any(|other| other.name == entry.name) {
                scan.findings.add(Kind::NameTwice, at(owner), || {
                    format!("{}: {} stands there twice", name(owner), show(&entry.name))
                });
            }
            // Keys out of order were reported already, and must not make this list long.
            if equal.len() as u64 >= COLLISIONS_MAX {
                equal.clear();
            }
            equal.push(entry);
        }
    }
    tree.whole.then_some(count)
}

fn bucket(key: u64) -> u64 {
    key / COLLISIONS_MAX
}

fn check_entry(scan: &mut Scan<'_>, owner: NodeOwner, inode: &Inode, entry: &Dirent) {
    let bytes = &entry.name;
    let bad = bytes.is_empty()
        || bytes.len() > NAME_BYTES_MAX
        || bytes.iter().any(|byte| *byte == b'/' || *byte == 0)
        || bytes == b"."
        || bytes == b"..";
    if bad {
        scan.findings.add(Kind::NameInvalid, at(owner), || {
            format!("{}: {} is no name", name(owner), show(bytes))
        });
    }
    let follows = if inode.object == ORPHANS {
        let id = entry.object.0;
        entry.key == id.wrapping_mul(COLLISIONS_MAX) && *bytes == id.to_string().into_bytes()
    } else {
        bucket(hash_key(inode.hash_seed, bytes)) == bucket(entry.key)
    };
    if !follows {
        scan.findings.add(Kind::KeyMismatch, at(owner), || {
            let key = entry.key;
            format!("{}: {} stands under key {key:#x}", name(owner), show(bytes))
        });
    }
}

fn at(owner: NodeOwner) -> At {
    At::object(owner.dataset, owner.object)
}

fn show(bytes: &[u8]) -> String {
    format!("name {:?}", String::from_utf8_lossy(bytes))
}
