//! Content that snapshots, and clones of files, show of a dataset: node by node.

use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::dead::{Bucket, DeadBlock, DeadKind};
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::tree_node::{Directory, Extents, Form, Node, NodeBody, NodeOwner, Objects};
use aquifer_ondisk::types::{DatasetId, ObjectId, Run, Txg};
use aquifer_ondisk::{BlockPointer, FormatError};

use super::files::Shower;
use super::{Across, AcrossWhat, Inherits, Kept, Of, Pass, Snapshots, invalid, meet_in};
use crate::extents;
use crate::finding::{At, Kind};
use crate::scan::Scan;

/// A node of a snapshot that is still to come.
pub(super) struct Coming {
    pub pointer: BlockPointer,
    pub object: ObjectId,
    /// Birth of the node above.
    pub above: Txg,
    /// Txg up to which another object shows what was born.
    pub floor: Txg,
    /// The clone of a file that it is of, if it is.
    pub of: Of,
}

impl Pass {
    /// Checks that what a snapshot shows is kept.
    pub(super) async fn snapshot(
        &mut self,
        scan: &mut Scan<'_>,
        shower: &Shower,
        root: Option<Coming>,
    ) {
        let mut coming: Vec<Coming> = root.into_iter().collect();
        while let Some(node) = coming.pop() {
            let pointer = &node.pointer;
            if self.head.has_node(pointer) || pointer.birth <= node.floor {
                continue;
            }
            if !self.is_kept(node.of) {
                let (dataset, object) = (self.dataset, node.of.object);
                invalid(scan, dataset, || {
                    let who = self.who(shower);
                    format!("{who} shows object {object}, a clone of a file without an origin")
                });
                continue;
            }
            if let Some(origin) = self.across_of(pointer.birth, node.of) {
                // So is all below: there it is looked at, and met.
                if self.left.insert((pointer.places[0], pointer.written)) {
                    let what = AcrossWhat::Tree(node.object, *pointer);
                    scan.across.push(Across { origin, what });
                }
                continue;
            }
            for place in pointer.copies() {
                let run = Run::new(place, pointer.sectors());
                self.meet(scan, shower, run, ((DeadKind::Node, pointer.birth), node.of));
            }
            if !self.met.insert((pointer.places[0], pointer.written)) {
                continue;
            }
            if pointer.birth > node.above || pointer.written > pointer.birth {
                let at = At::place(pointer.places[0], 1);
                scan.findings.add(Kind::BirthOrder, at, || {
                    let (birth, above) = (pointer.birth, node.above);
                    format!("{}: a node born in {birth}, under {above}", self.who(shower))
                });
            }
            match self.read(scan, &node, shower).await {
                Some(mut below) => {
                    below.extents.retain(|extent| extent.birth > node.floor && !shower.bare);
                    self.data(scan, shower, (node.object, node.of), below.extents).await;
                    coming.extend(below.nodes);
                }
                None => self.whole = false,
            }
        }
    }

    /// Whether it is known what a file began as, if it is a clone of one. In a clone of a dataset,
    /// the origin knows.
    fn is_kept(&self, of: Of) -> bool {
        of.floor == Txg(0)
            || self.origins.contains_key(&of)
            || self.across.contains_key(&of)
            || self.inherits.is_some_and(|inherits| of.floor <= inherits.floor)
    }

    /// A clone of a file in the head: what it began with is kept. What it owns, the head has.
    pub(super) async fn file_clone(&mut self, scan: &mut Scan<'_>, of: Of, root: BlockPointer) {
        if let Some(origin) = self.across.get(&of).copied() {
            let what = AcrossWhat::Tree(of.object, root);
            scan.across.push(Across { origin, what });
            return;
        }
        // That it has none was reported with the records.
        let Some((shower, _)) = self.origins.get(&of).cloned() else { return };
        self.clone_of(scan, (&shower, of), (of, root)).await;
    }

    /// Checks that what a clone in another dataset began with is kept here; it is a clone of this
    /// snapshot of a file here. `of`: what the file was judged by then.
    pub(super) async fn began_as(
        &mut self,
        scan: &mut Scan<'_>,
        (shower, of): (&Shower, Of),
        (object, root): (ObjectId, BlockPointer),
    ) {
        let clone = Of { object, floor: shower.txg };
        self.clone_of(scan, (shower, of), (clone, root)).await;
    }

    /// `of`: what tells who shows it; `clone`: the clone and its floor.
    async fn clone_of(
        &mut self,
        scan: &mut Scan<'_>,
        (shower, of): (&Shower, Of),
        (clone, root): (Of, BlockPointer),
    ) {
        let (object, above, floor) = (clone.object, scan.txg, Txg(0));
        let mut own = vec![Coming { pointer: root, object, above, floor, of }];
        while let Some(node) = own.pop() {
            if node.pointer.birth <= clone.floor {
                self.snapshot(scan, shower, Some(node)).await;
                continue;
            }
            match self.read(scan, &node, shower).await {
                Some(mut below) => {
                    below.extents.retain(|extent| extent.birth <= clone.floor);
                    self.data(scan, shower, (object, of), below.extents).await;
                    own.extend(below.nodes);
                }
                None => self.whole = false,
            }
        }
    }

    /// The snapshot in another dataset that shows something of this birth.
    fn across_of(&self, birth: Txg, mut of: Of) -> Option<(DatasetId, FileSnapshotId)> {
        while birth <= of.floor
            && let Some((_, above)) = self.origins.get(&of)
        {
            of = *above;
        }
        self.across.get(&of).filter(|_| birth <= of.floor).copied()
    }

    fn who(&self, shower: &Shower) -> String {
        let what = if shower.bare { "bookmark" } else { "snapshot" };
        format!("{what} {:?} of dataset {}", shower.name, self.dataset)
    }

    async fn read(&self, scan: &mut Scan<'_>, node: &Coming, shower: &Shower) -> Option<Below> {
        let pointer = &node.pointer;
        let verify = |pages: &[aquifer_blockio::Page]| {
            pages.first().is_some_and(|page| pointer.verify(page.as_slice()))
        };
        let fetched = scan.media.fetch(pointer.copies(), 1, &verify, scan.breadth()).await;
        let at = || At::place(pointer.places[0], 1);
        let who = || format!("{}: a {:?} node", self.who(shower), pointer.kind);
        scan.judge(&fetched, Kind::NodeUnreadable, at(), 1, who);
        let page = fetched.good?.into_iter().next()?;
        match below(page.as_slice(), node) {
            Ok(below) => Some(below),
            Err(error) => {
                scan.findings.add(Kind::NodeInvalid, at(), || format!("{}: {error}", who()));
                None
            }
        }
    }

    /// The extents of a leaf that only snapshots have.
    async fn data(
        &mut self,
        scan: &mut Scan<'_>,
        shower: &Shower,
        (object, of): (ObjectId, Of),
        extents: Vec<Extent>,
    ) {
        let mut fresh = Vec::new();
        for extent in extents {
            self.check_saved(scan, &extent);
            let run = Run::new(extent.place, extent.stored_sectors());
            if self.meet(scan, shower, run, ((DeadKind::Extent, extent.birth), of)) {
                fresh.push(extent);
            }
        }
        if !fresh.is_empty() && (scan.options.data || scan.options.deep) {
            let owner = NodeOwner { dataset: self.dataset, object };
            extents::verify(scan, owner, fresh).await;
        }
    }

    /// A dead extent says what compression saved of it, as the snapshots do that show it.
    fn check_saved(&self, scan: &mut Scan<'_>, extent: &Extent) {
        let at = self.dead.partition_point(|kept| kept.block.run.place < extent.place);
        let is_it =
            |kept: &&Kept| (kept.block.run.place, kept.block.birth) == (extent.place, extent.birth);
        let Some(kept) = self.dead.get(at).filter(is_it) else { return };
        let saves = if scan.counts_saved { extent.saved_sectors() } else { 0 };
        if kept.block.saved_sectors != saves {
            scan.findings.add(Kind::DeadSums, At::run(kept.block.run), || {
                let (says, dataset) = (kept.block.saved_sectors, self.dataset);
                format!(
                    "a dead extent of dataset {dataset} at {:?} says that compression saves {says} \
                     sectors, a snapshot says {saves}",
                    extent.place
                )
            });
        }
    }

    /// A snapshot shows these sectors. Returns whether some of them were not met before.
    pub(super) fn meet(
        &mut self,
        scan: &mut Scan<'_>,
        shower: &Shower,
        run: Run,
        ((kind, birth), mut of): ((DeadKind, Txg), Of),
    ) -> bool {
        if let Some(origin) = self.across_of(birth, of) {
            scan.across.push(Across { origin, what: AcrossWhat::Sectors(run, (kind, birth)) });
            return false;
        }
        let mut shower = shower.clone();
        // What a clone of a file, or a line of the head, began with, the snapshot shows that it
        // began as. That is older, so it ends.
        loop {
            let origin = self.origins.get(&of).filter(|_| birth <= of.floor);
            (shower, of) = match (origin, self.of_line(&shower, birth)) {
                (Some((origin, above)), _) => (origin.clone(), *above),
                (None, Some(began_as)) => (began_as, of),
                (None, None) => break,
            };
        }
        let shower = &shower;
        if let Some(Inherits { floor, origin }) = self.inherits
            && birth <= floor
        {
            meet_in(scan, origin, run, ((kind, birth), of));
            return false;
        }
        let (mut gone, mut fresh) = (0u64, false);
        for place in (0..run.sectors).map(|at| run.place.plus(at)) {
            let after = self.dead.partition_point(|kept| kept.block.run.place <= place);
            let kept = after.checked_sub(1).and_then(|at| self.dead.get_mut(at));
            let holds = |kept: &Kept| {
                let of = kept.block.run;
                of.place.vdev() == place.vdev() && place.sector() < of.end_sector()
            };
            let shows = |kept: &Kept| {
                (kept.block.kind, kept.block.birth) == (kind, birth) && shower.shows(kept)
            };
            match kept.filter(|kept| holds(kept)) {
                Some(kept) if shows(kept) => {
                    fresh |= !kept.met;
                    kept.met |= !shower.bare;
                }
                None if self.head.has(place) => {}
                _ => gone += 1,
            }
        }
        if gone > 0 || birth > shower.txg {
            scan.findings.add(Kind::SnapshotBlockGone, At::run(run), || {
                let (who, place, sectors) = (self.who(shower), run.place, run.sectors);
                format!(
                    "{who} shows {place:?}+{sectors}, born in {birth}, of which {gone} sectors are \
                     neither the head's nor dead blocks that it covers"
                )
            });
        }
        fresh
    }

    /// Each dead block is shown by a snapshot, or waits for a sweep.
    pub(super) fn check_dead(&self, scan: &mut Scan<'_>, snapshots: &Snapshots) {
        if !self.whole {
            return;
        }
        for kept in &self.dead {
            let DeadBlock { run, birth, kind, .. } = kept.block;
            if kept.bucket.group == Bucket::OF_BOOKMARKS {
                // A rollback may have made its life longer than bookmarks know.
                if kind != DeadKind::Node || !snapshots.bookmarks.need(birth..kept.died) {
                    scan.findings.add(Kind::DeadUnreached, At::run(run), || {
                        let (dataset, died, place) = (self.dataset, kept.died, run.place);
                        format!(
                            "a dead {kind:?} of dataset {dataset} at {place:?}, {birth} to {died}, \
                             which no bookmark needs"
                        )
                    });
                }
                continue;
            }
            let life = birth..=kept.bucket.hi;
            let group = ObjectId(kept.bucket.group);
            let shown = snapshots.list.range(life.clone()).next().is_some()
                || snapshots.files.shows(group, &life)
                || group.0 == 0 && snapshots.files.gathers(kept.object, &life);
            let swept = snapshots.sweeps.range(life.clone()).next().is_some()
                || snapshots.files.sweeps(group, &life);
            // What was cut off a file before a snapshot of it may be kept for that one too.
            let of_tail = group.0 != 0 && (group != kept.object || kept.cut_off);
            if (shown == kept.met || shown && of_tail) && (shown || swept) {
                continue;
            }
            scan.findings.add(Kind::DeadUnreached, At::run(run), || {
                let (dataset, hi) = (self.dataset, kept.bucket.hi);
                let why = match shown {
                    true => "no snapshot between shows it",
                    false => "no snapshot is between, and no sweep",
                };
                let (place, object) = (run.place, kept.object);
                format!(
                    "a dead {kind:?} of object {dataset}:{object} in the group of {group} at \
                     {place:?}, {birth} to {hi}: {why}"
                )
            });
        }
    }
}

/// Nodes and extents to which a node leads.
#[derive(Default)]
struct Below {
    nodes: Vec<Coming>,
    extents: Vec<Extent>,
}

fn below(sector: &[u8], node: &Coming) -> Result<Below, FormatError> {
    let (pointer, object) = (&node.pointer, node.object);
    match pointer.kind {
        BlockKind::Objects => children::<Objects>(sector, node, |inodes| Below {
            nodes: inodes
                .into_iter()
                .filter_map(|inode| {
                    let (object, above, floor) = (inode.object, pointer.birth, inode.floor());
                    let mut of = Of::inode(&inode);
                    if inode.is_tail() {
                        of.object = inode.origin;
                    }
                    inode.root.map(|pointer| Coming { pointer, object, above, floor, of })
                })
                .collect(),
            extents: Vec::new(),
        }),
        BlockKind::Directory => children::<Directory>(sector, node, |_| Below::default()),
        BlockKind::Extents if object.0 != 0 => {
            children::<Extents>(sector, node, |extents| Below { nodes: Vec::new(), extents })
        }
        kind => Err(FormatError::invalid("snapshot: kind of node", kind as u8)),
    }
}

fn children<F: Form>(
    sector: &[u8],
    node: &Coming,
    of_leaf: impl FnOnce(Vec<F::Entry>) -> Below,
) -> Result<Below, FormatError> {
    let Coming { pointer, object, floor, of, .. } = *node;
    Ok(match Node::<F>::decode(sector, &pointer)?.body {
        NodeBody::Leaf(entries) => of_leaf(entries),
        NodeBody::Inner(children) => Below {
            nodes: children
                .into_iter()
                .map(|(_, child)| (child, pointer.birth))
                .map(|(pointer, above)| Coming { pointer, object, above, floor, of })
                .collect(),
            extents: Vec::new(),
        },
    })
}
