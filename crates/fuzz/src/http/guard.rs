//! Keeps requests away from the disks of the machine that runs the target.

use aquifer_api::{self as api, ApiError, EventQuery};
use aquifer_daemon::http::refusal;
use axum::Json;
use axum::extract::{FromRequest, Query, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use serde::de::DeserializeOwned;

/// Passes requests that are known to open no disk. All routes that open disks are POSTs. A path is
/// compared literally, as the router does.
pub async fn guard(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let waits = Query::<EventQuery>::try_from_uri(request.uri()).is_ok_and(|of| of.wait_ms > 0);
    match (request.method(), path.as_str()) {
        (&Method::GET, "/v1/events") if waits => refuse("nobody waits here"),
        (&Method::GET | &Method::HEAD, _) => next.run(request).await,
        (&Method::POST, path) if PASSES.contains(&path) => next.run(request).await,
        (&Method::POST, "/v1/pools") => read::<api::CreatePool>(request).await,
        (&Method::POST, "/v1/import") => read::<api::ImportRequest>(request).await,
        (&Method::POST, "/v1/scan") => read::<api::ScanRequest>(request).await,
        (&Method::POST, "/v1/pools/tank/add") => read::<api::AddVdevs>(request).await,
        (&Method::POST, "/v1/pools/tank/replace") => read::<api::ReplaceDisk>(request).await,
        (&Method::POST, _) => refuse("it may open disks"),
        (_, _) => next.run(request).await,
    }
}

/// Parses the body as the route would, and does nothing.
async fn read<T: DeserializeOwned>(request: Request) -> Response {
    match Json::<T>::from_request(request, &()).await {
        Ok(_) => refuse("it opens disks"),
        Err(why) => refusal(ApiError::invalid(why.body_text())),
    }
}

fn refuse(why: &str) -> Response {
    refusal(ApiError::invalid(why))
}

/// Acts on datasets and locks, replication without peers, which nobody carries out, and one that
/// clears a notice of a loss.
const PASSES: [&str; 27] = [
    "/v1/bookmarks",
    "/v1/bookmarks/destroy",
    "/v1/datasets",
    "/v1/datasets/set",
    "/v1/datasets/destroy",
    "/v1/datasets/clear",
    "/v1/datasets/rename",
    "/v1/snapshots",
    "/v1/snapshots/rename",
    "/v1/datasets/rollback",
    "/v1/datasets/clone",
    "/v1/datasets/promote",
    "/v1/snapshots/destroy",
    "/v1/snapshots/hold",
    "/v1/snapshots/release",
    "/v1/locks/clear",
    "/v1/pools/tank/clear",
    "/v1/send",
    "/v1/replicate",
    "/v1/replicate/stop",
    "/v1/receive",
    "/v1/receive/0",
    "/v1/receive/0/end",
    "/v1/receives/give-up",
    "/v1/pull/take",
    "/v1/pull/settle",
    "/v1/pull/prune",
];
