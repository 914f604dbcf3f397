//! Values shared by the samples.

use aquifer_nfs::proto::v3::{
    Fattr3, Ftype3, NfsFh3, Nfstime3, Sattr3, SetTime, SpecData3, WccAttr, WccData,
};

/// A sample handle.
pub fn handle() -> NfsFh3 {
    NfsFh3::new(&[0xa5; 28]).unwrap_or_else(|| unreachable!("28 bytes fit a handle"))
}

/// Sample attributes.
pub fn attributes() -> Fattr3 {
    let time = Nfstime3 { seconds: 1_700_000_000, nseconds: 5 };
    Fattr3 {
        ftype: Ftype3::Reg,
        mode: 0o644,
        nlink: 1,
        uid: 2,
        gid: 3,
        size: 4 << 32,
        used: 5 << 32,
        rdev: SpecData3 { specdata1: 0, specdata2: 0 },
        fsid: 6,
        fileid: 7,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

/// Sample attributes around a change.
pub fn wcc() -> WccData {
    let time = Nfstime3 { seconds: 1_700_000_000, nseconds: 4 };
    WccData {
        before: Some(WccAttr { size: 1, mtime: time, ctime: time }),
        after: Some(attributes()),
    }
}

/// Sample attributes to set.
pub fn sattr() -> Sattr3 {
    Sattr3 {
        mode: Some(0o600),
        uid: Some(1),
        gid: None,
        size: Some(1 << 33),
        atime: SetTime::ServerTime,
        mtime: SetTime::ClientTime(Nfstime3 { seconds: 1, nseconds: 2 }),
    }
}
