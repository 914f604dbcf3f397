//! Damage that a person has accepted stays accepted: over restarts, reads and scrubs.

use std::time::Duration;

use aquifer_dataset::DatasetError;
use aquifer_files::{FsError, Service, Stability};
use aquifer_inspect::Kind;
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::scrub::ScrubState;
use aquifer_ondisk::types::ROOT_DIRECTORY;
use aquifer_pool::PoolError;

use crate::bed::{Bed, find, make, noise, read, write};

const DAMAGE: [Kind; 5] =
    [Kind::DamageRemembered, Kind::NodeUnreadable, Kind::DataBad, Kind::LeakUnknown, Kind::Orphan];

fn is_io<T>(result: &Result<T, FsError>) -> bool {
    matches!(result, Err(FsError::Pool(PoolError::Read(_) | PoolError::Corrupt(_))))
}

async fn scrub(service: &Service) -> u64 {
    service.files.start_scrub().await.unwrap();
    for _ in 0..10_000 {
        let record = service.files.scrub_status().unwrap();
        if record.state == ScrubState::Finished {
            return record.unreadable_blocks;
        }
        service.pool.world().sleep(Duration::from_millis(100)).await;
    }
    panic!("not finished");
}

fn known(service: &Service) -> Vec<(ObjectId, Vec<(u64, u64)>)> {
    let damages = service.datasets.damages().into_iter();
    damages.map(|damage| (damage.object, damage.ranges)).collect()
}

#[test]
fn a_root_directory_taken_as_it_is_does_not_come_back() {
    let mut bed = Bed::new(2, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/vms", &[]).await.unwrap();
        let top = service.files.root("tank/vms").unwrap();
        for at in 0..100 {
            make(&service, top, &format!("a file with a long name, number {at}")).await;
        }
    });
    let image = bed.disks[0].durable_image();
    let mut nodes = Vec::new();
    image.for_each(|sector, page| {
        let bytes = page.as_slice();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        if &bytes[..4] == b"AQTN" && bytes[6..8] == [3, 0] && word(24) == ROOT_DIRECTORY.0 {
            nodes.push(sector);
        }
    });
    nodes.into_iter().for_each(|sector| bed.rot(sector));
    let look = async |service: &Service| {
        let names: Vec<_> =
            (0..100).map(|at| format!("a file with a long name, number {at}")).collect();
        let mut failed = 0;
        for name in names {
            failed += u64::from(is_io(&find(service, "tank/vms", &name).await));
        }
        failed
    };
    bed.life(async |service| {
        assert!(look(&service).await > 0);
        assert_eq!(known(&service), [(ROOT_DIRECTORY, vec![])]);
        assert_eq!(service.datasets.damaged_objects(), 1);
        service.files.clear_damage("tank/vms", ROOT_DIRECTORY).await.unwrap();
        assert_eq!(known(&service), []);
        // Nor does the next read tell it again.
        assert!(look(&service).await > 0);
        assert_eq!(known(&service), []);
    });
    bed.cut_life(async |service| {
        assert_eq!((known(&service), service.datasets.damaged_objects()), (vec![], 0));
        assert!(look(&service).await > 0);
        assert!(scrub(&service).await > 0, "a scrub still counts what is lost");
        assert_eq!((known(&service), service.datasets.damaged_objects()), (vec![], 0));
    });
    bed.assert_only(&DAMAGE);
}

#[test]
fn what_a_file_loses_after_that_is_told() {
    let mut bed = Bed::new(2, 65536);
    let file = bed.life(async |service| {
        service.datasets.create("tank/vms", &[]).await.unwrap();
        let top = service.files.root("tank/vms").unwrap();
        let file = make(&service, top, "disk.raw").await;
        write(&service, file, 0, &noise(1, 64), Stability::Unstable).await.unwrap();
        file
    });
    let rot = |bed: &mut Bed, page: usize| {
        let content = noise(1, 64)[page * 4096..][..4096].to_vec();
        let mut found = Vec::new();
        bed.disks[0].durable_image().for_each(|sector, page| {
            if page.as_slice() == content {
                found.push(sector);
            }
        });
        assert_eq!(found.len(), 1);
        bed.rot(found[0]);
    };
    rot(&mut bed, 3);
    bed.life(async |service| {
        assert!(is_io(&read(&service, file, 3).await));
        assert_eq!(known(&service), [(file.object, vec![(3, 4)])]);
        service.files.clear_damage("tank/vms", file.object).await.unwrap();
        assert_eq!(known(&service), []);
        // What was never known cannot be accepted.
        let missing = service.files.clear_damage("tank/vms", ObjectId(999)).await;
        assert!(matches!(missing, Err(DatasetError::NotFound(_))), "{missing:?}");
    });
    rot(&mut bed, 9);
    bed.life(async |service| {
        assert!(is_io(&read(&service, file, 3).await));
        assert_eq!(known(&service), []);
        assert!(is_io(&read(&service, file, 9).await));
        assert_eq!(known(&service), [(file.object, vec![(3, 4), (9, 10)])]);
        service.files.clear_damage("tank/vms", file.object).await.unwrap();
        assert_eq!(scrub(&service).await, 2);
        assert_eq!(known(&service), []);
        // Written over, it is whole: what rots there later is told.
        write(&service, file, 3, &noise(1, 64)[3 * 4096..4 * 4096], Stability::FileSync)
            .await
            .unwrap();
        write(&service, file, 9, &noise(2, 1), Stability::FileSync).await.unwrap();
        service.pool.sync().await.unwrap();
        assert!(service.datasets.damages_remembered().is_empty());
    });
}
