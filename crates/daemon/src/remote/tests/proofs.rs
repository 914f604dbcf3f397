//! Tokens that are bound to certificates of clients: no connection without the key.

use aquifer_api::BindToken;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, date_time_ymd};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::super::secret::Hash;
use super::*;

/// A client that shows this, whatever it is.
#[derive(Debug)]
struct Shows {
    own: Arc<CertifiedKey>,
    /// How often a server asked.
    asked: AtomicUsize,
}

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(&self.own))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A certificate and its key.
struct Own {
    certificate: Vec<u8>,
    key: KeyPair,
}

impl Own {
    fn new() -> Own {
        Own::of(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap(), |_| {})
    }

    fn of(key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Own {
        let mut params = CertificateParams::new(vec!["client".to_string()]).unwrap();
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap().der().to_vec();
        Own { certificate, key }
    }

    fn fingerprint(&self) -> String {
        Hash::of(&self.certificate).text()
    }

    fn shows(&self) -> Arc<Shows> {
        shows(vec![self.certificate.clone()], &self.key)
    }
}

fn shows(chain: Vec<Vec<u8>>, key: &KeyPair) -> Arc<Shows> {
    let chain = chain.into_iter().map(CertificateDer::from).collect();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let own = Arc::new(CertifiedKey::new(chain, any_supported_type(&key).unwrap()));
    Arc::new(Shows { own, asked: AtomicUsize::new(0) })
}

impl Served {
    fn bound(&self, name: &str, certificates: &[&Own]) -> String {
        let certificates = certificates.iter().map(|own| own.fingerprint()).collect();
        let role = Role::Operator;
        let (name, datasets) = (name.into(), Vec::new());
        let request = CreateToken { name, role, expires_s: None, certificates, datasets };
        self.tokens.create(&request).unwrap().token
    }

    fn showing(&self, shows: &Arc<Shows>) -> TlsConnector {
        let resolver: Arc<dyn ResolvesClientCert> = shows.clone();
        let tls = ClientConfig::builder().with_root_certificates(roots(self.keys.path()));
        TlsConnector::from(Arc::new(tls.with_client_cert_resolver(resolver)))
    }

    /// Returns the answer to a caller who shows this certificate; nothing, if TLS ends before.
    async fn ask_showing(&self, shows: &Arc<Shows>, token: &str) -> String {
        self.ask_by(&self.showing(shows), at(1), token).await.unwrap_or_default()
    }
}

const NONE_SHOWN: &str = "counts only with a certificate of its client, and none was shown";
const OTHER_SHOWN: &str = "bound to another certificate than the one that was shown";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_token_counts_only_with_its_certificate_and_the_key_of_it() {
    let served = serve_here();
    let (own, other) = (Own::new(), Own::new());
    let token = served.bound("store1", &[&own]);
    let answer = served.ask_showing(&own.shows(), &token).await;
    assert!(answer.ends_with("token store1 from 127.0.1.1 is here"), "{answer}");

    let begun = Instant::now();
    let answer = served.ask(at(1), &token).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains(NONE_SHOWN), "{answer}");
    assert!(begun.elapsed() >= SHORT.wrong, "sooner than a wrong token");
    assert!(answer.contains("connection: close"), "the next connection may be asked: {answer}");
    let begun = Instant::now();
    let answer = served.ask_showing(&other.shows(), &token).await;
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains(OTHER_SHOWN), "{answer}");
    assert!(begun.elapsed() >= SHORT.wrong, "sooner than a wrong token");
    // Everybody can show the certificate. Its key has not signed.
    let stolen = shows(vec![own.certificate.clone()], &other.key);
    assert_eq!(served.ask_showing(&stolen, &token).await, "");
    // The certificate that counts is the client's, and none behind it.
    let behind = shows(vec![other.certificate.clone(), own.certificate.clone()], &other.key);
    assert!(served.ask_showing(&behind, &token).await.contains(OTHER_SHOWN));
    // To guess says nothing of certificates.
    let guess = served.ask_showing(&own.shows(), &"0".repeat(64)).await;
    assert!(guess.contains("not the token"), "{guess}");

    // Tokens without one count as before, whatever is shown.
    let free = served.bound("free", &[]);
    assert!(served.ask(at(1), &free).await.unwrap().contains("is here"));
    assert!(served.ask_showing(&other.shows(), &free).await.contains("is here"));
    assert!(served.ask(at(1), &served.token).await.unwrap().contains("is here"));
}

/// Browsers with certificates ask people which to show: only if it is for something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_asked_while_a_token_is_bound_and_bound_again_it_counts() {
    let served = serve_here();
    let (old, new) = (Own::new(), Own::new());
    let (shows_old, shows_new) = (old.shows(), new.shows());
    let token = served.bound("store1", &[]);
    let asked = || shows_old.asked.load(Ordering::Relaxed);
    assert!(served.ask_showing(&shows_old, &token).await.contains("is here"));
    assert_eq!(asked(), 0);
    let bind = |all: &[&Own]| {
        let certificates = all.iter().map(|own| own.fingerprint()).collect();
        served.tokens.bind("store1", &BindToken { certificates }).unwrap()
    };
    // A connection from before shows none: it ends, and the next one counts.
    let mut early = served.showing(&shows_old);
    let mut line = served.tls_by(&early, at(1)).await.unwrap();
    bind(&[&old]);
    let get =
        format!("GET /daemon HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
    line.write_all(get.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = line.read_to_end(&mut answer).await;
    assert!(String::from_utf8_lossy(&answer).contains(NONE_SHOWN));
    assert!(served.ask_showing(&shows_old, &token).await.contains("is here"));
    assert_eq!(asked(), 1);
    // Both, while it is renewed.
    assert_eq!(bind(&[&old, &new]).certificates, [old.fingerprint(), new.fingerprint()]);
    for each in [&shows_old, &shows_new] {
        assert!(served.ask_showing(each, &token).await.contains("is here"));
    }
    bind(&[&new]);
    assert!(served.ask_showing(&shows_old, &token).await.contains(OTHER_SHOWN));
    assert!(served.ask_showing(&shows_new, &token).await.contains("is here"));
    // No session is resumed: each connection proves the key itself.
    early = served.showing(&shows_new);
    for _ in 0..2 {
        assert!(served.ask_by(&early, at(1), &token).await.unwrap().contains("is here"));
        let line = served.tls_by(&early, at(1)).await.unwrap();
        assert_eq!(line.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
    // Bound to none.
    bind(&[]);
    let before = asked();
    assert!(served.ask_showing(&shows_old, &token).await.contains("is here"));
    assert_eq!(asked(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_not_believed_but_known() {
    let served = serve_here();
    // Its dates, and what kind of key it has, are its maker's affair.
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let expired = Own::of(key, |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let token = served.bound("old", &[&expired]);
    assert!(served.ask_showing(&expired.shows(), &token).await.contains("is here"));
    // The same names, another key.
    let alike = Own::of(KeyPair::generate_for(&PKCS_ED25519).unwrap(), |_| {});
    assert!(served.ask_showing(&alike.shows(), &token).await.contains(OTHER_SHOWN));
}

/// Whatever a stranger shows, the next client is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_certificates_are_refused() {
    let served = serve_here();
    let own = Own::new();
    let token = served.bound("store1", &[&own]);
    let whole = &own.certificate;
    let cut = |at: usize| vec![whole[..at].to_vec()];
    let mut hostile = vec![vec![Vec::new()], vec![vec![0; 10_000]], vec![b"garbage".to_vec()]];
    hostile.extend((1..whole.len()).step_by(37).map(cut));
    // Lengths that lie, and more than it holds.
    hostile.push(vec![[&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff][..], &whole[4..]].concat()]);
    hostile.push(vec![[&whole[..], &[0; 9]].concat()]);
    // Chains that are too long, in one and in many.
    hostile.push(vec![whole.clone(), vec![0; 17 << 10]]);
    hostile.push([vec![whole.clone()], vec![vec![1; 300]; 60]].concat());
    hostile.push(vec![vec![0; 60_000]]);
    for chain in hostile {
        let told = format!("{:?}", chain.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!(served.ask_showing(&shows(chain, &own.key), &token).await, "", "{told}");
    }
    // A key of another kind than the certificate's.
    let wrong = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    assert_eq!(served.ask_showing(&shows(vec![whole.clone()], &wrong), &token).await, "");
    // A chain within the limit is none of our business.
    let chain = shows(vec![whole.clone(), vec![7; 9000]], &own.key);
    assert!(served.ask_showing(&chain, &token).await.contains("is here"));
    assert!(served.ask(at(2), &served.token).await.unwrap().contains("is here"));
}

/// Handshakes that fail by a certificate are told from others, so that the log can say it.
#[tokio::test]
async fn a_handshake_that_failed_by_a_certificate_is_known() {
    let keys = tempfile::tempdir().unwrap();
    let certificate = Keys::open(keys.path(), &[], &[]).unwrap().certificate;
    let own = Own::new();
    let shaken = async |resolver: Arc<Shows>| {
        let (near, far) = tokio::io::duplex(1 << 16);
        let tls = ClientConfig::builder().with_root_certificates(roots(keys.path()));
        let connector = TlsConnector::from(Arc::new(tls.with_client_cert_resolver(resolver)));
        let name = ServerName::try_from("localhost").unwrap();
        let acceptor = TlsAcceptor::from(certificate.current(true));
        let (accepted, _) = tokio::join!(acceptor.accept(far), connector.connect(name, near));
        accepted.map(|stream| proof::Proof::of(stream.get_ref().1))
    };
    let proof = shaken(own.shows()).await.unwrap();
    assert_eq!(proof.text(), own.fingerprint());
    for chain in [vec![b"garbage".to_vec()], vec![own.certificate.clone(), vec![0; 17 << 10]]] {
        let error = shaken(shows(chain, &own.key)).await.unwrap_err();
        assert!(proof::is_of_certificate(&error), "{error:?}");
    }
    let other = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let error = shaken(shows(vec![own.certificate.clone()], &other)).await.unwrap_err();
    assert!(proof::is_of_certificate(&error), "{error:?}");
    assert!(!proof::is_of_certificate(&io::Error::other("a connection that was cut")));
}
