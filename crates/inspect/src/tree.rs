//! Walking a tree of any form, leaf by leaf in key order.
//!
//! Invariants:
//! - A node is verified by its pointer, then decoded, then compared with its parent: kind, level,
//!   range of keys, birth, owner.
//! - No node is visited twice (see [`Scan::mark`]), and levels fall, so every walk ends.
//! - Memory holds at most the children of one node for each level.

use std::vec::IntoIter;

use aquifer_blockio::Page;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::dead::DeadKind;
use aquifer_ondisk::tree_node::{Form, LEVELS_MAX, Node, NodeBody, NodeOwner};
use aquifer_ondisk::types::{Run, Txg};
use aquifer_ondisk::{BlockPointer, ObjectId, Place};

use crate::finding::{At, Kind};
use crate::scan::{Scan, Use};
use crate::snapshots::OfLine;

/// Bytes of a node.
const NODE_BYTES: u32 = 4096;

/// A leaf, with the range of keys that its parents give it.
#[derive(Debug)]
pub(crate) struct Leaf<F: Form> {
    pub pointer: BlockPointer,
    pub entries: Vec<F::Entry>,
    /// The key that the next leaf begins with.
    pub upper: Option<F::Key>,
}

struct Child<F: Form> {
    pointer: BlockPointer,
    level: u8,
    lower: F::Key,
    upper: Option<F::Key>,
    /// Birth of the node that holds the pointer.
    parent_birth: Txg,
    page: Option<Page>,
}

/// A walk through one tree.
pub(crate) struct Walk<F: Form> {
    owner: NodeOwner,
    /// Another object whose nodes may stand in this tree: the file that a tail was cut from.
    origin: ObjectId,
    path: Vec<IntoIter<Child<F>>>,
    /// The tree has been read to its end so far.
    pub whole: bool,
    pub nodes: u64,
}

impl<F: Form> Walk<F> {
    /// A walk from `root`, whose page may have been read ahead. `birth` is that of the structure
    /// that holds the root pointer.
    pub fn new(
        owner: NodeOwner,
        origin: ObjectId,
        root: Option<BlockPointer>,
        birth: Txg,
        page: Option<Page>,
    ) -> Self {
        let children: Vec<Child<F>> = root
            .into_iter()
            .map(|pointer| Child {
                level: pointer.level,
                pointer,
                lower: F::KEY_MIN,
                upper: None,
                parent_birth: birth,
                page: page.clone(),
            })
            .collect();
        Walk { owner, origin, path: vec![children.into_iter()], whole: true, nodes: 0 }
    }

    /// The next leaf. Unreadable leaves are reported and left out.
    pub async fn next(&mut self, scan: &mut Scan<'_>) -> Option<Leaf<F>> {
        loop {
            let Some(child) = self.path.last_mut()?.next() else {
                self.path.pop();
                continue;
            };
            if scan.is_of_another(child.pointer.birth) {
                continue;
            }
            let Some(node) = self.visit(scan, &child).await else {
                self.whole = false;
                scan.whole = false;
                continue;
            };
            self.nodes += 1;
            match node.body {
                NodeBody::Leaf(entries) => {
                    return Some(Leaf { pointer: child.pointer, entries, upper: child.upper });
                }
                NodeBody::Inner(children) => {
                    let children = self.descend(scan, &child, children).await;
                    self.path.push(children.into_iter());
                }
            }
        }
    }

    async fn visit(&self, scan: &mut Scan<'_>, child: &Child<F>) -> Option<Node<F>> {
        let pointer = &child.pointer;
        let at = || self.at(pointer.places[0]);
        if let Some(why) = misfit::<F>(pointer, child.level) {
            scan.findings
                .add(Kind::PointerInvalid, at(), || format!("{}: {why}", self.who(pointer)));
            return None;
        }
        self.check_birth(scan, child);
        if !self.mark(scan, child) {
            return None;
        }
        let page = self.read(scan, child).await?;
        let node = match Node::<F>::decode(page.as_slice(), pointer) {
            Ok(node) => node,
            Err(error) => {
                let who = || self.who(pointer);
                scan.findings.add(Kind::NodeInvalid, at(), || format!("{}: {error}", who()));
                return None;
            }
        };
        self.check_node(scan, child, &node);
        Some(node)
    }

    /// Enters the copies as used. Returns whether the node may be read: the first copy on a vdev
    /// that is there lies in the pool and was not seen before.
    fn mark(&self, scan: &mut Scan<'_>, child: &Child<F>) -> bool {
        let pointer = &child.pointer;
        let what = use_of(F::KIND);
        if scan.is_cloned(pointer.birth) && scan.is_begun_here() {
            return true;
        }
        if scan.is_of_line(pointer.birth) {
            // That is kept by the snapshot as which the head began again.
            if !scan.is_of_line(child.parent_birth) {
                let (object, above) = (self.owner.object, child.parent_birth);
                let (pointer, floor, of) = (*pointer, scan.floor, scan.of);
                scan.of_line.push(OfLine::Node { object, pointer, above, floor, of });
            }
            return true;
        }
        let is_inherited = scan.is_inherited(pointer.birth);
        if let Some(head) = &mut scan.head {
            head.enter_node(pointer);
        }
        if is_inherited {
            for place in pointer.copies() {
                let run = Run::new(place, pointer.sectors());
                scan.inherit(run, (DeadKind::Node, pointer.birth));
            }
            return true;
        }
        let mut first = None;
        for place in pointer.copies() {
            let is_fresh = scan.mark(place, 1, what, || self.who(pointer));
            if scan.media.is_there(place) {
                first.get_or_insert(is_fresh);
            }
        }
        let pool_wide = what == Use::PoolNode || what == Use::Dead;
        let twice = scan.media.copies(pointer.written) == 2 && (pointer.level > 0 || pool_wide);
        if twice && pointer.places[1].is_null() {
            let at = self.at(pointer.places[0]);
            scan.findings.add(Kind::CopyMissing, at, || {
                format!("{} has one copy, in a pool without redundancy", self.who(pointer))
            });
        }
        first.unwrap_or(false)
    }

    async fn read(&self, scan: &mut Scan<'_>, child: &Child<F>) -> Option<Page> {
        let pointer = &child.pointer;
        if !scan.options.deep
            && let Some(page) = &child.page
            && pointer.verify(page.as_slice())
        {
            return Some(page.clone());
        }
        let verify =
            |pages: &[Page]| pages.first().is_some_and(|page| pointer.verify(page.as_slice()));
        let fetched = scan.media.fetch(pointer.copies(), 1, &verify, scan.breadth()).await;
        let at = self.at(pointer.places[0]);
        scan.judge(&fetched, Kind::NodeUnreadable, at, 1, || self.who(pointer));
        fetched.good?.into_iter().next()
    }

    fn check_birth(&self, scan: &mut Scan<'_>, child: &Child<F>) {
        let BlockPointer { birth, written, .. } = child.pointer;
        let above = child.parent_birth;
        if birth > above || written > birth {
            scan.findings.add(Kind::BirthOrder, self.at(child.pointer.places[0]), || {
                format!(
                    "{}: written in txg {written}, born in {birth}, under a parent of {above}",
                    self.who(&child.pointer)
                )
            });
        }
    }

    fn check_node(&self, scan: &mut Scan<'_>, child: &Child<F>, node: &Node<F>) {
        let pointer = &child.pointer;
        let at = || self.at(pointer.places[0]);
        let owner = node.owner;
        let own = owner.object == self.owner.object
            || owner.object == self.origin
            || scan.is_cloned(pointer.birth);
        // Nodes of an old head name the dataset whose head it was, inherited ones the origin, those
        // that a clone of a file began with that file.
        let is_of_dataset = owner.dataset == self.owner.dataset
            || scan.floor > Txg(0)
            || scan.left == Some(owner.dataset)
            || scan.is_cloned(pointer.birth)
            || scan.is_inherited(pointer.birth);
        if !is_of_dataset || !own || node.written != pointer.written {
            scan.findings.add(Kind::NodeOwner, at(), || {
                let (dataset, object, written) = (owner.dataset, owner.object, node.written);
                format!(
                    "{}: says that it is of dataset {dataset}, object {object}, written in txg \
                     {written}; its pointer says txg {}",
                    self.who(pointer),
                    pointer.written
                )
            });
        }
        let ends = match &node.body {
            NodeBody::Leaf(entries) => entries
                .first()
                .zip(entries.last())
                .map(|(first, last)| (F::key(first), F::key(last))),
            NodeBody::Inner(children) => {
                children.first().zip(children.last()).map(|(first, last)| (first.0, last.0))
            }
        };
        let Some((first, last)) = ends else {
            return scan
                .findings
                .add(Kind::NodeInvalid, at(), || format!("{} holds nothing", self.who(pointer)));
        };
        if first < child.lower || child.upper.is_some_and(|upper| last >= upper) {
            scan.findings.add(Kind::NodeBounds, at(), || {
                let (lower, upper) = (child.lower, child.upper);
                format!(
                    "{}: holds keys {first:?} to {last:?}, its parent gives it {lower:?} to \
                     {upper:?}",
                    self.who(pointer)
                )
            });
        }
    }

    async fn descend(
        &self,
        scan: &Scan<'_>,
        parent: &Child<F>,
        children: Vec<(F::Key, BlockPointer)>,
    ) -> Vec<Child<F>> {
        let pointers: Vec<&BlockPointer> = children.iter().map(|(_, pointer)| pointer).collect();
        let pages =
            if scan.options.deep { Vec::new() } else { scan.media.read_ahead(&pointers).await };
        let pages = pages.into_iter().chain(std::iter::repeat(None));
        let uppers = children.iter().skip(1).map(|(key, _)| Some(*key));
        let uppers: Vec<Option<F::Key>> = uppers.chain([parent.upper]).collect();
        let children = children.into_iter().zip(uppers).zip(pages);
        children
            .map(|(((lower, pointer), upper), page)| Child {
                pointer,
                level: parent.level.saturating_sub(1),
                lower,
                upper,
                parent_birth: parent.pointer.birth,
                page,
            })
            .collect()
    }

    fn at(&self, place: Place) -> At {
        At { run: At::place(place, 1).run, ..At::object(self.owner.dataset, self.owner.object) }
    }

    fn who(&self, pointer: &BlockPointer) -> String {
        let (kind, level, place) = (pointer.kind, pointer.level, pointer.places[0]);
        format!("{} node of level {level} of {} at {place:?}", tree_name(kind), name(self.owner))
    }
}

/// The tree's owner, for people.
pub(crate) fn name(owner: NodeOwner) -> String {
    match (owner.dataset.0, owner.object.0) {
        (0, _) => "the pool".to_string(),
        (dataset, 0) => format!("dataset {dataset}"),
        (dataset, object) => format!("object {dataset}:{object}"),
    }
}

fn tree_name(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Extents => "extent",
        BlockKind::Objects => "object table",
        BlockKind::Directory => "directory",
        BlockKind::Namespace => "namespace",
        BlockKind::Dead => "dead tree",
        BlockKind::Refcounts => "refcount",
        BlockKind::Replies => "reply table",
        BlockKind::Segments => "segment table",
    }
}

fn use_of(kind: BlockKind) -> Use {
    match kind {
        BlockKind::Extents => Use::ExtentNode,
        BlockKind::Objects => Use::ObjectNode,
        BlockKind::Directory => Use::DirectoryNode,
        BlockKind::Namespace
        | BlockKind::Dead
        | BlockKind::Refcounts
        | BlockKind::Replies
        | BlockKind::Segments => Use::PoolNode,
    }
}

fn misfit<F: Form>(pointer: &BlockPointer, level: u8) -> Option<String> {
    if pointer.kind != F::KIND {
        return Some(format!("stands in a tree of {}", tree_name(F::KIND)));
    }
    if pointer.level != level || level >= LEVELS_MAX {
        return Some(format!("stands where level {level} belongs"));
    }
    let (stored, logical) = (pointer.stored_bytes, pointer.logical_bytes);
    (stored != NODE_BYTES || logical != NODE_BYTES)
        .then(|| format!("a node of {stored} bytes stored, {logical} bytes long"))
}
