//! Savings of compression: counted with what is written, shared, kept by snapshots and freed. Each
//! bed ends with an inspection, which sums all of it from the extents.

use aquifer_blockio::{Disk, Page};
use aquifer_dataset::RollbackOptions;
use aquifer_files::{FileHandle, Service, Stability};
use aquifer_ondisk::Space;
use aquifer_ondisk::config::{FEATURE_LOGICAL_SPACE, Label};
use aquifer_ondisk::layout::{CONFIG_OFFSET, CONFIG_SECTORS, LABELS, label_sector};

use crate::bed::{Bed, find, make, noise, read, root, settle, snapshots_named, write};
use crate::by_text::ByText;

const PAGE: u64 = 4096;
const GENTLY: RollbackOptions = RollbackOptions { destroy_later: false, force: false };

/// Content of which eight pages take one sector.
fn soft(pages: usize) -> Vec<u8> {
    vec![7; pages * 4096]
}

async fn fill(service: &Service, file: FileHandle, page: u64, content: &[u8]) {
    write(service, file, page, content, Stability::Unstable).await.unwrap();
    service.pool.sync().await.unwrap();
}

/// A dataset with a file of 64 pages in 8 sectors.
async fn soft_file(service: &Service) -> FileHandle {
    service.datasets.create("tank/d", &[]).await.unwrap();
    let file = make(service, service.files.root("tank/d").unwrap(), "disk").await;
    fill(service, file, 0, &soft(64)).await;
    file
}

/// In pages: what it refers to, and what compression saves of it.
fn refers(service: &Service, name: &str) -> (u64, u64) {
    let Space { bytes, saved_bytes } = service.datasets.by_name(name).unwrap().refer();
    (bytes / PAGE, saved_bytes / PAGE)
}

/// In pages: what compression saves of all that it owns, snapshots included.
fn saves(service: &Service, name: &str) -> u64 {
    service.datasets.by_name(name).unwrap().own().saved_bytes / PAGE
}

#[test]
fn what_compression_saves_is_counted() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let file = soft_file(&service).await;
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((8, 56), 56));
        // Parts of an extent are overwritten: it takes its sector, and saves what it did.
        fill(&service, file, 3, &noise(1, 2)).await;
        assert_eq!(refers(&service, "tank/d"), (10, 56));
        // The rest of it: nothing refers to it any more.
        fill(&service, file, 0, &noise(2, 8)).await;
        assert_eq!(refers(&service, "tank/d"), (7 + 8, 49));
        // Content that does not compress.
        fill(&service, file, 8, &noise(3, 56)).await;
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((64, 0), 0));
        let info = service.datasets.info(&service.datasets.by_name("tank/d").unwrap());
        assert!(info.counts_saved && info.used.logical_bytes() == info.used.bytes);
        fill(&service, file, 0, &soft(64)).await;
    });
    // After an import too, and when the file goes.
    bed.life(async |service| {
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((8, 56), 56));
        let above = service.datasets.info(&service.datasets.by_name("tank").unwrap());
        assert_eq!(above.used.saved_bytes, 56 * PAGE, "datasets below count too");
        let top = service.files.root("tank/d").unwrap();
        service.files.remove(&root(), top, b"disk").await.kept().await.0.unwrap();
        settle(&service, 5).await;
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((0, 0), 0));
    });
    bed.assert_clean();
}

#[test]
fn snapshots_keep_what_compression_saved() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let file = soft_file(&service).await;
        service.datasets.snapshot(&["tank/d@a".into()], false).await.unwrap();
        fill(&service, file, 0, &noise(1, 64)).await;
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((64, 0), 56));
        service.datasets.clone_snapshot("tank/d@a", "tank/c", &[]).await.unwrap();
        assert_eq!((refers(&service, "tank/c"), saves(&service, "tank/c")), ((8, 56), 0));
        // The clone gives half of it up, and owns what it writes.
        let copy = find(&service, "tank/c", "disk").await.unwrap();
        fill(&service, copy, 0, &soft(32)).await;
        assert_eq!((refers(&service, "tank/c"), saves(&service, "tank/c")), ((8, 56), 28));
        service.datasets.promote("tank/c").await.unwrap();
        service.pool.sync().await.unwrap();
    });
    bed.assert_clean();
    bed.life(async |service| {
        assert_eq!((saves(&service, "tank/c"), saves(&service, "tank/d")), (28, 56));
        service.datasets.destroy("tank/c", false).await.unwrap_err();
    });
    bed.assert_clean();
}

#[test]
fn a_rollback_brings_it_back() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let file = soft_file(&service).await;
        service.datasets.snapshot(&["tank/d@a".into()], false).await.unwrap();
        fill(&service, file, 0, &noise(1, 64)).await;
        service.datasets.rollback("tank/d@a", GENTLY).await.unwrap();
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((8, 56), 56));
        settle(&service, 10).await;
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((8, 56), 56));
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let listed = dataset.snapshots(service.pool.committed_txg());
        assert_eq!(listed[0].record.refer().saved_bytes, 56 * PAGE);
        service
            .datasets
            .destroy_snapshots(&[(dataset, [listed[0].txg].into())], false)
            .await
            .unwrap();
        settle(&service, 10).await;
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((8, 56), 56));
    });
    bed.assert_clean();
}

#[test]
fn clones_of_files_share_it() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        soft_file(&service).await;
        service.files.take_named(&["tank/d:disk@v1".into()]).await.unwrap();
        let to = ["tank/d:copy".to_string()];
        service.files.clone_named("tank/d:disk@v1", &to).await.unwrap();
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((16, 112), 56));
        let copy = find(&service, "tank/d", "copy").await.unwrap();
        let attributes = service.files.getattr(copy).await.unwrap();
        assert_eq!(attributes.rdev, (0, 0), "no number of a device");
        fill(&service, copy, 0, &soft(32)).await;
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((16, 112), 84));
        let (dataset, found) = snapshots_named(&service.files, "tank/d:disk@v1").await.unwrap();
        service.datasets.rollback_files(&dataset, &[found[0].id], GENTLY).await.unwrap();
        settle(&service, 5).await;
        assert_eq!(saves(&service, "tank/d"), 84);
    });
    bed.assert_clean();
    bed.life(async |service| {
        assert_eq!(saves(&service, "tank/d"), 84);
        let top = service.files.root("tank/d").unwrap();
        service.files.remove(&root(), top, b"copy").await.kept().await.0.unwrap();
        settle(&service, 10).await;
        assert_eq!((refers(&service, "tank/d"), saves(&service, "tank/d")), ((8, 56), 56));
    });
    bed.assert_clean();
}

/// Makes the pool one of an earlier release: its labels do not name the feature.
fn counts_nothing(bed: &mut Bed) {
    let disks = bed.disks.clone();
    let edit = async move {
        for disk in &disks {
            for index in 0..LABELS {
                let sector = label_sector(index, disk.sectors()) + CONFIG_OFFSET;
                let pages = disk.read(sector, CONFIG_SECTORS as usize).await.unwrap();
                let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_vec()).collect();
                let mut label = Label::decode(&bytes).unwrap();
                let before = label.config.features_write.len();
                label.config.features_write.retain(|name| name != FEATURE_LOGICAL_SPACE);
                assert_eq!(label.config.features_write.len() + 1, before);
                let pages = label.encode().unwrap().chunks(4096).map(Page::with_prefix).collect();
                disk.write_durable(sector, pages).await.unwrap();
            }
        }
    };
    bed.sim.run_until(edit).unwrap();
}

/// A pool of an earlier release counts nothing, writes nothing that release does not know, and
/// works on.
#[test]
fn an_old_pool_stays_as_it_is() {
    let mut bed = Bed::new(1, 65536);
    counts_nothing(&mut bed);
    bed.life(async |service| {
        let file = soft_file(&service).await;
        service.datasets.snapshot(&["tank/d@a".into()], false).await.unwrap();
        service.files.take_named(&["tank/d:disk@v1".into()]).await.unwrap();
        let to = ["tank/d:copy".to_string()];
        service.files.clone_named("tank/d:disk@v1", &to).await.unwrap();
        fill(&service, file, 0, &noise(1, 40)).await;
        service.datasets.clone_snapshot("tank/d@a", "tank/c", &[]).await.unwrap();
        for name in ["tank/d", "tank/c"] {
            let info = service.datasets.info(&service.datasets.by_name(name).unwrap());
            assert!(!info.counts_saved);
            assert_eq!((info.used.saved_bytes, info.refer.saved_bytes), (0, 0), "{name}");
        }
        let copy = find(&service, "tank/c", "disk").await.unwrap();
        fill(&service, copy, 0, &noise(2, 40)).await;
        assert_eq!(read(&service, copy, 50).await.unwrap(), soft(1));
        let dataset = service.datasets.by_name("tank/d").unwrap();
        assert_eq!(dataset.own().saved_bytes, 0);
    });
    // Inspected as a pool that must count nothing.
    bed.assert_clean();
}
