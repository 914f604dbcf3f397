//! Every route of the API: what it asks for, what it answers, and the role that it needs. All
//! paths but `/metrics` stand below `/v1` ([`Route::whole_path`]).
//!
//! ```text
//! GET  /metrics                 metrics                   -> text for Prometheus
//! GET  /openapi.json            read                      -> this table, for programs
//! GET  /daemon                  read                      -> DaemonInfo
//! GET  /pools                   read                      -> [PoolSummary]
//! GET  /pools/{name}            read                      -> PoolStatus
//! GET  /pools/{name}/history    read                      -> [HistoryEntry]
//! GET  /pools/{name}/events     read                      -> [Event]
//! GET  /pools/{name}/load       read      LoadQuery       -> LoadSeries
//! GET  /pools/{name}/load/disks read      LoadQuery       -> [LoadedDisk]
//! GET  /locks                   read                      -> LocksInfo
//! GET  /datasets                read      DatasetQuery    -> [DatasetInfo]
//! GET  /snapshots               read      SnapshotQuery   -> [SnapshotInfo]
//! GET  /bookmarks               read      SnapshotQuery   -> [BookmarkInfo]
//! GET  /snapshots/holds         read      SnapshotQuery   -> [HoldInfo]
//! GET  /diff                    read      DiffQuery       -> ChangedNames   (5)
//! GET  /diff/ranges             read      DiffQuery       -> ChangedRanges  (5)
//! GET  /iostat                  read      IoQuery         -> [PoolIo]
//! GET  /nfs                     read                      -> NfsStat
//! GET  /memory                  read                      -> MemoryStat
//! GET  /alerts                  read                      -> AlertsInfo
//! GET  /events                  read      EventQuery      -> [Event]
//! GET  /shares                  read                      -> [ShareInfo]
//! GET  /shares/why              read      ShareQuery      -> ShareWhy
//! GET  /connect                 read      ConnectQuery    -> ConnectAdvice
//! GET  /replications            read      ReplicationQuery -> [ReplicationInfo]
//! GET  /receives                read      ReceivesQuery   -> [ReceiveInfo]
//! GET  /tokens                  read                      -> [TokenInfo]
//! GET  /session                 read                      -> SessionInfo
//! GET  /confirmations           read                      -> [WaitingAct]
//! POST /scan                    operator  ScanRequest     -> ScanResult
//! POST /alerts/test             operator  TestAlerts      -> [TestedOutlet]
//! POST /import                  operator  ImportRequest   -> PoolDone       (1) (9)
//! POST /pools/{name}/export     operator ExportPool       -> PoolDone       (7) (9)
//! POST /pools/{name}/clear      operator                  -> PoolDone
//! POST /pools/{name}/clear-disk operator DiskRequest     -> PoolDone
//! POST /pools/{name}/offline    operator  OfflineDisk     -> PoolDone
//! POST /pools/{name}/online     operator  OnlineDisk      -> PoolDone (9)
//! POST /pools/{name}/scrub      operator  ScrubRequest    -> PoolDone
//! POST /pools/{name}/free-space operator  FreeWorkRequest -> PoolDone
//! POST /pools/{name}/drill      operator  DrillRequest    -> PoolDone
//! POST /datasets                operator  CreateDataset   -> DatasetDone    (2)
//! POST /datasets/clone          operator  CloneSnapshot   -> DatasetDone    (2) (8)
//! POST /datasets/set            operator  SetProperties   -> DatasetDone    (2) (9)
//! POST /snapshots               operator  TakeSnapshots   -> SnapshotsDone
//! POST /snapshots/rename        operator  RenameSnapshot  -> SnapshotsDone
//! POST /bookmarks               operator  MakeBookmark    -> BookmarksDone
//! POST /snapshots/hold          operator  HoldSnapshots   -> SnapshotsDone  (4) (9)
//! POST /pools                   admin     CreatePool      -> PoolCreated (9)
//! POST /pools/{name}/destroy    admin     DestroyPool     -> PoolDone (9)
//! POST /pools/{name}/add        admin     AddVdevs        -> PoolCreated (9)
//! POST /pools/{name}/remove     admin     DiskRequest     -> PoolDone
//! POST /pools/{name}/attach     admin     ReplaceDisk     -> PoolDone (9)
//! POST /pools/{name}/detach     admin     DiskRequest     -> PoolDone
//! POST /pools/{name}/replace    admin     ReplaceDisk     -> PoolDone (9)
//! POST /pools/{name}/inject     admin     InjectRequest   -> PoolDone       (3)
//! POST /datasets/destroy        admin     DestroyDataset  -> DatasetDone (9)
//! POST /datasets/rename         admin     RenameDataset   -> DatasetDone (9)
//! POST /bookmarks/destroy       admin     DestroyBookmarks -> BookmarksDone (9)
//! POST /datasets/promote        admin     Promote         -> Promoted (9)
//! POST /datasets/clear          admin     ClearDamage     -> DatasetDone
//! POST /datasets/rollback       admin     RollBack        -> RolledBack (9)
//! POST /snapshots/destroy       admin     DestroySnapshots -> SnapshotsDestroyed (9)
//! POST /snapshots/release       admin     ReleaseSnapshots -> SnapshotsDone (9)
//! POST /send                    admin     SendQuery       -> bytes          (6)
//! POST /receive                 admin     ReceiveRequest  -> ReceiveBegun (9)
//! POST /receive/{name}          admin     bytes           -> ReceivedPart   (6)
//! POST /receive/{name}/end      admin     ReceiveEnd      -> ReceiveSummary
//! POST /receives/give-up        admin     GiveUpReceive   -> DatasetDone
//! GET  /pull/known              admin     PullQuery       -> PullSource
//! POST /pull/take               admin     TakePull        -> PullTaken
//! POST /pull/settle             admin     SettlePull      -> DatasetDone
//! POST /pull/prune              admin     PrunePull       -> DatasetDone
//! POST /replicate               admin     ReplicateRequest -> ReplicationBegun (9)
//! POST /replicate/stop          admin     StopReplication -> DatasetDone
//! POST /locks/clear             admin     ClearLocks      -> ClearedLocks
//! POST /tokens                  admin     CreateToken     -> TokenMade (9)
//! POST /tokens/{name}/rotate    admin     RotateToken     -> TokenMade (9)
//! POST /tokens/{name}/bind      admin     BindToken       -> TokenInfo (9)
//! POST /tokens/{name}/revoke    admin                     -> TokenInfo (9)
//! POST /confirmations/{name}/confirm admin ConfirmAct     -> Confirmed
//! POST /confirmations/{name}/refuse admin  ConfirmAct     -> WaitingAct
//! ```
//! (1) `admin` if it drops something, takes the pool from another host, or gives it another name
//!     ([`import_needs`]).
//! (2) `admin` for `sharenfs`, `snapcontrol`, `snapshots`, `filesnapshots`, `replicate`,
//!     `pull`, `hold_max`, `retain` and `sync=disabled` ([`properties_need`]). A `hold_max` is
//!     raised by the socket alone.
//! (3) Debug builds alone have it.
//! (4) `admin` if it has an end: nobody can take it back.
//! (5) `?from&to&after&limit`: one page of the answer, which says how to ask for the next one.
//! (6) Bytes of a stream, in parts (`docs/stream.md`).
//! (7) `admin` while snapshots of the pool are held until a time.
//! (8) `admin` if the clone would be exported more widely than its origin.
//! (9) By TCP, where a pool has `two_persons`, it waits for a second person if it loses something
//!     ([`Guard`](aquifer_admin::control::guard::Guard)); tests have each case.
//!
//! A token that is bound to datasets asks for the routes that judge by them alone (`OF_SCOPED`): it
//! sees what lies in them, and acts on that, as far as its role has the route.
//!
//! Over TCP browsers also find the page, at `/`, and log in and out there (`remote::page`).
//!
//! How the roles were given: `read` asks, and changes nothing. `operator` does what loses nothing
//! and lets nobody in. An `admin` alone writes over disks, changes what a pool is made of, takes
//! something for lost, ends what clients rely on, and gives rights.
//!
//! Path, role and types stand beside each request in `aquifer_api` (`ApiRequest`). How an operation
//! is judged stands in [`operations`](super::operations). A route is only the function that it
//! calls.
//!
//! Invariant: a route is added with its role, or not at all ([`Table`]); tests hold this page
//! against the table.

use std::sync::Arc;

use aquifer_admin::Control;
use aquifer_admin::control::Scope;
use aquifer_api::{self as api, ApiError, ApiRequest, PATH, Role, Types};
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::Serialize;

use super::home::Home;
use super::{Api, refusal};
use crate::metrics;
use beside::{OF_RECEIVERS, OF_SCOPED, OF_SENDERS};
use table::Table;

mod beside;
mod daemon;
mod datasets;
mod disks;
mod pools;
mod replicate;
mod second;
mod send;
mod snapshots;
mod table;
#[cfg(test)]
mod tests;
mod tokens;

fn table() -> Table {
    let openapi = async || ([(CONTENT_TYPE, "application/json")], OPENAPI);
    let table = Table::default();
    let table = table.page(Role::Metrics, "/metrics", metrics);
    let table = table.page(Role::Read, "/openapi.json", openapi);
    let families = [
        daemon::routes,
        pools::routes,
        disks::routes,
        datasets::routes,
        snapshots::routes,
        send::routes,
        replicate::routes,
        tokens::routes,
        second::routes,
    ];
    families.into_iter().fold(table, |table, add| add(table))
}

/// All routes, each behind its role. A [`Caller`] must have been put among a request's extensions.
pub fn router(api: Api) -> Router {
    let router = table().router;
    router
        .fallback(async || refusal(ApiError::not_found(NO_SUCH_PATH)))
        .method_not_allowed_fallback(async || {
            refusal(ApiError::invalid("this path does not do that"))
        })
        .layer(Extension(Arc::clone(&api.control)))
        .layer(Extension(Home(api.home.clone())))
        .with_state(api)
}

/// All routes, for tests of who may use them.
pub fn routes() -> Vec<Route> {
    table().routes
}

/// A route.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The method of HTTP.
    pub method: &'static str,
    /// The path below that of the version; `{name}` stands for any.
    pub path: &'static str,
    /// Least role that a caller must have.
    pub role: Role,
    /// [`Role::Receive`] may ask for it too.
    pub is_of_receivers: bool,
    /// [`Role::Send`] may ask for it too.
    pub is_of_senders: bool,
    /// A token that counts for some datasets alone may ask for it, if its role may.
    pub is_of_scoped: bool,
    /// The types of its request and its answer, if the API has them.
    pub shape: Option<Types>,
}

impl Route {
    fn new(method: &'static str, path: &'static str, role: Role) -> Route {
        let is_of_receivers = OF_RECEIVERS.contains(&(method, path));
        let is_of_senders = OF_SENDERS.contains(&(method, path));
        let is_of_scoped = OF_SCOPED.contains(&(method, path));
        let shape = None;
        Route { method, path, role, is_of_receivers, is_of_senders, is_of_scoped, shape }
    }

    fn of<R: ApiRequest>() -> Route {
        let shape = Some(Types::of::<R>());
        Route { shape, ..Route::new(R::METHOD.name(), R::PATH, R::ROLE) }
    }

    /// The path that a request names. That of the metrics is the one by which collectors find them.
    pub fn whole_path(&self) -> String {
        match self.path {
            "/metrics" => self.path.into(),
            path => format!("{PATH}{path}"),
        }
    }
}

/// The description of all routes (OpenAPI 3.1). A test makes it from the routes with their types,
/// and says if it is out of date.
const OPENAPI: &str = include_str!("openapi.json");

const NO_SUCH_PATH: &str = "the API has no such path; all but /metrics begin with /v1";

type Control_ = State<Arc<Control>>;

async fn metrics(State(control): Control_) -> Response {
    let nfs = control.nfs_stat().await;
    let (pools, engines, disks) = (control.pools(), control.engines(), control.disks());
    let (memory, alerts) = (control.memory(), control.alerts());
    let page = metrics::page(&control.info(), &pools, &engines, &disks, &nfs, &memory, &alerts);
    let copies = control
        .replications(&api::ReplicationQuery::default(), &Scope::default())
        .unwrap_or_default();
    let page = page + &metrics::copies(&copies);
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response()
}

pub(super) fn answer<T: Serialize>(result: Result<T, ApiError>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(error) => refusal(error),
    }
}
