//! Replays that span several txgs: background work must not touch objects that later records name.

use aquifer_files::change::{self, Change};
use aquifer_files::{FileHandle, FsError, Service, SetAttributes, Stability};
use aquifer_pool::{Demand, Lane, Memory, SpaceClass};
use futures_util::future::{join_all, join3};

use aquifer_sim::DiskConfig;

use crate::bed::{Bed, find, make, noise, read, root, write};

const GIB: u64 = 1 << 30;
/// The smallest limit that a pool takes: a replay of more than an eighth of it spans several txgs.
const LITTLE_MEMORY_BYTES: u64 = 64 << 20;

fn sized(bytes: u64) -> SetAttributes {
    SetAttributes { size: Some(bytes), ..SetAttributes::default() }
}

/// A file with this many extents of a page each, on disk.
async fn scattered(service: &Service, directory: FileHandle, name: &str, extents: u64) {
    let file = make(service, directory, name).await;
    let page = noise(1, 1);
    for at in 0..extents {
        write(service, file, 2 * at, &page, Stability::Unstable).await.unwrap();
    }
    service.pool.sync().await.unwrap();
}

/// Stable writes that fill the log: `count` of 32 KiB each.
async fn fill_log(service: &Service, file: FileHandle, count: u64) {
    let data = noise(2, 8);
    let writes = (0..count).map(|at| {
        let data = &data;
        async move { write(service, file, 8 * at, data, Stability::FileSync).await.unwrap() }
    });
    join_all(writes).await;
}

async fn four_syncs(service: &Service) {
    for _ in 0..4 {
        service.pool.sync().await.unwrap();
    }
}

/// A tail that the replay cuts off gets an id. It must not be that of a file made later in the log.
#[test]
pub fn a_tail_cut_off_in_a_replay_takes_no_id_that_the_log_still_names() {
    let mut bed = Bed::new(1, 4 * GIB / 4096);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        scattered(&service, top, "long", 600).await;
        make(&service, top, "bulk").await;
    });
    let late = bed.short_life(async |service| {
        let long = find(&service, "tank", "long").await.unwrap();
        let bulk = find(&service, "tank", "bulk").await.unwrap();
        service.files.setattr(&root(), long, &sized(0), None).await.kept().await.0.unwrap();
        fill_log(&service, bulk, 400).await;
        let late = make(&service, service.files.root("tank").unwrap(), "late").await;
        write(&service, late, 0, &noise(3, 1), Stability::FileSync).await.unwrap();
        late
    });
    bed.options.memory = Memory::new(LITTLE_MEMORY_BYTES);
    bed.life(async |service| {
        four_syncs(&service).await;
        assert_eq!(find(&service, "tank", "late").await, Ok(late));
        assert_eq!(read(&service, late, 0).await, Ok(noise(3, 1)));
    });
    bed.assert_clean();
}

/// Not in memory after a restart.
const COLD_PAGE: u64 = 100_000;

/// A COMMIT that waits for a file behind its removal logs none of its data.
#[test]
pub fn a_commit_overtaken_by_a_removal_leaves_a_log_that_can_be_replayed() {
    let mut bed = Bed::new(1, 4 * GIB / 4096);
    bed.life(async |service| {
        let doomed = make(&service, service.files.root("tank").unwrap(), "doomed").await;
        write(&service, doomed, COLD_PAGE, &noise(1, 1), Stability::FileSync).await.unwrap();
    });
    bed.short_life(async |service| {
        let top = service.files.root("tank").unwrap();
        let doomed = find(&service, "tank", "doomed").await.unwrap();
        // Separate pages, so that they go through the log: 32 MiB, four txgs of the replay.
        let page = noise(1, 1);
        for at in 0..8192 {
            write(&service, doomed, 2 * at, &page, Stability::Unstable).await.unwrap();
        }
        // The first call holds the file for as long as it takes to read a page from disk.
        let (cred, offset) = (root(), COLD_PAGE * 4096 + 1);
        let write = service.files.write(&cred, doomed, offset, b"part", Stability::Unstable);
        let remove = async { service.files.remove(&cred, top, b"doomed").await.kept().await };
        let commit = async { service.files.commit(&cred, doomed, 0, 0).await.kept().await };
        let (written, removed, committed) = join3(write, remove, commit).await;
        assert_eq!((written.0.map(drop), removed.0), (Ok(()), Ok(())));
        assert!(matches!(committed.0, Ok(()) | Err(FsError::Stale)), "{:?}", committed.0);
    });
    bed.options.memory = Memory::new(LITTLE_MEMORY_BYTES);
    bed.life(async |service| {
        four_syncs(&service).await;
        assert_eq!(find(&service, "tank", "doomed").await, Err(FsError::NotFound));
    });
    bed.assert_clean();
}

/// The background empties a destroyed dataset, but not while the log still names it.
#[test]
pub fn what_a_replay_still_names_of_a_destroyed_dataset_stays_until_it_is_done() {
    let mut bed = Bed::new(1, 4 * GIB / 4096);
    bed.life(async |service| {
        service.datasets.create("tank/gone", &[]).await.unwrap();
        let top = service.files.root("tank/gone").unwrap();
        let file = make(&service, top, "file").await;
        write(&service, file, 0, &noise(1, 1), Stability::FileSync).await.unwrap();
        make(&service, service.files.root("tank").unwrap(), "bulk").await;
    });
    bed.short_life(async |service| {
        let gone = service.datasets.by_name("tank/gone").unwrap();
        let file = gone.cached(find(&service, "tank/gone", "file").await.unwrap().object);
        let change = Change::Inode(file.unwrap().inode());
        let bulk = find(&service, "tank", "bulk").await.unwrap();
        service.datasets.destroy("tank/gone", false).await.unwrap();
        // On another thread a change may find the dataset alive. It may then enter the txg after
        // the one in which the dataset goes, before the mark is set. This code does what that
        // thread would do.
        let log = async || {
            let demand = Demand {
                dirty_bytes: 4096,
                sectors: 64,
                log_bytes: 8192,
                class: SpaceClass::Remove,
                lane: Lane::Sparse,
            };
            let admission = service.pool.admit(demand).await.unwrap();
            let (txg, ticket) = {
                let hold = service.pool.hold(admission).unwrap();
                let txg = hold.txg();
                let (record, pages) =
                    change::record(&gone, txg, txg, std::slice::from_ref(&change), None);
                (txg, service.pool.log().append(&hold, record, pages, Vec::new()))
            };
            ticket.durable().await.unwrap();
            txg
        };
        let first = log().await;
        fill_log(&service, bulk, 1200).await;
        assert_eq!(log().await, first, "all of it in one txg, which the replay takes in several");
    });
    bed.options.memory = Memory::new(LITTLE_MEMORY_BYTES);
    bed.life(async |service| {
        four_syncs(&service).await;
        assert_eq!(service.datasets.freeing_bytes(), 0);
        assert!(service.datasets.by_name("tank/gone").is_none());
    });
    bed.assert_clean();
}

/// The reaper never frees a file with a name, whatever the list of orphans says.
#[test]
fn the_reaper_leaves_what_has_a_name() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let file = make(&service, service.files.root("tank").unwrap(), "named").await;
        write(&service, file, 0, &noise(1, 3), Stability::FileSync).await.unwrap();
        service.pool.sync().await.unwrap();
        service.datasets.by_name("tank").unwrap().mark_orphan(file.object);
        four_syncs(&service).await;
        assert!(!service.datasets.has_background_work());
        assert_eq!(read(&service, file, 2).await.unwrap(), noise(1, 3)[8192..]);
    });
    bed.assert_clean();
}

/// Sectors of the bed's log device: its log has many segments.
const LOG_SECTORS: u64 = GIB / 4096;

/// A pool with a log device, killed behind so many stable writes, one after the other, each of
/// `pages`. Each is a batch.
fn with_long_log(writes: u64, pages: usize) -> (Bed, FileHandle) {
    let quick = DiskConfig::default();
    let mut bed = Bed::with_log(LOG_SECTORS, quick, quick);
    let file = bed.short_life(async |service| {
        let file = make(&service, service.files.root("tank").unwrap(), "disk").await;
        for at in 0..writes {
            let data = noise(at, pages);
            let at = at * pages as u64;
            write(&service, file, at, &data, Stability::FileSync).await.unwrap();
        }
        file
    });
    (bed, file)
}

/// Imports the pool. Returns how often the import read from the log device.
fn reads_of_import(bed: &mut Bed, file: FileHandle, (writes, pages): (u64, usize)) -> u64 {
    let log = bed.disks[1].clone();
    let before = log.counters();
    let reads = bed.life(async move |service| {
        let reads = log.counters().reads - before.reads;
        assert!(service.report.log_batches as u64 >= writes, "{:?}", service.report);
        for at in [0, writes / 2, writes - 1] {
            let page = read(&service, file, at * pages as u64).await.unwrap();
            assert_eq!(page, noise(at, pages)[..4096], "write {at}");
        }
        reads
    });
    bed.assert_clean();
    reads
}

#[test]
fn an_import_reads_the_log_in_large_pieces() {
    let shape = (1500, 1);
    let (mut bed, file) = with_long_log(shape.0, shape.1);
    let reads = reads_of_import(&mut bed, file, shape);
    // Labels and uberblocks, three segments, and the search behind the end.
    assert!(reads <= 60, "{reads} reads");
}

/// More than an import keeps in memory: it reads the payload again for the replay.
#[test]
fn a_log_larger_than_what_is_kept_is_read_twice_in_large_pieces() {
    let shape = (400, 8);
    let (mut bed, file) = with_long_log(shape.0, shape.1);
    bed.options.memory = Memory::new(LITTLE_MEMORY_BYTES);
    let reads = reads_of_import(&mut bed, file, shape);
    assert!(reads <= 80, "{reads} reads");
    let left = bed.options.memory.charged_bytes();
    assert!(left < LITTLE_MEMORY_BYTES / 8, "{left} bytes are charged still");
}

/// A sector that cannot be read hides none of the batches before it in its piece.
#[test]
fn an_import_reads_singly_what_it_cannot_read_as_a_whole() {
    let shape = (300, 1);
    let (mut bed, file) = with_long_log(shape.0, shape.1);
    let mut last = None;
    bed.disks[1].durable_image().for_each(|sector, page| {
        let is_batch = page.as_slice().starts_with(b"AQLOGBAT");
        last = if is_batch { Some(sector) } else { last };
    });
    // Behind the end of the chain, in its last segment.
    let last = last.expect("no batch");
    bed.disks[1].mark_unreadable(last + 20..last + 21);
    let reads = reads_of_import(&mut bed, file, shape);
    assert!((300..1500).contains(&reads), "{reads} reads");
}
