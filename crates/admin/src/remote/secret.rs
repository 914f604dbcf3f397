//! Files that hold secrets: how they are read, made and replaced.
//!
//! Invariants:
//! - What is secret is never readable by others: such a file is refused, not used.
//! - A file is replaced whole, and on disk when that is done.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use aquifer_blockio::durable;
use ring::digest;
use subtle::ConstantTimeEq;

/// The keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file cannot be read or made.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path}: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl KeysError {
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> KeysError {
        let path = path.to_path_buf();
        move |source| KeysError::File { path, source }
    }

    pub(super) fn content(path: &Path) -> impl FnOnce(String) -> KeysError {
        let path = path.to_path_buf();
        move |why| KeysError::Content { path, why }
    }

    /// There is no such file.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, KeysError::File { source, .. } if source.kind() == ErrorKind::NotFound)
    }
}

/// SHA-256 of a secret: what is compared, and kept where the secret itself need not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hash([u8; 32]);

impl Hash {
    pub fn of(secret: &[u8]) -> Hash {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, secret).as_ref());
        Hash(bytes)
    }

    /// Whether these are the same, in a time that tells nothing else.
    pub fn is(&self, other: &Hash) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// 64 hexadecimal digits.
    pub fn text(&self) -> String {
        hex(&self.0)
    }

    /// The hash of a text that [`Hash::text`] wrote.
    pub fn from_text(text: &str) -> Option<Hash> {
        let mut bytes = [0; 32];
        (text.len() == 64 && text.is_ascii()).then_some(())?;
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Hash(bytes))
    }
}

/// A secret that nobody guesses: 256 random bits as 64 hexadecimal digits.
pub(super) fn new_token() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex(&bytes))
}

/// A directory that is its owner's alone.
pub(super) fn make_directory(path: &Path) -> Result<(), KeysError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(KeysError::file(path))
}

/// A file's text.
pub(super) fn read(path: &Path) -> Result<String, KeysError> {
    fs::read_to_string(path).map_err(KeysError::file(path))
}

/// The text of a file that nobody else can read.
pub(super) fn read_secret(path: &Path) -> Result<String, KeysError> {
    let mut file = File::open(path).map_err(KeysError::file(path))?;
    // Of what was opened: the name may be another file's by now.
    let mode = file.metadata().map_err(KeysError::file(path))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!("is secret, and others may use it (mode {mode:o}): chmod 600");
        return Err(KeysError::content(path)(why));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(KeysError::file(path))?;
    Ok(text)
}

/// Makes or replaces a file.
pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), KeysError> {
    durable::replace(path, bytes, mode).map_err(KeysError::file(path))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `printf abc | sha256sum`.
    #[test]
    fn a_hash_is_sha_256_and_survives_its_text() {
        let hash = Hash::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.text(), text);
        assert_eq!(Hash::from_text(text), Some(hash));
        assert!(hash.is(&hash) && !hash.is(&Hash::of(b"abd")));
        for wrong in ["", "ba78", &"g".repeat(64), &"\u{e9}".repeat(32)] {
            assert_eq!(Hash::from_text(wrong), None);
        }
    }
}
