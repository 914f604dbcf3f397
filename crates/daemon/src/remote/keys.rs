//! Keys that protect the API over TCP: a certificate, its key, and the first token.
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
use rcgen::{CertificateParams, KeyPair};

use super::certificate::Certificate;
use super::secret::{make_directory, new_token, replace};

/// Keys that a server needs.
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
        make_once(&certificate, &key, names_of(names, addresses))?;
        if !token.exists() {
            replace(&token, new_token().map_err(KeysError::file(&token))?.as_bytes(), 0o600)?;
        }
        read_token(&token)?;
        Ok(Keys { certificate: Certificate::open(&certificate, &key)? })
    }
}

/// The files of the certificate that this machine shows to its peers, and of its key, in
/// `directory`. They are made if they are not both there.
///
/// # Errors
/// They cannot be made.
pub fn client_files(directory: &Path) -> Result<[PathBuf; 2], KeysError> {
    make_directory(directory)?;
    let files = client_paths(directory);
    let [certificate, key] = &files;
    // Without its key it is of no use, and nobody else puts one there.
    if certificate.exists() && !key.exists() {
        std::fs::remove_file(certificate).map_err(KeysError::file(certificate))?;
    }
    make_once(certificate, key, names_of(&[], &[]))?;
    Ok(files)
}

/// Where [`client_files`] are.
pub fn client_paths(directory: &Path) -> [PathBuf; 2] {
    ["client.pem", "client-key.pem"].map(|name| directory.join(name))
}

/// Makes a key, then a certificate of it for these names. A start that ended between the two leaves
/// the key alone: the next one makes the certificate of it. A certificate that is there stays.
fn make_once(certificate: &Path, key: &Path, names: Vec<String>) -> Result<(), KeysError> {
    if certificate.exists() {
        return Ok(());
    }
    if !key.exists() {
        let made = KeyPair::generate().map_err(wrong(key))?;
        replace(key, made.serialize_pem().as_bytes(), 0o600)?;
    }
    let secret = std::fs::read_to_string(key).map_err(KeysError::file(key))?;
    let secret = KeyPair::from_pem(&secret).map_err(wrong(key))?;
    let made = CertificateParams::new(names).and_then(|names| names.self_signed(&secret));
    let made = made.map_err(wrong(certificate))?;
    replace(certificate, made.pem().as_bytes(), 0o644)
}

fn wrong(path: &Path) -> impl FnOnce(rcgen::Error) -> KeysError {
    let content = KeysError::content(path);
    |error| content(error.to_string())
}

/// Returns the names and addresses for which a certificate of this machine is.
fn names_of(names: &[String], addresses: &[IpAddr]) -> Vec<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut all: Vec<String> = vec!["localhost".into(), "127.0.0.1".into(), "::1".into()];
    all.extend((!host.is_empty()).then_some(host));
    all.extend(names.iter().cloned());
    all.extend(addresses.iter().filter(|at| !at.is_unspecified()).map(IpAddr::to_string));
    all.sort();
    all.dedup();
    all
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

    /// A start may end between the files.
    #[test]
    fn half_a_pair_is_made_whole() {
        let home = tempfile::tempdir().unwrap();
        let [certificate, key] = client_files(home.path()).unwrap();
        let is_whole = || {
            client_files(home.path()).unwrap();
            Identity::read(&certificate, &key).unwrap();
            assert_eq!([mode(&certificate), mode(&key)], [0o644, 0o600]);
            (read_fingerprint(&certificate).unwrap(), fs::read(&key).unwrap())
        };
        let first = is_whole();
        fs::remove_file(&certificate).unwrap();
        // The key that was made stays.
        assert_eq!(is_whole().1, first.1);
        let second = is_whole();
        fs::remove_file(&key).unwrap();
        let third = is_whole();
        assert!(second.0 != third.0 && second.1 != third.1);
        // One that is none is not written over.
        fs::remove_file(&certificate).unwrap();
        fs::write(&key, "none").unwrap();
        let error = client_files(home.path()).unwrap_err().to_string();
        assert!(error.contains("client-key.pem: "), "{error}");
        // That of the server as well: a certificate of an authority stays, whatever is with it.
        let open = || Keys::open(home.path(), &[], &[]);
        open().unwrap();
        let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| home.path().join(name));
        fs::remove_file(&certificate).unwrap();
        open().unwrap();
        let stays = fs::read(&certificate).unwrap();
        fs::remove_file(&key).unwrap();
        assert!(open().unwrap_err().to_string().contains("key.pem"));
        assert_eq!(fs::read(&certificate).unwrap(), stays);
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
