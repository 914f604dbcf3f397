//! The findings of an inspection: kinds, their severity, and their place.
//!
//! Invariants:
//! - A kind has one severity, so that a caller can match on either.
//! - A limited number of findings of each kind is kept; all are counted. A hostile disk cannot make
//!   the report large.

use std::collections::BTreeMap;
use std::fmt;

use aquifer_ondisk::types::Run;
use aquifer_ondisk::{DatasetId, ObjectId, Place, Txg};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A state that a power cut or a running log may leave behind.
    Info,
    /// Something is missing or damaged, but the pool can do without it for now.
    Warning,
    /// A rule of the format is broken, or something in use cannot be read.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $severity:ident,)*) => {
        /// Kind of a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self {
                    $(Kind::$name => Severity::$severity,)*
                }
            }
        }
    };
}

kinds! {
    // ---- labels -----------------------------------------------------------------------------
    /// No disk holds a label of the pool.
    NoPool Error,
    /// A disk without labels, or of another pool.
    ForeignDisk Warning,
    /// A disk of this pool that the newest config does not name.
    NotAMember Warning,
    /// Two disks with the identity of the same leaf.
    LeafTwice Error,
    /// A leaf of the pool that is not among the disks.
    LeafMissing Warning,
    /// A leaf that an uberblock names outdated: it takes no part.
    LeafOutdated Warning,
    /// A leaf that missed a txg, and no uberblock names it outdated.
    LeafLeftBehind Error,
    /// A leaf whose newest uberblock is not the newest of the pool, as a cut between two disks
    /// leaves it.
    LeafBehind Info,
    /// A leaf is smaller than its vdev: it takes no part.
    LeafTooSmall Warning,
    /// No leaf of a vdev takes part.
    VdevMissing Error,
    /// No disk of a log vdev can be used.
    LogVdevMissing Warning,
    /// A label that cannot be read.
    LabelUnreadable Warning,
    /// A label whose config is gone or damaged.
    LabelDamaged Warning,
    /// A label of another place, leaf or pool.
    LabelMisplaced Warning,
    /// A label or uberblock of newer software.
    LabelNewer Error,
    /// A label with an older config than another one.
    ConfigStale Warning,
    /// Two labels with the same config sequence and different configs.
    ConfigDisagrees Error,
    /// A config that contradicts itself.
    ConfigInvalid Error,
    /// The pool uses a feature that this software does not know.
    FeatureUnknown Error,
    /// Slots of uberblock rings that are damaged, or differ from those of other labels.
    UberblockTorn Info,
    /// An uberblock of another slot, label, leaf or pool.
    UberblockMisplaced Warning,
    /// Uberblocks of one sequence with different content.
    UberblocksDiffer Error,
    /// A leaf without any valid uberblock.
    UberblockMissing Warning,
    /// The pool has no valid uberblock.
    NoUberblock Error,
    /// The newest uberblock contradicts itself.
    UberblockInvalid Error,
    /// Two leaves name each other outdated.
    SplitBrain Error,

    // ---- records and bitmaps ----------------------------------------------------------------
    /// A root without a readable copy of its record.
    RootUnreadable Error,
    /// A part of a record, within the window, without a readable copy.
    RecordUnreadable Error,
    /// A part of a record with wrong content.
    RecordInvalid Error,
    /// Segments of records or log that cannot be used as such.
    SegmentsInvalid Error,
    /// Only a record before the window names the current slot of a metaslab: a reader that stops at
    /// the window's start takes the metaslab for empty.
    WindowLacksEntry Error,
    /// A slot entry for a metaslab or slot that does not exist, or for a state that the window
    /// cannot complete.
    SlotEntryInvalid Error,
    /// A current slot with no copy that verifies.
    SlotUnreadable Error,
    /// A slot entry's counts differ from its bitmap.
    SlotCounts Error,
    /// A run outside the pool's data, or across two metaslabs.
    RunOutside Error,
    /// A record takes sectors that were in use.
    AllocatedTwice Error,
    /// A record frees sectors that were not in use.
    FreedTwice Error,
    /// Sectors were taken again before two further txgs had followed their free.
    ReusedTooSoon Error,
    /// The root's count of allocated sectors differs from the bitmaps.
    AllocatedSectors Error,

    // ---- copies -----------------------------------------------------------------------------
    /// A copy or mirror side that does not verify, while another one does.
    CopyBad Error,
    /// A copy or mirror side that cannot be read, while another one can.
    CopyUnreadable Error,
    /// A block that should have a second copy has none.
    CopyMissing Warning,

    // ---- trees ------------------------------------------------------------------------------
    /// A pointer that does not fit its place: kind, level or size.
    PointerInvalid Error,
    /// A node without a readable copy.
    NodeUnreadable Error,
    /// A verified node that cannot be decoded.
    NodeInvalid Error,
    /// Keys outside the range that the parent gives.
    NodeBounds Error,
    /// A node of another tree.
    NodeOwner Error,
    /// A birth above that of the node it lies in, or before it was written.
    BirthOrder Error,
    /// Something that this version of the inspector cannot check.
    Unsupported Warning,
    /// An item of the namespace that cannot be decoded.
    ItemInvalid Error,
    /// A dataset that contradicts the namespace.
    DatasetInvalid Error,
    /// A snapshot or sweep that contradicts its dataset.
    SnapshotInvalid Error,
    /// A block that a snapshot shows is neither the head's nor kept for that snapshot.
    SnapshotBlockGone Error,
    /// A dead block that no snapshot shows and no sweep will free.
    DeadUnreached Error,
    /// Wrong sums in a dead tree.
    DeadSums Error,
    /// An invalid entry of the reply table, or too many entries.
    ReplyInvalid Error,
    /// A record of the history that cannot be decoded, or too many records.
    HistoryInvalid Error,
    /// An inode that contradicts itself or its dataset.
    ObjectInvalid Error,
    /// An object that the engine has marked damaged: it met a node that cannot be read.
    ObjectDamaged Warning,
    /// The pool remembers that an object could not be read, or lost changes.
    DamageRemembered Info,
    /// Extents that overlap, or reach beyond their leaf.
    ExtentOverlap Error,
    /// An extent that contradicts itself.
    ExtentInvalid Error,
    /// A compressed extent whose parts lie in several leaves.
    TenancySplit Error,
    /// An extent across two segments, which may move apart.
    ExtentAcrossSegments Warning,
    /// An extent beyond the end of its file.
    ExtentBeyondSize Warning,
    /// Data without a good copy.
    DataBad Error,
    /// A wrong sum of referred bytes.
    ReferBytes Error,
    /// A name that is not allowed in a directory.
    NameInvalid Error,
    /// A name that occurs twice in a directory.
    NameTwice Error,
    /// An entry whose key does not follow from its name.
    KeyMismatch Error,
    /// A directory's count of entries is wrong.
    EntryCount Error,
    /// An entry that names no object.
    EntryDangling Error,
    /// An entry that contradicts its object.
    EntryWrong Error,
    /// A count of links is wrong.
    LinkCount Error,
    /// A directory whose parent is not the directory it stands in.
    ParentWrong Error,
    /// Directories that cannot be reached from the root.
    DirectoryLoop Error,
    /// A dataset whose root directory or list of orphans is missing or of a wrong kind.
    RootDirectory Error,
    /// An object with links that stands in no directory.
    Unreachable Error,
    /// An object without links, waiting to be freed.
    Orphan Info,
    /// An object without links that is not on the list of orphans: nothing will free it.
    OrphanLost Error,
    /// An object with links that is on the list of orphans: it will be freed.
    OrphanAlive Error,

    // ---- space ------------------------------------------------------------------------------
    /// A place outside its vdev, or blocks on a log vdev.
    OutsideVdev Error,
    /// Sectors that two owners use.
    UsedTwice Error,
    /// Sectors in use that are free in the bitmap.
    NotAllocated Error,
    /// Sectors allocated in the bitmap that nothing uses.
    Leaked Error,
    /// Sectors allocated in the bitmap that no tree that can be read uses.
    LeakUnknown Warning,

    // ---- log --------------------------------------------------------------------------------
    /// The log ends before a batch that is known durable.
    LogDamaged Error,
    /// The reason why the log ends where it does.
    LogEnds Info,
    /// A batch whose mark, session or checksum contradicts earlier ones.
    LogInvalid Error,
    /// Early data of a durable batch that does not verify.
    LogDataLost Error,
    /// Early data lies in sectors that the root or other early data uses.
    LogPlaceInUse Error,
    /// A pool that was exported clean, but has records to replay.
    LogNotEmpty Error,
    /// A batch of the unproven tail that is not the same on all sides: an import levels it.
    LogUneven Info,
    /// Batches to replay.
    LogPending Info,
}

/// Where a finding is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct At {
    /// Sectors.
    pub run: Option<Run>,
    /// Name of the disk.
    pub disk: Option<String>,
    /// Dataset.
    pub dataset: Option<DatasetId>,
    /// Object.
    pub object: Option<ObjectId>,
}

impl At {
    pub(crate) fn nowhere() -> At {
        At::default()
    }

    pub(crate) fn disk(name: &str) -> At {
        At { disk: Some(name.to_string()), ..At::default() }
    }

    pub(crate) fn place(place: Place, sectors: u64) -> At {
        At { run: Some(Run::new(place, sectors)), ..At::default() }
    }

    pub(crate) fn run(run: Run) -> At {
        At { run: Some(run), ..At::default() }
    }

    pub(crate) fn object(dataset: DatasetId, object: ObjectId) -> At {
        At {
            dataset: Some(dataset).filter(|id| id.0 != 0),
            object: Some(object).filter(|id| id.0 != 0),
            ..At::default()
        }
    }

    pub(crate) fn on_disk(mut self, name: &str) -> At {
        self.disk = Some(name.to_string());
        self
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// The root; `None` if it concerns the labels.
    pub root: Option<Txg>,
    /// Its place.
    pub at: At,
    /// Text for people.
    pub sentence: String,
}

impl Finding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<7} {:?}: {}", self.severity(), self.kind, self.sentence)?;
        if let Some(root) = self.root {
            write!(f, " (root of txg {root})")?;
        }
        Ok(())
    }
}

/// Gathers findings.
#[derive(Debug)]
pub(crate) struct Findings {
    pub list: Vec<Finding>,
    pub counts: BTreeMap<Kind, u64>,
    pub root: Option<Txg>,
    per_kind_max: u64,
}

impl Findings {
    pub fn new(per_kind_max: u64) -> Self {
        Findings { list: Vec::new(), counts: BTreeMap::new(), root: None, per_kind_max }
    }

    /// Takes over findings gathered elsewhere.
    pub fn merge(&mut self, other: Findings) {
        for finding in other.list {
            let kept = self.counts.get(&finding.kind).copied().unwrap_or(0);
            if kept < self.per_kind_max {
                self.list.push(finding);
            }
        }
        for (kind, count) in other.counts {
            *self.counts.entry(kind).or_default() += count;
        }
    }

    /// Adds a finding; `sentence` is only made if the finding is kept.
    pub fn add(&mut self, kind: Kind, at: At, sentence: impl FnOnce() -> String) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= self.per_kind_max {
            self.list.push(Finding { kind, root: self.root, at, sentence: sentence() });
        }
    }
}
