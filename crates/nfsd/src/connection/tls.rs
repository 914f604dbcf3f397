//! A connection that switched to TLS.
//!
//! ```text
//!   socket -> ahead (ciphertext) -> session (plaintext) -> whoever reads
//!   whoever writes -> session (records) -> socket
//! ```
//! Invariants:
//! - Nothing is read from the socket until we have read all earlier data.
//! - The session's memory is bounded: [`SEND_BYTES_MAX`] for outgoing data, and for incoming data
//!   [`AHEAD_BYTES_MAX`] and two records.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use aquifer_nfs::Security;
use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use webpki::EndEntityCert;

use super::stream::settled;
use crate::limits::{AHEAD_BYTES_MAX, CERTIFICATE_NAMES_MAX, PLAINTEXT_BYTES_MAX, SEND_BYTES_MAX};

/// TLS over TCP, from the first byte of the handshake.
#[derive(Debug)]
pub(super) struct TlsStream {
    tcp: TcpStream,
    session: ServerConnection,
    /// From the socket; the session has taken `taken` bytes of it.
    ahead: Vec<u8>,
    taken: usize,
    /// Bytes that the session has for us.
    readable: usize,
    /// No more data comes.
    ended: bool,
}

impl TlsStream {
    /// Waits for the client's first message.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub fn new(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut session = ServerConnection::new(config).map_err(failed)?;
        session.set_buffer_limit(Some(SEND_BYTES_MAX));
        let ahead = Vec::new();
        Ok(TlsStream { tcp, session, ahead, taken: 0, readable: 0, ended: false })
    }

    /// The client's proven identity, once the handshake is over.
    pub fn security(&self) -> Option<Security> {
        if self.session.is_handshaking() {
            return None;
        }
        let certificate = self.session.peer_certificates().and_then(<[_]>::first);
        Some(certificate.map_or(Security::Tls, |own| Security::Mtls(names(own))))
    }

    /// The certificates that the client has shown; its own is the first one.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        self.session.peer_certificates().unwrap_or_default()
    }

    /// See [`Stream::settle`](super::stream::Stream::settle).
    pub fn settle(self) -> io::Result<Self> {
        let tcp = settled(self.tcp)?;
        Ok(TlsStream { tcp, ..self })
    }

    /// Whether records wait for the socket.
    pub fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// Ready when there is data to read, or the end.
    pub fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.readable == 0 && !self.ended {
            if self.taken < self.ahead.len() {
                self.take_in(cx)?;
                continue;
            }
            if self.session.is_handshaking() {
                ready!(self.poll_send(cx))?;
            }
            self.ahead.clear();
            self.taken = 0;
            self.ahead.reserve(AHEAD_BYTES_MAX);
            match self.tcp.try_read_buf(&mut self.ahead) {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // A waiting connection holds no buffer.
                    self.ahead = Vec::new();
                    ready!(self.tcp.poll_read_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Gives received bytes to the session, until it has enough data for us.
    fn take_in(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.readable <= PLAINTEXT_BYTES_MAX && self.taken < self.ahead.len() {
            let mut rest = self.ahead.get(self.taken..).unwrap_or_default();
            let taken = self.session.read_tls(&mut rest)?;
            if taken == 0 {
                // The session saw the end: later bytes belong to nobody.
                (self.ended, self.taken) = (true, self.ahead.len());
                return Ok(());
            }
            self.taken += taken;
            match self.session.process_new_packets() {
                Ok(state) => self.readable = state.plaintext_bytes_to_read(),
                Err(error) => {
                    // The client gets the reason, if the socket takes it at once.
                    let _ = self.poll_send(cx);
                    return Err(failed(error));
                }
            }
        }
        Ok(())
    }

    /// Reads available data, without waiting.
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(room) = into.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self.session.reader().read(room) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(bytes) => {
                    filled += bytes;
                    self.readable = self.readable.saturating_sub(bytes);
                }
                // Closed without a notice: that is harmless, since RPC records have lengths of
                // their own.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.ended = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = 0;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        match filled {
            0 if !self.ended => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(filled),
        }
    }

    /// As [`TlsStream::try_read`], into several pieces of memory.
    pub fn try_read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut filled = 0;
        for piece in into.iter_mut().filter(|piece| !piece.is_empty()) {
            match self.try_read(piece) {
                Ok(bytes) => {
                    filled += bytes;
                    if bytes < piece.len() {
                        break;
                    }
                }
                Err(error) if filled > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Makes records of the bytes to send, as far as there is room, and sends as much as the socket
    /// takes.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let taken = self.session.writer().write_vectored(slices)?;
        match self.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    /// Sends the waiting records.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket { tcp: &mut self.tcp, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Tells the client that no more data comes, and ends our side.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.send_close_notify();
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

/// The socket to which the session writes; `cx` is woken when it takes more.
struct Socket<'a, 'b> {
    tcp: &'a mut TcpStream,
    cx: &'a mut Context<'b>,
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        now(Pin::new(&mut *self.tcp).poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        now(Pin::new(&mut *self.tcp).poll_write_vectored(self.cx, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn now(written: Poll<io::Result<usize>>) -> io::Result<usize> {
    match written {
        Poll::Ready(written) => written,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// The names for which a client's certificate is valid. Its chain was verified in the handshake.
/// These are the DNS names of its subjectAltName, without wildcards. A rule compares such a name
/// letter by letter.
fn names(certificate: &CertificateDer<'_>) -> Arc<[String]> {
    let parsed = EndEntityCert::try_from(certificate);
    let names = parsed.iter().flat_map(|certificate| certificate.valid_dns_names());
    let names = names.take(CERTIFICATE_NAMES_MAX);
    names.map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect()
}

fn failed(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}"))
}
