//! Extractors for the parts of a request: its path, its query and its body. Errors are those of the
//! API.

use aquifer_api::ApiError;
use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::DeserializeOwned;

use super::refusal;

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
