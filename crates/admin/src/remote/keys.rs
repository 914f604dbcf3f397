//! What the API over TCP is protected by: a certificate, its key, and the token.
//!
//! They are three files in a directory of their own, made at the first start:
//!
//! ```text
//! certificate.pem   0644  what clients must know to know the server
//! key.pem           0600
//! token             0600  64 hexadecimal digits, what the server must hear to know a client
//! ```
//! Whoever wants a certificate of their own authority puts it there. A new token is what comes of
//! removing the old one and a restart.
//!
//! Invariant: what is secret is never readable by others: such a file is refused, not used.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What a server needs.
#[derive(Debug)]
pub struct Keys {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) token: String,
}

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

impl Keys {
    /// The keys in `directory`, which are made if they are not there: a certificate for this
    /// machine's name, for `localhost`, for these addresses, and for `names`.
    ///
    /// # Errors
    /// What cannot be read or made, holds nothing of use, or is secret and readable by others.
    pub fn open(
        directory: &Path,
        names: &[String],
        addresses: &[IpAddr],
    ) -> Result<Keys, KeysError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|source| KeysError::File { path: directory.into(), source })?;
        let [certificate, key, token] =
            ["certificate.pem", "key.pem", "token"].map(|name| directory.join(name));
        if !certificate.exists() && !key.exists() {
            let (chain, secret) = self_signed(names, addresses)
                .map_err(|why| KeysError::Content { path: certificate.clone(), why })?;
            write_new(&key, secret.as_bytes(), 0o600)?;
            write_new(&certificate, chain.as_bytes(), 0o644)?;
        }
        if !token.exists() {
            write_new(&token, new_token(&token)?.as_bytes(), 0o600)?;
        }
        Ok(Keys { tls: server_config(&certificate, &key)?, token: read_token(&token)? })
    }
}

/// The token in a file.
///
/// # Errors
/// As [`Keys::open`].
pub fn read_token(path: &Path) -> Result<String, KeysError> {
    let text = read_secret(path)?;
    let token = text.trim();
    if token.len() < TOKEN_DIGITS_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let why = format!("a token has at least {TOKEN_DIGITS_MIN} characters and no spaces");
        return Err(KeysError::Content { path: path.into(), why });
    }
    Ok(token.to_string())
}

/// The certificates in a file.
///
/// # Errors
/// As [`Keys::open`].
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, KeysError> {
    let wrong = |why: String| KeysError::Content { path: path.into(), why };
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("holds no certificate in PEM".into())) } else { Ok(found) }
}

fn server_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, KeysError> {
    let wrong = |why: String| KeysError::Content { path: key.into(), why };
    let chain = read_certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_slice(read_secret(key)?.as_bytes());
    let secret = secret.map_err(|error| wrong(error.to_string()))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, secret);
    let mut config = config.map_err(|error| wrong(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A certificate and its key, in PEM.
fn self_signed(names: &[String], addresses: &[IpAddr]) -> Result<(String, String), String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut all: Vec<String> = vec!["localhost".into(), "127.0.0.1".into(), "::1".into()];
    all.extend((!host.is_empty()).then_some(host));
    all.extend(names.iter().cloned());
    all.extend(addresses.iter().filter(|at| !at.is_unspecified()).map(IpAddr::to_string));
    all.sort();
    all.dedup();
    let made = rcgen::generate_simple_self_signed(all).map_err(|error| error.to_string())?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

fn new_token(path: &Path) -> Result<String, KeysError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| KeysError::File {
        path: path.into(),
        source: io::Error::other(error.to_string()),
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn read(path: &Path) -> Result<String, KeysError> {
    fs::read_to_string(path).map_err(|source| KeysError::File { path: path.into(), source })
}

fn read_secret(path: &Path) -> Result<String, KeysError> {
    let meta = fs::metadata(path);
    let meta = meta.map_err(|source| KeysError::File { path: path.into(), source })?;
    if meta.mode() & 0o077 != 0 {
        let mode = meta.mode() & 0o777;
        let why = format!("is secret, and others may use it (mode {mode:o}): chmod 600");
        return Err(KeysError::Content { path: path.into(), why });
    }
    read(path)
}

/// Whole or not at all, and on disk.
fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), KeysError> {
    let new = path.with_extension("new");
    let write = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|source| KeysError::File { path: path.into(), source })
}

const TOKEN_DIGITS_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn keys_are_made_once_and_secret() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join("api");
        let open = || Keys::open(&at, &["pool.example".into()], &["10.1.2.3".parse().unwrap()]);
        let token = open().unwrap().token;
        assert_eq!(token.len(), 64);
        assert_eq!(
            [mode(&at), mode(&at.join("key.pem")), mode(&at.join("token"))],
            [0o700, 0o600, 0o600]
        );
        let certificate = fs::read(at.join("certificate.pem")).unwrap();
        assert_eq!(open().unwrap().token, token);
        assert_eq!(fs::read(at.join("certificate.pem")).unwrap(), certificate);
        fs::remove_file(at.join("token")).unwrap();
        assert_ne!(open().unwrap().token, token);
    }

    #[test]
    fn what_others_can_read_is_no_secret_and_rubbish_no_key() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path();
        let open = || Keys::open(at, &[], &[]).map(|_| ()).map_err(|error| error.to_string());
        open().unwrap();
        for name in ["token", "key.pem"] {
            fs::set_permissions(at.join(name), fs::Permissions::from_mode(0o640)).unwrap();
            let error = open().unwrap_err();
            assert!(error.contains(name) && error.contains("chmod 600"), "{error}");
            fs::set_permissions(at.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        for (name, content) in [("token", "short"), ("certificate.pem", "none"), ("key.pem", "")] {
            let before = fs::read(at.join(name)).unwrap();
            fs::write(at.join(name), content).unwrap();
            assert!(open().unwrap_err().contains(name));
            fs::write(at.join(name), before).unwrap();
        }
        open().unwrap();
    }
}
