//! Secrets and authorities, from files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The first line of a file that nobody but its owner can read; `None` without a path.
///
/// # Errors
/// Why there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, String> {
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let shown = path.display();
    let meta = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    if meta.mode() & 0o077 != 0 {
        return Err(format!("{shown}: others can read it; type `chmod 600 {shown}`"));
    }
    let text = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(Some(line.to_string())),
        None => Err(format!("{shown}: its first line is empty")),
    }
}

/// The bytes of a file; `None` without a path.
///
/// # Errors
/// Why there are none.
pub(crate) fn authorities(path: &Path) -> Result<Option<Vec<u8>>, String> {
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    fs::read(path).map(Some).map_err(|error| format!("{}: {error}", path.display()))
}
