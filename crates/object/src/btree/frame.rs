//! One inner node while a rewrite passes over its children.
//!
//! Children are fed in key order. The unchanged ones between them keep their pointers. The last
//! repacked node is held back until its right neighbour is known, so that a light one can be joined
//! with it. So a node is written once, whatever happens to its neighbours.
//!
//! Keys: a child's key is its first entry's, so it rises when that entry goes. The range between
//! the old and the new key falls to the left neighbour, here or in the node before, by the rule of
//! the search alone (last child whose key is not above). On the leftmost path a first child has
//! KEY_MIN, which the search never consults.

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::tree_node::{Form, LEVELS_MAX, NodeBody};

use super::body::Body;
use super::forms::Packed;
use super::journal::Journal;
use super::pack::{Fill, Grown, Growth};
use super::store::{NodeSink, TreeError};
use super::view::check_child;

/// A node's entries after a change.
pub(crate) struct Change<F: Form> {
    /// All its entries, for any number of nodes.
    pub(crate) body: Body<F>,
    /// Where entries were added.
    pub(crate) grown: Grown,
    /// The entries take fewer bytes than before.
    pub(crate) shrunk: bool,
}

/// A repacked node that is not written yet.
struct Held<F: Form> {
    body: Body<F>,
    /// It shrank so far that it should be joined with a neighbour.
    light: bool,
}

/// See the module's head.
pub(crate) struct Frame<F: Form> {
    /// Its level: that of its children plus 1.
    level: u8,
    /// Its position in its own parent.
    pub(crate) index: usize,
    /// The old node, `None` above the root.
    pointer: Option<BlockPointer>,
    leftmost: bool,
    rightmost: bool,
    children: Vec<(F::Key, BlockPointer)>,
    /// The last child that will be fed.
    last_fed: usize,
    /// Old children passed so far.
    passed: usize,
    /// The new children so far, without the held one.
    out: Vec<(F::Key, BlockPointer)>,
    held: Option<Held<F>>,
    /// The layout of the last fed node.
    fill: Fill,
    growth: Growth,
}

impl<F: Packed> Frame<F> {
    /// An inner node at `index` of its parent. `last_fed` is the last of its children to be fed.
    pub(crate) fn new(
        pointer: BlockPointer,
        index: usize,
        (leftmost, rightmost): (bool, bool),
        children: Vec<(F::Key, BlockPointer)>,
        last_fed: usize,
    ) -> Self {
        Frame {
            level: pointer.level,
            index,
            pointer: Some(pointer),
            leftmost,
            rightmost,
            out: Vec::with_capacity(children.len() + 1),
            children,
            last_fed,
            passed: 0,
            held: None,
            fill: Fill::Even,
            growth: Growth::default(),
        }
    }

    /// The frame above the root: its one child is the root, if there is one.
    pub(crate) fn above(root: Option<BlockPointer>) -> Self {
        Frame {
            level: root.map_or(1, |root| root.level.saturating_add(1)),
            index: 0,
            pointer: None,
            leftmost: true,
            rightmost: true,
            children: root.into_iter().map(|root| (F::KEY_MIN, root)).collect(),
            last_fed: 0,
            passed: 0,
            out: Vec::new(),
            held: None,
            fill: Fill::Even,
            growth: Growth::default(),
        }
    }

    /// Whether child `index` is the last one to be fed.
    pub(crate) fn ends_with(&self, index: usize) -> bool {
        index == self.last_fed
    }

    /// Takes the change of child `index`, `None` if it is unchanged.
    pub(crate) async fn feed<S: NodeSink>(
        &mut self,
        journal: &mut Journal<'_, S>,
        index: usize,
        change: Option<Change<F>>,
    ) -> Result<(), S::Error> {
        let Some(Change { mut body, grown, mut shrunk }) = change else {
            return Ok(());
        };
        self.pass(journal, index).await?;
        self.growth.gone();
        if let Some((_, old)) = self.take_child() {
            journal.free(old);
        }
        if body.is_empty() {
            return Ok(());
        }
        let at_edge = self.rightmost && self.passed >= self.children.len();
        let mut fill = match grown {
            Grown::AtEnd if at_edge => Fill::BrimAtEdge,
            Grown::AtEnd | Grown::InOnePlace => Fill::Brim,
            Grown::Scattered => Fill::Even,
        };
        if let Some(held) = self.held.take() {
            if held.light || (shrunk && body.bytes() < journal.size().light_bytes()) {
                body = held.body.join(body);
                (fill, shrunk) = (Fill::Even, true);
            } else {
                self.write(journal, held.body)?;
            }
        }
        self.fill = fill;
        self.lay(journal, body, fill, shrunk)
    }

    /// The node's own change, after the last child was fed.
    pub(crate) async fn close<S: NodeSink>(
        mut self,
        journal: &mut Journal<'_, S>,
    ) -> Result<Option<Change<F>>, S::Error> {
        if !self.growth.any() {
            return Ok(None);
        }
        self.pass(journal, self.children.len()).await?;
        let mut grown = self.growth.grown();
        if let Some(held) = self.held.take() {
            match self.out.pop() {
                // There is nothing to its right here: join it with its left neighbour.
                Some((key, left)) if held.light => match journal.read::<F>(&left).await {
                    Ok(body) => {
                        grown = Grown::Scattered;
                        let body = Body::from(body).join(held.body);
                        journal.free(left);
                        self.lay(journal, body, Fill::Even, true)?;
                    }
                    Err(_) => {
                        self.out.push((key, left));
                        self.held = Some(held);
                    }
                },
                left => {
                    self.out.extend(left);
                    self.held = Some(held);
                }
            }
        }
        if let Some(held) = self.held.take() {
            self.write(journal, held.body)?;
        }
        Ok(Some(Change {
            shrunk: self.out.len() < self.children.len(),
            body: Body::Inner(self.out),
            grown,
        }))
    }

    /// The new root, after the old one was fed to a frame made by [`Frame::above`].
    pub(crate) async fn finish<S: NodeSink>(
        mut self,
        journal: &mut Journal<'_, S>,
    ) -> Result<Option<BlockPointer>, S::Error> {
        assert!(self.pointer.is_none(), "only what stands above the root");
        if !self.growth.any() {
            return Ok(self.children.first().map(|(_, root)| *root));
        }
        if let Some(held) = self.held.take() {
            if self.out.is_empty()
                && let Body::Inner(children) = &held.body
                && let [(_, only)] = children.as_slice()
            {
                return collapse::<F, S>(journal, *only).await.map(Some);
            }
            self.write_as(journal, held.body, self.out.is_empty())?;
        }
        while self.out.len() > 1 {
            if self.level >= LEVELS_MAX {
                return Err(TreeError::TooDeep { level: self.level }.into());
            }
            self.level += 1;
            let body = Body::Inner(std::mem::take(&mut self.out));
            self.lay(journal, body, self.fill, false)?;
            if let Some(held) = self.held.take() {
                self.write(journal, held.body)?;
            }
        }
        Ok(self.out.pop().map(|(_, root)| root))
    }

    /// Passes the children before `index` unchanged, except for those that join a light node on
    /// their left.
    async fn pass<S: NodeSink>(
        &mut self,
        journal: &mut Journal<'_, S>,
        index: usize,
    ) -> Result<(), S::Error> {
        while self.passed < index {
            let Some((key, pointer)) = self.take_child() else {
                return Ok(());
            };
            match self.held.take() {
                Some(held) if held.light => match journal.read::<F>(&pointer).await {
                    Ok(right) => {
                        let body = held.body.join(Body::from(right));
                        journal.free(pointer);
                        self.growth.gone();
                        self.lay(journal, body, Fill::Even, true)?;
                    }
                    // An unreadable neighbour cannot be joined: the light node stays light.
                    Err(_) => {
                        self.growth.stands();
                        self.write(journal, held.body)?;
                        self.push(key, pointer);
                    }
                },
                held => {
                    self.growth.stands();
                    if let Some(held) = held {
                        self.write(journal, held.body)?;
                    }
                    self.push(key, pointer);
                }
            }
        }
        Ok(())
    }

    fn take_child(&mut self) -> Option<(F::Key, BlockPointer)> {
        let child = self.children.get(self.passed).copied();
        self.passed += 1;
        child
    }

    /// Cuts entries into nodes, writes all but the last, and holds that one back.
    fn lay<S: NodeSink>(
        &mut self,
        journal: &mut Journal<'_, S>,
        body: Body<F>,
        fill: Fill,
        shrunk: bool,
    ) -> Result<(), S::Error> {
        assert!(self.held.is_none(), "what was held is written or joined first");
        let mut nodes = body.repack::<S::Error>(fill, journal.size())?;
        nodes.iter().for_each(|_| self.growth.put());
        self.held = nodes.pop().map(|body| Held {
            light: shrunk && body.bytes() < journal.size().light_bytes(),
            body,
        });
        nodes.into_iter().try_for_each(|node| self.write(journal, node))
    }

    fn write<S: NodeSink>(
        &mut self,
        journal: &mut Journal<'_, S>,
        body: Body<F>,
    ) -> Result<(), S::Error> {
        self.write_as(journal, body, false)
    }

    fn write_as<S: NodeSink>(
        &mut self,
        journal: &mut Journal<'_, S>,
        body: Body<F>,
        is_root: bool,
    ) -> Result<(), S::Error> {
        let key = body.first_key()?;
        let pointer = journal.write_as((self.level - 1, is_root), body)?;
        self.push(key, pointer);
        Ok(())
    }

    fn push(&mut self, key: F::Key, pointer: BlockPointer) {
        let first = self.leftmost && self.out.is_empty();
        self.out.push((if first { F::KEY_MIN } else { key }, pointer));
    }
}

/// Goes down from a root as long as it has one child, and as long as it can be read.
pub(crate) async fn collapse<F: Form, S: NodeSink>(
    journal: &mut Journal<'_, S>,
    mut root: BlockPointer,
) -> Result<BlockPointer, S::Error> {
    while root.level > 0 {
        let Ok(body) = journal.read::<F>(&root).await else {
            break;
        };
        match &body {
            NodeBody::Inner(children) if children.len() == 1 => {
                let parent = root;
                root = children.first().map_or(root, |(_, child)| *child);
                check_child(parent.level, &root)?;
                journal.free(parent);
            }
            _ => break,
        }
    }
    Ok(root)
}
