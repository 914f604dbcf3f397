//! Merging an object's changes around a damaged node.

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::tree_node::{Directory, Extents};
use aquifer_ondisk::types::Run;
use aquifer_pool::{PoolError, SyncContext};

use crate::btree;
use crate::extent_tree::Replace;
use crate::overlay::Version;

/// Changes of one object that a sync could not write out.
#[derive(Debug, Clone)]
pub struct Damage {
    /// Why the node could not be read.
    pub error: PoolError,
    /// Ranges of pages whose newest content was lost: first, and the one after the last.
    pub pages: Vec<(u64, u64)>,
    /// Names whose creation or removal was lost.
    pub names: Vec<Vec<u8>>,
    /// A truncation was lost too.
    pub cut: bool,
}

impl Damage {
    /// No loss yet.
    pub(crate) fn none(error: PoolError) -> Self {
        Damage { error, pages: Vec::new(), names: Vec::new(), cut: false }
    }

    /// The loss of all changes of an object.
    pub fn all(error: PoolError, version: &Version) -> Self {
        let mut damage = Damage { cut: version.cut.is_some(), ..Damage::none(error) };
        version.pages.iter().for_each(|(page, _)| damage.lose(page, page + 1));
        damage.names = version.entries.iter().map(|(key, entry)| named(*key, entry)).collect();
        damage
    }

    fn lose(&mut self, from: u64, to: u64) {
        match self.pages.last_mut() {
            Some((_, end)) if *end == from => *end = to,
            _ => self.pages.push((from, to)),
        }
    }
}

/// The name of a new entry; for a removal only the key is known.
fn named(key: u64, entry: &Option<Dirent>) -> Vec<u8> {
    entry.as_ref().map_or_else(|| format!("(key {key:#x})").into_bytes(), |e| e.name.clone())
}

/// Frees early-written data of a version that nothing will refer to.
pub fn free_early(sync: &SyncContext, version: &Version) {
    for place in version.pages.iter().filter_map(|(_, dirty)| dirty.place) {
        sync.free(Run::new(place, 1), sync.txg());
    }
}

/// The entries of a directory that can be changed.
pub(crate) async fn part_entries(
    sync: &SyncContext,
    root: Option<BlockPointer>,
    entries: Vec<(u64, Option<Dirent>)>,
    damage: &mut Damage,
) -> Result<Vec<(u64, Option<Dirent>)>, PoolError> {
    let mut fates = Fates::<Directory>::new();
    let mut kept = Vec::new();
    for (key, entry) in entries {
        if fates.of(sync, root, key).await?.0 {
            kept.push((key, entry));
        } else {
            damage.names.push(named(key, &entry));
        }
    }
    Ok(kept)
}

/// The pages of a file that can be changed: ops without those in damaged leaves, whose sectors are
/// freed.
pub(crate) async fn part_ops(
    sync: &SyncContext,
    root: Option<BlockPointer>,
    ops: Vec<Replace>,
    damage: &mut Damage,
) -> Result<Vec<Replace>, PoolError> {
    let mut fates = Fates::<Extents>::new();
    let mut kept = Vec::new();
    for op in ops {
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        let mut at = op.from_page;
        while at < op.to_page {
            let (readable, upper) = fates.of(sync, root, at).await?;
            let end = upper.unwrap_or(op.to_page).min(op.to_page);
            match pieces.last_mut() {
                Some((_, before)) if readable && *before == at => *before = end,
                _ if readable => pieces.push((at, end)),
                _ => damage.lose(at, end),
            }
            at = end;
        }
        if pieces == [(op.from_page, op.to_page)] {
            kept.push(op);
        } else {
            cut_to(sync, &op, &pieces, &mut kept, damage);
        }
    }
    Ok(kept)
}

/// The parts of an op in the `pieces` of its range.
fn cut_to(
    sync: &SyncContext,
    op: &Replace,
    pieces: &[(u64, u64)],
    kept: &mut Vec<Replace>,
    damage: &mut Damage,
) {
    let mut shown = vec![false; op.extents.len()];
    for (from, to) in pieces {
        let mut piece = Replace { from_page: *from, to_page: *to, extents: Vec::new() };
        for (extent, shown) in op.extents.iter().zip(&mut shown) {
            let Some(part) = extent.slice(*from, *to) else { continue };
            let plain = matches!(extent.stored, Stored::Plain(_));
            // Parts of a compressed extent must not lie in two leaves: the first one stays.
            if !plain && *shown {
                damage.lose(part.page, part.end());
                continue;
            }
            *shown = true;
            piece.extents.push(part);
        }
        kept.push(piece);
    }
    for (extent, shown) in op.extents.iter().zip(shown) {
        match extent.stored {
            Stored::Plain(_) => {
                let page_lost = |page: &u64| !pieces.iter().any(|(a, b)| (*a..*b).contains(page));
                let lost = (extent.page..extent.end()).filter(page_lost);
                lost.filter_map(|page| extent.slice(page, page + 1)).for_each(|p| free(sync, &p));
            }
            Stored::Compressed { .. } if !shown => free(sync, extent),
            Stored::Compressed { .. } => {}
        }
    }
}

/// Frees the sectors of extents that were written in this txg and that nothing refers to.
pub(crate) fn free_new(sync: &SyncContext, ops: &[Replace]) {
    ops.iter().flat_map(|op| &op.extents).for_each(|extent| free(sync, extent));
}

fn free(sync: &SyncContext, extent: &Extent) {
    sync.free(Run::new(extent.place, extent.stored_sectors()), extent.written);
}

/// Which keys can be changed. Asked in ascending order, it takes one descent for each leaf.
struct Fates<F: btree::Packed> {
    known: Option<(bool, Option<F::Key>)>,
}

impl<F: btree::Packed> Fates<F> {
    fn new() -> Self {
        Fates { known: None }
    }

    /// Whether the leaf of `key` can be read, and where its keys end.
    async fn of(
        &mut self,
        sync: &SyncContext,
        root: Option<BlockPointer>,
        key: F::Key,
    ) -> Result<(bool, Option<F::Key>), PoolError> {
        if let Some((readable, upper)) = self.known
            && upper.is_none_or(|upper| key < upper)
        {
            return Ok((readable, upper));
        }
        let reach = btree::probe::<F, SyncContext>(sync, root, key).await;
        let readable = match reach.error {
            None => true,
            Some(error) if error.is_damage() => false,
            Some(error) => return Err(error),
        };
        self.known = Some((readable, reach.upper));
        Ok((readable, reach.upper))
    }
}
