//! What clients have seen: every call, every handle.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use aquifer_files::{Attributes, FileHandle, FileKind, FsError};

use crate::content::Cell;
use crate::op::{Node, Op, ROOT, Reply, Tag};
use crate::tree::Tree;

/// How a life of the server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By a cut, or killed.
    Crash,
    /// Exported: nothing is lost, stable or not.
    Export,
    /// The next life began with an older state: anything that ever was may be there.
    Rewind,
}

/// A call, and what came back.
#[derive(Debug, Clone)]
pub struct Call {
    /// What was asked.
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

    /// It made something durable.
    pub fn is_commit(&self) -> bool {
        self.outcome == Some(Ok(Reply::Committed))
    }

    /// When the server made its change, if it did: the ctime, and of those with one ctime the
    /// order in which they were sent.
    pub fn stamp(&self) -> Option<(u64, u64)> {
        match &self.outcome {
            Some(Ok(Reply::Changed { ctime_ns, .. })) => Some((*ctime_ns, self.begun)),
            _ => None,
        }
    }
}

/// Everything.
#[derive(Debug, Default)]
pub struct Witness {
    /// What there was when this life began.
    pub settled: Tree,
    /// The calls of this life.
    pub calls: Vec<Call>,
    /// Objects that clients may use, dead ones too.
    pub nodes: BTreeMap<Tag, (Node, FileKind)>,
    handles: HashMap<FileHandle, Tag>,
    events: u64,
    last_tag: Tag,
    last_cell: Cell,
    /// What was wrong first.
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
        witness.handles.insert(root, ROOT);
        Arc::new(Mutex::new(witness))
    }

    /// A tag that nothing had.
    pub fn new_tag(&mut self) -> Tag {
        self.last_tag += 1;
        self.last_tag
    }

    /// Content that nothing had.
    pub fn new_cell(&mut self) -> Cell {
        self.last_cell += 1;
        self.last_cell
    }

    /// A call begins; its number.
    pub fn begin(&mut self, op: Op) -> usize {
        self.events += 1;
        self.calls.push(Call { op, begun: self.events, ended: u64::MAX, outcome: None });
        self.calls.len() - 1
    }

    /// Its answer came.
    pub fn end(&mut self, call: usize, outcome: Result<Reply, FsError>) {
        self.events += 1;
        match &outcome {
            Ok(
                Reply::Changed { attributes: Some(attributes), .. } | Reply::Attributes(attributes),
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

    /// An object was shown: its handle names no other.
    pub fn see(&mut self, attributes: &Attributes) {
        let (handle, tag) = (attributes.handle, attributes.uid);
        let known = *self.handles.entry(handle).or_insert(tag);
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

    /// Something is wrong.
    pub fn blame(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// What was wrong first.
    ///
    /// # Errors
    /// If anything was.
    pub fn verdict(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)
    }
}
