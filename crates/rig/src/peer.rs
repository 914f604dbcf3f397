//! Other NFS servers: to prove the harness, and to compare with.

pub mod ganesha;
