//! Routes that callers may ask for beside the row of roles, and those for which a scope is judged.

/// Routes that a caller of [`Role::Receive`](super::Role::Receive) may ask for beyond the metrics:
/// those by which a replication asks the side of the copy.
pub(super) const OF_RECEIVERS: [(&str, &str); 7] = [
    ("GET", "/datasets"),
    ("GET", "/snapshots"),
    ("GET", "/receives"),
    ("POST", "/receive"),
    ("POST", "/receive/{name}"),
    ("POST", "/receive/{name}/end"),
    ("POST", "/receives/give-up"),
];

/// Routes that a caller of [`Role::Send`](super::Role::Send) may ask for beyond the metrics: those
/// by which a server that fetches copies asks this one.
pub(super) const OF_SENDERS: [(&str, &str); 7] = [
    ("GET", "/session"),
    ("GET", "/datasets"),
    ("GET", "/pull/known"),
    ("POST", "/pull/take"),
    ("POST", "/pull/settle"),
    ("POST", "/pull/prune"),
    ("POST", "/send"),
];

/// Routes that a token may ask for that counts for some datasets alone, as far as its role has
/// them. Each of these judges by the names of datasets: an act says them
/// ([`Told`](super::super::acts::Told)), a question leaves out what is not among them. No other
/// route lets such a token in.
pub(super) const OF_SCOPED: [(&str, &str); 26] = [
    ("GET", "/openapi.json"),
    ("GET", "/session"),
    ("GET", "/datasets"),
    ("GET", "/snapshots"),
    ("GET", "/bookmarks"),
    ("GET", "/snapshots/holds"),
    ("GET", "/diff"),
    ("GET", "/diff/ranges"),
    ("GET", "/replications"),
    ("GET", "/receives"),
    ("POST", "/datasets"),
    ("POST", "/datasets/clone"),
    ("POST", "/datasets/set"),
    ("POST", "/snapshots"),
    ("POST", "/snapshots/rename"),
    ("POST", "/snapshots/hold"),
    ("POST", "/bookmarks"),
    ("POST", "/receive"),
    ("POST", "/receive/{name}"),
    ("POST", "/receive/{name}/end"),
    ("POST", "/receives/give-up"),
    ("GET", "/pull/known"),
    ("POST", "/pull/take"),
    ("POST", "/pull/settle"),
    ("POST", "/pull/prune"),
    ("POST", "/send"),
];
