//! A walk over the leaves that a caller wants, in key order, reading ahead.
//!
//! ```text
//!  level 2   to read -> in flight (<= window) -> opened: its children of interest
//!  level 1   to read -> in flight (<= window) -> opened: its children of interest
//!  level 0   to read -> in flight (<= window) -> handed to the caller, in order
//! ```
//! Each level is a queue that keeps up to `window` reads in flight. A node leaves its queue only
//! when the level below has room. So memory stays within `window` nodes for each level plus the
//! children of one node, however large the tree.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aquifer_blockio::Page;
use aquifer_ondisk::tree_node::Form;
use aquifer_ondisk::{BlockPointer, FormatError};
use futures_util::stream::{FuturesOrdered, StreamExt};

use super::forms::Packed;
use super::store::{NodeError, NodeStore, TreeError};
use super::view::{View, check_child, check_root};

/// A node on the way of a walk.
#[derive(Debug, Clone)]
pub(crate) struct Visit<F: Form, T> {
    /// The node.
    pub(crate) pointer: BlockPointer,
    /// Its keys are at or above this; `None` on the leftmost path.
    pub(crate) lower: Option<F::Key>,
    /// Its keys are below this; `None` on the rightmost path.
    pub(crate) upper: Option<F::Key>,
    /// Its position in its parent.
    pub(crate) index: usize,
    /// The walk's interest there.
    pub(crate) want: T,
}

impl<F: Form, T> Visit<F, T> {
    /// A visit to the root of a tree.
    pub(crate) fn root(pointer: BlockPointer, want: T) -> Self {
        Visit { pointer, lower: None, upper: None, index: 0, want }
    }

    /// Fails unless `first..=last`, the keys found in the node, lie in its range.
    pub(crate) fn check_range(&self, first: F::Key, last: F::Key) -> Result<(), TreeError> {
        if self.lower.is_some_and(|lower| first < lower)
            || self.upper.is_some_and(|upper| last >= upper)
        {
            return Err(TreeError::KeyRange { level: self.pointer.level });
        }
        Ok(())
    }
}

/// Chooses the children of an inner node that a walk visits.
pub(crate) trait Route<F: Form, E>: Send {
    /// Its interest in a node.
    type Want: Send;

    /// Appends visits to the relevant children of `visit`'s node, in order.
    fn open(
        &mut self,
        visit: Visit<F, Self::Want>,
        page: &Page,
        below: &mut VecDeque<Visit<F, Self::Want>>,
    ) -> Result<(), E>;
}

type Reading<'a, F, T, E> =
    Pin<Box<dyn Future<Output = Result<(Visit<F, T>, Page), E>> + Send + 'a>>;

/// One level's queue.
struct Stage<'a, F: Form, T, E> {
    waiting: VecDeque<Visit<F, T>>,
    reads: FuturesOrdered<Reading<'a, F, T, E>>,
}

/// See the module's head.
pub(crate) struct Walk<'a, F: Form, S: NodeStore, R: Route<F, S::Error>> {
    store: &'a S,
    window: usize,
    /// By level, leaves first.
    stages: Vec<Stage<'a, F, R::Want, S::Error>>,
    /// The caller's.
    pub(crate) route: R,
}

impl<'a, F, S, R> Walk<'a, F, S, R>
where
    F: Form,
    S: NodeStore,
    R: Route<F, S::Error>,
    R::Want: 'a,
{
    /// A walk from `start` down, with at most `window` reads in flight for each level.
    pub(crate) fn new(
        store: &'a S,
        start: Option<Visit<F, R::Want>>,
        window: usize,
        route: R,
    ) -> Result<Self, TreeError> {
        let mut stages = Vec::new();
        if let Some(start) = start {
            check_root(&start.pointer)?;
            stages.resize_with(usize::from(start.pointer.level) + 1, || Stage {
                waiting: VecDeque::new(),
                reads: FuturesOrdered::new(),
            });
            if let Some(top) = stages.last_mut() {
                top.waiting.push_back(start);
            }
        }
        Ok(Walk { store, window, stages, route })
    }

    /// The next leaf, `None` after the last. Dropping this future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<(Visit<F, R::Want>, Page)>, S::Error> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    #[expect(clippy::type_complexity, reason = "the output of `next`, polled")]
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<(Visit<F, R::Want>, Page)>, S::Error>> {
        for level in (1..self.stages.len()).rev() {
            if let Err(error) = self.refill(level, cx) {
                return Poll::Ready(Err(error));
            }
        }
        let Some(leaves) = self.stages.first_mut() else {
            return Poll::Ready(Ok(None));
        };
        leaves.start(self.store, self.window);
        if let Some(leaf) = ready!(leaves.reads.poll_next_unpin(cx)) {
            return Poll::Ready(leaf.map(Some));
        }
        // The levels above wake `cx` when there is more to do, unless they are done.
        if self.stages.iter().all(Stage::is_empty) { Poll::Ready(Ok(None)) } else { Poll::Pending }
    }

    /// Opens nodes of `level` while the level below has room.
    fn refill(&mut self, level: usize, cx: &mut Context<'_>) -> Result<(), S::Error> {
        let (below, here) = self.stages.split_at_mut(level);
        let (Some(below), Some(here)) = (below.last_mut(), here.first_mut()) else {
            return Ok(());
        };
        here.start(self.store, self.window);
        while below.waiting.len() < self.window {
            let Poll::Ready(Some(read)) = here.reads.poll_next_unpin(cx) else {
                break;
            };
            let (visit, page) = read?;
            self.route.open(visit, &page, &mut below.waiting)?;
            here.start(self.store, self.window);
        }
        Ok(())
    }
}

impl<'a, F: Form, T: Send + 'a, E: 'a> Stage<'a, F, T, E> {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.reads.is_empty()
    }

    fn start<S: NodeStore<Error = E>>(&mut self, store: &'a S, window: usize) {
        while self.reads.len() < window
            && let Some(visit) = self.waiting.pop_front()
        {
            self.reads.push_back(Box::pin(async move {
                let page = store.read(&visit.pointer).await?;
                Ok((visit, page))
            }));
        }
    }
}

/// A route to all entries that cover keys in `from..to`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<F: Form> {
    /// First key.
    pub(crate) from: F::Key,
    /// Key after the last, `None`: to the end.
    pub(crate) to: Option<F::Key>,
}

impl<F: Packed> Span<F> {
    /// The children of an inner node that the range reaches: first and last.
    pub(crate) fn children(&self, view: &View<'_, F>) -> Result<(usize, usize), FormatError> {
        let first = view.position(self.from)?;
        let Some(to) = self.to else {
            return Ok((first, view.count().saturating_sub(1).max(first)));
        };
        let last = view.position(to)?;
        if last > first && view.child(last)?.0 == to {
            return Ok((first, last - 1));
        }
        Ok((first, last.max(first)))
    }
}

impl<F, E> Route<F, E> for Span<F>
where
    F: Packed,
    E: NodeError,
{
    type Want = ();

    fn open(
        &mut self,
        visit: Visit<F, ()>,
        page: &Page,
        below: &mut VecDeque<Visit<F, ()>>,
    ) -> Result<(), E> {
        let view = View::<F>::open(page.as_slice(), &visit.pointer)?;
        let level = view.level();
        if view.count() == 0 {
            return Err(TreeError::MissingChild { level }.into());
        }
        let (first, last) = self.children(&view)?;
        for index in first..=last {
            let (_, pointer) = view.child(index)?;
            check_child(level, &pointer)?;
            below.push_back(Visit::root(pointer, ()));
        }
        Ok(())
    }
}
