//! Keys for calls over TLS (RPC-with-TLS, RFC 9289): our certificate, its key, the authorities of
//! our clients, and the certificates that these took back.
//!
//! Invariants:
//! - A key that others can read is refused, not used.
//! - A client's certificate is good as long as it would be accepted now: connections are judged
//!   again every [`KEYS_LOOK`](crate::limits::KEYS_LOOK), by the files as they are then.
//! - Files may change at any time. Valid files are used for new connections from then on. Invalid
//!   ones change nothing, and are a [problem](Keys::problem) until they are valid. Without any
//!   valid ones no call comes over TLS: clear text goes on where exports take it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aquifer_rpc::tls::ALPN;
use parking_lot::{Mutex, RwLock};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::watch;

/// Where the keys are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFiles {
    /// The server's certificate, and the intermediate ones up to its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of client certificates. Without any, no client is asked for one.
    pub clients: Option<PathBuf>,
    /// Revocations by these authorities: their lists, one of each that is in a client's chain.
    pub revoked: Option<PathBuf>,
}

/// Keys that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Its content is invalid.
    #[error("{path}: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// Reason why it is invalid.
        why: String,
    },
}

/// The keys in use.
#[derive(Debug)]
pub(crate) struct Keys {
    files: KeyFiles,
    /// `None`: there were no valid ones yet.
    loaded: RwLock<Option<Loaded>>,
    /// The files as they were last read.
    read: Mutex<Read>,
    /// Changes when connections are to be judged again.
    judgement: watch::Sender<()>,
}

/// Valid files.
#[derive(Clone, Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// Judges certificates of clients, if they are asked for any.
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

#[derive(Debug, Default)]
struct Read {
    seen: Vec<Seen>,
    /// Why they cannot be used.
    problem: Option<String>,
}

/// Inode, size and times of a file: they change if it was replaced or written, or its mode was.
type Seen = Option<(u64, u64, [(i64, i64); 2])>;

impl Keys {
    pub fn open(files: KeyFiles) -> Keys {
        let judgement = watch::Sender::new(());
        let keys = Keys { files, loaded: RwLock::default(), read: Mutex::default(), judgement };
        keys.look_again();
        keys
    }

    /// For a new connection, if there are any.
    pub fn config(&self) -> Option<Arc<ServerConfig>> {
        self.loaded.read().as_ref().map(|loaded| Arc::clone(&loaded.config))
    }

    /// Tells when connections are to be judged again.
    pub fn judgements(&self) -> watch::Receiver<()> {
        self.judgement.subscribe()
    }

    /// Has all connections judged again.
    pub fn judge_all(&self) {
        self.judgement.send_replace(());
    }

    /// Whether a client that shows this chain would be let in now.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), rustls::Error> {
        let Some((own, others)) = chain.split_first() else { return Ok(()) };
        let clients = self.loaded.read().as_ref().and_then(|loaded| loaded.clients.clone());
        match clients {
            Some(clients) => clients.verify_client_cert(own, others, now).map(drop),
            None => Ok(()),
        }
    }

    /// Why the files cannot be used, as they are now.
    pub fn problem(&self) -> Option<String> {
        self.read.lock().problem.clone()
    }

    /// Loads the files again, if they have changed.
    pub fn look_again(&self) {
        // Before they are read: a file that changes meanwhile is read again.
        let seen = self.files.seen();
        let mut before = self.read.lock();
        if before.seen == seen {
            return;
        }
        let problem = match self.files.read() {
            Ok(loaded) => {
                if self.loaded.write().replace(loaded).is_some() {
                    tracing::info!(class = "tls.keys", "certificates for NFS were read again");
                }
                None
            }
            Err(error) => {
                tracing::error!(
                    class = "tls.keys", %error,
                    "the certificates for NFS cannot be used; those from before stay, if there are \
                     any"
                );
                Some(error.to_string())
            }
        };
        *before = Read { seen, problem };
    }
}

impl KeyFiles {
    /// Whether they can be used now: for a check before the start.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn check(&self) -> Result<(), TlsError> {
        self.read().map(drop)
    }

    fn seen(&self) -> Vec<Seen> {
        let (clients, revoked) = (self.clients.as_ref(), self.revoked.as_ref());
        let all = [Some(&self.certificate), Some(&self.key), clients, revoked];
        let seen = |path: &PathBuf| {
            let meta = fs::metadata(path).ok()?;
            let times = [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())];
            Some((meta.ino(), meta.len(), times))
        };
        all.into_iter().flatten().map(seen).collect()
    }

    fn read(&self) -> Result<Loaded, TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = read_secret(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| content(&self.key, &e))?;
        let builder = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
        let clients = self.clients.as_ref().map(|path| self.verifier(path)).transpose()?;
        let builder = match clients.clone() {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| content(&self.key, &error))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // There is no session resumption: a client shows its certificate on each connection. And
        // the first record after the handshake must not be a ticket: kernels do not expect any.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Loaded { config: Arc::new(config), clients })
    }

    /// Judges certificates of clients by their authorities, and by what these have revoked.
    fn verifier(&self, authorities: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(authorities)? {
            roots.add(authority).map_err(|error| content(authorities, &error))?;
        }
        // Each export decides what a client without a certificate may do.
        let mut verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated();
        if let Some(path) = &self.revoked {
            let lists: Result<Vec<_>, _> =
                CertificateRevocationListDer::pem_slice_iter(&read(path)?).collect();
            let lists = lists.map_err(|error| content(path, &error))?;
            if lists.is_empty() {
                return Err(content(path, &"holds no revocation list in PEM"));
            }
            // A certificate whose authority has no list here is refused: nobody knows of it.
            verifier = verifier.with_crls(lists);
        }
        let path = self.revoked.as_deref().unwrap_or(authorities);
        verifier.build().map_err(|error| content(path, &error))
    }
}

fn content(path: &Path, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Content { path: path.into(), why: error.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError::Content { path: path.into(), why };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("holds no certificate in PEM".into())) } else { Ok(found) }
}

fn read_secret(path: &Path) -> Result<Vec<u8>, TlsError> {
    let meta = fs::metadata(path);
    let meta = meta.map_err(|source| TlsError::File { path: path.into(), source })?;
    if meta.mode() & OTHERS != 0 {
        let mode = meta.mode() & 0o777;
        let why = format!("is secret, and others may use it (mode {mode:o}): chmod o-rwx");
        return Err(TlsError::Content { path: path.into(), why });
    }
    read(path)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::File { path: path.into(), source })
}

/// A group may read a key: Debian has one for that, ssl-cert.
const OTHERS: u32 = 0o027;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn files(home: &Path) -> KeyFiles {
        let made = rcgen::generate_simple_self_signed(["pool.example".to_owned()]).unwrap();
        let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| home.join(name));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        KeyFiles { clients: Some(certificate.clone()), certificate, key, revoked: None }
    }

    #[test]
    fn files_that_change_are_read_again() {
        let home = tempfile::tempdir().unwrap();
        let files = files(home.path());
        let keys = Keys::open(files.clone());
        let config = || keys.config().unwrap();
        let first = config();
        keys.look_again();
        assert!(Arc::ptr_eq(&first, &config()), "nothing has changed");
        fs::write(&files.certificate, "half of a certif").unwrap();
        keys.look_again();
        assert!(Arc::ptr_eq(&first, &config()), "what cannot be used changes nothing");
        assert!(keys.problem().unwrap().contains("certificate.pem"));
        self::files(home.path());
        keys.look_again();
        assert!(!Arc::ptr_eq(&first, &config()));
        assert_eq!(keys.problem(), None);
    }

    #[test]
    fn files_that_come_late_are_used_from_then_on() {
        let home = tempfile::tempdir().unwrap();
        let files = files(home.path());
        fs::rename(&files.key, home.path().join("away")).unwrap();
        let keys = Keys::open(files.clone());
        assert!(keys.config().is_none() && keys.problem().unwrap().contains("key.pem"));
        fs::rename(home.path().join("away"), &files.key).unwrap();
        // Only its mode is wrong: no byte of it changes when that is mended.
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o644)).unwrap();
        keys.look_again();
        assert!(keys.config().is_none() && keys.problem().unwrap().contains("chmod"));
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
        keys.look_again();
        assert!(keys.config().is_some() && keys.problem().is_none());
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_name() {
        let home = tempfile::tempdir().unwrap();
        let good = files(home.path());
        let why = |files: KeyFiles| files.check().unwrap_err().to_string();
        let missing = home.path().join("missing");
        assert!(why(KeyFiles { key: missing.clone(), ..good.clone() }).contains("missing"));
        assert!(
            why(KeyFiles { clients: Some(missing.clone()), ..good.clone() }).contains("missing")
        );
        assert!(why(KeyFiles { revoked: Some(missing), ..good.clone() }).contains("missing"));
        let no_list = KeyFiles { revoked: Some(good.certificate.clone()), ..good.clone() };
        assert!(why(no_list).contains("no revocation list"));
        let key = good.key.clone();
        let swapped = KeyFiles { certificate: key.clone(), ..good.clone() };
        assert!(why(swapped).contains("no certificate"));
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(why(good).contains("chmod"));
    }
}
