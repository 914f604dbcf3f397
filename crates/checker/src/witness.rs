//! The record of all clients: every call, every handle.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use aquifer_files::{Attributes, FileHandle, FileKind, FsError, Stability, Time};

use crate::content::Cell;
use crate::history::touches;
use crate::op::{Listed, Node, Op, Place, Position, ROOT, Reply, Tag};
use crate::tree::Tree;

/// How a life of the server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By a cut, or killed.
    Crash,
    /// Exported: nothing is lost, stable or not.
    Export,
    /// The next life began with an older state: any earlier state may be there.
    Rewind,
}

/// A moment of the server: nanoseconds; before (0), with (1) or after (2) the change that was made
/// then; and for several the order in which they were sent.
pub type Stamp = (u64, u8, u64);

/// A call, and its answer.
#[derive(Debug, Clone)]
pub struct Call {
    /// The call.
    pub op: Op,
    /// When it began, in events.
    pub begun: u64,
    /// When its answer came; `u64::MAX`: never.
    pub ended: u64,
    /// The answer.
    pub outcome: Option<Result<Reply, FsError>>,
}

impl Call {
    /// It may have been carried out or not.
    pub fn is_ghost(&self) -> bool {
        let unknown = match &self.outcome {
            None => true,
            Some(Err(error)) => matches!(error, FsError::Pool(_)),
            Some(Ok(_)) => false,
        };
        unknown && self.op.changes()
    }

    /// It made earlier writes durable.
    pub fn is_commit(&self) -> bool {
        matches!(self.outcome, Some(Ok(Reply::Committed(_))))
    }

    /// Durable by itself: it is no UNSTABLE write.
    pub fn is_durable(&self) -> bool {
        let unstable =
            |reply: &Reply| matches!(reply, Reply::Changed { stability: Stability::Unstable, .. });
        !matches!(&self.outcome, Some(Ok(reply)) if unstable(reply))
    }

    /// It was made, and its time is unknown.
    pub fn is_done(&self) -> bool {
        matches!(self.outcome, Some(Ok(Reply::Done { .. })))
    }

    /// When the server made its change, if it did: the ctime, and for equal ctimes the order in
    /// which they were sent.
    pub fn stamp(&self) -> Option<Stamp> {
        match &self.outcome {
            Some(Ok(Reply::Changed { ctime_ns, .. })) => Some((*ctime_ns, 1, self.begun)),
            Some(Ok(Reply::Done { until_ns, .. })) => Some((*until_ns, 2, self.begun)),
            _ => None,
        }
    }

    /// Whether neither ended before the other began.
    pub fn overlaps(&self, other: &Call) -> bool {
        self.begun < other.ended && other.begun < self.ended
    }
}

/// The attributes that stay while an object's ctime stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    size: u64,
    mode: u32,
    nlink: u32,
    mtime: Time,
}

/// A listing that continues after a restart.
#[derive(Debug, Clone)]
pub struct Half {
    /// The directory.
    pub directory: Node,
    /// Names so far.
    pub names: Vec<String>,
    /// Where it goes on.
    pub next: Position,
    /// When it began, in events.
    begun: u64,
}

/// The whole record.
#[derive(Debug, Clone, Default)]
pub struct Witness {
    /// The tree when this life began.
    pub settled: Tree,
    /// The calls of this life.
    pub calls: Vec<Call>,
    /// Objects that clients may use, including removed ones.
    pub nodes: BTreeMap<Tag, (Node, FileKind)>,
    /// Each with its tag, and the life in which it was first shown.
    handles: HashMap<FileHandle, (Tag, u64)>,
    /// Handles of objects that were shown before their creation was durable, and were lost.
    unborn: HashSet<FileHandle>,
    /// Changes that were carried out again after a restart.
    seen: Vec<Call>,
    /// An object's attributes at each ctime that was ever shown: clients keep what they have read
    /// as long as the ctime stays.
    looks: HashMap<(FileHandle, Time), Look>,
    /// An object's ctime at each change number that was ever shown.
    changes: HashMap<(FileHandle, u64), Time>,
    /// Write verifiers, and the life in which each first came.
    verifiers: HashMap<u64, u64>,
    lives: u64,
    /// The number of events when the server last started.
    began: u64,
    /// A listing that a client has begun.
    pub half: Option<Half>,
    events: u64,
    last_tag: Tag,
    last_cell: Cell,
    /// The first error.
    wrong: Option<String>,
}

/// Shared by all clients of a world.
pub type Shared = Arc<Mutex<Witness>>;

impl Witness {
    /// A world with this root.
    pub fn new(root: FileHandle) -> Shared {
        let mut witness = Witness::default();
        let node = Node { tag: ROOT, handle: root };
        witness.nodes.insert(ROOT, (node, FileKind::Directory));
        witness.handles.insert(root, (ROOT, 0));
        Arc::new(Mutex::new(witness))
    }

    /// A server starts, or restarts.
    pub fn begin_life(&mut self) {
        self.lives += 1;
        self.began = self.events;
    }

    /// Whether no earlier life has shown an object: as far as anybody knows, this life made it.
    pub fn is_of_this_life(&self, handle: FileHandle) -> bool {
        self.handles.get(&handle).is_none_or(|(_, life)| *life == self.lives)
    }

    /// When the server last started: earlier calls belong to an earlier life.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// A new tag.
    pub fn new_tag(&mut self) -> Tag {
        self.last_tag += 1;
        self.last_tag
    }

    /// A new number for a cell.
    pub fn new_cell(&mut self) -> Cell {
        self.last_cell += 1;
        self.last_cell
    }

    /// A call begins; returns its number.
    pub fn begin(&mut self, op: Op) -> usize {
        self.events += 1;
        self.calls.push(Call { op, begun: self.events, ended: u64::MAX, outcome: None });
        self.calls.len() - 1
    }

    /// A call that may run twice is sent again: the first one gets no answer.
    pub fn lose(&mut self, call: usize) {
        if let Some(lost) = self.calls.get(call).cloned() {
            self.calls.push(Call { ended: u64::MAX, outcome: None, ..lost });
        }
    }

    /// Its answer came.
    pub fn end(&mut self, call: usize, outcome: Result<Reply, FsError>) {
        self.events += 1;
        match &outcome {
            Ok(Reply::Attributes(seen)) => self.look_at(seen),
            Ok(Reply::Listed(entries)) => {
                entries.iter().filter_map(|(_, seen)| seen.as_ref()).for_each(|a| self.look_at(a));
            }
            Ok(
                Reply::Changed { verifier: verifier @ 1.., .. } | Reply::Committed(verifier @ 1..),
            ) => self.note_verifier(*verifier),
            _ => {}
        }
        match &outcome {
            Ok(
                Reply::Changed { attributes: Some(attributes), .. }
                | Reply::Done { attributes: Some(attributes), .. }
                | Reply::Attributes(attributes),
            ) => {
                self.see(attributes);
            }
            Ok(Reply::Listed(entries)) => {
                entries.iter().filter_map(|(_, seen)| seen.as_ref()).for_each(|a| self.see(a));
            }
            _ => {}
        }
        // After a cut the tasks of the life before are gone, and their calls with them.
        if let Some(call) = self.calls.get_mut(call) {
            call.ended = self.events;
            call.outcome = Some(outcome);
        }
    }

    /// A call that had been sent before ran again after a restart, and this is its answer. If it
    /// had run before, its effect is lost; others may have seen it.
    pub fn ran_again(&mut self, call: usize, outcome: &Result<Reply, FsError>) {
        let Some(call) = self.calls.get(call) else { return };
        let made = match outcome {
            Ok(
                Reply::Changed { attributes: Some(made), .. }
                | Reply::Done { attributes: Some(made), .. },
            ) => Some(made.handle),
            _ => None,
        };
        if let Op::Create(_, tag) | Op::Mkdir(_, tag) | Op::Symlink(_, tag) = &call.op
            && let Some((node, _)) = self.nodes.get(tag)
            && made != Some(node.handle)
        {
            self.unborn.insert(node.handle);
            self.nodes.remove(tag);
        }
        self.seen.push(Call { ended: u64::MAX, outcome: None, ..call.clone() });
    }

    /// The present moment, for [`Witness::leave_half`].
    pub fn now(&self) -> u64 {
        self.events
    }

    /// A listing that began at `begun` has come this far.
    pub fn leave_half(&mut self, begun: u64, directory: Node, listed: Listed) {
        let names = listed.entries.into_iter().map(|(name, _)| name).collect();
        self.half = Some(Half { directory, names, next: listed.next, begun });
    }

    /// Whether no call may have changed the object of a name since a listing began.
    pub fn is_untouched(&self, half: &Half, name: &str) -> bool {
        let place = Place { directory: half.directory, name: name.into() };
        let since = self.calls.iter().chain(&self.seen).filter(|call| call.ended > half.begun);
        !since.into_iter().any(|call| touches(&call.op, &place))
    }

    /// The calls of this life, without those about lost objects.
    pub fn known_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| !self.is_about_unborn(call))
    }

    /// Lost changes that others may have seen: calls that ran again, and changes of objects whose
    /// creation was lost.
    pub fn lost_changes(&self) -> impl Iterator<Item = &Call> {
        let lost = |call: &&Call| call.op.changes() && self.is_about_unborn(call);
        self.seen.iter().chain(self.calls.iter().filter(lost))
    }

    fn is_about_unborn(&self, call: &Call) -> bool {
        call.op.nodes().any(|node| self.unborn.contains(&node.handle))
    }

    /// This is the present tree; earlier calls do not matter any more.
    pub fn settle(&mut self, tree: Tree) {
        self.settled = tree;
        self.half = None;
        self.calls.clear();
        self.unborn.clear();
        self.seen.clear();
    }

    /// An object was shown: its handle names no other.
    pub fn see(&mut self, attributes: &Attributes) {
        let (handle, tag) = (attributes.handle, attributes.uid);
        let (known, _) = *self.handles.entry(handle).or_insert((tag, self.lives));
        if known != tag {
            self.blame(format!("{handle:?} names {tag}, and named {known}"));
        }
        let node = Node { tag, handle };
        match self.nodes.get(&tag) {
            Some((other, _)) if *other != node => {
                let other = other.handle;
                self.blame(format!("{tag} has two handles: {other:?} and {handle:?}"));
            }
            Some(_) => {}
            None => {
                self.nodes.insert(tag, (node, attributes.kind));
            }
        }
    }

    /// The attributes of an object at a moment when no change of it was under way.
    fn look_at(&mut self, seen: &Attributes) {
        let look = Look { size: seen.size, mode: seen.mode, nlink: seen.nlink, mtime: seen.mtime };
        let known = *self.looks.entry((seen.handle, seen.ctime)).or_insert(look);
        if known != look {
            self.blame(format!("{}: {look:?}, and was {known:?} at one ctime", seen.uid));
        }
        // NFSv3 has none.
        if seen.change > 0 {
            let ctime = *self.changes.entry((seen.handle, seen.change)).or_insert(seen.ctime);
            if ctime != seen.ctime {
                self.blame(format!("{}: change {} comes twice", seen.uid, seen.change));
            }
        }
    }

    /// A write verifier came: no other life may give it, since data that was not durable is lost.
    fn note_verifier(&mut self, verifier: u64) {
        let life = *self.verifiers.entry(verifier).or_insert(self.lives);
        if life != self.lives {
            self.blame(format!("verifier {verifier:x} comes again"));
        }
    }

    /// Notes an error, if it is the first.
    pub fn blame(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// The first error.
    ///
    /// # Errors
    /// If there was one.
    pub fn verdict(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)
    }
}
