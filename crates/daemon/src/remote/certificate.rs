//! The certificate that the daemon shows: each connection gets the one that the files hold.
//!
//! Invariant: files that make no sense together (one of the two is replaced already, the other not
//! yet) change nothing. The certificate from before goes on, and the log says why.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aquifer_api::keys::{KeysError, certificates_of, read, read_secret};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::NoServerSessionStorage;

use super::proof::AnyCertificate;
use super::secret::Hash;

/// The daemon's certificate and key.
#[derive(Debug)]
pub(super) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    shown: Mutex<Shown>,
}

#[derive(Debug)]
struct Shown {
    tls: Tls,
    /// Hash of the content of the files, or of what was wrong with them, when they were looked at
    /// last.
    seen: Hash,
    /// Why they could not be used then.
    problem: Option<String>,
}

/// Of each connection: as it is, and for when clients are asked for certificates.
#[derive(Debug, Clone)]
struct Tls {
    plain: Arc<ServerConfig>,
    asking: Arc<ServerConfig>,
}

/// The text of both files, to be compared.
type Texts = (String, String);

impl Certificate {
    /// The certificate in `chain`, with its key.
    ///
    /// # Errors
    /// What cannot be read or makes no sense, a key that others can read.
    pub fn open(chain: &Path, key: &Path) -> Result<Certificate, KeysError> {
        let texts = texts(chain, key)?;
        let shown =
            Shown { tls: server_config(chain, key, &texts)?, seen: hash(&texts), problem: None };
        Ok(Certificate { chain: chain.into(), key: key.into(), shown: Mutex::new(shown) })
    }

    /// Returns the configuration with the certificate that the next connection is shown, and which
    /// asks for the client's certificate or not. Both files are read for each: that costs little
    /// beside a handshake, and notices every change.
    pub fn current(&self, asks: bool) -> Arc<ServerConfig> {
        let Tls { plain, asking } = self.look_again();
        if asks { asking } else { plain }
    }

    /// Why the files cannot be used as they are now. Connections are shown the certificate from
    /// before.
    pub fn problem(&self) -> Option<String> {
        self.look_again();
        self.shown.lock().problem.clone()
    }

    fn look_again(&self) -> Tls {
        let mut shown = self.shown.lock();
        let read = texts(&self.chain, &self.key);
        let seen = match &read {
            Ok(texts) => hash(texts),
            Err(error) => Hash::of(error.to_string().as_bytes()),
        };
        if seen == shown.seen {
            return shown.tls.clone();
        }
        shown.seen = seen;
        match read.and_then(|texts| server_config(&self.chain, &self.key, &texts)) {
            Ok(tls) => {
                (shown.tls, shown.problem) = (tls, None);
                tracing::info!(class = "api.certificate", "the API shows its new certificate");
            }
            Err(error) => {
                tracing::warn!(
                    class = "api.certificate", %error,
                    "the API goes on with the certificate from before"
                );
                shown.problem = Some(error.to_string());
            }
        }
        shown.tls.clone()
    }
}

fn texts(chain: &Path, key: &Path) -> Result<Texts, KeysError> {
    Ok((read(chain)?, read_secret(key)?))
}

fn hash((chain, key): &Texts) -> Hash {
    Hash::of([chain.as_bytes(), b"\0", key.as_bytes()].concat().as_slice())
}

fn server_config(chain: &Path, key: &Path, texts: &Texts) -> Result<Tls, KeysError> {
    let wrong = |why: String| KeysError::content(key)(why);
    let certificates = certificates_of(chain, &texts.0)?;
    let secret = PrivateKeyDer::from_pem_slice(texts.1.as_bytes());
    let secret = secret.map_err(|error| wrong(error.to_string()))?;
    let builder = ServerConfig::builder();
    let config = builder.with_no_client_auth().with_single_cert(certificates, secret);
    let mut plain = config.map_err(|error| wrong(error.to_string()))?;
    plain.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Each connection proves the key of its client's certificate itself.
    plain.send_tls13_tickets = 0;
    plain.session_storage = Arc::new(NoServerSessionStorage {});
    let builder = ServerConfig::builder().with_client_cert_verifier(AnyCertificate::new());
    let mut asking = builder.with_cert_resolver(Arc::clone(&plain.cert_resolver));
    asking.alpn_protocols.clone_from(&plain.alpn_protocols);
    asking.send_tls13_tickets = plain.send_tls13_tickets;
    asking.session_storage = Arc::clone(&plain.session_storage);
    Ok(Tls { plain: Arc::new(plain), asking: Arc::new(asking) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::keys::Keys;
    use super::*;

    #[test]
    fn a_new_certificate_is_shown_once_its_key_is_there_too() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let keys = Keys::open(home.path(), &[], &[]).unwrap();
        Keys::open(other.path(), &[], &[]).unwrap();
        let put = |name: &str| fs::copy(other.path().join(name), home.path().join(name)).unwrap();
        let certificate = keys.certificate;
        let first = certificate.current(false);
        assert!(Arc::ptr_eq(&first, &certificate.current(false)));
        // Half of it: the key is another's.
        put("certificate.pem");
        assert!(Arc::ptr_eq(&first, &certificate.current(false)));
        put("key.pem");
        let second = certificate.current(false);
        assert!(!Arc::ptr_eq(&first, &second));
        // Rubbish, nothing, and a key that others can read.
        let key = home.path().join("key.pem");
        let whole = fs::read(&key).unwrap();
        fs::write(&key, "rubbish").unwrap();
        assert!(Arc::ptr_eq(&second, &certificate.current(false)));
        fs::remove_file(&key).unwrap();
        assert!(Arc::ptr_eq(&second, &certificate.current(false)));
        fs::write(&key, whole).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Arc::ptr_eq(&second, &certificate.current(false)));
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!Arc::ptr_eq(&second, &certificate.current(false)), "it is usable again");
    }
}
