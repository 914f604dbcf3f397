//! The result of an inspection: findings, and a description of the pool.

use std::collections::BTreeMap;
use std::fmt;

use aquifer_ondisk::types::Run;
use aquifer_ondisk::uberblock::Host;
use aquifer_ondisk::{DatasetId, Guid, Txg};

use crate::finding::{Finding, Kind, Severity};

/// The whole result of an inspection.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Findings, in the order of the inspection. At most
    /// [`Options::findings_per_kind_max`](crate::Options) of each kind are kept.
    pub findings: Vec<Finding>,
    /// Number of findings of each kind, including those that were not kept.
    pub counts: BTreeMap<Kind, u64>,
    /// The pool, as far as it could be read.
    pub summary: Summary,
}

/// A description of the pool.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Name.
    pub name: String,
    /// Identity.
    pub guid: Guid,
    /// The pool's disks, in the config's order.
    pub leaves: Vec<LeafSummary>,
    /// Sequence of the newest uberblock.
    pub sequence: u64,
    /// Newest committed txg.
    pub txg: Txg,
    /// Number of the newest import.
    pub session: u64,
    /// The pool was exported.
    pub clean: bool,
    /// The machine that wrote that uberblock, if it is known.
    pub host: Option<Host>,
    /// When it was written, by that machine's clock: ns since 1970.
    pub wall_ns: u64,
    /// Log records up to this txg are not replayed.
    pub floor: Txg,
    /// Roots that were inspected, newest first.
    pub roots: Vec<RootSummary>,
    /// The intent log.
    pub log: Option<LogSummary>,
}

/// The role of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeafRole {
    /// Holds everything committed.
    Online,
    /// An uberblock names it outdated.
    Outdated,
    /// Not among the disks, or not usable.
    #[default]
    Missing,
}

/// One disk.
#[derive(Debug, Clone, Default)]
pub struct LeafSummary {
    /// Identity.
    pub guid: Guid,
    /// Name of the disk, or where it was last seen.
    pub name: String,
    /// Its top-level vdev.
    pub vdev: u16,
    /// Its role.
    pub role: LeafRole,
    /// Sequence of its newest uberblock, 0 for none.
    pub sequence: u64,
    /// How many of its four labels can be used.
    pub labels: u8,
}

/// One root.
#[derive(Debug, Clone, Default)]
pub struct RootSummary {
    /// Its txg.
    pub txg: Txg,
    /// Records from this txg on give its free space.
    pub window_start: Txg,
    /// Parts of records in that window.
    pub record_parts: u64,
    /// Every tree could be read to its end.
    pub whole: bool,
    /// Datasets by id.
    pub datasets: Vec<DatasetSummary>,
    /// Sectors by their use.
    pub sectors: SectorSummary,
}

/// One dataset.
#[derive(Debug, Clone, Default)]
pub struct DatasetSummary {
    /// Identity.
    pub id: DatasetId,
    /// Name from the pool's root dataset on, `/` between components.
    pub name: String,
    /// Objects.
    pub objects: u64,
    /// Of those, directories.
    pub directories: u64,
    /// Entries in directories.
    pub entries: u64,
    /// Objects without links, waiting to be freed.
    pub orphans: u64,
    /// Bytes of disk that its objects refer to.
    pub refer_bytes: u64,
    /// Snapshots.
    pub snapshots: u64,
}

/// Sectors of the data vdevs, each counted once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SectorSummary {
    /// All.
    pub total: u64,
    /// Allocated in the bitmaps.
    pub allocated: u64,
    /// Labels and bitmap slots.
    pub reserved: u64,
    /// Segments for records.
    pub records: u64,
    /// Segments for the intent log, those on log vdevs included.
    pub log: u64,
    /// Nodes of pool-wide trees.
    pub pool_nodes: u64,
    /// Nodes of object tables.
    pub object_nodes: u64,
    /// Nodes of directories.
    pub directory_nodes: u64,
    /// Nodes of extent trees.
    pub extent_nodes: u64,
    /// Data.
    pub data: u64,
    /// Sectors that only snapshots refer to.
    pub dead: u64,
    /// Allocated, and nothing uses them.
    pub leaked: u64,
    /// Used twice.
    pub twice: u64,
    /// Used, and free in the bitmaps.
    pub not_allocated: u64,
}

/// The intent log.
#[derive(Debug, Clone, Default)]
pub struct LogSummary {
    /// The chain.
    pub chain: u64,
    /// Sequence of the first batch that is not applied whole.
    pub head_sequence: u64,
    /// Batches from there on.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Of those, above the floor: to be replayed.
    pub pending: u64,
    /// Batches up to this sequence are proven durable.
    pub mark: u64,
    /// Data that pending records name and that is in no root.
    pub early: Vec<Run>,
    /// The reason why the log ends where it does.
    pub end: String,
}

impl Report {
    /// Whether there is no finding of [`Severity::Error`].
    pub fn is_clean(&self) -> bool {
        self.worst() < Some(Severity::Error)
    }

    /// The worst severity found.
    pub fn worst(&self) -> Option<Severity> {
        self.counts.keys().map(|kind| kind.severity()).max()
    }

    /// Findings of [`Severity::Error`] that were kept.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity() == Severity::Error)
    }

    /// The number of findings of a kind.
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Findings of one severity, including those that were not kept.
    pub fn count_of(&self, severity: Severity) -> u64 {
        let counts = self.counts.iter().filter(|(kind, _)| kind.severity() == severity);
        counts.map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.summary)?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let kept =
            |kind| self.findings.iter().filter(|finding| finding.kind == kind).count() as u64;
        for (kind, count) in &self.counts {
            let more = count - kept(*kind).min(*count);
            if more > 0 {
                writeln!(f, "{:<7} {kind:?}: {more} more", kind.severity())?;
            }
        }
        let count = |severity| self.count_of(severity);
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        match (errors, warnings) {
            (0, 0) => writeln!(f, "no errors"),
            _ => writeln!(f, "{errors} errors, {warnings} warnings"),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.guid == Guid(0) {
            return writeln!(f, "no pool");
        }
        let clean = if self.clean { ", exported" } else { "" };
        writeln!(
            f,
            "pool {} (guid {:016x}): txg {}, session {}, uberblock {}{clean}",
            self.name, self.guid.0, self.txg, self.session, self.sequence
        )?;
        if let Some(Host { id, name }) = &self.host {
            let at_s = self.wall_ns / 1_000_000_000;
            writeln!(f, "  used by host {name:?} (id {id:016x}), last at {at_s} s since 1970")?;
        }
        for leaf in &self.leaves {
            writeln!(
                f,
                "  vdev {} {} (guid {:016x}): {:?}, {} of 4 labels, uberblock {}",
                leaf.vdev, leaf.name, leaf.guid.0, leaf.role, leaf.labels, leaf.sequence
            )?;
        }
        for root in &self.roots {
            write!(f, "{root}")?;
        }
        match &self.log {
            Some(log) => write!(f, "{log}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for RootSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.whole { "" } else { ", damaged" };
        writeln!(
            f,
            "root of txg {}: {} record parts from txg {} on{whole}",
            self.txg, self.record_parts, self.window_start
        )?;
        for dataset in &self.datasets {
            writeln!(
                f,
                "  dataset {} {}: {} objects ({} directories, {} orphans), {} entries, {} KiB, \
                 {} snapshots",
                dataset.id,
                dataset.name,
                dataset.objects,
                dataset.directories,
                dataset.orphans,
                dataset.entries,
                dataset.refer_bytes / 1024,
                dataset.snapshots
            )?;
        }
        let s = &self.sectors;
        writeln!(f, "  sectors: {} of {} allocated", s.allocated, s.total)?;
        let kinds = [
            ("labels and bitmaps", s.reserved),
            ("records", s.records),
            ("intent log", s.log),
            ("pool-wide trees", s.pool_nodes),
            ("object tables", s.object_nodes),
            ("directories", s.directory_nodes),
            ("extent trees", s.extent_nodes),
            ("data", s.data),
            ("snapshots only", s.dead),
            ("leaked", s.leaked),
            ("used twice", s.twice),
            ("used but free", s.not_allocated),
        ];
        for (name, count) in kinds.into_iter().filter(|(_, count)| *count > 0) {
            writeln!(f, "    {name:<20} {count:>12}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LogSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let early: u64 = self.early.iter().map(|run| run.sectors).sum();
        writeln!(
            f,
            "intent log: chain {:016x} from batch {}: {} batches, {} records, {} to be replayed, \
             {early} sectors of early data; proven up to batch {}; ends at: {}",
            self.chain,
            self.head_sequence,
            self.batches,
            self.records,
            self.pending,
            self.mark,
            self.end
        )
    }
}
