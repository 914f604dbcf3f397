//! Snapshots that are sent and received.

use std::collections::BTreeMap;

use aquifer_dataset::DatasetError;
use aquifer_files::{
    FileHandle, FileKind, FsError, NodeKind, ReceiveError, ReceiveOptions, Received, Receiver,
    SendError, SendWanted, Service, SetAttributes, Stability,
};
use aquifer_sim::Rng;
use aquifer_stream::{Decoder, Record, StreamError};

use crate::bed::{Bed, find, make, noise, read, root, write};
use crate::diff::{DATASET, Model, change};

const NEW_HANDLES: ReceiveOptions =
    ReceiveOptions { dry: false, new_handles: true, force: false, resumable: false };
pub const STANDBY: ReceiveOptions =
    ReceiveOptions { dry: false, new_handles: false, force: false, resumable: false };

pub async fn snapshot(service: &Service, name: &str) {
    service.datasets.snapshot(&[name.into()], false).await.unwrap();
}

/// The whole stream. Each cursor goes through its text. Its size was said before.
pub async fn stream(service: &Service, to: &str) -> Result<Vec<u8>, SendError> {
    changes(service, to, None).await
}

/// Returns the stream of what changed since an older snapshot, or the whole one. Otherwise as
/// [`stream`].
pub async fn changes(
    service: &Service,
    snapshot: &str,
    from: Option<&str>,
) -> Result<Vec<u8>, SendError> {
    let (mut bytes, mut size) = (Vec::new(), 0);
    for size_only in [true, false] {
        let mut cursor = None;
        loop {
            let wanted = SendWanted { snapshot, from, size_only, ..SendWanted::default() };
            let page = service.files.send_page(wanted, cursor).await?;
            bytes.extend(page.bytes);
            size += if size_only { page.stream_bytes } else { 0 };
            match page.next {
                None => break,
                Some(next) => cursor = Some(next.to_string().parse().unwrap()),
            }
        }
    }
    assert_eq!(size, bytes.len() as u64);
    Ok(bytes)
}

pub async fn receive(
    service: &Service,
    name: &str,
    bytes: &[u8],
    options: ReceiveOptions,
) -> Result<Received, ReceiveError> {
    let mut receiver = Receiver::new(&service.files, name.into(), options);
    let received = async {
        for piece in bytes.chunks(100_000) {
            receiver.push(piece.to_vec()).await?;
        }
        receiver.finish().await
    };
    let received = received.await;
    if received.is_err() {
        receiver.abort().await.unwrap();
    }
    received
}

/// Returns the records of a stream, other than those that say whose it is.
pub fn content(bytes: &[u8]) -> Vec<Record> {
    let (mut decoder, mut records) = (Decoder::default(), Vec::new());
    decoder.push(bytes.to_vec());
    while let Some(record) = decoder.next_record().unwrap() {
        match record {
            Record::Begin(_) | Record::End(_) => {}
            record => records.push(record),
        }
    }
    records
}

/// A file as a client sees it, but for the handle's file system and the space it takes.
#[derive(Debug, PartialEq)]
pub struct Seen {
    object: u64,
    generation: u64,
    cookie: u64,
    attributes: String,
    content: Vec<u8>,
}

pub async fn see(service: &Service, dataset: &str) -> BTreeMap<String, Seen> {
    let mut seen = BTreeMap::new();
    let mut left = vec![(String::new(), 0, service.files.root(dataset).unwrap())];
    while let Some((path, cookie, handle)) = left.pop() {
        let mut attributes = service.files.getattr(handle).await.unwrap();
        attributes.used = 0;
        attributes.handle.fs_guid = aquifer_files::Guid(0);
        let mut content = Vec::new();
        match attributes.kind {
            FileKind::Directory => {
                let list = service.files.readdir(&root(), handle, 2, 10_000, false).await.unwrap();
                left.extend(list.0.into_iter().map(|entry| {
                    let name = String::from_utf8(entry.name).unwrap();
                    (format!("{path}/{name}"), entry.cookie, entry.handle)
                }));
            }
            FileKind::Regular => {
                while (content.len() as u64) < attributes.size {
                    let at = content.len() as u64;
                    let data = service.files.read(&root(), handle, at, 1 << 20).await.unwrap();
                    let pieces = data.into_pieces();
                    pieces.for_each(|(page, range)| content.extend(&page.as_slice()[range]));
                }
            }
            FileKind::Symlink => {
                content = service.files.readlink(&root(), handle).await.unwrap().0;
            }
            _ => {}
        }
        let file = Seen {
            object: handle.object.0,
            generation: handle.generation,
            cookie,
            attributes: format!("{attributes:?}"),
            content,
        };
        assert!(seen.insert(path, file).is_none());
    }
    seen
}

/// One of each kind, and a name that was removed again.
pub async fn some_of_each(service: &Service, top: FileHandle) {
    let set = SetAttributes { mode: Some(0o751), ..SetAttributes::default() };
    let made = service.files.mkdir(&root(), top, b"deep", &set).await.kept().await.0.unwrap();
    let deeper = service.files.mkdir(&root(), made.handle, b"er", &set).await.kept().await;
    let deeper = deeper.0.unwrap().handle;
    service.files.symlink(&root(), deeper, b"link", b"../to", &set).await.kept().await.0.unwrap();
    let pipe = NodeKind::Fifo;
    service.files.mknod(&root(), deeper, b"pipe", pipe, &set).await.kept().await.0.unwrap();
    let gone = make(service, top, "gone").await;
    write(service, gone, 0, &noise(9, 3), Stability::FileSync).await.unwrap();
    service.files.remove(&root(), top, b"gone").await.kept().await.0.unwrap();
}

async fn history(service: &Service, seed: u64) {
    let mut rng = Rng::stream(seed, "receive");
    let compression = if rng.coin() { "lz4" } else { "off" };
    let properties = [("compression".to_string(), compression.to_string())];
    service.datasets.create(DATASET, &properties).await.unwrap();
    let mut model = Model::default();
    let top = service.files.root(DATASET).unwrap();
    model.directories.insert(String::new(), top);
    some_of_each(service, top).await;
    for at in 0..3 {
        for _ in 0..rng.below(60) {
            change(service, &mut model, &mut rng).await;
        }
        let (name, copy, twin) =
            (format!("{DATASET}@{at}"), format!("tank/copy{at}"), format!("tank/twin{at}"));
        snapshot(service, &name).await;
        let expected = see(service, DATASET).await;
        for _ in 0..rng.below(20) {
            change(service, &mut model, &mut rng).await;
        }
        let sent = stream(service, &name).await.unwrap();
        let received = receive(service, &copy, &sent, NEW_HANDLES).await.unwrap();
        assert_eq!((received.sent.as_str(), received.snapshot), (&*name, format!("{copy}@{at}")));
        assert!(see(service, &copy).await == expected, "{copy}");
        assert!(see(service, &format!("{copy}@{at}")).await == expected, "{copy}@{at}");
        // One that stands by is read by what it sends.
        receive(service, &twin, &sent, STANDBY).await.unwrap();
        assert_eq!(service.files.root(&twin), None);
        let again = stream(service, &format!("{twin}@{at}")).await.unwrap();
        assert!(content(&sent) == content(&again), "{twin}");
        let copied = service.datasets.by_name(&twin).unwrap();
        assert_eq!(
            copied.local_values(),
            [("compression", compression), ("standby", "on")]
                .map(|(name, value)| (name.to_string(), value.to_string()))
        );
    }
}

#[test]
fn a_received_copy_is_what_was_sent() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |value| value.parse().unwrap())
    };
    let first = number("AQUIFER_FIRST_SEED", 0);
    for seed in first..first + number("AQUIFER_SEEDS", 2) {
        eprintln!("seed {seed}");
        let mut bed = Bed::new(1, 262_144);
        bed.life(async move |service| history(&service, seed).await);
        bed.assert_clean();
        bed.life(async |service| {
            assert_eq!(service.datasets.list().len(), 8);
        });
        bed.assert_clean();
    }
}

/// A dataset with a large file and many small ones, and its snapshot `a`.
pub async fn populate(service: &Service) -> FileHandle {
    service.datasets.create(DATASET, &[]).await.unwrap();
    let top = service.files.root(DATASET).unwrap();
    for at in 0..300 {
        make(service, top, &format!("f{at}")).await;
    }
    let disk = make(service, top, "disk").await;
    for at in 0..8 {
        write(service, disk, at * 300, &noise(at, 256), Stability::FileSync).await.unwrap();
    }
    snapshot(service, "tank/d@a").await;
    disk
}

#[test]
fn handles_go_on_when_a_copy_takes_the_place_of_what_was_sent() {
    let mut bed = Bed::new(1, 65536);
    let disk = bed.life(async |service| {
        let disk = populate(&service).await;
        let sent = stream(&service, "tank/d@a").await.unwrap();
        receive(&service, "tank/copy", &sent, STANDBY).await.unwrap();
        write(&service, disk, 0, &noise(77, 1), Stability::FileSync).await.unwrap();
        // The handle still means the one that was sent.
        assert_eq!(read(&service, disk, 0).await.unwrap(), noise(77, 1));
        let set = service.datasets.set("tank/copy", "standby", Some("off")).await;
        let (name, other) = ("tank/copy".into(), "tank/d".into());
        assert_eq!(set, Err(DatasetError::SameHandles { name, other }));
        // A clone of it has handles of its own, and can be read.
        service.datasets.clone_snapshot("tank/copy@a", "tank/look", &[]).await.unwrap();
        let look = find(&service, "tank/look", "disk").await.unwrap();
        assert_eq!(read(&service, look, 0).await.unwrap(), noise(0, 256)[..4096]);
        service.datasets.destroy("tank/d", true).await.unwrap();
        assert_eq!(read(&service, disk, 0).await, Err(FsError::Stale));
        disk
    });
    bed.assert_clean();
    bed.life(async move |service| {
        assert_eq!(read(&service, disk, 0).await, Err(FsError::Stale));
        service.datasets.set("tank/copy", "standby", Some("off")).await.unwrap();
        assert_eq!(read(&service, disk, 0).await.unwrap(), noise(0, 256)[..4096]);
        write(&service, disk, 0, &noise(78, 1), Stability::FileSync).await.unwrap();
        assert_eq!(read(&service, disk, 0).await.unwrap(), noise(78, 1));
        assert_eq!(find(&service, "tank/copy", "disk").await, Ok(disk));
    });
    bed.assert_clean();
}

/// How the receiver ends in the middle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    Abort,
    Export,
    Kill,
    Cut,
}

#[test]
fn what_breaks_off_leaves_nothing() {
    for end in [End::Abort, End::Export, End::Kill, End::Cut] {
        let mut bed = Bed::new(1, 65536);
        let (sent, before) = bed.life(async |service| {
            populate(&service).await;
            let sent = stream(&service, "tank/d@a").await.unwrap();
            service.pool.sync().await.unwrap();
            (sent, service.datasets.info(&service.datasets.by_name("tank").unwrap()).used.bytes)
        });
        let half = sent[..sent.len() * 3 / 4].to_vec();
        let work = async move |service: Service| {
            let mut receiver = Receiver::new(&service.files, "tank/copy".into(), STANDBY);
            for piece in half.chunks(500_000) {
                receiver.push(piece.to_vec()).await.unwrap();
                service.pool.sync().await.unwrap();
            }
            assert!(service.datasets.by_name("tank/copy").is_none());
            if end == End::Abort {
                assert!(receiver.finish().await.is_err());
                receiver.abort().await.unwrap();
            }
        };
        match end {
            End::Abort | End::Export => bed.life(work),
            End::Kill => bed.short_life(work),
            End::Cut => bed.cut_life(work),
        }
        bed.assert_clean();
        bed.life(async |service| {
            while service.datasets.has_background_work() {
                service.pool.sync().await.unwrap();
            }
            assert!(service.datasets.by_name("tank/copy").is_none());
            let tank = service.datasets.by_name("tank").unwrap();
            assert_eq!(service.datasets.info(&tank).used.bytes, before, "{end:?}");
            // The name is free again.
            receive(&service, "tank/copy", &sent, STANDBY).await.unwrap();
        });
        bed.assert_clean();
    }
}

#[test]
fn what_cannot_be_received_leaves_nothing() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        let sent = stream(&service, "tank/d@a").await.unwrap();
        let names = || service.datasets.list().into_iter().map(|of| of.name).collect::<Vec<_>>();
        let before = names();
        let dry = ReceiveOptions { dry: true, ..STANDBY };
        receive(&service, "tank/copy", &sent, dry).await.unwrap();
        for cut in [0, 1, 40, 5000, sent.len() / 2, sent.len() - 1] {
            for options in [dry, STANDBY] {
                let error = receive(&service, "tank/copy", &sent[..cut], options).await;
                assert!(matches!(error, Err(ReceiveError::Stream(_))), "{cut}: {error:?}");
            }
            let mut flipped = sent.clone();
            flipped[cut] ^= 4;
            let error = receive(&service, "tank/copy", &flipped, STANDBY).await;
            assert!(matches!(error, Err(ReceiveError::Stream(_))), "{cut}: {error:?}");
        }
        let again = [sent.clone(), sent.clone()].concat();
        let error = receive(&service, "tank/copy", &again, STANDBY).await;
        assert_eq!(error, Err(ReceiveError::Stream(StreamError::Trailing)));
        for (name, options) in [("tank/d", STANDBY), ("tank/d", dry)] {
            let error = receive(&service, name, &sent, options).await;
            let exists = DatasetError::Exists("tank/d".into());
            assert_eq!(error, Err(ReceiveError::Dataset(exists)));
        }
        for name in ["tank", "tank/none/x", "other/x", "tank/a@b", "tank/../x"] {
            let error = receive(&service, name, &sent, STANDBY).await;
            assert!(matches!(error, Err(ReceiveError::Dataset(_))), "{name}: {error:?}");
        }
        let quota = [("quota".to_string(), "4M".to_string())];
        service.datasets.create("tank/small", &quota).await.unwrap();
        let error = receive(&service, "tank/small/copy", &sent, STANDBY).await;
        assert_eq!(error, Err(ReceiveError::Quota("tank/small/copy".into())));
        service.datasets.destroy("tank/small", true).await.unwrap();
        assert_eq!(names(), before);
        let error = stream(&service, "tank/d@none").await;
        assert!(matches!(error, Err(SendError::Dataset(_))), "{error:?}");
    });
    bed.assert_clean();
}

/// Others cannot take the name, and who destroys what is above ends it.
#[test]
fn a_dataset_above_that_goes_takes_what_is_received_with_it() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        let sent = stream(&service, "tank/d@a").await.unwrap();
        service.datasets.create("tank/above", &[]).await.unwrap();
        let name = "tank/above/copy";
        let mut receiver = Receiver::new(&service.files, name.into(), STANDBY);
        receiver.push(sent[..sent.len() / 2].to_vec()).await.unwrap();
        let exists = Err(DatasetError::Exists(name.into()));
        let error = service.datasets.create(name, &[]).await;
        assert!(matches!(error, Err(DatasetError::Exists(_))), "{error:?}");
        let second = receive(&service, name, &sent, STANDBY).await;
        assert_eq!(second.map(drop), exists.map_err(ReceiveError::Dataset));
        let error = service.datasets.destroy("tank/above", false).await;
        assert_eq!(error, Err(DatasetError::HasChildren("tank/above".into())));
        service.datasets.destroy("tank/above", true).await.unwrap();
        let error = receiver.push(sent[sent.len() / 2..].to_vec()).await;
        let ended = DatasetError::ReceiveEnded(name.into());
        assert_eq!(error, Err(ReceiveError::Dataset(ended)));
        receiver.abort().await.unwrap();
    });
    bed.assert_clean();
}
