//! Nobody sees an act before it is on disk: no power cut takes back what somebody has seen.

use std::collections::BTreeSet;
use std::time::Duration;

use aquifer_dataset::DatasetError;
use aquifer_files::{FsError, Service, SetAttributes, Stability, dataset_below};
use aquifer_sim::Rng;
use futures_util::future::{Either, select};

use crate::bed::{Bed, find, make, noise, root, write};
use crate::by_text::ByText;
use crate::receive::{STANDBY, receive, snapshot, stream};

/// A dataset's name, its origin, its snapshots and those of its files.
type Seen = (String, Option<String>, Vec<String>, Vec<String>);

fn state(service: &Service) -> Vec<Seen> {
    let (datasets, committed) = (&service.datasets, service.pool.committed_txg());
    let of_each = datasets.all().into_iter().map(|of| {
        let whole = of.snapshots(committed).iter().map(|of| of.record.name.clone()).collect();
        let files = of.file_snapshots(committed);
        let files = files.iter().map(|of| format!("{}@{}", of.record.path, of.record.name));
        (datasets.full_name(&of), datasets.origin_of(&of), whole, files.collect())
    });
    let mut all: Vec<Seen> = of_each.collect();
    all.sort();
    all
}

async fn prepare(service: &Service) -> Vec<u8> {
    service.datasets.create("tank/d", &[]).await.unwrap();
    let file = make(service, service.files.root("tank/d").unwrap(), "disk").await;
    for (salt, name) in [(1, "a"), (2, "z")] {
        write(service, file, 0, &noise(salt, 4), Stability::FileSync).await.unwrap();
        service.files.take_named(&[format!("tank/d:disk@f{name}")]).await.unwrap();
        snapshot(service, &format!("tank/d@{name}")).await;
    }
    service.datasets.clone_snapshot("tank/d@a", "tank/c", &[]).await.unwrap();
    service.datasets.create("tank/p", &[]).await.unwrap();
    stream(service, "tank/d@a").await.unwrap()
}

const ACTS: usize = 10;

async fn act(service: &Service, which: usize, sent: &[u8]) -> Result<(), DatasetError> {
    let datasets = &service.datasets;
    let d = datasets.by_name("tank/d").unwrap();
    let txg = |name: &str| datasets.snapshot_by_name(&format!("tank/d@{name}")).unwrap().1.txg;
    let of_files: BTreeSet<_> = {
        let all = d.file_snapshots(service.pool.committed_txg());
        all.iter().filter(|of| of.record.name == "fz").map(|of| of.id).collect()
    };
    match which {
        0 => datasets.rename("tank/d", "tank/x").await,
        1 => datasets.rename("tank/d", "tank/p/d").await,
        2 => datasets.rename_snapshots(&[(d.clone(), txg("a"))], "b").await,
        3 => datasets.promote("tank/c").await.map(drop),
        4 => {
            let these = [(d.clone(), BTreeSet::from([txg("z")]))];
            datasets.destroy_snapshots(&these, false).await.map(drop)
        }
        5 => datasets.clone_snapshot("tank/d@a", "tank/n", &[]).await,
        6 => datasets.rename_file_snapshots(&d, &of_files, "fn").await.map(drop),
        7 => datasets.destroy_file_snapshots(&[(d.clone(), of_files)]).await,
        8 => datasets.snapshot(&["tank/d@new".into()], false).await.map(drop),
        _ => {
            receive(service, "tank/r", sent, STANDBY).await.unwrap();
            Ok(())
        }
    }
}

#[test]
pub fn what_was_seen_is_there_after_a_power_cut() {
    for which in 0..ACTS {
        let mut bed = Bed::new(1, 65536);
        let sent = bed.life(async |service| prepare(&service).await);
        let (before, took, after) = bed.life(async |service| {
            let (before, begun) = (state(&service), service.pool.world().now());
            act(&service, which, &sent).await.unwrap();
            (before, service.pool.world().now() - begun, state(&service))
        });
        assert_ne!(before, after);
        let mut met = [0; 2];
        for seed in 0..40 {
            let mut rng = Rng::stream(seed, "seen");
            let mut bed = Bed::new(1, 65536);
            let sent = bed.life(async |service| prepare(&service).await);
            let wait = Duration::from_nanos(rng.below(took.as_nanos() as u64 * 5 / 4));
            let seen = bed.cut_life(async |service| {
                let acts = Box::pin(act(&service, which, &sent));
                let world = service.pool.world();
                match select(acts, Box::pin(world.sleep(wait))).await {
                    Either::Left((done, rest)) => {
                        done.unwrap();
                        rest.await;
                        state(&service)
                    }
                    Either::Right(((), _)) => state(&service),
                }
            });
            let durable = bed.life(async |service| state(&service));
            assert!(seen == before || seen == after, "act {which}, seed {seed}: {seen:?}");
            assert!(durable == before || durable == after, "act {which}: {durable:?}");
            assert!(seen == before || durable == after, "act {which}, seed {seed}: seen too early");
            met[usize::from(seen == after)] += 1;
        }
        assert!(met.into_iter().min() > Some(0), "act {which}: {met:?}");
    }
}

/// A name that a dataset gives up is not free before that is on disk.
#[test]
pub fn a_name_is_given_up_on_disk_first() {
    let each = [false, true].into_iter().flat_map(|of| (0..30).map(move |seed| (of, seed)));
    for (destroys, seed) in each {
        let mut bed = Bed::new(1, 65536);
        bed.life(async |service| service.datasets.create("tank/d", &[]).await.unwrap());
        let mut rng = Rng::stream(seed, "given up");
        bed.cut_life(async |service| {
            let acts = async {
                match destroys {
                    true => service.datasets.destroy("tank/d", false).await.unwrap(),
                    false => service.datasets.rename("tank/d", "tank/e").await.unwrap(),
                }
            };
            let world = service.pool.world();
            let top = service.files.root("tank").unwrap();
            let set = SetAttributes::default();
            // As soon as it can: then the power is cut.
            let made = async {
                loop {
                    world.sleep(Duration::from_micros(1 + rng.below(50))).await;
                    let made = service.files.mkdir(&root(), top, b"d", &set).await.kept().await.0;
                    match made {
                        Ok(_) => break,
                        Err(error) => assert_eq!(error, FsError::Exists),
                    }
                }
            };
            if let Either::Left(((), made)) = select(Box::pin(acts), Box::pin(made)).await {
                made.await;
            }
        });
        bed.life(async |service| {
            assert_eq!(service.datasets.by_name("tank/d").map(|of| of.id), None, "seed {seed}");
            let made = find(&service, "tank", "d").await.unwrap();
            assert_eq!(dataset_below(made), None, "what was answered is there");
        });
    }
}
