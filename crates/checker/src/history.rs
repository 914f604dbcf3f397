//! Whether the answers of one life can be true: see the crate's head.

use std::collections::BTreeMap;

use aquifer_files::{Attributes, FsError};

use crate::content::{CELL_BYTES, Content, cell_of};
use crate::op::{Cells, Named, Node, Op, Place, Reply, Tag};
use crate::tree::{Object, Tree};
use crate::witness::{Call, Stamp, Witness};

/// Moments for changes whose time nobody knows; the first moment of a change counts.
pub type Order<'a> = Vec<(&'a Call, Stamp)>;

/// An error, and how far a life made sense before it: in changes, then answers, then objects found.
#[derive(Debug)]
pub struct Wrong {
    /// How far.
    pub reached: usize,
    /// The error.
    pub why: String,
}

/// The latest moment of each change whose client does not know its time, and the other possible
/// moments.
pub fn orders(witness: &Witness) -> (Order<'_>, Order<'_>) {
    let (mut latest, mut others) = (Order::new(), Order::new());
    for call in witness.known_calls() {
        let Some(Ok(Reply::Done { until_ns, moments_ns, .. })) = &call.outcome else { continue };
        // A RENAME that had nothing to do leaves no trace: the times in its answer are older.
        let (before, after): (Vec<u64>, Vec<u64>) =
            moments_ns.iter().partition(|ns| *ns <= until_ns);
        let mut moments = before.into_iter().rev().chain(after.into_iter().rev());
        let stamp = |ns: u64| (call, (ns, 1, call.begun));
        latest.extend(moments.next().map(stamp));
        others.extend(moments.map(stamp));
        if matches!(call.op, Op::Rename(..)) {
            // It may have found that it had nothing to do long after it read the clock.
            others.push((call, (*until_ns, 2, call.begun)));
        }
    }
    (latest, others)
}

/// An object after a change of it.
#[derive(Debug)]
struct Version<'a> {
    /// The change; `None` for the state at the start of the life.
    by: Option<&'a Call>,
    object: Object,
}

/// A life, as the server reports it.
#[derive(Debug)]
pub struct History<'a> {
    /// After all acknowledged changes.
    pub tree: Tree,
    /// Acknowledged changes, in the server's order.
    pub changes: Vec<&'a Call>,
    /// Changes of which nobody knows whether they were made.
    pub ghosts: Vec<&'a Call>,
    /// Lost changes that others may have seen before.
    seen: Vec<&'a Call>,
    /// Ghosts that must have run before a change that was not durable: both may be lost.
    guessed: Vec<&'a Call>,
    /// When the server last started.
    began: u64,
    /// COMMITs that succeeded.
    pub commits: Vec<&'a Call>,
    versions: BTreeMap<Tag, Vec<Version<'a>>>,
    /// For each object, the beginning of the latest call that changed it so far.
    called: BTreeMap<Tag, u64>,
}

impl<'a> History<'a> {
    /// Carries out a life's changes, and looks for every answer in it.
    ///
    /// # Errors
    /// An answer that cannot be.
    pub fn new(witness: &'a Witness, order: &Order<'a>) -> Result<History<'a>, Wrong> {
        let first = |object: &Object| vec![Version { by: None, object: object.clone() }];
        let settled = &witness.settled.objects;
        let calls = || witness.known_calls();
        let mut changes: Vec<(Stamp, &Call)> =
            calls().filter_map(|call| Some((call.stamp()?, call))).collect();
        for (stamp, call) in &mut changes {
            let own = order.iter().find(|(of, _)| std::ptr::eq(*of, *call));
            *stamp = own.map_or(*stamp, |(_, stamp)| *stamp);
        }
        changes.sort_by_key(|(stamp, _)| *stamp);
        let mut history = History {
            tree: witness.settled.clone(),
            changes: changes.into_iter().map(|(_, call)| call).collect(),
            ghosts: calls().filter(|call| call.is_ghost()).collect(),
            seen: witness.lost_changes().collect(),
            guessed: Vec::new(),
            began: witness.began(),
            commits: calls().filter(|call| call.is_commit()).collect(),
            versions: settled.iter().map(|(tag, object)| (*tag, first(object))).collect(),
            called: BTreeMap::new(),
        };
        let mut used = Vec::new();
        let mut reached = 0;
        for change in history.changes.clone() {
            history.carry_out(change, &mut used).map_err(|why| Wrong { reached, why })?;
            reached += 1;
        }
        for call in calls() {
            if let Some(outcome) = &call.outcome {
                let seen = history.answer_can_be(call, outcome);
                let what = |why| format!("{:?} -> {outcome:?}: {why}", call.op);
                seen.map_err(|why| Wrong { reached, why: what(why) })?;
            }
            reached += 1;
        }
        Ok(history)
    }

    fn carry_out(&mut self, change: &'a Call, used: &mut Vec<&'a Call>) -> Result<(), String> {
        if is_used(used, change) {
            return Ok(());
        }
        let touched = match self.tree.apply(&change.op) {
            Ok(touched) => touched,
            Err(why) => {
                // Calls without an answer may have made way for it, or calls whose time nobody
                // knows.
                let way = (1..=MADE_WAY_MAX)
                    .find_map(|ghosts| self.way_for(&self.tree, change, used, ghosts));
                let way = way.ok_or_else(|| format!("{:?} succeeded: {why}", change.op))?;
                for ghost in way {
                    used.push(ghost);
                    if ghost.is_ghost() && !change.is_durable() {
                        self.guessed.push(ghost);
                    }
                    let touched = self.tree.apply(&ghost.op)?;
                    self.note(ghost, &touched);
                }
                self.tree.apply(&change.op)?
            }
        };
        for tag in touched.iter().filter(|_| !change.is_done()) {
            let called = self.called.entry(*tag).or_insert(0);
            if change.ended < *called {
                return Err(format!(
                    "{:?} is later than a change of {tag} that began after its end",
                    change.op
                ));
            }
            *called = (*called).max(change.begun);
        }
        self.note(change, &touched);
        Ok(())
    }

    /// That many ghosts that make way for a change, in their order.
    fn way_for(
        &self,
        tree: &Tree,
        change: &Call,
        used: &[&'a Call],
        ghosts: usize,
    ) -> Option<Vec<&'a Call>> {
        let may = |ghost: &&&'a Call| {
            let names = places(&ghost.op).next().is_some();
            names && !is_used(used, ghost) && ghost.begun < change.ended
        };
        let done = self.changes.iter().filter(|done| done.is_done());
        self.ghosts.iter().chain(done).filter(may).find_map(|ghost| {
            let mut tree = tree.clone();
            tree.apply(&ghost.op).ok()?;
            if ghosts == 1 {
                return tree.apply(&change.op).is_ok().then(|| vec![*ghost]);
            }
            let used: Vec<&Call> = used.iter().copied().chain([*ghost]).collect();
            let mut way = self.way_for(&tree, change, &used, ghosts - 1)?;
            way.insert(0, ghost);
            Some(way)
        })
    }

    fn note(&mut self, by: &'a Call, touched: &[Tag]) {
        for tag in touched {
            if let Some(object) = self.tree.objects.get(tag) {
                let version = Version { by: Some(by), object: object.clone() };
                self.versions.entry(*tag).or_default().push(version);
            }
        }
    }

    /// Whether a change of this name was needed, but may be lost.
    pub fn may_be_lost(&self, directory: Tag, name: &str) -> bool {
        let at = |place: &Place| place.directory.tag == directory && place.name == name;
        self.guessed.iter().any(|ghost| places(&ghost.op).any(at))
    }

    /// States of an object that a call may have met.
    fn met(&self, tag: Tag, call: &Call) -> &[Version<'a>] {
        let Some(versions) = self.versions.get(&tag) else { return &[] };
        let before = |version: &Version| version.by.is_none_or(|by| by.ended < call.begun);
        let begun = |version: &Version| version.by.is_none_or(|by| by.begun < call.ended);
        let first = versions.iter().rposition(before).unwrap_or(0);
        let last = versions.iter().rposition(begun).map_or(first, |last| last.max(first));
        &versions[first..=last]
    }

    fn ghosts_before(&self, call: &Call) -> impl Iterator<Item = &&'a Call> {
        let ended = call.ended;
        self.ghosts.iter().chain(&self.seen).filter(move |ghost| ghost.begun < ended)
    }

    fn ghost_touches(&self, place: &Place, call: &Call) -> bool {
        self.ghosts_before(call).any(|ghost| touches(&ghost.op, place))
    }

    /// Whether a call may have found a name to be this.
    fn name_can_be(&self, place: &Place, call: &Call, is: impl Fn(Option<Tag>) -> bool) -> bool {
        let found = |version: &Version| match &version.object {
            Object::Directory { names, .. } => is(names.get(&place.name).copied()),
            _ => false,
        };
        // A directory made by a call without an answer is empty at first.
        let is_ghost_made = !self.versions.contains_key(&place.directory.tag);
        self.met(place.directory.tag, call).iter().any(found)
            || is_ghost_made && is(None)
            || self.ghost_touches(place, call)
    }

    fn can_be_dead(&self, tag: Tag, call: &Call) -> bool {
        let kills =
            |ghost: &&Call| matches!(&ghost.op, Op::Remove(_) | Op::Rmdir(_) | Op::Rename(..));
        let is_ghost_made = !self.versions.contains_key(&tag);
        // Clients saw it before its creation was durable. The cut took it away, and clients send
        // the calls without answers again.
        let makes = |op: &Op| match op {
            Op::Create(_, made) | Op::Mkdir(_, made) | Op::Symlink(_, made) => *made == tag,
            _ => false,
        };
        let was_lost = call.begun > self.began
            && self.guessed.iter().any(|ghost| ghost.begun <= self.began && makes(&ghost.op));
        is_ghost_made
            || was_lost
            || self.met(tag, call).iter().any(|version| version.object.links() == 0)
            || self.ghosts_before(call).any(kills)
    }

    fn answer_can_be(&self, call: &Call, outcome: &Result<Reply, FsError>) -> Result<(), String> {
        match (&call.op, outcome) {
            (Op::Read { file, first, count }, Ok(Reply::Read(bytes, eof))) => {
                self.read_can_be(call, file.tag, (*first, *count), bytes, *eof)
            }
            (Op::Lookup(place), Ok(Reply::Attributes(seen))) => {
                let is = self.name_can_be(place, call, |tag| tag == Some(seen.uid));
                fine(is, "the name stood for something else")
            }
            (
                Op::Lookup(place) | Op::Remove(place) | Op::Rmdir(place) | Op::Rename(place, _),
                Err(FsError::NotFound),
            ) => fine(self.name_can_be(place, call, |tag| tag.is_none()), "the name was there"),
            (
                Op::Create(place, _)
                | Op::Mkdir(place, _)
                | Op::Symlink(place, _)
                | Op::Link(_, place),
                Err(FsError::Exists),
            ) => fine(self.name_can_be(place, call, |tag| tag.is_some()), "the name was not there"),
            (Op::List(directory, _), Ok(Reply::Listed(entries))) => {
                self.list_can_be(call, *directory, entries)
            }
            (Op::Getattr(node), Ok(Reply::Attributes(seen))) => {
                self.attributes_can_be(call, *node, seen)
            }
            (Op::Readlink(node), Ok(Reply::Text(text))) => {
                fine(text == node.tag.to_string().as_bytes(), "another text")
            }
            (
                Op::Read { file: node, .. }
                | Op::Write { file: node, .. }
                | Op::Set { file: node, .. }
                | Op::Commit { file: node, .. }
                | Op::Getattr(node)
                | Op::Readlink(node)
                | Op::List(node, _)
                | Op::Link(node, _),
                Err(FsError::Stale),
            ) => {
                let place = match &call.op {
                    Op::Link(_, place) => self.can_be_dead(place.directory.tag, call),
                    _ => false,
                };
                fine(place || self.can_be_dead(node.tag, call), "it was never removed")
            }
            (op, Err(FsError::Pool(error))) if !op.changes() => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    fn list_can_be(&self, call: &Call, directory: Node, entries: &[Named]) -> Result<(), String> {
        let mut listed: BTreeMap<&str, Option<Tag>> = BTreeMap::new();
        for (name, seen) in entries {
            let seen = seen.as_ref().map(|seen| seen.uid);
            if listed.insert(name, seen).is_some() {
                return Err(format!("{name} is listed twice"));
            }
        }
        let place = |name: &str| Place { directory, name: name.into() };
        for (name, seen) in &listed {
            // An object that went meanwhile has no attributes.
            let is = |tag: Option<Tag>| tag.is_some() && (seen.is_none() || tag == *seen);
            fine(self.name_can_be(&place(name), call, is), name)?;
        }
        let always =
            self.met(directory.tag, call).iter().filter_map(|version| match &version.object {
                Object::Directory { names, .. } => Some(names),
                _ => None,
            });
        for name in always.flat_map(|names| names.keys()) {
            let is = listed.contains_key(name.as_str())
                || self.name_can_be(&place(name), call, |tag| tag.is_none());
            fine(is, &format!("{name} was there all the time"))?;
        }
        Ok(())
    }

    fn attributes_can_be(&self, call: &Call, node: Node, seen: &Attributes) -> Result<(), String> {
        fine(seen.uid == node.tag, "another object")?;
        let resized = self.ghosts_before(call).any(|ghost| file_of(&ghost.op) == Some(node.tag));
        let fits = |version: &Version| match &version.object {
            Object::File { content, mode, .. } => content.size == seen.size && *mode == seen.mode,
            _ => true,
        };
        let met = self.met(node.tag, call);
        fine(resized || met.is_empty() || met.iter().any(fits), "never had these")
    }

    fn read_can_be(
        &self,
        call: &Call,
        tag: Tag,
        (first, count): (u64, u64),
        bytes: &[u8],
        eof: bool,
    ) -> Result<(), String> {
        let met = self.met(tag, call);
        let ghosts: Vec<_> =
            self.ghosts_before(call).filter(|ghost| file_of(&ghost.op) == Some(tag)).collect();
        if met.is_empty() {
            return Ok(());
        }
        let (offset, length) = (first * CELL_BYTES, count * CELL_BYTES);
        let sized = |version: &Version| {
            content_of(&version.object).is_some_and(|content| {
                let end = (offset + length).min(content.size);
                let fits = bytes.len() as u64 == end.saturating_sub(offset);
                fits && eof == (offset + length >= content.size)
            })
        };
        if ghosts.is_empty() && !met.iter().any(sized) {
            return Err(format!("{} bytes, eof {eof}: no such size", bytes.len()));
        }
        let mut read = Vec::new();
        for (index, cell) in (first..).zip(bytes.chunks(CELL_BYTES as usize)) {
            read.push(cell_of(index, cell)?);
        }
        let is = |content: &Content| {
            (first..).zip(&read).all(|(index, cell)| {
                content.cell(index) == *cell
                    || ghosts.iter().any(|ghost| leaves(&ghost.op, index) == Some(*cell))
            })
        };
        match met.iter().filter_map(|version| content_of(&version.object)).any(is) {
            true => Ok(()),
            false => {
                let now = met.iter().filter_map(|version| content_of(&version.object)).next_back();
                let other = (first..)
                    .zip(&read)
                    .find(|(index, cell)| now.is_none_or(|content| content.cell(*index) != **cell));
                Err(format!("none of {} states has that; the last differs at {other:?}", met.len()))
            }
        }
    }
}

/// Ghosts that one change may need.
const MADE_WAY_MAX: usize = 3;

fn is_used(used: &[&Call], call: &Call) -> bool {
    used.iter().any(|one| std::ptr::eq(*one, call))
}

fn content_of(object: &Object) -> Option<&Content> {
    match object {
        Object::File { content, .. } => Some(content),
        _ => None,
    }
}

fn fine(is: bool, why: &str) -> Result<(), String> {
    if is { Ok(()) } else { Err(why.to_string()) }
}

/// The file whose content or attributes a change sets.
pub fn file_of(op: &Op) -> Option<Tag> {
    match op {
        Op::Set { file, .. } | Op::Write { file, .. } => Some(file.tag),
        _ => None,
    }
}

/// The number that a change leaves in a cell, if it reaches it.
pub fn leaves(op: &Op, index: u64) -> Option<u32> {
    let covers = |c: &&Cells| (c.first..c.first + c.count).contains(&index);
    match op {
        Op::Write { cells, .. } => cells.iter().rev().find(covers).map(|c| c.cell),
        Op::Set { size: Some(size), .. } if index * CELL_BYTES >= *size => Some(0),
        _ => None,
    }
}

/// Whether a change is about this name.
pub fn touches(op: &Op, place: &Place) -> bool {
    places(op).any(|at| at == place)
}

/// The names that a change is about.
fn places(op: &Op) -> impl Iterator<Item = &Place> {
    let (one, other) = match op {
        Op::Create(at, _)
        | Op::Mkdir(at, _)
        | Op::Symlink(at, _)
        | Op::Remove(at)
        | Op::Rmdir(at)
        | Op::Link(_, at) => (Some(at), None),
        Op::Rename(from, to) => (Some(from), Some(to)),
        _ => (None, None),
    };
    one.into_iter().chain(other)
}
