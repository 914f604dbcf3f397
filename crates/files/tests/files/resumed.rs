//! Streams that break off, and go on.

use aquifer_dataset::{IncrementError, Partial};
use aquifer_files::{ReceiveError, ReceiveOptions, Received, Receiver, SendWanted, Service, Token};
use aquifer_ondisk::Guid;
use aquifer_ondisk::resume::StreamPlace;
use aquifer_sim::Rng;

use crate::bed::{Bed, noise, root, settle, write};
use crate::diff::DATASET;
use crate::receive::{STANDBY, changes, content, populate, receive, snapshot, stream};
use aquifer_files::Stability;

const KEEPS: ReceiveOptions = ReceiveOptions { resumable: true, ..STANDBY };
const COPY: &str = "tank/copy";

/// Returns the part of a stream that waits in the copy.
fn waits(service: &Service) -> Option<Partial> {
    service.datasets.partials().into_iter().find(|of| of.name == COPY)
}

/// Gives so much of a stream to the copy, and breaks off.
async fn break_off(service: &Service, bytes: &[u8], options: ReceiveOptions) -> bool {
    let mut receiver = Receiver::new(&service.files, COPY.into(), options);
    for piece in bytes.chunks(70_000) {
        receiver.push(piece.to_vec()).await.unwrap();
    }
    let error = receiver.finish().await.unwrap_err();
    receiver.leave(Some(&error)).await.unwrap()
}

/// The rest of the stream, from a place on, through the text of the token.
async fn rest(service: &Service, of: &Partial, place: StreamPlace) -> Vec<u8> {
    let record = &of.record;
    let token = Token { to: record.to, from: record.from, place, snapshot: record.sent.clone() }
        .to_string();
    let Token { to, from, place, snapshot } = token.parse().unwrap();
    let (to, from) = service.datasets.named_by_guids(to, from, &snapshot).unwrap();
    let start = Some(place);
    let wanted =
        SendWanted { snapshot: &to, from: from.as_deref(), start, ..SendWanted::default() };
    let (mut bytes, mut cursor) = (Vec::new(), None);
    loop {
        let page = service.files.send_page(wanted, cursor).await.unwrap();
        bytes.extend(page.bytes);
        cursor = page.next;
        if cursor.is_none() {
            return bytes;
        }
    }
}

async fn go_on(service: &Service) -> Result<Received, ReceiveError> {
    let of = waits(service).unwrap();
    let bytes = rest(service, &of, of.record.place).await;
    receive(service, COPY, &bytes, STANDBY).await
}

async fn is_equal(service: &Service, at: &str) {
    let [sent, copied] = [DATASET, COPY].map(|name| format!("{name}@{at}"));
    let wanted = content(&stream(service, &sent).await.unwrap());
    assert!(content(&stream(service, &copied).await.unwrap()) == wanted, "{at}");
    let differs = service.files.changed_names((&copied, COPY), None, 10).await.unwrap().names;
    assert!(differs.is_empty(), "{at}: {differs:?}");
}

/// Changes of all kinds, and the snapshot `b`.
async fn change(service: &Service, disk: aquifer_files::FileHandle) {
    let top = service.files.root(DATASET).unwrap();
    for at in 0..4 {
        write(service, disk, 100 + at * 500, &noise(70 + at, 200), Stability::FileSync)
            .await
            .unwrap();
    }
    for at in (0..300).step_by(3) {
        let name = format!("f{at}");
        service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
    }
    for at in 0..100 {
        crate::bed::make(service, top, &format!("new{at}")).await;
    }
    snapshot(service, "tank/d@b").await;
}

/// Both a new copy and one that is there, broken off many times, over restarts.
#[test]
fn a_stream_that_breaks_off_goes_on_after_a_restart() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let disk = populate(&service).await;
        change(&service, disk).await;
    });
    let mut rng = Rng::stream(1, "resumed");
    for (to, from) in [("a", None), ("b", Some("@a"))] {
        let full = format!("{DATASET}@{to}");
        let mut place = StreamPlace::default();
        for round in 0..6 {
            let share = rng.below(60);
            let full = full.clone();
            place = bed.life(async move |service| {
                let bytes = match waits(&service) {
                    Some(of) => rest(&service, &of, of.record.place).await,
                    None => changes(&service, &full, from).await.unwrap(),
                };
                let upto = bytes.len() * usize::try_from(share).unwrap() / 100;
                // A stream that goes on stays, whatever is asked for.
                let options = if round == 0 { KEEPS } else { STANDBY };
                assert!(break_off(&service, &bytes[..upto.max(500)], options).await);
                let of = waits(&service).unwrap();
                assert!(of.is_parked && of.record.place >= place, "{of:?} {place:?}");
                assert_eq!(of.used_bytes.is_some(), from.is_none());
                assert_eq!(service.datasets.by_name(COPY).is_some(), from.is_some());
                of.record.place
            });
            bed.assert_clean();
        }
        assert!(place > StreamPlace::default());
        bed.life(async move |service| {
            assert_eq!(waits(&service).unwrap().record.place, place);
            let received = go_on(&service).await.unwrap();
            assert_eq!(received.snapshot, format!("{COPY}@{to}"));
            assert_eq!(waits(&service), None);
            is_equal(&service, to).await;
        });
        bed.assert_clean();
    }
}

#[test]
fn what_came_is_given_up_and_freed() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let disk = populate(&service).await;
        change(&service, disk).await;
        let used = || service.datasets.info(&service.datasets.by_name("tank").unwrap()).used.bytes;
        let before = used();
        let sent = stream(&service, "tank/d@a").await.unwrap();
        assert!(break_off(&service, &sent[..sent.len() / 2], KEEPS).await);
        // It counts to what lies above.
        assert!(used() >= before + (sent.len() / 3) as u64);
        service.datasets.give_up_partial(COPY).await.unwrap();
        settle(&service, 20).await;
        assert_eq!(waits(&service), None);
        assert!(used() <= before + 65536, "{} {before}", used());
        let none = service.datasets.give_up_partial(COPY).await;
        assert_eq!(none, Err(IncrementError::NoPartial(COPY.into()).into()));
        receive(&service, COPY, &sent, STANDBY).await.unwrap();
        let sent = changes(&service, "tank/d@b", Some("@a")).await.unwrap();
        assert!(break_off(&service, &sent[..sent.len() / 2], KEEPS).await);
        service.datasets.give_up_partial(COPY).await.unwrap();
        is_equal(&service, "a").await;
        receive(&service, COPY, &sent, STANDBY).await.unwrap();
        is_equal(&service, "b").await;
    });
    bed.assert_clean();
}

/// A part that waits is in nobody's way, and nobody gets in its way.
#[test]
fn what_waits_is_changed_by_the_rest_of_its_stream_alone() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let disk = populate(&service).await;
        change(&service, disk).await;
        let datasets = &service.datasets;
        let all = stream(&service, "tank/d@a").await.unwrap();
        assert!(break_off(&service, &all[..all.len() / 2], KEEPS).await);
        let partial = || ReceiveError::Dataset(IncrementError::Partial(COPY.into()).into());
        let whole = receive(&service, COPY, &all, STANDBY).await;
        assert_eq!(whole, Err(partial()));
        // Another dataset, and another snapshot.
        let of = waits(&service).unwrap();
        let right = rest(&service, &of, of.record.place).await;
        let elsewhere = receive(&service, "tank/other", &right, STANDBY).await;
        let none = IncrementError::NoPartial("tank/other".into());
        assert_eq!(elsewhere, Err(ReceiveError::Dataset(none.into())));
        let b = datasets.snapshot_by_name("tank/d@b").unwrap().1.record.guid;
        let wrong = Partial {
            record: aquifer_ondisk::resume::ResumeRecord { to: b, ..of.record.clone() },
            ..of.clone()
        };
        let wrong = rest(&service, &wrong, of.record.place).await;
        let other = IncrementError::OtherStream { name: COPY.into(), has: "tank/d@a".into() };
        let said = receive(&service, COPY, &wrong, STANDBY).await;
        assert_eq!(said, Err(ReceiveError::Dataset(other.into())));
        // It leaves something out; one that begins before does not.
        let place = of.record.place;
        let behind = StreamPlace { within: place.within.map(|at| at + 1), ..place };
        let behind = rest(&service, &of, behind).await;
        let said = receive(&service, COPY, &behind, STANDBY).await;
        let left_out = IncrementError::BehindPlace(COPY.into());
        assert_eq!(said, Err(ReceiveError::Dataset(left_out.into())));
        assert_eq!(waits(&service), Some(of.clone()));
        let dry = receive(&service, COPY, &right, ReceiveOptions { dry: true, ..STANDBY }).await;
        assert_eq!(dry, Err(ReceiveError::DryRest));
        assert_eq!(datasets.named_by_guids(Guid(1), None, "tank/d@a"), None);
        let early = StreamPlace { object: place.object, within: None };
        let early = rest(&service, &of, early).await;
        receive(&service, COPY, &early, STANDBY).await.unwrap();
        is_equal(&service, "a").await;
        let again = receive(&service, COPY, &right, STANDBY).await;
        let none = IncrementError::NoPartial(COPY.into());
        assert_eq!(again, Err(ReceiveError::Dataset(none.into())));

        // A head that is half of something.
        let sent = changes(&service, "tank/d@b", Some("@a")).await.unwrap();
        assert!(break_off(&service, &sent[..sent.len() / 2], KEEPS).await);
        let busy = Err(IncrementError::Partial(COPY.into()).into());
        assert_eq!(datasets.set(COPY, "standby", Some("off")).await, busy);
        assert_eq!(datasets.snapshot(&[format!("{COPY}@x")], false).await.map(drop), busy);
        let options = aquifer_dataset::RollbackOptions { destroy_later: false, force: true };
        assert_eq!(datasets.rollback("tank/copy@a", options).await.map(drop), busy);
        let force = ReceiveOptions { force: true, ..STANDBY };
        assert_eq!(receive(&service, COPY, &sent, force).await, Err(partial()));
        assert!(receive(&service, COPY, &right, STANDBY).await.is_err());
        assert!(waits(&service).is_some());
        datasets.destroy(COPY, true).await.unwrap();
        assert_eq!(waits(&service), None);
    });
    bed.assert_clean();
}

/// A part that waits below a dataset goes with it, and not by mistake.
#[test]
fn a_dataset_above_goes_with_what_waits_if_that_is_said() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        populate(&service).await;
        service.datasets.create("tank/above", &[]).await.unwrap();
        let sent = stream(&service, "tank/d@a").await.unwrap();
        let mut receiver = Receiver::new(&service.files, "tank/above/copy".into(), KEEPS);
        receiver.push(sent[..sent.len() / 2].to_vec()).await.unwrap();
        assert!(receiver.leave(None).await.unwrap());
        let refused = IncrementError::Partial("tank/above/copy".into());
        assert_eq!(service.datasets.destroy("tank/above", false).await, Err(refused.into()));
        service.datasets.destroy("tank/above", true).await.unwrap();
        assert!(service.datasets.partials().is_empty());
    });
    bed.assert_clean();
}

/// A stream that contradicts itself has no rest that would mend it.
#[test]
fn a_stream_that_is_invalid_is_given_up() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        populate(&service).await;
        let sent = stream(&service, "tank/d@a").await.unwrap();
        assert!(break_off(&service, &sent[..sent.len() / 2], KEEPS).await);
        // The rest, without the names in the root directory.
        let of = waits(&service).unwrap();
        let begin = StreamPlace::default();
        let bytes = rest(&service, &of, begin).await;
        let mut encoder = aquifer_stream::Encoder::default();
        let mut decoder = aquifer_stream::Decoder::default();
        decoder.push(bytes.clone());
        while let Some(record) = decoder.next_record().unwrap() {
            match record {
                aquifer_stream::Record::End(_) => encoder.end(),
                aquifer_stream::Record::Object(inode) if inode.object.0 == 1 => {
                    let entries = inode.entries + 1;
                    let inode = aquifer_ondisk::inode::Inode { entries, ..*inode };
                    encoder.put(&aquifer_stream::Record::Object(Box::new(inode)));
                }
                record => encoder.put(&record),
            }
        }
        let mut receiver = Receiver::new(&service.files, COPY.into(), STANDBY);
        receiver.push(encoder.into_parts().0).await.unwrap();
        let error = receiver.finish().await.unwrap_err();
        assert!(matches!(error, ReceiveError::Contradicts(_)), "{error}");
        assert!(!receiver.leave(Some(&error)).await.unwrap());
        assert_eq!(waits(&service), None);
    });
    bed.assert_clean();
}
