//! What the API over TCP is protected by: a certificate, its key, and the first token.
//!
//! They are files in a directory of their own, made at the first start:
//!
//! ```text
//! certificate.pem   0644  what clients must know to know the server
//! key.pem           0600
//! token             0600  64 hexadecimal digits, what the server must hear to know a client
//! client.pem        0644  what this machine shows to its peers, once it has any
//! client-key.pem    0600
//! ```
//! The client's certificate is one of its own. Peers bind tokens to it, so it must stay when an
//! authority renews that of the server.
//!
//! Beside them `tokens.json` may lie, with further tokens (see [`tokens`](super::tokens)). To use a
//! certificate of another authority, put it there. All files hold from the moment they change.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use aquifer_api::keys::{KeysError, read_token};

use super::certificate::Certificate;
use super::secret::{make_directory, new_token, replace};

/// What a server needs.
#[derive(Debug)]
pub struct Keys {
    pub(super) certificate: Certificate,
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
        make_directory(directory)?;
        let [certificate, key, token] =
            ["certificate.pem", "key.pem", FIRST_TOKEN].map(|name| directory.join(name));
        make_once(&certificate, &key, || self_signed(names, addresses))?;
        if !token.exists() {
            replace(&token, new_token().map_err(KeysError::file(&token))?.as_bytes(), 0o600)?;
        }
        read_token(&token)?;
        Ok(Keys { certificate: Certificate::open(&certificate, &key)? })
    }
}

/// The files of the certificate that this machine shows to its peers, and of its key, in
/// `directory`. They are made if neither is there.
///
/// # Errors
/// They cannot be made.
pub fn client_files(directory: &Path) -> Result<[PathBuf; 2], KeysError> {
    make_directory(directory)?;
    let files = ["client.pem", "client-key.pem"].map(|name| directory.join(name));
    let [certificate, key] = &files;
    make_once(certificate, key, || self_signed(&[], &[]))?;
    Ok(files)
}

fn make_once(
    certificate: &Path,
    key: &Path,
    make: impl FnOnce() -> Result<(String, String), String>,
) -> Result<(), KeysError> {
    if certificate.exists() || key.exists() {
        return Ok(());
    }
    let (chain, secret) = make().map_err(KeysError::content(certificate))?;
    replace(key, secret.as_bytes(), 0o600)?;
    replace(certificate, chain.as_bytes(), 0o644)
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

/// The file of the token that was there before there were others, and its name: an administrator's.
pub(super) const FIRST_TOKEN: &str = "token";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use aquifer_api::keys::{Identity, read_fingerprint};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn keys_are_made_once_and_secret() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join("api");
        let open = || {
            Keys::open(&at, &["pool.example".into()], &["10.1.2.3".parse().unwrap()]).unwrap();
            read_token(&at.join("token")).unwrap()
        };
        let token = open();
        assert_eq!(token.len(), 64);
        assert_eq!(
            [mode(&at), mode(&at.join("key.pem")), mode(&at.join("token"))],
            [0o700, 0o600, 0o600]
        );
        let certificate = fs::read(at.join("certificate.pem")).unwrap();
        assert_eq!(open(), token);
        assert_eq!(fs::read(at.join("certificate.pem")).unwrap(), certificate);
        fs::remove_file(at.join("token")).unwrap();
        assert_ne!(open(), token);
    }

    /// Peers bind tokens to it: a restart must not change it, nor a renewed certificate of the API.
    #[test]
    fn the_clients_certificate_is_made_once_and_is_of_use() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join("api");
        let [certificate, key] = client_files(&at).unwrap();
        assert_eq!([mode(&at), mode(&key)], [0o700, 0o600]);
        let first = read_fingerprint(&certificate).unwrap();
        Identity::read(&certificate, &key).unwrap();
        Keys::open(&at, &[], &[]).unwrap();
        client_files(&at).unwrap();
        assert_eq!(read_fingerprint(&certificate).unwrap(), first);
        assert_ne!(read_fingerprint(&at.join("certificate.pem")).unwrap(), first);
        // As `openssl x509 -fingerprint -sha256` does.
        let der = aquifer_api::keys::read_certificates(&certificate).unwrap();
        assert_eq!(super::super::secret::Hash::of(&der[0]).text(), first);
        let said = |read: Result<Identity, KeysError>| read.unwrap_err().to_string();
        let error = said(Identity::read(&certificate, &at.join("key.pem")));
        assert!(
            error.contains("key.pem: is no key for") && error.contains("client.pem"),
            "{error}"
        );
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(said(Identity::read(&certificate, &key)).contains("chmod 600"));
        let pem = |bytes: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{bytes}\n-----END CERTIFICATE-----\n")
        };
        for wrong in ["", "none", &pem("AAAA"), &pem("")] {
            fs::write(&certificate, wrong).unwrap();
            let error = read_fingerprint(&certificate).unwrap_err().to_string();
            assert!(error.contains("client.pem: holds no certificate"), "{error}");
        }
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
