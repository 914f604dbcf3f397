//! Connections: to a daemon on another machine, with TLS, and how a request goes on one.

use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::{Answer, ClientError, broken};
use crate::keys::Identity;

/// A daemon on another machine.
#[derive(Clone)]
pub(super) struct Remote {
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    token: String,
    /// The connection of the call before; `None`: each call has its own.
    kept: Option<Kept>,
}

/// A connection between two calls, if there is one.
type Kept = Arc<Mutex<Option<Line>>>;

impl std::fmt::Debug for Remote {
    /// Formats it without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "https://{}:{}", self.host, self.port)
    }
}

impl Remote {
    /// See [`super::Client::remote`].
    pub fn new(
        url: &str,
        certificates: Vec<CertificateDer<'static>>,
        token: String,
        own: Option<Identity>,
    ) -> Answer<Remote> {
        let address = || ClientError::Address(url.to_string());
        let uri: Uri = url.parse().map_err(|_| address())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("https"));
        let authority = authority.filter(|_| uri.path() == "/" && uri.query().is_none());
        let port = authority.and_then(|at| at.port_u16()).ok_or_else(address)?;
        let host = authority.map(|at| at.host().trim_matches(['[', ']'])).unwrap_or_default();
        let name = ServerName::try_from(host.to_string()).map_err(|_| address())?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(broken)?;
        }
        let tls = ClientConfig::builder().with_root_certificates(roots);
        let tls = match own {
            Some(own) => tls.with_client_cert_resolver(own.resolver()),
            None => tls.with_no_client_auth(),
        };
        let (host, tls) = (host.to_string(), Arc::new(tls));
        Ok(Remote { host, port, name, tls, token, kept: None })
    }

    /// From now on calls go one after the other on one connection.
    pub fn keep_connection(&mut self) {
        self.kept = Some(Kept::default());
    }

    /// The host, as the address names it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The header that shows the token.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// Sends a request: on the connection that was kept, if it still stands, or on a new one.
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Answer<(StatusCode, HeaderMap, Bytes)> {
        let Some(kept) = &self.kept else { return self.begin(request).await?.whole().await };
        let mut lines = kept.lock().await;
        let mut request = Some(request);
        if let Some(mut line) = lines.take().filter(|line| !line.sender.is_closed())
            && let Some(first) = request.take()
        {
            match line.sender.try_send_request(first).await {
                Ok(response) => {
                    let answer = whole(response).await?;
                    *lines = Some(line);
                    return Ok(answer);
                }
                // Nothing of it went: the other end had closed the connection.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = Some(unsent),
                    None => return Err(broken(error.into_error())),
                },
            }
        }
        let Some(request) = request else { return Err(broken("no request")) };
        let mut line = Line::begin(self.connect().await?).await?;
        let answer = whole(line.sender.send_request(request).await.map_err(broken)?).await?;
        *lines = Some(line);
        Ok(answer)
    }

    /// Sends a request on a connection of its own.
    pub async fn begin(&self, request: Request<Full<Bytes>>) -> Answer<Coming> {
        Coming::begin(self.connect().await?, request).await
    }

    async fn connect(&self) -> Answer<tokio_rustls::client::TlsStream<TcpStream>> {
        let failed = |hint| {
            let at = format!("https://{}:{}", self.host, self.port);
            move |source| ClientError::Unreachable { at, source, hint }
        };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream
            .map_err(failed("does it run, with `listen` under [api] in its configuration?"))?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(self.name.clone(), stream).await;
        stream.map_err(failed(
            "is --api-certificate that daemon's certificate.pem, made for this name or address?",
        ))
    }
}

/// A connection. It is closed when this is dropped.
struct Line {
    sender: SendRequest<Full<Bytes>>,
    connection: AbortHandle,
}

impl Line {
    async fn begin<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> Answer<Line> {
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        Ok(Line { sender, connection: tokio::spawn(connection).abort_handle() })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// An answer whose head has come.
pub(super) struct Coming {
    response: Response<Incoming>,
    _line: Line,
}

impl Coming {
    /// Sends a request on a new connection.
    pub async fn begin<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        stream: S,
        request: Request<Full<Bytes>>,
    ) -> Answer<Coming> {
        let mut line = Line::begin(stream).await?;
        let response = line.sender.send_request(request).await.map_err(broken)?;
        Ok(Coming { response, _line: line })
    }

    /// Returns the status and the headers of the answer.
    pub fn head(&self) -> (StatusCode, &HeaderMap) {
        (self.response.status(), self.response.headers())
    }

    /// All of it.
    pub async fn whole(self) -> Answer<(StatusCode, HeaderMap, Bytes)> {
        whole(self.response).await
    }
}

/// The whole answer.
async fn whole(response: Response<Incoming>) -> Answer<(StatusCode, HeaderMap, Bytes)> {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok((status, headers, body.map_err(broken)?.to_bytes()))
}

/// Longest answer: some 100,000 datasets.
const ANSWER_BYTES_MAX: usize = 64 << 20;
