//! The format on disk: every byte of a pool, and nothing else.
//!
//! No I/O, no engine, no panic. Decoding is total: wrong bytes from a disk give an `Err`. All
//! integers are little-endian. Start with [`layout`], the whole pool on one screen.

pub mod block_pointer;
pub mod bookmark;
pub mod codec;
pub mod config;
pub mod corruption;
pub mod covered;
pub mod damage;
pub mod dataset;
pub mod dead;
pub mod dirent;
pub mod disk_work;
pub mod extent;
pub mod file_clone;
pub mod file_snapshot;
pub mod free_work;
pub mod head_line;
pub mod held;
pub mod history;
pub mod inode;
mod item_class;
pub mod keeping;
pub mod l2arc;
pub mod layout;
pub mod load;
pub mod log_batch;
pub mod log_change;
pub mod open_work;
pub mod pool_root;
pub mod receiving;
pub mod reply;
pub mod resilver_mark;
pub mod resume;
pub mod scrub;
pub mod shown_name;
pub mod space;
pub mod tree_node;
pub mod txg_record;
pub mod types;
pub mod uberblock;
pub mod unstored;
pub mod user_property;

pub use block_pointer::BlockPointer;
pub use codec::{FormatError, Reader, Writer};
pub use corruption::Corruption;
pub use space::Space;
pub use types::{DatasetId, Guid, ObjectId, Place, Txg};
