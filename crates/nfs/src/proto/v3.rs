//! NFS version 3 (RFC 1813).

mod args;
mod procedure;
mod readdir;
mod results;
mod types;

#[cfg(test)]
mod tests;

pub use args::{
    Access3Args, Commit3Args, Create3Args, CreateHow3, DeviceData3, DirOpArgs3, Getattr3Args,
    Link3Args, Mkdir3Args, Mknod3Args, MknodData3, Read3Args, Readdir3Args, Readdirplus3Args,
    Rename3Args, Setattr3Args, Symlink3Args, SymlinkData3, Write3Args, Write3Head,
};
pub use procedure::{Args3, Procedure3};
pub use readdir::{
    Entry3, EntryPlus3, Fit, Readdir3Encoder, Readdir3ResOk, Readdirplus3Encoder,
    Readdirplus3ResOk, TooSmall,
};
pub use results::{
    Access3Res, Access3ResOk, Commit3Res, Commit3ResOk, Create3Res, Create3ResOk, Fsinfo3Res,
    Fsinfo3ResOk, Fsstat3Res, Fsstat3ResOk, Getattr3Res, Link3Res, LinkWcc, Lookup3Res,
    Lookup3ResOk, Mkdir3Res, Mknod3Res, Pathconf3Res, Pathconf3ResOk, Read3Head, Read3Res,
    Read3ResOk, Readdir3Res, Readdirplus3Res, Readlink3Res, Readlink3ResOk, Remove3Res, Rename3Res,
    RenameWcc, Res3, Rmdir3Res, Setattr3Res, Symlink3Res, Write3Res, Write3ResOk,
};
pub use types::{
    CookieVerf3, CreateMode3, CreateVerf3, FH_BYTES_MAX, Fattr3, Ftype3, NfsFh3, Nfsstat3,
    Nfstime3, PostOpAttr, PostOpFh3, PreOpAttr, Sattr3, SetTime, SpecData3, StableHow, WccAttr,
    WccData, WriteVerf3, access, fsf,
};

/// The NFS program (RFC 1813 section 3).
pub const PROGRAM: u32 = 100_003;
/// This version of it.
pub const VERSION: u32 = 3;
/// The port that clients try without asking a portmapper.
pub const PORT: u16 = 2049;
