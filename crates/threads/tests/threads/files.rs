//! Writers beside each other, each of which knows the right result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aquifer_checker::bed::Shape;
use aquifer_files::{
    CreateHow, Credentials, FileHandle, FsError, Service, SetAttributes, Stability,
};
use aquifer_sim::Rng;
use aquifer_threads::bed::{Base, Bed, DATASET, base};
use aquifer_threads::block_on;
use aquifer_threads::run::permute;
use aquifer_threads::schedule::seed;

const QUOTA: u64 = 256 << 10;
/// No thread waits for a timer of the pool: idle time comes only from disks and the throttle.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// A dataset with a quota, beside the other.
pub static BASE: Base = LazyLock::new(|| {
    base(Shape::SingleLog, async |service| {
        let with = [("quota".into(), QUOTA.to_string()), ("compression".into(), "off".into())];
        service.datasets.create("tank/small", &with).await.unwrap();
    })
});

async fn make(service: &Service, dataset: &str, name: &str) -> FileHandle {
    let root = service.files.root(dataset).unwrap();
    let how = CreateHow::Guarded(SetAttributes::default());
    let made =
        service.files.create(&Credentials::root(), root, name.as_bytes(), how).await.kept().await.0;
    made.unwrap().handle
}

/// Small stable writes: each waits for its record alone.
pub fn write_stable() {
    block_on(async {
        let bed = Bed::open(&BASE).await;
        let thread = |at: u64| {
            let service = bed.service.clone();
            bed.world.thread(async move || {
                let cred = Credentials::root();
                let file = make(&service, DATASET, &format!("f{at}")).await;
                for turn in 0..6 {
                    let data = [turn; 4096];
                    let offset = u64::from(turn) * 4096;
                    let how = Stability::FileSync;
                    service.files.write(&cred, file, offset, &data, how).await.0.unwrap();
                }
            })
        };
        let threads: Vec<_> = (0..3).map(thread).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let idle = bed.world.idle();
        assert!(idle < IDLE_MAX, "{idle:?}: somebody waited for a timer");
        bed.close().await;
    });
}

/// Writers into one quota, until it is used up.
pub fn share_a_quota() {
    block_on(async {
        let bed = Bed::open(&BASE).await;
        // Before a writer runs: two may use the quota up before the third begins, and then it
        // makes no file.
        let mut files = Vec::new();
        for at in 0..3 {
            files.push(make(&bed.service, "tank/small", &format!("f{at}")).await);
        }
        let thread = |(at, file)| {
            let service = bed.service.clone();
            bed.world.thread(async move || {
                let mut rng = Rng::stream(seed(), &format!("quota {at}"));
                let cred = Credentials::root();
                let mut offset = 0;
                loop {
                    let mut data = vec![0; 4096 * (1 + rng.index(10))];
                    rng.fill(&mut data);
                    let how = if rng.coin() { Stability::FileSync } else { Stability::Unstable };
                    match service.files.write(&cred, file, offset, &data, how).await.0 {
                        Ok(_) => offset += data.len() as u64,
                        Err(error) => {
                            assert_eq!(error, FsError::Quota);
                            return offset;
                        }
                    }
                }
            })
        };
        let threads: Vec<_> = files.into_iter().enumerate().map(thread).collect();
        let written: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(written <= QUOTA, "{written} bytes in a quota of {QUOTA}");
        assert!(written > QUOTA - 3 * 10 * 4096, "{written} bytes of {QUOTA}, and no more");
        bed.service.pool.sync().await.unwrap();
        let small = bed.service.datasets.by_name("tank/small").unwrap();
        assert_eq!(bed.service.datasets.used_bytes(&small), written);
        bed.close().await;
    });
}

/// Writers of a dataset that an administrator takes out of the log and back, and a kill. What was
/// acknowledged after it was back must be there, and the log must replay.
pub fn change_the_mind() {
    block_on(async {
        let bed = Bed::open(&BASE).await;
        let killed = Arc::new(AtomicBool::new(false));
        let thread = |at: u8| {
            let (service, killed) = (bed.service.clone(), killed.clone());
            bed.world.thread(async move || {
                let cred = Credentials::root();
                // Until the kill; but not for ever if the administrator never gets a turn.
                for turn in 0..60 {
                    if killed.load(Ordering::SeqCst) {
                        return;
                    }
                    let file = make(&service, DATASET, &format!("f{at}.{turn}")).await;
                    let how = Stability::FileSync;
                    service.files.write(&cred, file, 0, &[at; 4096], how).await.0.unwrap();
                }
            })
        };
        let threads: Vec<_> = (0..2).map(thread).collect();
        let mut rng = Rng::stream(seed(), "mind");
        for _ in 0..1 + rng.below(2) {
            bed.service.datasets.set(DATASET, "sync", Some("disabled:scratch")).await.unwrap();
            // It takes effect with the second txg from there.
            for _ in 0..rng.below(4) {
                bed.service.pool.sync().await.unwrap();
            }
            bed.service.datasets.set(DATASET, "sync", Some("standard")).await.unwrap();
        }
        let last = make(&bed.service, DATASET, "last").await;
        let (cred, how) = (Credentials::root(), Stability::FileSync);
        bed.service.files.write(&cred, last, 0, &[7; 4096], how).await.0.unwrap();
        for _ in 0..rng.below(8) {
            bed.world.a_moment().await;
        }
        let (images, ()) = bed.as_killed(|| ());
        killed.store(true, Ordering::SeqCst);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let idle = bed.world.idle();
        assert!(idle < IDLE_MAX, "{idle:?}: somebody waited for a timer");
        bed.close().await;
        let bed = Bed::open(&images).await;
        let (cred, root) = (Credentials::root(), bed.service.files.root(DATASET).unwrap());
        let found = bed.service.files.lookup(&cred, root, b"last").await.0.unwrap();
        assert_eq!(found.size, 4096);
        bed.close().await;
    });
}

#[test]
fn stable_writes_wait_for_their_records_alone() {
    permute(&[&BASE], write_stable, 40);
}

#[test]
fn a_quota_is_shared() {
    permute(&[&BASE], share_a_quota, 30);
}

#[test]
fn a_dataset_leaves_the_log_and_comes_back() {
    permute(&[&BASE], change_the_mind, 20);
}

/// Each within some ten times the schedules that it took.
#[test]
fn waits_without_end_are_found() {
    use aquifer_blockio::sabotage::Rule;
    use aquifer_threads::run::must_be_found;
    must_be_found(&[&BASE], Rule::WaitersComeFirst, write_stable, 500);
    must_be_found(&[&BASE], Rule::SenderEndsAtOnce, write_stable, 1_500);
    must_be_found(&[&BASE], Rule::PromisesInTurn, share_a_quota, 500);
}
