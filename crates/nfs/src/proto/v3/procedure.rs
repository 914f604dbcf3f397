//! The procedures (RFC 1813 section 3.3) and the one table from number to arguments.

use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf, XdrError};
use aquifer_rpc::xdr_table;

use super::args::{
    Access3Args, Commit3Args, Create3Args, DirOpArgs3, Getattr3Args, Link3Args, Mkdir3Args,
    Mknod3Args, Read3Args, Readdir3Args, Readdirplus3Args, Rename3Args, Setattr3Args, Symlink3Args,
    Write3Args,
};

xdr_table! {
    /// The procedures of NFS_V3, by number.
    enum Procedure3 {
        /// NFSPROC3_NULL: do nothing.
        Null = 0,
        /// NFSPROC3_GETATTR: get file attributes.
        Getattr = 1,
        /// NFSPROC3_SETATTR: set file attributes.
        Setattr = 2,
        /// NFSPROC3_LOOKUP: look up filename.
        Lookup = 3,
        /// NFSPROC3_ACCESS: check access permission.
        Access = 4,
        /// NFSPROC3_READLINK: read from symbolic link.
        Readlink = 5,
        /// NFSPROC3_READ: read from file.
        Read = 6,
        /// NFSPROC3_WRITE: write to file.
        Write = 7,
        /// NFSPROC3_CREATE: create a file.
        Create = 8,
        /// NFSPROC3_MKDIR: create a directory.
        Mkdir = 9,
        /// NFSPROC3_SYMLINK: create a symbolic link.
        Symlink = 10,
        /// NFSPROC3_MKNOD: create a special device.
        Mknod = 11,
        /// NFSPROC3_REMOVE: remove a file.
        Remove = 12,
        /// NFSPROC3_RMDIR: remove a directory.
        Rmdir = 13,
        /// NFSPROC3_RENAME: rename a file or directory.
        Rename = 14,
        /// NFSPROC3_LINK: create link to an object.
        Link = 15,
        /// NFSPROC3_READDIR: read from directory.
        Readdir = 16,
        /// NFSPROC3_READDIRPLUS: extended read from directory.
        Readdirplus = 17,
        /// NFSPROC3_FSSTAT: get dynamic file system information.
        Fsstat = 18,
        /// NFSPROC3_FSINFO: get static file system information.
        Fsinfo = 19,
        /// NFSPROC3_PATHCONF: retrieve POSIX information.
        Pathconf = 20,
        /// NFSPROC3_COMMIT: commit cached data on a server to stable storage.
        Commit = 21,
    }
}

/// The arguments of any procedure. Those whose only argument is one handle share its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the procedure of that name in Procedure3")]
pub enum Args3<'a> {
    Null,
    Getattr(Getattr3Args),
    Setattr(Setattr3Args),
    Lookup(DirOpArgs3<'a>),
    Access(Access3Args),
    Readlink(Getattr3Args),
    Read(Read3Args),
    Write(Write3Args<'a>),
    Create(Create3Args<'a>),
    Mkdir(Mkdir3Args<'a>),
    Symlink(Symlink3Args<'a>),
    Mknod(Mknod3Args<'a>),
    Remove(DirOpArgs3<'a>),
    Rmdir(DirOpArgs3<'a>),
    Rename(Rename3Args<'a>),
    Link(Link3Args<'a>),
    Readdir(Readdir3Args),
    Readdirplus(Readdirplus3Args),
    Fsstat(Getattr3Args),
    Fsinfo(Getattr3Args),
    Pathconf(Getattr3Args),
    Commit(Commit3Args),
}

impl<'a> Args3<'a> {
    /// Reads the arguments of `procedure`.
    ///
    /// # Errors
    /// [`XdrError`]: the caller answers GARBAGE_ARGS.
    pub fn decode(procedure: Procedure3, from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(match procedure {
            Procedure3::Null => Args3::Null,
            Procedure3::Getattr => Args3::Getattr(Decode::decode(from)?),
            Procedure3::Setattr => Args3::Setattr(Decode::decode(from)?),
            Procedure3::Lookup => Args3::Lookup(Decode::decode(from)?),
            Procedure3::Access => Args3::Access(Decode::decode(from)?),
            Procedure3::Readlink => Args3::Readlink(Decode::decode(from)?),
            Procedure3::Read => Args3::Read(Decode::decode(from)?),
            Procedure3::Write => Args3::Write(Decode::decode(from)?),
            Procedure3::Create => Args3::Create(Decode::decode(from)?),
            Procedure3::Mkdir => Args3::Mkdir(Decode::decode(from)?),
            Procedure3::Symlink => Args3::Symlink(Decode::decode(from)?),
            Procedure3::Mknod => Args3::Mknod(Decode::decode(from)?),
            Procedure3::Remove => Args3::Remove(Decode::decode(from)?),
            Procedure3::Rmdir => Args3::Rmdir(Decode::decode(from)?),
            Procedure3::Rename => Args3::Rename(Decode::decode(from)?),
            Procedure3::Link => Args3::Link(Decode::decode(from)?),
            Procedure3::Readdir => Args3::Readdir(Decode::decode(from)?),
            Procedure3::Readdirplus => Args3::Readdirplus(Decode::decode(from)?),
            Procedure3::Fsstat => Args3::Fsstat(Decode::decode(from)?),
            Procedure3::Fsinfo => Args3::Fsinfo(Decode::decode(from)?),
            Procedure3::Pathconf => Args3::Pathconf(Decode::decode(from)?),
            Procedure3::Commit => Args3::Commit(Decode::decode(from)?),
        })
    }

    /// The procedure that these arguments belong to.
    pub fn procedure(&self) -> Procedure3 {
        match self {
            Args3::Null => Procedure3::Null,
            Args3::Getattr(_) => Procedure3::Getattr,
            Args3::Setattr(_) => Procedure3::Setattr,
            Args3::Lookup(_) => Procedure3::Lookup,
            Args3::Access(_) => Procedure3::Access,
            Args3::Readlink(_) => Procedure3::Readlink,
            Args3::Read(_) => Procedure3::Read,
            Args3::Write(_) => Procedure3::Write,
            Args3::Create(_) => Procedure3::Create,
            Args3::Mkdir(_) => Procedure3::Mkdir,
            Args3::Symlink(_) => Procedure3::Symlink,
            Args3::Mknod(_) => Procedure3::Mknod,
            Args3::Remove(_) => Procedure3::Remove,
            Args3::Rmdir(_) => Procedure3::Rmdir,
            Args3::Rename(_) => Procedure3::Rename,
            Args3::Link(_) => Procedure3::Link,
            Args3::Readdir(_) => Procedure3::Readdir,
            Args3::Readdirplus(_) => Procedure3::Readdirplus,
            Args3::Fsstat(_) => Procedure3::Fsstat,
            Args3::Fsinfo(_) => Procedure3::Fsinfo,
            Args3::Pathconf(_) => Procedure3::Pathconf,
            Args3::Commit(_) => Procedure3::Commit,
        }
    }
}

impl Encode for Args3<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        match self {
            Args3::Null => {}
            Args3::Getattr(args)
            | Args3::Readlink(args)
            | Args3::Fsstat(args)
            | Args3::Fsinfo(args)
            | Args3::Pathconf(args) => to.put(args),
            Args3::Setattr(args) => to.put(args),
            Args3::Lookup(args) | Args3::Remove(args) | Args3::Rmdir(args) => to.put(args),
            Args3::Access(args) => to.put(args),
            Args3::Read(args) => to.put(args),
            Args3::Write(args) => to.put(args),
            Args3::Create(args) => to.put(args),
            Args3::Mkdir(args) => to.put(args),
            Args3::Symlink(args) => to.put(args),
            Args3::Mknod(args) => to.put(args),
            Args3::Rename(args) => to.put(args),
            Args3::Link(args) => to.put(args),
            Args3::Readdir(args) => to.put(args),
            Args3::Readdirplus(args) => to.put(args),
            Args3::Commit(args) => to.put(args),
        }
    }
}
