//! Routes of snapshots.

use aquifer_api as api;
use axum::extract::{Extension, State};
use axum::response::Response;

use crate::caller::Caller;

use super::{Acting, Body, Control_, Question, answer, words};

pub(super) async fn list(
    State(control): Control_,
    Extension(caller): Extension<Caller>,
    Question(query): Question<api::SnapshotQuery>,
) -> Response {
    answer(control.snapshots(&query, &caller.principal(), caller.scope()).await)
}

pub(super) async fn bookmarks(
    State(control): Control_,
    Extension(caller): Extension<Caller>,
    Question(query): Question<api::SnapshotQuery>,
) -> Response {
    answer(control.bookmarks(&query, caller.scope()).await)
}

pub(super) async fn make_bookmark(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::MakeBookmark>,
) -> Response {
    acting.carry_out(words::make_bookmark(&request), control.make_bookmark(request)).await
}

pub(super) async fn destroy_bookmarks(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::DestroyBookmarks>,
) -> Response {
    acting.carry_out(words::destroy_bookmarks(&request), control.destroy_bookmarks(request)).await
}

pub(super) async fn take(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::TakeSnapshots>,
) -> Response {
    acting.carry_out(words::take_snapshots(&request), control.take_snapshots(request)).await
}

pub(super) async fn rename(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::RenameSnapshot>,
) -> Response {
    acting.carry_out(words::rename_snapshot(&request), control.rename_snapshot(request)).await
}

pub(super) async fn destroy(
    acting: Acting,
    State(control): Control_,
    Body(mut request): Body<api::DestroySnapshots>,
) -> Response {
    // What is taken while it waits was not meant.
    request.upto_txg = request.upto_txg.or(control.newest_txg(&request.name));
    acting.carry_out(words::destroy_snapshots(&request), control.destroy_snapshots(request)).await
}

pub(super) async fn hold(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::HoldSnapshots>,
) -> Response {
    acting.carry_out(words::hold_snapshots(&request), control.hold_snapshots(request)).await
}

pub(super) async fn release(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::ReleaseSnapshots>,
) -> Response {
    acting.carry_out(words::release_snapshots(&request), control.release_snapshots(request)).await
}

pub(super) async fn holds(
    State(control): Control_,
    Extension(caller): Extension<Caller>,
    Question(query): Question<api::SnapshotQuery>,
) -> Response {
    answer(control.holds(&query, caller.scope()).await)
}
