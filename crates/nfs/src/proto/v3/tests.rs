//! NFSv3 on the wire.

mod golden_args;
mod golden_results;
mod readdir;
mod round_trip;
mod strategy;

use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf, Span, XdrError};

use super::*;

/// Words in their wire form.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = EncodeBuf::new();
    to.put(value);
    to.to_vec()
}

/// Decodes a value from all of `bytes`.
fn decoded<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T, XdrError> {
    let mut from = Decoder::new(bytes);
    let value = T::decode(&mut from)?;
    assert!(from.remaining().is_empty(), "{} bytes left over", from.remaining().len());
    Ok(value)
}

/// Checks that `value` and `wire` encode and decode to each other.
#[track_caller]
fn golden<'a, T: Encode + Decode<'a> + PartialEq + std::fmt::Debug>(value: &T, wire: &'a [u8]) {
    assert_eq!(encoded(value), wire);
    assert_eq!(decoded::<T>(wire).as_ref(), Ok(value));
}

/// A handle of five bytes, and its eight on the wire behind the length word.
fn handle() -> NfsFh3 {
    NfsFh3::new(b"hndl5").unwrap()
}

const HANDLE_WIRE: [u8; 12] = *b"\0\0\0\x05hndl5\0\0\0";

/// Attributes in which every field has another value, and their wire form in the order of
/// `struct fattr3`.
fn attributes() -> Fattr3 {
    Fattr3 {
        ftype: Ftype3::Reg,
        mode: 0o644,
        nlink: 2,
        uid: 3,
        gid: 4,
        size: 0x0000_0005_0000_0006,
        used: 0x0000_0007_0000_0008,
        rdev: SpecData3 { specdata1: 9, specdata2: 10 },
        fsid: 0x0000_000b_0000_000c,
        fileid: 0x0000_000d_0000_000e,
        atime: Nfstime3 { seconds: 15, nseconds: 16 },
        mtime: Nfstime3 { seconds: 17, nseconds: 18 },
        ctime: Nfstime3 { seconds: 19, nseconds: 20 },
    }
}

const ATTRIBUTES_WORDS: [u32; 21] =
    [1, 0o644, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];

/// wcc_data with both halves, and its words.
fn wcc() -> WccData {
    let before = WccAttr {
        size: 21,
        mtime: Nfstime3 { seconds: 22, nseconds: 23 },
        ctime: Nfstime3 { seconds: 24, nseconds: 25 },
    };
    WccData { before: Some(before), after: Some(attributes()) }
}

fn wcc_words() -> Vec<u32> {
    [&[1, 0, 21, 22, 23, 24, 25, 1][..], &ATTRIBUTES_WORDS].concat()
}
