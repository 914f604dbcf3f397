//! The pages at which two versions of a file differ.
//!
//! # Theory
//! [`btree::compare`] gives the entries of which the two trees do not have the same, in the order
//! of their keys. Entries are cut and joined without any change of content, so each entry says
//! nothing yet: pages are compared one by one. Two things make that exact:
//!
//! - What it leaves out, both trees have alike. Extents of a tree do not overlap. So no other entry
//!   of either tree shows a page of it, and nothing that is given overlaps it.
//! - An entry that begins later shows only later pages. So when one with key k comes, all pages
//!   before k are known, and of each tree at most one entry reaches beyond.
//!
//! A page has the same content if both show the same part of what was written to one place in one
//! txg: a place is written once in a txg, and numbers of txgs do not repeat. The birth of an entry
//! says nothing about that. A page that was written again with equal content is reported.

use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::tree_node::Extents;
use aquifer_ondisk::{BlockPointer, FormatError};

use crate::btree::{self, Compare, Difference, NodeStore};

/// Pages of a file that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedPages {
    /// The first of them.
    pub from_page: u64,
    /// The page after the last.
    pub to_page: u64,
    /// Whether they have content now; else they are a hole, where there was content.
    pub is_data: bool,
}

/// Streams the changed pages of a file, in order. Neighbours of one kind are one range, as far as
/// one difference of the trees shows them.
pub struct CompareExtents<'a, S: NodeStore> {
    differences: Compare<'a, Extents, S>,
    /// Pages before this are not asked for.
    from_page: u64,
    /// Extents of the next pages: as they were, and as they are.
    old: Option<Extent>,
    new: Option<Extent>,
    /// All before this page is known.
    known_to: u64,
}

/// Compares two versions of a file's tree, from a page on.
///
/// # Errors
/// A root that is too high.
pub fn compare_extents<S: NodeStore>(
    store: &S,
    old: Option<BlockPointer>,
    new: Option<BlockPointer>,
    from_page: u64,
) -> Result<CompareExtents<'_, S>, S::Error> {
    let differences = btree::compare_from(store, old, new, from_page)?;
    Ok(CompareExtents { differences, from_page, old: None, new: None, known_to: 0 })
}

impl<S: NodeStore> CompareExtents<'_, S> {
    /// Appends the changed pages that the next difference of the trees makes known, perhaps none;
    /// `false` after the last one. At most 32 pages are appended at a time.
    ///
    /// # Errors
    /// Errors of the store, and nodes that make no tree. The comparison cannot be continued then.
    pub async fn next(&mut self, changed: &mut Vec<ChangedPages>) -> Result<bool, S::Error> {
        let Some(Difference { key, old, new }) = self.differences.next().await? else {
            self.settle(u64::MAX, changed);
            return Ok(false);
        };
        self.settle(key, changed);
        let both = |now: &Option<Extent>, next: &Option<Extent>| now.is_some() && next.is_some();
        if key < self.known_to || both(&self.old, &old) || both(&self.new, &new) {
            return Err(FormatError::invalid("extent tree: order of extents", key).into());
        }
        self.old = old.or(self.old.take());
        self.new = new.or(self.new.take());
        self.known_to = key;
        Ok(true)
    }

    /// All changed pages before this one were given.
    pub fn known_to(&self) -> u64 {
        self.known_to
    }

    /// All pages before this one are known.
    fn settle(&mut self, to: u64, changed: &mut Vec<ChangedPages>) {
        let ends = [&self.old, &self.new].map(|side| side.as_ref().map_or(0, Extent::end));
        let end = ends.into_iter().max().unwrap_or(0).min(to);
        for page in self.known_to.max(self.from_page)..end {
            let old = self.old.as_ref().and_then(|extent| content(extent, page));
            let new = self.new.as_ref().and_then(|extent| content(extent, page));
            if old == new {
                continue;
            }
            let is_data = new.is_some();
            match changed.last_mut() {
                Some(last) if last.to_page == page && last.is_data == is_data => {
                    last.to_page += 1;
                }
                _ => changed.push(ChangedPages { from_page: page, to_page: page + 1, is_data }),
            }
        }
        let beyond = |side: Option<Extent>| side.filter(|extent| extent.end() > to);
        self.old = beyond(self.old.take());
        self.new = beyond(self.new.take());
    }
}

/// Returns what an extent shows as a page: where it is from, without the place in the file.
fn content(extent: &Extent, page: u64) -> Option<Extent> {
    let shown = extent.slice(page, page.checked_add(1)?)?;
    let Extent { place, written, stored, .. } = shown;
    Some(Extent { page: 0, birth: written, counted: false, pages: 1, written, place, stored })
}
