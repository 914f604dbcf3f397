//! History: the datasets of a pool, their objects, properties, and the changes of each txg.
//!
//! Invariants:
//! - Client changes enter an object's overlay under a hold of the open txg, together with the mark
//!   that the object is dirty in that txg; a sync writes exactly the objects so marked.
//! - An object with an overlay stays in memory. The committed object table defines every other
//!   object.
//! - Acts of the administrator join the open txg and are answered when it is on disk; they are not
//!   logged.
//! - No change of a dataset with `sync=disabled` is logged: see `unlogged`.
//! - A call that must not run twice enters the reply table in the txg of its changes: see
//!   [`replies`].
//! - The history of acts is a tree of the pool: see [`history`]; so is that of the [`load`].
//! - A damaged node stops the objects in it, not the pool: see [`aquifer_object::sync`] and
//!   [`Datasets::note_table_damage`]. Only the namespace, which is kept twice, belongs to the pool
//!   itself.

mod across;
mod awake;
mod bookmarks;
mod clones;
mod covered;
mod create;
pub mod damage;
pub mod dataset;
mod datasets;
mod dead;
mod destroy;
mod entrance;
mod error;
mod feeder;
mod file_clones;
mod file_returns;
mod file_rollback;
mod file_schedule;
mod file_snapshots;
mod full_name;
mod head_lines;
pub mod history;
mod hold_span;
mod holds;
mod increment;
mod limits;
mod lines;
pub mod load;
mod locks;
mod namespace;
mod places;
mod promote;
pub mod property;
mod property_name;
mod queue;
mod quota;
mod reap;
mod receive;
mod received_values;
mod refreserved;
mod rename;
pub mod replies;
mod resume;
mod retain;
mod rollback;
mod room;
mod schedule;
mod scheduled;
mod scrub;
mod snapshots;
mod space;
mod standby;
pub mod sync;
mod table;
mod tails;
mod tree;
mod turns;
mod two_persons;
mod unlogged;
mod values;
mod version;
mod walk;

pub use create::directory_inode;
pub use damage::{DamageKind, DamageRecord};
pub use dataset::{Dataset, ORPHANS, ROOT_DIRECTORY};
pub use datasets::{DatasetInfo, Datasets};
pub use dead::These;
pub use entrance::Passage;
pub use error::DatasetError;
pub use feeder::{Feeder, is_mark};
pub use file_clones::{FILE_CLONES_MAX, FileClones};
pub use file_schedule::{FileRule, FileSchedule};
pub use file_snapshots::{
    FileSnapshot, FileVersion, NewFileSnapshot, ScheduledFile, ScheduledFiles,
};
pub use full_name::{FullName, FullNameError, check_snapshot};
pub use hold_span::HOLD_YEARS_MAX;
pub use holds::{Holdable, Standing};
pub use increment::{Increment, IncrementError, Wanted as IncrementWanted};
pub use promote::Promoted;
pub use property::{Properties, Property, Snapdir, SyncMode};
pub use property_name::PropertyName;
pub use quota::{Promise, Refused};
pub use receive::{Receiving, Wanted as ReceiveWanted};
pub use received_values::Chosen;
pub use replies::Replies;
pub use resume::{Partial, Resumable};
pub use retain::RETAIN;
pub use rollback::RollbackOptions;
pub use schedule::Schedule;
pub use snapshots::{Called, Gives, ListChange, Snapshot};
pub use two_persons::TwoPersons;
pub use version::{Look, LookError, Version};
