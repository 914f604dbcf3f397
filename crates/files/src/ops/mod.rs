//! The operations, a file for each family.

mod attributes;
mod commit;
pub(crate) mod create;
pub(crate) mod directory;
mod early;
mod link;
pub(crate) mod names;
mod read;
mod remove;
mod rename;
pub(crate) mod write;
