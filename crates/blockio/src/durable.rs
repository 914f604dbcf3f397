//! Files that are replaced whole: after a power cut there is the old one or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes a file or replaces it. It is on disk when this returns.
///
/// The temporary file beside it is always a new one. So a file or link that somebody left there is
/// not written to, and does not give the new file its mode.
///
/// # Errors
/// Errors of the system. The old file is still there then, unless the last step failed: writing its
/// directory.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = path.with_extension("new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_lies_beside_is_not_written_to_and_the_mode_is_that_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("list.json"), dir.path().join("other"));
        fs::write(&other, "other").unwrap();
        fs::write(&path, "old").unwrap();
        symlink(&other, dir.path().join("list.new")).unwrap();
        replace(&path, b"new", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&other).unwrap(), b"other");
        assert!(!dir.path().join("list.new").exists());
        let missing = replace(&dir.path().join("none/list.json"), b"new", 0o600);
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    }
}
