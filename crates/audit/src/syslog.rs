//! A syslog over TLS: messages of RFC 5424, framed as RFC 5425 has it (their octets are counted).
//!
//! A message is the whole line, of facility 13 (log audit): of severity notice, or warning for what
//! was refused or failed. Its MSGID is the line's kind.
//!
//! The protocol has no answers. Lines that were under way when a connection broke may be lost, or
//! come twice: their numbers show it. The chain begins with each start of the daemon.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::destination::Sink;
use crate::line::{Chain, Entry, Kind};
use crate::settings::SyslogSettings;

const FACILITY: u8 = 13;
const WARNING: u8 = 4;
const NOTICE: u8 = 5;
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Syslog {
    settings: SyslogSettings,
    host: String,
    chain: Option<Chain>,
    connection: Option<StreamOwned<ClientConnection, TcpStream>>,
}

impl Syslog {
    pub fn new(settings: &SyslogSettings, host: &str) -> Syslog {
        let (settings, host) = (settings.clone(), host.into());
        Syslog { settings, host, chain: None, connection: None }
    }

    /// A connection whose other side has not closed it.
    fn connection(&mut self) -> io::Result<&mut StreamOwned<ClientConnection, TcpStream>> {
        let open = self.connection.take().and_then(|open| still_open(open).ok().flatten());
        let open = match open {
            Some(open) => open,
            None => connect(&self.settings)?,
        };
        Ok(self.connection.insert(open))
    }
}

impl Sink for Syslog {
    fn write(&mut self, entries: &[Arc<Entry>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut chain = match &self.chain {
            Some(chain) => chain.clone(),
            None => {
                let mut chain = Chain::new();
                let why = "the daemon has started".into();
                let begin = Entry { kind: Kind::Begin, why, ..Entry::default() }.at_now();
                bytes.extend(message(&self.host, &begin, &chain.next(&self.host, &begin)));
                chain
            }
        };
        for entry in entries {
            bytes.extend(message(&self.host, entry, &chain.next(&self.host, entry)));
        }
        let connection = self.connection()?;
        let written = connection.write_all(&bytes).and_then(|()| connection.flush());
        if written.is_err() {
            self.connection = None;
        }
        written?;
        self.chain = Some(chain);
        Ok(())
    }
}

impl Drop for Syslog {
    fn drop(&mut self) {
        if let Some(open) = &mut self.connection {
            open.conn.send_close_notify();
            let _ = open.flush();
            let _ = open.sock.shutdown(Shutdown::Write);
        }
    }
}

/// A message with its frame; `line` has its end.
fn message(host: &str, entry: &Entry, line: &str) -> Vec<u8> {
    let is_done = entry.kind == Kind::Begin || entry.kind == Kind::Act && entry.outcome == "done";
    let priority = FACILITY * 8 + if is_done { NOTICE } else { WARNING };
    let kind = match entry.kind {
        Kind::Act => "act",
        Kind::Refused => "refused",
        Kind::Begin => "begin",
        Kind::Gap => "gap",
    };
    let plain = |c: &char| c.is_ascii_graphic();
    let host: String = host.chars().filter(plain).take(255).collect();
    let host = if host.is_empty() { "-" } else { &host };
    let (time, pid) = (aquifer_meter::time::text(entry.wall_ns), std::process::id());
    let text = format!("<{priority}>1 {time} {host} aquifer {pid} {kind} - {}", line.trim_end());
    format!("{} {text}", text.len()).into_bytes()
}

fn connect(settings: &SyslogSettings) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let SyslogSettings { server, authority } = settings;
    let host = server.rsplit_once(':').map_or(server.as_str(), |(host, _)| host);
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_string());
    let name = name.map_err(|error| io::Error::other(format!("{host}: {error}")))?;
    let unusable = |error: &dyn std::fmt::Display| {
        io::Error::other(format!("{}: {error}", authority.display()))
    };
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_file_iter(authority).map_err(|error| unusable(&error))? {
        let one = one.map_err(|error| unusable(&error))?;
        roots.add(one).map_err(|error| unusable(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut last = io::Error::new(ErrorKind::NotFound, format!("{server} has no address"));
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(socket) => {
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                let connection = ClientConnection::new(Arc::new(config), name);
                let connection = connection.map_err(io::Error::other)?;
                let mut stream = StreamOwned::new(connection, socket);
                // A certificate that does not count shows here, and not with a line.
                while stream.conn.is_handshaking() {
                    stream.conn.complete_io(&mut stream.sock)?;
                }
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A connection, unless its other side has closed it. Whatever else it says means nothing.
fn still_open(
    mut open: StreamOwned<ClientConnection, TcpStream>,
) -> io::Result<Option<StreamOwned<ClientConnection, TcpStream>>> {
    open.sock.set_nonblocking(true)?;
    let mut ignored = [0; 4096];
    let is_open = loop {
        match open.read(&mut ignored) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == ErrorKind::WouldBlock,
        }
    };
    open.sock.set_nonblocking(false)?;
    Ok(is_open.then_some(open))
}

impl std::fmt::Debug for Syslog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syslog").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::path::Path;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use rustls::{ServerConfig, ServerConnection};

    use super::*;
    use crate::line::{Line, sum};

    /// A syslog that hands over what each of its connections got, and closes each after so many
    /// messages.
    fn syslog(names: &[&str], each: usize) -> (SocketAddr, String, Receiver<Vec<String>>) {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, (got, gets)) = (listener.local_addr().unwrap(), channel());
        thread::spawn(move || {
            for socket in listener.incoming() {
                let connection = ServerConnection::new(Arc::new(config.clone())).unwrap();
                let mut stream = StreamOwned::new(connection, socket.unwrap());
                let messages = (0..each).map_while(|_| frame(&mut stream).ok()).collect();
                if got.send(messages).is_err() {
                    return;
                }
            }
        });
        (address, made.cert.pem(), gets)
    }

    /// A message, by the count of its octets.
    fn frame(from: &mut impl Read) -> io::Result<String> {
        let (mut count, mut byte) = (0, [0]);
        loop {
            from.read_exact(&mut byte)?;
            match byte[0] {
                b' ' => break,
                digit => count = count * 10 + usize::from(digit - b'0'),
            }
        }
        let mut text = vec![0; count];
        from.read_exact(&mut text)?;
        Ok(String::from_utf8(text).unwrap())
    }

    fn to(address: SocketAddr, authority: &Path) -> Syslog {
        let (server, authority) = (format!("localhost:{}", address.port()), authority.into());
        Syslog::new(&SyslogSettings { server, authority }, "srv 1")
    }

    fn act(outcome: &str) -> Arc<Entry> {
        let (outcome, act) = (outcome.into(), "aquifer destroy b\u{fc}ro".into());
        Arc::new(Entry { outcome, act, ..Entry::default() }.at_now())
    }

    #[test]
    fn messages_are_counted_framed_and_chained_over_connections() {
        let dir = tempfile::tempdir().unwrap();
        let authority = dir.path().join("ca.pem");
        let (address, pem, gets) = syslog(&["localhost"], 3);
        std::fs::write(&authority, pem).unwrap();
        let mut syslog = to(address, &authority);
        syslog.write(&[act("done"), act("failed")]).unwrap();
        let first = gets.recv_timeout(Duration::from_secs(60)).unwrap();
        // It has closed the connection; the next lines go over another one.
        thread::sleep(Duration::from_millis(200));
        syslog.write(&[act("done"), act("done"), act("done")]).unwrap();
        let second = gets.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!((first.len(), second.len()), (3, 3));
        let mut before: Option<String> = None;
        for (at, text) in first.iter().chain(&second).enumerate() {
            let parts: Vec<&str> = text.splitn(8, ' ').collect();
            let priority = if at == 2 { "<108>1" } else { "<109>1" };
            let kind = if at == 0 { "begin" } else { "act" };
            assert_eq!((parts[0], parts[2], parts[3]), (priority, "srv1", "aquifer"), "{text}");
            assert_eq!((parts[5], parts[6]), (kind, "-"), "{text}");
            let line: Line = serde_json::from_str(parts[7]).unwrap();
            assert_eq!(line.seq, at as u64 + 1);
            assert!(before.is_none_or(|before| line.prev == sum(before.as_bytes())), "{text}");
            before = Some(parts[7].into());
        }
    }

    #[test]
    fn a_server_that_is_another_gets_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let authority = dir.path().join("ca.pem");
        let (_, pem, _other) = syslog(&["localhost"], 1);
        std::fs::write(&authority, pem).unwrap();
        let (address, pem, gets) = syslog(&["localhost"], 1);
        assert!(to(address, &authority).write(&[act("done")]).is_err());
        // Of another name.
        let (address, pem2, gets2) = syslog(&["example.com"], 1);
        std::fs::write(&authority, pem2).unwrap();
        assert!(to(address, &authority).write(&[act("done")]).is_err());
        for gets in [gets, gets2] {
            assert!(gets.recv_timeout(Duration::from_secs(60)).unwrap().is_empty());
        }
        std::fs::write(&authority, pem.replace('M', "!")).unwrap();
        assert!(to(address, &authority).write(&[act("done")]).is_err());
    }
}
