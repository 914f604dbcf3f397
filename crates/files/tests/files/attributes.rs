//! SETATTR, and the numbers of FSSTAT.

use aquifer_files::{Credentials, FsError, SetAttributes, SetTime, Stability, Time};

use crate::bed::{Bed, make, noise, root, write};

fn at(seconds: i64, nanoseconds: u32) -> SetTime {
    SetTime::To(Time { seconds, nanoseconds })
}

/// Times are stored exactly, to the last nanosecond of a second; invalid times are refused.
#[test]
fn times_are_set_to_what_is_a_time() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        let set = async |atime, mtime| {
            let set = SetAttributes { atime, mtime, ..SetAttributes::default() };
            service.files.setattr(&root(), file, &set, None).await.kept().await.0.map(drop)
        };
        set(at(5, 0), at(-7, 999_999_999)).await.unwrap();
        let times = async || {
            let is = service.files.getattr(file).await.unwrap();
            (at(is.atime.seconds, is.atime.nanoseconds), at(is.mtime.seconds, is.mtime.nanoseconds))
        };
        let both = (at(5, 0), at(-7, 999_999_999));
        assert_eq!(times().await, both);
        for (atime, mtime) in [(at(5, 1_000_000_000), at(8, 0)), (at(8, 0), at(5, u32::MAX))] {
            assert_eq!(set(atime, mtime).await, Err(FsError::Invalid));
            assert_eq!(times().await, both);
        }
        set(SetTime::Keep, at(9, 9)).await.unwrap();
        assert_eq!(times().await, (both.0, at(9, 9)));
    });
}

/// Setting the present owner again changes nothing. When an owner gives a file to another group,
/// that group does not get the rights of the one before.
#[test]
fn set_id_bits_go_with_an_owner_that_is_another_one() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        let owner = Credentials { uid: 7, gid: 8, groups: vec![9], ..Credentials::root() };
        let set = async |cred: &Credentials, set: SetAttributes| {
            service.files.setattr(cred, file, &set, None).await.kept().await.0?;
            Ok(service.files.getattr(file).await.unwrap().mode)
        };
        let of = |uid, gid| SetAttributes { uid, gid, ..SetAttributes::default() };
        let own = SetAttributes { mode: Some(0o6755), ..of(Some(7), Some(8)) };
        assert_eq!(set(&root(), own).await, Ok(0o6755));
        assert_eq!(set(&owner, of(Some(7), None)).await, Ok(0o6755));
        assert_eq!(set(&owner, of(Some(7), Some(8))).await, Ok(0o6755));
        assert_eq!(set(&owner, of(Some(6), None)).await, Err(FsError::NotPermitted));
        assert_eq!(set(&owner, of(None, Some(9))).await, Ok(0o755));
    });
}

/// Files in use count into the total, each with the least that a file with content takes.
#[test]
fn fsstat_counts_files_that_are_there() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        write(&service, file, 0, &noise(1, 50), Stability::Unstable).await.unwrap();
        service.pool.sync().await.unwrap();
        let (space, _) = service.files.fsstat(top).await.unwrap();
        let used = space.total_bytes - space.free_bytes;
        assert!(used > 0);
        assert_eq!(space.free_files, space.free_bytes / 512);
        assert_eq!(space.total_files - space.free_files, used / 4096);
    });
}
