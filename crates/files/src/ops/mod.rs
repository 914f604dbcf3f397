//! The operations, a file for each family.

mod attributes;
mod commit;
mod create;
pub(crate) mod directory;
mod early;
mod link;
mod names;
mod read;
mod remove;
mod rename;
pub(crate) mod write;
