//! Record marking under every chunking, compared with a parser that is too simple to be wrong.

use proptest::prelude::*;

use super::*;
use crate::limits::{RECEIVE_BUFFER_BYTES, RECORD_BYTES_MAX};

fn mark(len: usize, last: bool) -> [u8; 4] {
    let len = u32::try_from(len).unwrap();
    (if last { len | LAST_FRAGMENT } else { len }).to_be_bytes()
}

/// One record as a stream, cut into fragments of these lengths and a last one with the rest.
fn stream_of(record: &[u8], cuts: &[usize]) -> Vec<u8> {
    let (mut stream, mut rest) = (Vec::new(), record);
    for &cut in cuts {
        let (fragment, after) = rest.split_at(cut.min(rest.len()));
        stream.extend(mark(fragment.len(), false));
        stream.extend(fragment);
        rest = after;
    }
    stream.extend(mark(rest.len(), true));
    stream.extend(rest);
    stream
}

/// Puts at most `most` bytes of `stream` into the reader, as one read would.
fn read(reader: &mut RecordReader, stream: &mut &[u8], most: usize) -> usize {
    let space = reader.space();
    assert!(!space.is_empty());
    let n = most.min(space.len()).min(stream.len());
    space[..n].copy_from_slice(&stream[..n]);
    reader.filled(n);
    *stream = &stream[n..];
    n
}

/// All records of `stream`, fed in chunks of the given sizes, over and over.
fn records(reader: &mut RecordReader, stream: &[u8], chunks: &[usize]) -> Vec<Vec<u8>> {
    let (mut found, mut stream) = (Vec::new(), stream);
    let mut chunks = chunks.iter().cycle();
    while !stream.is_empty() {
        read(reader, &mut stream, *chunks.next().unwrap());
        while let Some(record) = reader.next_record().unwrap() {
            found.push(record.to_vec());
        }
    }
    found
}

fn reader() -> RecordReader {
    RecordReader::new(RECORD_BYTES_MAX, RECEIVE_BUFFER_BYTES)
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 31 + seed * 7 + i / 251) % 256).unwrap()).collect()
}

/// RFC 5531 section 11: a four-byte header, highest bit for the last fragment, then the length.
#[test]
fn golden() {
    let mut to = EncodeBuf::new();
    let open = begin_record(&mut to);
    to.u32(0xdead_beef);
    end_record(&mut to, open);
    assert_eq!(to.to_vec(), [0x80, 0, 0, 4, 0xde, 0xad, 0xbe, 0xef]);
    let stream = [0, 0, 0, 1, 0xde, 0, 0, 0, 0, 0x80, 0, 0, 2, 0xad, 0xbe];
    let found = records(&mut reader(), &stream, &[usize::MAX]);
    assert_eq!(found, [[0xde, 0xad, 0xbe]]);
}

#[test]
fn an_answer_can_be_taken_back_inside_its_record() {
    let mut to = EncodeBuf::new();
    to.u32(1);
    let open = begin_record(&mut to);
    to.u64(2);
    to.truncate(open.body());
    to.u32(3);
    end_record(&mut to, open);
    assert_eq!(to.to_vec(), [0, 0, 0, 1, 0x80, 0, 0, 4, 0, 0, 0, 3]);
}

/// Every way to cut a stream in three chunks.
#[test]
fn every_chunking_of_a_short_stream() {
    let first = stream_of(b"hello, records", &[3, 0, 5]);
    let stream = [first, stream_of(b"", &[]), stream_of(b"xyz", &[0])].concat();
    let want = [&b"hello, records"[..], b"", b"xyz"];
    for first in 1..stream.len() {
        for second in 1..=stream.len() - first {
            let found = records(&mut reader(), &stream, &[first, second, usize::MAX]);
            assert_eq!(found, want, "cut at {first} and {second} bytes after");
        }
    }
    for size in 1..=stream.len() {
        let mut reader = reader();
        assert_eq!(records(&mut reader, &stream, &[size]), want, "chunks of {size}");
        assert_eq!(reader.stream_end(), StreamEnd::Clean);
    }
}

/// XCP-ng's NFS driver probes with one `\n` and closes (sm's nfs.py).
#[test]
fn xcp_ng_probe_is_incomplete() {
    let mut reader = reader();
    assert_eq!(reader.stream_end(), StreamEnd::Clean);
    assert!(records(&mut reader, b"\n", &[1]).is_empty());
    assert_eq!(reader.partial(), None);
    assert_eq!(reader.stream_end(), StreamEnd::Incomplete { bytes: 1 });
}

/// HTTP or TLS on this port is over the limit at the first word.
#[test]
fn other_protocols_are_too_long() {
    for stream in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01\x02\x00\x01", b"\n\n\n\n"] {
        let mut reader = reader();
        let mut rest = stream;
        read(&mut reader, &mut rest, usize::MAX);
        let error = reader.next_record().unwrap_err();
        assert!(matches!(error, RecordError::TooLong { limit: RECORD_BYTES_MAX, .. }));
        assert_eq!(reader.next_record(), Err(error), "no way back after an error");
        assert!(!reader.space().is_empty());
    }
}

#[test]
fn the_limit_is_on_the_whole_record() {
    let record = bytes(100, 1);
    for cuts in [&[][..], &[50], &[99, 0, 1], &[100]] {
        let mut exact = RecordReader::new(100, 0);
        assert_eq!(records(&mut exact, &stream_of(&record, cuts), &[7]), [&record[..]]);
        let mut short = RecordReader::new(99, 0);
        let stream = stream_of(&record, cuts);
        read(&mut short, &mut &stream[..], usize::MAX);
        assert_eq!(short.next_record(), Err(RecordError::TooLong { bytes: 100, limit: 99 }));
    }
}

#[test]
fn empty_fragments_are_counted_per_record() {
    let limit = usize::try_from(EMPTY_FRAGMENTS_MAX).unwrap();
    let allowed = stream_of(b"ab", &vec![0; limit]);
    let mut fine = reader();
    let twice = [allowed.clone(), allowed].concat();
    assert_eq!(records(&mut fine, &twice, &[5]), [b"ab", b"ab"]);
    let stream = stream_of(b"ab", &vec![0; limit + 1]);
    let mut refused = reader();
    read(&mut refused, &mut &stream[..], usize::MAX);
    let error = RecordError::EmptyFragments { limit: EMPTY_FRAGMENTS_MAX };
    assert_eq!(refused.next_record(), Err(error));
}

/// Many records in one read stay where they were received: nothing is moved or copied.
#[test]
fn records_are_found_in_place() {
    let stream = (0..1000).flat_map(|i| stream_of(&bytes(200, i), &[])).collect::<Vec<_>>();
    let mut reader = reader();
    let front = reader.space().as_ptr().addr();
    assert_eq!(reader.space().len(), RECEIVE_BUFFER_BYTES);
    assert_eq!(read(&mut reader, &mut &stream[..], usize::MAX), 204_000);
    for i in 0..1000 {
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!(record, bytes(200, i));
        assert_eq!(record.as_ptr().addr(), front + i * 204 + 4);
    }
    assert_eq!(reader.next_record(), Ok(None));
    assert_eq!(reader.space().len(), RECEIVE_BUFFER_BYTES, "an empty buffer starts at its front");
}

/// A 1 MiB WRITE: after the first read its head and the number of missing bytes are known. Received
/// through the buffer, the last read ends with the record, and it is copied once at most.
#[test]
fn a_large_record_through_the_buffer() {
    let record = bytes(RECORD_BYTES_MAX, 3);
    let stream = [stream_of(&record, &[]), stream_of(b"next", &[])].concat();
    let (mut reader, mut rest) = (reader(), &stream[..]);
    assert_eq!(read(&mut reader, &mut rest, 1000), 1000);
    assert_eq!(reader.next_record(), Ok(None));
    let missing = RECORD_BYTES_MAX - 996;
    assert_eq!(reader.partial(), Some(Partial { head: &record[..996], missing, last: true }));
    assert_eq!(read(&mut reader, &mut rest, usize::MAX), missing, "the read ends with the record");
    assert_eq!(reader.next_record(), Ok(Some(&record[..])));
    assert_eq!(reader.next_record(), Ok(None));
    assert_eq!(reader.partial(), None);
    assert_eq!(records(&mut reader, rest, &[usize::MAX]), [b"next"]);
    // Also in a buffer that has room for more.
    let smaller = stream_of(&bytes(200_000, 3), &[]);
    let twice = [&smaller[..], &smaller].concat();
    let mut rest = &twice[..];
    read(&mut reader, &mut rest, 1000);
    assert_eq!(reader.next_record(), Ok(None));
    assert_eq!(read(&mut reader, &mut rest, usize::MAX), 199_004);
    assert_eq!(reader.next_record(), Ok(Some(&bytes(200_000, 3)[..])));
    assert_eq!(records(&mut reader, rest, &[usize::MAX]).len(), 1);
    let most = RECORD_BYTES_MAX + RECEIVE_BUFFER_BYTES + MARK_BYTES;
    assert!(reader.held_bytes() <= most, "{} bytes held", reader.held_bytes());
    reader.release();
    assert_eq!(reader.held_bytes(), 0);
    assert_eq!(records(&mut reader, &stream, &[100_000]).len(), 2);
}

/// A 1 MiB WRITE is detached from the reader: the caller receives the rest, the next record
/// follows.
#[test]
fn a_large_record_detached() {
    let record = bytes(1 << 20, 4);
    let before = stream_of(b"before", &[]);
    let stream = [before, stream_of(&record, &[]), stream_of(b"after", &[2])].concat();
    let (mut reader, mut rest) = (reader(), &stream[..]);
    read(&mut reader, &mut rest, usize::MAX);
    assert_eq!(reader.detach(), None, "nothing is parsed yet");
    assert_eq!(reader.next_record(), Ok(Some(&b"before"[..])));
    assert_eq!(reader.detach(), None, "the next record's mark is not parsed yet");
    assert_eq!(reader.next_record(), Ok(None));
    let partial = reader.partial().unwrap();
    assert!(partial.last);
    let mut whole = partial.head.to_vec();
    assert_eq!(whole.len() + partial.missing, record.len());
    read(&mut reader, &mut &rest[..], 100);
    assert_eq!(reader.partial(), None, "100 bytes are unparsed");
    assert_eq!(reader.detach(), None, "100 bytes are unparsed");
    assert_eq!(reader.next_record(), Ok(None));
    whole.extend(&rest[..100]);
    rest = &rest[100..];
    let missing = reader.detach().unwrap();
    whole.extend(&rest[..missing]);
    assert_eq!(whole, record);
    assert_eq!((reader.partial(), reader.stream_end()), (None, StreamEnd::Clean));
    assert_eq!(records(&mut reader, &rest[missing..], &[3]), [b"after"]);
}

/// A record whose present fragment is not the last cannot be detached: its end is not known.
#[test]
fn no_detaching_before_the_last_fragment() {
    let stream = stream_of(&bytes(300, 5), &[200]);
    let (mut reader, mut rest) = (reader(), &stream[..]);
    read(&mut reader, &mut rest, 104);
    assert_eq!(reader.next_record(), Ok(None));
    let partial = reader.partial().unwrap();
    assert_eq!((partial.head.len(), partial.missing, partial.last), (100, 100, false));
    assert_eq!(reader.detach(), None);
    read(&mut reader, &mut rest, 102);
    assert_eq!(reader.next_record(), Ok(None));
    assert_eq!(reader.partial(), None, "between fragments nothing is known to be missing");
    assert_eq!(reader.detach(), None);
    assert_eq!(reader.stream_end(), StreamEnd::Incomplete { bytes: 202 });
    assert_eq!(records(&mut reader, rest, &[1]), [bytes(300, 5)]);
}

/// A record of one-byte fragments takes five bytes of stream for each byte; the buffer must not.
#[test]
fn marks_between_fragments_do_not_add_up() {
    let record = bytes(100_000, 6);
    let stream = stream_of(&record, &vec![1; record.len()]);
    let mut reader = RecordReader::new(100_000, 0);
    assert_eq!(records(&mut reader, &stream, &[50_000]), [&record[..]]);
    assert!(reader.held_bytes() <= 100_000 + 2 * READ_AHEAD_BYTES);
}

#[test]
#[should_panic(expected = "filled more than the space given")]
fn overfilling_is_our_bug() {
    let mut reader = reader();
    let space = reader.space().len();
    reader.filled(space + 1);
}

proptest! {
    /// Any records, in any fragments, in any chunks.
    #[test]
    fn any_fragments_any_chunks(
        sizes in prop::collection::vec(
            (prop_oneof![0..300_usize, 60_000..200_000_usize],
             prop::collection::vec(0..80_000_usize, 0..4)),
            1..6,
        ),
        chunks in prop::collection::vec(1..90_000_usize, 1..6),
        detach in any::<bool>(),
    ) {
        let want: Vec<_> = sizes.iter().enumerate().map(|(i, size)| bytes(size.0, i)).collect();
        let stream: Vec<u8> = want.iter().zip(&sizes)
            .flat_map(|(record, size)| stream_of(record, &size.1)).collect();
        let mut reader = RecordReader::new(200_000, 0);
        let (mut found, mut rest) = (Vec::new(), &stream[..]);
        let mut chunks = chunks.iter().cycle();
        while !rest.is_empty() {
            read(&mut reader, &mut rest, *chunks.next().unwrap());
            while let Some(record) = reader.next_record().unwrap() {
                found.push(record.to_vec());
            }
            if !detach {
                continue;
            }
            let head = reader.partial().map(|partial| partial.head.to_vec());
            if let (Some(mut head), Some(missing)) = (head, reader.detach()) {
                head.extend(&rest[..missing]);
                rest = &rest[missing..];
                found.push(head);
            }
        }
        prop_assert_eq!(found, want);
        prop_assert_eq!(reader.stream_end(), StreamEnd::Clean);
        prop_assert!(reader.held_bytes() <= 200_000 + 2 * READ_AHEAD_BYTES);
    }

    /// Any bytes at all: records or an error, never a panic, whatever the chunks.
    #[test]
    fn total(
        stream in prop::collection::vec(
            prop_oneof![Just(0), Just(0x80), 0..9_u8, any::<u8>()],
            0..400,
        ),
        sizes in prop::collection::vec(1..40_usize, 1..4),
    ) {
        let mut outcomes = Vec::new();
        for sizes in [&sizes[..], &[usize::MAX]] {
            let mut reader = RecordReader::new(4096, 0);
            let (mut found, mut rest) = (Vec::new(), &stream[..]);
            let mut sizes = sizes.iter().cycle();
            let error = loop {
                match reader.next_record() {
                    Ok(Some(record)) => found.push(record.to_vec()),
                    Ok(None) if rest.is_empty() => break None,
                    Ok(None) => { read(&mut reader, &mut rest, *sizes.next().unwrap()); }
                    Err(error) => break Some(error),
                }
            };
            outcomes.push((found, error));
        }
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }
}
