//! The promises of POSIX, one by one, on a mounted file system.
//!
//! Invariants: each check works in a new directory of its own and depends on no other; a failure
//! names the expected result. Checks that need a second user do so in a thread that gives up its
//! rights (`as_user`), so root must run them.

mod links;
mod names;
mod opens;
mod permissions;
mod times;

use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;

use crate::{Error, Result};

/// One promise.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Short name, unique.
    pub name: &'static str,
    /// The check, in an empty directory.
    run: fn(&Path) -> Result<()>,
}

/// All checks.
#[must_use]
pub fn checks() -> Vec<Check> {
    [links::CHECKS, names::CHECKS, opens::CHECKS, permissions::CHECKS, times::CHECKS].concat()
}

/// Runs the checks in `directory` and calls `report` with the result of each; returns the number of
/// failures.
///
/// # Errors
/// [`Error::Io`] if a check's directory cannot be made or removed.
pub fn run(directory: &Path, mut report: impl FnMut(&str, &Result<()>)) -> Result<u32> {
    let mut failed = 0;
    for check in checks() {
        let place = directory.join(check.name);
        fs::create_dir(&place).map_err(Error::at("mkdir", &place))?;
        let result = (check.run)(&place);
        failed += u32::from(result.is_err());
        report(check.name, &result);
        if result.is_ok() {
            fs::remove_dir_all(&place).map_err(Error::at("remove", &place))?;
        }
    }
    Ok(failed)
}

/// Runs `action` as an ordinary user with this id as user and only group. On Linux credentials
/// belong to a thread; only the new thread gives up its rights.
fn as_user<T: Send>(id: u32, action: impl FnOnce() -> T + Send) -> Result<T> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    let changed = |error: Errno| Error::io(format!("become user {id}"))(error.into());
    thread::scope(|scope| {
        let user = scope.spawn(|| {
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_gid(gid)?;
            rustix::thread::set_thread_uid(uid)?;
            Ok(action())
        });
        user.join().map_err(|_| Error::Malformed("the user's thread panicked".into()))
    })?
    .map_err(changed)
}

/// The ordinary users of the checks.
const ALICE: u32 = 1001;
const BOB: u32 = 1002;

/// Checks that `result` is one of these errors.
fn expect_errno<T: Debug>(what: &str, result: io::Result<T>, errnos: &[Errno]) -> Result<()> {
    let found = match result {
        Err(error) => Errno::from_io_error(&error),
        Ok(value) => {
            let what = format!("{what}: done ({value:?}), expected {errnos:?}");
            return Err(Error::Mismatch(what));
        }
    };
    match found {
        Some(errno) if errnos.contains(&errno) => Ok(()),
        other => Err(Error::Mismatch(format!("{what}: {other:?}, expected {errnos:?}"))),
    }
}

/// Checks that `found` equals `expected`.
fn expect<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Mismatch(format!("{what}: {found:?}, expected {expected:?}")))
}

/// Checks that the call succeeded.
fn done<T>(what: &str, result: io::Result<T>) -> Result<T> {
    result.map_err(Error::io(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aquifer_rig::work::WorkDir;
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn passes_on_a_local_file_system() {
        let scratch = WorkDir::open().unwrap().scratch("semantics").unwrap();
        let mut failures = Vec::new();
        let failed = run(scratch.path(), |name, result| {
            if let Err(error) = result {
                failures.push(format!("{name}: {error}"));
            }
        });
        assert_eq!(failures, Vec::<String>::new());
        assert_eq!(failed.unwrap(), 0);
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = checks().iter().map(|check| check.name).collect();
        assert_eq!(names.len(), checks().len());
    }

    #[test]
    fn expectations_can_fail() {
        let missing = fs::read("/no/such/file");
        expect_errno("x", missing, &[Errno::NOENT]).unwrap();
        assert!(expect_errno("x", fs::read("/no/such/file"), &[Errno::EXIST]).is_err());
        assert!(expect_errno("x", Ok(()), &[Errno::EXIST]).is_err());
        assert!(expect("x", 1, 2).is_err());
    }

    #[test]
    fn a_user_has_no_rights_of_root_and_root_keeps_them() {
        let scratch = WorkDir::open().unwrap().scratch("semantics-user").unwrap();
        let secret = scratch.join("secret");
        fs::write(&secret, "x").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let seen = as_user(ALICE, || fs::read(&secret)).unwrap();
        expect_errno("read as user", seen, &[Errno::ACCESS]).unwrap();
        fs::read(&secret).unwrap();
    }
}
