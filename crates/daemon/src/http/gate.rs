//! The gate before each handler: the role that its route needs, whether it judges the datasets for
//! which a token counts, and the log of what is done.

use std::sync::Arc;

use aquifer_admin::Control;
use aquifer_admin::control::history::Concerned;
use aquifer_api::{ApiError, Role};
use aquifer_pool::BoxFuture;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Outside, refusal};
use crate::caller::Caller;

/// A route's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gate {
    /// Least role that a caller must have.
    pub role: Role,
    /// Whether callers who may only receive may ask for it too.
    pub is_of_receivers: bool,
    /// Whether callers who may only send may ask for it too.
    pub is_of_senders: bool,
    /// A token that counts for some datasets alone may ask for it: what it names is judged.
    pub is_of_scoped: bool,
    /// It changes something.
    pub is_act: bool,
}

/// Lets a caller through who may ask for this.
pub(super) async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        tracing::error!(class = "daemon.bug", "a request came to the API without a caller");
        return bug();
    };
    let is_beside = match caller.role() {
        Role::Receive => gate.is_of_receivers,
        Role::Send => gate.is_of_senders,
        _ => false,
    };
    if let Err(refused) = caller.needs(gate.role)
        && !is_beside
    {
        forbidden(&caller, &request, (gate, &refused));
        return refusal(refused);
    }
    if !gate.is_of_scoped && !caller.scope().is_all() {
        let refused = caller.scope().refused();
        forbidden(&caller, &request, (gate, &refused));
        return refusal(refused);
    }
    match gate.is_act {
        true => carry_out(caller, request, next).await,
        // Nothing lies outside.
        false if caller.scope().is_all() => next.run(request).await,
        false => answer(caller, request, next).await,
    }
}

/// Answers a question of a token that counts for some datasets. One about what lies outside has an
/// audit line, though the caller hears no more than that there is nothing.
async fn answer(caller: Caller, request: Request, next: Next) -> Response {
    let control = request.extensions().get::<Arc<Control>>().cloned();
    let asked = format!("{} {}", request.method(), request.uri());
    let response = next.run(request).await;
    if let (Some(Outside(refused)), Some(control)) = (response.extensions().get(), control) {
        control.audit_refused(caller.asker(), asked, refused);
    }
    response
}

/// Notes what the caller may not ask for. What was in its body is not looked at.
fn forbidden(caller: &Caller, request: &Request, (gate, refused): (Gate, &ApiError)) {
    let Some(control) = request.extensions().get::<Arc<Control>>() else { return };
    let act = format!("{} {}", request.method(), request.uri().path());
    match gate.is_act {
        true => control.note_forbidden(&Concerned::All, caller.asker(), act, refused),
        false => control.audit_refused(caller.asker(), act, refused),
    }
}

/// Carries out an act in a task of its own, and logs it: whoever hangs up leaves nothing half done,
/// and nothing unlogged.
///
/// The answer may come before the end: see [`Early`].
async fn carry_out(caller: Caller, mut request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (early, answered_early) = Early::new();
    request.extensions_mut().insert(early);
    let act: BoxFuture<'static, Response> = Box::pin(async move {
        let response = match tokio::spawn(next.run(request)).await {
            Ok(response) => response,
            Err(error) => {
                tracing::error!(%error, "an act of the administrator panicked");
                bug()
            }
        };
        let status = response.status().as_u16();
        tracing::info!(class = "api.act", %caller, %method, path, status, "an act was asked for");
        response
    });
    let act = tokio::spawn(act);
    let early = async {
        match answered_early.await {
            Ok(response) => response,
            // There is none.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        response = act => response.unwrap_or_else(|_| bug()),
        response = early => response,
    }
}

/// The way to answer an act that goes on, among a request's extensions.
#[derive(Debug, Clone)]
pub(super) struct Early(Arc<Mutex<Option<oneshot::Sender<Response>>>>);

impl Early {
    fn new() -> (Early, oneshot::Receiver<Response>) {
        let (answer, answered) = oneshot::channel();
        (Early(Arc::new(Mutex::new(Some(answer)))), answered)
    }

    /// Answers now.
    pub fn answer(&self, response: Response) {
        if let Some(answer) = self.0.lock().take() {
            // Who asked may have hung up.
            let _ = answer.send(response);
        }
    }
}

fn bug() -> Response {
    refusal(ApiError::failed("the daemon has a bug; its log says more"))
}
