//! The API over TCP, for who administers from another machine: TLS and a token, or nothing.
//!
//! Invariants:
//! - Nothing of the API is reached without the token, and no token travels but inside TLS 1.3.
//! - A client that does not come to the end of its handshake holds nobody else up, and there are
//!   at most [`CONNECTIONS_MAX`] connections.

pub mod keys;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::api::ApiError;
use crate::control::Control;
use crate::http::router;
use keys::Keys;

/// Connections at a time, handshakes included.
pub const CONNECTIONS_MAX: usize = 128;

/// For a TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// After an accept that failed: of descriptors there will be some again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens on every address, none of which may be taken.
///
/// # Errors
/// What the system gives, with the address.
pub fn bind(addresses: &[SocketAddr]) -> io::Result<Vec<StdListener>> {
    let bound = addresses.iter().map(|address| {
        let listener = StdListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
    });
    bound.collect()
}

/// Answers who knows the token, until `stop` completes, and then those that have begun.
///
/// # Errors
/// What the sockets give.
pub async fn serve(
    listeners: Vec<StdListener>,
    keys: Keys,
    control: Arc<Control>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let router = guarded(router(control), keys.token);
    let listener = TlsListener::start(listeners, TlsAcceptor::from(keys.tls))?;
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

/// The routes, for requests that carry the token.
fn guarded(router: Router, token: String) -> Router {
    router.layer(from_fn_with_state(Arc::<str>::from(token), require_token))
}

async fn require_token(State(token): State<Arc<str>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
        return next.run(request).await;
    }
    tracing::warn!(path = request.uri().path(), "the API was asked without its token");
    ApiError::unauthorized("this is not the token of this daemon").into_response()
}

/// Connections whose handshake is over.
struct TlsListener {
    ready: mpsc::Receiver<(Connection, SocketAddr)>,
    first: SocketAddr,
}

impl TlsListener {
    fn start(listeners: Vec<StdListener>, acceptor: TlsAcceptor) -> io::Result<TlsListener> {
        let (send, ready) = mpsc::channel(1);
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut first = None;
        for listener in listeners {
            first = first.or(listener.local_addr().ok());
            let listener = TcpListener::from_std(listener)?;
            tokio::spawn(accept(listener, acceptor.clone(), Arc::clone(&room), send.clone()));
        }
        let first = first.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        Ok(TlsListener { ready, first })
    }
}

/// Accepts until nobody takes the connections any more.
async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    room: Arc<Semaphore>,
    ready: mpsc::Sender<(Connection, SocketAddr)>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ready.closed() => return,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            tracing::warn!(%peer, "too many connections to the API");
            continue;
        };
        let (acceptor, ready) = (acceptor.clone(), ready.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_PATIENCE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    // Nobody takes it: the daemon stops.
                    let _ = ready.send((Connection { stream, _permit: permit }, peer)).await;
                }
                Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS with the API's client"),
                Err(_) => tracing::debug!(%peer, "the API's client was too slow for TLS"),
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // Only when every acceptor has panicked: there will be no other connection.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.first)
    }
}

/// A connection, which counts as one until it is dropped.
struct Connection {
    stream: TlsStream<TcpStream>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
