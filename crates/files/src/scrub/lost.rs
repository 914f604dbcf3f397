//! Losses that a scrub has found, which no copy makes good: which files have lost which pages.
//!
//! A snapshot and its file may show one block. A scrub meets it once, and asks the file's newest
//! state by the block's place: it reads nothing once more.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_dataset::{DamageKind, DamageRecord, Dataset};
use aquifer_object::Object;
use aquifer_ondisk::inode::{FileKind, Time};
use aquifer_ondisk::pool_root::TreeSlot;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::{DatasetId, ObjectId, Txg};
use aquifer_pool::{Lost, LostBlocks, Span, Watch};

use crate::core::Files;
use crate::damage::About;

/// Pages of a damaged file that are tried one by one.
const PAGES_TRIED_MAX: usize = 4096;

/// Losses that the newest scrub has found, as far as this import knows.
#[derive(Debug, Default)]
pub(super) struct Found {
    begun: Option<Time>,
    /// Blocks, for the pieces that come.
    pub lost: LostBlocks,
    /// Files and other objects of which something is lost, among those that the pool remembers.
    objects: BTreeSet<(DatasetId, ObjectId)>,
}

impl Found {
    /// That of the scrub that began then.
    pub fn of(&mut self, begun: Time) -> &mut Found {
        if self.begun != Some(begun) {
            *self = Found { begun: Some(begun), ..Found::default() };
        }
        self
    }
}

/// The begin of the object in which a span lies.
fn object_at(lost: &Lost) -> WalkPosition {
    WalkPosition { within: 0, ..lost.span.from }
}

impl Files {
    /// Notes what a piece has lost, by file and pages.
    pub(super) async fn note_lost(&self, lost: &[Lost], blocks: &LostBlocks) {
        let is_same = |a: &Lost, b: &Lost| {
            object_at(a) == object_at(b) && a.node.is_some() == b.node.is_some()
        };
        for of_one in lost.chunk_by(is_same) {
            let Some(first) = of_one.first() else { continue };
            if let Some(snapshot) = self.snapshot_of(&first.span) {
                self.tell_of_snapshot(&snapshot, of_one);
                self.note_shared(of_one, blocks).await;
            } else if let Some((dataset, id)) = self.object_of(&first.span) {
                self.note_in_head((&dataset, id), of_one, blocks).await;
            } else {
                self.tell_of_pool(of_one);
            }
        }
    }

    /// Notes what an object has lost that its dataset shows now.
    async fn note_in_head(
        &self,
        (dataset, id): (&Arc<Dataset>, ObjectId),
        of_one: &[Lost],
        blocks: &LostBlocks,
    ) {
        let Some(first) = of_one.first() else { return };
        let file = self.file_in(dataset, id, &first.span).await;
        let ranges = match &file {
            // Its nodes were looked for in the newest root.
            Some(file) if first.node.is_some() => pages_of(file, of_one),
            Some(file) => match self.pages_lost_now(file, of_one, blocks).await {
                lost if lost.is_empty() => return,
                lost => lost,
            },
            // It is gone with its content.
            None if first.node.is_none() && self.is_gone(dataset, id).await => return,
            None => Vec::new(),
        };
        self.note_found((dataset, id), ranges, first).await;
    }

    /// Notes what a file has lost with a snapshot: a walk meets what both show with the snapshot.
    async fn note_shared(&self, of_one: &[Lost], blocks: &LostBlocks) {
        let Some(first) = of_one.first() else { return };
        let WalkPosition { key: (dataset, _), object, .. } = first.span.from;
        let (dataset, id) = (self.datasets.by_id(DatasetId(dataset)), ObjectId(object));
        let Some(dataset) = dataset.filter(|dataset| !dataset.is_destroyed()) else { return };
        let Some(file) = self.file_in(&dataset, id, &first.span).await else { return };
        let lost = self.pages_lost_now(&file, of_one, blocks).await;
        if !lost.is_empty() {
            self.note_found((&dataset, id), lost, first).await;
        }
    }

    async fn note_found(
        &self,
        (dataset, id): (&Arc<Dataset>, ObjectId),
        ranges: Vec<(u64, u64)>,
        first: &Lost,
    ) {
        if !self.datasets.knows_unreadable(dataset, id, &ranges) {
            self.note_unreadable((dataset, id), ranges, &first.error).await;
        }
        if self.datasets.knows_unreadable(dataset, id, &[]) {
            self.scrubbing.lock().found.objects.insert((dataset.id, id));
        }
    }

    /// Whether the scrub that ends has found that something of an object is lost.
    pub(super) fn has_lost(&self, damage: &DamageRecord) -> bool {
        let objects = &self.scrubbing.lock().found.objects;
        objects.contains(&(damage.dataset, damage.object))
    }

    fn tell_of_snapshot(&self, snapshot: &str, of_one: &[Lost]) {
        let Some(Lost { span, error, .. }) = of_one.first() else { return };
        let WalkPosition { key, object, .. } = span.from;
        let about = About { class: "snapshot.unreadable", key, object };
        if let Some(left_out) = self.tells(about) {
            tracing::error!(
                class = "snapshot.unreadable", pool = self.pool.name(), snapshot, object,
                spans = of_one.len(), ?span, %error, left_out,
                "a part of a snapshot cannot be read"
            );
        }
    }

    fn tell_of_pool(&self, of_one: &[Lost]) {
        let Some(Lost { span, error, .. }) = of_one.first() else { return };
        let key = (span.from.tree.into(), span.from.key.0);
        let about = About { class: "pool.unreadable", key, object: 0 };
        if let Some(left_out) = self.tells(about) {
            tracing::error!(
                class = "pool.unreadable", pool = self.pool.name(), ?span, %error, left_out,
                "a part of the pool's own records cannot be read"
            );
        }
    }

    /// The file, if a span lies in one.
    async fn file_in(&self, dataset: &Dataset, id: ObjectId, span: &Span) -> Option<Arc<Object>> {
        let within_one = span.from.object == span.to.object && span.from.object == id.0;
        let object = dataset.object(&self.pool, id).await.ok().flatten();
        object.filter(|object| within_one && object.kind() == FileKind::Regular)
    }

    async fn is_gone(&self, dataset: &Dataset, id: ObjectId) -> bool {
        matches!(dataset.object(&self.pool, id).await, Ok(None))
    }

    /// Which pages in the spans of a file are lost in its newest state.
    async fn pages_lost_now(
        &self,
        file: &Object,
        of_one: &[Lost],
        blocks: &LostBlocks,
    ) -> Vec<(u64, u64)> {
        let mut lost = Vec::new();
        for range in pages_of(file, of_one) {
            // The pool ends, or the dataset goes: nobody asks any more.
            let Ok(found) = file.pages_lost(&self.pool, range, blocks).await else { break };
            lost.extend(found);
        }
        lost
    }

    /// Which of a file's pages cannot be read. Of many, the first ones are tried.
    async fn pages_tried(
        &self,
        dataset: &Dataset,
        id: ObjectId,
        ranges: &[(u64, u64)],
    ) -> Vec<(u64, u64)> {
        let Ok(Some(object)) = dataset.object(&self.pool, id).await else { return Vec::new() };
        let pages = ranges.iter().flat_map(|(from, to)| *from..*to).take(PAGES_TRIED_MAX);
        let mut lost: Vec<(u64, u64)> = Vec::new();
        for page in pages {
            let read = object.read_pages(&self.pool, page, page + 1).await;
            if read.is_err_and(|error| error.cannot_be_read()) {
                lost.push((page, page + 1));
            }
        }
        lost
    }

    /// The snapshot in which a span lies.
    pub(super) fn snapshot_of(&self, span: &Span) -> Option<String> {
        let WalkPosition { tree, key, .. } = span.from;
        if let Some(name) = self.datasets.file_snapshot_at(key) {
            return Some(name);
        }
        let txg = WalkPosition::snapshot_of(key).filter(|_| tree == TreeSlot::Namespace as u8)?;
        Some(self.datasets.name_on_line(DatasetId(key.0), txg))
    }

    /// The object in which a span lies. Of a part of an object table it is the first.
    pub(super) fn object_of(&self, span: &Span) -> Option<(Arc<Dataset>, ObjectId)> {
        let WalkPosition { tree, key: (dataset, _), object, .. } = span.from;
        let is_namespace = tree == TreeSlot::Namespace as u8;
        let dataset = self.datasets.by_id(DatasetId(dataset)).filter(|_| is_namespace)?;
        // All groups of a dead tree are one.
        let object = if object >= WalkPosition::dead_group(0) { u64::MAX } else { object.max(1) };
        (!dataset.is_destroyed()).then_some((dataset, ObjectId(object)))
    }

    /// Whether all that a record says to be unreadable is on disk again: another disk came back.
    pub(super) async fn is_whole_again(&self, damage: &DamageRecord) -> bool {
        if damage.kind != DamageKind::Unreadable || damage.more {
            return false;
        }
        let at = |within| WalkPosition {
            tree: TreeSlot::Namespace as u8,
            key: WalkPosition::head(damage.dataset, Txg(0)),
            object: damage.object.0,
            within,
        };
        let known = self.scrubbing.lock().found.lost.clone();
        let whole = [(0, u64::MAX)];
        let ranges = if damage.ranges.is_empty() { &whole[..] } else { &damage.ranges };
        for (from, to) in ranges {
            let mut next = Some(at(*from));
            while let Some(from) = next {
                let span = Span { from, to: at(*to) };
                match self.pool.examine(span, &Watch::over(known.clone())).await {
                    Ok(examined) if examined.lost.is_empty() => next = examined.next,
                    _ => return false,
                }
            }
        }
        // What a snapshot shows too was examined with that, not here.
        let Some(dataset) = self.datasets.by_id(damage.dataset) else { return true };
        self.pages_tried(&dataset, damage.object, &damage.ranges).await.is_empty()
    }
}

/// The pages of a file in spans.
fn pages_of(file: &Object, of_one: &[Lost]) -> Vec<(u64, u64)> {
    let pages = file.inode().size.div_ceil(4096);
    let spans = of_one.iter().map(|lost| (lost.span.from.within, lost.span.to.within.min(pages)));
    spans.filter(|(from, to)| from < to).collect()
}
