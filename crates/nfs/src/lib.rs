//! NFS and its companions: bytes in, reply out.

pub mod proto;
