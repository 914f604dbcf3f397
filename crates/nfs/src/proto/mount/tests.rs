//! MOUNT, compared with RFC 1813 appendix I.

use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf, XdrError};
use proptest::prelude::*;

use super::*;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = EncodeBuf::new();
    to.put(value);
    to.to_vec()
}

fn decoded<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T, XdrError> {
    let mut from = Decoder::new(bytes);
    let value = T::decode(&mut from)?;
    assert!(from.remaining().is_empty());
    Ok(value)
}

#[track_caller]
fn golden<'a, T: Encode + Decode<'a> + PartialEq + std::fmt::Debug>(value: &T, wire: &'a [u8]) {
    assert_eq!(encoded(value), wire);
    assert_eq!(decoded::<T>(wire).as_ref(), Ok(value));
}

#[test]
fn numbers() {
    assert_eq!((PROGRAM, VERSION), (100_005, 3));
    assert!(Procedure::ALL.iter().map(|procedure| procedure.wire()).eq(0..6));
    assert_eq!(Procedure::from_wire(5), Some(Procedure::Export));
    let statuses = [0, 1, 2, 5, 13, 20, 22, 63, 10_004, 10_006];
    assert!(MountStat3::ALL.iter().map(|status| status.wire()).eq(statuses));
}

#[test]
fn golden_mnt() {
    golden(&DirPath { path: Path(b"/tank") }, b"\0\0\0\x05/tank\0\0\0");
    let fhandle = NfsFh3::new(b"hndl5").unwrap();
    let ok = MountRes3::Ok { fhandle, auth_flavors: vec![1, 0] };
    let wire = [&words(&[0])[..], b"\0\0\0\x05hndl5\0\0\0", &words(&[2, 1, 0])].concat();
    golden(&ok, &wire);
    golden(&MountRes3::Fail(MountStat3::Acces), &words(&[13]));
}

#[test]
fn golden_dump_and_export() {
    let list = MountList(vec![MountBody { hostname: Name(b"xcp1"), directory: Path(b"/a") }]);
    let wire = [&words(&[1])[..], b"\0\0\0\x04xcp1\0\0\0\x02/a\0\0", &words(&[0])].concat();
    golden(&list, &wire);
    golden(&MountList(vec![]), &words(&[0]));
    let exports = Exports(vec![
        ExportNode { dir: Path(b"/a"), groups: vec![Name(b"net1"), Name(b"h2")] },
        ExportNode { dir: Path(b"/b"), groups: vec![] },
    ]);
    let wire = [
        &words(&[1])[..],
        b"\0\0\0\x02/a\0\0",
        &words(&[1]),
        b"\0\0\0\x04net1",
        &words(&[1]),
        b"\0\0\0\x02h2\0\0",
        &words(&[0]),
        &words(&[1]),
        b"\0\0\0\x02/b\0\0",
        &words(&[0, 0]),
    ];
    golden(&exports, &wire.concat());
}

#[test]
fn limits() {
    let path = |len: usize| [words(&[u32::try_from(len).unwrap()]), vec![b'p'; len]].concat();
    assert!(decoded::<DirPath<'_>>(&path(1024)).is_ok());
    let long = path(1025);
    let error = XdrError::TooLong { offset: 0, len: 1025, limit: 1024 };
    assert_eq!(decoded::<DirPath<'_>>(&long), Err(error));
    let long = [words(&[1]), path(256)].concat();
    let error = XdrError::TooLong { offset: 4, len: 256, limit: 255 };
    assert_eq!(decoded::<MountList<'_>>(&long), Err(error));
    // A count that no record could hold costs an error, not memory.
    let flavors = [&words(&[0, 0, u32::MAX])[..], &words(&[1, 2])].concat();
    assert!(matches!(decoded::<MountRes3>(&flavors), Err(XdrError::Truncated { .. })));
}

#[test]
#[should_panic(expected = "a failure has a reason")]
fn a_failure_that_is_ok_is_our_bug() {
    encoded(&MountRes3::Fail(MountStat3::Ok));
}

#[test]
#[should_panic(expected = "a path that MOUNT cannot carry")]
fn an_endless_path_is_our_bug() {
    encoded(&Path(&[b'p'; 1025]));
}

proptest! {
    #[test]
    fn round_trip(
        pairs in prop::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..5),
        flavors in prop::collection::vec(any::<u32>(), 0..5),
        handle in prop::collection::vec(any::<u8>(), 0..=64),
        status in 1..MountStat3::ALL.len(),
    ) {
        let short = |bytes: &'_ [u8]| bytes.len() <= NAME_BYTES_MAX;
        prop_assume!(pairs.iter().all(|(a, b)| short(a) && short(b)));
        let body = |(a, b)| MountBody { hostname: Name(a), directory: Path(b) };
        let list = MountList(pairs.iter().map(|(a, b)| body((a, b))).collect());
        let wire = encoded(&list);
        prop_assert_eq!(decoded::<MountList<'_>>(&wire), Ok(list));
        let groups: Vec<_> = pairs.iter().map(|(a, _)| Name(a)).collect();
        let node = |(_, b): &'_ (_, Vec<u8>)| b.clone();
        let dirs: Vec<_> = pairs.iter().map(node).collect();
        let nodes = dirs.iter().map(|dir| ExportNode { dir: Path(dir), groups: groups.clone() });
        let exports = Exports(nodes.collect());
        let wire = encoded(&exports);
        prop_assert_eq!(decoded::<Exports<'_>>(&wire), Ok(exports));
        let ok = MountRes3::Ok { fhandle: NfsFh3::new(&handle).unwrap(), auth_flavors: flavors };
        prop_assert_eq!(decoded::<MountRes3>(&encoded(&ok)), Ok(ok));
        let fail = MountRes3::Fail(MountStat3::ALL[status]);
        prop_assert_eq!(decoded::<MountRes3>(&encoded(&fail)), Ok(fail));
    }

    #[test]
    fn total(
        start in prop::collection::vec(0..6_u32, 0..40),
        rest in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let wire = [words(&start), rest].concat();
        let from = || Decoder::new(&wire);
        let _ = DirPath::decode(&mut from());
        let _ = MountRes3::decode(&mut from());
        let _ = MountList::decode(&mut from());
        let _ = Exports::decode(&mut from());
    }
}
