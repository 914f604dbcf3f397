//! Attributes and times between POSIX and the wire (RFC 1813 section 2.5).
//!
//! Invariant: an unknown value is left out, never made up. `wcc_data` is exactly what `files` read
//! together with the change.

use aquifer_files::{Around, Attributes, Before, FileHandle, FileKind, SetAttributes, Time};

use crate::limits::FILE_BYTES_MAX;
use crate::proto::v3::{
    Fattr3, Ftype3, NfsFh3, Nfsstat3, Nfstime3, Sattr3, SetTime, SpecData3, WccAttr, WccData,
};

/// `fattr3` of a file. The file system id is the dataset's guid, which is the same over every
/// address and after every restart. The fileid is the object's number, which is never reused.
pub(crate) fn fattr3(file: &Attributes) -> Fattr3 {
    let (specdata1, specdata2) = file.rdev;
    Fattr3 {
        ftype: ftype3(file.kind),
        mode: file.mode & MODE_BITS,
        nlink: file.nlink,
        uid: file.uid,
        gid: file.gid,
        size: file.size,
        used: file.used,
        rdev: SpecData3 { specdata1, specdata2 },
        fsid: file.handle.fsid(),
        fileid: file.handle.fileid(),
        atime: nfstime3(file.atime),
        mtime: nfstime3(file.mtime),
        ctime: nfstime3(file.ctime),
    }
}

/// `wcc_data` of an object around an operation.
pub(crate) fn wcc_data(around: &Around) -> WccData {
    WccData {
        before: around.before.as_ref().map(wcc_attr),
        after: around.after.as_ref().map(fattr3),
    }
}

/// The wire form of a handle.
pub(crate) fn nfs_fh3(file: FileHandle) -> NfsFh3 {
    const { assert!(FileHandle::BYTES <= crate::proto::v3::FH_BYTES_MAX) };
    NfsFh3::new(&file.encode()).expect("24 bytes fit a handle")
}

/// The attributes that a `sattr3` sets.
///
/// # Errors
/// [`Nfsstat3::Inval`] for an invalid time, [`Nfsstat3::Fbig`] for a size that no file can have.
pub(crate) fn set_attributes(set: &Sattr3) -> Result<SetAttributes, Nfsstat3> {
    if set.size.is_some_and(|size| size > FILE_BYTES_MAX) {
        return Err(Nfsstat3::Fbig);
    }
    Ok(SetAttributes {
        mode: set.mode.map(|mode| mode & MODE_BITS),
        uid: set.uid.filter(|uid| *uid != KEEP_ID),
        gid: set.gid.filter(|gid| *gid != KEEP_ID),
        size: set.size,
        atime: set_time(set.atime)?,
        mtime: set_time(set.mtime)?,
    })
}

/// A time that a client sent.
///
/// # Errors
/// [`Nfsstat3::Inval`] if its nanoseconds make a second or more.
pub(crate) fn time(time: Nfstime3) -> Result<Time, Nfsstat3> {
    if time.nseconds >= NANOSECONDS {
        return Err(Nfsstat3::Inval);
    }
    Ok(Time { seconds: i64::from(time.seconds), nanoseconds: time.nseconds })
}

/// The protocol counts seconds from 1970 to 2106; a time outside is shown as the nearer end.
fn nfstime3(time: Time) -> Nfstime3 {
    let seconds = time.seconds.clamp(0, i64::from(u32::MAX));
    Nfstime3 { seconds: u32::try_from(seconds).unwrap_or(u32::MAX), nseconds: time.nanoseconds }
}

fn set_time(set: SetTime) -> Result<aquifer_files::SetTime, Nfsstat3> {
    Ok(match set {
        SetTime::DontChange => aquifer_files::SetTime::Keep,
        SetTime::ServerTime => aquifer_files::SetTime::Now,
        SetTime::ClientTime(to) => aquifer_files::SetTime::To(time(to)?),
    })
}

fn wcc_attr(before: &Before) -> WccAttr {
    WccAttr { size: before.size, mtime: nfstime3(before.mtime), ctime: nfstime3(before.ctime) }
}

fn ftype3(kind: FileKind) -> Ftype3 {
    match kind {
        FileKind::Regular => Ftype3::Reg,
        FileKind::Directory => Ftype3::Dir,
        FileKind::Symlink => Ftype3::Lnk,
        FileKind::Block => Ftype3::Blk,
        FileKind::Character => Ftype3::Chr,
        FileKind::Fifo => Ftype3::Fifo,
        FileKind::Socket => Ftype3::Sock,
    }
}

const MODE_BITS: u32 = 0o7777;
const NANOSECONDS: u32 = 1_000_000_000;

/// POSIX chown(2): -1 leaves the owner as it is.
const KEEP_ID: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use aquifer_files::Time;

    #[test]
    fn times_outside_the_protocol_are_shown_as_its_ends() {
        for (seconds, shown) in [(-1, 0), (0, 0), (1 << 31, 1 << 31), (1 << 32, u32::MAX)] {
            let wire = nfstime3(Time { seconds, nanoseconds: 7 });
            assert_eq!(wire, Nfstime3 { seconds: shown, nseconds: 7 });
        }
    }

    /// A guard is compared for equality: the time that was shown must come back unchanged.
    #[test]
    fn a_time_that_was_shown_comes_back_the_same() {
        for seconds in [0, 1, i64::from(u32::MAX)] {
            let shown = Time { seconds, nanoseconds: 999_999_999 };
            assert_eq!(time(nfstime3(shown)), Ok(shown));
        }
        assert_eq!(time(Nfstime3 { seconds: 1, nseconds: NANOSECONDS }), Err(Nfsstat3::Inval));
    }

    #[test]
    fn what_cannot_be_set_is_refused_and_minus_one_keeps() {
        let set = Sattr3 { size: Some(FILE_BYTES_MAX + 1), ..Sattr3::NONE };
        assert_eq!(set_attributes(&set), Err(Nfsstat3::Fbig));
        let bad = SetTime::ClientTime(Nfstime3 { seconds: 0, nseconds: u32::MAX });
        assert_eq!(set_attributes(&Sattr3 { mtime: bad, ..Sattr3::NONE }), Err(Nfsstat3::Inval));
        let set = Sattr3 {
            mode: Some(0o107_644),
            uid: Some(u32::MAX),
            gid: Some(7),
            size: Some(FILE_BYTES_MAX),
            ..Sattr3::NONE
        };
        let expected = SetAttributes {
            mode: Some(0o7644),
            gid: Some(7),
            size: Some(FILE_BYTES_MAX),
            ..SetAttributes::default()
        };
        assert_eq!(set_attributes(&set), Ok(expected));
    }
}
