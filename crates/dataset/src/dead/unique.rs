//! Space that would become free with snapshots: blocks that they alone show.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_ondisk::{BlockPointer, DatasetId, ObjectId, Txg};
use aquifer_pool::{Pool, PoolError, Turns};

use super::sweep::{Lists, Sweep, group_after, next_taken};
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::lines::{Ending, OnLine};
use crate::snapshots::Act;

/// Snapshots of one dataset that may go together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct These {
    /// Of the dataset.
    pub snapshots: BTreeSet<Txg>,
    /// Of its files.
    pub files: BTreeMap<ObjectId, BTreeSet<Txg>>,
}

impl From<BTreeSet<Txg>> for These {
    fn from(snapshots: BTreeSet<Txg>) -> These {
        These { snapshots, ..These::default() }
    }
}

impl These {
    /// The first and the last txg of all of them.
    fn ends(&self) -> Option<(Txg, Txg)> {
        let all = || std::iter::once(&self.snapshots).chain(self.files.values());
        let first = all().filter_map(BTreeSet::first).min()?;
        let last = all().filter_map(BTreeSet::last).max()?;
        Some((*first, *last))
    }

    /// Those that show something in a group: without a txg of which a snapshot of the other kind
    /// stays, which shows the same there.
    fn in_group(&self, lists: &Lists, group: u64) -> BTreeSet<Txg> {
        let files = self.files.get(&ObjectId(group)).filter(|_| group != 0);
        let [listed, of_file] = lists.of_group(group);
        let stays = |txg: &Txg| {
            let is_in = |list: &[Txg]| list.binary_search(txg).is_ok();
            is_in(listed) && !self.snapshots.contains(txg)
                || is_in(of_file) && files.is_none_or(|files| !files.contains(txg))
        };
        let all = self.snapshots.iter().chain(files.into_iter().flatten()).copied();
        all.filter(|txg| !stays(txg)).collect()
    }
}

impl Datasets {
    /// Bytes that would become free with these snapshots of a dataset together: that no other one
    /// and no head shows. Txgs of no snapshot count for nothing.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn unique_bytes(&self, dataset: &Dataset, these: &These) -> Result<u64, PoolError> {
        let of_them: BTreeSet<OnLine> = {
            let listing = dataset.listing.lock();
            let of_them = these.snapshots.iter().filter_map(|txg| listing.list.get(txg));
            of_them.map(|of| (of.line, of.txg)).collect()
        };
        if of_them.iter().all(|(line, _)| *line == dataset.id) {
            return dataset.unique_bytes(&self.pool, these).await;
        }
        // Some would only be hidden.
        let Ending { acts, gone, .. } = self.ending(&[], of_them);
        let mut on_lines: BTreeMap<DatasetId, These> = BTreeMap::new();
        on_lines.entry(dataset.id).or_default().files = these.files.clone();
        for act in acts {
            if let Act::Destroy { line, snapshot } = act {
                on_lines.entry(line).or_default().snapshots.insert(snapshot);
            }
        }
        let mut bytes = gone.iter().fold(0, |sum: u64, of| sum.saturating_add(of.own_bytes()));
        for (line, these) in on_lines {
            if let Some(line) = self.by_id(line) {
                let of_it = line.unique_bytes(&self.pool, &these).await?;
                bytes = bytes.saturating_add(of_it);
            }
        }
        Ok(bytes)
    }
}

impl Dataset {
    /// Returns the bytes that would become free with these snapshots on the dataset's line.
    async fn unique_bytes(&self, pool: &Pool, these: &These) -> Result<u64, PoolError> {
        // Before the root is looked at.
        let _reading = pool.reading();
        let root = self.dead.lock().committed;
        let (lists, these) = {
            let snapshots = self.snapshots.lock();
            let these = snapshots.going_with(these);
            // A list of all snapshots asks for each of them, so no more is copied than it takes.
            let near = these.ends().map(|(first, last)| snapshots.listed_around(first, last));
            (Lists::new(near.unwrap_or_default(), snapshots.files.lists()), these)
        };
        let mut sectors = 0u64;
        if these.snapshots.is_empty() {
            for object in these.files.keys() {
                let of_it = unique_in((pool, root), &lists, &these, object.0).await?;
                sectors = sectors.saturating_add(of_it);
            }
            return Ok(sectors.saturating_mul(4096));
        }
        let mut group = Some(0);
        let mut turns = Turns::new(pool);
        while let Some(of) = group {
            turns.step(pool).await;
            sectors = sectors.saturating_add(unique_in((pool, root), &lists, &these, of).await?);
            group = group_after(pool, root, of).await?;
        }
        Ok(sectors.saturating_mul(4096))
    }
}

async fn unique_in(
    (pool, root): (&Pool, Option<BlockPointer>),
    lists: &Lists,
    these: &These,
    group: u64,
) -> Result<u64, PoolError> {
    let these = these.in_group(lists, group);
    let mut sectors = 0u64;
    let all = match these.first() {
        // A list of all snapshots asks for each of them alone.
        Some(one) if these.len() == 1 => {
            let around = lists.around(group, *one).into_iter();
            let alone = |(before, after)| Together { snapshots: vec![*one], before, after };
            around.map(alone).collect()
        }
        _ => together(&lists.merged(group), &these),
    };
    for together in all {
        sectors = sectors.saturating_add(together.sectors(pool, root, group).await?);
    }
    Ok(sectors)
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
    fn sweep(&self, group: u64, hi: Txg) -> Sweep {
        let upto = self.snapshots.partition_point(|txg| *txg <= hi);
        let newest = self.snapshots.get(upto.saturating_sub(1)).copied().unwrap_or_default();
        let (before, after) = (self.before, self.after);
        Sweep { group, snapshot: newest, before, after, returns: false }
    }

    async fn sectors(
        &self,
        pool: &Pool,
        root: Option<BlockPointer>,
        group: u64,
    ) -> Result<u64, PoolError> {
        let mut sectors = 0u64;
        let of = |hi| self.sweep(group, hi);
        let mut key = of(Txg::default()).first_key();
        while let Some((bucket, sums)) = next_taken(pool, root, key, of).await? {
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
                    let sweep = group.sweep(0, bucket.hi);
                    bucket.hi >= first && !sweep.ends_before(bucket) && sweep.takes(bucket)
                });
                let expected = usize::from(show(&these) && !show(&others));
                assert_eq!(counted.count(), expected, "{these:?} {others:?} {bucket:?}");
            }
        }
    }
}
