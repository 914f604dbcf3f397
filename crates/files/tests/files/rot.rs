//! Rot in the large: what both sides of a mirror have lost costs a scrub one look, and the log a
//! line a minute.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_dataset::DamageKind;
use aquifer_files::{Service, Stability};
use aquifer_ondisk::scrub::{ScrubRecord, ScrubState};
use aquifer_sim::{Corruption, Vanish};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::bed::{Bed, find, make, noise, read, write};
use crate::by_text::ByText;

/// Counts the events of the log by class. Each of them names its pool, a dataset or a disk.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<BTreeMap<String, u64>>>);

impl Log {
    fn of(&self, class: &str) -> u64 {
        self.0.lock().unwrap().get(class).copied().unwrap_or(0)
    }

    fn lines(&self) -> u64 {
        self.0.lock().unwrap().values().sum()
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut names = ["pool", "dataset", "leaf"].into_iter();
        let class = fields.0.get("class").cloned().unwrap_or_default();
        let has_name = names.any(|name| fields.0.contains_key(name));
        assert!(class.is_empty() || has_name, "{:?}", fields.0);
        *self.0.lock().unwrap().entry(class).or_default() += 1;
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Runs with a log of its own.
fn logged<T>(work: impl FnOnce() -> T) -> (T, Log) {
    let log = Log::default();
    (tracing::subscriber::with_default(log.clone(), work), log)
}

/// Pages that are written at a time, each of other noise.
const AT_ONCE: usize = 256;

/// Makes a file of noise in the dataset `tank/vms`.
async fn populate(service: &Service, name: &str, pages: usize) {
    let top = service.files.root("tank/vms").unwrap();
    let file = make(service, top, name).await;
    for at in (0..pages).step_by(AT_ONCE) {
        let data = noise(at as u64, AT_ONCE.min(pages - at));
        write(service, file, at as u64, &data, Stability::Unstable).await.unwrap();
    }
    service.pool.sync().await.unwrap();
}

/// The sectors of a disk that hold pages of a file that [`populate`] made.
fn content(bed: &Bed, pages: usize) -> Vec<u64> {
    let sum = |page: &[u8]| aquifer_ondisk::codec::checksum128(page);
    let written: HashSet<u128> = (0..pages)
        .step_by(AT_ONCE)
        .flat_map(|at| {
            let data = noise(at as u64, AT_ONCE.min(pages - at));
            data.chunks(4096).map(sum).collect::<Vec<_>>()
        })
        .collect();
    let mut found = Vec::new();
    bed.disks[0].durable_image().for_each(|sector, page| {
        if written.contains(&sum(page.as_slice())) {
            found.push(sector);
        }
    });
    found
}

/// Scrubs. Returns the record at the end, and all that was shown on the way.
async fn scrub(service: &Service) -> (ScrubRecord, Vec<ScrubRecord>) {
    service.files.start_scrub().await.unwrap();
    let mut shown = Vec::new();
    for _ in 0..1_000_000 {
        let record = service.files.scrub_status().unwrap();
        if record.state == ScrubState::Finished {
            return (record, shown);
        }
        shown.push(record);
        service.pool.world().sleep(Duration::from_millis(1)).await;
    }
    panic!("the scrub does not end: {:?}", service.files.scrub_status());
}

/// Progress and errors as they are: never all before the end, never less than before.
fn assert_honest(shown: &[ScrubRecord], end: &ScrubRecord) {
    for record in shown {
        assert!(record.examined_bytes < record.total_bytes, "{record:?}");
        assert!(record.unreadable_blocks <= end.unreadable_blocks, "{record:?}");
    }
    let grow = |of: fn(&ScrubRecord) -> u64| shown.is_sorted_by_key(of);
    assert!(grow(|record| record.examined_bytes) && grow(|record| record.unreadable_blocks));
}

fn errors(service: &Service) -> Vec<(u64, u64)> {
    let status = service.pool.status();
    let leaves = status.vdevs.iter().flat_map(|vdev| &vdev.leaves);
    leaves.map(|leaf| (leaf.read_errors, leaf.checksum_errors)).collect()
}

/// Reads and sectors that each disk was asked for so far.
fn asked(bed: &Bed) -> Vec<(u64, u64)> {
    let counters = bed.disks.iter().map(|disk| disk.counters());
    counters.map(|counters| (counters.reads, counters.read_sectors)).collect()
}

/// Asks for a scrub of a life of its own: what it read of each disk, and what came of it.
fn scrub_life<T>(
    bed: &mut Bed,
    look: impl AsyncFnOnce(&Service, ScrubRecord, Vec<ScrubRecord>) -> T,
) -> (Vec<(u64, u64)>, T) {
    let before = asked(bed);
    let result = bed.life(async |service| {
        let (end, shown) = scrub(&service).await;
        look(&service, end, shown).await
    });
    let read = asked(bed).into_iter().zip(before).map(|(now, was)| (now.0 - was.0, now.1 - was.1));
    (read.collect(), result)
}

const PAGES: usize = 2048;

/// A mirror with a file, a snapshot of it, and a first half of it that was written over since.
fn mirror() -> Bed {
    let mut bed = Bed::new(2, 65536);
    bed.options.scale.piece_blocks_max = 16;
    bed.life(async |service| {
        service.datasets.create("tank/vms", &[]).await.unwrap();
        populate(&service, "disk.raw", PAGES).await;
        service.datasets.snapshot(&["tank/vms@s".into()], false).await.unwrap();
        let file = find(&service, "tank/vms", "disk.raw").await.unwrap();
        for at in (0..PAGES / 2).step_by(AT_ONCE) {
            let data = noise(1_000_000 + at as u64, AT_ONCE);
            write(&service, file, at as u64, &data, Stability::Unstable).await.unwrap();
        }
        service.pool.sync().await.unwrap();
    });
    bed
}

/// Asserts what a scrub of the mirror does when each side has lost all that the snapshot shows.
fn assert_one_look(rot: impl Fn(&Bed, u64), errors_of_side: (u64, u64), rereads: u64) {
    let mut bed = mirror();
    let (whole, ()) = scrub_life(&mut bed, async |_, end, _| assert_eq!(end.unreadable_blocks, 0));
    let sectors = content(&bed, PAGES);
    assert_eq!(sectors.len(), PAGES);
    sectors.iter().for_each(|sector| rot(&bed, *sector));
    let ((read, end), log) = logged(|| {
        scrub_life(&mut bed, async |service, end, shown| {
            assert_honest(&shown, &end);
            assert!(
                shown.iter().any(|record| (1..PAGES as u64).contains(&record.unreadable_blocks)),
                "errors show while it runs"
            );
            assert_eq!(end.unreadable_blocks, PAGES as u64);
            assert_eq!(errors(service), [errors_of_side; 2]);
            let damages = service.datasets.damages();
            assert_eq!(damages.len(), 1, "{damages:?}");
            assert_eq!(damages[0].kind, DamageKind::Unreadable);
            // What was written over is whole.
            assert_eq!(damages[0].ranges, [(PAGES as u64 / 2, PAGES as u64)]);
            let file = find(service, "tank/vms", "disk.raw").await.unwrap();
            assert_eq!(read(service, file, 0).await.unwrap(), noise(1_000_000, 1));
            assert!(read(service, file, PAGES as u64 - 1).await.is_err());
            end
        })
    });
    for (now, before) in read.iter().zip(&whole) {
        // The last read of a client above, and metadata that an idle pool does not read.
        assert!(now.1 <= before.1 + rereads + 64, "{now:?} sectors, {before:?} of a whole pool");
    }
    let minutes = end.active_ms / 60_000 + 1;
    for (class, most) in [
        ("disk.checksum", 2),
        ("disk.read", 2),
        ("file.unreadable", 1),
        ("snapshot.unreadable", 1),
        ("disk.repaired", 0),
    ] {
        assert!(log.of(class) <= most * minutes, "{class}: {log:?}");
    }
    assert!(log.of("file.unreadable") > 0 && log.of("snapshot.unreadable") > 0, "{log:?}");
    assert!(log.lines() < 16 * minutes, "{log:?}");
}

#[test]
fn what_both_sides_have_lost_is_looked_at_once() {
    let rot = |bed: &Bed, sector| {
        bed.disks.iter().for_each(|disk| disk.corrupt(sector, Corruption::Garbage));
    };
    assert_one_look(rot, (0, PAGES as u64), 0);
}

/// A medium that gives errors is asked again, for as long as a client waits, and counts once.
#[test]
fn what_no_side_can_read_counts_once() {
    let rot = |bed: &Bed, sector: u64| {
        bed.disks.iter().for_each(|disk| disk.mark_unreadable(sector..sector + 1));
    };
    assert_one_look(rot, (PAGES as u64, 0), 3 * PAGES as u64);
}

/// A snapshot of a file shows what it shares with the file once more.
#[test]
fn what_snapshots_of_files_share_counts_once() {
    let mut bed = Bed::new(2, 65536);
    bed.options.scale.piece_blocks_max = 16;
    bed.life(async |service| {
        service.datasets.create("tank/vms", &[]).await.unwrap();
        populate(&service, "disk.raw", 256).await;
        for name in ["a", "b", "c"] {
            let names = [format!("tank/vms:disk.raw@{name}")];
            service.files.take_named(&names).await.unwrap();
        }
    });
    for sector in content(&bed, 256) {
        bed.disks.iter().for_each(|disk| disk.corrupt(sector, Corruption::Garbage));
    }
    bed.life(async |service| {
        let (end, _) = scrub(&service).await;
        assert_eq!(end.unreadable_blocks, 256);
        assert_eq!(errors(&service), [(0, 256); 2]);
        assert_eq!(service.datasets.damages()[0].ranges, [(0, 256)]);
    });
}

#[test]
fn lost_nodes_are_looked_at_once() {
    let mut bed = Bed::new(2, 65536);
    bed.options.scale.piece_blocks_max = 16;
    let file = bed.life(async |service| {
        service.datasets.create("tank/vms", &[]).await.unwrap();
        let top = service.files.root("tank/vms").unwrap();
        let file = make(&service, top, "disk.raw").await;
        for at in 0..1000 {
            write(&service, file, at * 2, &noise(at, 1), Stability::Unstable).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        service.datasets.snapshot(&["tank/vms@s".into()], false).await.unwrap();
        file
    });
    let mut leaves = Vec::new();
    bed.disks[0].durable_image().for_each(|sector, page| {
        let bytes = page.as_slice();
        let object = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
        if &bytes[..4] == b"AQTN" && bytes[6..8] == [1, 0] && object == file.object.0 {
            leaves.push(sector);
        }
    });
    assert!(leaves.len() >= 8, "{leaves:?}");
    for (sector, disk) in
        leaves.iter().flat_map(|sector| bed.disks.iter().map(move |d| (sector, d)))
    {
        disk.corrupt(*sector, Corruption::Garbage);
    }
    bed.life(async |service| {
        let (end, shown) = scrub(&service).await;
        assert_honest(&shown, &end);
        assert!(end.unreadable_blocks >= 5, "{end:?}");
        assert_eq!(errors(&service), [(0, end.unreadable_blocks); 2]);
        let damages = service.datasets.damages();
        assert_eq!(damages.len(), 1, "{damages:?}");
        assert_eq!(damages[0].ranges, [(0, 1999)]);
    });
}

/// 1 GiB of pages that no side has, in a snapshot and its file. Takes 1.1 GiB of memory.
#[test]
fn a_scrub_of_a_lost_gigabyte_ends() {
    let pages = 1 << 18;
    let mut bed = Bed::new(2, 1 << 19);
    bed.life(async |service| {
        service.datasets.create("tank/vms", &[]).await.unwrap();
        populate(&service, "disk.raw", pages).await;
        service.datasets.snapshot(&["tank/vms@s".into()], false).await.unwrap();
    });
    for sector in content(&bed, pages) {
        bed.disks.iter().for_each(|disk| disk.corrupt(sector, Corruption::Zeros));
    }
    let ((read, end), log) = logged(|| {
        scrub_life(&mut bed, async |service, end, shown| {
            assert_honest(&shown, &end);
            assert_eq!(end.unreadable_blocks, pages as u64);
            assert_eq!(errors(service), [(0, pages as u64); 2]);
            assert_eq!(service.datasets.damages()[0].ranges, [(0, pages as u64)]);
            end
        })
    });
    for (_, sectors) in read {
        assert!(sectors < pages as u64 * 5 / 4, "{sectors}");
    }
    assert!(log.lines() < 16 * (end.active_ms / 60_000 + 1), "{log:?}");
}

/// A side that comes back misses what the only whole one cannot read. That is tried for some
/// seconds for each run of blocks, and not for each of its pages.
#[test]
fn a_resilver_does_not_wait_for_each_page_that_cannot_be_read() {
    let mut bed = Bed::new(2, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/vms", &[]).await.unwrap();
    });
    let disks = bed.disks.clone();
    bed.short_life(async |service| {
        disks[1].vanish(Vanish::LinkLost);
        populate(&service, "disk.raw", PAGES).await;
    });
    for sector in content(&bed, PAGES) {
        bed.disks[0].mark_unreadable(sector..sector + 1);
    }
    bed.disks[1].come_back();
    bed.life(async |service| {
        let resilver = async || {
            for _ in 0..10_000 {
                let newest = service.pool.status().resilver;
                if let Some(ended) = newest.filter(|newest| newest.succeeded.is_some()) {
                    return ended;
                }
                service.pool.world().sleep(Duration::from_secs(1)).await;
            }
            panic!("it does not end: {:?}", service.pool.status().resilver);
        };
        let ended = resilver().await;
        assert_eq!((ended.succeeded, ended.unread_blocks), (Some(true), PAGES as u64));
        // By the simulated clock: 8 runs at a time, each some 10 s.
        assert!(ended.took < Duration::from_secs(120), "{ended:?}");
    });
}
