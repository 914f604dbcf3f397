//! Secrets, and the files that hold them: how they are made and replaced.
//!
//! Invariant: a file is replaced whole, and on disk when that is done.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use aquifer_blockio::durable;
use ring::digest;
use subtle::ConstantTimeEq;

use aquifer_api::keys::KeysError;

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
