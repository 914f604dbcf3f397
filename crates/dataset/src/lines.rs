//! Lines: who lists a snapshot, on whose line it is, and what ends with it.
//!
//! Each dataset has a line: its head, the snapshots that were taken of it, and its dead tree. A
//! line begins empty, or with a snapshot on another line, its origin. So the past of a dataset is
//! the snapshots on its line, then those on the line of its origin up to that, and so on.
//!
//! A snapshot stays on its line. Which dataset lists it can change ([`crate::promote`]).
//!
//! Invariants:
//! - A dataset lists the newest snapshots of its past, none of another past, and each snapshot that
//!   is not hidden has one dataset that lists it. The next older snapshot is what the dataset is a
//!   clone of.
//! - A snapshot with which a line begins is *pinned*: it stays on its line. Destroyed while it is
//!   pinned, it is hidden.
//! - A line of which a snapshot stays outlives its dataset, as a *hidden line*. Of snapshots of its
//!   files only pinned ones stay, hidden. Its head is its newest snapshot, by a rollback
//!   ([`crate::rollback`]). So the dead tree names all that the other snapshots show, and the line
//!   frees what is let go as any other does.
//! - A hidden line without a snapshot is emptied. So its origin may be pinned no longer: what it
//!   pinned alone, and what is hidden, goes with it, in the same txg.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::{DatasetId, Txg};

use crate::dataset::{Dataset, Phase};
use crate::datasets::Datasets;
use crate::rollback::RollbackKind;
use crate::snapshots::{Act, Snapshot};

/// A snapshot on a line.
pub(crate) type OnLine = (DatasetId, Txg);

/// Consequences of the end of datasets and snapshots.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// For the sync of its txg.
    pub acts: Vec<Act>,
    /// Lines that are emptied.
    pub gone: Vec<Arc<Dataset>>,
    /// Lines whose head becomes an older snapshot.
    pub rolled: Vec<Arc<Dataset>>,
}

/// State of the search for an [`Ending`].
#[derive(Debug)]
struct Search {
    lines: BTreeMap<DatasetId, Arc<Dataset>>,
    /// How many lines begin with each snapshot.
    pins: BTreeMap<OnLine, usize>,
    doomed: BTreeSet<DatasetId>,
    /// Snapshots that nobody lists any more.
    unlisted: BTreeSet<OnLine>,
    /// Of them, those that leave their line.
    removed: BTreeSet<OnLine>,
    /// The snapshots that stay on lines that lose their dataset, or a snapshot.
    left: BTreeMap<DatasetId, BTreeSet<Txg>>,
    gone: BTreeSet<DatasetId>,
}

impl Datasets {
    /// The lines that a dataset comes from, its own first, each with the txg up to which.
    pub(crate) fn past(&self, dataset: &Dataset) -> Vec<(Arc<Dataset>, Txg)> {
        let mut past: Vec<(Arc<Dataset>, Txg)> = Vec::new();
        let (mut id, mut upto) = (dataset.id, Txg(u64::MAX));
        while let Some(line) = self.by_id(id) {
            let origin = *line.origin.lock();
            past.push((line, upto));
            // A hostile namespace may have a line that begins with itself.
            match origin.filter(|origin| origin.snapshot < upto) {
                Some(origin) => (id, upto) = (origin.dataset, origin.snapshot),
                None => break,
            }
        }
        past
    }

    /// The snapshot that a dataset is a clone of.
    pub(crate) fn origin_snapshot(&self, dataset: &Dataset) -> Option<Arc<Snapshot>> {
        let oldest = dataset.listing.lock().list.first_key_value().map(|(txg, _)| *txg);
        let before = oldest.map_or(Txg(u64::MAX), |oldest| Txg(oldest.0.saturating_sub(1)));
        self.past(dataset).into_iter().find_map(|(line, upto)| {
            line.snapshots.lock().newest_of_another(upto.min(before), dataset.id)
        })
    }

    /// The snapshots of a dataset's past that another one lists, up to a txg.
    pub(crate) fn shared(
        &self,
        dataset: &Dataset,
        with: DatasetId,
        upto: Txg,
    ) -> Vec<Arc<Snapshot>> {
        let past = self.past(dataset).into_iter().flat_map(|(line, until)| {
            let mut all = line.snapshots.lock().all();
            all.retain(|of| of.txg <= upto.min(until) && of.lister == Some(with));
            all
        });
        past.collect()
    }

    /// The lines that are not being emptied.
    fn lines(&self) -> BTreeMap<DatasetId, Arc<Dataset>> {
        let state = self.state.lock();
        let stays =
            |of: &&Arc<Dataset>| !matches!(of.phase(Txg(u64::MAX - 1)), Phase::Emptied { .. });
        state.datasets.values().filter(stays).map(|of| (of.id, of.clone())).collect()
    }

    /// The hidden lines, each with the dataset that it counts to: the one that lists its newest
    /// snapshot; of one that is hidden altogether, the first that comes from it.
    pub(crate) fn hidden_lines(&self) -> Vec<(Arc<Dataset>, Option<DatasetId>)> {
        // Every promise asks for them, and there are few or none.
        let all = self.state.lock();
        let hidden = all.datasets.values().filter(|line| line.is_hidden_line());
        let hidden: Vec<Arc<Dataset>> = hidden.cloned().collect();
        drop(all);
        let with_its_dataset = |line: Arc<Dataset>| {
            let newest = line.snapshots.lock().newest_of_another(Txg(u64::MAX), DatasetId(0));
            let counts_to = newest.and_then(|newest| newest.lister).or_else(|| {
                let comes_from =
                    |of: &&Arc<Dataset>| self.past(of).iter().any(|(past, _)| past.id == line.id);
                self.living().iter().find(comes_from).map(|of| of.id)
            });
            (line, counts_to)
        };
        hidden.into_iter().map(with_its_dataset).collect()
    }

    /// Finds what ends if these datasets go, and nobody lists these snapshots any more. The caller
    /// holds the lock of acts.
    pub(crate) fn ending(
        &self,
        doomed: &[Arc<Dataset>],
        unlisted: impl IntoIterator<Item = OnLine>,
    ) -> Ending {
        let lines = self.lines();
        let mut pins: BTreeMap<OnLine, usize> = BTreeMap::new();
        for origin in lines.values().filter_map(|line| *line.origin.lock()) {
            *pins.entry((origin.dataset, origin.snapshot)).or_default() += 1;
        }
        let mut search = Search {
            lines,
            pins,
            doomed: doomed.iter().map(|of| of.id).collect(),
            unlisted: BTreeSet::new(),
            removed: BTreeSet::new(),
            left: BTreeMap::new(),
            gone: BTreeSet::new(),
        };
        doomed.iter().for_each(|of| search.touch(of.id));
        let listed = doomed.iter().flat_map(|of| {
            let listing = of.listing.lock();
            listing.list.values().map(|of| (of.line, of.txg)).collect::<Vec<_>>()
        });
        // What is hidden for lines of heads goes with these.
        let hidden = doomed.iter().flat_map(|of| {
            let snapshots = of.snapshots.lock();
            let hidden = snapshots.hidden_for_lines();
            hidden.into_iter().map(|txg| (of.id, txg)).collect::<Vec<_>>()
        });
        listed.chain(hidden).chain(unlisted).for_each(|place| search.unlist(place));
        while search.step() {}
        search.ending()
    }

    /// The items of a line that is emptied from now on, other than its record.
    pub(crate) fn items_of_line(line: &Dataset) -> Vec<(ItemKey, Option<Item>)> {
        let (number, snapshots) = (line.record.lock().line, line.snapshots.lock());
        let mut keys = vec![
            ItemKey::new(line.id, ItemClass::Line, number),
            ItemKey::new(line.id, ItemClass::Rollback, 0),
            ItemKey::new(line.id, ItemClass::Record, 0),
            ItemKey::new(line.id, ItemClass::HiddenLine, 0),
            ItemKey::new(line.id, ItemClass::Inherited, 0),
        ];
        let of = |class, txgs: Vec<Txg>| {
            txgs.into_iter().map(move |txg| ItemKey::new(line.id, class, txg.0))
        };
        let of_each =
            [ItemClass::Snapshot, ItemClass::Keep, ItemClass::Lister, ItemClass::Inherited];
        for class in of_each {
            keys.extend(of(class, snapshots.listed()));
        }
        keys.extend(of(ItemClass::Sweep, snapshots.sweeps()));
        keys.extend(snapshots.head_lines.keys(line.id));
        keys.extend(snapshots.files.keys(line.id));
        keys.extend(snapshots.bookmarks.keys(line.id));
        keys.extend(snapshots.covered.keys(line.id));
        keys.into_iter().map(|key| (key, None)).collect()
    }
}

impl Search {
    /// A line loses its dataset, or a snapshot.
    fn touch(&mut self, id: DatasetId) {
        if let Some(line) = self.lines.get(&id) {
            self.left
                .entry(id)
                .or_insert_with(|| line.snapshots.lock().listed().into_iter().collect());
        }
    }

    /// Whether a line that a living head began may need a snapshot. If it does not in the end, the
    /// sync finds that ([`crate::head_lines`]).
    fn is_needed_by_a_line(&self, (id, snapshot): OnLine) -> bool {
        let line = self.lines.get(&id).filter(|_| !self.is_hidden(id));
        line.is_some_and(|line| line.snapshots.lock().needed_by_a_line(snapshot))
    }

    fn unlist(&mut self, place: OnLine) {
        self.touch(place.0);
        self.unlisted.insert(place);
    }

    /// Whether a line has no dataset any more.
    fn is_hidden(&self, id: DatasetId) -> bool {
        let is_destroyed = |line: &Arc<Dataset>| line.is_destroyed();
        self.doomed.contains(&id) || self.lines.get(&id).is_some_and(is_destroyed)
    }

    /// Looks for what goes too. Returns whether something does.
    fn step(&mut self) -> bool {
        let is_pinned = |place: &&OnLine| {
            let of_lines = self.pins.get(*place).is_some_and(|pins| *pins > 0);
            of_lines || self.is_needed_by_a_line(**place)
        };
        let all = left_out(Rule::PinnedStaysHidden);
        let removed = self.unlisted.iter().filter(|place| all || !is_pinned(place));
        for place in removed.copied().collect::<Vec<_>>() {
            self.removed.insert(place);
            self.left.entry(place.0).or_default().remove(&place.1);
        }
        let ends = |(id, left): (&DatasetId, &BTreeSet<Txg>)| {
            let is_needed = !left.is_empty() && !left_out(Rule::LinesOutliveDatasets);
            (!self.gone.contains(id) && self.is_hidden(*id) && !is_needed).then_some(*id)
        };
        let Some(id) = self.left.iter().find_map(ends) else { return false };
        self.gone.insert(id);
        let origin = self.lines.get(&id).and_then(|line| *line.origin.lock());
        if let Some(origin) = origin {
            let place = (origin.dataset, origin.snapshot);
            if let Some(pins) = self.pins.get_mut(&place) {
                *pins = pins.saturating_sub(1);
            }
            let from = self.lines.get(&origin.dataset);
            let snapshot = from.and_then(|from| from.snapshots.lock().get(origin.snapshot));
            if snapshot.is_some_and(|snapshot| snapshot.lister.is_none()) {
                self.unlist(place);
            }
        }
        true
    }

    fn ending(self) -> Ending {
        let mut ending = Ending::default();
        for (id, left) in &self.left {
            let Some(line) = self.lines.get(id) else { continue };
            if self.gone.contains(id) {
                ending.gone.push(line.clone());
                continue;
            }
            let newest = line.snapshots.lock().newest();
            let changes = self.doomed.contains(id) || newest != left.last().copied();
            if let Some(to) = left.last().filter(|_| changes && self.is_hidden(*id)) {
                ending.acts.push(Act::Rollback {
                    dataset: *id,
                    to: *to,
                    kind: RollbackKind::InLine,
                });
                ending.rolled.push(line.clone());
            }
            let these = line.snapshots.lock().bookmarks.after(Txg(0));
            if self.doomed.contains(id) && !these.is_empty() {
                ending.acts.push(Act::DestroyBookmarks { line: *id, these });
            }
            // Behind the rollback: then it is known which of them clones of files need.
            let files = line.snapshots.lock().files.after(Txg(0));
            if self.doomed.contains(id) && !files.is_empty() {
                let ids = files.iter().map(|of| of.id).collect();
                ending.acts.push(Act::DestroyFiles { line: *id, ids, at_once: true });
            }
        }
        for place in self.unlisted.iter().filter(|(line, _)| !self.gone.contains(line)) {
            let (line, snapshot) = *place;
            let known = self.lines.get(&line).and_then(|of| of.snapshots.lock().get(snapshot));
            if self.removed.contains(place) {
                ending.acts.push(Act::Destroy { line, snapshot });
            } else if known.is_some_and(|known| known.lister.is_some()) {
                ending.acts.push(Act::Hide { line, snapshot });
            }
        }
        ending
    }
}
