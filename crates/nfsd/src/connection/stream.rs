//! The stream of a connection: a socket, in clear text or over TLS.

use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aquifer_nfs::Security;
use bytes::BufMut;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use super::tls::TlsStream;

#[derive(Debug)]
pub(super) enum Stream {
    Clear(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// The client's proven identity; `None` in the middle of a handshake.
    pub fn security(&self) -> Option<Security> {
        match self {
            Stream::Clear(_) => Some(Security::Clear),
            Stream::Tls(tls) => tls.security(),
        }
    }

    /// This stream on the present runtime: another one than before polls the socket.
    ///
    /// # Errors
    /// Errors of the system; the connection is lost then.
    pub fn settle(self) -> io::Result<Self> {
        match self {
            Stream::Clear(tcp) => settled(tcp).map(Stream::Clear),
            Stream::Tls(tls) => tls.settle().map(|tls| Stream::Tls(Box::new(tls))),
        }
    }

    pub fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Clear(tcp) => tcp.poll_read_ready(cx),
            Stream::Tls(tls) => tls.poll_read_ready(cx),
        }
    }

    pub fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream| match stream {
            Stream::Clear(tcp) => tcp.try_read(into),
            Stream::Tls(tls) => tls.try_read(into),
        })
    }

    pub fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream| match stream {
            Stream::Clear(tcp) => tcp.try_read_vectored(into),
            Stream::Tls(tls) => tls.try_read_vectored(into),
        })
    }

    /// Into uninitialised memory, at most `most` bytes.
    pub fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream| match stream {
            Stream::Clear(tcp) => tcp.try_read_buf(&mut (&mut *into).limit(most)),
            Stream::Tls(tls) => {
                // The session fills initialised memory only.
                let before = into.len();
                into.resize(before + most.min(TLS_READ_BYTES), 0);
                let read = tls.try_read(into.get_mut(before..).unwrap_or_default());
                into.truncate(before + read.as_ref().map_or(0, |bytes| *bytes));
                read
            }
        })
    }

    fn poll_with(
        &mut self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(&mut Self) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            match read(self) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Clear(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Stream::Tls(tls) => tls.poll_write_vectored(cx, slices),
        }
    }

    /// Whether written bytes wait for the socket.
    pub fn has_unsent(&self) -> bool {
        match self {
            Stream::Clear(_) => false,
            Stream::Tls(tls) => tls.has_unsent(),
        }
    }

    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Clear(_) => Poll::Ready(Ok(())),
            Stream::Tls(tls) => tls.poll_send(cx),
        }
    }

    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Clear(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => tls.poll_shutdown(cx),
        }
    }
}

/// The socket on the present runtime.
pub(super) fn settled(tcp: TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(tcp.into_std()?)
}

/// As much as a session holds at a time, or a little more.
const TLS_READ_BYTES: usize = 64 * 1024;
