//! What is said on the wire: arguments and results of every procedure, in RFC order and words.
//!
//! Invariants:
//! - No type here knows of files, exports or state; no type below this crate knows of these.
//! - Everything goes both ways: the server decodes arguments and encodes results, the test client
//!   and the load generator do the opposite, and each pair is inverse.
//! - Names, paths and payloads are borrowed from the record; file handles are small and copied.

pub mod mount;
pub mod nlm;
pub mod nsm;
pub mod v3;
