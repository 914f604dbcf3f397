//! Files on a simulated machine: damage, destroyed datasets, quotas, large files, and batches of
//! small writes.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test says what went wrong by ending"
)]

mod accepted;
mod across;
mod attributes;
mod bed;
mod bookmarks;
mod bundles;
#[path = "../by_text/mod.rs"]
mod by_text;
mod circles;
mod clones;
mod commit;
mod control_file;
mod damage;
mod destroy;
mod diff;
mod early;
mod file_clones;
mod file_lines;
mod file_returns;
mod file_rollback;
mod file_schedules;
mod file_snapshots;
mod file_versions;
mod files_of_clones;
mod full;
mod handles;
mod head_lines;
mod history;
mod holds;
mod idle;
mod increments;
mod l2arc;
mod labels;
mod large;
mod links;
mod load;
mod logical;
mod memory;
mod moves;
mod permissions;
mod places;
mod properties;
mod quota;
mod receive;
mod refreserved;
mod rename;
mod replay;
mod replies;
mod resumed;
mod retain;
mod rollback;
mod roots;
mod rot;
mod sabotage;
mod schedules;
mod scrub;
mod seen;
mod sent_files;
mod smooth;
mod snapcontrol;
mod snapdir;
mod snapshots;
mod spread;
mod subjects;
mod together;
mod turns;
mod unlogged;
mod version_acts;
mod versions;
mod walk;
