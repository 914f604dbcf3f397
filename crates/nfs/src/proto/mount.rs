//! MOUNT version 3 (RFC 1813 appendix I): from a path to the first file handle.

use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf, XdrError};
use aquifer_rpc::xdr_table;

use super::v3::NfsFh3;

#[cfg(test)]
mod tests;

/// The MOUNT program.
pub const PROGRAM: u32 = 100_005;
/// The version that belongs to NFSv3.
pub const VERSION: u32 = 3;
/// Longest path, in bytes (MNTPATHLEN).
pub const PATH_BYTES_MAX: usize = 1024;
/// Longest host or group name, in bytes (MNTNAMLEN).
pub const NAME_BYTES_MAX: usize = 255;

xdr_table! {
    /// The procedures of MOUNT_V3.
    enum Procedure {
        /// MOUNTPROC3_NULL: do nothing.
        Null = 0,
        /// MOUNTPROC3_MNT: a path's handle. Argument [`DirPath`], result [`MountRes3`].
        Mnt = 1,
        /// MOUNTPROC3_DUMP: the mounts of all clients. Result [`MountList`].
        Dump = 2,
        /// MOUNTPROC3_UMNT: the caller has unmounted. Argument [`DirPath`].
        Umnt = 3,
        /// MOUNTPROC3_UMNTALL: the caller has unmounted everything.
        Umntall = 4,
        /// MOUNTPROC3_EXPORT: the exports. Result [`Exports`].
        Export = 5,
    }

    /// `enum mountstat3`.
    enum MountStat3 {
        /// MNT3_OK: no error.
        Ok = 0,
        /// MNT3ERR_PERM: not owner.
        Perm = 1,
        /// MNT3ERR_NOENT: no such file or directory.
        NoEnt = 2,
        /// MNT3ERR_IO: I/O error.
        Io = 5,
        /// MNT3ERR_ACCES: permission denied.
        Acces = 13,
        /// MNT3ERR_NOTDIR: not a directory.
        NotDir = 20,
        /// MNT3ERR_INVAL: invalid argument.
        Inval = 22,
        /// MNT3ERR_NAMETOOLONG: filename too long.
        NameTooLong = 63,
        /// MNT3ERR_NOTSUPP: operation not supported.
        NotSupp = 10_004,
        /// MNT3ERR_SERVERFAULT: a failure on the server.
        ServerFault = 10_006,
    }

    /// `dirpath` as an argument.
    struct DirPath<'a> {
        /// The path of a directory on the server.
        path: Path<'a>,
    }

    /// `struct mountbody`: one line of DUMP.
    struct MountBody<'a> {
        /// The client.
        hostname: Name<'a>,
        /// The directory that it has mounted.
        directory: Path<'a>,
    }
}

/// `typedef string dirpath<MNTPATHLEN>`, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<'a>(
    /// At most [`PATH_BYTES_MAX`] bytes.
    pub &'a [u8],
);

/// `typedef string name<MNTNAMLEN>`, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a>(
    /// At most [`NAME_BYTES_MAX`] bytes.
    pub &'a [u8],
);

impl Encode for Path<'_> {
    /// # Panics
    /// If the path is longer than the protocol allows: exports are checked when configured.
    fn encode(&self, to: &mut EncodeBuf) {
        assert!(self.0.len() <= PATH_BYTES_MAX, "a path that MOUNT cannot carry");
        to.opaque(self.0);
    }
}

impl<'a> Decode<'a> for Path<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.string(PATH_BYTES_MAX).map(Path)
    }
}

impl Encode for Name<'_> {
    /// # Panics
    /// If the name is longer than the protocol allows.
    fn encode(&self, to: &mut EncodeBuf) {
        assert!(self.0.len() <= NAME_BYTES_MAX, "a name that MOUNT cannot carry");
        to.opaque(self.0);
    }
}

impl<'a> Decode<'a> for Name<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.string(NAME_BYTES_MAX).map(Name)
    }
}

/// `union mountres3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountRes3 {
    /// MNT3_OK with `struct mountres3_ok`.
    Ok {
        /// The handle of the directory.
        fhandle: NfsFh3,
        /// Flavors of RPC authentication that are accepted, best first.
        auth_flavors: Vec<u32>,
    },
    /// Any error; never [`MountStat3::Ok`].
    Fail(MountStat3),
}

impl Encode for MountRes3 {
    /// # Panics
    /// If a failure has the status OK.
    fn encode(&self, to: &mut EncodeBuf) {
        match self {
            MountRes3::Ok { fhandle, auth_flavors } => {
                to.put(&MountStat3::Ok);
                to.put(fhandle);
                to.u32(u32::try_from(auth_flavors.len()).unwrap_or(u32::MAX));
                for flavor in auth_flavors {
                    to.u32(*flavor);
                }
            }
            MountRes3::Fail(status) => {
                assert_ne!(*status, MountStat3::Ok, "a failure has a reason");
                to.put(status);
            }
        }
    }
}

impl<'a> Decode<'a> for MountRes3 {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let status = MountStat3::decode(from)?;
        if status != MountStat3::Ok {
            return Ok(MountRes3::Fail(status));
        }
        let fhandle = NfsFh3::decode(from)?;
        let count = from.length(usize::MAX)?;
        let auth_flavors = (0..count).map(|_| from.u32()).collect::<Result<_, _>>()?;
        Ok(MountRes3::Ok { fhandle, auth_flavors })
    }
}

/// `mountlist`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountList<'a>(
    /// The mounts.
    pub Vec<MountBody<'a>>,
);

impl Encode for MountList<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.list(&self.0);
    }
}

impl<'a> Decode<'a> for MountList<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.list().map(MountList)
    }
}

/// `struct exportnode`: one line of EXPORT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportNode<'a> {
    /// The path of the export.
    pub dir: Path<'a>,
    /// The clients that may mount it; empty for everybody.
    pub groups: Vec<Name<'a>>,
}

impl Encode for ExportNode<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.put(&self.dir);
        to.list(&self.groups);
    }
}

impl<'a> Decode<'a> for ExportNode<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(ExportNode { dir: Decode::decode(from)?, groups: from.list()? })
    }
}

/// `exports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exports<'a>(
    /// The exports.
    pub Vec<ExportNode<'a>>,
);

impl Encode for Exports<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.list(&self.0);
    }
}

impl<'a> Decode<'a> for Exports<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.list().map(Exports)
    }
}
