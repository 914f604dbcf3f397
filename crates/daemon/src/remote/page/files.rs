//! The files of the page. They are in `crates/daemon/page`, as they are: nothing builds them.

use std::sync::LazyLock;

use aquifer_api::ApiError;
use axum::extract::{Path, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::http::refusal;
use crate::remote::secret::Hash;

/// A file, as it was when this was compiled.
struct File {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

impl File {
    const fn of(path: &'static str, content_type: &'static str, bytes: &'static [u8]) -> File {
        File { path, content_type, bytes }
    }
}

const FILES: [File; 22] = [
    File::of("index.html", HTML, include_bytes!("../../../page/index.html")),
    File::of("app.css", CSS, include_bytes!("../../../page/app.css")),
    File::of("icon.svg", SVG, include_bytes!("../../../page/icon.svg")),
    File::of("app.js", JS, include_bytes!("../../../page/app.js")),
    File::of("charts.js", JS, include_bytes!("../../../page/charts.js")),
    File::of("dom.js", JS, include_bytes!("../../../page/dom.js")),
    File::of("net.js", JS, include_bytes!("../../../page/net.js")),
    File::of("rates.js", JS, include_bytes!("../../../page/rates.js")),
    File::of("words.js", JS, include_bytes!("../../../page/words.js")),
    File::of("views/clients.js", JS, include_bytes!("../../../page/views/clients.js")),
    File::of("views/connect.js", JS, include_bytes!("../../../page/views/connect.js")),
    File::of("views/datasets.js", JS, include_bytes!("../../../page/views/datasets.js")),
    File::of("views/disks.js", JS, include_bytes!("../../../page/views/disks.js")),
    File::of("views/events.js", JS, include_bytes!("../../../page/views/events.js")),
    File::of("views/overview.js", JS, include_bytes!("../../../page/views/overview.js")),
    File::of("views/past.js", JS, include_bytes!("../../../page/views/past.js")),
    File::of("views/pools.js", JS, include_bytes!("../../../page/views/pools.js")),
    File::of("vendor/preact.js", JS, include_bytes!("../../../page/vendor/preact.js")),
    File::of("vendor/preact.LICENSE", TEXT, include_bytes!("../../../page/vendor/preact.LICENSE")),
    File::of("vendor/uplot.css", CSS, include_bytes!("../../../page/vendor/uplot.css")),
    File::of("vendor/uplot.js", JS, include_bytes!("../../../page/vendor/uplot.js")),
    File::of("vendor/uplot.LICENSE", TEXT, include_bytes!("../../../page/vendor/uplot.LICENSE")),
];

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

/// Tag of all files: a file that a browser keeps is right for as long as the files have this tag.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let all: Vec<u8> = FILES.iter().flat_map(|file| file.bytes).copied().collect();
    format!("\"{}\"", Hash::of(&all).text())
});

/// All files, and their content.
#[cfg(test)]
pub fn served() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    FILES.iter().map(|file| (file.path, file.bytes))
}

/// The page itself.
pub(super) async fn index(request: Request) -> Response {
    give("index.html", request.headers())
}

/// Serves a file that the page loads.
pub(super) async fn file(Path(path): Path<String>, request: Request) -> Response {
    give(&path, request.headers())
}

fn give(path: &str, headers: &HeaderMap) -> Response {
    let Some(file) = FILES.iter().find(|file| file.path == path) else {
        return refusal(ApiError::not_found("the page has no such file"));
    };
    // The browser asks each time, and mostly hears that nothing has changed.
    let kept = [(CACHE_CONTROL, "no-cache"), (ETAG, TAG.as_str())];
    if headers.get(IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == TAG.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    (kept, [(CONTENT_TYPE, file.content_type)], file.bytes).into_response()
}
