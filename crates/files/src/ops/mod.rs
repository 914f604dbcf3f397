//! The operations, a file for each family.

mod attributes;
mod create;
mod directory;
mod early;
mod link;
mod names;
mod read;
mod remove;
mod rename;
mod write;
