//! The load of a pool that the pool keeps: across restarts, power cuts and jumps of the clock, its
//! bounds, its cost, and with a damaged tree.

use std::time::Duration;

use aquifer_dataset::history::{Asked, Outcome};
use aquifer_dataset::load::{
    LoadAsked, LoadGrain, LoadOf, LoadPart, LoadRecord, LoadSample, Rough, disks_kept,
};
use aquifer_files::{Service, Stability};
use aquifer_inspect::Kind;
use aquifer_ondisk::{Guid, ObjectId};

use crate::bed::{Bed, make, noise, root, write};
use crate::full::full;

const SHORT: LoadGrain = LoadGrain::TenSeconds;
const LONG: LoadGrain = LoadGrain::TenMinutes;
/// A time that begins a span of both.
const T: u64 = 28_800 * 62_000;

fn file(object: u64) -> LoadOf {
    LoadOf::File { fs_guid: Guid(7), object: ObjectId(object) }
}

fn sample(writes: u64, ns: u64) -> LoadSample {
    let part = LoadPart {
        operations: Rough::of(writes),
        bytes: Rough::of(writes * 4096),
        mean_ns: Rough::of(ns),
        p99_ns: Rough::of(2 * ns),
    };
    LoadSample { reads: LoadPart::default(), writes: part, used_sectors: 0 }
}

fn note(service: &Service, grain: LoadGrain, at_s: u64, files: &[(u64, u64)]) {
    let now = service.pool.world().now();
    let of_files = files.iter().map(|(object, writes)| (file(*object), sample(*writes, 1000)));
    let all = sample(files.iter().map(|(_, writes)| writes).sum(), 1000);
    let disks = LoadSample { used_sectors: at_s, ..LoadSample::default() };
    let of_pool = [(LoadOf::Clients, all), (LoadOf::Disks, disks)];
    service.datasets.history().load().note(now, (grain, at_s), of_files.chain(of_pool));
}

async fn read(service: &Service, asked: LoadAsked) -> Vec<LoadRecord> {
    service.datasets.history().read_load(&asked).await.unwrap()
}

/// The writes of one in each sample of a time.
async fn told(service: &Service, of: LoadOf, from_s: u64, to_s: u64) -> Vec<(u64, u64)> {
    let asked = LoadAsked { grain: SHORT, from_s, to_s, of: Some(of) };
    let records = read(service, asked).await;
    let samples = records.iter().flat_map(|record| record.times().collect::<Vec<_>>());
    let known = samples.filter(|(at_s, _)| asked.has(*at_s));
    known.map(|(at_s, sample)| (at_s, sample.writes.operations.value())).collect()
}

/// Writes all that waits.
async fn put(service: &Service) {
    service.datasets.history().load().leaves();
    service.pool.sync().await.unwrap();
}

async fn pass(service: &Service, seconds: u64) {
    service.pool.world().sleep(Duration::from_secs(seconds)).await;
}

#[test]
fn load_is_kept_over_restarts_and_a_span_goes_on() {
    let mut bed = Bed::new(1, 1 << 20);
    bed.life(async |service| {
        note(&service, SHORT, T, &[(16, 10), (17, 5)]);
        note(&service, SHORT, T + 10, &[(16, 20)]);
        assert_eq!(told(&service, file(16), T, T + 20).await, [(T, 10), (T + 10, 20)]);
        service.datasets.history().load().leaves();
    });
    bed.assert_clean();
    bed.life(async |service| {
        note(&service, SHORT, T + 40, &[(16, 30), (18, 1)]);
        let expected = [(T, 10), (T + 10, 20), (T + 40, 30)];
        assert_eq!(told(&service, file(16), T, T + 480).await, expected, "before it is written");
        put(&service).await;
        assert_eq!(told(&service, file(16), T, T + 480).await, expected);
        assert_eq!(told(&service, file(17), T, T + 480).await, [(T, 5)], "as before the restart");
        assert_eq!(told(&service, LoadOf::Clients, T, T + 20).await, [(T, 15), (T + 10, 20)]);
        assert_eq!(told(&service, file(16), T + 10, T + 20).await, [(T + 10, 20)]);
        assert!(told(&service, file(16), T + 10, T + 19).await.is_empty(), "it is not over");
    });
    bed.assert_clean();
}

/// A clock that is set forward by a year, back by half a day, and right again. What is noted at a
/// wrong time takes the place of one span of the last day at most.
#[test]
fn jumps_of_the_clock_hide_nothing_and_leave_nothing() {
    let mut bed = Bed::new(1, 1 << 20);
    let (year, half_day) = (365 * 86_400 + 20_000, 43_200);
    bed.life(async |service| {
        for at in 0..100 {
            note(&service, SHORT, T + 10 * at, &[(16, 1 + at)]);
        }
        put(&service).await;
        note(&service, SHORT, T + year, &[(16, 7000)]);
        put(&service).await;
        note(&service, SHORT, T - half_day, &[(16, 8000)]);
        put(&service).await;
        note(&service, SHORT, T + 1000, &[(16, 101)]);
        put(&service).await;
        // A second time for a moment that was: the newer one counts.
        note(&service, SHORT, T + 500, &[(16, 9)]);
    });
    bed.assert_clean();
    bed.life(async |service| {
        // What was not written has left with the pool: nobody said that it leaves.
        let seen = told(&service, file(16), T, T + 1010).await;
        assert_eq!(seen.len(), 101);
        assert!(seen.iter().all(|(at_s, writes)| *writes == 1 + (at_s - T) / 10), "{seen:?}");
        assert_eq!(told(&service, file(16), T - half_day, T).await, [(T - half_day, 8000)]);
        assert_eq!(told(&service, file(16), T + year, T + year + 10).await, [(T + year, 7000)]);
        // A year later the same places are another day's.
        assert!(told(&service, file(16), T + year + 480, T + year + 66_000).await.is_empty());
        note(&service, SHORT, T + 365 * 86_400, &[(16, 1)]);
        put(&service).await;
        let left = told(&service, file(16), T, T + 1010).await;
        assert_eq!(left, seen[48..], "it took the place of the first span");
    });
}

#[test]
fn load_is_bounded_and_the_busiest_disks_are_kept() {
    let mut bed = Bed::new(1, 1 << 21);
    let kept = bed.life(async |service| {
        let kept = disks_kept(service.pool.slop_sectors());
        assert_eq!(kept, 32);
        // Each disk is as busy as its number, and does something in some samples only.
        for span in 0..SHORT.slots() + 20 {
            for at in [0, 20, 47] {
                let at_s = T + span * SHORT.span_s() + at * 10;
                let files: Vec<(u64, u64)> = (0..40 + at).map(|of| (16 + of, of * of)).collect();
                note(&service, SHORT, at_s, &files);
            }
            put(&service).await;
        }
        for span in 0..LONG.slots() + 5 {
            let files: Vec<(u64, u64)> = (0..300).map(|of| (16 + of + span % 2, of)).collect();
            note(&service, LONG, T + span * LONG.span_s(), &files);
            put(&service).await;
        }
        kept
    });
    let report = bed.inspect();
    assert!(report.is_clean(), "{report}");
    bed.life(async |service| {
        let end = T + (SHORT.slots() + 20) * SHORT.span_s();
        let day = LoadAsked { grain: SHORT, from_s: T, to_s: end, of: None };
        let records = read(&service, day).await;
        assert_eq!(records.len() as u64, SHORT.slots() * (2 + kept as u64));
        let first = records.iter().map(|record| record.begin_s).min().unwrap();
        assert_eq!(first, end - 86_400, "a day, and no more");
        let of_span = records.iter().filter(|record| record.begin_s == first);
        let mut expected: Vec<LoadOf> = (0..87).map(|of| file(16 + of)).collect();
        let writes =
            |of: u64| [40, 60, 87].iter().filter(|files| of < **files).count() as u64 * of * of;
        expected.sort_by_key(|file| match file {
            LoadOf::File { object, .. } => std::cmp::Reverse(writes(object.0 - 16)),
            _ => unreachable!(),
        });
        expected.truncate(kept);
        expected.extend([LoadOf::Disks, LoadOf::Clients]);
        expected.sort();
        assert_eq!(of_span.map(|record| record.of).collect::<Vec<_>>(), expected);
        let month = LoadAsked { grain: LONG, from_s: T, to_s: T * 2, of: Some(LoadOf::Clients) };
        assert!(read(&service, month).await.is_empty(), "long after");
        let to_s = T + (LONG.slots() + 5) * LONG.span_s();
        let month = LoadAsked { grain: LONG, from_s: T, to_s, of: Some(LoadOf::Clients) };
        assert_eq!(read(&service, month).await.len() as u64, LONG.slots());
    });
}

#[test]
fn load_waits_for_a_txg_and_an_idle_pool_has_one_in_ten_minutes() {
    let mut bed = Bed::new(2, 65536);
    bed.life(async |service| {
        let load = || service.datasets.history().load();
        let is_due = || load().is_due(service.pool.world().now());
        put(&service).await;
        pass(&service, 60).await;
        let before = service.pool.committed_txg();
        // As the daemon does, of a pool that nobody uses.
        for at in 0..359 {
            note(&service, SHORT, T + 10 * at, &[]);
            if is_due() {
                service.pool.background_waits();
            }
            pass(&service, 10).await;
        }
        let txgs = service.pool.committed_txg().0 - before.0;
        assert!((4..=3 * 6).contains(&txgs), "{txgs} txgs in an hour");
        // Reads alone make no txg: what they were is on disk after a minute or two.
        for at in 360..380 {
            note(&service, SHORT, T + 10 * at, &[(16, 5)]);
            if is_due() {
                service.pool.background_waits();
            }
            pass(&service, 10).await;
        }
        assert!(!is_due());
    });
    bed.assert_clean();
}

/// A power cut takes what was not written, and nothing of a pool depends on it.
#[test]
fn a_cut_takes_the_load_of_the_last_minute() {
    let mut bed = Bed::new(2, 65536);
    bed.cut_life(async |service| {
        note(&service, SHORT, T, &[]);
        put(&service).await;
        note(&service, SHORT, T + 10, &[]);
        service.pool.sync().await.unwrap();
        note(&service, SHORT, T + 20, &[]);
    });
    bed.life(async |service| {
        assert_eq!(told(&service, LoadOf::Clients, T, T + 480).await, [(T, 0)]);
    });
    bed.assert_clean();
}

/// No dataset is charged for it: a full pool keeps it too, and serves on.
#[test]
fn load_of_a_full_pool_takes_no_more_than_is_kept_back() {
    for (sides, sectors) in [(1, 65536), (1, 1 << 18), (2, 1 << 18)] {
        let mut bed = Bed::new(sides, sectors);
        bed.life(async |service| {
            let ((large, pages), _) = full(&service).await;
            let files: Vec<(u64, u64)> = (0..200).map(|of| (16 + of, 1 + of)).collect();
            for span in 0..SHORT.slots() + 3 {
                let begin = T + span * SHORT.span_s();
                (0..48).for_each(|at| note(&service, SHORT, begin + 10 * at, &files));
                let long = T + span * LONG.span_s();
                (0..48).for_each(|at| note(&service, LONG, long + 600 * at, &files));
                put(&service).await;
            }
            for page in 0..100 {
                let data = noise(page, 1);
                write(&service, large, page * 7 % pages, &data, Stability::FileSync).await.unwrap();
            }
            let top = service.files.root("tank").unwrap();
            service.files.remove(&root(), top, b"large").await.kept().await.0.unwrap();
            make(&service, top, "new").await;
        });
        bed.assert_clean();
    }
}

#[test]
fn a_damaged_load_keeps_nobody_from_serving() {
    let mut bed = Bed::new(2, 1 << 20);
    bed.life(async |service| {
        // An act, by which the leaf is found.
        let asked = Asked { who: "uid 0".into(), host: "store".into(), act: "scrub tank".into() };
        let history = service.datasets.history();
        history.finish(history.begin(asked), Outcome::Done, String::new(), Vec::new());
        for span in 0..20 {
            let files: Vec<(u64, u64)> = (0..20).map(|of| (16 + of, 1 + of)).collect();
            note(&service, SHORT, T + span * SHORT.span_s(), &files);
            put(&service).await;
        }
    });
    let node = bed.find_history_leaf();
    bed.rot(node);
    bed.life(async |service| {
        let day = LoadAsked { grain: SHORT, from_s: T, to_s: T + 86_400, of: None };
        let failed = service.datasets.history().read_load(&day).await;
        assert!(failed.is_err());
        for span in 0..20 {
            note(&service, SHORT, T + span * SHORT.span_s(), &[(16, 1)]);
            put(&service).await;
        }
        service.datasets.set("tank", "readonly", Some("on")).await.unwrap();
    });
    bed.assert_only(&[Kind::NodeUnreadable, Kind::LeakUnknown, Kind::CopyBad]);
}
