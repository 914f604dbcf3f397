//! Requests to the API, each on a connection of its own.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aquifer_rig::wire::call::Source;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Stream};

use super::place::{SERVER, api};

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request<'a> {
    /// `GET` or `POST`.
    pub method: &'static str,
    pub path: &'a str,
    /// The token that it shows.
    pub token: Option<&'a str>,
    /// JSON, or the bytes of a stream.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    pub fn get(path: &'a str) -> Self {
        Request { method: "GET", path, token: None, body: &[] }
    }

    pub fn post(path: &'a str, body: &'a [u8]) -> Self {
        Request { method: "POST", path, token: None, body }
    }

    pub fn by(self, token: &'a str) -> Self {
        Request { token: Some(token), ..self }
    }

    /// Everything before the body.
    pub fn head(&self) -> String {
        let Request { method, path, token, body } = self;
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        format!(
            "{method} {path} HTTP/1.1\r\nHost: pool\r\n{}Content-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            token.unwrap_or_default(),
            body.len()
        )
    }

    /// Sends it, and returns status and body of the answer.
    pub fn send(&self, stream: &mut (impl Read + Write)) -> io::Result<(u16, String)> {
        stream.write_all(self.head().as_bytes())?;
        stream.write_all(self.body)?;
        stream.flush()?;
        answer(stream)
    }

    /// Sends it over the Unix socket. Returns the body of an answer of status 200.
    pub fn send_locally(&self, socket: &Path) -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        good(self.send(&mut stream)?)
    }

    /// Sends it over TLS from a machine.
    pub fn send_from(&self, from: Source, config: &Arc<ClientConfig>) -> io::Result<(u16, String)> {
        let mut stream = from.connect(api())?;
        let mut session = session(config)?;
        self.send(&mut Stream::new(&mut session, &mut stream))
    }
}

/// The body of an answer of status 200.
pub(super) fn good((status, body): (u16, String)) -> io::Result<String> {
    match status {
        200 => Ok(body),
        _ => Err(io::Error::other(format!("{status}: {body}"))),
    }
}

/// A client's side of TLS with the API.
pub(super) fn session(config: &Arc<ClientConfig>) -> io::Result<ClientConnection> {
    let name = ServerName::from(std::net::IpAddr::from(SERVER));
    ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)
}

/// Status and body of an answer, all of which must have come.
fn answer(stream: &mut impl Read) -> io::Result<(u16, String)> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // The peer closed without close_notify; the check below shows whether all of the answer
        // came.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        read => drop(read?),
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let length = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    match (status, length.is_none_or(|length: usize| length == body.len())) {
        (Some(status), true) => Ok((status, body.to_owned())),
        _ => Err(io::Error::other("no whole answer")),
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
