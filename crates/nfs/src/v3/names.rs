//! The rules of names (RFC 1813 section 3.2, and the procedures' own remarks on `.` and `..`).
//!
//! Invariant: a name that passes is 1 to 255 bytes without `/` and NUL; and unless it is looked up,
//! it is not `.` or `..`. `files` never has to make, remove or move one of those.

use crate::limits::NAME_BYTES_MAX;
use crate::proto::v3::Nfsstat3;

/// A name to look up: `.` and `..` have a meaning.
///
/// # Errors
/// [`Nfsstat3::Acces`] for the empty name and for characters that no name has, both as section 3.2
/// requires; [`Nfsstat3::NameTooLong`].
pub(crate) fn to_look_up(name: &[u8]) -> Result<&[u8], Nfsstat3> {
    if name.is_empty() || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Nfsstat3::Acces);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Nfsstat3::NameTooLong);
    }
    Ok(name)
}

/// A name for something new: CREATE, MKDIR, SYMLINK, MKNOD, LINK.
///
/// # Errors
/// As [`to_look_up`]; `.` and `..` are always there: [`Nfsstat3::Exist`].
pub(super) fn to_make(name: &[u8]) -> Result<&[u8], Nfsstat3> {
    match to_look_up(name)? {
        b"." | b".." => Err(Nfsstat3::Exist),
        name => Ok(name),
    }
}

/// A name for REMOVE.
///
/// # Errors
/// As [`to_look_up`]; `.` and `..` are directories, which RMDIR removes: [`Nfsstat3::IsDir`].
pub(super) fn to_remove(name: &[u8]) -> Result<&[u8], Nfsstat3> {
    match to_look_up(name)? {
        b"." | b".." => Err(Nfsstat3::IsDir),
        name => Ok(name),
    }
}

/// A name for RMDIR.
///
/// # Errors
/// As [`to_look_up`]; section 3.3.13 requires [`Nfsstat3::Inval`] for `.` and [`Nfsstat3::Exist`]
/// for `..`.
pub(super) fn to_rmdir(name: &[u8]) -> Result<&[u8], Nfsstat3> {
    match to_look_up(name)? {
        b"." => Err(Nfsstat3::Inval),
        b".." => Err(Nfsstat3::Exist),
        name => Ok(name),
    }
}

/// Either name of a RENAME.
///
/// # Errors
/// As [`to_look_up`]; section 3.3.14 requires [`Nfsstat3::Inval`] for `.` and `..`.
pub(super) fn to_rename(name: &[u8]) -> Result<&[u8], Nfsstat3> {
    match to_look_up(name)? {
        b"." | b".." => Err(Nfsstat3::Inval),
        name => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rule = fn(&[u8]) -> Result<&[u8], Nfsstat3>;
    const RULES: [Rule; 5] = [to_look_up, to_make, to_remove, to_rmdir, to_rename];

    #[test]
    fn no_rule_takes_what_is_no_name() {
        for rule in RULES {
            for name in [&b""[..], b"a/b", b"/", b"a\0", b"\0"] {
                assert_eq!(rule(name), Err(Nfsstat3::Acces), "{name:?}");
            }
            assert_eq!(rule(&[b'a'; 256]), Err(Nfsstat3::NameTooLong));
            for name in [&b"a"[..], b"...", b" ", b"\xff\xfe", b"-", &[b'a'; 255]] {
                assert_eq!(rule(name), Ok(name));
            }
        }
    }

    /// RFC 1813 sections 3.3.8 (a name that exists), 3.3.12, 3.3.13 and 3.3.14.
    #[test]
    fn dots_are_answered_by_each_procedure_in_its_way() {
        let said = |name: &'static [u8]| RULES.map(|rule| rule(name).err());
        let [exist, isdir, inval] = [Nfsstat3::Exist, Nfsstat3::IsDir, Nfsstat3::Inval].map(Some);
        assert_eq!(said(b"."), [None, exist, isdir, inval, inval]);
        assert_eq!(said(b".."), [None, exist, isdir, exist, inval]);
    }
}
