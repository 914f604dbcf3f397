//! A client's side of RPC-with-TLS, on a non-blocking socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

/// A session over a socket that the caller owns.
#[derive(Debug)]
pub(crate) struct Session {
    session: ClientConnection,
    /// Bytes from the socket; the session has taken `taken` of them.
    ahead: Vec<u8>,
    taken: usize,
    received: usize,
}

impl Session {
    /// Makes the handshake, and blocks until it is done. The server must have answered STARTTLS.
    pub fn begin(stream: &mut TcpStream, config: Arc<ClientConfig>) -> io::Result<Self> {
        let name = ServerName::try_from(SERVER).map_err(io::Error::other)?;
        let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        session.set_buffer_limit(Some(BUFFER_BYTES));
        while session.is_handshaking() {
            session.complete_io(stream)?;
        }
        Ok(Session { session, ahead: vec![0; BUFFER_BYTES], taken: 0, received: 0 })
    }

    /// Whether records wait to be sent.
    pub fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// Whether there is more to read before the socket must be read.
    pub fn has_ahead(&self) -> bool {
        self.taken < self.received || !self.session.wants_read()
    }

    /// Encrypts as many bytes as there is room for, and sends as much as the socket takes.
    pub fn send(&mut self, stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        if !self.flush(stream)? {
            return Ok(0);
        }
        let taken = self.session.writer().write(bytes)?;
        self.flush(stream)?;
        Ok(taken)
    }

    /// Sends records. Returns whether the socket has taken all of them.
    pub fn flush(&mut self, stream: &TcpStream) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Receives some bytes, and waits for them if the flags say so.
    pub fn receive(
        &mut self,
        stream: &TcpStream,
        into: &mut [u8],
        flags: RecvFlags,
    ) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if self.taken == self.received {
                let (_, bytes) = recv(stream, self.ahead.as_mut_slice(), flags)?;
                if bytes == 0 {
                    return Ok(0);
                }
                (self.taken, self.received) = (0, bytes);
            }
            let mut rest = self.ahead.get(self.taken..self.received).unwrap_or_default();
            let before = rest.len();
            while !rest.is_empty() && self.session.read_tls(&mut rest)? > 0 {
                let state = self.session.process_new_packets().map_err(io::Error::other)?;
                if state.plaintext_bytes_to_read() > PLAINTEXT_BYTES {
                    break;
                }
            }
            self.taken += before - rest.len();
        }
    }
}

struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The name in the server's certificate.
pub const SERVER: &str = "bench.example";

const BUFFER_BYTES: usize = 136 * 1024;
const PLAINTEXT_BYTES: usize = 16 * 1024;
