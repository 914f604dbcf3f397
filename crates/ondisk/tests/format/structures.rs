//! Every structure of the format behind one trait, so that each test treats them all.

use std::fmt::Debug;

use aquifer_ondisk::block_pointer::BlockPointer;
use aquifer_ondisk::bookmark::BookmarkRecord;
use aquifer_ondisk::codec::{FormatError, Reader, Writer, checksum128};
use aquifer_ondisk::config::Label;
use aquifer_ondisk::covered::CoveredRecord;
use aquifer_ondisk::damage::DamageRecord;
use aquifer_ondisk::dataset::{
    DatasetRecord, InheritedRecord, Item, LineRecord, ListerRecord, RollbackRecord, SnapshotRecord,
    SweepRecord,
};
use aquifer_ondisk::dead::DeadEntry;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::file_clone::{FileCloneAcrossRecord, FileCloneRecord, FileLineRecord};
use aquifer_ondisk::file_snapshot::{FileRollbackRecord, FileSnapshotRecord, FileSweepRecord};
use aquifer_ondisk::free_work::FreeWorkRecord;
use aquifer_ondisk::head_line::{HeadLineRecord, LeftHeadRecord};
use aquifer_ondisk::history::{HistoryCounters, HistoryRecord};
use aquifer_ondisk::inode::Inode;
use aquifer_ondisk::keeping::{HoldClock, KeepRecord};
use aquifer_ondisk::l2arc::ChunkHeader;
use aquifer_ondisk::load::{LoadGrain, LoadRecord};
use aquifer_ondisk::log_batch::BatchHeader;
use aquifer_ondisk::log_change::{self, LogChange};
use aquifer_ondisk::open_work::OpenWorkRecord;
use aquifer_ondisk::pool_root::PoolRoot;
use aquifer_ondisk::receiving::ReceivingRecord;
use aquifer_ondisk::reply::ReplyEntry;
use aquifer_ondisk::resilver_mark::ResilverMark;
use aquifer_ondisk::resume::ResumeRecord;
use aquifer_ondisk::scrub::ScrubRecord;
use aquifer_ondisk::tree_node::{Form, Node};
use aquifer_ondisk::txg_record::{RecordPointer, TxgRecord};
use aquifer_ondisk::uberblock::Uberblock;
use aquifer_ondisk::user_property::UserProperty;
use aquifer_ondisk::{Place, Txg};

/// A structure of the format.
pub trait Structure: Sized + Debug + PartialEq {
    /// Its name, for messages.
    const NAME: &'static str;
    /// Its last 16 bytes are the checksum of all before.
    const SEALED: bool = false;

    /// Its bytes.
    fn to_bytes(&self) -> Result<Vec<u8>, FormatError>;
    /// From its bytes, which may be followed by others if it is part of a larger structure.
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError>;
}

impl Structure for Label {
    const NAME: &'static str = "label config";
    const SEALED: bool = true;

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.encode()
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        Label::decode(bytes)
    }
}

impl Structure for Uberblock {
    const NAME: &'static str = "uberblock";
    const SEALED: bool = true;

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.encode_for(self.leaf_guid, self.label)
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        Uberblock::decode(bytes)
    }
}

impl Structure for ResilverMark {
    const NAME: &'static str = "resilver mark";
    const SEALED: bool = true;

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.encode()
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        ResilverMark::decode(bytes)
    }
}

impl Structure for ChunkHeader {
    const NAME: &'static str = "cache chunk";
    const SEALED: bool = true;

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.encode()
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        ChunkHeader::decode(bytes)
    }
}

impl Structure for Vec<LogChange> {
    const NAME: &'static str = "body of a log record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        log_change::encode(self)
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        log_change::decode(bytes)
    }
}

impl Structure for BatchHeader {
    const NAME: &'static str = "log batch";
    const SEALED: bool = true;

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let (bytes, sum) = self.encode()?;
        let end = bytes.len() - 16;
        assert_eq!(sum.to_le_bytes(), bytes[end..], "the sum that the next batch carries");
        Ok(bytes)
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        let (header, _) = BatchHeader::decode(bytes)?;
        let peeked = BatchHeader::peek_sectors(bytes);
        let expected = (bytes.len() / 4096, header.payload_pages());
        assert_eq!(peeked, Ok(expected), "a first look sees what a whole reading finds");
        Ok(header)
    }
}

impl Structure for TxgRecord {
    const NAME: &'static str = "txg record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.encode()
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        TxgRecord::decode(bytes)
    }
}

/// Structures that are read off the front of a larger one.
macro_rules! embedded {
    ($($name:literal $structure:ty, $encode:ident, $decode:ident;)*) => { $(
        impl Structure for $structure {
            const NAME: &'static str = $name;

            fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
                let mut w = Writer::new();
                self.$encode(&mut w);
                Ok(w.into_bytes())
            }
            fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
                Self::$decode(&mut Reader::new(bytes, $name))
            }
        }
    )* };
}

embedded! {
    "pool root" PoolRoot, encode, decode;
    "inode" Inode, encode, decode;
    "directory entry" Dirent, encode, decode;
    "namespace item" Item, encode, decode;
    "dead entry" DeadEntry, encode, decode;
    "reply entry" ReplyEntry, encode, decode;
}

impl Structure for Extent {
    const NAME: &'static str = "extent";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let mut w = Writer::new();
        self.encode(&mut w);
        assert_eq!(w.len(), self.encoded_bytes(), "{self:?}");
        Ok(w.into_bytes())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(bytes, Self::NAME);
        let extent = Extent::decode(&mut r)?;
        let mut skipped = Reader::new(bytes, Self::NAME);
        let covered = Extent::skip(&mut skipped);
        assert_eq!(covered, Ok((extent.page, extent.end() - 1)), "passing over it");
        assert_eq!(skipped.rest().len(), r.rest().len(), "passing over it");
        Ok(extent)
    }
}

impl Structure for Option<BlockPointer> {
    const NAME: &'static str = "block pointer";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let mut w = Writer::new();
        BlockPointer::encode_optional(self.as_ref(), &mut w);
        Ok(w.into_bytes())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        BlockPointer::decode_optional(&mut Reader::new(bytes, Self::NAME))
    }
}

impl Structure for Option<RecordPointer> {
    const NAME: &'static str = "record pointer";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let mut w = Writer::new();
        RecordPointer::encode_optional(self.as_ref(), &mut w);
        Ok(w.into_bytes())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        RecordPointer::decode_optional(&mut Reader::new(bytes, Self::NAME))
    }
}

impl Structure for DatasetRecord {
    const NAME: &'static str = "dataset record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        DatasetRecord::decode(bytes)
    }
}

impl Structure for DamageRecord {
    const NAME: &'static str = "damage record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        DamageRecord::decode(bytes)
    }
}

impl Structure for ScrubRecord {
    const NAME: &'static str = "scrub record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        ScrubRecord::decode(bytes)
    }
}

impl Structure for FreeWorkRecord {
    const NAME: &'static str = "free work record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        FreeWorkRecord::decode(bytes)
    }
}

impl Structure for OpenWorkRecord {
    const NAME: &'static str = "open work record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        OpenWorkRecord::decode(bytes)
    }
}

impl Structure for SnapshotRecord {
    const NAME: &'static str = "snapshot record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        SnapshotRecord::decode(bytes)
    }
}

impl Structure for SweepRecord {
    const NAME: &'static str = "sweep record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        SweepRecord::decode(bytes)
    }
}

impl Structure for RollbackRecord {
    const NAME: &'static str = "rollback record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        RollbackRecord::decode(bytes)
    }
}

impl Structure for ListerRecord {
    const NAME: &'static str = "lister record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        ListerRecord::decode(bytes)
    }
}

impl Structure for ReceivingRecord {
    const NAME: &'static str = "receiving record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        ReceivingRecord::decode(bytes)
    }
}

impl Structure for BookmarkRecord {
    const NAME: &'static str = "bookmark record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        BookmarkRecord::decode(bytes)
    }
}

impl Structure for ResumeRecord {
    const NAME: &'static str = "resume record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        ResumeRecord::decode(bytes)
    }
}

impl Structure for UserProperty {
    const NAME: &'static str = "user property";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        UserProperty::decode(bytes)
    }
}

impl Structure for FileSnapshotRecord {
    const NAME: &'static str = "file snapshot record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        FileSnapshotRecord::decode(bytes)
    }
}

impl Structure for FileSweepRecord {
    const NAME: &'static str = "file sweep record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        FileSweepRecord::decode(bytes)
    }
}

impl Structure for FileRollbackRecord {
    const NAME: &'static str = "file rollback record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        FileRollbackRecord::decode(bytes)
    }
}

impl Structure for FileCloneRecord {
    const NAME: &'static str = "file clone record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        FileCloneRecord::decode(bytes)
    }
}

impl Structure for FileCloneAcrossRecord {
    const NAME: &'static str = "file clone record of another dataset";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        FileCloneAcrossRecord::decode(bytes)
    }
}

impl Structure for HeadLineRecord {
    const NAME: &'static str = "head line record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        HeadLineRecord::decode(bytes)
    }
}

impl Structure for LeftHeadRecord {
    const NAME: &'static str = "left head record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        LeftHeadRecord::decode(bytes)
    }
}

impl Structure for FileLineRecord {
    const NAME: &'static str = "file line record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        FileLineRecord::decode(bytes)
    }
}

impl Structure for InheritedRecord {
    const NAME: &'static str = "inherited record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        InheritedRecord::decode(bytes)
    }
}

impl Structure for CoveredRecord {
    const NAME: &'static str = "covered record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        CoveredRecord::decode(bytes)
    }
}

impl Structure for KeepRecord {
    const NAME: &'static str = "keep record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        KeepRecord::decode(bytes)
    }
}

impl Structure for HoldClock {
    const NAME: &'static str = "hold clock";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        HoldClock::decode(bytes)
    }
}

impl Structure for HistoryRecord {
    const NAME: &'static str = "history record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        HistoryRecord::decode(bytes)
    }
}

impl Structure for HistoryCounters {
    const NAME: &'static str = "history counters";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        HistoryCounters::decode(bytes)
    }
}

impl Structure for LoadRecord {
    const NAME: &'static str = "load record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    // The class of its key says how fine it is.
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        LoadRecord::decode(LoadGrain::TenSeconds, bytes)
    }
}

impl Structure for LineRecord {
    const NAME: &'static str = "line record";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        Ok(self.encode())
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        LineRecord::decode(bytes)
    }
}

impl<F: Form + PartialEq> Structure for Node<F> {
    const NAME: &'static str = "tree node";

    fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.encode()
    }
    fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        // The pointer's level is checked against the node's: here it is the node's own.
        let level = bytes.get(7).copied().unwrap_or(0);
        Node::decode(bytes, &pointer_to(F::KIND, level))
    }
}

/// A pointer to some node of this kind and level.
pub fn pointer_to(kind: aquifer_ondisk::block_pointer::BlockKind, level: u8) -> BlockPointer {
    BlockPointer {
        places: [Place::new(0, 8192), Place::NULL],
        logical_bytes: 4096,
        stored_bytes: 4096,
        kind,
        level,
        compression: 0,
        birth: Txg(1),
        written: Txg(1),
        checksum: 0,
    }
}

/// Puts the right checksum under changed bytes, so that their content is read.
pub fn reseal(bytes: &mut [u8]) {
    if let Some((body, sum)) = bytes.split_last_chunk_mut::<16>() {
        *sum = checksum128(body).to_le_bytes();
    }
}
