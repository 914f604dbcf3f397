//! Permission bits.

use aquifer_files::{Credentials, SetAttributes, access};

use crate::bed::{Bed, make, root};

/// Each class of users has its own three bits, and no others, even where these grant more.
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
            service.files.setattr(&root(), file, &set, None).await.0.unwrap();
            let may = async |uid, gid, groups: &[u32]| {
                let cred = Credentials { uid, gid, groups: groups.into(), call: None };
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
