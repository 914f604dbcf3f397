//! Errors of a pool.

use aquifer_blockio::DiskError;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::corruption::TreeError;
use aquifer_ondisk::{Corruption, FormatError, Place, Txg};
use aquifer_space::SpaceError;
use aquifer_vdev::label_io::LabelError;
use aquifer_vdev::{ReadError, VdevLost};

/// An operation on an imported pool failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// No copy is good.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// Bytes verified but do not make sense.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// Blocks verified but do not fit together.
    #[error("{0}")]
    Corrupt(#[from] Corruption),
    /// No copy can be read, and the administrator ordered to treat it as damaged.
    #[error("{0}; given up by order")]
    GivenUp(ReadError),
    /// The pool is full for this class of request.
    #[error("the pool is out of space")]
    NoSpace,
    /// Too few disks are left; the pool changes nothing until it is imported again.
    #[error("the pool is suspended: {0}")]
    Suspended(String),
    /// Another host uses the pool now: this one must not import it again by itself.
    #[error("the pool is suspended: {0}")]
    TakenOver(String),
    /// The disks have not answered for so long that the caller did not wait any more. What it
    /// waited for may still happen.
    #[error("the disks of the pool do not answer")]
    Silent,
    /// The dataset was destroyed while the request waited.
    #[error("the dataset was destroyed")]
    Destroyed,
    /// The pool was exported.
    #[error("the pool is exported")]
    Exported,
    /// The pool is imported read-only.
    #[error("the pool is imported read-only")]
    ReadOnly,
    /// A rule of the engine was broken; the pool is suspended to protect the disks.
    #[error("internal contradiction: {0}")]
    Contradiction(#[from] Contradiction),
}

impl PoolError {
    /// Whether something on disk is certainly damaged: no copy is right, however often it is read.
    /// That concerns this block, and nothing else of the pool.
    pub fn is_damage(&self) -> bool {
        match self {
            PoolError::Read(ReadError::Unreadable { .. }) => left_out(Rule::UnreadableIsNoDamage),
            PoolError::Read(_)
            | PoolError::GivenUp(_)
            | PoolError::Format(_)
            | PoolError::Corrupt(_) => true,
            _ => false,
        }
    }

    /// Whether something cannot be read: it is damaged, or a disk gives errors and may still hold
    /// it.
    pub fn cannot_be_read(&self) -> bool {
        self.is_damage() || matches!(self, PoolError::Read(_))
    }
}

impl From<VdevLost> for PoolError {
    fn from(lost: VdevLost) -> Self {
        PoolError::Suspended(lost.to_string())
    }
}

impl From<TreeError> for PoolError {
    fn from(error: TreeError) -> Self {
        PoolError::Corrupt(error.into())
    }
}

impl From<SpaceError> for PoolError {
    fn from(error: SpaceError) -> Self {
        match error {
            SpaceError::NoSpace(_) => PoolError::NoSpace,
            other => Contradiction::Space(other).into(),
        }
    }
}

/// States that the engine's own rules exclude.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Space was allocated twice, or never existed.
    #[error("{0}")]
    Space(SpaceError),
    /// A place on a vdev that is not the pool's.
    #[error("vdev {} is none of this pool's", .0.vdev())]
    NoVdev(Place),
    /// An extent to decompress is not compressed.
    #[error("a plain extent read as compressed")]
    NotCompressed,
    /// A read of one sector returned none.
    #[error("a read of one sector gave none")]
    NoSector,
    /// The layer above was dropped without an export.
    #[error("the layer above went away without an export")]
    NoTrees,
    /// The next record of a txg would be in no segment of its ring.
    #[error("the next record's place, sector {} of vdev {}, is in no segment",
        .0.sector(), .0.vdev())]
    RecordPlace(Place),
    /// The ring of txg records has no room: its next segment is still needed.
    #[error("the ring of txg records is full: its next segment holds txg {0}")]
    RecordsFull(Txg),
    /// A vdev went away during an act on it.
    #[error("a vdev that was found is gone")]
    VdevGone,
}

/// A state of a pool: which of its txgs, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The newest committed txg.
    pub txg: Txg,
    /// When its uberblock was written: Unix time in nanoseconds.
    pub wall_ns: u64,
}

/// A pool could not be made, or an act on its disks, vdevs or labels is refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// The requested config is not possible.
    #[error("{0}")]
    BadConfig(String),
    /// A disk cannot be used.
    #[error("{path}: {reason}")]
    BadDisk {
        /// The disk.
        path: String,
        /// The reason.
        reason: String,
    },
    /// A disk's labels cannot be used.
    #[error("{path}: {error}")]
    Label {
        /// The disk.
        path: String,
        /// The reason.
        error: LabelError,
    },
    /// A disk failed.
    #[error("{0}")]
    Disk(#[from] DiskError),
    /// A disk that is to come back has changes of its own.
    #[error(
        "{path} was in use apart from this pool: it has changes that are not here. It holds {own}; \
         the pool is at {here}; they parted {}. `pool online -f` drops what only {path} has. \
         To keep that instead, export the pool, and import it with {path} alone (-d {path})",
        parted_at(.parted.as_ref())
    )]
    OwnPast {
        /// The disk.
        path: String,
        /// The state that it holds.
        own: State,
        /// The state that it held when the pool began to do without it, if that can be told.
        parted: Option<State>,
        /// The state that the pool holds.
        here: State,
    },
    /// The pool failed.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

/// A pool could not be brought into service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// A disk failed.
    #[error("{0}")]
    Disk(#[from] DiskError),
    /// Too few leaves of a vdev are present.
    #[error(
        "vdev {vdev} has no usable disk: missing or outdated are {leaves}. Attach them; if they \
         are gone for good, `import --missing-vdev` imports the rest read-only"
    )]
    VdevMissing {
        /// Number of the vdev.
        vdev: u16,
        /// Its leaves, in a form for people.
        leaves: String,
    },
    /// The device of the intent log is missing, or an older copy of it is there.
    #[error(
        "the log device is missing or outdated: {devices}; with it comes what was acknowledged \
             since txg {from} ({since}). Attach it and import again, or `import --missing-log` \
             drops that"
    )]
    LogMissing {
        /// Its disks.
        devices: String,
        /// The first txg that may have lost changes.
        from: Txg,
        /// When the txg before was written, for people.
        since: String,
    },
    /// Of a vdev, only disks with an older state of the pool are there.
    #[error(
        "vdev {vdev} has no disk that holds the pool's newest state. An older one is there: \
             {disks}. What was written since is not on it. Attach the disk that has it, and import \
             again"
    )]
    Behind {
        /// Number of the vdev.
        vdev: u16,
        /// The disks and their age, for people.
        disks: String,
    },
    /// Of a vdev, only disks are there that an administrator took out of use.
    #[error(
        "vdev {vdev} has no disk in use: {disks} was taken offline by order, and the pool went on \
             without it. Attach the disks that were in use, and import again. `import \
             --use-offline` goes back to what this one holds: what was written since is lost then"
    )]
    TakenOffline {
        /// Number of the vdev.
        vdev: u16,
        /// The disks and their state, for people.
        disks: String,
    },
    /// Two disks are the same leaf, and hold equally new states.
    #[error(
        "{one} and {other} are copies of each other: only one can be in the pool; take the other \
             away, or name the right disks with -d"
    )]
    Twins {
        /// A disk.
        one: String,
        /// The other.
        other: String,
    },
    /// The labels hold an older config than the newest uberblock names.
    #[error(
        "the labels hold config {config} of the pool, and its newest uberblock names config \
             {named}: acts on its disks (offline, detach, attach, growth) would be undone. Attach \
             all disks of the pool, and import again. `import --old-config` goes on with the older \
             one: see then with `pool status` which acts are to be repeated"
    )]
    OldConfig {
        /// Sequence of the newest config that was found.
        config: u64,
        /// Sequence of the config that the uberblock names.
        named: u64,
    },
    /// Another host seems to use it.
    #[error(
        "host {host:?} (id {id:016x}) used the pool {silent_s} s ago and did not export it. Two \
             machines that write to one pool destroy it. Export it there, or wait until that host \
             was silent for a minute; `aquifer pool import -f` takes the pool if it is surely down"
    )]
    InUse {
        /// Its name.
        host: String,
        /// Its identity.
        id: u64,
        /// Seconds since its last uberblock.
        silent_s: u64,
    },
    /// Two leaves were in use apart from each other.
    #[error(
        "disks {0} and {1} were in use apart from each other: each has changes that the other does \
             not know; import with only one of them (`-d` names disks), what the other holds since \
             then is lost"
    )]
    SplitBrain(String, String),
    /// The pool needs features that this software lacks.
    #[error("the pool needs features that this version does not know: {0}")]
    UnknownFeatures(String),
    /// No valid uberblock.
    #[error("no valid uberblock on any disk of the pool")]
    NoUberblock,
    /// The newest root cannot be read.
    #[error(
        "the root of txg {txg} cannot be read: {reason}; `import --rewind=1` goes back to the \
             one before it and loses what came after"
    )]
    RootUnreadable {
        /// Its txg.
        txg: Txg,
        /// The reason.
        reason: String,
    },
    /// A disk does not return data that the replay of the log needs.
    #[error(
        "{0}. Nothing is lost: once the disk gives it again, import the pool again. \
             `import --discard-unreadable` takes it for damaged, and drops what the log says of it"
    )]
    Unreadable(ReadError),
    /// There is no root that far back.
    #[error("cannot go back {0} txgs: at most the two before the newest are kept whole")]
    NoSuchRewind(u64),
    /// A hole in the intent log that a later batch proves to have been durable.
    #[error(
        "the intent log is damaged: batch {sequence} was durable and is not there ({reason}); \
             `import --discard-log` drops it and all after it"
    )]
    LogDamaged {
        /// The batch.
        sequence: u64,
        /// The content that was found.
        reason: String,
    },
    /// A disk does not return a part of the intent log.
    #[error(
        "batch {sequence} of the intent log cannot be read ({reason}). Nothing is lost: once the \
             disk gives it again, import the pool again. `import --discard-log` drops it and all \
             after it"
    )]
    LogUnreadable {
        /// The batch.
        sequence: u64,
        /// The disk's error.
        reason: String,
    },
    /// Replay met an impossible record.
    #[error("replay of the intent log failed: {0}")]
    Replay(String),
    /// The pool could not be written during the import.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

fn parted_at(parted: Option<&State>) -> String {
    match parted {
        Some(parted) => format!("at {parted}"),
        None => "too long ago for the disk to tell".into(),
    }
}

impl From<FormatError> for ImportError {
    fn from(error: FormatError) -> Self {
        ImportError::Pool(PoolError::Format(error))
    }
}

impl From<VdevLost> for ImportError {
    fn from(error: VdevLost) -> Self {
        ImportError::Pool(error.into())
    }
}
