//! Where requests are carried out.
//!
//! A connection of the API lives on a thread that yields to those of clients: it copies streams,
//! and hears strangers. What an act starts has the priority of the thread that starts it, such as
//! the thread of a pool. So acts are carried out at home, on the daemon's main thread.

use aquifer_api::ApiError;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::refusal;

/// The runtime of the main thread, among a request's extensions.
#[derive(Debug, Clone)]
pub(super) struct Home(pub Option<Handle>);

/// Work that ends when nobody waits for it any more, as it does without a thread of its own.
struct Awaited(JoinHandle<Response>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Carries out what is behind a gate.
pub(super) async fn at_home(request: Request, next: Next) -> Response {
    let home = request.extensions().get::<Home>().and_then(|home| home.0.clone());
    let Some(home) = home else { return next.run(request).await };
    let mut work = Awaited(home.spawn(next.run(request)));
    match (&mut work.0).await {
        Ok(response) => response,
        Err(error) => refusal(ApiError::failed(format!("the request came to no end: {error}"))),
    }
}
