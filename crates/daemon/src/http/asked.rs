//! Extractors for the parts of a request: its path, its query and its body. Errors are those of the
//! API.

use std::sync::Arc;

use aquifer_admin::Control;
use aquifer_admin::control::{MayLetIn, Scope};
use aquifer_api::{self as api, ApiError, Method, Role};
use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::DeserializeOwned;

use super::{Api, refusal};
use crate::caller::{Caller, Who};
use crate::remote::tokens::Tokens;

/// A request, of all its parts.
pub(super) struct Asked<R>(pub R);

impl<R: api::ApiRequest, S: Send + Sync> FromRequest<S> for Asked<R> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let name = match R::PATH.contains("{name}") {
            true => Name::from_request_parts(&mut parts, state).await?.0,
            false => String::new(),
        };
        let content = match (R::no_content(), R::METHOD) {
            (Some(none), _) => none,
            (None, Method::Get) => Question::from_request_parts(&mut parts, state).await?.0,
            (None, Method::Post) => {
                Body::from_request(Request::from_parts(parts, body), state).await?.0
            }
        };
        Ok(Asked(R::of_parts(name, content)))
    }
}

/// The caller of a request, with the state that answers need.
pub(super) struct Asking {
    pub control: Arc<Control>,
    pub tokens: Arc<Tokens>,
    pub caller: Caller,
}

impl Asking {
    /// The datasets for which the caller counts.
    pub fn scope(&self) -> &Scope {
        self.caller.scope()
    }

    /// Whether what it asks for may let hosts in.
    pub fn may_let_in(&self) -> MayLetIn {
        MayLetIn(self.caller.role() >= Role::Admin)
    }

    /// Whether one at this machine asks.
    pub fn is_here(&self) -> bool {
        matches!(self.caller.who(), Who::User(_))
    }
}

impl FromRequestParts<Api> for Asking {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Asking, Response> {
        let caller = caller_of(parts)?;
        let (control, tokens) = (Arc::clone(&api.control), Arc::clone(&api.tokens));
        Ok(Asking { control, tokens, caller })
    }
}

/// The caller of a request, whom the connection put there.
pub(super) fn caller_of(parts: &Parts) -> Result<Caller, Response> {
    let caller = parts.extensions.get::<Caller>().cloned();
    caller.ok_or_else(|| refusal(ApiError::failed("the daemon has a bug: no caller")))
}

/// The name in a path.
pub(super) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Name(name)),
            Err(rejection) => Err(refusal(ApiError::invalid(rejection.body_text()))),
        }
    }
}

/// A JSON body.
pub(crate) struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        match Json::from_request(request, state).await {
            Ok(Json(body)) => Ok(Body(body)),
            Err(rejection) => Err(refusal(ApiError::invalid(rejection.body_text()))),
        }
    }
}

/// A query.
pub(super) struct Question<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Question<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Question(query)),
            Err(rejection) => Err(refusal(ApiError::invalid(rejection.body_text()))),
        }
    }
}
