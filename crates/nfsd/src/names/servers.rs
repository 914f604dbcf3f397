//! DNS servers: one question after the other, over UDP, and over TCP if the answer does not fit.
//!
//! Invariants:
//! - An answer counts if it comes from the asked server, to the asking port (which the kernel chose
//!   at random), with the question's number and words. Other messages are ignored.
//! - A lookup ends: each server has its time, twice.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::Lookup;
use super::dns::{Answer, Kind, Question, Reply};
use crate::limits::{DNS_DATAGRAM_BYTES_MAX, DNS_PATIENCE, DNS_ROUNDS};

/// The servers, and the search domains of short names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Servers {
    pub addresses: Vec<SocketAddr>,
    /// Domains in which a name without a dot is looked for first.
    pub search: Vec<String>,
}

impl Servers {
    /// Looks up a name, in each domain if it has no dot.
    pub async fn look_up(&self, name: &str) -> Lookup {
        let domains = self.search.iter().filter(|_| !name.contains('.'));
        let candidates = domains.map(|domain| format!("{name}.{domain}")).chain([name.to_owned()]);
        let mut found = Lookup { v4: Ok(Answer::default()), v6: Ok(Answer::default()) };
        for candidate in candidates {
            let (v4, v6) =
                tokio::join!(self.ask(&candidate, Kind::A), self.ask(&candidate, Kind::Aaaa));
            let empty = |answer: &Result<Answer, String>| {
                answer.as_ref().is_ok_and(|answer| answer.addresses.is_empty())
            };
            // A server without an answer may know the name: then the host of that name in another
            // domain is not meant.
            let next = empty(&v4) && empty(&v6);
            found = Lookup { v4, v6 };
            if !next {
                break;
            }
        }
        found
    }

    async fn ask(&self, name: &str, kind: Kind) -> Result<Answer, String> {
        let mut failed = "there is no server of DNS to ask".to_owned();
        for _ in 0..DNS_ROUNDS {
            for server in &self.addresses {
                let question = Question::new(name, kind).map_err(|error| error.to_string())?;
                match timeout(DNS_PATIENCE, ask_one(*server, &question)).await {
                    Ok(Ok(Reply::Answer(answer))) => return Ok(answer),
                    Ok(Ok(Reply::Failed(why))) => failed = format!("DNS server {server}: {why}"),
                    Ok(Ok(Reply::Truncated)) => failed = format!("DNS server {server}: cut off"),
                    Ok(Err(error)) => failed = format!("DNS server {server}: {error}"),
                    Err(_) => failed = format!("DNS server {server}: no answer"),
                }
            }
        }
        Err(failed)
    }
}

async fn ask_one(server: SocketAddr, question: &Question) -> io::Result<Reply> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(question.bytes()).await?;
    let mut datagram = vec![0; DNS_DATAGRAM_BYTES_MAX];
    loop {
        let bytes = socket.recv(&mut datagram).await?;
        match question.reply(datagram.get(..bytes).unwrap_or_default()) {
            Some(Reply::Truncated) => return ask_over_tcp(server, question).await,
            Some(reply) => return Ok(reply),
            None => {}
        }
    }
}

async fn ask_over_tcp(server: SocketAddr, question: &Question) -> io::Result<Reply> {
    let mut stream = TcpStream::connect(server).await?;
    let bytes = u16::try_from(question.bytes().len()).map_err(io::Error::other)?;
    stream.write_all(&[&bytes.to_be_bytes(), question.bytes()].concat()).await?;
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    let reply = question.reply(&message);
    reply.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer to something else"))
}
