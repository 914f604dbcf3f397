//! Copy-on-write objects.

pub mod btree;
pub mod extent_tree;
#[cfg(test)]
mod mem_store;
