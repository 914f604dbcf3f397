//! Values where compression saves something.

use aquifer_ondisk::dataset::DatasetRecord;
use aquifer_ondisk::dead::{DeadBody, DeadEntry, DeadSums};
use aquifer_ondisk::inode::Inode;

use crate::values::{BUCKET, dead_list, file};

/// Dead blocks of which an extent was compressed.
pub fn saving_list() -> DeadEntry {
    let DeadEntry { key, body } = dead_list();
    let DeadBody::Blocks(mut blocks) = body else { unreachable!("a list") };
    blocks.first_mut().unwrap().saved_sectors = 5;
    DeadEntry { key, body: DeadBody::Blocks(blocks) }
}

pub fn saving_sums() -> DeadEntry {
    let sums = DeadSums { sectors: 4, saved_sectors: 5, blocks: 2 };
    DeadEntry { key: BUCKET.sums(), body: DeadBody::Sums(sums) }
}

pub fn saving(dataset: DatasetRecord) -> DatasetRecord {
    DatasetRecord { saved_bytes: 3 << 30, ..dataset }
}

pub fn saving_file() -> Inode {
    Inode { saved_bytes: 3 << 30, ..file() }
}
