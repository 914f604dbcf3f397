//! Certificates of clients: with one, a client proves that it has a key, beside its token.
//!
//! Invariants:
//! - A connection's proof is the certificate whose key has signed that very handshake. No session
//!   of TLS is resumed, so that each connection proves it itself.
//! - A token names certificates by their SHA-256, and nothing else decides. What one says of its
//!   names, its authority, its use and its dates is not believed, since everybody can make one. So
//!   an expired certificate counts until no token is bound to it.
//! - What a stranger shows has a size, costs one check of a signature, and panics nowhere.

use std::io;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    ServerConnection, SignatureScheme,
};

use super::secret::Hash;

/// The certificate that a connection's client has proved to be its own, if it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof(Option<Hash>);

impl Proof {
    /// Of a connection whose handshake is over.
    pub fn of(connection: &ServerConnection) -> Proof {
        let shown = connection.peer_certificates().and_then(<[_]>::first);
        Proof(shown.map(|certificate| Hash::of(certificate)))
    }

    /// A test's.
    #[cfg(test)]
    pub fn with(certificate: Hash) -> Proof {
        Proof(Some(certificate))
    }

    /// Whether it is one of these.
    pub fn is_of(&self, certificates: &[Hash]) -> bool {
        self.0.is_some_and(|own| certificates.iter().any(|one| one.is(&own)))
    }

    /// The fingerprint; nothing, if no certificate was shown.
    pub fn text(&self) -> String {
        self.0.as_ref().map(Hash::text).unwrap_or_default()
    }
}

/// Takes every certificate, if its key has signed.
#[derive(Debug)]
pub(super) struct AnyCertificate(WebPkiSupportedAlgorithms);

impl AnyCertificate {
    pub fn new() -> Arc<AnyCertificate> {
        Arc::new(AnyCertificate(ring::default_provider().signature_verification_algorithms))
    }
}

impl ClientCertVerifier for AnyCertificate {
    /// Clients without one come in too: most tokens need none.
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// No authority is named, so clients show the certificate that they were given.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes: usize = chain.iter().chain([own]).map(|one| one.len()).sum();
        if bytes > CHAIN_BYTES_MAX {
            let why = io::Error::other(format!("{bytes} bytes; {CHAIN_BYTES_MAX} at most"));
            return Err(CertificateError::Other(OtherError(Arc::new(why))).into());
        }
        ParsedCertificate::try_from(own)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _own: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.3 alone is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, own, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Whether a handshake failed by the certificate that the client showed.
pub(super) fn is_of_certificate(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    matches!(inner, Some(Error::InvalidCertificate(_)))
}

/// A certificate with its chain: a kept connection holds it as long as it lives. Those that people
/// make have one or two thousand bytes.
const CHAIN_BYTES_MAX: usize = 16 << 10;
