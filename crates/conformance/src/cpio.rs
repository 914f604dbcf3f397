//! Writer of cpio archives in the "new ASCII" form (`newc`), which the kernel unpacks as initramfs
//! (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! Invariants: a parent directory comes once, before its content; everything belongs to root;
//! headers, names and contents are padded to 4 bytes.

use std::collections::BTreeSet;

use crate::{Error, Result};

/// An archive being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    /// Adds a directory and its parents. Paths have no leading slash.
    ///
    /// # Errors
    /// [`Error::Malformed`] for a value that the format cannot hold.
    pub fn directory(&mut self, path: &str) -> Result<()> {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        for part in ends.filter_map(|end| path.get(..end)).filter(|part| !part.is_empty()) {
            if self.directories.insert(part.to_owned()) {
                self.entry(part, DIRECTORY | 0o755, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    /// Adds a regular file with permission bits `mode`.
    ///
    /// # Errors
    /// As for a directory; also for 4 GiB and more.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.parent_of(path)?;
        self.entry(path, REGULAR | mode, (0, 0), content)
    }

    /// Adds a symbolic link to `target`.
    ///
    /// # Errors
    /// As for a directory.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<()> {
        self.parent_of(path)?;
        self.entry(path, SYMLINK | 0o777, (0, 0), target.as_bytes())
    }

    /// Adds a character device.
    ///
    /// # Errors
    /// As for a directory.
    pub fn character_device(
        &mut self,
        path: &str,
        mode: u32,
        major_minor: (u32, u32),
    ) -> Result<()> {
        self.parent_of(path)?;
        self.entry(path, CHARACTER | mode, major_minor, &[])
    }

    /// The finished archive.
    ///
    /// # Errors
    /// As for a directory.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.bytes)
    }

    fn parent_of(&mut self, path: &str) -> Result<()> {
        path.rsplit_once('/').map_or(Ok(()), |(parent, _)| self.directory(parent))
    }

    fn entry(&mut self, path: &str, mode: u32, rdev: (u32, u32), content: &[u8]) -> Result<()> {
        let too_large = |_| Error::Malformed(format!("{path} does not fit a cpio header"));
        let size = u32::try_from(content.len()).map_err(too_large)?;
        let name_size = u32::try_from(path.len() + 1).map_err(too_large)?;
        if path.starts_with('/') || path.contains('\0') {
            return Err(Error::Malformed(format!("{path:?} is no path for a cpio archive")));
        }
        self.entries += 1;
        let (uid, gid, links, mtime, device, check) = (0, 0, 1, 0, (0, 0), 0);
        let fields = [
            self.entries,
            mode,
            uid,
            gid,
            links,
            mtime,
            size,
            device.0,
            device.1,
            rdev.0,
            rdev.1,
            name_size,
            check,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }
}

// File types of `st_mode` (POSIX `<sys/stat.h>`, Linux values).
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

#[cfg(test)]
mod tests {
    use super::*;
    use aquifer_rig::process::Invocation;
    use aquifer_rig::work::WorkDir;
    use std::fs;
    use std::time::Duration;

    #[test]
    fn busybox_unpacks_what_was_packed() {
        let mut archive = Archive::default();
        archive.file("bin/tool", 0o755, b"#!/bin/sh\n").unwrap();
        archive.file("bin/odd", 0o600, b"12345").unwrap();
        archive.symlink("a/b/link", "../../bin/tool").unwrap();
        archive.directory("a/b").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let scratch = WorkDir::open().unwrap().scratch("cpio").unwrap();
        fs::write(scratch.join("archive"), bytes).unwrap();
        let script = "cd \"$0\" && mkdir out && cd out && busybox cpio -i < ../archive && \
            busybox find . | busybox sort && busybox stat -c %a bin/tool bin/odd && cat bin/odd";
        let shell = Invocation::new("sh").args(["-c", script]).arg(scratch.path());
        let outcome = shell.check(Duration::from_secs(20)).unwrap();
        let expected = ".\n./a\n./a/b\n./a/b/link\n./bin\n./bin/odd\n./bin/tool\n755\n600\n12345";
        assert_eq!(outcome.text(), expected, "{}", outcome.said());
        let link = fs::read_link(scratch.join("out/a/b/link")).unwrap();
        assert_eq!(link.to_str(), Some("../../bin/tool"));
    }

    #[test]
    fn absolute_paths_are_refused() {
        assert!(Archive::default().file("/etc/x", 0o644, b"").is_err());
    }
}
