//! Whether clients wait for memory that a larger cap would give them.
//!
//! A full read cache is as it should be, and a burst of writes that waits for a moment too. What is
//! told is that clients wait again and again for minutes, or that what comes before the cache has
//! left it its least all that time.

use std::collections::VecDeque;

use aquifer_api::{MemoryStat, NfsLoad, Problem, Severity, codes};
use aquifer_meter::size;

/// The last looks.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// Whether somebody had waited, the newest last.
    looks: VecDeque<bool>,
    /// All waits so far.
    waits: Option<u64>,
}

impl Pressure {
    /// Looks once more.
    pub fn look(&mut self, memory: &MemoryStat, nfs: &NfsLoad) -> Option<Problem> {
        // Who has all that a larger cap would give waits for disks.
        let bound = memory.pools.iter().filter(|pool| pool.bound).map(|pool| pool.waits);
        let of_nfs = if nfs.memory_bound { nfs.memory_waits } else { 0 };
        let waits = bound.sum::<u64>() + of_nfs;
        // Counts of a pool that left, or was bound, are no waits.
        let has_waited = self.waits.is_some_and(|before| waits > before);
        self.waits = Some(waits);
        let is_least = !memory.pools.is_empty() && memory.caches_bytes <= memory.cap_bytes / LEAST;
        self.looks.push_back(has_waited || is_least);
        if self.looks.len() <= LOOKS {
            return None;
        }
        self.looks.pop_front();
        let bad = self.looks.iter().filter(|look| **look).count();
        (bad * 5 >= LOOKS * 4).then(|| problem(memory))
    }
}

fn problem(memory: &MemoryStat) -> Problem {
    let status = format!(
        "Clients have waited for memory for ten minutes: all of it together may be {}.",
        size::human(memory.cap_bytes)
    );
    let action = "See who has how much: `aquifer arcstat -v`. Raise `memory` in \
                  /etc/aquifer/aquifer.toml, then `systemctl restart aquifer`.";
    Problem::new(codes::MEMORY_SHORT, Severity::Warning, status, Some(action.into()))
}

/// Ten minutes.
const LOOKS: usize = 120;
/// The part of the cap that caches keep.
const LEAST: u64 = 8;

#[cfg(test)]
mod tests {
    use aquifer_api::{CacheStat, PoolMemory};

    use super::*;

    /// A full read cache, beside changes that have waited so often.
    fn memory(waits: u64, bound: bool) -> MemoryStat {
        let cache = CacheStat { size_bytes: 800, target_bytes: 800, ..CacheStat::default() };
        let pool = PoolMemory { name: "tank".into(), waits, bound, cache, ..PoolMemory::default() };
        MemoryStat {
            cap_bytes: 1024,
            nfs_bytes: 10,
            caches_bytes: 800,
            pools: vec![pool],
            ..Default::default()
        }
    }

    /// How many of these looks say that memory is short.
    fn told(looks: impl Iterator<Item = (MemoryStat, NfsLoad)>) -> usize {
        let mut pressure = Pressure::default();
        looks.filter(|(memory, nfs)| pressure.look(memory, nfs).is_some()).count()
    }

    fn nfs(memory_waits: u64, memory_bound: bool) -> NfsLoad {
        NfsLoad { memory_waits, memory_bound, ..NfsLoad::default() }
    }

    #[test]
    fn a_full_cache_alarms_nobody() {
        assert_eq!(told((0..1000).map(|_| (memory(7, true), nfs(9, true)))), 0);
    }

    #[test]
    fn clients_that_wait_for_ten_minutes_are_told_of() {
        let looks = LOOKS as u64;
        let wait = |at: u64| (memory(at, true), NfsLoad::default());
        assert_eq!(told((0..looks).map(wait)), 0);
        assert!(told((0..2 * looks).map(wait)) > 100);
        let over_nfs = |at: u64| (memory(0, true), nfs(at, true));
        assert!(told((0..2 * looks).map(over_nfs)) > 100);
        // For a moment now and then.
        assert_eq!(told((0..5 * looks).map(|at| (memory(at / 2, true), nfs(0, true)))), 0);
        // More memory would change nothing: the disks are slow.
        assert_eq!(told((0..5 * looks).map(|at| (memory(at, false), nfs(at, false)))), 0);
        // A pool leaves, and comes again: its count begins at 0.
        assert_eq!(told((0..5 * looks).map(|at| (memory(1000 - at, true), nfs(0, true)))), 0);
    }

    #[test]
    fn a_cache_that_has_its_least_for_long_is_told_of() {
        let squeezed = |_| (MemoryStat { caches_bytes: 128, ..memory(0, true) }, nfs(0, true));
        assert!(told((0..200).map(squeezed)) > 50);
        let without_pools =
            |_| (MemoryStat { cap_bytes: 64, ..MemoryStat::default() }, nfs(0, true));
        assert_eq!(told((0..200).map(without_pools)), 0);
    }
}
