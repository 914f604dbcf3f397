//! The state of the inspection of one root: findings, and which sectors have an owner.
//!
//! Invariants:
//! - A sector is entered once. A second owner is reported, and the walk does not descend there. So
//!   a walk ends after at most as many nodes as the disks have sectors, whatever points where.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_ondisk::config::VdevClass;
use aquifer_ondisk::dead::DeadKind;
use aquifer_ondisk::types::{DatasetId, Run};
use aquifer_ondisk::{BlockPointer, Place, Space, Txg};

use crate::Options;
use crate::extents::Verified;
use crate::finding::{At, Findings, Kind};
use crate::media::{Breadth, Fetched, Media};
use crate::report::SectorSummary;
use crate::sectors::SectorMap;
use crate::snapshots::{self, Across, Begun, Cloned, Head, Inherits, Of, OfLine, Pass};

/// The use of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Reserved,
    Records,
    Log,
    PoolNode,
    ObjectNode,
    DirectoryNode,
    ExtentNode,
    Data,
    Dead,
}

/// The inspection of one root.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    pub media: &'a Media,
    pub options: &'a Options,
    pub findings: &'a mut Findings,
    /// The root's txg.
    pub txg: Txg,
    /// Sectors with an owner, by vdev.
    pub reach: Vec<Option<SectorMap>>,
    /// Every tree could be read to its end.
    pub whole: bool,
    pub sectors: SectorSummary,
    pub verified: &'a mut Verified,
    /// Nodes and data that the head of the present dataset reaches, if that is of interest.
    pub head: Option<Head>,
    /// Of a clone: what it began with.
    pub inherits: Option<Inherits>,
    /// How much of the present tree its origin owns, by its record.
    pub inherited: Option<Space>,
    /// The pool counts what compression saves.
    pub counts_saved: bool,
    /// Datasets that have clones, with what is known of them.
    pub passes: BTreeMap<DatasetId, Pass>,
    /// The object of the present tree, if it is a clone of a file, and its floor.
    pub of: Of,
    /// When that was cut off its file; the last txg of all for a file itself.
    pub cut: Txg,
    /// Files of the present head that began as snapshots of files.
    pub begun: Begun,
    /// Latest birth of what the present head has of the snapshot as which it began again; 0: it did
    /// not.
    pub line_floor: Txg,
    /// The topmost of that.
    pub of_line: Vec<OfLine>,
    /// The dataset whose head the present one was.
    pub left: Option<DatasetId>,
    /// Clones of files of which the present head has something, and trees of them.
    pub cloned: BTreeSet<Cloned>,
    pub file_clones: Vec<(Of, BlockPointer)>,
    /// Parts that datasets have of files of others, to be looked for there.
    pub across: Vec<Across>,
    /// Of a tree that is taken down: what was born up to here is not its own, and not looked at.
    pub floor: Txg,
}

impl<'a> Scan<'a> {
    /// An inspection that has seen nothing yet.
    pub fn new(
        media: &'a Media,
        options: &'a Options,
        findings: &'a mut Findings,
        txg: Txg,
        verified: &'a mut Verified,
    ) -> Self {
        findings.root = Some(txg);
        let map = |vdev: &Option<crate::media::VdevView>| {
            vdev.as_ref().map(|vdev| SectorMap::new(vdev.geometry.sectors()))
        };
        Scan {
            reach: media.vdevs.iter().map(map).collect(),
            media,
            options,
            findings,
            txg,
            whole: true,
            sectors: SectorSummary::default(),
            verified,
            head: None,
            inherits: None,
            inherited: None,
            counts_saved: false,
            passes: BTreeMap::new(),
            of: Of::default(),
            cut: Txg(0),
            begun: Begun::default(),
            line_floor: Txg(0),
            of_line: Vec::new(),
            left: None,
            cloned: BTreeSet::new(),
            file_clones: Vec::new(),
            across: Vec::new(),
            floor: Txg(0),
        }
    }

    /// Whether the present tree, a clone's, shares what was born then with its origin.
    pub fn is_inherited(&self, birth: Txg) -> bool {
        self.inherits.is_some_and(|inherits| birth <= inherits.floor)
    }

    /// Whether the present tree, a clone of a file, shares what was born then with the file that it
    /// was cloned from. That is looked for later ([`crate::snapshots`]).
    pub fn is_cloned(&self, birth: Txg) -> bool {
        self.of.floor > Txg(0) && birth <= self.of.floor
    }

    /// Whether the present tree, a clone of a file, began as that in this dataset. Else it did in
    /// what this one is a clone of, and the origin has seen to it.
    pub fn is_begun_here(&self) -> bool {
        let is_before = self.is_inherited(self.of.floor) || self.is_of_line(self.of.floor);
        !is_before || self.begun.has(Cloned { of: self.of, cut: self.cut })
    }

    /// Whether the present head has what was born then of the snapshot as which it began again.
    pub fn is_of_line(&self, birth: Txg) -> bool {
        self.line_floor > Txg(0) && birth <= self.line_floor
    }

    /// The present tree, a clone's, refers to what it shares with its origin: that must keep it.
    pub fn inherit(&mut self, run: Run, what: (DeadKind, Txg)) {
        let Some(Inherits { origin, .. }) = self.inherits else { return };
        if let Some(head) = &mut self.head {
            head.enter(run.place, run.sectors);
        }
        let of = self.of;
        snapshots::meet_in(self, origin, run, (what, of));
    }

    /// Whether the present tree does not own what was born then.
    pub fn is_of_another(&self, birth: Txg) -> bool {
        self.floor > Txg(0) && birth <= self.floor
    }

    /// Breadth of reads of blocks with a checksum in a pointer.
    pub fn breadth(&self) -> Breadth {
        if self.options.deep { Breadth::All } else { Breadth::Any }
    }

    /// Enters sectors as used. Returns whether they exist and had no owner before. Reports nothing
    /// for a missing vdev: that it is missing was reported.
    pub fn mark(
        &mut self,
        place: Place,
        sectors: u64,
        what: Use,
        who: impl Fn() -> String,
    ) -> bool {
        let Some(slot) = self.reach.get_mut(usize::from(place.vdev())) else {
            self.outside(place, sectors, who);
            return false;
        };
        let Some(map) = slot else { return false };
        let log_vdev = self.media.vdev(place).is_some_and(|vdev| vdev.class == VdevClass::Log);
        let misplaced = log_vdev && !matches!(what, Use::Log | Use::Reserved);
        if misplaced || !self.media.holds(place, sectors) {
            self.outside(place, sectors, who);
            return false;
        }
        let before = map.set(place.sector(), sectors);
        if let Some(head) = &mut self.head {
            head.enter(place, sectors);
        }
        self.count(what, sectors - before);
        if before > 0 {
            self.sectors.twice += before;
            self.findings.add(Kind::UsedTwice, At::place(place, sectors), || {
                format!("{} at {place:?}: {before} of {sectors} sectors have another owner", who())
            });
        }
        before == 0
    }

    fn outside(&mut self, place: Place, sectors: u64, who: impl Fn() -> String) {
        self.findings.add(Kind::OutsideVdev, At::place(place, sectors), || {
            format!("{} at {place:?}+{sectors}: outside the space of its vdev", who())
        });
    }

    fn count(&mut self, what: Use, sectors: u64) {
        let sum = &mut self.sectors;
        *match what {
            Use::Reserved => &mut sum.reserved,
            Use::Records => &mut sum.records,
            Use::Log => &mut sum.log,
            Use::PoolNode => &mut sum.pool_nodes,
            Use::ObjectNode => &mut sum.object_nodes,
            Use::DirectoryNode => &mut sum.directory_nodes,
            Use::ExtentNode => &mut sum.extent_nodes,
            Use::Data => &mut sum.data,
            Use::Dead => &mut sum.dead,
        } += sectors;
    }

    /// Reports which copies were bad. `lost` is the kind if none was good.
    pub fn judge(
        &mut self,
        fetched: &Fetched,
        lost: Kind,
        at: At,
        sectors: u64,
        who: impl Fn() -> String,
    ) {
        judge(self.findings, fetched, lost, at, sectors, who);
    }
}

/// See [`Scan::judge`].
pub(crate) fn judge(
    findings: &mut Findings,
    fetched: &Fetched,
    lost: Kind,
    at: At,
    sectors: u64,
    who: impl Fn() -> String,
) {
    let why = |error: &Option<aquifer_blockio::DiskError>| match error {
        Some(error) => error.to_string(),
        None => "wrong checksum".to_string(),
    };
    if fetched.good.is_none() {
        return findings.add(lost, at, || {
            let tried: Vec<String> = fetched
                .bad
                .iter()
                .map(|bad| format!("{:?} on {}: {}", bad.place, bad.side, why(&bad.error)))
                .collect();
            let tried = match tried.is_empty() {
                true => "no place that can be read".to_string(),
                false => tried.join("; "),
            };
            format!("{}: no copy is good ({tried})", who())
        });
    }
    for bad in &fetched.bad {
        let kind = match bad.error {
            Some(_) => Kind::CopyUnreadable,
            None => Kind::CopyBad,
        };
        let at = At { run: At::place(bad.place, sectors).run, ..at.clone() };
        findings.add(kind, at.on_disk(&bad.side), || {
            let (place, side, why) = (bad.place, &bad.side, why(&bad.error));
            format!("{} at {place:?} on {side}: {why}; another copy is good", who())
        });
    }
}
