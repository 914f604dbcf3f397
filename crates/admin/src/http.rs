//! The API over HTTP: routes, and the Unix socket that they are reached by.
//!
//! ```text
//! GET  /daemon                  DaemonInfo
//! GET  /pools                   [PoolSummary]
//! GET  /pools/{name}            PoolStatus
//! POST /pools                   CreatePool     -> PoolCreated
//! POST /pools/{name}/export                    -> PoolDone
//! POST /pools/{name}/clear                     -> PoolDone
//! POST /pools/{name}/destroy    DestroyPool    -> PoolDone
//! POST /pools/{name}/add        AddVdevs       -> PoolCreated
//! POST /pools/{name}/remove     DiskRequest    -> PoolDone
//! POST /pools/{name}/replace    ReplaceDisk    -> PoolDone
//! POST /pools/{name}/offline    DiskRequest    -> PoolDone
//! POST /pools/{name}/online     DiskRequest    -> PoolDone
//! POST /scan                    ScanRequest    -> ScanResult
//! POST /import                  ImportRequest  -> PoolDone
//! GET  /locks                   LocksInfo
//! POST /locks/clear             ClearLocks -> ClearedLocks
//! GET  /datasets?name&recursive                -> [DatasetInfo]
//! POST /datasets                CreateDataset  -> DatasetDone
//! POST /datasets/set            SetProperties  -> DatasetDone
//! GET  /iostat?pool                            -> [PoolIo]
//! GET  /nfs                                    -> NfsStat
//! GET  /events?after&wait_ms                   -> [Event]
//! GET  /metrics                                -> text for Prometheus
//! GET  /shares                                 -> [ShareInfo]
//! GET  /shares/why?host&path                   -> ShareWhy
//! ```
//! Failures are an [`ApiError`] with status 400 (makes no sense), 401 (over TCP, without the
//! token), 404, 409 (conflict), 422 (refused without force), 500.
//!
//! Invariants:
//! - The socket is its owner's alone from the moment it exists.
//! - An act that was begun is carried out, also if the client hangs up.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream};
use std::path::Path as FilePath;
use std::sync::Arc;

use aquifer_pool::BoxFuture;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rustix::fs::Mode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;

use crate::api::{self, ApiError, DatasetQuery, ErrorKind, EventQuery, IoQuery, ShareQuery};
use crate::control::Control;
use crate::metrics;

/// All routes.
pub fn router(control: Arc<Control>) -> Router {
    Router::new()
        .route("/daemon", get(async |State(c): Control_| answer(Ok(c.info()))))
        .route("/pools", get(async |State(c): Control_| answer(Ok(c.pools()))).post(create_pool))
        .route("/pools/{name}", get(pool_status))
        .route("/pools/{name}/export", post(export_pool))
        .route("/pools/{name}/clear", post(clear_pool))
        .route("/pools/{name}/destroy", post(destroy_pool))
        .route("/pools/{name}/add", post(add_vdevs))
        .route("/pools/{name}/remove", post(remove_disk))
        .route("/pools/{name}/replace", post(replace_disk))
        .route("/pools/{name}/offline", post(offline_disk))
        .route("/pools/{name}/online", post(online_disk))
        .route("/locks", get(async |State(c): Control_| answer(Ok(c.locks().await))))
        .route("/locks/clear", post(clear_locks))
        .route("/scan", post(scan))
        .route("/import", post(import_pool))
        .route("/datasets", get(datasets).post(create_dataset))
        .route("/datasets/set", post(set_properties))
        .route("/datasets/destroy", post(destroy_dataset))
        .route("/datasets/clear", post(clear_damage))
        .route("/iostat", get(iostat))
        .route("/nfs", get(async |State(c): Control_| answer(Ok(c.nfs_stat().await))))
        .route("/events", get(events))
        .route("/metrics", get(metrics))
        .route("/shares", get(async |State(c): Control_| answer(Ok(c.shares()))))
        .route("/shares/why", get(share_why))
        .fallback(async || ApiError::not_found("the API has no such path"))
        .method_not_allowed_fallback(async || ApiError::invalid("this path does not do that"))
        .with_state(control)
}

/// Answers requests until `stop` completes, and then those that have begun.
///
/// # Errors
/// What the socket gives.
pub async fn serve(
    listener: StdListener,
    control: Arc<Control>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    axum::serve(listener, router(control)).with_graceful_shutdown(stop).await
}

/// Binds the API's socket, mode 0600, in a directory that is made if there is none. A socket that
/// a daemon left behind is replaced, one that is answered is not.
///
/// Must be called before threads are started: it sets the process's umask for a moment.
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
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = StdListener::bind(path);
    rustix::process::umask(before);
    bound
}

type Control_ = State<Arc<Control>>;

async fn create_pool(State(control): Control_, Body(request): Body<api::CreatePool>) -> Response {
    act(async move { control.create_pool(request).await }).await
}

async fn pool_status(State(control): Control_, Name(name): Name) -> Response {
    answer(control.pool_status(&name).await)
}

async fn export_pool(State(control): Control_, Name(name): Name) -> Response {
    act(async move { control.export_pool(&name).await }).await
}

async fn clear_pool(State(control): Control_, Name(name): Name) -> Response {
    act(async move { control.clear_pool(&name).await }).await
}

async fn destroy_pool(
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::DestroyPool>,
) -> Response {
    act(async move { control.destroy_pool(&name, request).await }).await
}

async fn add_vdevs(
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::AddVdevs>,
) -> Response {
    act(async move { control.add_vdevs(&name, request).await }).await
}

async fn remove_disk(
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::DiskRequest>,
) -> Response {
    act(async move { control.remove_disk(&name, request).await }).await
}

async fn replace_disk(
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::ReplaceDisk>,
) -> Response {
    act(async move { control.replace_disk(&name, request).await }).await
}

async fn offline_disk(
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::DiskRequest>,
) -> Response {
    act(async move { control.offline_disk(&name, request).await }).await
}

async fn online_disk(
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::DiskRequest>,
) -> Response {
    act(async move { control.online_disk(&name, request).await }).await
}

async fn scan(State(control): Control_, Body(request): Body<api::ScanRequest>) -> Response {
    act(async move { control.scan(request).await }).await
}

async fn import_pool(
    State(control): Control_,
    Body(request): Body<api::ImportRequest>,
) -> Response {
    act(async move { control.import_pool(request).await }).await
}

async fn datasets(
    State(control): Control_,
    query: Result<Query<DatasetQuery>, QueryRejection>,
) -> Response {
    match query {
        Ok(Query(query)) => answer(control.datasets(&query)),
        Err(rejection) => ApiError::invalid(rejection.body_text()).into_response(),
    }
}

async fn iostat(
    State(control): Control_,
    query: Result<Query<IoQuery>, QueryRejection>,
) -> Response {
    match query {
        Ok(Query(query)) => answer(control.iostat(&query)),
        Err(rejection) => ApiError::invalid(rejection.body_text()).into_response(),
    }
}

async fn share_why(
    State(control): Control_,
    query: Result<Query<ShareQuery>, QueryRejection>,
) -> Response {
    match query {
        Ok(Query(query)) => answer(control.share_why(query).await),
        Err(rejection) => ApiError::invalid(rejection.body_text()).into_response(),
    }
}

async fn events(
    State(control): Control_,
    query: Result<Query<EventQuery>, QueryRejection>,
) -> Response {
    match query {
        Ok(Query(query)) => answer(Ok(control.events_after(&query).await)),
        Err(rejection) => ApiError::invalid(rejection.body_text()).into_response(),
    }
}

async fn metrics(State(control): Control_) -> Response {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], control.metrics().await).into_response()
}

async fn create_dataset(
    State(control): Control_,
    Body(request): Body<api::CreateDataset>,
) -> Response {
    act(async move { control.create_dataset(request).await }).await
}

async fn set_properties(
    State(control): Control_,
    Body(request): Body<api::SetProperties>,
) -> Response {
    act(async move { control.set_properties(request).await }).await
}

async fn destroy_dataset(
    State(control): Control_,
    Body(request): Body<api::DestroyDataset>,
) -> Response {
    act(async move { control.destroy_dataset(request).await }).await
}

async fn clear_damage(State(control): Control_, Body(request): Body<api::ClearDamage>) -> Response {
    act(async move { control.clear_damage(request).await }).await
}

async fn clear_locks(State(control): Control_, Body(request): Body<api::ClearLocks>) -> Response {
    act(async move { control.clear_locks(&request) }).await
}

/// Carries out an act in a task of its own: whoever hangs up leaves nothing half done.
async fn act<T: Serialize + Send + 'static>(
    act: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Response {
    // One kind of task: the runtime is compiled anew for each.
    let act: BoxFuture<'static, Response> = Box::pin(async move { answer(act.await) });
    match tokio::spawn(act).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, "an act of the administrator panicked");
            ApiError::failed("the daemon has a bug; its log says more").into_response()
        }
    }
}

fn answer<T: Serialize>(result: Result<T, ApiError>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(error) => error.into_response(),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self.kind {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Refused => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorKind::Unauthorized => StatusCode::UNAUTHORIZED,
        };
        (status, Json(self)).into_response()
    }
}

/// The name in a path, whose errors are those of the API.
struct Name(String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Name(name)),
            Err(rejection) => Err(ApiError::invalid(rejection.body_text())),
        }
    }
}

/// A JSON body, whose errors are those of the API.
struct Body<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        match Json::from_request(request, state).await {
            Ok(Json(body)) => Ok(Body(body)),
            Err(rejection) => Err(ApiError::invalid(rejection.body_text())),
        }
    }
}
