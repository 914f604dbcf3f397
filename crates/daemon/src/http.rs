//! The API over HTTP, and the Unix socket that it is reached by. The routes stand in [`routes`].
//!
//! Failures are an [`ApiError`] with status 400 (makes no sense), 401 (over TCP, without a token),
//! 403 (the token's role is too small), 404, 409 (conflict), 422 (refused without force), 428 (it
//! waits for a second person), 500.
//!
//! Invariants:
//! - The socket is its owner's alone from the moment it exists.
//! - Each request has a [`Caller`], and no handler runs without one that may ask for it ([`gate`]).
//! - An act that was begun is carried out, also if the client hangs up, and is logged ([`gate`]).

mod acts;
mod asked;
mod gate;
mod home;
mod operations;
mod routes;

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream};
use std::path::Path as FilePath;
use std::sync::Arc;

use aquifer_admin::Control;
use aquifer_api::{ApiError, ErrorKind};
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{FromRef, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use axum::{Extension, Json};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tokio::net::UnixListener;
use tokio::runtime::Handle;

use crate::caller::Caller;
use crate::remote::tokens::Tokens;
pub(crate) use asked::Body;
pub use routes::{Route, router, routes};

/// State behind the API.
#[derive(Debug, Clone)]
pub struct Api {
    /// The daemon.
    pub control: Arc<Control>,
    /// Tokens of those who may ask the daemon over TCP.
    pub tokens: Arc<Tokens>,
    /// The thread on which requests are carried out, if not on that of their connection: what they
    /// start must not have its priority.
    pub home: Option<Handle>,
}

impl FromRef<Api> for Arc<Control> {
    fn from_ref(api: &Api) -> Self {
        Arc::clone(&api.control)
    }
}

impl FromRef<Api> for Arc<Tokens> {
    fn from_ref(api: &Api) -> Self {
        Arc::clone(&api.tokens)
    }
}

/// Answers requests until `stop` completes, and then those that have begun.
///
/// # Errors
/// What the socket gives.
pub async fn serve(
    listener: StdListener,
    api: Api,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let service = router(api).layer(from_fn(know_user));
    let service = service.into_make_service_with_connect_info::<Peer>();
    axum::serve(listener, service).with_graceful_shutdown(stop).await
}

/// Binds the API's socket, mode 0600, in a directory that is made if there is none. A socket that
/// a daemon left behind is replaced, one that is answered is not.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if a daemon answers there, and what the system says.
pub fn bind(path: &FilePath) -> io::Result<StdListener> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    }
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "is there, and no socket"));
        }
        if UnixStream::connect(path).is_ok() {
            let why = "another daemon answers there; stop it first, or use another --api-socket";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        fs::remove_file(path)?;
    }
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The name gets the socket's mode (unix(7)), so that it is its owner's from the first moment.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(StdListener::from(socket))
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The user at the other end of a connection (SO_PEERCRED).
#[derive(Debug, Clone, Copy)]
struct Peer(Option<u32>);

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Peer(stream.io().peer_cred().ok().map(|user| user.uid()))
    }
}

async fn know_user(
    ConnectInfo(Peer(uid)): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(uid) = uid else {
        return refusal(ApiError::unauthorized("the kernel does not say whose call this is"));
    };
    request.extensions_mut().insert(Caller::of_socket(uid));
    next.run(request).await
}

/// Among the extensions of an answer: the question was about what lies outside the datasets for
/// which the caller's token counts.
#[derive(Debug, Clone)]
struct Outside(ApiError);

/// Makes the answer to a request that is not carried out.
pub fn refusal(error: ApiError) -> Response {
    let status = match error.kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::Refused => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorKind::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NeedsSecond => StatusCode::PRECONDITION_REQUIRED,
    };
    let outside = error.is_outside.then(|| Extension(Outside(error.clone())));
    (status, outside, Json(error)).into_response()
}
