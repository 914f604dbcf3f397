//! Routes of streams.

use aquifer_admin::control::is_of_replication;
use aquifer_api::send::{NEXT, SIZE};
use aquifer_api::{self as api, ApiError};
use aquifer_files::Pieces;
use axum::RequestExt;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;

use super::{Acting, Body, Control_, Name, Question, answer, refusal, words};

pub(super) async fn send(State(control): Control_, Body(query): Body<api::SendQuery>) -> Response {
    let part = match control.send_part(query).await {
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

pub(super) async fn begin(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::ReceiveRequest>,
) -> Response {
    acting.carry_out(words::receive(&request), control.begin_receive(request)).await
}

pub(super) async fn part(State(control): Control_, Name(name): Name, request: Request) -> Response {
    let id = match id(&name) {
        Ok(id) => id,
        Err(error) => return refusal(error),
    };
    match pieces(request, || control.hear(id)).await {
        Ok(part) => answer(control.receive_part(id, part).await),
        Err(error) => refusal(ApiError::invalid(format!("a part of the stream: {error}"))),
    }
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

pub(super) async fn end(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::ReceiveEnd>,
) -> Response {
    let id = match id(&name) {
        Ok(id) => id,
        Err(error) => return refusal(error),
    };
    let prunes_others = !request.prune.iter().all(|name| is_of_replication(name));
    let told = words::end_receive(control.received_name(id), request.give_up, prunes_others);
    acting.carry_out(told, control.end_receive(id, request)).await
}

pub(super) async fn receives(
    State(control): Control_,
    Question(query): Question<api::ReceivesQuery>,
) -> Response {
    answer(control.receives(&query))
}

pub(super) async fn give_up(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::GiveUpReceive>,
) -> Response {
    acting.carry_out(words::give_up_receive(&request), control.give_up_receive(request)).await
}

fn id(name: &str) -> Result<u64, ApiError> {
    name.parse().map_err(|_| ApiError::not_found(format!("no stream {name:?} is being received")))
}
