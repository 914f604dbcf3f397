//! The guest's workloads on a mounted file system: the commands of the program `nfstest`.
//!
//! Invariants: each depends only on a seed and its parameters, and checks everything that it reads.
//! It reports a wrong server as [`crate::Error::Mismatch`] with the expected and the found value.
//! They are plain POSIX programs, and tests here run them on a local file system. So a failure over
//! NFS comes from the server or its client.

pub mod bulk;
pub mod fsx;
pub mod journal;
pub mod lock;
mod mapping;
pub mod semantics;
pub mod sparse;
pub mod tree;

use std::fs::File;

use crate::{Error, Result};

/// The last number that a program has reported as durable, as 'ack NUMBER', in the whole lines of
/// its output.
#[must_use]
pub fn acked(output: &str) -> Option<u64> {
    let whole = output.rfind('\n').and_then(|end| output.get(..end)).unwrap_or_default();
    let last = whole.lines().rev().find_map(|line| line.strip_prefix("ack "));
    last.and_then(|number| number.parse().ok())
}

/// Writes dirty pages of `file` to the server and drops them from this machine's cache, so that the
/// next read asks the server.
///
/// # Errors
/// [`Error::Io`]: an earlier failed write is reported here.
pub fn drop_cache(file: &File) -> Result<()> {
    file.sync_all().map_err(Error::io("fsync"))?;
    let advised = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    advised.map_err(|errno| Error::io("fadvise")(errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_read_from_whole_lines() {
        assert_eq!(acked("wal\nack 1\nack 2\nack 3"), Some(2));
        assert_eq!(acked("ack 1\r\nsomething else\n"), Some(1));
        assert_eq!(acked(""), None);
    }
}
