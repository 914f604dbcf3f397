//! What would become free with snapshots: what they alone show.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_ondisk::{BlockPointer, DatasetId, Txg};
use aquifer_pool::{Pool, PoolError};

use super::{Sweep, first_key, next_taken};
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::lines::{Ending, OnLine};
use crate::snapshots::Act;

impl Datasets {
    /// Bytes that would become free with these snapshots of a dataset together: that no other one
    /// and no head shows. Txgs of no snapshot count for nothing.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn unique_bytes(
        &self,
        dataset: &Dataset,
        snapshots: &BTreeSet<Txg>,
    ) -> Result<u64, PoolError> {
        let listed = dataset.snapshots(Txg(u64::MAX));
        let these = listed.iter().filter(|of| snapshots.contains(&of.txg));
        let these: BTreeSet<OnLine> = these.map(|of| (of.line, of.txg)).collect();
        if these.iter().all(|(line, _)| *line == dataset.id) {
            return dataset.unique_bytes(&self.pool, snapshots).await;
        }
        // Some would only be hidden.
        let Ending { acts, gone, .. } = self.ending(&[], these);
        let mut on_lines: BTreeMap<DatasetId, BTreeSet<Txg>> = BTreeMap::new();
        for act in acts {
            if let Act::Destroy { line, snapshot } = act {
                on_lines.entry(line).or_default().insert(snapshot);
            }
        }
        let mut bytes = gone.iter().fold(0, |sum: u64, of| sum.saturating_add(of.own_bytes()));
        for (line, snapshots) in on_lines {
            if let Some(line) = self.by_id(line) {
                let of_it = line.unique_bytes(&self.pool, &snapshots).await?;
                bytes = bytes.saturating_add(of_it);
            }
        }
        Ok(bytes)
    }
}

impl Dataset {
    /// The same, of snapshots on its line.
    async fn unique_bytes(&self, pool: &Pool, snapshots: &BTreeSet<Txg>) -> Result<u64, PoolError> {
        // Before the root is looked at.
        let _reading = pool.reading();
        let root = self.dead.lock().committed;
        let mut sectors = 0u64;
        let listed = self.snapshots.lock().listed();
        for group in together(&listed, snapshots) {
            sectors = sectors.saturating_add(group.sectors(pool, root).await?);
        }
        Ok(sectors.saturating_mul(4096))
    }
}

/// Snapshots with none between them that stays. What they alone show lies in buckets of their own:
/// with P and N as in the head of the module above, but around all of them, `hi` is in [first, N),
/// and `lo` is in [P, S), where S is the newest of them up to `hi`.
#[derive(Debug, PartialEq, Eq)]
struct Together {
    /// In order, never empty.
    snapshots: Vec<Txg>,
    before: Txg,
    after: Option<Txg>,
}

/// These of the list, in such groups.
fn together(listed: &[Txg], these: &BTreeSet<Txg>) -> Vec<Together> {
    let mut groups = Vec::new();
    let mut before = Txg::default();
    let mut snapshots = Vec::new();
    let mut close = |snapshots: &mut Vec<Txg>, before, after| {
        if !snapshots.is_empty() {
            groups.push(Together { snapshots: std::mem::take(snapshots), before, after });
        }
    };
    for txg in listed {
        if these.contains(txg) {
            snapshots.push(*txg);
        } else {
            close(&mut snapshots, before, Some(*txg));
            before = *txg;
        }
    }
    close(&mut snapshots, before, None);
    groups
}

impl Together {
    /// How a sweep would look at buckets with this `hi`, or the first ones.
    fn sweep(&self, hi: Txg) -> Sweep {
        let upto = self.snapshots.partition_point(|txg| *txg <= hi);
        let newest = self.snapshots.get(upto.saturating_sub(1)).copied().unwrap_or_default();
        Sweep { snapshot: newest, before: self.before, after: self.after, returns: false }
    }

    async fn sectors(&self, pool: &Pool, root: Option<BlockPointer>) -> Result<u64, PoolError> {
        let mut sectors = 0u64;
        let mut key = first_key(self.sweep(Txg::default()).snapshot);
        while let Some((bucket, sums)) = next_taken(pool, root, key, |hi| self.sweep(hi)).await? {
            sectors = sectors.saturating_add(sums.sectors);
            key = bucket.end();
        }
        Ok(sectors)
    }
}

#[cfg(test)]
mod tests {
    use aquifer_ondisk::dead::Bucket;

    use super::*;

    fn txgs(these: &[u64]) -> Vec<Txg> {
        these.iter().copied().map(Txg).collect()
    }

    fn groups(listed: &[u64], these: &[u64]) -> Vec<Together> {
        together(&txgs(listed), &txgs(these).into_iter().collect())
    }

    #[test]
    fn snapshots_are_together_if_none_that_stays_lies_between() {
        let group = |snapshots: &[u64], before, after: Option<u64>| Together {
            snapshots: txgs(snapshots),
            before: Txg(before),
            after: after.map(Txg),
        };
        assert_eq!(groups(&[], &[3]), []);
        assert_eq!(groups(&[3, 5], &[4]), []);
        assert_eq!(groups(&[3], &[3]), [group(&[3], 0, None)]);
        assert_eq!(
            groups(&[1, 3, 5, 7, 9], &[3, 5, 6, 9]),
            [group(&[3, 5], 1, Some(7)), group(&[9], 7, None)]
        );
    }

    /// Each bucket is counted once if it becomes free, and else not: by the definition.
    #[test]
    fn what_becomes_free_is_what_only_these_show() {
        let listed = [2, 4, 6, 8];
        for chosen in 0u32..16 {
            let is_chosen = |at: usize| chosen >> at & 1 == 1;
            let (these, others): (Vec<_>, Vec<_>) = (0..4).partition(|at| is_chosen(*at));
            let txgs_of = |of: &[usize]| of.iter().map(|at| listed[*at]).collect::<Vec<u64>>();
            let (these, others) = (txgs_of(&these), txgs_of(&others));
            // Snapshots between may have been in the list once: odd numbers.
            for (hi, lo) in (0..10).flat_map(|hi| (0..10).map(move |lo| (hi, lo))) {
                let bucket = Bucket { group: 0, hi: Txg(hi), lo: Txg(lo) };
                let show = |some: &[u64]| some.iter().any(|txg| lo < *txg && *txg <= hi);
                let groups = groups(&listed, &these);
                let counted = groups.iter().filter(|group| {
                    let first = group.snapshots[0];
                    let sweep = group.sweep(bucket.hi);
                    bucket.hi >= first && !sweep.ends_before(bucket) && sweep.takes(bucket)
                });
                let expected = usize::from(show(&these) && !show(&others));
                assert_eq!(counted.count(), expected, "{these:?} {others:?} {bucket:?}");
            }
        }
    }
}
