//! Other NFS servers: to prove the harness against, and to compare with.

pub mod ganesha;
