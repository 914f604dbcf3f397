//! Streams that are whole, cut anywhere, changed anywhere, and hostile.

use aquifer_ondisk::dirent::{Dirent, hash_key};
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_ondisk::resume::StreamPlace;
use aquifer_ondisk::{Guid, ObjectId};
use aquifer_stream::{
    Begin, Chain, Decoder, Encoder, HOLE_PAGES_MAX, PAGE_BYTES, Point, Record, StreamError,
};

fn point(guid: u64, name: &str) -> Point {
    let created = Time { seconds: 1_700_000_000, nanoseconds: 5 };
    Point { guid: Guid(guid), created, name: name.into() }
}

fn begin(is_incremental: bool) -> Record {
    Record::Begin(Begin {
        fs_guid: Guid(0x0123_4567_89ab_cdef),
        next_object: 19,
        dataset: "tank/vms".into(),
        from: is_incremental.then(|| point(7, "a")),
        to: point(8, "b"),
        start: None,
        properties: vec![("compression".into(), "zstd".into())],
    })
}

fn inode(id: u64, kind: FileKind, size: u64) -> Inode {
    let time = Time { seconds: 1_600_000_000, nanoseconds: 999_999_999 };
    let is_directory = kind == FileKind::Directory;
    Inode {
        object: ObjectId(id),
        generation: if id == 1 { 0 } else { 1000 + id },
        kind,
        damaged: false,
        cloned: false,
        mode: 0o640,
        nlink: if is_directory { 2 } else { 1 },
        uid: 10,
        gid: 20,
        rdev: 0,
        size,
        refer_bytes: 0,
        saved_bytes: 0,
        entries: if is_directory { 2 } else { 0 },
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        change: 77,
        parent: ObjectId(1),
        line: 1,
        origin: ObjectId(0),
        verifier: 3,
        hash_seed: if is_directory { 42 } else { 0 },
        root: None,
    }
}

fn object(id: u64, kind: FileKind, size: u64) -> Record {
    Record::Object(Box::new(inode(id, kind, size)))
}

fn entry(name: &str, id: u64, kind: FileKind) -> Dirent {
    let key = hash_key(42, name.as_bytes());
    let object = ObjectId(id);
    Dirent { key, object, generation: 1000 + id, kind, name: name.into() }
}

fn entries(mut entries: Vec<Dirent>) -> Record {
    entries.sort_by_key(|entry| entry.key);
    Record::Entries { object: ObjectId(1), entries }
}

fn data(id: u64, page: u64, pages: usize) -> Record {
    let content = (0..251).cycle().take(pages * PAGE_BYTES).collect::<Vec<u8>>().into();
    Record::Data { object: ObjectId(id), page, content }
}

fn sample(is_incremental: bool) -> Vec<Record> {
    let names = vec![entry("disk", 16, FileKind::Regular), entry("link", 17, FileKind::Symlink)];
    let mut records = vec![begin(is_incremental), object(1, FileKind::Directory, 0)];
    if is_incremental {
        records.push(Record::Drops { object: ObjectId(1), keys: vec![256, 512] });
    }
    records.push(entries(names));
    records.push(object(16, FileKind::Regular, 40_000));
    records.push(data(16, 1, 2));
    if is_incremental {
        records.push(Record::Hole { object: ObjectId(16), page: 3, pages: 2 });
    }
    records.push(data(16, 9, 1));
    records.extend([object(17, FileKind::Symlink, 3), data(17, 0, 1)]);
    if is_incremental {
        records.push(Record::Remove { object: ObjectId(18), generation: 9 });
    }
    records
}

/// Returns the records of a stream that goes on within object 16, of which pages came up to this
/// one.
fn rest(within: u64) -> Vec<Record> {
    let Record::Begin(begin) = begin(true) else { unreachable!("made here") };
    let start = Some(StreamPlace { object: ObjectId(16), within: Some(within) });
    let all = sample(true).into_iter();
    let behind =
        all.skip_while(|record| !matches!(record, Record::Object(of) if of.object.0 == 16));
    let is_left = |record: &Record| !matches!(record, Record::Data { page: 1, .. });
    let begin = Record::Begin(Begin { start, ..begin });
    std::iter::once(begin).chain(behind.filter(is_left)).collect()
}

fn encoded(records: &[Record]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    records.iter().for_each(|record| encoder.put(record));
    encoder.end();
    encoder.into_parts().0
}

fn decode(bytes: &[u8], step: usize) -> Result<Vec<Record>, StreamError> {
    let (mut decoder, mut records) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(step) {
        decoder.push(piece.to_vec());
        while let Some(record) = decoder.next_record()? {
            records.push(record);
        }
    }
    decoder.finish()?;
    Ok(records)
}

#[test]
fn what_was_put_in_comes_out_in_pieces_of_any_size() {
    for is_incremental in [false, true] {
        let records = sample(is_incremental);
        let bytes = encoded(&records);
        for step in [1, 7, 4096, bytes.len()] {
            let mut came = decode(&bytes, step).unwrap();
            assert!(matches!(came.pop(), Some(Record::End(_))));
            assert_eq!(came, records, "{step}");
        }
    }
}

#[test]
fn an_encoder_goes_on_where_another_one_ended() {
    let records = sample(true);
    let (mut bytes, mut chain) = (Vec::new(), Chain::default());
    for record in &records {
        let text = chain.to_string();
        let mut encoder = Encoder::after(text.parse().unwrap());
        encoder.put(record);
        let (more, next) = encoder.into_parts();
        bytes.extend(more);
        chain = next;
    }
    let mut encoder = Encoder::after(chain);
    encoder.end();
    bytes.extend(encoder.into_parts().0);
    assert_eq!(bytes, encoded(&records));
    for bad in ["", "1", "1.2.3", "g.0.0.0.0.0.0.0", "1.0.0.0.0.0.0.0.0"] {
        assert!(bad.parse::<Chain>().is_err(), "{bad}");
    }
}

#[test]
fn a_stream_cut_at_any_byte_is_cut_short() {
    let bytes = encoded(&sample(true));
    for cut in 0..bytes.len() {
        let error = decode(&bytes[..cut], 4096).unwrap_err();
        let is_known = match error {
            StreamError::NotAStream => cut == 0,
            StreamError::Truncated { .. } => cut > 0,
            _ => false,
        };
        assert!(is_known, "{cut}: {error}");
    }
}

#[test]
fn a_flipped_bit_is_found() {
    let bytes = encoded(&sample(true));
    // All bits of what is not content, and some of each page.
    for at in (0..bytes.len()).filter(|at| at % 4096 < 600 || at % 97 == 0) {
        for bit in [0, 3, 7] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << bit;
            assert!(decode(&wrong, 4096).is_err(), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn records_that_are_moved_doubled_or_left_out_are_found() {
    let records = sample(true);
    let of = |records: &[Record]| {
        let mut pieces = Vec::new();
        let mut chain = Chain::default();
        for record in records {
            let mut encoder = Encoder::after(chain);
            encoder.put(record);
            let (bytes, next) = encoder.into_parts();
            pieces.push(bytes);
            chain = next;
        }
        let mut encoder = Encoder::after(chain);
        encoder.end();
        pieces.push(encoder.into_parts().0);
        pieces
    };
    let pieces = of(&records);
    for at in 0..pieces.len() {
        let mut left_out = pieces.clone();
        left_out.remove(at);
        assert!(decode(&left_out.concat(), 4096).is_err(), "{at} left out");
        let mut doubled = pieces.clone();
        doubled.insert(at, pieces[at].clone());
        assert!(decode(&doubled.concat(), 4096).is_err(), "{at} doubled");
        if at > 0 {
            let mut moved = pieces.clone();
            moved.swap(at, at - 1);
            assert!(decode(&moved.concat(), 4096).is_err(), "{at} moved");
        }
    }
    let mut two = encoded(&records);
    two.extend(encoded(&records));
    assert_eq!(decode(&two, 4096), Err(StreamError::Trailing));
}

/// Each has right checksums.
#[test]
fn what_no_sender_says_is_refused() {
    let root = object(1, FileKind::Directory, 0);
    let file = object(16, FileKind::Regular, 40_000);
    let remove = |id| Record::Remove { object: ObjectId(id), generation: 9 };
    let hole = |page, pages| Record::Hole { object: ObjectId(16), page, pages };
    let drops = |keys: Vec<u64>| Record::Drops { object: ObjectId(1), keys };
    let wrong_key = Dirent { key: 512, ..entry("x", 16, FileKind::Regular) };
    let dot = entry("..", 16, FileKind::Regular);
    let no_links = Inode { nlink: 0, ..inode(16, FileKind::Regular, 0) };
    let of_kind = |kind, size| object(16, kind, size);
    let cases: Vec<(bool, Vec<Record>)> = vec![
        (false, vec![begin(false)]),
        (false, vec![remove(16)]),
        (true, vec![remove(1)]),
        (true, vec![remove(3)]),
        (true, vec![root.clone(), root.clone()]),
        (true, vec![file.clone(), root.clone()]),
        (true, vec![object(2, FileKind::Directory, 0)]),
        (true, vec![object(1, FileKind::Regular, 0)]),
        (true, vec![Record::Object(Box::new(no_links))]),
        (true, vec![of_kind(FileKind::Symlink, 5000)]),
        (true, vec![data(16, 0, 1)]),
        (true, vec![root.clone(), data(1, 0, 1)]),
        (true, vec![file.clone(), data(17, 0, 1)]),
        (true, vec![file.clone(), data(16, 9, 2)]),
        (true, vec![file.clone(), data(16, 1, 2), data(16, 2, 1)]),
        (true, vec![file.clone(), data(16, 1, 2), hole(1, 1)]),
        (true, vec![file.clone(), hole(0, HOLE_PAGES_MAX + 1)]),
        (true, vec![file.clone(), hole(0, 0)]),
        (true, vec![file.clone(), hole(u64::MAX, 2)]),
        (false, vec![file.clone(), hole(0, 1)]),
        (true, vec![file.clone(), entries(vec![entry("x", 17, FileKind::Regular)])]),
        (true, vec![root.clone(), entries(vec![wrong_key])]),
        (true, vec![root.clone(), entries(vec![dot])]),
        (true, vec![root.clone(), entries(vec![entry("x", 2, FileKind::Regular)])]),
        (true, vec![root.clone(), entries(Vec::new())]),
        (true, vec![root.clone(), drops(vec![512, 256])]),
        (false, vec![root.clone(), drops(vec![256])]),
        (
            true,
            vec![root.clone(), entries(vec![entry("x", 16, FileKind::Regular)]), drops(vec![9])],
        ),
        (true, vec![remove(16), data(16, 0, 1)]),
    ];
    for (is_incremental, records) in cases {
        let all: Vec<Record> = [vec![begin(is_incremental)], records].concat();
        let error = decode(&encoded(&all), 4096).unwrap_err();
        assert!(matches!(error, StreamError::Invalid { .. }), "{error}: {all:?}");
    }
}

/// A stream that goes on begins where it says, and not elsewhere.
#[test]
fn what_goes_on_begins_where_it_says() {
    let records = rest(3);
    let mut came = decode(&encoded(&records), 7).unwrap();
    assert!(matches!(came.pop(), Some(Record::End(_))));
    assert_eq!(came, records);
    let with = |start: StreamPlace, behind: &[Record]| {
        let Record::Begin(begin) = begin(true) else { unreachable!("made here") };
        let begin = Record::Begin(Begin { start: Some(start), ..begin });
        decode(&encoded(&[&[begin], behind].concat()), 4096)
    };
    let at = |object, within| StreamPlace { object: ObjectId(object), within };
    let file = || object(16, FileKind::Regular, 40_000);
    let remove = || Record::Remove { object: ObjectId(18), generation: 9 };
    for (start, behind) in [
        (at(16, None), vec![file(), data(16, 1, 2)]),
        (at(16, None), vec![remove()]),
        (at(16, Some(1)), vec![file(), data(16, 1, 2)]),
        (at(16, Some(9)), vec![file()]),
        (at(0, None), vec![object(1, FileKind::Directory, 0)]),
        (at(99, Some(1)), vec![]),
    ] {
        with(start, &behind).unwrap();
    }
    for (start, behind) in [
        (at(17, None), vec![file()]),
        (at(16, Some(2)), vec![file(), data(16, 1, 2)]),
        (at(16, Some(2)), vec![data(16, 2, 1)]),
        (at(16, Some(2)), vec![remove()]),
        (at(15, Some(2)), vec![file()]),
    ] {
        let error = with(start, &behind).unwrap_err();
        assert!(matches!(error, StreamError::Invalid { .. }), "{error}");
    }
}

#[test]
fn what_is_no_stream_is_told_from_one_of_a_newer_release() {
    for other in [&b"P"[..], b"PK\x03\x04 a zip file that is longer", &[0; 100], &[1, 0, 0, 0, 9]] {
        let error = decode(other, 1).unwrap_err();
        let is_known = matches!(error, StreamError::NotAStream | StreamError::Truncated { .. });
        assert!(is_known, "{error}");
    }
    let mut newer = encoded(&sample(false));
    newer[24] = 9;
    assert_eq!(decode(&newer, 1), Err(StreamError::Newer(9)));
    let mut long = encoded(&sample(false));
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(decode(&long, 1), Err(StreamError::Invalid { number: 0, .. })));
}

/// Streams are kept for years: what was sent once must be readable. `AQUIFER_BLESS=1` writes the
/// file, for a new version of the format.
#[test]
fn the_stream_is_that_of_the_golden_file() {
    for (name, records) in
        [("full", sample(false)), ("incremental", sample(true)), ("rest", rest(3))]
    {
        let path = format!("{}/tests/golden/{name}.stream", env!("CARGO_MANIFEST_DIR"));
        let bytes = encoded(&records);
        if std::env::var_os("AQUIFER_BLESS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{path} differs");
    }
}
