//! A POSIX lock of a whole file (`fcntl`), which over NFSv3 is a lock of the server.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::{Error, Result};

/// Locks `path` exclusively, calls `held`, and unlocks it.
///
/// # Errors
/// [`Error::Io`], also if another owner has the lock and `waits` is false.
pub fn hold(path: &Path, waits: bool, held: impl FnOnce()) -> Result<()> {
    let options = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = options.map_err(Error::at("open", path))?;
    let operation = match waits {
        true => FlockOperation::LockExclusive,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    fcntl_lock(&file, operation).map_err(|errno| Error::at("lock", path)(errno.into()))?;
    held();
    let unlocked = fcntl_lock(&file, FlockOperation::Unlock);
    unlocked.map_err(|errno| Error::at("unlock", path)(errno.into()))
}
