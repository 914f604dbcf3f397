//! Copy-on-write objects: the one B+tree, extents, overlays in front of them, and their sync.

pub mod btree;
pub mod extent_tree;
mod gate;
mod lost;
#[cfg(test)]
mod mem_store;
pub mod object;
pub mod overlay;
mod salvage;
mod store;
pub mod sync;

pub use gate::{
    Above, FileLists, Filed, Gate, Returning, Shown, bookmark_needing, covers, newest_before,
};
pub use object::{Object, ObjectState, TreeRoot};
pub use overlay::{DirtyPage, Overlay, Version};
pub use salvage::{Damage, free_early};
