//! The content of a disk: a sparse map from sector to page that is cloned in constant time.
//!
//! A radix tree of fixed depth over shared nodes. A clone shares all nodes, and a write copies the
//! shared ones on its path. So a million seeds start from one prepared pool and pay only for their
//! changes.
//!
//! Invariants:
//! - A write to one clone is invisible in every other.
//! - A page of zeros is a hole.

use std::fmt;
use std::sync::Arc;

use aquifer_blockio::Page;

#[cfg(test)]
mod tests;

/// The content of one disk of a fixed number of sectors.
#[derive(Clone)]
pub struct Image {
    sectors: u64,
    /// How far a sector number is shifted to find its slot in the root.
    root_shift: u32,
    root: Option<Arc<Node>>,
}

#[derive(Clone)]
enum Node {
    Inner([Option<Arc<Node>>; FANOUT]),
    Leaf([Option<Page>; FANOUT]),
}

impl Image {
    /// An image of holes.
    pub fn new(sectors: u64) -> Self {
        let mut root_shift = 0;
        while root_shift + FANOUT_BITS < u64::BITS && sectors >> (root_shift + FANOUT_BITS) != 0 {
            root_shift += FANOUT_BITS;
        }
        Image { sectors, root_shift, root: None }
    }

    /// Capacity in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// The page at `sector`; `None` for a hole and past the end.
    pub fn get(&self, sector: u64) -> Option<&Page> {
        if sector >= self.sectors {
            return None;
        }
        let mut node = self.root.as_deref()?;
        let mut shift = self.root_shift;
        loop {
            match node {
                Node::Inner(children) => node = children.get(slot(sector, shift))?.as_deref()?,
                Node::Leaf(pages) => return pages.get(slot(sector, shift))?.as_ref(),
            }
            shift = shift.saturating_sub(FANOUT_BITS);
        }
    }

    /// Stores `page` at `sector`; does nothing past the end.
    pub fn set(&mut self, sector: u64, page: Page) {
        if sector >= self.sectors {
            return;
        }
        if !page.is_zero() {
            store(&mut self.root, self.root_shift, sector, Some(page));
        } else if self.get(sector).is_some() {
            store(&mut self.root, self.root_shift, sector, None);
        }
    }

    /// Calls `visit` for every sector that is not a hole, in order.
    pub fn for_each(&self, mut visit: impl FnMut(u64, &Page)) {
        if let Some(root) = &self.root {
            walk(root, self.root_shift, 0, &mut visit);
        }
    }

    /// A hash of the whole content, the same in every process: for comparing images in tests.
    pub fn digest(&self) -> u64 {
        let mut hash = self.sectors;
        self.for_each(|sector, page| {
            let (words, _) = page.as_chunks::<8>();
            for word in [sector].into_iter().chain(words.iter().map(|w| u64::from_le_bytes(*w))) {
                hash = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        });
        hash
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} sectors)", self.sectors)
    }
}

fn slot(sector: u64, shift: u32) -> usize {
    usize::try_from((sector >> shift) & (FANOUT as u64 - 1)).unwrap_or(0)
}

fn store(place: &mut Option<Arc<Node>>, shift: u32, sector: u64, page: Option<Page>) {
    let node = place.get_or_insert_with(|| {
        Arc::new(if shift == 0 {
            Node::Leaf([const { None }; FANOUT])
        } else {
            Node::Inner([const { None }; FANOUT])
        })
    });
    match Arc::make_mut(node) {
        Node::Inner(children) => {
            if let Some(child) = children.get_mut(slot(sector, shift)) {
                store(child, shift.saturating_sub(FANOUT_BITS), sector, page);
            }
        }
        Node::Leaf(pages) => {
            if let Some(held) = pages.get_mut(slot(sector, shift)) {
                *held = page;
            }
        }
    }
}

fn walk(node: &Node, shift: u32, first: u64, visit: &mut impl FnMut(u64, &Page)) {
    match node {
        Node::Inner(children) => {
            for (index, child) in children.iter().enumerate() {
                if let Some(child) = child {
                    let below = first + ((index as u64) << shift);
                    walk(child, shift.saturating_sub(FANOUT_BITS), below, visit);
                }
            }
        }
        Node::Leaf(pages) => {
            for (index, page) in pages.iter().enumerate() {
                if let Some(page) = page {
                    visit(first + index as u64, page);
                }
            }
        }
    }
}

/// 32 entries for each node: the first write below a shared root copies about 150 handles at 64
/// GiB, and a read follows five pointers.
const FANOUT_BITS: u32 = 5;
const FANOUT: usize = 1 << FANOUT_BITS;
