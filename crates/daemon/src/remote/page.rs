//! The page: what a browser loads, how it logs in, and by what its requests are known.
//!
//! # Why no other site can act
//! A browser sends the cookie along with whatever asks for this address, also if another site made
//! it ask. So three things stand in the way, each of which is enough:
//! - The cookie is `SameSite=Strict`: a browser leaves it out of what other sites ask for.
//! - A request by cookie that is no GET needs the header [`OWN_HEADER`]. Another site's script
//!   cannot set it: the browser would ask first (CORS), and nothing here answers that.
//! - Where the browser says where a request comes from (`Sec-Fetch-Site`), it must come from here.
//!
//! No GET changes anything. Requests with a token in `Authorization` are no browser's by
//! themselves, and need none of this.
//!
//! # Why the page runs no script but its own
//! The [policy](POLICY) allows scripts and styles from here alone, none inside of HTML, no frames,
//! no forms elsewhere. Texts become text nodes, never HTML, and `require-trusted-types-for` makes
//! the browser refuse what would.
//!
//! Invariant: what is served without a token is the same for everybody, and was compiled in.

mod files;

#[cfg(test)]
pub(super) use files::served;

use aquifer_api::time::now_s;
use aquifer_api::{ApiError, LogIn, Role};
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequest, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HeaderName, REFERRER_POLICY, SET_COOKIE,
    STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::secret::Hash;
use super::tokens::Shown;
use super::{Door, Visitor};
use crate::caller::Caller;
use crate::http::{Body, refusal};

/// Header that the page sends with each request: see the head of this file.
pub(super) const OWN_HEADER: &str = "x-aquifer-page";

/// Returns the routes that are served without a token.
pub(super) fn router(door: Door) -> Router {
    let log_in = post(log_in).layer(DefaultBodyLimit::max(LOG_IN_BYTES_MAX));
    Router::new()
        .route("/", get(files::index))
        .route("/page/{*path}", get(files::file))
        .route("/v1/session", log_in)
        .route("/v1/session/end", post(log_out))
        .with_state(door)
}

/// The cookie of a request.
pub(super) fn cookie(request: &Request) -> Option<&str> {
    let headers = request.headers().get_all(COOKIE).iter();
    let texts = headers.filter_map(|value| value.to_str().ok());
    let mut cookies = texts.flat_map(|text| text.split(';')).map(str::trim);
    cookies.find_map(|cookie| cookie.strip_prefix(COOKIE_NAME)?.strip_prefix('='))
}

/// Whether a request may be known by its cookie.
///
/// # Errors
/// It would change something, and is not known to be the page's.
pub(super) fn check_origin(request: &Request) -> Result<(), ApiError> {
    if [Method::GET, Method::HEAD].contains(request.method()) {
        return Ok(());
    }
    let header = |name| request.headers().get(name);
    let from_here = header("sec-fetch-site").is_none_or(|site| site == "same-origin");
    match from_here && header(OWN_HEADER).is_some() {
        true => Ok(()),
        false => Err(ApiError::forbidden(
            "a browser sent this, and not the page of this server: nothing was done",
        )),
    }
}

/// Gives each answer what keeps a browser from doing more with it than it should.
pub(super) async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // No browser that has seen it once asks in the clear, which somebody else could answer.
    headers.insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    let same = HeaderValue::from_static("same-origin");
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), same.clone());
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), same);
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn log_in(
    State(door): State<Door>,
    ConnectInfo(visitor): ConnectInfo<Visitor>,
    request: Request,
) -> Response {
    if let Err(refused) = check_origin(&request) {
        return refusal(refused);
    }
    let path = request.uri().path().to_owned();
    let LogIn { token } = match Body::from_request(request, &()).await {
        Ok(Body(body)) => body,
        Err(refused) => return refused,
    };
    let (now_s, peer) = (now_s(), visitor.guest.address);
    let hash = Hash::of(token.trim().as_bytes());
    let (name, rights) = match door.tokens.look_hash(&hash, visitor.proof, now_s) {
        Shown::Token { name, rights } => (name, rights),
        shown => return door.refuse(&shown, &visitor, &path).await,
    };
    let caller = Caller::of_token(Arc::clone(&name), rights, peer);
    if let Err(refused) = caller.needs(Role::Read) {
        return refusal(refused);
    }
    if !caller.scope().is_all() {
        // The page shows pools.
        return refusal(caller.scope().refused());
    }
    door.guests.know(&visitor.guest, &name, caller.role());
    match door.sessions.begin(&hash, now_s) {
        Ok(cookie) => {
            tracing::info!(class = "api.session", %caller, "logged in on the page");
            set(&cookie, "")
        }
        Err(error) => refusal(ApiError::failed(error.to_string())),
    }
}

async fn log_out(State(door): State<Door>, request: Request) -> Response {
    if let Err(refused) = check_origin(&request) {
        return refusal(refused);
    }
    cookie(&request).iter().for_each(|cookie| door.sessions.end(cookie));
    set("", "; Max-Age=0")
}

/// Without an end of its own, it goes with the browser.
fn set(cookie: &str, end: &str) -> Response {
    let set = format!("{COOKIE_NAME}={cookie}; Path=/; Secure; HttpOnly; SameSite=Strict{end}");
    (StatusCode::OK, [(SET_COOKIE, set)], axum::Json(())).into_response()
}

/// The prefix makes browsers take it from this host over TLS alone.
const COOKIE_NAME: &str = "__Host-aquifer";

const LOG_IN_BYTES_MAX: usize = 4096;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'";
