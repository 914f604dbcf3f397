//! How a connection ends.

use std::io;

use super::slow::TooSlow;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("closed by the client")]
    ByClient,
    #[error("lost: {0}")]
    Lost(io::Error),
    /// Received bytes that are no RPC, or break a limit.
    #[error("not RPC: {0}")]
    NotRpc(String),
    /// The handshake failed, or a later TLS record.
    #[error("{0}")]
    NoTls(io::Error),
    /// The client's certificate is not good any more.
    #[error("{0}")]
    Distrusted(rustls::Error),
    #[error("too slow: {0:?}")]
    Slow(TooSlow),
    #[error("a request panicked")]
    Panicked,
    #[error("the server stops")]
    Stopped,
    /// Too many are connected, and this one was idle.
    #[error("idle, and others want to connect")]
    Evicted,
}
