//! The layout of entries over nodes. Pure.
//!
//! - All fit one node: one node.
//! - Entries were added in several places: nodes are filled evenly, so that each has room for more.
//!   Under random inserts that leaves nodes about 2/3 full.
//! - Entries were added in one place: nodes are filled to the brim from the left, since the next
//!   ones are likely to follow there. The last may be left light only at the right edge of a tree:
//!   else a tree grown by one entry at a time would consist of light nodes.
//! - Tied entries stay in one node, with all entries between them.

use aquifer_ondisk::tree_node::NODE_CAPACITY_BYTES;

use super::forms::TIE_REACH;
use super::store::TreeError;

/// How large nodes become: bytes of entries, except for larger groups that must stay together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSize(usize);

impl NodeSize {
    /// As large as a node can be.
    pub const FULL: NodeSize = NodeSize(NODE_CAPACITY_BYTES);

    /// At most this.
    ///
    /// # Panics
    /// If inner nodes of that size could not hold several children: a tree would have no end.
    pub const fn at_most(bytes: usize) -> NodeSize {
        assert!(bytes >= BYTES_MIN, "a node has room for some children");
        NodeSize(if bytes < NODE_CAPACITY_BYTES { bytes } else { NODE_CAPACITY_BYTES })
    }

    pub(crate) fn bytes(self) -> usize {
        self.0
    }

    /// A node that shrinks below this is joined with a neighbour, where there is one.
    pub(crate) fn light_bytes(self) -> usize {
        self.0 / 4
    }

    /// When added entries overflow a node in the middle, new nodes are filled this far at most.
    fn even_bytes(self) -> usize {
        self.0 * 7 / 8
    }
}

/// Four children of an inner node.
const BYTES_MIN: usize = 320;

/// From this many entries side by side on, more are expected to follow there.
const RUN_PUTS_MIN: isize = 4;

/// Where a node gained entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grown {
    /// In several places, or too few to tell, or none: entries only went.
    Scattered,
    /// Several side by side.
    InOnePlace,
    /// Side by side, with no existing entry after them.
    AtEnd,
}

/// Follows a change along a node's entries, to see where it grew. A replacement one for one is no
/// growth.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Growth {
    changed: bool,
    /// Entries added, less those gone, since the last unchanged one.
    run: isize,
    /// Earlier runs with more entries added than gone, and by how many more.
    runs: usize,
    more: isize,
}

impl Growth {
    /// An entry is added here.
    pub(crate) fn put(&mut self) {
        self.changed = true;
        self.run += 1;
    }

    /// An entry goes here.
    pub(crate) fn gone(&mut self) {
        self.changed = true;
        self.run -= 1;
    }

    /// An entry is unchanged here.
    pub(crate) fn stands(&mut self) {
        if self.run > 0 {
            self.runs += 1;
            self.more += self.run;
        }
        self.run = 0;
    }

    /// Whether anything changed.
    pub(crate) fn any(&self) -> bool {
        self.changed
    }

    /// Where the node grew.
    pub(crate) fn grown(mut self) -> Grown {
        let at_end = self.run > 0;
        self.stands();
        match (self.runs, self.more) {
            (1, _) if at_end => Grown::AtEnd,
            (1, RUN_PUTS_MIN..) => Grown::InOnePlace,
            _ => Grown::Scattered,
        }
    }
}

/// How full to make the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Evenly.
    Even,
    /// To the brim, from the left, as far as the last node does not become light.
    Brim,
    /// To the brim, with no minimum for the last node: at the right edge of a tree.
    BrimAtEdge,
}

/// An entry, as the layout sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) bytes: usize,
    /// Stays with the entry before it.
    pub(crate) tied: bool,
}

/// Entries that stay together.
#[derive(Debug, Clone, Copy)]
struct Atom {
    start: usize,
    bytes: usize,
}

/// The position after the last entry that must stay with the one at `at` (at least `at + 1`).
pub(crate) fn tie_end<T>(entries: &[T], at: usize, tied: impl Fn(&T, &T) -> bool) -> usize {
    let ahead = entries.get(at..).unwrap_or_default();
    let Some((entry, ahead)) = ahead.split_first() else {
        return at + 1;
    };
    let last = ahead.iter().take(TIE_REACH).rposition(|other| tied(entry, other));
    last.map_or(at + 1, |last| at + last + 2)
}

/// Where each node starts: positions in `items`, the first of them 0. `items` overflow one node.
pub(crate) fn layout(items: &[Item], fill: Fill, size: NodeSize) -> Result<Vec<usize>, TreeError> {
    let atoms = atoms(items)?;
    let total: usize = atoms.iter().map(|atom| atom.bytes).sum();
    if fill == Fill::Even {
        return Ok(even(&atoms, total.div_ceil(size.even_bytes()).max(2), size.bytes()));
    }
    let mut starts = brim(&atoms, size.bytes());
    if fill == Fill::Brim {
        // A light last node takes as much as it needs from the one before, but not all of it: in
        // small nodes that may be a single entry.
        let mut used = 0;
        let enough = atoms.iter().rev().find(|atom| {
            used += atom.bytes;
            used >= size.light_bytes()
        });
        if let ([.., before, last], Some(atom)) = (starts.as_mut_slice(), enough)
            && atom.start > *before
        {
            *last = atom.start.min(*last);
        }
    }
    Ok(starts)
}

fn atoms(items: &[Item]) -> Result<Vec<Atom>, TreeError> {
    let mut atoms: Vec<Atom> = Vec::with_capacity(items.len());
    for (start, item) in items.iter().enumerate() {
        match atoms.last_mut() {
            Some(atom) if item.tied => atom.bytes += item.bytes,
            _ => atoms.push(Atom { start, bytes: item.bytes }),
        }
    }
    match atoms.iter().find(|atom| atom.bytes > NODE_CAPACITY_BYTES) {
        Some(atom) => Err(TreeError::Inseparable { bytes: atom.bytes }),
        None => Ok(atoms),
    }
}

fn brim(atoms: &[Atom], node_bytes: usize) -> Vec<usize> {
    let (mut starts, mut used) = (Vec::new(), 0);
    for atom in atoms {
        if starts.is_empty() || used + atom.bytes > node_bytes {
            starts.push(atom.start);
            used = 0;
        }
        used += atom.bytes;
    }
    starts
}

/// About `nodes` nodes of about the same bytes; more if the entries do not fit.
fn even(atoms: &[Atom], nodes: usize, node_bytes: usize) -> Vec<usize> {
    let mut rest: usize = atoms.iter().map(|atom| atom.bytes).sum();
    let (mut starts, mut used, mut share) = (Vec::new(), 0, 0);
    for atom in atoms {
        let full = used + atom.bytes > node_bytes || used + atom.bytes / 2 > share;
        if starts.is_empty() || full {
            let left = nodes.saturating_sub(starts.len());
            share = rest / left.max(rest.div_ceil(node_bytes)).max(1);
            starts.push(atom.start);
            used = 0;
        }
        used += atom.bytes;
        rest -= atom.bytes;
    }
    starts
}
