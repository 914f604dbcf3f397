//! Reads every copy of blocks that lie next to each other, each verified by itself: for a scrub.
//!
//! Invariant: one look counts each bad part of a leaf once, however it was found to be bad, and a
//! further look ([`Vdev::look_again`]) counts nothing.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{DiskError, Page};
use futures_util::future::join_all;

use crate::leaf::Leaf;
use crate::vdev::{ReadError, Vdev};

/// A part of a run of sectors: so many sectors from the run's first, and how many.
pub type Part = (usize, usize);

/// Copies of one part, as they were found.
#[derive(Debug, Default)]
pub struct Copies {
    /// Verified content, if a copy has it.
    pub good: Option<Vec<Page>>,
    /// Leaves whose copy is bad or cannot be read.
    pub bad: Vec<Arc<Leaf>>,
    /// Why the last of those that cannot be read cannot.
    pub unreadable: Option<DiskError>,
}

impl Copies {
    /// Why none is good.
    pub fn error(&self, vdev: u16, sector: u64, count: usize) -> ReadError {
        match self.unreadable.clone() {
            Some(error) => ReadError::Unreadable { vdev, sector, count, error },
            None => ReadError::Corrupt { vdev, sector, count },
        }
    }
}

impl Vdev {
    /// Reads a run of sectors from every leaf that holds everything, and looks at each part of it.
    /// `verify` is asked about the content of a part by its number.
    pub async fn examine(
        &self,
        sector: u64,
        count: usize,
        parts: &[Part],
        verify: &(dyn Fn(usize, &[Page]) -> bool + Sync),
    ) -> Vec<Copies> {
        let leaves: Vec<&Arc<Leaf>> = self.online().collect();
        let reads = leaves.iter().map(|leaf| leaf.look(sector, count));
        let reads = leaves.iter().zip(join_all(reads).await);
        let gone = leaves.is_empty().then_some(DiskError::Gone);
        let none = |_| Copies { unreadable: gone.clone(), ..Copies::default() };
        let mut found: Vec<Copies> = parts.iter().map(none).collect();
        for (leaf, read) in reads {
            let is_one = parts.len() == 1 && parts.first() == Some(&(0, count));
            if let Err(error) = &read {
                leaf.tell_failed_read(sector, count, error);
                if is_one || *error == DiskError::Gone {
                    leaf.count_failed_read(error);
                }
            }
            for ((number, part), copies) in parts.iter().enumerate().zip(&mut found) {
                let (first, of_part) = *part;
                let read = match &read {
                    Ok(pages) => Ok(pages.get(first..first + of_part).unwrap_or_default().to_vec()),
                    Err(error) if is_one || *error == DiskError::Gone => Err(error.clone()),
                    // One sector of them may be the reason: each part by itself.
                    Err(_) => leaf.read(sector + first as u64, of_part).await,
                };
                match read {
                    _ if left_out(Rule::ScrubReadsEveryCopy) && copies.good.is_some() => {}
                    Ok(pages) if verify(number, &pages) => {
                        copies.good.get_or_insert(pages);
                    }
                    Ok(pages) => {
                        if left_out(Rule::MendsFromVerified) {
                            copies.good.get_or_insert(pages);
                        }
                        leaf.note_mismatch(sector + first as u64, of_part);
                        copies.bad.push((*leaf).clone());
                    }
                    Err(error) => {
                        copies.unreadable = Some(error);
                        copies.bad.push((*leaf).clone());
                    }
                }
            }
        }
        found
    }

    /// Looks once more at a part that no leaf gave which holds everything. Others may hold it; if
    /// `everywhere`, an error of those that do may have passed. Counts nothing.
    pub async fn look_again(
        &self,
        sector: u64,
        count: usize,
        everywhere: bool,
        verify: &(dyn Fn(&[Page]) -> bool + Sync),
    ) -> Option<Vec<Page>> {
        let online = self.online().filter(|_| everywhere);
        for leaf in online.chain(self.may_hold()) {
            if let Ok(pages) = leaf.look(sector, count).await
                && verify(&pages)
            {
                return Some(pages);
            }
        }
        None
    }
}
