//! Reading a committed tree. A root is immutable. So no reader takes a lock, and a reader finds the
//! same whenever it looks.

use aquifer_blockio::Page;
use aquifer_ondisk::BlockPointer;

use super::forms::Packed;
use super::store::NodeStore;
use super::view::{LeafPlace, View, check_root};
use super::walk::{Span, Visit, Walk};

/// Leaves that a scan reads ahead.
const SCAN_WINDOW: usize = 8;

/// The entry of `key`; for extents, the one that shows page `key`.
pub async fn lookup<F: Packed, S: NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    key: F::Key,
) -> Result<Option<F::Entry>, S::Error> {
    let Some(mut pointer) = root else {
        return Ok(None);
    };
    check_root(&pointer)?;
    loop {
        let page = store.read(&pointer).await?;
        let view = View::<F>::open(page.as_slice(), &pointer)?;
        if view.level() == 0 {
            return Ok(view.find(key)?);
        }
        pointer = view.child_for::<S::Error>(key)?;
    }
}

/// The range of keys that shares a key's fate. See [`probe`].
#[derive(Debug)]
pub struct Reach<K, E> {
    /// The keys from the one probed up to this one (`None`: to the end) lie in the same leaf, or
    /// below the same node that cannot be read.
    pub upper: Option<K>,
    /// Why they cannot be read.
    pub error: Option<E>,
}

/// Whether the leaf of `key` can be read, and which keys share that leaf. So a caller can separate
/// changes around a damaged node from those in it.
pub async fn probe<F: Packed, S: NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    key: F::Key,
) -> Reach<F::Key, S::Error> {
    let mut upper = None;
    let error = descend_to::<F, S>(store, root, key, &mut upper).await.err();
    Reach { upper, error }
}

async fn descend_to<F: Packed, S: NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    key: F::Key,
    upper: &mut Option<F::Key>,
) -> Result<(), S::Error> {
    let Some(mut pointer) = root else {
        return Ok(());
    };
    check_root(&pointer)?;
    loop {
        let page = store.read(&pointer).await?;
        let view = View::<F>::open(page.as_slice(), &pointer)?;
        if view.level() == 0 {
            // The check that a change would make, too.
            let mut entries = view.entries();
            while entries.next()?.is_some() {}
            return Ok(());
        }
        let at = view.position(key)?;
        if at + 1 < view.count() {
            *upper = Some(view.child(at + 1)?.0);
        }
        pointer = view.child_for::<S::Error>(key)?;
    }
}

/// The last entry.
pub async fn last<F: Packed, S: NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
) -> Result<Option<F::Entry>, S::Error> {
    let Some(mut pointer) = root else {
        return Ok(None);
    };
    check_root(&pointer)?;
    loop {
        let page = store.read(&pointer).await?;
        let view = View::<F>::open(page.as_slice(), &pointer)?;
        if view.level() == 0 {
            return Ok(view.last()?);
        }
        pointer = view.last_child::<S::Error>()?;
    }
}

/// The first entry at or after `key`; for extents, the first that shows page `key` or a later one.
pub async fn first_from<F: Packed, S: NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    key: F::Key,
) -> Result<Option<F::Entry>, S::Error> {
    Scan::<F, S>::with_window(store, root, key, None, 1)?.next().await
}

/// At most `limit` entries that cover keys in `from..to` (`None`: to the end), in order.
pub async fn collect_range<F: Packed, S: NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    from: F::Key,
    to: Option<F::Key>,
    limit: usize,
) -> Result<Vec<F::Entry>, S::Error> {
    let mut found = Vec::new();
    let (Some(mut pointer), false) = (root, to.is_some_and(|to| to <= from)) else {
        return Ok(found);
    };
    check_root(&pointer)?;
    let span = Span::<F> { from, to };
    // Descends to where the range begins to reach more than one child. For a small range that is a
    // leaf: such a read makes no queue.
    loop {
        let page = store.read(&pointer).await?;
        let view = View::<F>::open(page.as_slice(), &pointer)?;
        if view.level() == 0 {
            let mut place = LeafPlace::default();
            while found.len() < limit
                && let Some((entry, next)) = view.entry_from(place, from, to)?
            {
                found.push(entry);
                place = next;
            }
            return Ok(found);
        }
        let (first, last) = span.children(&view)?;
        if first != last {
            break;
        }
        pointer = view.child_for::<S::Error>(from)?;
    }
    let mut scan = Scan::<F, S>::with_window(store, Some(pointer), from, to, SCAN_WINDOW)?;
    while found.len() < limit
        && let Some(entry) = scan.next().await?
    {
        found.push(entry);
    }
    Ok(found)
}

/// Reads a tree forward from a key, a few leaves ahead.
pub struct Scan<'a, F: Packed, S: NodeStore> {
    walk: Walk<'a, F, S, Span<F>>,
    leaf: Option<(BlockPointer, Page, LeafPlace)>,
}

impl<'a, F: Packed, S: NodeStore> Scan<'a, F, S> {
    /// A scan over the entries that cover keys in `from..to` (`None`: to the end).
    pub fn new(
        store: &'a S,
        root: Option<BlockPointer>,
        from: F::Key,
        to: Option<F::Key>,
    ) -> Result<Self, S::Error> {
        Self::with_window(store, root, from, to, SCAN_WINDOW)
    }

    fn with_window(
        store: &'a S,
        root: Option<BlockPointer>,
        from: F::Key,
        to: Option<F::Key>,
        window: usize,
    ) -> Result<Self, S::Error> {
        let start = root.map(|root| Visit::root(root, ()));
        let walk = Walk::new(store, start, window, Span { from, to })?;
        Ok(Scan { walk, leaf: None })
    }

    /// The next entry, `None` after the last.
    pub async fn next(&mut self) -> Result<Option<F::Entry>, S::Error> {
        let Span { from, to } = self.walk.route;
        loop {
            if let Some((pointer, page, place)) = &mut self.leaf {
                let view = View::<F>::open(page.as_slice(), pointer)?;
                if let Some((entry, next)) = view.entry_from(*place, from, to)? {
                    *place = next;
                    return Ok(Some(entry));
                }
                self.leaf = None;
            }
            let Some((visit, page)) = self.walk.next().await? else {
                return Ok(None);
            };
            self.leaf = Some((visit.pointer, page, LeafPlace::default()));
        }
    }
}
