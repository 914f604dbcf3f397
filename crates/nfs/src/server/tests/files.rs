//! Procedures over a real file, whose answers must match their effects.

use aquifer_files::{CreateHow, Credentials, SetAttributes};
use aquifer_rpc::xdr::PagePiece;

use super::*;
use crate::PagedWrite;
use crate::limits::{FILE_BYTES_MAX, TRANSFER_BYTES_MAX};

/// `/tank` for everybody, with an empty file.
async fn with_file() -> (Served, NfsFh3) {
    let image = tempfile::tempdir().unwrap();
    let pool = pool(&image.path().join("disk")).await;
    let root = pool.files.root("tank").unwrap();
    let how = CreateHow::Guarded(SetAttributes::default());
    let made =
        pool.files.create(&Credentials::root(), root, b"file", how).await.kept().await.0.unwrap();
    let volume = Volume::new(pool.files.clone());
    let root_of = move |_: &str| Some(volume.root(root));
    let nfs = Nfs::new(Exports::new(vec![Export::new("/tank", "tank")], root_of).unwrap());
    let file = NfsFh3::new(&made.handle.encode()).unwrap();
    (Served { nfs, _pool: pool, _image: image }, file)
}

async fn asked<T>(nfs: &Nfs, args: &Args3<'_>, read: impl FnOnce(&mut Decoder<'_>) -> T) -> T {
    let body = answer(nfs, client(1), &nfs3(args)).await;
    read(&mut reply_of(&body).1)
}

async fn attributes(nfs: &Nfs, object: NfsFh3) -> Fattr3 {
    let args = Args3::Getattr(Getattr3Args { object });
    match asked(nfs, &args, |from| Getattr3Res::decode(from).unwrap()).await {
        Res3::Ok(attributes) => attributes,
        Res3::Fail { status, .. } => panic!("{status:?}"),
    }
}

/// RFC 1813 section 3.3.2: `NFS3ERR_NOT_SYNC` if the ctime is another.
#[tokio::test]
async fn setattr_with_another_ctime_changes_nothing() {
    let (nfs, object) = with_file().await;
    let before = attributes(&nfs, object).await;
    let set = |mode, guard| {
        let new_attributes = Sattr3 { mode: Some(mode), ..Sattr3::NONE };
        Args3::Setattr(Setattr3Args { object, new_attributes, guard: Some(guard) })
    };
    let other = Nfstime3 { nseconds: before.ctime.nseconds ^ 1, ..before.ctime };
    assert_eq!(status(&nfs, client(1), &set(0o111, other)).await, Nfsstat3::NotSync);
    assert_eq!(attributes(&nfs, object).await, before);
    assert_eq!(status(&nfs, client(1), &set(0o111, before.ctime)).await, Nfsstat3::Ok);
    let after = attributes(&nfs, object).await;
    assert_eq!(after.mode, 0o111);
    assert_eq!(status(&nfs, client(1), &set(0o222, before.ctime)).await, Nfsstat3::NotSync);
}

/// More than FSINFO offers: the server writes as much as it reports, and the client sends the rest.
#[tokio::test]
async fn of_a_write_that_is_too_long_what_is_counted_is_written() {
    let (nfs, file) = with_file().await;
    let count = TRANSFER_BYTES_MAX + 8192;
    let bytes = vec![7; count as usize];
    let head = Write3Head { file, offset: 4096, count, stable: StableHow::FileSync };
    let args = Args3::Write(Write3Args { head, data: Span { offset: 0, bytes: &bytes } });
    let written = asked(&nfs, &args, |from| match Write3Res::decode(from).unwrap() {
        Res3::Ok(written) => written.count,
        Res3::Fail { status, .. } => panic!("{status:?}"),
    });
    assert_eq!(written.await, TRANSFER_BYTES_MAX);
    assert_eq!(attributes(&nfs, file).await.size, 4096 + u64::from(TRANSFER_BYTES_MAX));
}

/// Small WRITEs to one file that arrive together are one change, each with an answer of its own.
#[tokio::test]
async fn small_writes_go_together() {
    let (nfs, file) = with_file().await;
    let write = |xid, offset| {
        let mut to = EncodeBuf::new();
        let (credential, verifier) = (credential(), OpaqueAuth::NONE);
        let procedure = Procedure3::Write.wire();
        to.put(&Call { xid, program: PROGRAM, version: VERSION, procedure, credential, verifier });
        let head = Write3Head { file, offset, count: 4096, stable: StableHow::FileSync };
        head.encode_with(&mut to, [PagePiece::whole(Page::zeroed())].into_iter());
        let mut bytes = to.to_vec();
        bytes.truncate(bytes.len() - 4096);
        bytes
    };
    let answers = async |offsets: [u64; 3], statuses: [Nfsstat3; 3]| {
        let heads = [1, 2, 3].map(|xid| write(xid, offsets[xid as usize - 1]));
        let pages = [Page::zeroed()];
        let calls = heads.each_ref().map(|head| PagedWrite { head, pages: &pages });
        let answered = nfs.answer_together(&client(1).into(), &calls).await;
        assert_eq!(answered.len(), 3);
        let mut times = Vec::new();
        for (((reply, done), xid), status) in answered.iter().zip(1..).zip(statuses) {
            let (done, reply) = (done.as_ref().unwrap().as_ref().unwrap(), reply.to_vec());
            let bytes = if status == Nfsstat3::Ok { 4096 } else { 0 };
            assert_eq!((done.status, done.bytes), (status, bytes));
            let mut from = Decoder::new(&reply[4..]);
            assert_eq!(Reply::decode(&mut from).unwrap().xid, xid);
            if let Res3::Ok(written) = Write3Res::decode(&mut from).unwrap() {
                times.push(written.file_wcc.after.unwrap().ctime);
            }
        }
        times
    };
    let times = answers([0, 4096, 16_384], [Nfsstat3::Ok; 3]).await;
    assert!(times.iter().all(|time| *time == times[0]), "one change: {times:?}");
    assert_eq!(attributes(&nfs, file).await.size, 20_480);
    // An error of one of them goes to that one alone.
    let beyond = [4096, FILE_BYTES_MAX, 40_960];
    answers(beyond, [Nfsstat3::Ok, Nfsstat3::Fbig, Nfsstat3::Ok]).await;
    assert_eq!(attributes(&nfs, file).await.size, 45_056);
}

/// A listing is no way around LOOKUP: a caller that may read a directory but not search it gets
/// only names.
#[tokio::test]
async fn a_listing_gives_handles_to_those_who_may_search() {
    let (nfs, _) = with_file().await;
    let root = nfs.exports().covering(&[b"tank"]).unwrap().0;
    let root = nfs.exports().root_of(&root).unwrap().handle;
    let dir = NfsFh3::new(&root.encode()).unwrap();
    let new_attributes = Sattr3 { mode: Some(0o744), ..Sattr3::NONE };
    let args = Args3::Setattr(Setattr3Args { object: dir, new_attributes, guard: None });
    assert_eq!(status(&nfs, client(1), &args).await, Nfsstat3::Ok);
    for (uid, are_given) in [(0, true), (7, false)] {
        let credential = match credential() {
            Credential::Sys(sys) => Credential::Sys(AuthSys { uid, ..sys }),
            other => other,
        };
        let (cookie, cookieverf, dircount, maxcount) = (0, [0; 8], 4096, 4096);
        let args = Readdirplus3Args { dir, cookie, cookieverf, dircount, maxcount };
        let procedure = Procedure3::Readdirplus.wire();
        let call = call_as(credential, PROGRAM, VERSION, procedure, &args);
        let body = answer(&nfs, client(1), &call).await;
        match Readdirplus3Res::decode(&mut reply_of(&body).1).unwrap() {
            Res3::Ok(list) => {
                assert_eq!(list.entries.len(), 3);
                let each = list.entries.iter();
                assert!(each.clone().all(|entry| entry.name_handle.is_some() == are_given));
                assert!(each.clone().all(|entry| entry.name_attributes.is_some() == are_given));
            }
            Res3::Fail { status, .. } => panic!("{status:?}"),
        }
    }
}

/// A listing shows the datasets below to those who may use them, as LOOKUP and MOUNT do.
#[tokio::test]
async fn a_client_sees_the_datasets_that_it_may_use() {
    let image = tempfile::tempdir().unwrap();
    let pool = pool(&image.path().join("disk")).await;
    for name in ["tank/a", "tank/b", "tank/c"] {
        pool.datasets.create(name, &[]).await.unwrap();
    }
    let (volume, files) = (Volume::new(pool.files.clone()), pool.files.clone());
    let root_of = move |dataset: &str| Some(volume.root(files.root(dataset)?));
    let access = Access::read_write_for(["10.0.0.1".parse().unwrap()]);
    let exports = vec![
        Export::new("/tank", "tank"),
        Export::new("/tank/a", "tank/a"),
        Export { access, ..Export::new("/tank/b", "tank/b") },
    ];
    let nfs = Nfs::new(Exports::new(exports, root_of).unwrap());
    let top = pool.files.root("tank").unwrap();
    let dir = NfsFh3::new(&top.encode()).unwrap();
    for (from, sees) in [(1, vec!["a", "b"]), (2, vec!["a"])] {
        let (cookie, cookieverf, count) = (0, [0; 8], 4096);
        let args = Readdir3Args { dir, cookie, cookieverf, count };
        let body = answer(&nfs, client(from), &nfs3(&Args3::Readdir(args))).await;
        let mut names: Vec<String> = match Readdir3Res::decode(&mut reply_of(&body).1).unwrap() {
            Res3::Ok(list) => {
                let each = list.entries.iter();
                each.map(|entry| String::from_utf8_lossy(entry.name).into_owned()).collect()
            }
            Res3::Fail { status, .. } => panic!("{status:?}"),
        };
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        assert_eq!(names, sees, "client {from}");
        let (dircount, maxcount) = (4096, 4096);
        let args = Readdirplus3Args { dir, cookie, cookieverf, dircount, maxcount };
        let body = answer(&nfs, client(from), &nfs3(&Args3::Readdirplus(args))).await;
        match Readdirplus3Res::decode(&mut reply_of(&body).1).unwrap() {
            Res3::Ok(list) => assert_eq!(list.entries.len(), sees.len() + 2),
            Res3::Fail { status, .. } => panic!("{status:?}"),
        }
        for name in ["a", "b", "c"] {
            let lookup = Args3::Lookup(DirOpArgs3 { dir, name: name.as_bytes() });
            let wanted = match sees.contains(&name) {
                true => Nfsstat3::Ok,
                false => Nfsstat3::NoEnt,
            };
            assert_eq!(status(&nfs, client(from), &lookup).await, wanted, "{from} {name}");
        }
        let path = |name: &str| format!("/tank/{name}").into_bytes();
        let c = super::mount::mnt(&nfs, from, &path("c")).await;
        assert_eq!(c, crate::proto::mount::MountStat3::NoEnt, "no export has it");
    }
    drop((pool, image));
}
