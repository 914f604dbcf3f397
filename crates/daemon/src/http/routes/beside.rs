//! Routes that callers may ask for beside the row of roles, and those for which a scope is judged.

use aquifer_api::{
    ApiRequest, BookmarkQuery, CloneSnapshot, CreateDataset, DatasetQuery, DiffQuery,
    GiveUpReceive, HoldQuery, HoldSnapshots, MakeBookmark, On, PrunePull, PullQuery, RangesQuery,
    ReceiveEnd, ReceiveRequest, ReceivesQuery, RenameSnapshot, ReplicationQuery, SessionQuery,
    SetProperties, SettlePull, SnapshotQuery, TakePull, TakeSnapshots,
};

/// The route of a request.
const fn of<R: ApiRequest>() -> (&'static str, &'static str) {
    (R::METHOD.name(), R::PATH)
}

/// Routes that a caller of [`Role::Receive`](super::Role::Receive) may ask for beyond the metrics:
/// those by which a replication asks the side of the copy.
pub(super) const OF_RECEIVERS: [(&str, &str); 7] = [
    of::<DatasetQuery>(),
    of::<SnapshotQuery>(),
    of::<ReceivesQuery>(),
    of::<ReceiveRequest>(),
    ("POST", "/receive/{name}"),
    of::<On<ReceiveEnd>>(),
    of::<GiveUpReceive>(),
];

/// Routes that a caller of [`Role::Send`](super::Role::Send) may ask for beyond the metrics: those
/// by which a server that fetches copies asks this one.
pub(super) const OF_SENDERS: [(&str, &str); 7] = [
    of::<SessionQuery>(),
    of::<DatasetQuery>(),
    of::<PullQuery>(),
    of::<TakePull>(),
    of::<SettlePull>(),
    of::<PrunePull>(),
    ("POST", "/send"),
];

/// Routes that a token may ask for that counts for some datasets alone, as far as its role has
/// them. Each of these judges by the names of datasets: an act says them
/// ([`Told`](super::super::acts::Told)), a question leaves out what is not among them. No other
/// route lets such a token in.
pub(super) const OF_SCOPED: [(&str, &str); 26] = [
    ("GET", "/openapi.json"),
    of::<SessionQuery>(),
    of::<DatasetQuery>(),
    of::<SnapshotQuery>(),
    of::<BookmarkQuery>(),
    of::<HoldQuery>(),
    of::<DiffQuery>(),
    of::<RangesQuery>(),
    of::<ReplicationQuery>(),
    of::<ReceivesQuery>(),
    of::<CreateDataset>(),
    of::<CloneSnapshot>(),
    of::<SetProperties>(),
    of::<TakeSnapshots>(),
    of::<RenameSnapshot>(),
    of::<HoldSnapshots>(),
    of::<MakeBookmark>(),
    of::<ReceiveRequest>(),
    ("POST", "/receive/{name}"),
    of::<On<ReceiveEnd>>(),
    of::<GiveUpReceive>(),
    of::<PullQuery>(),
    of::<TakePull>(),
    of::<SettlePull>(),
    of::<PrunePull>(),
    ("POST", "/send"),
];
