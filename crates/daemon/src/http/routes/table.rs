//! How routes are added: each behind its gate, and carried out at home or where its connection is.

use std::future::Future;

use aquifer_api::send::PART_BYTES_MAX;
use aquifer_api::{ApiError, ApiRequest, Method};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, get, post};

use super::super::Api;
use super::super::acts::Acting;
use super::super::asked::{Asked, Asking};
use super::super::gate::{Gate, pass};
use super::super::home::at_home;
use super::super::operations::Judged;
use super::{Role, Route, answer};

/// Routes, as they are added: there is no other way to add one.
#[derive(Default)]
pub(super) struct Table {
    pub router: Router<Api>,
    pub routes: Vec<Route>,
}

impl Table {
    /// Adds a request that changes nothing.
    pub fn question<R, F>(
        self,
        answers: impl Fn(Asking, R) -> F + Clone + Send + Sync + 'static,
    ) -> Table
    where
        R: ApiRequest,
        F: Future<Output = Result<R::Answer, ApiError>> + Send + 'static,
    {
        let handler = async move |asking: Asking, Asked(request): Asked<R>| {
            answer(answers(asking, request).await)
        };
        self.add_at_home(Route::of::<R>(), false, on::<R, _, _>(handler))
    }

    /// Adds a request that changes something: it is carried out to its end, and logged.
    pub fn operation<R, F>(
        self,
        acts: impl Fn(Asking, R) -> F + Clone + Send + Sync + 'static,
    ) -> Table
    where
        R: Judged,
        F: Future<Output = Result<R::Answer, ApiError>> + Send + 'static,
    {
        let handler = async move |acting: Acting, asking: Asking, Asked(request): Asked<R>| {
            let request = request.meant(&acting);
            let told = request.judged(request.told(), &acting);
            acting.carry_out(told, acts(asking, request)).await
        };
        self.add_at_home(Route::of::<R>(), true, on::<R, _, _>(handler))
    }

    /// Adds a request that changes something, and is carried out in a way of its own, by
    /// [`Acting::carry_out`].
    pub fn act<R: ApiRequest, T: 'static>(self, handler: impl Handler<T, Api>) -> Table {
        self.add_at_home(Route::of::<R>(), true, on::<R, _, _>(handler))
    }

    /// Adds a route that is no request of the API's types: it is answered with text.
    pub fn page<H: Handler<T, Api>, T: 'static>(
        self,
        role: Role,
        path: &'static str,
        handler: H,
    ) -> Table {
        self.add_at_home(Route::new("GET", path, role), false, get(handler))
    }

    /// Adds a route for a part of a stream. The request has a body, changes nothing, and starts
    /// nothing: it is not carried to another thread.
    pub fn part<H: Handler<T, Api>, T: 'static>(
        self,
        role: Role,
        path: &'static str,
        handler: H,
    ) -> Table {
        let limit = DefaultBodyLimit::max(PART_BYTES_MAX);
        self.add(Route::new("POST", path, role), false, post(handler).layer(limit))
    }

    fn add_at_home(self, route: Route, is_act: bool, handler: MethodRouter<Api>) -> Table {
        self.add(route, is_act, handler.route_layer(from_fn(at_home)))
    }

    fn add(mut self, route: Route, is_act: bool, handler: MethodRouter<Api>) -> Table {
        let Route { role, is_of_receivers, is_of_senders, is_of_scoped, .. } = route;
        let gate = Gate { role, is_of_receivers, is_of_senders, is_of_scoped, is_act };
        // Who may not pass the gate does not come home.
        let handler = handler.route_layer(from_fn_with_state(gate, pass));
        self.router = self.router.route(&route.whole_path(), handler);
        self.routes.push(route);
        self
    }
}

/// The method of a request, with what answers it.
fn on<R: ApiRequest, H: Handler<T, Api>, T: 'static>(handler: H) -> MethodRouter<Api> {
    match R::METHOD {
        Method::Get => get(handler),
        Method::Post => post(handler),
    }
}
