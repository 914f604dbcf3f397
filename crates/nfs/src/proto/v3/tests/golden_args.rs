//! Arguments compared with RFC 1813, byte by byte. The first name in each test is the RFC's
//! section.

use aquifer_blockio::Page;
use aquifer_rpc::xdr::PagePiece;

use super::*;

/// Checks that `args` belong to the procedure of this number, and encode to `wire` and back.
#[track_caller]
fn call(number: u32, args: &Args3<'_>, wire: &[u8]) {
    let procedure = Procedure3::from_wire(number).unwrap();
    assert_eq!(args.procedure(), procedure);
    assert_eq!(encoded(args), wire);
    let mut from = Decoder::new(wire);
    assert_eq!(Args3::decode(procedure, &mut from).as_ref(), Ok(args));
    assert!(from.remaining().is_empty());
}

fn place() -> DirOpArgs3<'static> {
    DirOpArgs3 { dir: handle(), name: b"disk.vhd" }
}

const PLACE_WIRE: [u8; 24] = *b"\0\0\0\x05hndl5\0\0\0\0\0\0\x08disk.vhd";

/// sattr3 that sets everything, and its words.
fn all_set() -> Sattr3 {
    Sattr3 {
        mode: Some(0o600),
        uid: Some(1),
        gid: Some(2),
        size: Some(3 << 32),
        atime: SetTime::ServerTime,
        mtime: SetTime::ClientTime(Nfstime3 { seconds: 4, nseconds: 5 }),
    }
}

const ALL_SET_WORDS: [u32; 13] = [1, 0o600, 1, 1, 1, 2, 1, 3, 0, 1, 2, 4, 5];

#[test]
fn numbers_of_the_procedures() {
    let names = Procedure3::ALL.iter().map(|procedure| format!("{procedure:?}"));
    let rfc = "Null Getattr Setattr Lookup Access Readlink Read Write Create Mkdir Symlink Mknod \
               Remove Rmdir Rename Link Readdir Readdirplus Fsstat Fsinfo Pathconf Commit";
    assert_eq!(names.collect::<Vec<_>>().join(" "), rfc);
    for (number, procedure) in (0_u32..).zip(Procedure3::ALL) {
        assert_eq!(procedure.wire(), number);
    }
    assert_eq!(Procedure3::from_wire(22), None);
    assert_eq!((PROGRAM, VERSION, PORT), (100_003, 3, 2049));
}

#[test]
fn s3_3_0_null() {
    call(0, &Args3::Null, &[]);
}

#[test]
fn s3_3_1_getattr_and_its_like() {
    let args = Getattr3Args { object: handle() };
    call(1, &Args3::Getattr(args), &HANDLE_WIRE);
    call(5, &Args3::Readlink(args), &HANDLE_WIRE);
    call(18, &Args3::Fsstat(args), &HANDLE_WIRE);
    call(19, &Args3::Fsinfo(args), &HANDLE_WIRE);
    call(20, &Args3::Pathconf(args), &HANDLE_WIRE);
}

#[test]
fn s3_3_2_setattr() {
    let guard = Some(Nfstime3 { seconds: 6, nseconds: 7 });
    let args = Setattr3Args { object: handle(), new_attributes: all_set(), guard };
    let wire = [&HANDLE_WIRE[..], &words(&ALL_SET_WORDS), &words(&[1, 6, 7])].concat();
    call(2, &Args3::Setattr(args), &wire);
    let args = Setattr3Args { object: handle(), new_attributes: Sattr3::NONE, guard: None };
    let wire = [&HANDLE_WIRE[..], &words(&[0, 0, 0, 0, 0, 0, 0])].concat();
    call(2, &Args3::Setattr(args), &wire);
}

#[test]
fn s3_3_3_lookup_remove_rmdir() {
    call(3, &Args3::Lookup(place()), &PLACE_WIRE);
    call(12, &Args3::Remove(place()), &PLACE_WIRE);
    call(13, &Args3::Rmdir(place()), &PLACE_WIRE);
}

#[test]
fn s3_3_4_access() {
    let access = access::READ | access::EXTEND | access::EXECUTE;
    let args = Access3Args { object: handle(), access };
    call(4, &Args3::Access(args), &[&HANDLE_WIRE[..], &words(&[0x29])].concat());
    assert_eq!(access::LOOKUP | access::MODIFY | access::DELETE, 0x16);
}

#[test]
fn s3_3_6_read() {
    let args = Read3Args { file: handle(), offset: 1 << 32, count: 4096 };
    call(6, &Args3::Read(args), &[&HANDLE_WIRE[..], &words(&[1, 0, 4096])].concat());
}

#[test]
fn s3_3_7_write() {
    let wire = [&HANDLE_WIRE[..], &words(&[0, 4096, 5, 2, 5]), b"abcde\0\0\0"].concat();
    let head = Write3Head { file: handle(), offset: 4096, count: 5, stable: StableHow::FileSync };
    let data = Span { offset: 32, bytes: b"abcde" };
    call(7, &Args3::Write(Write3Args { head, data }), &wire);
    assert_eq!(&wire[data.range()], b"abcde", "a range of the record, no copy");
    let page = Page::with_prefix(b"xxabcde");
    let mut to = EncodeBuf::new();
    head.encode_with(&mut to, PagePiece::new(page, 2..7));
    assert_eq!(to.to_vec(), wire);
    // The head alone, from a record whose data has not arrived.
    let mut from = Decoder::new(&wire[..32]);
    assert_eq!(Write3Head::decode(&mut from), Ok(head));
    assert_eq!(from.position(), data.offset);
    assert!(Write3Head::decode(&mut Decoder::new(&wire[..31])).is_err());
}

/// A WRITE whose count is not the length of its data: Linux's server treats it as garbage, so no
/// client sends it.
#[test]
fn s3_3_7_write_of_another_length() {
    let wire = [&HANDLE_WIRE[..], &words(&[0, 4096, 4, 2, 5]), b"abcde\0\0\0"].concat();
    let what = "length of WRITE3args.data";
    let error = XdrError::BadValue { offset: 28, what, value: 5 };
    assert_eq!(decoded::<Write3Args<'_>>(&wire), Err(error));
    assert_eq!(Write3Head::decode(&mut Decoder::new(&wire)), Err(error));
}

#[test]
#[should_panic(expected = "WRITE announces the data that it carries")]
fn s3_3_7_write_of_another_length_is_our_bug() {
    let head = Write3Head { file: handle(), offset: 0, count: 5, stable: StableHow::Unstable };
    head.encode_with(&mut EncodeBuf::new(), []);
}

#[test]
fn s3_3_8_create() {
    let unchecked = Create3Args { place: place(), how: CreateHow3::Unchecked(all_set()) };
    let wire = [&PLACE_WIRE[..], &words(&[0]), &words(&ALL_SET_WORDS)].concat();
    call(8, &Args3::Create(unchecked), &wire);
    let guarded = Create3Args { place: place(), how: CreateHow3::Guarded(all_set()) };
    let wire = [&PLACE_WIRE[..], &words(&[1]), &words(&ALL_SET_WORDS)].concat();
    call(8, &Args3::Create(guarded), &wire);
    let exclusive = Create3Args { place: place(), how: CreateHow3::Exclusive(*b"verifier") };
    let wire = [&PLACE_WIRE[..], &words(&[2]), b"verifier"].concat();
    call(8, &Args3::Create(exclusive), &wire);
}

#[test]
fn s3_3_9_mkdir() {
    let args = Mkdir3Args { place: place(), attributes: all_set() };
    call(9, &Args3::Mkdir(args), &[&PLACE_WIRE[..], &words(&ALL_SET_WORDS)].concat());
}

#[test]
fn s3_3_10_symlink() {
    let symlink = SymlinkData3 { symlink_attributes: Sattr3::NONE, symlink_data: b"../to" };
    let wire = [&PLACE_WIRE[..], &words(&[0, 0, 0, 0, 0, 0, 5]), b"../to\0\0\0"].concat();
    call(10, &Args3::Symlink(Symlink3Args { place: place(), symlink }), &wire);
}

#[test]
fn s3_3_11_mknod() {
    let spec = SpecData3 { specdata1: 8, specdata2: 1 };
    let device = DeviceData3 { dev_attributes: Sattr3::NONE, spec };
    let cases: &[(MknodData3, &[u32])] = &[
        (MknodData3::Chr(device), &[4, 0, 0, 0, 0, 0, 0, 8, 1]),
        (MknodData3::Blk(device), &[3, 0, 0, 0, 0, 0, 0, 8, 1]),
        (MknodData3::Sock(Sattr3::NONE), &[6, 0, 0, 0, 0, 0, 0]),
        (MknodData3::Fifo(Sattr3::NONE), &[7, 0, 0, 0, 0, 0, 0]),
        (MknodData3::Reg, &[1]),
        (MknodData3::Dir, &[2]),
        (MknodData3::Lnk, &[5]),
    ];
    for (what, wire) in cases {
        let args = Mknod3Args { place: place(), what: *what };
        call(11, &Args3::Mknod(args), &[&PLACE_WIRE[..], &words(wire)].concat());
    }
}

#[test]
fn s3_3_14_rename() {
    let to = DirOpArgs3 { dir: NfsFh3::new(b"").unwrap(), name: b"b" };
    let args = Rename3Args { from: place(), to };
    let wire = [&PLACE_WIRE[..], &words(&[0, 1]), b"b\0\0\0"].concat();
    call(14, &Args3::Rename(args), &wire);
}

#[test]
fn s3_3_15_link() {
    let args = Link3Args { file: handle(), link: place() };
    call(15, &Args3::Link(args), &[&HANDLE_WIRE[..], &PLACE_WIRE].concat());
}

#[test]
fn s3_3_16_readdir() {
    let args = Readdir3Args { dir: handle(), cookie: 7, cookieverf: *b"cookieve", count: 8192 };
    let wire = [&HANDLE_WIRE[..], &words(&[0, 7]), b"cookieve", &words(&[8192])].concat();
    call(16, &Args3::Readdir(args), &wire);
}

#[test]
fn s3_3_17_readdirplus() {
    let args = Readdirplus3Args {
        dir: handle(),
        cookie: 7,
        cookieverf: *b"cookieve",
        dircount: 512,
        maxcount: 8192,
    };
    let wire = [&HANDLE_WIRE[..], &words(&[0, 7]), b"cookieve", &words(&[512, 8192])].concat();
    call(17, &Args3::Readdirplus(args), &wire);
}

#[test]
fn s3_3_21_commit() {
    let args = Commit3Args { file: handle(), offset: 1 << 33, count: 0 };
    call(21, &Args3::Commit(args), &[&HANDLE_WIRE[..], &words(&[2, 0, 0])].concat());
}

#[test]
fn values_that_do_not_exist() {
    let bad = |what, offset, value| XdrError::BadValue { offset, what, value };
    let how = [&PLACE_WIRE[..], &words(&[3])].concat();
    assert_eq!(decoded::<Create3Args<'_>>(&how), Err(bad("CreateMode3", 24, 3)));
    let what = [&PLACE_WIRE[..], &words(&[8])].concat();
    assert_eq!(decoded::<Mknod3Args<'_>>(&what), Err(bad("Ftype3", 24, 8)));
    let stable = [&HANDLE_WIRE[..], &words(&[0, 0, 0, 3, 0])].concat();
    assert_eq!(decoded::<Write3Args<'_>>(&stable), Err(bad("StableHow", 24, 3)));
    let time = words(&[0, 0, 0, 0, 3, 0]);
    assert_eq!(decoded::<Sattr3>(&time), Err(bad("time_how", 16, 3)));
    let long = [words(&[65]), vec![0; 68]].concat();
    assert_eq!(decoded::<NfsFh3>(&long), Err(XdrError::TooLong { offset: 0, len: 65, limit: 64 }));
    assert!(NfsFh3::new(&[0; 64]).is_some() && NfsFh3::new(&[0; 65]).is_none());
}
