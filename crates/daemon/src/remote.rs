//! The API over TCP, for who administers from another machine: TLS and a token, or nothing.
//!
//! Invariants:
//! - Nothing of the API is reached without a token, or the cookie that a browser got for one
//!   ([`page`]), and neither travels but inside TLS 1.3.
//! - Who shows no token holds nobody else up: see [`guests`]. A connection on which nothing moves
//!   is closed.
//! - Tokens and certificate are those of the moment: each request is judged by what holds when it
//!   comes, each connection shown the certificate that is there then.
//! - A token that is bound to a client's certificate counts only where the connection has proved
//!   its key: see [`proof`]. Clients are asked for one only while there is such a token: browsers
//!   that have certificates ask people which to show.

mod certificate;
mod guests;
pub mod keys;
mod page;
mod proof;
mod secret;
mod sessions;
pub mod tokens;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use aquifer_admin::{Control, Parts};
use aquifer_api::time::now_s;
use aquifer_api::{ApiError, Problem, Severity, codes};
use aquifer_audit::{Entry, Kind};
use aquifer_nfs::site;
use axum::Router;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::caller::Caller;
use crate::http::{Api, refusal, router};
use certificate::Certificate;
use guests::{Guest, Guests, Place};
use keys::Keys;
use proof::Proof;
use sessions::Sessions;
use tokens::{Shown, Tokens};

/// How long connections may take.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// From the beginning of the handshake until a request has shown a token.
    token: Duration,
    /// Without a byte in either direction: longer than the API lets who waits for events wait.
    idle: Duration,
    /// Before a wrong token is answered.
    wrong: Duration,
}

const PATIENCE: Patience = Patience {
    token: Duration::from_secs(10),
    idle: Duration::from_secs(75),
    wrong: Duration::from_secs(1),
};

/// Between two looks at the certificate, beside those of connections.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// After an accept that failed: of descriptors there will be some again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where the API is to be reached over TCP, and with which keys.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Its addresses.
    pub listen: Vec<SocketAddr>,
    /// Further names in its certificate.
    pub names: Vec<String>,
    /// The directory of its keys.
    pub keys: PathBuf,
}

impl Remote {
    fn keys(&self) -> Result<Keys, Problem> {
        let addresses: Vec<IpAddr> = self.listen.iter().map(SocketAddr::ip).collect();
        Keys::open(&self.keys, &self.names, &addresses).map_err(|error| {
            let status = format!("The API does not answer on TCP: {error}.");
            let action = "Mend the file, or remove certificate and key: a new pair is then made. \
                          They are read again within seconds.";
            Problem::new(codes::API_NOT_SERVED, Severity::Error, status, Some(action.into()))
        })
    }
}

fn bind(address: SocketAddr) -> Result<StdListener, Problem> {
    let bound = StdListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        let status = format!("The API does not answer on {address}: {error}.");
        let action = format!(
            "It is tried again by itself. `ss -tlnp 'sport = :{}'` shows what has the port, `ip \
             addr` whether the address is there.",
            address.port()
        );
        Problem::new(codes::API_NOT_SERVED, Severity::Error, status, Some(action))
    })
}

/// Answers who knows a token, until `stop` completes, and then those that have begun. Keys and
/// addresses that cannot be used are tried again; `tried` is dropped when all were tried once.
///
/// # Errors
/// What the sockets give.
pub async fn serve(
    remote: Remote,
    api: Api,
    parts: Arc<Parts>,
    tried: oneshot::Sender<()>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let stop = stop.shared();
    let mut tried = Some(tried);
    let open = || remote.keys().inspect_err(|_| drop(tried.take()));
    let Remote { listen, .. } = remote.clone();
    let keys = tokio::select! {
        keys = parts.until("api keys", open) => keys,
        () = stop.clone() => return Ok(()),
    };
    let certificate = Arc::new(keys.certificate);
    let door = Door::new(Arc::clone(&api.tokens), PATIENCE);
    let door = Door { control: Some(Arc::clone(&api.control)), ..door };
    let doorway = |address: SocketAddr| -> Doorway {
        let (parts, mut first) = (Arc::clone(&parts), Some(bind(address)));
        Box::pin(async move {
            let attempt = || first.take().unwrap_or_else(|| bind(address));
            let listener = parts.until(&format!("api {address}"), attempt).await;
            tracing::info!(%address, "the API answers on TCP");
            listener
        })
    };
    let doorways = listen.into_iter().map(doorway).collect();
    drop(tried);
    let serving = serve_with(doorways, Arc::clone(&certificate), router(api), door, stop);
    tokio::select! {
        served = serving => served,
        never = look_after(&certificate, &parts) => match never {},
    }
}

/// Notes whether the certificate can be used, as long as it is polled.
async fn look_after(certificate: &Certificate, parts: &Parts) -> Infallible {
    loop {
        let problem = certificate.problem().map(|why| {
            let status = format!("The API goes on with its certificate from before: {why}.");
            let action = "Mend the file: it is read again at once.".to_string();
            Problem::new(codes::API_NOT_SERVED, Severity::Error, status, Some(action))
        });
        parts.note("api certificate", problem);
        sleep(LOOK_EVERY).await;
    }
}

/// Ready when an address can be listened on.
type Doorway = Pin<Box<dyn Future<Output = StdListener> + Send>>;

async fn serve_with(
    doorways: Vec<Doorway>,
    certificate: Arc<Certificate>,
    router: Router,
    door: Door,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let router = router.layer(from_fn_with_state(door.clone(), require_token));
    let router = router.merge(page::router(door.clone())).layer(from_fn(page::protect));
    let listener = TlsListener::start(doorways, &certificate, &door);
    let service = router.into_make_service_with_connect_info::<Visitor>();
    axum::serve(listener, service).with_graceful_shutdown(stop).await
}

/// The door between the network and the API.
#[derive(Clone, Debug)]
struct Door {
    tokens: Arc<Tokens>,
    sessions: Arc<Sessions>,
    guests: Arc<Guests>,
    patience: Patience,
    /// For the audit.
    control: Option<Arc<Control>>,
}

impl Door {
    fn new(tokens: Arc<Tokens>, patience: Patience) -> Door {
        let sessions = Arc::new(Sessions::open(tokens.directory()));
        Door { tokens, sessions, guests: Arc::default(), patience, control: None }
    }

    /// Finds out who sends a request, by token or by cookie.
    ///
    /// # Errors
    /// A browser sends it that is not logged in, or not for the page. Nobody guesses that way, so
    /// the answer does not wait.
    fn look(&self, request: &Request, proof: Proof) -> Result<Shown, ApiError> {
        let now_s = now_s();
        if let Some(given) = request.headers().get(AUTHORIZATION) {
            let token = given.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
            return Ok(self.tokens.look(token.unwrap_or_default(), proof, now_s));
        }
        let Some(cookie) = page::cookie(request) else {
            return match request.headers().contains_key(page::OWN_HEADER) {
                true => Err(ApiError::unauthorized("log in with a token")),
                false => Ok(Shown::Nothing),
            };
        };
        page::check_origin(request)?;
        let token = self.sessions.token_of(cookie, now_s);
        let shown = token.map(|token| self.tokens.look_hash(&token, proof, now_s));
        match shown.filter(|shown| *shown != Shown::Nothing) {
            Some(shown) => Ok(shown),
            None => Err(ApiError::unauthorized("this session has ended; log in again")),
        }
    }

    /// Refuses who shows no token that is valid, and tells the log and the audit.
    async fn refuse(&self, shown: &Shown, from: &Visitor, path: &str) -> Response {
        let (peer, proof) = (from.guest.address, from.proof.text());
        let why = self.why_not(shown, (peer, &proof), path);
        self.audit(shown, peer, (path, why));
        // Who guesses has few guesses.
        sleep(self.patience.wrong).await;
        let mut response = refusal(ApiError::unauthorized(why));
        if let Shown::Unproven { .. } = shown {
            // This connection has no other proof; the next one may have been asked for it.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn why_not(&self, shown: &Shown, (peer, proof): (IpAddr, &str), path: &str) -> &'static str {
        match shown {
            Shown::Unproven { name } => {
                if self.guests.is_told(peer, name) {
                    tracing::warn!(
                        class = "api.refused", %peer, token = &**name, path, certificate = proof,
                        "the API was asked with a token that is bound to another certificate than \
                         the client showed, if it showed any"
                    );
                }
                match proof.is_empty() {
                    true => {
                        "this token counts only with a certificate of its client, and none was \
                             shown"
                    }
                    false => {
                        "this token is bound to another certificate than the one that was \
                              shown"
                    }
                }
            }
            Shown::Expired { name } => {
                self.tell(peer, name, path, "the API was asked with a token that has expired");
                "this token has expired"
            }
            Shown::Nothing | Shown::Token { .. } => {
                self.tell(peer, "", path, "the API was asked without a token of this daemon");
                "this is not the token of this daemon"
            }
        }
    }

    fn audit(&self, shown: &Shown, peer: IpAddr, (path, why): (&str, &str)) {
        let who = match shown {
            Shown::Unproven { name } | Shown::Expired { name } => format!("token {name}"),
            Shown::Nothing | Shown::Token { .. } => String::new(),
        };
        // Who has no token counts by the site: a machine may have as many addresses as it likes.
        let from = if who.is_empty() { site(peer) } else { peer };
        let (kind, outcome) = (Kind::Refused, "unauthorized".into());
        let (from, act, why) = (from.to_string(), path.into(), why.into());
        if let Some(control) = &self.control {
            control.audit().note(Entry { kind, who, from, act, outcome, why, ..Entry::default() });
        }
    }

    /// Logs that a request was refused, so often as is good for the log.
    fn tell(&self, peer: IpAddr, token: &str, path: &str, why: &str) {
        if self.guests.is_told(peer, token) {
            tracing::warn!(class = "api.refused", %peer, token, path, "{why}");
        }
    }
}

/// By which connection a request came.
#[derive(Clone, Debug)]
struct Visitor {
    guest: Arc<Guest>,
    proof: Proof,
}

impl Connected<IncomingStream<'_, TlsListener>> for Visitor {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        let Connection { place, proof, .. } = stream.io();
        Visitor { guest: Arc::clone(&place.guest), proof: *proof }
    }
}

async fn require_token(
    State(door): State<Door>,
    ConnectInfo(visitor): ConnectInfo<Visitor>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = visitor.guest.address;
    let path = request.uri().path().to_owned();
    let (name, rights) = match door.look(&request, visitor.proof) {
        Ok(Shown::Token { name, rights }) => (name, rights),
        Ok(shown) => return door.refuse(&shown, &visitor, &path).await,
        Err(refused) => return refusal(refused),
    };
    door.guests.know(&visitor.guest, &name, rights.role);
    request.extensions_mut().insert(Caller::of_token(Arc::clone(&name), rights, peer));
    let response = next.run(request).await;
    if response.status() == StatusCode::FORBIDDEN {
        door.tell(peer, &name, &path, "a token's rights are too small for what was asked");
    }
    response
}

/// Connections whose handshake is over.
struct TlsListener {
    ready: mpsc::Receiver<(Connection, SocketAddr)>,
}

impl TlsListener {
    fn start(doorways: Vec<Doorway>, certificate: &Arc<Certificate>, door: &Door) -> TlsListener {
        let (send, ready) = mpsc::channel(1);
        for doorway in doorways {
            tokio::spawn(accept(doorway, Arc::clone(certificate), door.clone(), send.clone()));
        }
        TlsListener { ready }
    }
}

/// Accepts until nobody takes the connections any more.
async fn accept(
    doorway: Doorway,
    certificate: Arc<Certificate>,
    door: Door,
    ready: mpsc::Sender<(Connection, SocketAddr)>,
) {
    let listener = tokio::select! {
        listener = doorway => listener,
        () = ready.closed() => return,
    };
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the API cannot accept connections"),
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ready.closed() => return,
        };
        let Ok((stream, peer)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(place) = door.guests.enter(peer.ip()) else {
            if door.guests.is_told(peer.ip(), "") {
                tracing::warn!(class = "api.refused", %peer, "too many connections to the API");
            }
            continue;
        };
        let acceptor = TlsAcceptor::from(certificate.current(door.tokens.are_bound()));
        let (ready, door) = (ready.clone(), door.clone());
        tokio::spawn(async move {
            let patience = door.patience;
            let end = Instant::now() + patience.token;
            let gone = poll_fn(|cx| place.guest.poll_gone(cx));
            let shaken = tokio::select! {
                shaken = timeout_at(end, acceptor.accept(stream)) => shaken,
                () = gone => return,
            };
            match shaken {
                Ok(Ok(stream)) => {
                    let (timer, idle) = (Box::pin(sleep_until(end)), patience.idle);
                    let (moved, proof) = (Instant::now(), Proof::of(stream.get_ref().1));
                    let connection = Connection { stream, place, proof, timer, idle, moved };
                    // Nobody takes it: the daemon stops.
                    let _ = ready.send((connection, peer)).await;
                }
                Ok(Err(error)) if proof::is_of_certificate(&error) => {
                    if door.guests.is_told(peer.ip(), "") {
                        tracing::warn!(
                            class = "api.refused", %peer, %error,
                            "a client showed the API a certificate that cannot be used"
                        );
                    }
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
        // Of several; nobody asks.
        Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)))
    }
}

/// A connection, which has its place until it is dropped.
struct Connection {
    stream: TlsStream<TcpStream>,
    place: Place,
    proof: Proof,
    timer: Pin<Box<Sleep>>,
    idle: Duration,
    /// When a byte moved last.
    moved: Instant,
}

impl Connection {
    /// Ready when its time is over, or others need its place.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.place.guest.poll_gone(cx).is_ready() {
            return Poll::Ready(io::Error::from(io::ErrorKind::ConnectionAborted));
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let until = self.moved + self.idle;
            if !self.place.guest.is_known() || until <= Instant::now() {
                return Poll::Ready(io::Error::from(io::ErrorKind::TimedOut));
            }
            self.timer.as_mut().reset(until);
        }
        Poll::Pending
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(over) = self.poll_over(cx) {
            return Poll::Ready(Err(over));
        }
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        self.moved = Instant::now();
        self.place.guest.is_heard();
        Poll::Ready(read)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(over) = self.poll_over(cx) {
            return Poll::Ready(Err(over));
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf));
        self.moved = Instant::now();
        self.place.guest.is_heard();
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
