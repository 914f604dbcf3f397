//! Reads every copy of blocks that lie next to each other, each verified by itself: for a scrub.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{DiskError, Page};
use futures_util::future::join_all;

use crate::leaf::Leaf;
use crate::vdev::Vdev;

/// A part of a run of sectors: so many sectors from the run's first, and how many.
pub type Part = (usize, usize);

/// What was found of one part.
#[derive(Debug, Default)]
pub struct Copies {
    /// Verified content, if a copy has it.
    pub good: Option<Vec<Page>>,
    /// Leaves whose copy is bad or cannot be read.
    pub bad: Vec<Arc<Leaf>>,
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
        let reads = leaves.iter().map(|leaf| leaf.read(sector, count));
        let reads = leaves.iter().zip(join_all(reads).await);
        let mut found: Vec<Copies> = parts.iter().map(|_| Copies::default()).collect();
        for (leaf, read) in reads {
            for ((number, part), copies) in parts.iter().enumerate().zip(&mut found) {
                let (first, count) = *part;
                let read = match &read {
                    Ok(pages) => Ok(pages.get(first..first + count).unwrap_or_default().to_vec()),
                    Err(DiskError::Gone) => Err(DiskError::Gone),
                    // One sector of them may be the reason: each part by itself.
                    Err(_) => leaf.read(sector + first as u64, count).await,
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
                        leaf.note_mismatch(sector + first as u64, count);
                        copies.bad.push((*leaf).clone());
                    }
                    Err(_) => copies.bad.push((*leaf).clone()),
                }
            }
        }
        found
    }
}
