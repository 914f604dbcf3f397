//! What an inspection found: kinds, their severity, and where.
//!
//! Invariants:
//! - A kind has one severity, so that a caller can match on either.
//! - Of one kind only so many findings are kept; all are counted. A hostile disk cannot make the
//!   report large.

use std::collections::BTreeMap;
use std::fmt;

use aquifer_ondisk::types::Run;
use aquifer_ondisk::{DatasetId, ObjectId, Place, Txg};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// What a power cut or a running log may leave behind.
    Info,
    /// Something is missing or damaged that the pool can do without for now.
    Warning,
    /// A rule of the format is broken, or something that is in use cannot be read.
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
        /// What was found.
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
    /// Two disks say that they are the same leaf.
    LeafTwice Error,
    /// A leaf that was not given.
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
    /// Slots of uberblock rings that are damaged, or do not hold what other labels hold there.
    UberblockTorn Info,
    /// An uberblock of another slot, label, leaf or pool.
    UberblockMisplaced Warning,
    /// Uberblocks of one sequence that say different things.
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
    /// A root that no copy of its record gives.
    RootUnreadable Error,
    /// A part of a record, within the window, that no copy gives.
    RecordUnreadable Error,
    /// A part of a record that says other things than it should.
    RecordInvalid Error,
    /// Segments of records or log that cannot be used as such.
    SegmentsInvalid Error,
    /// The current slot of a metaslab is named before the window only: a reader that stops at the
    /// window's start takes the metaslab for empty.
    WindowLacksEntry Error,
    /// A slot entry for what does not exist, or for a state that the window cannot complete.
    SlotEntryInvalid Error,
    /// A current slot that verifies nowhere.
    SlotUnreadable Error,
    /// A slot entry's counts are not those of its bitmap.
    SlotCounts Error,
    /// A run outside the pool's data, or across two metaslabs.
    RunOutside Error,
    /// A record takes sectors that were in use.
    AllocatedTwice Error,
    /// A record gives back sectors that were not in use.
    FreedTwice Error,
    /// Sectors were taken again before their free had been followed by two further txgs.
    ReusedTooSoon Error,
    /// The root's count of allocated sectors is not that of the bitmaps.
    AllocatedSectors Error,

    // ---- copies -----------------------------------------------------------------------------
    /// A copy or mirror side that does not verify, while another one does.
    CopyBad Error,
    /// A copy or mirror side that cannot be read, while another one can.
    CopyUnreadable Error,
    /// A block that should have a second copy has none.
    CopyMissing Warning,

    // ---- trees ------------------------------------------------------------------------------
    /// A pointer that does not fit where it stands: kind, level or size.
    PointerInvalid Error,
    /// A node that no copy gives.
    NodeUnreadable Error,
    /// A verified node that cannot be decoded.
    NodeInvalid Error,
    /// Keys outside the range that the parent gives.
    NodeBounds Error,
    /// A node of another tree.
    NodeOwner Error,
    /// A birth above that of what it lies in, or before it was written.
    BirthOrder Error,
    /// Something that this version of the inspector cannot judge.
    Unsupported Warning,
    /// An item of the namespace that cannot be understood.
    ItemInvalid Error,
    /// A dataset that contradicts the namespace.
    DatasetInvalid Error,
    /// An entry of the reply table that says what it cannot, or too many of them.
    ReplyInvalid Error,
    /// A record of the history that cannot be understood, or too many of them.
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
    /// Data that no copy gives.
    DataBad Error,
    /// A sum of referred bytes that is not the sum.
    ReferBytes Error,
    /// A name that may not stand in a directory.
    NameInvalid Error,
    /// A name that stands twice in a directory.
    NameTwice Error,
    /// An entry whose key does not follow from its name.
    KeyMismatch Error,
    /// A directory's count of entries is wrong.
    EntryCount Error,
    /// An entry that names no object.
    EntryDangling Error,
    /// An entry that says other things than its object.
    EntryWrong Error,
    /// A count of links is wrong.
    LinkCount Error,
    /// A directory whose parent is not the directory it stands in.
    ParentWrong Error,
    /// Directories that no way leads to from the root.
    DirectoryLoop Error,
    /// A dataset whose root directory or list of orphans is missing or something else.
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
    /// Why the log ends where it does.
    LogEnds Info,
    /// A batch whose mark, session or checksum contradicts what came before.
    LogInvalid Error,
    /// Early data of a durable batch that does not verify.
    LogDataLost Error,
    /// Early data lies where the root has something, or where other early data lies.
    LogPlaceInUse Error,
    /// A pool exported clean with records to be replayed.
    LogNotEmpty Error,
    /// A batch of the unproven tail that is not the same on all sides: an import levels it.
    LogUneven Info,
    /// Batches to be replayed.
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
    /// What.
    pub kind: Kind,
    /// In which root; none if it is of the labels.
    pub root: Option<Txg>,
    /// Where.
    pub at: At,
    /// For people.
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

    /// Takes over what was gathered elsewhere.
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
