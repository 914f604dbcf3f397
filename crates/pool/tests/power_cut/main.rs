//! Power cuts under a pool with the smallest layer above it: transaction groups, intent log, early
//! writes, import, replay, rewind. `AQUIFER_SEEDS` is the number of seeds, from
//! `AQUIFER_FIRST_SEED` on; `AQUIFER_SEED` runs one.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test says what went wrong by ending"
)]

mod admission;
mod again;
mod clients;
mod copies;
mod errs;
mod faults;
mod growth;
mod hangs;
mod hosts;
mod idle;
mod lies;
mod lives;
mod log_tail;
mod logs;
mod many;
mod roots;
mod sabotages;
mod shapes;
mod sides;
mod slots;
mod splits;
mod trims;
mod unused;

use aquifer_sim::Image;
use aquifer_sim::seeds::seeds;
use aquifer_sim::seeds::story;

use lives::{run_seed, run_tail_seed};
use logs::run_log_seed;
use shapes::{LOG_SHAPES, SHAPES, base, base_with_spare};
use sides::About;

/// The main subject of a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Short lives, small records.
    Short,
    /// Large records and slow commits: the log goes round its segments within a life.
    Wraps {
        /// Pages of a stable record.
        record_pages: usize,
    },
    /// Readers that are several commits late, on mirrors of which one side may rot meanwhile.
    SlowReaders {
        /// Whether places rot.
        rot: bool,
    },
    /// Each slot is written about once, over some time.
    Sparse,
    /// A few batches of one size at once, and then the end. Old batches after the end of the log
    /// then fit the next chain in place and size.
    Tails,
}

impl Kind {
    fn of(seed: u64) -> Kind {
        match seed % 8 {
            1 => Kind::Wraps { record_pages: 120 },
            3 => Kind::Wraps { record_pages: 180 },
            5 => Kind::Wraps { record_pages: 230 },
            6 => Kind::SlowReaders { rot: false },
            7 => Kind::SlowReaders { rot: true },
            _ => Kind::Short,
        }
    }

    /// Whether no checksum may be bad.
    fn is_sound(self) -> bool {
        self != Kind::SlowReaders { rot: true }
    }
}

#[test]
fn nothing_acknowledged_is_lost() {
    let bases: Vec<Vec<Image>> = SHAPES.iter().map(|shape| base(*shape)).collect();
    let (mut cuts, mut rewinds, mut wraps) = (0, 0, 0);
    for seed in seeds(600) {
        match run_seed(seed, &bases) {
            Ok(run) => {
                cuts += run.cuts;
                rewinds += run.rewinds;
                wraps += run.wraps;
            }
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} cuts, {rewinds} rewinds, {wraps} lives in which the log wrapped");
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_comes_back() {
    let bases: Vec<Vec<Image>> = SHAPES.iter().map(|shape| base(*shape)).collect();
    let mut cuts = 0;
    for seed in seeds(100) {
        match run_tail_seed(seed, &bases) {
            Ok(run) => cuts += run.cuts,
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} cuts with several batches on their way");
}

#[test]
fn nothing_acknowledged_is_lost_with_log_vdevs() {
    let bases: Vec<Vec<Image>> = LOG_SHAPES.iter().map(|shape| base_with_spare(*shape)).collect();
    let (mut cuts, mut acts, mut dropped) = (0, 0, 0);
    for seed in seeds(600) {
        match run_log_seed(seed, &bases) {
            Ok(run) => {
                cuts += run.cuts;
                acts += run.acts;
                dropped += run.dropped;
            }
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} cuts, {acts} acts of an administrator, {dropped} imports without the log");
    assert!(cuts < 100 || acts > 0, "the administrator did nothing");
}

/// Sides that come back are resilvered, and then each does alone for good.
#[test]
fn a_resilvered_side_is_whole() {
    let bases = sides::mirrors();
    let (mut cuts, mut alone, mut rewinds, mut acts) = (0, 0, 0, 0);
    for seed in seeds(200) {
        match sides::run_sides_seed(seed, &bases, About::Sides) {
            Ok(run) => {
                cuts += run.cuts;
                alone += run.alone;
                rewinds += run.rewinds;
                acts += run.acts;
            }
            Err(what) => panic!("{what}"),
        }
    }
    println!(
        "{cuts} cuts, {alone} resilvered sides left alone, {rewinds} of them rewound, {acts} acts"
    );
    assert!(cuts < 100 || alone > 0, "no side was resilvered");
}

/// Sides that come back in pools that are nearly full, with small holes between blocks, are
/// resilvered, and then each does alone for good.
#[test]
fn a_resilvered_side_of_a_dense_pool_is_whole() {
    let bases = sides::dense_mirrors();
    let mut sum = sides::SidesRun::default();
    for seed in seeds(10) {
        match sides::run_sides_seed(seed, &bases, About::Dense) {
            Ok(run) => sum.add(&run),
            Err(what) => panic!("{what}"),
        }
    }
    let sides::SidesRun { cuts, alone, rewinds, acts, .. } = sum;
    println!(
        "{cuts} cuts, {alone} resilvered sides left alone, {rewinds} of them rewound, {acts} acts"
    );
    assert!(cuts < 100 || alone > 0, "no side was resilvered");
}

/// Sides whose reads fail too often are taken out, and come back. They are resilvered, and then
/// each does alone for good.
#[test]
fn a_side_that_errs_too_often_is_taken_out_and_comes_back() {
    let bases = sides::mirrors();
    let (mut sum, mut seeds_run, mut seeds_faulted) = (sides::SidesRun::default(), 0, 0);
    for seed in seeds(12) {
        match sides::run_sides_seed(seed, &bases, About::Errs) {
            Ok(run) => {
                sum.add(&run);
                seeds_run += 1;
                seeds_faulted += u64::from(run.faulted > 0);
            }
            Err(what) => panic!("{what}"),
        }
    }
    let sides::SidesRun { cuts, alone, faulted, came_back, last_erred, .. } = sum;
    println!(
        "{cuts} cuts, {alone} sides left alone, {faulted} sides taken out in {seeds_faulted} of \
         {seeds_run} seeds, {came_back} came back in the same life, the last erred {last_erred} \
         times"
    );
    assert!(cuts < 100 || seeds_faulted * 2 > seeds_run, "too few sides were taken out");
    assert!(cuts < 100 || came_back.min(last_erred) > 0, "none came back, or none was the last");
}

/// Sides that come back while disks become larger and vdevs are added are resilvered, and then each
/// does alone for good.
#[test]
fn a_side_that_is_resilvered_while_the_pool_grows_is_whole() {
    let bases = sides::growing_pools();
    let mut sum = sides::SidesRun::default();
    for seed in seeds(20) {
        match sides::run_sides_seed(seed, &bases, About::Growth) {
            Ok(run) => sum.add(&run),
            Err(what) => panic!("{what}"),
        }
    }
    let sides::SidesRun { cuts, alone, rewinds, added, grown, .. } = sum;
    println!(
        "{cuts} cuts, {alone} pools of one side of each vdev, {rewinds} of them rewound, {added} \
         vdevs added, {grown} vdevs grew"
    );
    assert!(cuts < 100 || added.min(grown) > 0, "no pool grew");
}

/// Sides that hang, fail for that, and come back are resilvered, and then each does alone for good.
/// A seed takes a tenth of a second: clients write while a side hangs and rests, for a minute or
/// more. So CI runs few of them.
#[test]
fn a_side_that_hung_is_whole_when_it_counts() {
    let bases = sides::mirrors();
    let (mut cuts, mut alone, mut hung) = (0, 0, 0);
    for seed in seeds(100) {
        match sides::run_sides_seed(seed, &bases, About::Hangs) {
            Ok(run) => {
                cuts += run.cuts;
                alone += run.alone;
                hung += run.hung;
            }
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} cuts, {alone} resilvered sides left alone, {hung} sides hung");
    assert!(cuts < 100 || hung > 0, "no side hung");
}

/// Sides that come back beside spares, and beside disks that stay offline over restarts, are
/// resilvered, and then each does alone for good.
#[test]
fn a_spare_stands_in_and_gives_the_place_back() {
    let bases = sides::mirrors();
    let (mut cuts, mut alone, mut stood_in) = (0, 0, 0);
    for seed in seeds(75) {
        match sides::run_sides_seed(seed, &bases, About::Spares) {
            Ok(run) => {
                cuts += run.cuts;
                alone += run.alone;
                stood_in += run.stood_in;
            }
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} cuts, {alone} resilvered sides left alone, a spare stood in {stood_in} times");
    assert!(cuts < 100 || stood_in > 0, "no spare stood in");
}

/// All of that at once, in pools of several vdevs, with rot and scrubs.
#[test]
fn everything_at_once_loses_nothing() {
    let bases = sides::pools();
    let mut sum = sides::SidesRun::default();
    for seed in seeds(40) {
        match sides::run_sides_seed(seed, &bases, About::Everything) {
            Ok(run) => sum.add(&run),
            Err(what) => panic!("{what}"),
        }
    }
    let sides::SidesRun { cuts, alone, rewinds, acts, hung, stood_in, mended, .. } = sum;
    println!(
        "{cuts} cuts, {alone} pools of one side of each vdev, {rewinds} of them rewound, {acts} \
         acts, {hung} sides hung, a spare stood in {stood_in} times, {mended} rotten copies mended"
    );
    assert!(cuts < 100 || mended > 0, "no copy was mended");
}

/// Disks are put back from copies of themselves.
#[test]
fn a_copy_of_a_disk_is_not_taken_for_it() {
    let bases: Vec<_> = sides::pools().into_iter().chain(sides::mirrors()).collect();
    let mut sum = sides::SidesRun::default();
    for seed in seeds(70) {
        match sides::run_sides_seed(seed, &bases, About::Copies) {
            Ok(run) => sum.add(&run),
            Err(what) => panic!("{what}"),
        }
    }
    let sides::SidesRun { cuts, alone, acts, put_back, looks, refused, .. } = sum;
    println!(
        "{cuts} cuts, {alone} pools of one side of each vdev, {acts} acts, {put_back} disks put \
         back, {looks} pools with copies came up, {refused} were refused"
    );
    assert!(cuts < 100 || put_back.min(looks).min(refused) > 0, "no copy was met");
}

/// The seed of everything at once in which a spare was put in once more, and refused for what it
/// had been long before.
#[test]
fn a_spare_that_is_put_in_once_more_splits_no_pool() {
    let run = sides::run_sides_seed(3_100_095, &sides::pools(), About::Everything);
    assert!(run.unwrap().cuts > 0);
}

/// Sides that were in use apart from each other are not imported together.
#[test]
fn sides_that_went_apart_are_not_mixed() {
    let bases = sides::mirrors();
    let (mut cuts, mut refused, mut met) = (0, 0, 0);
    for seed in seeds(100) {
        match splits::run_splits_seed(seed, &bases) {
            Ok(run) => {
                cuts += run.cuts;
                refused += run.refused;
                met += run.met;
            }
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} cuts, {refused} imports refused, {met} disks of two parts in one pool");
    assert!(cuts < 100 || refused.min(met) > 0, "no disks met");
}

/// The seed of a side that was brought up alone when it lacked the newest uberblock, and wrote one.
#[test]
fn a_side_that_lacked_an_uberblock_and_went_on_by_one_is_not_mixed() {
    let run = splits::run_splits_seed(3_701_673, &sides::mirrors());
    assert!(run.unwrap().refused > 0);
}

/// Data vdevs are added, and vdevs grow, under load.
#[test]
fn a_pool_that_grows_loses_nothing() {
    let bases = growth::small_pools();
    let (mut cuts, mut added, mut grown, mut rewinds) = (0, 0, 0, 0);
    for seed in seeds(300) {
        match growth::run_growth_seed(seed, &bases) {
            Ok(run) => {
                cuts += run.cuts;
                added += run.added;
                grown += run.grown;
                rewinds += run.rewinds;
            }
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} cuts, {added} vdevs added, {grown} vdevs grew, {rewinds} rewinds");
    assert!(cuts < 100 || added.min(grown) > 0, "no pool grew");
}

/// Free space is discarded and written over, under load.
#[test]
fn what_is_discarded_is_missed_by_nobody() {
    let bases = growth::small_pools();
    let (mut cuts, mut discards, mut acts, mut rewinds) = (0, 0, 0, 0);
    for seed in seeds(200) {
        match trims::run_trims_seed(seed, &bases) {
            Ok(run) => {
                cuts += run.cuts;
                discards += run.discards;
                acts += run.acts;
                rewinds += run.rewinds;
            }
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} cuts, {discards} discards, {acts} acts, {rewinds} rewinds");
    assert!(cuts < 100 || discards > cuts, "nothing was discarded");
}

/// A seed that was found in one process tells the same in another, on another day.
#[test]
fn a_seed_runs_the_same_again() {
    let traces = || {
        let bases: Vec<Vec<Image>> = SHAPES.iter().map(|shape| base(*shape)).collect();
        let plain = (0..40).map(|seed| run_seed(seed, &bases).map(|run| run.trace));
        let plain: Vec<u64> = plain.collect::<Result<_, _>>().unwrap();
        let bases: Vec<Vec<Image>> =
            LOG_SHAPES.iter().map(|shape| base_with_spare(*shape)).collect();
        let logs = (0..40).map(|seed| run_log_seed(seed, &bases).map(|run| run.trace));
        (plain, logs.collect::<Result<Vec<u64>, _>>().unwrap())
    };
    assert_eq!(traces(), traces());
}
