//! Bundles: the streams of a dataset and of those below it, received one after the other.

use aquifer_dataset::DatasetError;
use aquifer_files::{
    Bundle, BundleMember, ReceiveError, ReceiveOptions, Received, Service, Stability, TreeReceiver,
};
use aquifer_stream::StreamError;

use crate::bed::{Bed, make, noise, write};
use crate::receive::{STANDBY, changes, content, snapshot, stream};

const TREE: [&str; 3] = ["", "/a", "/a/deep"];
const DRY: ReceiveOptions = ReceiveOptions { dry: true, ..STANDBY };
/// A step of a cut that is quick, and meets all kinds of records.
const CUT_STEP: usize = 7;

fn of(first: &str) -> impl Iterator<Item = String> {
    TREE.iter().map(move |below| format!("{first}{below}"))
}

/// Three datasets, one below the other, with a small file each, and their snapshots.
async fn tree(service: &Service) {
    for (at, name) in of("tank/d").enumerate() {
        service.datasets.create(&name, &[]).await.unwrap();
        let file = make(service, service.files.root(&name).unwrap(), "file").await;
        write(service, file, 0, &noise(at as u64, 1), Stability::FileSync).await.unwrap();
        snapshot(service, &format!("{name}@a")).await;
    }
}

async fn member(service: &Service, below: &str, from: Option<&str>) -> (BundleMember, Vec<u8>) {
    let full = |at: &str| format!("tank/d{below}@{at}");
    let guid = |at: &str| service.datasets.snapshot_by_name(&full(at)).unwrap().1.record.guid;
    let (to, bytes) = match from {
        None => (guid("a"), stream(service, &full("a")).await.unwrap()),
        Some(from) => {
            let from = format!("@{from}");
            (guid("b"), changes(service, &full("b"), Some(&from)).await.unwrap())
        }
    };
    (BundleMember { below: below.into(), to, from: from.map(guid) }, bytes)
}

/// The bytes of a bundle of all three, and where its streams begin.
async fn bundle(service: &Service, from: Option<&str>) -> (Vec<u8>, Vec<usize>) {
    let snapshot = from.map_or("a", |_| "b").to_string();
    let mut all = Bundle { dataset: "tank/d".into(), snapshot, members: Vec::new() };
    let mut streams = Vec::new();
    for below in TREE {
        let (member, bytes) = member(service, below, from).await;
        all.members.push(member);
        streams.push(bytes);
    }
    let (mut bytes, mut begins) = (all.encode().unwrap(), Vec::new());
    for stream in streams {
        begins.push(bytes.len());
        bytes.extend(stream);
    }
    (bytes, begins)
}

/// Receives it; what came of the stream that failed is given up.
async fn receive(
    service: &Service,
    bytes: &[u8],
    (piece_bytes, options): (usize, ReceiveOptions),
) -> Result<Vec<Received>, ReceiveError> {
    let mut receiver = TreeReceiver::new(&service.files, "tank/copy".into(), options);
    let received = async {
        for piece in bytes.chunks(piece_bytes) {
            receiver.push(piece.to_vec()).await?;
        }
        receiver.finish().await
    };
    let received = received.await;
    if let Err(error) = &received {
        assert!(!receiver.leave(Some(error)).await.unwrap());
    }
    received
}

async fn is_equal(service: &Service, at: &str) {
    for (sent, copy) in of("tank/d").zip(of("tank/copy")) {
        let [sent, copy] = [sent, copy].map(|name| format!("{name}@{at}"));
        let [sent, copy] =
            [stream(service, &sent).await.unwrap(), stream(service, &copy).await.unwrap()];
        assert!(content(&sent) == content(&copy), "{at}");
    }
}

async fn copies(service: &Service) -> usize {
    of("tank/copy").filter(|name| service.datasets.by_name(name).is_some()).count()
}

#[test]
fn a_tree_comes_in_pieces_of_any_size_and_then_what_changed() {
    for piece_bytes in [1, 1000, 1 << 20] {
        let mut bed = Bed::new(1, 200_000);
        bed.life(async |service| {
            tree(&service).await;
            let (bytes, _) = bundle(&service, None).await;
            let checked = receive(&service, &bytes, (piece_bytes, DRY)).await.unwrap();
            assert_eq!((checked.len(), copies(&service).await), (3, 0));
            let came = receive(&service, &bytes, (piece_bytes, STANDBY)).await.unwrap();
            let names = came.iter().map(|of| of.snapshot.as_str()).collect::<Vec<_>>();
            assert_eq!(names, ["tank/copy@a", "tank/copy/a@a", "tank/copy/a/deep@a"]);
            is_equal(&service, "a").await;

            let top = service.files.root("tank/d/a").unwrap();
            let file = make(&service, top, "more").await;
            write(&service, file, 3, &noise(9, 2), Stability::FileSync).await.unwrap();
            for name in of("tank/d") {
                snapshot(&service, &format!("{name}@b")).await;
            }
            let (bytes, _) = bundle(&service, Some("a")).await;
            receive(&service, &bytes, (piece_bytes, DRY)).await.unwrap();
            let came = receive(&service, &bytes, (piece_bytes, STANDBY)).await.unwrap();
            assert!(came.iter().all(|of| !of.was_there && of.since.is_some()), "{came:?}");
            is_equal(&service, "b").await;
            // Once more: all is there.
            let came = receive(&service, &bytes, (piece_bytes, STANDBY)).await.unwrap();
            assert!(came.iter().all(|of| of.was_there), "{came:?}");
            is_equal(&service, "b").await;
        });
        bed.assert_clean();
    }
}

#[test]
fn one_that_is_cut_anywhere_is_an_error_and_what_came_before_stays() {
    let mut bed = Bed::new(1, 200_000);
    bed.life(async |service| {
        tree(&service).await;
        let (bytes, begins) = bundle(&service, None).await;
        let all = (0..bytes.len()).filter(|cut| {
            *cut < begins[0] + 400 || cut % CUT_STEP == 0 || begins.iter().any(|at| at == cut)
        });
        for cut in all {
            let error = receive(&service, &bytes[..cut], (4096, DRY)).await.unwrap_err();
            let is_known = match error {
                ReceiveError::Stream(StreamError::NotAStream) => cut == 0,
                ReceiveError::Stream(StreamError::Truncated { .. }) => !begins.contains(&cut),
                ReceiveError::Cut(_) => begins.iter().any(|at| (*at..at + 400).contains(&cut)),
                _ => false,
            };
            assert!(is_known, "{cut}: {error}");
        }
        // What came stays; the next time it is passed over.
        for (cut, came) in [(begins[1] + 500, 1), (begins[2], 2), (begins[2] + 500, 2)] {
            receive(&service, &bytes[..cut], (1000, STANDBY)).await.unwrap_err();
            assert_eq!(copies(&service).await, came, "{cut}");
        }
        let came = receive(&service, &bytes, (1000, STANDBY)).await.unwrap();
        assert_eq!(came.iter().map(|of| of.was_there).collect::<Vec<_>>(), [true, true, false]);
        is_equal(&service, "a").await;
    });
    bed.assert_clean();
}

#[test]
fn streams_that_the_head_does_not_list_are_refused() {
    let mut bed = Bed::new(1, 200_000);
    bed.life(async |service| {
        tree(&service).await;
        let (bytes, begins) = bundle(&service, None).await;
        let swapped = [&bytes[..begins[1]], &bytes[begins[2]..], &bytes[begins[1]..begins[2]]];
        let error = receive(&service, &swapped.concat(), (1000, STANDBY)).await.unwrap_err();
        assert!(matches!(error, ReceiveError::Contradicts(_)), "{error}");
        let more = [&bytes[..], &bytes[begins[2]..]].concat();
        let error = receive(&service, &more, (1000, DRY)).await.unwrap_err();
        assert_eq!(error, ReceiveError::Stream(StreamError::Trailing));
        for at in 8..begins[0] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 4;
            let error = receive(&service, &wrong, (1 << 20, DRY)).await.unwrap_err();
            assert!(matches!(error, ReceiveError::Stream(_)), "{at}: {error}");
        }
        // One of the name that is no copy.
        service.datasets.create("tank/copy/a", &[]).await.unwrap();
        let error = receive(&service, &bytes, (1000, STANDBY)).await.unwrap_err();
        assert_eq!(error, ReceiveError::Dataset(DatasetError::Exists("tank/copy/a".into())));
    });
    bed.assert_clean();
}
