//! The content of the hand-made pools: two datasets with directories, files, links and orphans.

use std::collections::BTreeMap;

use aquifer_ondisk::codec::{Writer, checksum64};
use aquifer_ondisk::dataset::{DatasetRecord, Item, ItemClass, ItemKey, LineRecord};
use aquifer_ondisk::dirent::{Dirent, hash_key};
use aquifer_ondisk::extent::{Compression, Extent, Stored};
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_ondisk::tree_node::{Directory, Extents, Namespace, NodeOwner, Objects};
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Txg};

use crate::pool::HandPool;

pub const ROOT: u64 = 1;
pub const ORPHANS: u64 = 2;
pub const SUB: u64 = 16;
pub const PLAIN: u64 = 17;
pub const PACKED: u64 = 18;
pub const LINKED: u64 = 19;
pub const SYMLINK: u64 = 20;
pub const FIFO: u64 = 21;
pub const ORPHAN: u64 = 22;
pub const TAIL: u64 = 23;
pub const DEEPER: u64 = 24;
pub const SEED: u64 = 99;

/// One dataset, about to be written.
pub struct Content {
    pub record: DatasetRecord,
    pub inodes: BTreeMap<u64, Inode>,
    pub files: BTreeMap<u64, Vec<Extent>>,
    pub directories: BTreeMap<u64, Vec<Dirent>>,
    /// Entries in a node of a file's tree, of directories, and of the object table.
    pub fanout: usize,
    pub objects_fanout: usize,
    /// More items of it in the namespace, in order.
    pub more: Vec<(ItemClass, u64, Vec<u8>)>,
    /// The owners in the nodes of an object's trees.
    pub owners: BTreeMap<u64, u64>,
}

pub fn inode(id: u64, kind: FileKind, parent: u64) -> Inode {
    let time = Time::from_ns(1_500_000_000);
    let directory = kind == FileKind::Directory;
    Inode {
        damaged: false,
        cloned: false,
        object: ObjectId(id),
        generation: id,
        kind,
        mode: 0o755,
        nlink: if directory { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        refer_bytes: 0,
        saved_bytes: 0,
        entries: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        change: 1,
        parent: ObjectId(if directory { parent } else { 0 }),
        line: 1,
        origin: ObjectId(0),
        verifier: 0,
        hash_seed: SEED,
        root: None,
    }
}

/// An entry as the file system writes it.
pub fn entry(name: &str, of: &Inode) -> Dirent {
    Dirent {
        key: hash_key(SEED, name.as_bytes()) + 3,
        object: of.object,
        generation: of.generation,
        kind: of.kind,
        name: name.as_bytes().to_vec(),
    }
}

/// Parts of one compressed extent of 8 pages in 3 sectors: those of `shown`, (page in it, pages).
pub fn compressed(pool: &mut HandPool, at: u64, fill: u8, shown: &[(u64, u8)]) -> Vec<Extent> {
    let place = pool.take(3);
    let bytes = vec![fill; 3 * 4096];
    pool.put(place, &bytes);
    let part = |(offset, pages): &(u64, u8)| Extent {
        page: at + offset,
        pages: *pages,
        birth: pool.txg,
        written: pool.txg,
        place,
        counted: false,
        stored: Stored::Compressed {
            algorithm: Compression::Lz4,
            offset_pages: *offset as u8,
            total_pages: 8,
            stored_sectors: 3,
            stored_bytes: 9000,
            checksum: checksum64(&bytes),
        },
    };
    shown.iter().map(part).collect()
}

impl Content {
    /// An empty dataset: a root directory and a list of orphans.
    pub fn empty(parent: u64, name: &str) -> Content {
        let mut inodes = BTreeMap::new();
        for id in [ROOT, ORPHANS] {
            inodes.insert(id, inode(id, FileKind::Directory, id));
        }
        Content {
            record: DatasetRecord {
                fs_guid: Guid(checksum64(name.as_bytes())),
                parent: DatasetId(parent),
                created: Time::default(),
                next_object: 1000,
                next_generation: 1000,
                next_snapshot: 1,
                refer_bytes: 0,
                saved_bytes: 0,
                line: 1,
                floor: Txg(0),
                origin: 0,
                objects: None,
                dead: None,
                name: name.into(),
            },
            inodes,
            files: BTreeMap::new(),
            directories: BTreeMap::new(),
            fanout: 3,
            objects_fanout: 4,
            more: Vec::new(),
            owners: BTreeMap::new(),
        }
    }

    pub fn add(&mut self, directory: u64, name: &str, node: Inode) {
        self.name(directory, name, &node);
        if node.kind == FileKind::Directory {
            self.inodes.get_mut(&directory).unwrap().nlink += 1;
        }
        self.inodes.insert(node.object.0, node);
    }

    pub fn name(&mut self, directory: u64, name: &str, node: &Inode) {
        self.directories.entry(directory).or_default().push(entry(name, node));
        self.inodes.get_mut(&directory).unwrap().entries += 1;
    }

    pub fn orphan(&mut self, mut node: Inode) {
        node.nlink = 0;
        let mut listed = entry(&node.object.to_string(), &node);
        listed.key = node.object.0 << 8;
        self.directories.entry(ORPHANS).or_default().push(listed);
        self.inodes.insert(node.object.0, node);
    }

    pub fn file(&mut self, id: u64, extents: Vec<Extent>) {
        let end = extents.iter().map(Extent::end).max().unwrap_or(0);
        let mut counted = Vec::new();
        let mut sectors = 0;
        for extent in &extents {
            let plain = matches!(extent.stored, Stored::Plain(_));
            if plain || !counted.contains(&extent.place) {
                sectors += extent.stored_sectors();
                counted.push(extent.place);
            }
        }
        let node = self.inodes.get_mut(&id).unwrap();
        node.size = end * 4096;
        node.refer_bytes = sectors * 4096;
        self.files.insert(id, extents);
    }

    /// A dataset with all that it can hold.
    pub fn sample(pool: &mut HandPool) -> Content {
        let mut all = Content::empty(0, "tank");
        all.add(ROOT, "sub", inode(SUB, FileKind::Directory, ROOT));
        all.add(SUB, "plain", inode(PLAIN, FileKind::Regular, SUB));
        all.add(SUB, "packed", inode(PACKED, FileKind::Regular, SUB));
        all.add(SUB, "deeper", inode(DEEPER, FileKind::Directory, SUB));
        let mut linked = inode(LINKED, FileKind::Regular, ROOT);
        linked.nlink = 2;
        all.add(ROOT, "one", linked.clone());
        all.name(DEEPER, "other", &linked);
        all.add(ROOT, "symlink", inode(SYMLINK, FileKind::Symlink, ROOT));
        all.add(ROOT, "fifo", inode(FIFO, FileKind::Fifo, ROOT));
        let pages = (0..20).map(|at| pool.data(at * 10, &[at as u8 + 1; 4])).collect();
        all.file(PLAIN, pages);
        let mut packed = compressed(pool, 0, 40, &[(0, 2), (4, 1), (6, 2)]);
        packed.insert(1, pool.data(2, &[41, 42]));
        packed.insert(3, pool.data(5, &[43]));
        packed.extend(compressed(pool, 8, 50, &[(0, 8)]));
        packed.push(pool.data(30, &[44; 16]));
        all.file(PACKED, packed);
        let link = pool.data(0, &[9]);
        all.file(SYMLINK, vec![link]);
        all.orphan(inode(ORPHAN, FileKind::Regular, ROOT));
        let left = vec![pool.data(0, &[60, 61])];
        all.file(ORPHAN, left);
        let mut tail = inode(TAIL, FileKind::Regular, ROOT);
        tail.origin = ObjectId(PLAIN);
        all.orphan(tail);
        let cut_off = vec![pool.data(500, &[62])];
        all.file(TAIL, cut_off);
        let tail = all.inodes.get_mut(&TAIL).unwrap();
        // Until it is freed, its content counts in the sum of the file that it was cut from.
        (tail.refer_bytes, tail.size) = (0, 0);
        all.inodes.get_mut(&PLAIN).unwrap().refer_bytes += 4096;
        all.owners.insert(TAIL, PLAIN);
        all.settle();
        all
    }

    /// Sums up.
    pub fn settle(&mut self) {
        self.record.refer_bytes = self.inodes.values().map(|inode| inode.refer_bytes).sum();
    }

    /// Writes the dataset's trees.
    pub fn write(&mut self, pool: &mut HandPool, dataset: u64) {
        let owner =
            |object: u64| NodeOwner { dataset: DatasetId(dataset), object: ObjectId(object) };
        for (id, extents) in &self.files {
            let whose = self.owners.get(id).unwrap_or(id);
            // Parts of one extent stay in one leaf.
            let fanout = if *id == PACKED { 7 } else { self.fanout };
            let root = pool.tree::<Extents>(owner(*whose), extents.clone(), fanout);
            self.inodes.get_mut(id).unwrap().root = root;
        }
        for (id, entries) in &mut self.directories {
            entries.sort_by_key(|entry| entry.key);
            let root = pool.tree::<Directory>(owner(*id), entries.clone(), self.fanout);
            if let Some(inode) = self.inodes.get_mut(id) {
                inode.root = root;
            }
        }
        let inodes = self.inodes.values().cloned().collect();
        self.record.objects = pool.tree::<Objects>(owner(0), inodes, self.objects_fanout);
    }

    /// The dataset's items in the namespace.
    pub fn items(&self, dataset: u64) -> Vec<Item> {
        let id = DatasetId(dataset);
        let line = LineRecord {
            fork: Txg(10),
            origin_dataset: DatasetId(0),
            origin_snapshot: 0,
            floor: Txg(0),
        };
        let item = |class, number, value| Item { key: ItemKey::new(id, class, number), value };
        let mut items = vec![
            item(ItemClass::Record, 0, self.record.encode()),
            item(ItemClass::Property, 3, b"lz4".to_vec()),
            item(ItemClass::Line, 1, line.encode()),
        ];
        let more = self.more.iter();
        items.extend(more.map(|(class, number, value)| item(*class, *number, value.clone())));
        items.sort_by_key(|item| item.key);
        items
    }
}

pub fn counter(next: u64) -> Item {
    let mut w = Writer::new();
    w.u64(next);
    Item { key: ItemKey::new(DatasetId(0), ItemClass::Record, 0), value: w.into_bytes() }
}

/// Writes the namespace.
pub fn namespace(pool: &mut HandPool, items: Vec<Item>) {
    pool.trees[0] = pool.tree::<Namespace>(NodeOwner::default(), items, 3);
}

/// The whole content: the sample, and an empty dataset below it.
pub fn write_all(pool: &mut HandPool, sample: &mut Content, below: &mut Content) {
    sample.write(pool, 1);
    below.write(pool, 2);
    let mut items = vec![counter(3)];
    items.extend(sample.items(1));
    items.extend(below.items(2));
    namespace(pool, items);
}
