//! Streams that are put together: rows of them, and such as no sender makes.

use aquifer_checker::lives::SCALE;
use aquifer_dataset::RollbackOptions;
use aquifer_files::{ReceiveError, Receiver, Service, Stability};
use aquifer_pool::import::ImportOptions;
use aquifer_stream::{Decoder, Encoder, Record, StreamError};

use super::{COPY, DRY, copy_all, increment, is_equal, prepare};
use crate::bed::{Bed, find, make, noise, read, root, write};
use crate::by_text::ByText;
use crate::diff::DATASET;
use crate::receive::{STANDBY, content, receive, snapshot, stream};

/// A stream like this one, with other records between its first and its last.
fn like(sent: &[u8], make: impl FnOnce(&mut Vec<Record>)) -> Vec<u8> {
    let (mut decoder, mut records) = (Decoder::default(), Vec::new());
    decoder.push(sent.to_vec());
    while let Some(record) = decoder.next_record().unwrap() {
        records.push(record);
    }
    records.pop();
    make(&mut records);
    let mut encoder = Encoder::default();
    records.iter().for_each(|record| encoder.put(record));
    encoder.end();
    encoder.into_parts().0
}

/// Each has right checksums, and would leave a tree that is none.
#[test]
fn what_does_not_add_up_is_refused() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        prepare(&service).await;
        let sent = increment(&service, "a0", "b").await;
        let is_removal = |record: &Record| matches!(record, Record::Remove { .. });
        type Wrong = Box<dyn FnOnce(&mut Vec<Record>)>;
        let wrong: Vec<Wrong> = vec![
            Box::new(move |records| {
                let at = records.iter().position(is_removal).unwrap();
                records.remove(at);
            }),
            Box::new(|records| records.retain(|of| !matches!(of, Record::Drops { .. }))),
            Box::new(|records| records.retain(|of| !matches!(of, Record::Entries { .. }))),
            Box::new(|records| {
                for record in records {
                    if let Record::Remove { generation, .. } = record {
                        *generation += 1;
                    }
                }
            }),
            Box::new(|records| {
                for record in records {
                    if let Record::Object(inode) = record {
                        inode.generation += u64::from(inode.generation > 0);
                    }
                }
            }),
            Box::new(|records| {
                let last = records.iter_mut().rev().find_map(|of| match of {
                    Record::Object(inode) => Some(inode),
                    _ => None,
                });
                last.unwrap().nlink += 1;
            }),
            Box::new(move |records| {
                records.retain(|of| matches!(of, Record::Begin(_)) || is_removal(of))
            }),
        ];
        for (at, make) in wrong.into_iter().enumerate() {
            let stream = like(&sent, make);
            for options in [DRY, STANDBY] {
                let error = receive(&service, COPY, &stream, options).await;
                assert!(matches!(error, Err(ReceiveError::Contradicts(_))), "{at}: {error:?}");
            }
            is_equal(&service, "a0").await;
        }
        receive(&service, COPY, &like(&sent, |_| {}), STANDBY).await.unwrap();
        is_equal(&service, "b").await;
    });
    bed.assert_clean();
}

/// A file comes back under its id, while what it was is still being freed.
async fn an_id_comes_back(service: &Service) {
    service.datasets.create(DATASET, &[]).await.unwrap();
    let top = service.files.root(DATASET).unwrap();
    let disk = make(service, top, "disk").await;
    for at in 0..1800 {
        write(service, disk, at * 2, &noise(at, 1), Stability::Unstable).await.unwrap();
    }
    snapshot(service, "tank/d@a").await;
    copy_all(service, "a").await;
    let all = stream(service, "tank/d@a").await.unwrap();
    service.files.remove(&root(), top, b"disk").await.kept().await.0.unwrap();
    snapshot(service, "tank/d@b").await;
    snapshot(service, "tank/d@c").await;
    receive(service, COPY, &increment(service, "a", "b").await, STANDBY).await.unwrap();
    assert!(service.datasets.has_background_work());
    // c has a part of what a had: nothing else may show through.
    let is_part = |record: &Record| !matches!(record, Record::Data { page: ..1000, .. });
    let part: Vec<Record> = content(&all).into_iter().filter(is_part).collect();
    let back = like(&increment(service, "b", "c").await, |records| records.extend(part.clone()));
    receive(service, COPY, &back, STANDBY).await.unwrap();
    while service.datasets.has_background_work() {
        service.pool.sync().await.unwrap();
    }
    let is = content(&stream(service, "tank/copy@c").await.unwrap());
    assert!(is == part);
    service.datasets.set(DATASET, "standby", Some("on")).await.unwrap();
    service.datasets.set(COPY, "standby", Some("off")).await.unwrap();
    assert_eq!(read(service, disk, 998).await.unwrap(), [0; 4096]);
    assert_eq!(read(service, disk, 1000).await.unwrap(), noise(500, 1));
    assert_eq!(find(service, COPY, "disk").await, Ok(disk));
}

#[test]
pub fn an_id_that_comes_back_waits_until_it_is_free() {
    let mut bed = Bed::new(1, 131_072);
    bed.options = ImportOptions { scale: SCALE, ..ImportOptions::default() };
    bed.life(async |service| an_id_comes_back(&service).await);
    bed.assert_clean();
}

/// A removed file comes back by an act of the service, not a made-up stream, and each copy follows,
/// also in one step.
#[test]
fn a_file_that_comes_back_travels() {
    let mut bed = Bed::new(1, 131_072);
    bed.options = ImportOptions { scale: SCALE, ..ImportOptions::default() };
    bed.life(async |service| {
        service.datasets.create(DATASET, &[]).await.unwrap();
        let top = service.files.root(DATASET).unwrap();
        let disk = make(&service, top, "disk").await;
        for at in 0..600 {
            write(&service, disk, at * 2, &noise(at, 1), Stability::Unstable).await.unwrap();
        }
        snapshot(&service, "tank/d@a").await;
        copy_all(&service, "a").await;
        for at in 0..600 {
            write(&service, disk, at * 2, &noise(1000 + at, 1), Stability::Unstable).await.unwrap();
        }
        snapshot(&service, "tank/d@b").await;
        service.files.remove(&root(), top, b"disk").await.kept().await.0.unwrap();
        snapshot(&service, "tank/d@gone").await;
        service.files.return_named("tank/d:disk@a").await.unwrap();
        write(&service, disk, 7, &noise(9, 1), Stability::FileSync).await.unwrap();
        snapshot(&service, "tank/d@back").await;
        let row = [["a", "b"], ["b", "gone"], ["gone", "back"]];
        for [old, new] in row {
            receive(&service, COPY, &increment(&service, old, new).await, STANDBY).await.unwrap();
            is_equal(&service, new).await;
        }
        for from in ["gone", "b", "a"] {
            let options = RollbackOptions { destroy_later: true, force: false };
            service.datasets.rollback(&format!("{COPY}@{from}"), options).await.unwrap();
            let sent = increment(&service, from, "back").await;
            receive(&service, COPY, &sent, STANDBY).await.unwrap();
            is_equal(&service, "back").await;
        }
        let disk = find(&service, DATASET, "disk").await.unwrap();
        assert_eq!(read(&service, disk, 4).await.unwrap(), noise(2, 1));
        assert_eq!(read(&service, disk, 7).await.unwrap(), noise(9, 1));
    });
    bed.assert_clean();
}

/// One stream behind the other, in pieces of any size: each is whole, or the row ends before it.
#[test]
fn a_row_of_increments_is_received_one_after_the_other() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let disk = prepare(&service).await;
        let mut row = vec![increment(&service, "a0", "b").await];
        for (at, [old, new]) in [["b", "c"], ["c", "d"]].into_iter().enumerate() {
            write(&service, disk, at as u64, &noise(90, 1), Stability::FileSync).await.unwrap();
            snapshot(&service, &format!("tank/d@{new}")).await;
            row.push(increment(&service, old, new).await);
        }
        let newest = |name: &str| {
            let copy = service.datasets.by_name(name).unwrap();
            copy.snapshots(service.pool.committed_txg()).last().unwrap().record.name.clone()
        };
        let all = row.concat();
        let error = receive(&service, COPY, &all, DRY).await;
        assert_eq!(error.map(drop), Err(ReceiveError::DryRow));
        // What is no stream, or not the next one, comes behind.
        let trailing = Err(ReceiveError::Stream(StreamError::Trailing));
        for behind in [&b"x"[..], &row[0], &row[2], &[0; 5000]] {
            let bytes = [&row[0][..], behind].concat();
            assert_eq!(receive(&service, COPY, &bytes, STANDBY).await.map(drop), trailing);
            is_equal(&service, "a0").await;
        }
        // Cut in the midst of the last one, and in its first record.
        for upto in [all.len() - 1, all.len() - row[2].len() + 9] {
            let error = receive(&service, COPY, &all[..upto], STANDBY).await;
            assert!(matches!(error, Err(ReceiveError::Stream(_))), "{error:?}");
            let came = if upto == all.len() - 1 { "c" } else { "b" };
            assert_eq!(newest(COPY), came);
            is_equal(&service, came).await;
            let options = RollbackOptions { destroy_later: true, force: false };
            service.datasets.rollback("tank/copy@a0", options).await.unwrap();
        }
        let mut receiver = Receiver::new(&service.files, COPY.into(), STANDBY);
        for piece in all.chunks(1000) {
            receiver.push(piece.to_vec()).await.unwrap();
        }
        let received = receiver.finish().await.unwrap();
        assert_eq!((received.snapshot, received.sent), ("tank/copy@d".into(), "tank/d@d".into()));
        assert_eq!(received.since, Some("tank/d@a0".into()));
        is_equal(&service, "d").await;
        // A new copy, and what changed since.
        let whole = stream(&service, "tank/d@a0").await.unwrap();
        let bytes = [whole, all].concat();
        let received = receive(&service, "tank/other", &bytes, STANDBY).await.unwrap();
        assert_eq!((received.snapshot, received.since), ("tank/other@d".into(), None));
        assert_eq!(newest("tank/other"), "d");
    });
    bed.assert_clean();
}
