//! Changes between two snapshots, sent and received.

pub mod made;

use aquifer_checker::lives::SCALE;
use aquifer_dataset::{DatasetError, IncrementError, RollbackOptions};
use aquifer_files::{
    FileHandle, FsError, ReceiveError, ReceiveOptions, Receiver, SendError, Service, SetAttributes,
    Stability,
};
use aquifer_pool::import::ImportOptions;
use aquifer_sim::Rng;

use crate::bed::{Bed, find, make, noise, read, root, write};
use crate::by_text::ByText;
use crate::diff::{DATASET, Model, change};
use crate::receive::{
    End, STANDBY, changes, content, populate, receive, see, snapshot, some_of_each, stream,
};

const COPY: &str = "tank/copy";
const FORCE: ReceiveOptions = ReceiveOptions { force: true, ..STANDBY };
const DRY: ReceiveOptions = ReceiveOptions { dry: true, ..STANDBY };

async fn copy_all(service: &Service, at: &str) {
    let sent = stream(service, &format!("{DATASET}@{at}")).await.unwrap();
    receive(service, COPY, &sent, STANDBY).await.unwrap();
}

async fn increment(service: &Service, old: &str, new: &str) -> Vec<u8> {
    changes(service, &format!("{DATASET}@{new}"), Some(&format!("@{old}"))).await.unwrap()
}

/// Returns the stream of the changes since a snapshot of which only a bookmark is left.
async fn since_bookmark(service: &Service, old: &str, new: &str) -> Vec<u8> {
    changes(service, &format!("{DATASET}@{new}"), Some(&format!("#{old}"))).await.unwrap()
}

/// A bookmark takes the place of a snapshot, or of the bookmark before it.
async fn keep_a_bookmark(service: &Service, name: &str, before: Option<&str>) {
    let full = format!("{DATASET}@{name}");
    service.datasets.bookmark(&full, &format!("#{name}")).await.unwrap();
    let (dataset, snapshot) = service.datasets.snapshot_by_name(&full).unwrap();
    let these = [(dataset, [snapshot.txg].into())];
    service.datasets.destroy_snapshots(&these, false).await.unwrap();
    if let Some(before) = before {
        service.datasets.destroy_bookmarks(&[format!("{DATASET}#{before}")]).await.unwrap();
    }
}

/// The copy, and its snapshot of this name, are what was sent.
async fn is_equal(service: &Service, at: &str) {
    let [sent, copied] = [DATASET, COPY].map(|name| format!("{name}@{at}"));
    let wanted = content(&stream(service, &sent).await.unwrap());
    assert!(content(&stream(service, &copied).await.unwrap()) == wanted, "{at}");
    let snapshots = [&sent, &copied].map(|name| service.datasets.snapshot_by_name(name).unwrap().1);
    let of = |at: usize| (snapshots[at].record.guid, snapshots[at].record.created);
    assert_eq!(of(0), of(1));
    let differs = service.files.changed_names((&copied, COPY), None, 10).await.unwrap().names;
    assert!(differs.is_empty(), "{at}: {differs:?}");
}

/// Receives half of it, and gives up.
async fn half(service: &Service, rng: &mut Rng, sent: &[u8]) {
    let mut receiver = Receiver::new(&service.files, COPY.into(), STANDBY);
    for piece in sent[..rng.index(sent.len())].chunks(50_000) {
        receiver.push(piece.to_vec()).await.unwrap();
        if rng.coin() {
            service.pool.sync().await.unwrap();
        }
    }
    assert!(receiver.finish().await.is_err());
    receiver.abort().await.unwrap();
}

async fn steps(service: &Service, seed: u64) {
    let mut rng = Rng::stream(seed, "increments");
    let compression = if rng.coin() { "lz4" } else { "off" };
    let properties = [("compression".to_string(), compression.to_string())];
    service.datasets.create(DATASET, &properties).await.unwrap();
    let mut model = Model::default();
    let top = service.files.root(DATASET).unwrap();
    model.directories.insert(String::new(), top);
    some_of_each(service, top).await;
    snapshot(service, "tank/d@0").await;
    copy_all(service, "0").await;
    let (mut newest, mut models) = (0, vec![model.clone()]);
    let mut marked: Option<String> = None;
    for at in 1..6 {
        for _ in 0..rng.below(50) {
            change(service, &mut model, &mut rng).await;
        }
        let is_there = service.datasets.snapshot_by_name(&format!("{DATASET}@{}", at - 1)).is_ok();
        if rng.below(4) == 0 && is_there {
            // What is gone with a rollback is in no increment.
            let options = RollbackOptions { destroy_later: false, force: true };
            let full = format!("{DATASET}@{}", at - 1);
            service.datasets.rollback(&full, options).await.unwrap();
            model = models[at - 1].clone();
            for _ in 0..rng.below(30) {
                change(service, &mut model, &mut rng).await;
            }
        }
        snapshot(service, &format!("{DATASET}@{at}")).await;
        models.push(model.clone());
        for _ in 0..rng.below(20) {
            change(service, &mut model, &mut rng).await;
        }
        if rng.below(4) == 0 {
            continue;
        }
        let sent = match &marked {
            Some(mark) if *mark == newest.to_string() => {
                since_bookmark(service, mark, &at.to_string()).await
            }
            _ => increment(service, &newest.to_string(), &at.to_string()).await,
        };
        if rng.coin() {
            half(service, &mut rng, &sent).await;
            let copied = format!("{COPY}@{newest}");
            let differs = service.files.changed_names((&copied, COPY), None, 10).await.unwrap();
            assert!(differs.names.is_empty(), "{newest}: {differs:?}");
        }
        let said = receive(service, COPY, &sent, DRY).await.unwrap();
        let received = receive(service, COPY, &sent, STANDBY).await.unwrap();
        assert_eq!(said, received);
        assert_eq!(received.since, Some(format!("{DATASET}@{newest}")));
        is_equal(service, &at.to_string()).await;
        newest = at;
        if at < 5 && rng.coin() {
            keep_a_bookmark(service, &at.to_string(), marked.as_deref()).await;
            marked = Some(at.to_string());
        }
    }
    // The copy takes the place of what was sent.
    if marked.as_deref() == Some(&newest.to_string()) {
        return;
    }
    let expected = see(service, &format!("{DATASET}@{newest}")).await;
    service.datasets.set(DATASET, "standby", Some("on")).await.unwrap();
    service.datasets.set(COPY, "standby", Some("off")).await.unwrap();
    assert!(see(service, COPY).await == expected);
}

#[test]
fn increments_bring_a_copy_to_what_was_sent() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |value| value.parse().unwrap())
    };
    let first = number("AQUIFER_FIRST_SEED", 0);
    for seed in first..first + number("AQUIFER_SEEDS", 4) {
        eprintln!("seed {seed}");
        let mut bed = Bed::new(1, 262_144);
        if seed % 2 == 1 {
            // Tails are cut off whole.
            bed.options = ImportOptions { scale: SCALE, ..ImportOptions::default() };
        }
        bed.life(async move |service| steps(&service, seed).await);
        bed.assert_clean();
    }
}

/// A clone of a file travels as a file, and what changed in it since.
#[test]
fn clones_of_files_travel_as_files() {
    let mut bed = Bed::new(1, 262_144);
    bed.life(async |service| {
        service.datasets.create(DATASET, &[]).await.unwrap();
        let top = service.files.root(DATASET).unwrap();
        let gold = make(&service, top, "gold").await;
        write(&service, gold, 0, &noise(1, 100), Stability::FileSync).await.unwrap();
        let origin = format!("{DATASET}:gold@v1");
        service.files.take_named(std::slice::from_ref(&origin)).await.unwrap();
        snapshot(&service, "tank/d@0").await;
        copy_all(&service, "0").await;
        let clones = ["one", "two"].map(|name| format!("{DATASET}:{name}"));
        service.files.clone_named(&origin, &clones).await.unwrap();
        let one = find(&service, DATASET, "one").await.unwrap();
        for at in 1..4 {
            write(&service, one, at * 20, &noise(at, 10), Stability::FileSync).await.unwrap();
            write(&service, gold, at * 7, &noise(50 + at, 5), Stability::FileSync).await.unwrap();
            if at == 3 {
                service.files.remove(&root(), top, b"two").await.kept().await.0.unwrap();
            }
            snapshot(&service, &format!("{DATASET}@{at}")).await;
            let sent = increment(&service, &(at - 1).to_string(), &at.to_string()).await;
            receive(&service, COPY, &sent, STANDBY).await.unwrap();
            is_equal(&service, &at.to_string()).await;
        }
        // Whole, too.
        let whole = stream(&service, &format!("{DATASET}@2")).await.unwrap();
        receive(&service, "tank/whole", &whole, STANDBY).await.unwrap();
        let copied = service.datasets.by_name("tank/whole").unwrap();
        assert!(copied.refer_bytes() >= 300 * 4096, "three files of their own");
        service.datasets.set(COPY, "standby", Some("on")).await.unwrap();
        let refused = service.files.clone_named(&format!("{COPY}:gold@v1"), &clones).await;
        assert!(refused.is_err(), "it has no snapshots of files");
    });
    bed.assert_clean();
}

/// The dataset with its snapshot `a`, its copy, and a snapshot `b` that has all kinds of changes.
async fn prepare(service: &Service) -> FileHandle {
    let disk = populate(service).await;
    let top = service.files.root(DATASET).unwrap();
    some_of_each(service, top).await;
    snapshot(service, "tank/d@a0").await;
    copy_all(service, "a0").await;
    for at in 0..150 {
        let name = format!("f{at}");
        service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
    }
    for at in 0..20 {
        make(service, top, &format!("new{at}")).await;
    }
    let to = service.files.lookup(&root(), top, b"deep").await.0.unwrap().handle;
    let moved = service.files.rename(&root(), (top, b"f200"), (to, b"moved")).await;
    moved.kept().await.0.unwrap();
    write(service, disk, 700, &noise(50, 200), Stability::FileSync).await.unwrap();
    let size = |pages: u64| SetAttributes { size: Some(pages * 4096), ..SetAttributes::default() };
    service.files.setattr(&root(), disk, &size(1000), None).await.kept().await.0.unwrap();
    service.files.setattr(&root(), disk, &size(1200), None).await.kept().await.0.unwrap();
    snapshot(service, "tank/d@b").await;
    disk
}

#[test]
fn what_breaks_off_leaves_the_copy_as_it_was() {
    for end in [End::Abort, End::Export, End::Kill, End::Cut] {
        let mut bed = Bed::new(1, 65536);
        let sent = bed.life(async |service| {
            prepare(&service).await;
            increment(&service, "a0", "b").await
        });
        bed.assert_clean();
        let half = sent[..sent.len() * 9 / 10].to_vec();
        let work = async move |service: Service| {
            let mut receiver = Receiver::new(&service.files, COPY.into(), STANDBY);
            for piece in half.chunks(100_000) {
                receiver.push(piece.to_vec()).await.unwrap();
                service.pool.sync().await.unwrap();
            }
            if end == End::Abort {
                assert!(receiver.finish().await.is_err());
                receiver.abort().await.unwrap();
                is_equal(&service, "a0").await;
            }
        };
        match end {
            End::Abort | End::Export => bed.life(work),
            End::Kill => bed.short_life(work),
            End::Cut => bed.cut_life(work),
        }
        // Half a head is no damage.
        bed.assert_clean();
        bed.life(async |service| {
            is_equal(&service, "a0").await;
            receive(&service, COPY, &sent, STANDBY).await.unwrap();
            is_equal(&service, "b").await;
            for name in ["tank/copy", "tank/d"] {
                service.datasets.destroy(name, true).await.unwrap();
            }
            while service.datasets.has_background_work() {
                service.pool.sync().await.unwrap();
            }
            assert_eq!(service.datasets.freeing_bytes(), 0);
        });
        bed.assert_clean();
    }
}

fn refused(error: IncrementError) -> Result<(), ReceiveError> {
    Err(ReceiveError::Dataset(error.into()))
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let disk = prepare(&service).await;
        let sent = increment(&service, "a0", "b").await;
        let datasets = &service.datasets;
        let both = async |options| {
            let options: ReceiveOptions = options;
            let said = receive(&service, COPY, &sent, ReceiveOptions { dry: true, ..options });
            let said = said.await.map(drop);
            assert_eq!(receive(&service, COPY, &sent, options).await.map(drop), said);
            said
        };
        // Streams that are damaged.
        for cut in [0, 1, 40, 5000, sent.len() / 2, sent.len() - 1] {
            let error = receive(&service, COPY, &sent[..cut], STANDBY).await;
            assert!(matches!(error, Err(ReceiveError::Stream(_))), "{cut}: {error:?}");
            let mut flipped = sent.clone();
            flipped[cut] ^= 4;
            let error = receive(&service, COPY, &flipped, STANDBY).await;
            assert!(matches!(error, Err(ReceiveError::Stream(_))), "{cut}: {error:?}");
            is_equal(&service, "a0").await;
        }
        // Names.
        let none = receive(&service, "tank/none", &sent, STANDBY).await.map(drop);
        let (name, from) = ("tank/none".into(), "tank/d@a0".into());
        assert_eq!(none, refused(IncrementError::NoCopy { name, from }));
        let new_handles = ReceiveOptions { new_handles: true, ..STANDBY };
        assert_eq!(both(new_handles).await, Err(ReceiveError::NewHandles("tank/d@a0".into())));
        datasets.create("tank/other", &[]).await.unwrap();
        let other = receive(&service, "tank/other", &sent, STANDBY).await.map(drop);
        let (name, of) = ("tank/other".into(), "tank/d".into());
        assert_eq!(other, refused(IncrementError::OtherHandles { name, sent: of }));
        let itself = receive(&service, DATASET, &sent, STANDBY).await.map(drop);
        assert_eq!(itself, refused(IncrementError::InService(DATASET.into())));
        // Another newest snapshot: of the dataset, and of a file.
        snapshot(&service, "tank/copy@mine").await;
        let not_newest = |newest: &str, is_there| {
            let (from, newest) = ("tank/d@a0".into(), newest.into());
            refused(IncrementError::NotNewest { from, newest, is_there })
        };
        let newest = "\"tank/copy\" has \"mine\" as its newest";
        assert_eq!(both(STANDBY).await, not_newest(newest, true));
        assert_eq!(both(FORCE).await, not_newest(newest, true));
        let options = RollbackOptions { destroy_later: true, force: false };
        datasets.rollback("tank/copy@a0", options).await.unwrap();
        // Changes: in service, then not any more.
        datasets.set(DATASET, "standby", Some("on")).await.unwrap();
        datasets.set(COPY, "standby", Some("off")).await.unwrap();
        let in_service = refused(IncrementError::InService(COPY.into()));
        assert_eq!(both(STANDBY).await, in_service);
        write(&service, disk, 3, &noise(9, 1), Stability::FileSync).await.unwrap();
        datasets.set(COPY, "standby", Some("on")).await.unwrap();
        datasets.set(DATASET, "standby", Some("off")).await.unwrap();
        assert_eq!(both(STANDBY).await, refused(IncrementError::Changed(COPY.into())));
        receive(&service, COPY, &sent, FORCE).await.unwrap();
        is_equal(&service, "b").await;
        // It is there.
        let exists = DatasetError::Exists("tank/copy@b".into());
        assert_eq!(both(STANDBY).await, Err(ReceiveError::Dataset(exists)));
        let (copy, b) = datasets.snapshot_by_name("tank/copy@b").unwrap();
        datasets.rename_snapshots(&[(copy, b.txg)], "again").await.unwrap();
        let exists = DatasetError::Exists("tank/copy@b".into());
        assert_eq!(both(STANDBY).await, Err(ReceiveError::Dataset(exists)));
        // Sending.
        let error = changes(&service, "tank/d@a0", Some("@b")).await;
        assert!(matches!(error, Err(SendError::NotOlder { .. })), "{error:?}");
        let error = changes(&service, "tank/d@b", Some("@b")).await;
        assert!(matches!(error, Err(SendError::NotOlder { .. })), "{error:?}");
        let error = changes(&service, "tank/d@b", Some("tank/copy@a0")).await;
        assert!(matches!(error, Err(SendError::AnotherDataset { .. })), "{error:?}");
        let error = changes(&service, "tank/d@b", Some("@none")).await;
        assert!(matches!(error, Err(SendError::Dataset(_))), "{error:?}");
    });
    bed.assert_clean();
}

/// While something is received, nothing else touches the copy; what destroys it ends the receive.
#[test]
fn others_find_a_copy_that_is_being_received_into_busy() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        prepare(&service).await;
        let sent = increment(&service, "a0", "b").await;
        let datasets = &service.datasets;
        let busy = || DatasetError::from(IncrementError::Busy(COPY.into()));
        let mut receiver = Receiver::new(&service.files, COPY.into(), STANDBY);
        receiver.push(sent[..sent.len() / 2].to_vec()).await.unwrap();
        service.pool.sync().await.unwrap();
        let second = receive(&service, COPY, &sent, STANDBY).await.map(drop);
        assert_eq!(second, Err(ReceiveError::Dataset(busy())));
        assert_eq!(datasets.snapshot(&["tank/copy@x".into()], false).await, Err(busy()));
        // With all others: that one is left out.
        let taken = datasets.snapshot(&["tank@all".into()], true).await.unwrap();
        assert_eq!(taken, ["tank/d@all", "tank@all"]);
        let options = RollbackOptions { destroy_later: true, force: true };
        assert_eq!(datasets.rollback("tank/copy@a0", options).await, Err(busy()));
        assert_eq!(datasets.set(COPY, "standby", Some("off")).await, Err(busy()));
        assert_eq!(datasets.set(COPY, "standby", None).await, Err(busy()));
        let old = datasets.snapshot_by_name("tank/copy@a0").unwrap();
        let doomed = [(old.0.clone(), [old.1.txg].into())];
        assert_eq!(datasets.destroy_snapshots(&doomed, false).await, Err(busy()));
        let names = vec!["tank/copy:disk@x".to_string()];
        let error = service.files.take_named(&names).await;
        assert!(error.is_err(), "{error:?}");
        let head = service.files.changed_names(("tank/copy@a0", COPY), None, 10).await;
        assert!(head.is_err(), "{head:?}");
        // Its snapshot is read, sent and cloned; properties are set; it gets another name.
        assert!(stream(&service, "tank/copy@a0").await.is_ok());
        datasets.clone_snapshot("tank/copy@a0", "tank/look", &[]).await.unwrap();
        let promoted = datasets.promote("tank/look").await.map(drop);
        let copy = ("tank/look".to_string(), COPY.to_string());
        assert_eq!(promoted, Err(DatasetError::Copy { name: copy.0, from: copy.1 }));
        datasets.destroy("tank/look", true).await.unwrap();
        datasets.set(COPY, "readonly", Some("on")).await.unwrap();
        datasets.rename(COPY, "tank/moved").await.unwrap();
        datasets.rename("tank/moved", COPY).await.unwrap();
        receiver.push(sent[sent.len() / 2..].to_vec()).await.unwrap();
        receiver.finish().await.unwrap();
        is_equal(&service, "b").await;
        // The values are the sender's, and those that were set on the copy.
        let copied = datasets.by_name(COPY).unwrap().local_values();
        let of = |name: &str| (name.to_string(), "on".to_string());
        assert_eq!(copied, [of("readonly"), of("standby")]);

        snapshot(&service, "tank/d@c").await;
        let sent = increment(&service, "b", "c").await;
        let mut receiver = Receiver::new(&service.files, COPY.into(), STANDBY);
        let (most, last) = sent.split_at(sent.len() - 1);
        receiver.push(most.to_vec()).await.unwrap();
        datasets.destroy(COPY, true).await.unwrap();
        receiver.push(last.to_vec()).await.unwrap();
        let error = receiver.finish().await.map(drop);
        let ended = DatasetError::ReceiveEnded(COPY.into());
        assert_eq!(error, Err(ReceiveError::Dataset(ended)));
        receiver.abort().await.unwrap();
        assert!(datasets.by_name(COPY).is_none());
    });
    bed.assert_clean();
}

/// A request that found the dataset before it stood by changes nothing of what is received.
#[test]
fn handles_lead_to_a_copy_only_when_it_is_in_service() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let disk = prepare(&service).await;
        let sent = increment(&service, "a0", "b").await;
        service.datasets.set(DATASET, "standby", Some("on")).await.unwrap();
        let mut receiver = Receiver::new(&service.files, COPY.into(), STANDBY);
        receiver.push(sent[..sent.len() / 2].to_vec()).await.unwrap();
        let stale = write(&service, disk, 0, &noise(1, 1), Stability::FileSync).await;
        assert_eq!(stale, Err(FsError::Stale));
        receiver.push(sent[sent.len() / 2..].to_vec()).await.unwrap();
        receiver.finish().await.unwrap();
        service.datasets.set(COPY, "standby", Some("off")).await.unwrap();
        write(&service, disk, 0, &noise(2, 1), Stability::FileSync).await.unwrap();
        assert_eq!(read(&service, disk, 0).await.unwrap(), noise(2, 1));
        assert_eq!(read(&service, disk, 700).await.unwrap(), noise(50, 200)[..4096]);
    });
    bed.assert_clean();
}
