//! The daemon over real sockets and a real pool.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test says what went wrong by ending"
)]

mod attributes;
mod client;
mod contents;
mod files;
mod fixture;
mod framing;
mod hostile;
mod listing;
mod lobby;
mod locks;
mod memory;
mod mounts;
mod names;
mod neighbours;
mod once;
mod silence;
mod snapcontrol;
mod snapshots;
mod stop;
mod tls;
mod together;
