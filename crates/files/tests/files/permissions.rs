//! Permission bits.

use aquifer_files::{
    CreateHow, Credentials, FileHandle, FsError, Service, SetAttributes, Stability, access,
};

use crate::bed::{Bed, make, root};

fn user(uid: u32, gid: u32) -> Credentials {
    Credentials { uid, gid, groups: Vec::new(), ..Credentials::root() }
}

fn with_mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

async fn mkdir(service: &Service, name: &str, set: &SetAttributes) -> FileHandle {
    let top = service.files.root("tank").unwrap();
    service.files.mkdir(&root(), top, name.as_bytes(), set).await.kept().await.0.unwrap().handle
}

/// A user without search permission on a directory learns no name in it, by any call.
#[test]
fn a_directory_that_may_not_be_searched_tells_no_name() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let open = mkdir(&service, "open", &with_mode(0o777)).await;
        let own = make(&service, open, "own").await;
        let shut = mkdir(&service, "shut", &with_mode(0o776)).await;
        make(&service, shut, "there").await;
        let (files, other) = (&service.files, user(7, 7));
        for name in [&b"there"[..], b"missing"] {
            let set = SetAttributes::default();
            let refused = Err(FsError::AccessDenied);
            let made =
                async |how| files.create(&other, shut, name, how).await.kept().await.0.map(drop);
            assert_eq!(files.lookup(&other, shut, name).await.0.map(drop), refused);
            assert_eq!(made(CreateHow::Unchecked(set)).await, refused);
            assert_eq!(made(CreateHow::Guarded(set)).await, refused);
            assert_eq!(made(CreateHow::Exclusive(1)).await, refused);
            assert_eq!(
                files.mkdir(&other, shut, name, &set).await.kept().await.0.map(drop),
                refused
            );
            assert_eq!(
                files.symlink(&other, shut, name, b"x", &set).await.kept().await.0.map(drop),
                refused
            );
            assert_eq!(files.remove(&other, shut, name).await.kept().await.0, refused);
            assert_eq!(files.rmdir(&other, shut, name).await.kept().await.0, refused);
            assert_eq!(files.link(&other, own, shut, name).await.kept().await.0, refused);
            assert_eq!(
                files.rename(&other, (shut, name), (open, b"new")).await.kept().await.0,
                refused
            );
            assert_eq!(
                files.rename(&other, (open, b"own"), (shut, name)).await.kept().await.0,
                refused
            );
        }
        let there = async |name: &[u8]| files.lookup(&root(), open, name).await.0.is_ok();
        assert!(there(b"own").await && !there(b"new").await);
    });
}

/// A user that may list a directory but not search it sees names, and no way to their objects.
#[test]
fn a_listing_gives_no_handles_where_lookup_is_refused() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let shut = mkdir(&service, "shut", &with_mode(0o774)).await;
        make(&service, shut, "there").await;
        let list = async |cred| service.files.readdir(&cred, shut, 0, 10, true).await.unwrap().0;
        let shown = list(user(7, 7)).await;
        assert_eq!(shown.len(), 3);
        assert!(shown.iter().all(|entry| entry.attributes.is_none()), "{shown:?}");
        assert!(list(root()).await.iter().all(|entry| entry.attributes.is_some()));
    });
}

/// Only members of a group make a file that runs with the group's rights, and nobody else changes
/// it.
#[test]
fn set_id_bits_do_not_outlive_strangers() {
    const GROUP: u32 = 8;
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let set = SetAttributes { gid: Some(GROUP), ..with_mode(0o2777) };
        let directory = mkdir(&service, "shared", &set).await;
        let files = &service.files;
        let make_as = async |cred: &Credentials, name: &str, mode| {
            let how = CreateHow::Guarded(with_mode(mode));
            files.create(cred, directory, name.as_bytes(), how).await.kept().await.0.unwrap()
        };
        let made = make_as(&user(7, 7), "stranger", 0o2770).await;
        assert_eq!((made.gid, made.mode), (GROUP, 0o770));
        let made = make_as(&user(7, GROUP), "member", 0o2770).await;
        assert_eq!((made.gid, made.mode), (GROUP, 0o2770));
        let below =
            files.mkdir(&user(7, 7), directory, b"below", &with_mode(0o755)).await.kept().await.0;
        assert_eq!(below.unwrap().mode, 0o2755, "a directory hands its group on");
        // Content that another user writes or truncates.
        let by = [(&user(9, 9), 0o777), (&root(), 0o6777)];
        for ((cred, left), is_cut) in by.into_iter().flat_map(|by| [(by, false), (by, true)]) {
            let name = format!("{left:o}{is_cut}");
            let file = make_as(&user(7, GROUP), &name, 0o6777).await.handle;
            if is_cut {
                let longer = SetAttributes { size: Some(1), ..SetAttributes::default() };
                files.setattr(cred, file, &longer, None).await.kept().await.0.unwrap();
            } else {
                files.write(cred, file, 0, b"x", Stability::FileSync).await.0.unwrap();
            }
            assert_eq!(files.getattr(file).await.unwrap().mode, left, "{name}");
        }
    });
}

/// Each class of users has its own three bits and no others, even where the others grant more.
#[test]
fn who_may_do_what() {
    const OWNER: u32 = 7;
    const GROUP: u32 = 8;
    const OTHER: u32 = 9;
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        for mode in 0..0o1000 {
            let set = SetAttributes {
                mode: Some(mode),
                uid: Some(OWNER),
                gid: Some(GROUP),
                ..SetAttributes::default()
            };
            service.files.setattr(&root(), file, &set, None).await.kept().await.0.unwrap();
            let may = async |uid, gid, groups: &[u32]| {
                let cred = Credentials { groups: groups.into(), ..user(uid, gid) };
                let all = access::READ | access::MODIFY | access::EXECUTE;
                let (granted, _) = service.files.access(&cred, file, all).await.unwrap();
                let bit = |of, bit| if granted & of != 0 { bit } else { 0 };
                bit(access::READ, 4) | bit(access::MODIFY, 2) | bit(access::EXECUTE, 1)
            };
            assert_eq!(may(OWNER, GROUP, &[]).await, mode / 64, "the owner, {mode:o}");
            assert_eq!(may(OTHER, GROUP, &[]).await, mode / 8 % 8, "the group, {mode:o}");
            assert_eq!(may(OTHER, OTHER, &[GROUP]).await, mode / 8 % 8, "a group, {mode:o}");
            assert_eq!(may(OTHER, OTHER, &[OWNER]).await, mode % 8, "others, {mode:o}");
            let executes = u32::from(mode & 0o111 != 0);
            assert_eq!(may(0, 0, &[]).await, 6 | executes, "root, {mode:o}");
        }
    });
}
