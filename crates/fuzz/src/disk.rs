//! Content of disks: a disk that lies must not bring the server down. Decoding is total, and takes
//! memory in proportion to the bytes. A value that decodes can be encoded and decoded again.

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::bookmark::BookmarkRecord;
use aquifer_ondisk::config::Label;
use aquifer_ondisk::covered::CoveredRecord;
use aquifer_ondisk::dataset::{
    DatasetRecord, InheritedRecord, Item, LineRecord, ListerRecord, RollbackRecord, SnapshotRecord,
    SweepRecord,
};
use aquifer_ondisk::dead::DeadEntry;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::file_clone::{FileCloneAcrossRecord, FileCloneRecord, FileLineRecord};
use aquifer_ondisk::file_snapshot::{FileRollbackRecord, FileSnapshotRecord, FileSweepRecord};
use aquifer_ondisk::head_line::{HeadLineRecord, LeftHeadRecord};
use aquifer_ondisk::history::{HistoryCounters, HistoryRecord};
use aquifer_ondisk::inode::Inode;
use aquifer_ondisk::keeping::{HoldClock, KeepRecord};
use aquifer_ondisk::layout::CONFIG_SECTORS;
use aquifer_ondisk::load::LoadRecord;
use aquifer_ondisk::log_batch::BatchHeader;
use aquifer_ondisk::log_change::LogChange;
use aquifer_ondisk::pool_root::PoolRoot;
use aquifer_ondisk::receiving::ReceivingRecord;
use aquifer_ondisk::reply::ReplyEntry;
use aquifer_ondisk::resume::ResumeRecord;
use aquifer_ondisk::tree_node::{Dead, Directory, Extents, Namespace, Node, Objects, Replies};
use aquifer_ondisk::txg_record::{RecordPointer, TxgRecord};
use aquifer_ondisk::uberblock::Uberblock;
use aquifer_ondisk::user_property::UserProperty;

use crate::cost::{Limit, fair};
use crate::structures::{Structure, reseal};

/// Tries one input. Its first byte chooses the type that the others are read as, its second the
/// number of sectors (0: as they are). New types come last, so that the corpus keeps its meaning.
pub fn run(input: &[u8]) {
    let Some(([which, sectors], bytes)) = input.split_first_chunk() else { return };
    let sectors = usize::from(*sectors).min(SECTORS_MAX);
    let mut bytes = bytes.to_vec();
    match (sectors, which) {
        (0, _) => {}
        (_, 0) => bytes.resize(usize::try_from(CONFIG_SECTORS).unwrap() * SECTOR_BYTES, 0),
        _ => bytes.resize(sectors * SECTOR_BYTES, 0),
    }
    let bytes = &mut bytes;
    match which {
        0 => read_as::<Label>(bytes),
        1 => read_as::<Uberblock>(bytes),
        2 => read_as::<BatchHeader>(bytes),
        3 => read_as::<TxgRecord>(bytes),
        4 => read_as::<Node<Extents>>(bytes),
        5 => read_as::<Node<Objects>>(bytes),
        6 => read_as::<Node<Directory>>(bytes),
        7 => read_as::<Node<Namespace>>(bytes),
        8 => read_as::<Vec<LogChange>>(bytes),
        9 => read_as::<PoolRoot>(bytes),
        10 => read_as::<Inode>(bytes),
        11 => read_as::<Dirent>(bytes),
        12 => read_as::<Item>(bytes),
        13 => read_as::<DeadEntry>(bytes),
        14 => read_as::<ReplyEntry>(bytes),
        15 => read_as::<Extent>(bytes),
        16 => read_as::<Option<BlockPointer>>(bytes),
        17 => read_as::<Option<RecordPointer>>(bytes),
        18 => read_as::<DatasetRecord>(bytes),
        19 => read_as::<LineRecord>(bytes),
        20 => read_as::<Node<Replies>>(bytes),
        21 => read_as::<HistoryRecord>(bytes),
        22 => read_as::<HistoryCounters>(bytes),
        23 => read_as::<SnapshotRecord>(bytes),
        24 => read_as::<SweepRecord>(bytes),
        25 => read_as::<Node<Dead>>(bytes),
        26 => read_as::<KeepRecord>(bytes),
        27 => read_as::<HoldClock>(bytes),
        28 => read_as::<RollbackRecord>(bytes),
        29 => read_as::<ListerRecord>(bytes),
        30 => read_as::<InheritedRecord>(bytes),
        31 => read_as::<FileSnapshotRecord>(bytes),
        32 => read_as::<FileSweepRecord>(bytes),
        33 => read_as::<ReceivingRecord>(bytes),
        34 => read_as::<FileRollbackRecord>(bytes),
        35 => read_as::<LoadRecord>(bytes),
        36 => read_as::<ResumeRecord>(bytes),
        37 => read_as::<BookmarkRecord>(bytes),
        38 => read_as::<UserProperty>(bytes),
        39 => read_as::<FileCloneRecord>(bytes),
        40 => read_as::<FileCloneAcrossRecord>(bytes),
        41 => read_as::<FileLineRecord>(bytes),
        42 => read_as::<HeadLineRecord>(bytes),
        43 => read_as::<LeftHeadRecord>(bytes),
        44 => read_as::<CoveredRecord>(bytes),
        _ => {}
    }
}

fn read_as<S: Structure>(bytes: &mut [u8]) {
    if S::SEALED {
        reseal(bytes);
    }
    let Ok(value) = fair(S::NAME, bytes.len(), &LIMIT, || S::from_bytes(bytes)) else { return };
    let written = fair(S::NAME, bytes.len(), &WRITTEN, || value.to_bytes());
    let written = written.unwrap_or_else(|e| panic!("{}: {e}: {value:?}", S::NAME));
    assert_eq!(S::from_bytes(&written).as_ref(), Ok(&value), "{}", S::NAME);
}

const SECTORS_MAX: usize = 12;
const SECTOR_BYTES: usize = 4096;
/// For memory, see the format's own tests of hostile bytes.
const LIMIT: Limit = Limit { peak: 2048, peak_per_byte: 48, steps: 500, steps_per_byte: 40 };
/// A label is written with room for more.
const WRITTEN: Limit =
    Limit { peak: 1 << 20, peak_per_byte: 48, steps: 50_000, steps_per_byte: 10 };
