//! Routes of acts on disks of a pool.

use aquifer_api as api;
use axum::extract::State;
use axum::response::Response;

use super::{Acting, Body, Control_, Name, words};

pub(super) async fn remove(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::DiskRequest>,
) -> Response {
    let told = words::on_disk("remove", &name, &request);
    acting.carry_out(told, control.remove_disk(&name, request)).await
}

pub(super) async fn replace(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(mut request): Body<api::ReplaceDisk>,
) -> Response {
    request.held_until_s = acting.typed_here(request.held_until_s);
    let told = words::new_disk("replace", &name, &request);
    acting.carry_out(told, control.replace_disk(&name, request)).await
}

pub(super) async fn attach(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(mut request): Body<api::ReplaceDisk>,
) -> Response {
    request.held_until_s = acting.typed_here(request.held_until_s);
    let told = words::new_disk("attach", &name, &request);
    acting.carry_out(told, control.attach_disk(&name, request)).await
}

pub(super) async fn detach(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::DiskRequest>,
) -> Response {
    let told = words::on_disk("detach", &name, &request);
    acting.carry_out(told, control.detach_disk(&name, request)).await
}

pub(super) async fn clear(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::DiskRequest>,
) -> Response {
    let told = words::on_disk("clear", &name, &request);
    acting.carry_out(told, control.clear_disk(&name, request)).await
}

pub(super) async fn offline(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::OfflineDisk>,
) -> Response {
    let told = words::offline_disk(&name, &request);
    acting.carry_out(told, control.offline_disk(&name, request)).await
}

pub(super) async fn online(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::OnlineDisk>,
) -> Response {
    let told = words::online_disk(&name, &request);
    acting.carry_out(told, control.online_disk(&name, request)).await
}
