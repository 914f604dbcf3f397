//! Calls that are refused before `files` is called.

use super::*;
use crate::limits::FILE_BYTES_MAX;

#[tokio::test]
async fn what_is_no_call_gets_no_answer() {
    let nfs = nfs().await;
    let whole = nfs3(&Args3::Null);
    let mut reply = whole.clone();
    reply[7] = 1;
    for record in [&b""[..], b"\n", &whole[..20], &reply] {
        let mut out = EncodeBuf::new();
        out.u32(1);
        assert!(nfs.answer(client(1), record, &mut out).await.is_err());
        assert_eq!(out.to_vec(), [0, 0, 0, 1]);
    }
}

/// RFC 5531 section 9.
#[tokio::test]
async fn rpc_refuses_in_its_own_words() {
    let nfs = nfs().await;
    let mut other_rpc = nfs3(&Args3::Null);
    other_rpc[11] = 3;
    let body = answer(&nfs, client(1), &other_rpc).await;
    let mismatch = Rejection::RpcMismatch { low: 2, high: 2 };
    assert_eq!(reply_of(&body).0, ReplyBody::Denied(mismatch));

    let gss = Credential::Other(OpaqueAuth { flavor: 6, body: b"krb5" });
    let body = answer(&nfs, client(1), &call_as(gss, PROGRAM, 3, 0, &())).await;
    assert_eq!(reply_of(&body).0, ReplyBody::Denied(Rejection::AuthError(AuthStat::BadCred)));
    assert_eq!(nfs.counters().refused(), 2);
}

/// XCP-ng tries vers=4 on a server that does not list it; QEMU and showmount try other programs.
#[tokio::test]
async fn other_programs_versions_and_procedures_are_named_as_such() {
    let nfs = nfs().await;
    let said = async |program, version, procedure| {
        accepted(&nfs, &call(program, version, procedure, &())).await
    };
    let nfs_has = Accepted::ProgMismatch { low: 3, high: 3 };
    let mount_has = Accepted::ProgMismatch { low: 1, high: 3 };
    assert_eq!(said(100_003, 4, 0).await, nfs_has);
    assert_eq!(said(100_003, 4, 1).await, nfs_has);
    assert_eq!(said(100_003, 2, 0).await, nfs_has);
    assert_eq!(said(100_003, 3, 22).await, Accepted::ProcUnavail);
    assert_eq!(said(100_005, 4, 0).await, mount_has);
    assert_eq!(said(100_005, 0, 0).await, mount_has);
    assert_eq!(said(100_005, 3, 6).await, Accepted::ProcUnavail);
    assert_eq!(said(100_005, 1, 1).await, Accepted::ProcUnavail, "MNT of NFSv2");
    let portmap_has = Accepted::ProgMismatch { low: 2, high: 4 };
    assert_eq!(said(100_000, 5, 0).await, portmap_has);
    assert_eq!(said(100_021, 3, 0).await, Accepted::ProgMismatch { low: 4, high: 4 }, "NLM");
    assert_eq!(said(100_227, 3, 0).await, Accepted::ProgUnavail, "NFSACL");
    for (program, version) in [(100_003, 3), (100_005, 1), (100_005, 3), (100_000, 2), (100_000, 4)]
    {
        assert_eq!(said(program, version, 0).await, Accepted::Success, "NULL of {program}");
    }
    assert_eq!(nfs.counters().mount(), 4);
}

#[tokio::test]
async fn arguments_that_end_early_are_garbage() {
    let nfs = nfs().await;
    let header = nfs3(&Args3::Null).len();
    let all = looks(handle(9), b"name").into_iter().chain(changes(handle(9), b"name"));
    for args in all {
        let whole = nfs3(&args);
        for end in header..whole.len() {
            // Only padding at the very end may be missing.
            let mut from = Decoder::new(&whole[header..end]);
            let decodes = Args3::decode(args.procedure(), &mut from).is_ok();
            assert!(!decodes || whole.len() - end < 4, "{args:?} cut at {end}");
            let expected = if decodes { Accepted::Success } else { Accepted::GarbageArgs };
            let said = accepted(&nfs, &whole[..end]).await;
            assert_eq!(said, expected, "{args:?} cut at {end}");
        }
    }
}

#[tokio::test]
async fn handles_are_bad_stale_or_not_for_this_client() {
    let nfs = nfs().await;
    let short = NfsFh3::new(&[1; 23]).unwrap();
    let long = NfsFh3::new(&[1; 32]).unwrap();
    let cases = [
        (NfsFh3::new(b"").unwrap(), 1, Nfsstat3::BadHandle),
        (short, 1, Nfsstat3::BadHandle),
        (long, 1, Nfsstat3::BadHandle),
        (handle(9), 1, Nfsstat3::Stale),
        (handle(3), 2, Nfsstat3::Acces),
    ];
    for (object, from, expected) in cases {
        for args in looks(object, b"a").iter().chain(&changes(object, b"a")) {
            assert_eq!(status(&nfs, client(from), args).await, expected, "{args:?}");
        }
    }
}

#[tokio::test]
async fn a_read_only_export_is_not_changed() {
    let nfs = nfs().await;
    for args in changes(handle(2), b"a") {
        assert_eq!(status(&nfs, client(1), &args).await, Nfsstat3::Rofs, "{args:?}");
    }
    for args in looks(handle(2), b"a") {
        assert_ne!(status(&nfs, client(1), &args).await, Nfsstat3::Rofs, "{args:?}");
    }
}

/// RFC 1813 sections 3.2 and 3.3.8 to 3.3.15.
#[tokio::test]
async fn names_are_refused_as_the_rfc_has_it() {
    let nfs = nfs().await;
    let long = [b'n'; 256];
    let cases: [(&[u8], Nfsstat3); 4] = [
        (b"", Nfsstat3::Acces),
        (b"a/b", Nfsstat3::Acces),
        (b"a\0", Nfsstat3::Acces),
        (&long, Nfsstat3::NameTooLong),
    ];
    for (name, expected) in cases {
        let lookup = Args3::Lookup(DirOpArgs3 { dir: handle(1), name });
        for args in names_changed(handle(1), name).iter().chain([&lookup]) {
            assert_eq!(status(&nfs, client(1), args).await, expected, "{args:?}");
        }
    }
    let [exist, inval, isdir] = [Nfsstat3::Exist, Nfsstat3::Inval, Nfsstat3::IsDir];
    let dot = [exist, exist, exist, exist, isdir, inval, inval, exist];
    let dots = [exist, exist, exist, exist, isdir, exist, inval, exist];
    for (name, expected) in [(&b"."[..], dot), (b"..", dots)] {
        for (args, expected) in names_changed(handle(1), name).iter().zip(expected) {
            assert_eq!(status(&nfs, client(1), args).await, expected, "{args:?}");
        }
    }
}

#[tokio::test]
async fn arguments_beyond_the_limits_are_refused() {
    let nfs = nfs().await;
    let refused = async |args: Args3<'_>| status(&nfs, client(1), &args).await;
    let data = aquifer_rpc::xdr::Span { offset: 0, bytes: b"data" };
    for offset in [u64::MAX, FILE_BYTES_MAX, FILE_BYTES_MAX - 3] {
        let head = Write3Head { file: handle(1), offset, count: 4, stable: StableHow::Unstable };
        assert_eq!(refused(Args3::Write(Write3Args { head, data })).await, Nfsstat3::Fbig);
    }
    let set = |new_attributes, guard| {
        Args3::Setattr(Setattr3Args { object: handle(1), new_attributes, guard })
    };
    let large = Sattr3 { size: Some(u64::MAX), ..Sattr3::NONE };
    assert_eq!(refused(set(large, None)).await, Nfsstat3::Fbig);
    let no_time = Nfstime3 { seconds: 1, nseconds: 1_000_000_000 };
    assert_eq!(refused(set(Sattr3::NONE, Some(no_time))).await, Nfsstat3::Inval);
    let place = DirOpArgs3 { dir: handle(1), name: b"a" };
    for what in [MknodData3::Reg, MknodData3::Dir, MknodData3::Lnk] {
        assert_eq!(refused(Args3::Mknod(Mknod3Args { place, what })).await, Nfsstat3::BadType);
    }
    let long = [b'x'; 4096];
    for (data, expected) in
        [(&b""[..], Nfsstat3::Inval), (b"a\0b", Nfsstat3::Inval), (&long, Nfsstat3::NameTooLong)]
    {
        let symlink = SymlinkData3 { symlink_attributes: Sattr3::NONE, symlink_data: data };
        assert_eq!(refused(Args3::Symlink(Symlink3Args { place, symlink })).await, expected);
    }
    let other = DirOpArgs3 { dir: handle(3), name: b"b" };
    let rename = Args3::Rename(Rename3Args { from: place, to: other });
    assert_eq!(refused(rename).await, Nfsstat3::Xdev);
    let link = Args3::Link(Link3Args { file: handle(3), link: place });
    assert_eq!(refused(link).await, Nfsstat3::Xdev);
}

/// Only whole pages for whole pages, up to the end of the record, are received into pages. Such a
/// call is refused if its pages do not match its count.
#[tokio::test]
async fn the_data_of_a_write_is_found_in_its_head() {
    let bytes = vec![7; 3 * 65_536];
    let record = |offset, count: usize, procedure: Procedure3| {
        let head = Write3Head {
            file: handle(1),
            offset,
            count: u32::try_from(count).unwrap(),
            stable: StableHow::Unstable,
        };
        let data = Span { offset: 0, bytes: &bytes[..count] };
        let args = Write3Args { head, data };
        call(nfs_proto::PROGRAM, nfs_proto::VERSION, procedure.wire(), &args)
    };
    let whole = record(8192, 131_072, Procedure3::Write);
    let at = whole.len() - 131_072;
    for come in [at, at + 1, whole.len() - 1] {
        assert_eq!(write_data(&whole[..come], whole.len()), Some(at..whole.len()));
    }
    for come in 0..at {
        assert_eq!(write_data(&whole[..come], whole.len()), None);
    }
    assert_eq!(write_data(&whole, whole.len() + 4), None);
    for (offset, count) in [(8191, 131_072), (8192, 131_068), (0, 131_073)] {
        let other = record(offset, count, Procedure3::Write);
        assert_eq!(write_data(&other, other.len()), None, "{offset}+{count}");
    }
    let other = record(8192, 131_072, Procedure3::Read);
    assert_eq!(write_data(&other, other.len()), None);

    let nfs = nfs().await;
    let garbage = |record: Vec<u8>, pages: usize| {
        let nfs = &nfs;
        async move {
            let pages = vec![Page::zeroed(); pages];
            let mut out = EncodeBuf::new();
            let answered = nfs.answer_with(client(9).into(), &record, Some(&pages), &mut out).await;
            answered.unwrap();
            let reply = out.to_vec();
            let reply = Reply::decode(&mut Decoder::new(&reply[4..])).unwrap();
            matches!(reply.body, ReplyBody::Accepted { status: Accepted::GarbageArgs, .. })
        }
    };
    assert!(!garbage(whole[..at].to_vec(), 32).await);
    assert!(garbage(whole[..at].to_vec(), 31).await);
    assert!(garbage(whole[..at + 4].to_vec(), 32).await);
    assert!(garbage(other[..at].to_vec(), 32).await);
}
