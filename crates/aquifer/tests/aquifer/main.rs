//! The real binary, from the command line to the disk: daemons on image files in temporary
//! directories, and the commands that administrators type.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test says what went wrong by ending"
)]

mod alerts;
mod api_page;
mod audit;
mod autoreplace;
mod away;
mod bed;
mod bench;
mod bookmarks;
mod clones;
mod compression;
mod copies;
mod diff;
mod disks;
mod doctor;
mod drill;
mod errs;
mod exports;
mod eyes;
mod file_clones;
mod file_snapshots;
mod file_streams;
mod growth;
mod hardware;
mod history;
mod holds;
mod hosts;
mod increments;
mod inject;
mod l2arc;
mod life;
mod listing;
mod logs;
mod lost;
mod many;
mod missing_vdev;
mod mutual;
mod once;
mod overwritten;
mod page;
mod paper;
mod parts;
mod past;
mod prometheus;
mod pull;
mod refusals;
mod remote;
mod renames;
mod replicate;
mod revive;
mod rollback;
mod room;
mod runbook;
mod schedules;
mod scopes;
mod scrub;
mod send;
mod snapcontrol;
mod spares;
mod status;
mod support;
mod top;
mod tree_rows;
mod trees;
mod trim;
mod two_persons;
mod unprivileged;
mod unsafe_sync;
mod user_properties;
mod widths;
