//! From a connection in clear text to one over TLS (RFC 9289 section 4.1).
//!
//! ```text
//! client                              server
//!   NULL, credential AUTH_TLS  ------>
//!                              <------  accepted, verifier AUTH_NONE with the body "STARTTLS"
//!   ClientHello ...                     the same connection goes on as TLS
//! ```

use crate::auth::{AUTH_NONE, AUTH_TLS, OpaqueAuth};
use crate::message::{Accepted, Asked, Reply, ReplyBody};
use crate::xdr::{Decode, Decoder};

/// The protocol that both sides name in the handshake (section 8.2: ALPN).
pub const ALPN: &[u8] = b"sunrpc";

/// The body of the verifier that accepts TLS.
pub const STARTTLS: &[u8] = b"STARTTLS";

/// The call of a client that wants to go on with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its transaction id.
    pub xid: u32,
    /// The program that the client will call over TLS.
    pub program: u32,
}

impl Probe {
    /// `record` as such a call, if it is one.
    pub fn decode(record: &[u8]) -> Option<Probe> {
        let asked = Asked::decode(&mut Decoder::new(record))?;
        let mut from = Decoder::new(record.get(CREDENTIAL_AT..)?);
        let credential = OpaqueAuth::decode(&mut from).ok()?;
        let is_probe = asked.procedure == NULL && credential.flavor == AUTH_TLS;
        let xid = Decoder::new(record).u32().ok()?;
        is_probe.then_some(Probe { xid, program: asked.program })
    }
}

/// The answer that makes the client begin its handshake.
pub const fn starttls(xid: u32) -> Reply<'static> {
    let verifier = OpaqueAuth { flavor: AUTH_NONE, body: STARTTLS };
    Reply { xid, body: ReplyBody::Accepted { verifier, status: Accepted::Success } }
}

/// The offset after xid, direction, version of RPC, program, its version, and procedure.
const CREDENTIAL_AT: usize = 6 * 4;

const NULL: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Credential;
    use crate::message::Call;
    use crate::xdr::EncodeBuf;

    fn call(procedure: u32, flavor: u32) -> Vec<u8> {
        let credential = Credential::Other(OpaqueAuth { flavor, body: &[] });
        let mut to = EncodeBuf::new();
        to.put(&Call {
            xid: 7,
            program: 100_003,
            version: 3,
            procedure,
            credential,
            verifier: OpaqueAuth::NONE,
        });
        to.to_vec()
    }

    #[test]
    fn a_probe_is_told_from_other_calls() {
        assert_eq!(Probe::decode(&call(0, AUTH_TLS)), Some(Probe { xid: 7, program: 100_003 }));
        assert_eq!(Probe::decode(&call(1, AUTH_TLS)), None);
        assert_eq!(Probe::decode(&call(0, 6)), None);
        for len in 0..40 {
            assert_eq!(Probe::decode(&call(0, AUTH_TLS)[..len]), None);
        }
    }

    /// RFC 9289 section 4.1: eight octets in an AUTH_NONE verifier.
    #[test]
    fn the_answer_is_as_the_rfc_has_it() {
        let mut to = EncodeBuf::new();
        to.put(&starttls(7));
        let bytes = to.to_vec();
        assert_eq!(bytes[..4], [0, 0, 0, 7]);
        assert_eq!(bytes[4..16], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[16..28], b"\0\0\0\x08STARTTLS");
        assert_eq!(bytes[28..], [0, 0, 0, 0]);
        assert!(Reply::decode(&mut Decoder::new(&bytes)).is_ok());
    }
}
