//! The nodes that a change to a tree has written and freed so far: all of it holds, or nothing.
//!
//! Old nodes are freed only when the change is whole. If it fails (a leaf that no copy verifies) or
//! is dropped halfway, every node it wrote is freed and the old root stays. So one damaged tree
//! need not stop the sync of the others.

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::tree_node::{Form, Node, NodeBody, NodeOwner};

use super::body::Body;
use super::forms::Packed;
use super::pack::NodeSize;
use super::store::NodeSink;
use super::view::seal;

/// See the module's head.
pub(crate) struct Journal<'a, S: NodeSink> {
    sink: &'a S,
    owner: NodeOwner,
    written: Vec<BlockPointer>,
    freed: Vec<BlockPointer>,
}

impl<'a, S: NodeSink> Journal<'a, S> {
    /// A change to a tree of `owner`.
    pub(crate) fn new(sink: &'a S, owner: NodeOwner) -> Self {
        Journal { sink, owner, written: Vec::new(), freed: Vec::new() }
    }

    /// How large nodes become.
    pub(crate) fn size(&self) -> NodeSize {
        self.sink.node_size()
    }

    /// Where the nodes are.
    pub(crate) fn store(&self) -> &'a S {
        self.sink
    }

    /// Reads and decodes a node.
    pub(crate) async fn read<F: Form>(
        &self,
        pointer: &BlockPointer,
    ) -> Result<NodeBody<F>, S::Error> {
        let page = self.sink.read(pointer).await?;
        Ok(Node::<F>::decode(page.as_slice(), pointer)?.body)
    }

    /// Writes a node.
    pub(crate) fn write<F: Packed>(
        &mut self,
        level: u8,
        body: Body<F>,
    ) -> Result<BlockPointer, S::Error> {
        self.write_as((level, false), body)
    }

    /// Writes a node; with its level comes whether it is a whole tree.
    pub(crate) fn write_as<F: Packed>(
        &mut self,
        (level, is_root): (u8, bool),
        body: Body<F>,
    ) -> Result<BlockPointer, S::Error> {
        let (count, txg) = (body.count(), self.sink.txg());
        assert!(count > 0, "a node holds something");
        let page = seal::<F>(level, self.owner, txg, count, body.encode().as_bytes())?;
        let pointer = self.sink.write_node(F::KIND, (level, is_root), self.owner, page)?;
        assert_eq!(
            (pointer.kind, pointer.level, pointer.birth),
            (F::KIND, level, txg),
            "a sink returns the pointer of what it was given"
        );
        self.written.push(pointer);
        Ok(pointer)
    }

    /// A node that the new tree does not refer to.
    pub(crate) fn free(&mut self, pointer: BlockPointer) {
        self.freed.push(pointer);
    }

    /// The change is whole.
    pub(crate) fn commit(mut self) {
        self.written.clear();
        for pointer in self.freed.drain(..) {
            self.sink.free_node(self.owner, &pointer);
        }
    }
}

impl<S: NodeSink> Drop for Journal<'_, S> {
    fn drop(&mut self) {
        for pointer in self.written.drain(..) {
            self.sink.free_node(self.owner, &pointer);
        }
    }
}
