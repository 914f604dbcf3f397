//! RPC-with-TLS for clients without it (RFC 9289): a relay that accepts connections in the clear
//! and carries them over TLS, and an authority that makes certificates for both sides.

use std::fs;
use std::io::{self, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use aquifer_client::starttls::{ANSWER, PROBE};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, RevokedCertParams,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An authority, with its certificates in a directory.
#[derive(Debug)]
pub struct Authority {
    home: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
    serials: AtomicU64,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Certified {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key, mode 0600.
    pub key: PathBuf,
    /// Its serial number: a list of revoked ones names it by that.
    pub serial: u64,
}

impl Authority {
    /// A new authority, whose own certificate is `NAME.pem` in `home`.
    ///
    /// # Errors
    /// A file that cannot be made or written.
    pub fn new(home: &Path, name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().map_err(wrong)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(wrong)?;
        fs::write(home.join(format!("{name}.pem")), issuer.pem())?;
        Ok(Authority { home: home.into(), issuer, serials: AtomicU64::new(1) })
    }

    /// A certificate for these names of a host, server or client, as `FILE.pem` and `FILE.key`.
    ///
    /// # Errors
    /// A file that cannot be made or written.
    pub fn certify(&self, file: &str, names: &[&str]) -> Result<Certified> {
        self.certify_until(file, names, None)
    }

    /// As [`Authority::certify`], valid until that time.
    ///
    /// # Errors
    /// As [`Authority::certify`].
    pub fn certify_until(
        &self,
        file: &str,
        names: &[&str],
        until: Option<SystemTime>,
    ) -> Result<Certified> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(wrong)?;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        if let Some(until) = until {
            let since_1970 = until.duration_since(SystemTime::UNIX_EPOCH).map_err(wrong)?;
            params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970;
        }
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(serial.into());
        let key = KeyPair::generate().map_err(wrong)?;
        let made = params.signed_by(&key, &self.issuer).map_err(wrong)?;
        let [certificate, secret] =
            ["pem", "key"].map(|end| self.home.join(format!("{file}.{end}")));
        fs::write(&certificate, made.pem())?;
        fs::write(&secret, key.serialize_pem())?;
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
        Ok(Certified { certificate, key: secret, serial })
    }

    /// Its list of these revoked certificates, as `FILE.crl`.
    ///
    /// # Errors
    /// A file that cannot be made or written.
    pub fn revoke(&self, file: &str, certificates: &[&Certified]) -> Result<PathBuf> {
        let [begin, end] = [2000, 4000].map(|year| rcgen::date_time_ymd(year, 1, 1));
        let revoked = certificates.iter().map(|certificate| RevokedCertParams {
            serial_number: certificate.serial.into(),
            revocation_time: begin,
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: begin,
            next_update: end,
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).map_err(wrong)?;
        let path = self.home.join(format!("{file}.crl"));
        fs::write(&path, list.pem().map_err(wrong)?)?;
        Ok(path)
    }
}

/// The TLS identity of a client.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The authorities that it trusts, in PEM.
    pub authority: PathBuf,
    /// The server's name, which its certificate must be valid for.
    pub server: String,
    /// The certificate that it shows, if any.
    pub own: Option<Certified>,
}

impl Shown {
    /// A client configuration of rustls with these values.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn config(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_file_iter(&self.authority).map_err(wrong)? {
            roots.add(authority.map_err(wrong)?).map_err(wrong)?;
        }
        let builder = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
        let builder = builder.with_root_certificates(roots);
        let mut config = match &self.own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain: std::result::Result<Vec<_>, _> =
                    CertificateDer::pem_file_iter(&own.certificate).map_err(wrong)?.collect();
                let key = PrivateKeyDer::from_pem_file(&own.key).map_err(wrong)?;
                builder.with_client_auth_cert(chain.map_err(wrong)?, key).map_err(wrong)?
            }
        };
        config.alpn_protocols = vec![b"sunrpc".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Accepts connections in the clear and carries each over TLS.
#[derive(Debug)]
pub struct Relay {
    /// The address that it listens on.
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// A relay to `server`, in this thread's network namespace. It calls from ports below 1024 if
    /// it may.
    ///
    /// # Errors
    /// A file that cannot be read, or an address that it cannot listen on.
    pub fn start(server: SocketAddr, shown: &Shown) -> Result<Self> {
        let connector = TlsConnector::from(shown.config()?);
        let name = ServerName::try_from(shown.server.clone()).map_err(wrong)?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                let accept = async {
                    while let Ok((near, _)) = listener.accept().await {
                        let (connector, name) = (connector.clone(), name.clone());
                        tokio::spawn(async move {
                            // The client notices a failure: its connection ends.
                            if let Ok(far) = connect(server, &connector, name).await {
                                carry(near, far).await;
                            }
                        });
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Relay { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn carry(mut near: TcpStream, mut far: TlsStream<TcpStream>) {
    // When it ends, so does the client's connection.
    let _ = copy_bidirectional(&mut near, &mut far).await;
}

/// A connection to `server` over TLS.
///
/// # Errors
/// It is refused, in either step.
pub async fn connect(
    server: SocketAddr,
    connector: &TlsConnector,
    name: ServerName<'static>,
) -> Result<TlsStream<TcpStream>> {
    let asked = async {
        let mut stream = dial(server).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&PROBE).await?;
        let mut answer = [0; ANSWER.len()];
        stream.read_exact(&mut answer).await?;
        if answer != ANSWER {
            return Err(wrong("the server does not say STARTTLS"));
        }
        connector.connect(name, stream).await
    };
    timeout(PATIENCE, asked).await.map_err(|_| wrong("no TLS within 20 s"))?
}

/// Connects from a port that only the superuser gets, if one is free.
async fn dial(server: SocketAddr) -> Result<TcpStream> {
    for port in (600..1024).rev() {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        if socket.bind((Ipv4Addr::UNSPECIFIED, port).into()).is_ok()
            && let Ok(stream) = socket.connect(server).await
        {
            return Ok(stream);
        }
    }
    TcpStream::connect(server).await
}

fn wrong(error: impl ToString) -> io::Error {
    io::Error::other(error.to_string())
}

const PATIENCE: Duration = Duration::from_secs(20);
