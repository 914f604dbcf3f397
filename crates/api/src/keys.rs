//! Keys that protect the API over TCP, for both ends: certificates and tokens in files.
//!
//! Invariant: a file with a secret must not be readable by others. Such a file is refused, not
//! used.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

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
    /// A file has the wrong content.
    #[error("{path}: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The error in it.
        why: String,
    },
}

impl KeysError {
    /// A file that the system cannot open or read.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> KeysError {
        let path = path.to_path_buf();
        move |source| KeysError::File { path, source }
    }

    /// A file with the wrong content.
    pub fn content(path: &Path) -> impl FnOnce(String) -> KeysError {
        let path = path.to_path_buf();
        move |why| KeysError::Content { path, why }
    }

    /// There is no such file.
    pub fn is_absence(&self) -> bool {
        matches!(self, KeysError::File { source, .. } if source.kind() == ErrorKind::NotFound)
    }
}

/// The token in a file.
///
/// # Errors
/// A file that cannot be read, has no valid token, or is readable by others.
pub fn read_token(path: &Path) -> Result<String, KeysError> {
    let text = read_secret(path)?;
    let token = text.trim();
    if token.len() < TOKEN_DIGITS_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let why = format!("a token has at least {TOKEN_DIGITS_MIN} characters and no spaces");
        return Err(KeysError::content(path)(why));
    }
    Ok(token.to_string())
}

/// The certificates in a file.
///
/// # Errors
/// A file that cannot be read, or has no valid certificate.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, KeysError> {
    certificates_of(path, &read(path)?)
}

/// The certificates in the text of the file at `path`.
///
/// # Errors
/// An invalid certificate, or a text without any.
pub fn certificates_of(path: &Path, pem: &str) -> Result<Vec<CertificateDer<'static>>, KeysError> {
    let wrong = KeysError::content(path);
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(wrong("holds no certificate in PEM".into())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// A certificate of our own and its key: what we show to a daemon that asks for a certificate.
#[derive(Clone, Debug)]
pub struct Identity(Arc<CertifiedKey>);

impl Identity {
    /// The certificate in one file, first of those there, and its key in another.
    ///
    /// # Errors
    /// Files that cannot be read or do not belong together; a key that others can read.
    pub fn read(certificate: &Path, key: &Path) -> Result<Identity, KeysError> {
        let chain = read_certificates(certificate)?;
        fingerprint_of(certificate, &chain)?;
        let text = read_secret(key)?;
        let wrong = |why: String| KeysError::content(key)(why);
        let secret = PrivateKeyDer::from_pem_slice(text.as_bytes());
        let secret = secret.map_err(|error| wrong(error.to_string()))?;
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(chain, secret, &provider)
            .map_err(|error| wrong(format!("is no key for {} ({error})", certificate.display())))?;
        Ok(Identity(Arc::new(certified)))
    }

    /// For a configuration of rustls.
    pub(crate) fn resolver(self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(self.0))
    }
}

/// The fingerprint of the first certificate in a file: SHA-256, as 64 hexadecimal digits.
///
/// # Errors
/// A file that cannot be read, or whose first certificate no client can show.
pub fn read_fingerprint(path: &Path) -> Result<String, KeysError> {
    fingerprint_of(path, &read_certificates(path)?)
}

fn fingerprint_of(path: &Path, chain: &[CertificateDer<'_>]) -> Result<String, KeysError> {
    let wrong =
        |why: &str| KeysError::content(path)(format!("holds no certificate to show: {why}"));
    let first = chain.first().ok_or_else(|| wrong("there is none"))?;
    ParsedCertificate::try_from(first).map_err(|error| wrong(&error.to_string()))?;
    let sum = digest::digest(&digest::SHA256, first);
    Ok(sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A fingerprint as people write it, such as `openssl x509 -fingerprint -sha256` does, in the form
/// of [`read_fingerprint`].
pub fn parse_fingerprint(text: &str) -> Option<String> {
    let digits = text.replace(':', "").to_ascii_lowercase();
    let is_one = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then_some(digits)
}

/// A file's text.
///
/// # Errors
/// The system's error.
pub fn read(path: &Path) -> Result<String, KeysError> {
    fs::read_to_string(path).map_err(KeysError::file(path))
}

/// The text of a file that only its owner can read.
///
/// # Errors
/// The system's error, or a file that others may use.
pub fn read_secret(path: &Path) -> Result<String, KeysError> {
    let mut file = File::open(path).map_err(KeysError::file(path))?;
    // The mode of the opened file: the name may be another file's by now.
    let mode = file.metadata().map_err(KeysError::file(path))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!("is secret, and others may use it (mode {mode:o}): chmod 600");
        return Err(KeysError::content(path)(why));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(KeysError::file(path))?;
    Ok(text)
}

const TOKEN_DIGITS_MIN: usize = 32;
