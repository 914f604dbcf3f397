//! Routes of streams.

use std::time::Duration;

use aquifer_admin::Control;
use aquifer_admin::control::{Scope, is_of_replication};
use aquifer_api::send::{NEXT, PART_BYTES_MAX, SIZE};
use aquifer_api::{
    self as api, ApiError, GiveUpReceive, On, ReceiveEnd, ReceiveRequest, ReceivesQuery, Role,
};
use aquifer_files::Pieces;
use axum::RequestExt;
use axum::extract::{Extension, Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use tokio::time::timeout;

use super::super::asked::{Asked, Asking, Body, Name};
use super::table::Table;
use super::{Control_, answer, refusal};
use crate::caller::Caller;
use crate::http::acts::{About, Acting, Told};

/// A part has come by then: also one of the greatest size by the slowest line on which replication
/// makes sense.
const BODY_MAX: Duration = Duration::from_secs(300);

pub(super) fn routes(table: Table) -> Table {
    table
        .part(Role::Admin, "/send", send)
        .operation(async |at, of: ReceiveRequest| {
            at.control.begin_receive(of, &at.caller.bringer()).await
        })
        .part(Role::Admin, "/receive/{name}", part)
        .act::<On<ReceiveEnd>, _>(end)
        .question(async |at, query: ReceivesQuery| at.control.receives(&query, at.scope()))
        .operation(async |at, of: GiveUpReceive| {
            at.control.give_up_receive(of, &at.caller.bringer()).await
        })
}

async fn send(
    State(control): Control_,
    Extension(caller): Extension<Caller>,
    Body(query): Body<api::SendQuery>,
) -> Response {
    let part = match control.send_part(query, caller.scope()).await {
        Ok(part) => part,
        Err(error) => return refusal(error),
    };
    let stream = (CONTENT_TYPE, "application/octet-stream");
    let size = (SIZE, part.stream_bytes.to_string());
    match part.next {
        Some(next) => ([stream], [size, (NEXT, next)], part.bytes).into_response(),
        None => ([stream], [size], part.bytes).into_response(),
    }
}

/// A part of a stream. Its stream, its caller and its memory are looked at before its body is read.
async fn part(
    State(control): Control_,
    Name(name): Name,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let bringer = caller.bringer();
    let admitted = match id(&control, &name, caller.scope()) {
        Ok(id) => control.admit_part(id, &bringer, told_bytes(&request)).await,
        Err(error) => Err(error),
    };
    let leave = match admitted {
        Ok(leave) => leave,
        Err(error) => return refusal(error),
    };
    match timeout(BODY_MAX, pieces(request, || leave.hear())).await {
        Ok(Ok(part)) => answer(control.receive_part(leave, part).await),
        Ok(Err(error)) => refusal(ApiError::invalid(format!("a part of the stream: {error}"))),
        Err(_) => refusal(ApiError::invalid(format!(
            "a part of the stream did not come within {} s: send smaller parts",
            BODY_MAX.as_secs()
        ))),
    }
}

/// The bytes of a body, as far as its head says; else as many as it may have.
fn told_bytes(request: &Request) -> usize {
    let told = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let told = told.and_then(|value| value.parse().ok());
    told.unwrap_or(PART_BYTES_MAX).min(PART_BYTES_MAX)
}

/// The body as it came, without a copy. `hear` is called when some of it comes.
async fn pieces(request: Request, hear: impl Fn()) -> Result<Pieces, axum::Error> {
    let mut body = request.into_limited_body().into_data_stream();
    let mut pieces = Pieces::default();
    while let Some(piece) = body.next().await {
        pieces.push(piece?);
        hear();
    }
    Ok(pieces)
}

async fn end(
    acting: Acting,
    at: Asking,
    Asked(On { name, request }): Asked<On<ReceiveEnd>>,
) -> Response {
    let id = match id(&at.control, &name, at.scope()) {
        Ok(id) => id,
        Err(error) => return refusal(error),
    };
    let prunes_others = !request.prune.iter().all(|name| is_of_replication(name.as_str()));
    let told = end_told(at.control.received_name(id), request.give_up, prunes_others);
    let told = Told { of: at.control.received_into(id), ..told };
    let bringer = at.caller.bringer();
    acting.carry_out(told, async move { at.control.end_receive(id, request, &bringer).await }).await
}

/// The end of a stream that is received as a dataset; `None`: it is not known any more, or is only
/// checked. `prunes_others`: snapshots go that no replication took.
fn end_told(name: Option<String>, gives_up: bool, prunes_others: bool) -> Told {
    let about = name.clone().map_or(About::Nothing, |name| About::Dataset(name, Vec::new()));
    let words = ReceiveEnd::words(&name.unwrap_or_default(), gives_up);
    // Its stream was judged.
    let told = Told::new(words, about).naming([]);
    let needs = if prunes_others { Role::Admin } else { told.needs };
    Told { needs, ..told }
}

/// A stream that goes into a dataset of a scope.
fn id(control: &Control, name: &str, scope: &Scope) -> Result<u64, ApiError> {
    let none = |_| ApiError::not_found(format!("no stream {name:?} is being received"));
    let id = name.parse().map_err(none)?;
    control.check_stream(id, scope).map(|()| id)
}
