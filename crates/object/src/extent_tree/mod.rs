//! A file's extents: which disk sectors show which pages.
//!
//! # Theory
//! An extent covers up to 16 pages but is filed under its first. Three rules keep that sound:
//!
//! 1. **Extents of a tree do not overlap.** A [`Replace`] cuts existing extents in its range before
//!    the new ones take their places.
//! 2. **No extent reaches beyond the key range of its leaf.** A leaf's range ends where its right
//!    neighbour's begins, and that neighbour's bound is the first page of an existing extent. (A
//!    child's key is exactly its first entry's, except on the leftmost path, which nothing
//!    precedes.) So an extent that reached beyond would overlap that one, against rule 1. A new
//!    extent may begin in one leaf and cover the first page of the next. It cuts the extent there:
//!    the same merge touches the next leaf, whose bound rises to the rest of that extent. Hence a
//!    search for page `p` goes to the one leaf whose range holds `p`, and to no other.
//! 3. **A leaf never splits a tenancy.** A tenancy is the entries that show parts of one compressed
//!    extent (same place, birth and `written`, and same place in the file), from the first to the
//!    last, together with entries between them that overwrote its middle. They lie within 8 pages,
//!    so within 8 entries, at most 336 bytes. Repacking keeps them together. New entries of one
//!    tenancy go to the leaf of the first. By rule 2 an existing tenancy lies in one leaf's range,
//!    and can only lose entries to extents filed elsewhere. Hence the neighbours in the leaf answer
//!    "is this compressed extent still used?".
//!
//! A plain page is freed when no entry shows it; a compressed extent when its tenancy is gone.

mod compare;
mod merge;
#[cfg(test)]
mod tests;

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::tree_node::{Extents, NodeOwner};
use aquifer_ondisk::types::{Run, Txg};

use crate::btree::{self, Halves, NodeSink, NodeStore, TIE_REACH};

pub use compare::{ChangedPages, CompareExtents, compare_extents};
pub use merge::{Merged, Replace, Replaced, merge_extents};

/// Sectors that a tree no longer refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreedExtent {
    /// Where they are.
    pub run: Run,
    /// When the entry entered the tree.
    pub birth: Txg,
    /// When they were written.
    pub written: Txg,
    /// They must pass the refcount tree.
    pub counted: bool,
    /// Sectors that compression saved of them: one extent then.
    pub saved_sectors: u8,
}

/// Whether two entries show parts of one compressed extent at one place in the file. (Clones of
/// ranges will put one extent into a file several times in one txg: several tenancies.)
pub(crate) fn one_tenancy(left: &Extent, right: &Extent) -> bool {
    left.same_tenancy(right) && origin(left) == origin(right)
}

/// The page at which the whole of a compressed extent would begin.
fn origin(extent: &Extent) -> u64 {
    match &extent.stored {
        Stored::Plain(_) => extent.page,
        Stored::Compressed { offset_pages, .. } => {
            extent.page.wrapping_sub(u64::from(*offset_pages))
        }
    }
}

/// The sectors freed with an extent whose tenancy, if it has one, is gone.
fn freed(extent: &Extent) -> FreedExtent {
    FreedExtent {
        run: Run::new(extent.place, extent.stored_sectors()),
        birth: extent.birth,
        written: extent.written,
        counted: extent.counted,
        saved_sectors: extent.saved_sectors(),
    }
}

/// The extents that show pages `from_page..to_page`, cut to that range, in order. Other pages are
/// holes.
///
/// To find the next data from a page on, however far: [`btree::first_from`].
///
/// # Errors
/// Errors of the store, and nodes that make no tree.
pub async fn lookup_range<S: NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    from_page: u64,
    to_page: u64,
) -> Result<Vec<Extent>, S::Error> {
    let to = Some(to_page);
    let mut found =
        btree::collect_range::<Extents, S>(store, root, from_page, to, usize::MAX).await?;
    // Only the outermost extents can reach beyond.
    if let Some(first) = found.first_mut()
        && let Some(part) = first.slice(from_page, to_page)
    {
        *first = part;
    }
    if let Some(last) = found.last_mut()
        && let Some(part) = last.slice(from_page, to_page)
    {
        *last = part;
    }
    Ok(found)
}

/// Cuts a file's tree before `page`, in the time of one path, whatever its size. The part cut off
/// can be [drained](drain) later.
///
/// A plain extent across the cut is cut itself. Both trees may not use parts of one compressed
/// extent. If the left tree uses it, neither shows its parts from `page` on (and it is freed when
/// the left tree gives it up). So right of the cut those pages, at most 7 after it, become holes;
/// the file is being truncated there.
///
/// # Errors
/// Errors of the sink, and nodes that make no tree; then nothing has changed.
pub async fn split_off<S: NodeSink>(
    sink: &S,
    root: Option<BlockPointer>,
    owner: NodeOwner,
    page: u64,
) -> Result<Halves, S::Error> {
    let cut = |entries: Vec<Extent>| cut(&entries, page);
    btree::split_with::<Extents, S>(sink, root, owner, page, cut).await
}

fn cut(entries: &[Extent], page: u64) -> (Vec<Extent>, Vec<Extent>) {
    let left: Vec<Extent> = entries.iter().filter_map(|entry| entry.slice(0, page)).collect();
    let used_left = |entry: &Extent| {
        left.iter().rev().take(TIE_REACH + 1).any(|other| one_tenancy(other, entry))
    };
    let right = entries.iter().filter_map(|entry| entry.slice(page, u64::MAX));
    let right = right.filter(|entry| !used_left(entry)).collect();
    (left, right)
}

/// The result of one call of [`drain`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainedExtents {
    /// The remaining tree, `None` when all is gone.
    pub root: Option<BlockPointer>,
    /// Extents that it no longer uses.
    pub freed: Vec<FreedExtent>,
    /// The number of sectors that the tree no longer refers to.
    pub refer_sectors: u64,
    /// The number of sectors that compression saved of them.
    pub saved_sectors: u64,
}

/// Takes a file's tree down from its right end, at least one leaf and up to about `budget_entries`
/// entries at a time. See [`btree::drain`].
///
/// # Errors
/// Errors of the sink, and nodes that make no tree; then nothing has changed.
pub async fn drain<S: NodeSink>(
    sink: &S,
    root: Option<BlockPointer>,
    owner: NodeOwner,
    budget_entries: usize,
) -> Result<DrainedExtents, S::Error> {
    let taken = btree::drain::<Extents, S>(sink, root, owner, budget_entries).await?;
    let freed: Vec<FreedExtent> = first_of_tenancies(&taken.entries).map(freed).collect();
    Ok(DrainedExtents {
        root: taken.root,
        refer_sectors: freed.iter().map(|freed| freed.run.sectors).sum(),
        saved_sectors: freed.iter().map(|freed| u64::from(freed.saved_sectors)).sum(),
        freed,
    })
}

/// The first entry of each tenancy in `extents` (in page order), and every plain extent.
fn first_of_tenancies(extents: &[Extent]) -> impl Iterator<Item = &Extent> {
    extents.iter().enumerate().filter_map(|(at, extent)| {
        let before = extents.get(at.saturating_sub(TIE_REACH)..at).unwrap_or_default();
        let seen = before.iter().any(|other| one_tenancy(other, extent));
        (!seen).then_some(extent)
    })
}
