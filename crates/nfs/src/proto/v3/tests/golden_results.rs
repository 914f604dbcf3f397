//! Results compared with RFC 1813, byte by byte.

use aquifer_blockio::Page;
use aquifer_rpc::xdr::PagePiece;

use super::*;

fn fail<T, F>(status: Nfsstat3, resfail: F) -> Res3<T, F> {
    Res3::Fail { status, resfail }
}

/// RFC 1813 section 2.6, every number.
#[test]
fn numbers_of_nfsstat3() {
    let numbers = [
        0, 1, 2, 5, 6, 13, 17, 18, 19, 20, 21, 22, 27, 28, 30, 31, 63, 66, 69, 70, 71, 10_001,
        10_002, 10_003, 10_004, 10_005, 10_006, 10_007, 10_008,
    ];
    assert!(Nfsstat3::ALL.iter().map(|status| status.wire()).eq(numbers));
    assert_eq!(Nfsstat3::from_wire(10_009), None);
    assert_eq!(Nfsstat3::NameTooLong.wire(), 63);
    assert_eq!(Nfsstat3::Stale.wire(), 70);
    assert_eq!(Nfsstat3::TooSmall.wire(), 10_005);
    assert_eq!(Nfsstat3::Jukebox.wire(), 10_008);
}

#[test]
fn s2_5_attributes() {
    golden(&attributes(), &words(&ATTRIBUTES_WORDS));
    assert_eq!(encoded(&attributes()).len(), Fattr3::WIRE_BYTES);
    golden(&wcc(), &words(&wcc_words()));
    golden(&WccData::NONE, &words(&[0, 0]));
    let types: Vec<u32> = Ftype3::ALL.iter().map(|ftype| ftype.wire()).collect();
    assert_eq!(types, [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn s3_3_1_getattr() {
    let wire = [words(&[0]), words(&ATTRIBUTES_WORDS)].concat();
    golden(&Getattr3Res::Ok(attributes()), &wire);
    golden::<Getattr3Res>(&fail(Nfsstat3::Stale, ()), &words(&[70]));
}

#[test]
fn wcc_alone_s3_3_2_setattr_12_remove_13_rmdir() {
    let wire = [words(&[0]), words(&wcc_words())].concat();
    golden(&Setattr3Res::Ok(wcc()), &wire);
    golden(&Remove3Res::Ok(wcc()), &wire);
    golden(&Rmdir3Res::Ok(wcc()), &wire);
    golden::<Setattr3Res>(&fail(Nfsstat3::NotSync, WccData::NONE), &words(&[10_002, 0, 0]));
}

#[test]
fn s3_3_3_lookup() {
    let (obj_attributes, dir_attributes) = (Some(attributes()), None);
    let resok = Lookup3ResOk { object: handle(), obj_attributes, dir_attributes };
    let attributes = words(&ATTRIBUTES_WORDS);
    let wire = [&words(&[0]), &HANDLE_WIRE[..], &words(&[1]), &attributes, &words(&[0])];
    golden(&Lookup3Res::Ok(resok), &wire.concat());
    golden::<Lookup3Res>(&fail(Nfsstat3::NoEnt, None), &words(&[2, 0]));
}

#[test]
fn s3_3_4_access() {
    let resok = Access3ResOk { obj_attributes: None, access: access::READ | access::DELETE };
    golden(&Access3Res::Ok(resok), &words(&[0, 0, 0x11]));
    golden::<Access3Res>(&fail(Nfsstat3::Acces, None), &words(&[13, 0]));
}

#[test]
fn s3_3_5_readlink() {
    let resok = Readlink3ResOk { symlink_attributes: None, data: b"../to" };
    let wire = [&words(&[0, 0, 5])[..], b"../to\0\0\0"].concat();
    golden(&Readlink3Res::Ok(resok), &wire);
    golden::<Readlink3Res<'_>>(&fail(Nfsstat3::Inval, None), &words(&[22, 0]));
}

#[test]
fn s3_3_6_read() {
    let head = Read3Head { file_attributes: None, eof: true };
    let wire = [&words(&[0, 0, 6, 1, 6])[..], b"abcdef\0\0"].concat();
    let data = Span { offset: 20, bytes: b"abcdef" };
    golden(&Read3Res::Ok(Read3ResOk { head, data }), &wire);
    let page = Page::with_prefix(b"abcdef");
    let mut to = EncodeBuf::new();
    head.encode_with(&mut to, [0..2, 2..6].map(|r| PagePiece::new(page.clone(), r).unwrap()));
    assert_eq!(to.to_vec(), wire);
    assert_eq!(to.segments(0).count(), 4, "header, two pieces, padding");
    golden::<Read3Res<'_>>(&fail(Nfsstat3::Io, None), &words(&[5, 0]));
    let other = [&words(&[0, 0, 5, 1, 6])[..], b"abcdef\0\0"].concat();
    let error = XdrError::BadValue { offset: 8, what: "READ3resok.count", value: 5 };
    assert_eq!(decoded::<Read3Res<'_>>(&other), Err(error));
}

#[test]
fn s3_3_7_write() {
    let committed = StableHow::FileSync;
    let resok = Write3ResOk { file_wcc: wcc(), count: 4096, committed, verf: *b"verifier" };
    let wire = [words(&[0]), words(&wcc_words()), words(&[4096, 2]), b"verifier".to_vec()];
    golden(&Write3Res::Ok(resok), &wire.concat());
    golden::<Write3Res>(&fail(Nfsstat3::NoSpc, WccData::NONE), &words(&[28, 0, 0]));
}

#[test]
fn s3_3_8_create_9_mkdir_10_symlink_11_mknod() {
    let (obj, obj_attributes) = (Some(handle()), Some(attributes()));
    let resok = Create3ResOk { obj, obj_attributes, dir_wcc: wcc() };
    let attributes = words(&ATTRIBUTES_WORDS);
    let start = [&words(&[0, 1])[..], &HANDLE_WIRE, &words(&[1]), &attributes].concat();
    let wire = [start, words(&wcc_words())].concat();
    golden(&Create3Res::Ok(resok), &wire);
    golden(&Mkdir3Res::Ok(resok), &wire);
    golden(&Symlink3Res::Ok(resok), &wire);
    golden(&Mknod3Res::Ok(resok), &wire);
    golden::<Create3Res>(&fail(Nfsstat3::Exist, WccData::NONE), &words(&[17, 0, 0]));
}

#[test]
fn s3_3_14_rename() {
    let both = RenameWcc { fromdir_wcc: wcc(), todir_wcc: WccData::NONE };
    let wire = [words(&[0]), words(&wcc_words()), words(&[0, 0])].concat();
    golden(&Rename3Res::Ok(both), &wire);
    let none = RenameWcc { fromdir_wcc: WccData::NONE, todir_wcc: WccData::NONE };
    golden::<Rename3Res>(&fail(Nfsstat3::Xdev, none), &words(&[18, 0, 0, 0, 0]));
}

#[test]
fn s3_3_15_link() {
    let both = LinkWcc { file_attributes: None, linkdir_wcc: wcc() };
    let wire = [words(&[0, 0]), words(&wcc_words())].concat();
    golden(&Link3Res::Ok(both), &wire);
    let none = LinkWcc { file_attributes: None, linkdir_wcc: WccData::NONE };
    golden::<Link3Res>(&fail(Nfsstat3::Mlink, none), &words(&[31, 0, 0, 0]));
}

#[test]
fn s3_3_16_readdir() {
    let entries = vec![
        Entry3 { fileid: 2, name: b".", cookie: 3 },
        Entry3 { fileid: 4, name: b"names", cookie: 1 << 32 },
    ];
    let (dir_attributes, cookieverf) = (None, *b"cookieve");
    let resok = Readdir3ResOk { dir_attributes, cookieverf, entries, eof: true };
    let wire = [
        &words(&[0, 0])[..],
        b"cookieve",
        &words(&[1, 0, 2, 1]),
        b".\0\0\0",
        &words(&[0, 3]),
        &words(&[1, 0, 4, 5]),
        b"names\0\0\0",
        &words(&[1, 0]),
        &words(&[0, 1]),
    ];
    golden(&Readdir3Res::Ok(resok), &wire.concat());
    golden::<Readdir3Res<'_>>(&fail(Nfsstat3::BadCookie, None), &words(&[10_003, 0]));
}

#[test]
fn s3_3_17_readdirplus() {
    let bare =
        EntryPlus3 { fileid: 2, name: b"..", cookie: 3, name_attributes: None, name_handle: None };
    let full = EntryPlus3 {
        fileid: 4,
        name: b"vm",
        cookie: 5,
        name_attributes: Some(attributes()),
        name_handle: Some(handle()),
    };
    let (dir_attributes, cookieverf) = (Some(attributes()), *b"cookieve");
    let entries = vec![bare, full];
    let resok = Readdirplus3ResOk { dir_attributes, cookieverf, entries, eof: false };
    let attributes = words(&ATTRIBUTES_WORDS);
    let wire = [
        &words(&[0, 1])[..],
        &attributes,
        b"cookieve",
        &words(&[1, 0, 2, 2]),
        b"..\0\0",
        &words(&[0, 3, 0, 0]),
        &words(&[1, 0, 4, 2]),
        b"vm\0\0",
        &words(&[0, 5, 1]),
        &attributes,
        &words(&[1]),
        &HANDLE_WIRE,
        &words(&[0, 0]),
    ];
    golden(&Readdirplus3Res::Ok(resok), &wire.concat());
    golden::<Readdirplus3Res<'_>>(&fail(Nfsstat3::NotSupp, None), &words(&[10_004, 0]));
}

#[test]
fn s3_3_18_fsstat() {
    let resok = Fsstat3ResOk {
        obj_attributes: None,
        tbytes: 1,
        fbytes: 2,
        abytes: 3,
        tfiles: 4,
        ffiles: 5,
        afiles: 6 << 32,
        invarsec: 7,
    };
    golden(&Fsstat3Res::Ok(resok), &words(&[0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 6, 0, 7]));
    golden::<Fsstat3Res>(&fail(Nfsstat3::BadHandle, None), &words(&[10_001, 0]));
}

#[test]
fn s3_3_19_fsinfo() {
    let resok = Fsinfo3ResOk {
        obj_attributes: None,
        rtmax: 1,
        rtpref: 2,
        rtmult: 3,
        wtmax: 4,
        wtpref: 5,
        wtmult: 6,
        dtpref: 7,
        maxfilesize: 8 << 32,
        time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
        properties: fsf::LINK | fsf::SYMLINK | fsf::HOMOGENEOUS | fsf::CANSETTIME,
    };
    let wire = words(&[0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1, 0x1b]);
    golden(&Fsinfo3Res::Ok(resok), &wire);
    golden::<Fsinfo3Res>(&fail(Nfsstat3::ServerFault, None), &words(&[10_006, 0]));
}

#[test]
fn s3_3_20_pathconf() {
    let resok = Pathconf3ResOk {
        obj_attributes: None,
        linkmax: 65_000,
        name_max: 255,
        no_trunc: true,
        chown_restricted: false,
        case_insensitive: false,
        case_preserving: true,
    };
    golden(&Pathconf3Res::Ok(resok), &words(&[0, 0, 65_000, 255, 1, 0, 0, 1]));
    golden::<Pathconf3Res>(&fail(Nfsstat3::Jukebox, None), &words(&[10_008, 0]));
}

#[test]
fn s3_3_21_commit() {
    let resok = Commit3ResOk { file_wcc: WccData::NONE, verf: *b"verifier" };
    golden(&Commit3Res::Ok(resok), &[&words(&[0, 0, 0])[..], b"verifier"].concat());
    golden::<Commit3Res>(&fail(Nfsstat3::Io, WccData::NONE), &words(&[5, 0, 0]));
}

#[test]
#[should_panic(expected = "a failure has a reason")]
fn a_failure_that_is_ok_is_our_bug() {
    let result: Getattr3Res = fail(Nfsstat3::Ok, ());
    encoded(&result);
}
