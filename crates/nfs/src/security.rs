//! The protection of a client's calls, and the client's proven identity (RPC-with-TLS, RFC 9289).
//!
//! Each level includes those before it: an export that accepts calls in the clear accepts those
//! over TLS too. exports(5) of Linux has the same words, but each stands for itself.

use std::sync::Arc;

/// The protection that an export asks for: `xprtsec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Xprtsec {
    /// None: in the clear.
    #[default]
    None,
    /// TLS.
    Tls,
    /// TLS, and the client has shown a certificate of an authority that we know.
    Mtls,
}

/// The protection that a connection has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Security {
    /// In the clear.
    #[default]
    Clear,
    /// TLS, and the client has shown no certificate.
    Tls,
    /// TLS, and a certificate that is valid for these names of hosts, in lower case.
    Mtls(Arc<[String]>),
}

impl Security {
    /// The highest protection that an export may ask of it.
    pub(crate) fn level(&self) -> Xprtsec {
        match self {
            Security::Clear => Xprtsec::None,
            Security::Tls => Xprtsec::Tls,
            Security::Mtls(_) => Xprtsec::Mtls,
        }
    }

    /// The proven names.
    pub(crate) fn names(&self) -> &[String] {
        match self {
            Security::Mtls(names) => names,
            Security::Clear | Security::Tls => &[],
        }
    }
}
