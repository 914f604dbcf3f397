//! Streams of `aquifer send`: any bytes, and records of any content with right checksums; heads of
//! bundles as well.
//!
//! The first byte says which. Promises: no panic; memory in proportion to the bytes; what comes out
//! is what was put in, so a record that was taken is encoded in one way only; a stream that ended
//! takes nothing more.

use aquifer_ondisk::Writer;
use aquifer_ondisk::codec::checksum128;
use aquifer_stream::{BundleHead, Decoder, Encoder, RECORD_BYTES_MAX, Record};

/// See the module's head.
pub fn run(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first() else { return };
    if *how >= BUNDLE {
        bundle(&with_sum(u32::from(u8::MAX - how) + 1, rest));
        return;
    }
    bundle(rest);
    let stream = if how & 1 == 0 { rest.to_vec() } else { sealed(rest) };
    let step = usize::from(how >> 1) * 37 + 1;
    let (mut decoder, mut again) = (Decoder::default(), Encoder::default());
    let mut ended = false;
    'all: for piece in stream.chunks(step) {
        decoder.push(piece.to_vec());
        loop {
            match decoder.next_record() {
                Ok(None) => break,
                Err(_) => break 'all,
                Ok(Some(record)) => {
                    assert!(!ended, "a record after the end");
                    ended = matches!(record, Record::End(_));
                    again.put(&record);
                }
            }
        }
    }
    assert_eq!(decoder.has_ended(), ended);
    let (same, _) = again.into_parts();
    assert!(stream.starts_with(&same), "a record has two forms");
}

/// A head that was taken is written in one way only.
fn bundle(bytes: &[u8]) {
    if let Ok(Some((head, head_bytes))) = BundleHead::decode(bytes) {
        assert!(head.encode().as_deref() == Ok(&bytes[..head_bytes]), "a head has two forms");
    }
}

/// The head of a bundle, of this version, with this list.
fn with_sum(version: u32, list: &[u8]) -> Vec<u8> {
    let mut head = Writer::new();
    head.put(b"AQBUNDLE");
    head.u32(version);
    head.count(list.len());
    head.put(list);
    let sum = checksum128(head.as_bytes());
    head.u128(sum);
    head.into_bytes()
}

/// The first byte of an input that is the list of a bundle: 255 of version 1, 254 of version 2.
const BUNDLE: u8 = 254;

/// Records of these kinds, lengths and payloads, numbered and chained as a sender does.
fn sealed(mut rest: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    while let [kind, low, high, behind @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let (payload, behind) = behind.split_at(length.min(behind.len()).min(RECORD_BYTES_MAX));
        encoder.put_payload(*kind, payload);
        rest = behind;
    }
    encoder.into_parts().0
}
