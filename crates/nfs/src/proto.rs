//! The wire formats: arguments and results of every procedure, in RFC order and with RFC names.
//!
//! Invariants:
//! - No type here knows of files, exports or state; no type in the crates below knows of these
//!   types.
//! - Every type goes both ways. The server decodes arguments and encodes results; the test client
//!   and the load generator do the opposite. Each pair is inverse.
//! - Names, paths and payloads are borrowed from the record; file handles are small and copied.

pub mod mount;
pub mod nlm;
pub mod nsm;
pub mod v3;
