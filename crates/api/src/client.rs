//! A client of the API: one call at a time, each on a connection of its own, or one after the other
//! on one that is kept ([`Client::keeping_its_connection`]).
//!
//! There is no time limit: an import that replays a long log, or creating a pool on slow disks,
//! takes as long as it takes. The act would continue anyway.

use std::io;
use std::path::PathBuf;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Request as HttpRequest, StatusCode};
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use crate::keys::Identity;
use crate::{ApiError, ApiRequest, Method, PATH};

mod remote;
mod send;
mod snapshots;

use remote::{Coming, Remote};
pub use send::ComingPart;

/// The type of all bodies but streams.
const JSON: &str = "application/json";

/// A client of one daemon.
#[derive(Debug, Clone)]
pub struct Client {
    endpoint: Endpoint,
}

#[derive(Debug, Clone)]
enum Endpoint {
    Socket(PathBuf),
    Tcp(Remote),
}

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon, or none that we may use.
    #[error("{at}: no daemon can be asked there ({source}); {hint}")]
    Unreachable {
        /// The socket, or the address.
        at: String,
        /// The system's error.
        source: io::Error,
        /// Advice on what to do.
        hint: &'static str,
    },
    /// The daemon refused or failed.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// The daemon went away, or does not speak the API.
    #[error("the daemon gave no answer that makes sense: {0}; its log may say why")]
    Broken(String),
    /// The address of a remote daemon is not valid.
    #[error("{0:?} is no address of an API: give https://HOST:PORT")]
    Address(String),
}

/// The result of a call.
pub type Answer<T> = Result<T, ClientError>;

impl Client {
    /// A client of the daemon behind `socket`. Does not connect yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Client { endpoint: Endpoint::Socket(socket.into()) }
    }

    /// A client of the daemon at `url` (`https://HOST:PORT`), which must show one of `certificates`
    /// or one that they vouch for. The client sends it `token`, and shows it `own` if the daemon
    /// asks for a certificate. Does not connect yet.
    ///
    /// # Errors
    /// [`ClientError::Address`]; [`ClientError::Broken`] for unusable certificates.
    pub fn remote(
        url: &str,
        certificates: Vec<CertificateDer<'static>>,
        token: String,
        own: Option<Identity>,
    ) -> Answer<Self> {
        let remote = Remote::new(url, certificates, token, own)?;
        Ok(Client { endpoint: Endpoint::Tcp(remote) })
    }

    /// This client, with calls one after the other on one connection, if it goes over TCP: for many
    /// calls in a row, which need no handshake each.
    pub fn keeping_its_connection(mut self) -> Self {
        if let Endpoint::Tcp(remote) = &mut self.endpoint {
            remote.keep_connection();
        }
        self
    }

    /// Whether the daemon is on this machine, so that both see the same paths.
    pub fn is_local(&self) -> bool {
        matches!(self.endpoint, Endpoint::Socket(_))
    }

    /// The host of a daemon that is asked over TCP, as its address names it.
    pub fn host(&self) -> Option<&str> {
        match &self.endpoint {
            Endpoint::Socket(_) => None,
            Endpoint::Tcp(remote) => Some(remote.host()),
        }
    }

    /// Asks for one thing.
    pub async fn ask<R: ApiRequest>(&self, request: &R) -> Answer<R::Answer> {
        let (path, body) = sent(request)?;
        parsed(&self.exchange(R::METHOD, &path, JSON, body).await?.1)
    }

    /// Asks for bytes.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Answer<(HeaderMap, Bytes)> {
        let request = self.request(method, path, content_type, body)?;
        let (status, headers, body) = match &self.endpoint {
            Endpoint::Socket(_) => self.begin(request).await?.whole().await?,
            Endpoint::Tcp(remote) => remote.send(request).await?,
        };
        match status {
            StatusCode::OK => Ok((headers, body)),
            _ => Err(refused(status, &body)),
        }
    }

    /// Sends a request on a connection of its own.
    async fn begin(&self, request: HttpRequest<Full<Bytes>>) -> Answer<Coming> {
        match &self.endpoint {
            Endpoint::Socket(socket) => {
                let stream = UnixStream::connect(socket).await;
                let at = || socket.display().to_string();
                Coming::begin(stream.map_err(|source| unreachable(at(), source))?, request).await
            }
            Endpoint::Tcp(remote) => remote.begin(request).await,
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Answer<HttpRequest<Full<Bytes>>> {
        let mut request = HttpRequest::builder()
            .method(method.name())
            .uri(format!("{PATH}{path}"))
            .header(HOST, "aquifer")
            .header(CONTENT_TYPE, content_type);
        if let Endpoint::Tcp(remote) = &self.endpoint {
            request = request.header(AUTHORIZATION, remote.authorization());
        }
        request.body(Full::new(body)).map_err(broken)
    }
}

/// Why a call was not carried out, by its answer.
fn refused(status: StatusCode, body: &[u8]) -> ClientError {
    match serde_json::from_slice::<ApiError>(body) {
        Ok(error) => ClientError::Api(error),
        Err(_) => broken(format!("status {status}")),
    }
}

fn parsed<T: DeserializeOwned>(answer: &[u8]) -> Answer<T> {
    serde_json::from_slice(answer).map_err(broken)
}

fn unreachable(at: String, source: io::Error) -> ClientError {
    let hint = match source.kind() {
        io::ErrorKind::PermissionDenied => "run as the user whom the daemon runs as, mostly root",
        _ => "start one with `aquifer serve`, or name its socket with --api-socket",
    };
    ClientError::Unreachable { at, source, hint }
}

fn broken(error: impl ToString) -> ClientError {
    ClientError::Broken(error.to_string())
}

/// The path of a request with its query, and its body.
fn sent<R: ApiRequest>(request: &R) -> Answer<(String, Bytes)> {
    let (name, content) = request.parts();
    let path = R::PATH.replace("{name}", &escaped(name));
    match R::METHOD {
        Method::Get => Ok((path + &query(content)?, Bytes::new())),
        Method::Post => Ok((path, serde_json::to_vec(content).map_err(broken)?.into())),
    }
}

/// The words of a query, in front of them a question mark.
fn query(content: &impl Serialize) -> Answer<String> {
    let mut query = String::new();
    let Value::Object(words) = serde_json::to_value(content).map_err(broken)? else {
        return Ok(query);
    };
    for (word, value) in words {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => escaped(&text),
            value => value.to_string(),
        };
        query += &format!("{}{word}={value}", if query.is_empty() { '?' } else { '&' });
    }
    Ok(query)
}

/// A name as part of a path or query (RFC 3986 section 2.1).
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ClearPool, ConnectQuery, DiskRequest, HoldQuery, Hypervisor, IoQuery, LoadQuery, On,
        PoolQuery, PoolsQuery, RemoveDisk, SnapshotQuery, TakeSnapshots,
    };

    #[test]
    fn a_request_travels_as_its_type_says() {
        fn told<R: ApiRequest>(request: &R) -> String {
            let (path, body) = sent(request).unwrap();
            format!("{} {path} {}", R::METHOD.name(), str::from_utf8(&body).unwrap())
        }
        let name = Some("tank/my vms@a".to_string());
        let counted =
            SnapshotQuery { name: name.clone(), recursive: true, used: true, ..Default::default() };
        let (dataset, hypervisor) = ("t&a=b".to_string(), Hypervisor::XcpNg);
        let remove = RemoveDisk(DiskRequest { disk: "sda".into() });
        for (told, expected) in [
            (told(&PoolsQuery), "GET /pools "),
            (told(&On::new("a/b", PoolQuery)), "GET /pools/a%2Fb "),
            (told(&IoQuery { pool: None }), "GET /iostat "),
            (told(&HoldQuery::default()), "GET /snapshots/holds?recursive=false "),
            (told(&counted), "GET /snapshots?name=tank%2Fmy%20vms%40a&recursive=true&used=true "),
            (told(&On::new("tank", LoadQuery::default())), "GET /pools/tank/load?span=day "),
            (
                told(&ConnectQuery { dataset, hypervisor, host: None }),
                "GET /connect?dataset=t%26a%3Db&hypervisor=xcp-ng ",
            ),
            (told(&On::new("tank", ClearPool)), "POST /pools/tank/clear null"),
            (told(&On::new("tank", remove)), r#"POST /pools/tank/remove {"disk":"sda"}"#),
            (
                told(&TakeSnapshots { names: name.into_iter().collect(), recursive: false }),
                r#"POST /snapshots {"names":["tank/my vms@a"],"recursive":false}"#,
            ),
        ] {
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn an_address_is_https_with_a_port_and_nothing_else() {
        let of = |url| Client::remote(url, Vec::new(), "secret".into(), None);
        for good in ["https://pool.example:9443", "https://10.0.0.1:1/", "https://[fd00::1]:9443"] {
            let shown = format!("{:?}", of(good).unwrap());
            assert!(!shown.contains("secret"), "{shown}");
        }
        let wrong = ["http://a:1", "https://a", "a:1", "https://a:1/x", "https://a:1?x", "", "\n"];
        for wrong in wrong {
            assert!(matches!(of(wrong), Err(ClientError::Address(_))), "{wrong}");
        }
    }

    #[test]
    fn names_survive_their_way_through_a_path() {
        assert_eq!(escaped("tank/my vms?"), "tank%2Fmy%20vms%3F");
        assert_eq!(escaped("tank-1_a.b:c"), "tank-1_a.b%3Ac");
    }
}
