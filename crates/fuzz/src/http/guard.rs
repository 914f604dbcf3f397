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
        (&Method::GET, "/events") if waits => refuse("nobody waits here"),
        (&Method::GET | &Method::HEAD, _) => next.run(request).await,
        (&Method::POST, path) if PASSES.contains(&path) => next.run(request).await,
        (&Method::POST, "/pools") => read::<api::CreatePool>(request).await,
        (&Method::POST, "/import") => read::<api::ImportRequest>(request).await,
        (&Method::POST, "/scan") => read::<api::ScanRequest>(request).await,
        (&Method::POST, "/pools/tank/add") => read::<api::AddVdevs>(request).await,
        (&Method::POST, "/pools/tank/replace") => read::<api::ReplaceDisk>(request).await,
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

/// Acts on datasets and locks, and one that clears a notice of a loss.
const PASSES: [&str; 19] = [
    "/datasets",
    "/datasets/set",
    "/datasets/destroy",
    "/datasets/clear",
    "/datasets/rename",
    "/snapshots",
    "/snapshots/rename",
    "/datasets/rollback",
    "/datasets/clone",
    "/datasets/promote",
    "/snapshots/destroy",
    "/snapshots/hold",
    "/snapshots/release",
    "/locks/clear",
    "/pools/tank/clear",
    "/send",
    "/receive",
    "/receive/0",
    "/receive/0/end",
];
