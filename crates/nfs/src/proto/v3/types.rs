//! Basic data types (RFC 1813 sections 2.4 to 2.6).
//!
//! A union that only means "optional" (`post_op_attr`, `pre_op_attr`, `post_op_fh3`, `set_mode3`
//! and its like, `sattrguard3`) is an `Option`.

use std::fmt;

use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf, XdrError, opaque_bytes};
use aquifer_rpc::xdr_table;

/// Longest file handle, in bytes (NFS3_FHSIZE).
pub const FH_BYTES_MAX: usize = 64;

/// `cookieverf3`: distinguishes a READDIR cookie of an earlier directory from one of this.
pub type CookieVerf3 = [u8; 8];
/// `createverf3`: identifies a retransmitted exclusive CREATE.
pub type CreateVerf3 = [u8; 8];
/// `writeverf3`: changes when the server may have lost UNSTABLE writes.
pub type WriteVerf3 = [u8; 8];
/// `post_op_attr`: attributes after the operation, if the server has them at hand.
pub type PostOpAttr = Option<Fattr3>;
/// `pre_op_attr`: lets a client see whether others changed the file meanwhile.
pub type PreOpAttr = Option<WccAttr>;
/// `post_op_fh3`: the handle of a new object.
pub type PostOpFh3 = Option<NfsFh3>;

xdr_table! {
    /// `enum nfsstat3` (section 2.6).
    enum Nfsstat3 {
        /// NFS3_OK: the call completed successfully.
        Ok = 0,
        /// NFS3ERR_PERM: not owner.
        Perm = 1,
        /// NFS3ERR_NOENT: no such file or directory.
        NoEnt = 2,
        /// NFS3ERR_IO: a hard error, for example of a disk.
        Io = 5,
        /// NFS3ERR_NXIO: no such device or address.
        Nxio = 6,
        /// NFS3ERR_ACCES: permission denied.
        Acces = 13,
        /// NFS3ERR_EXIST: the file exists already.
        Exist = 17,
        /// NFS3ERR_XDEV: a link or rename across file systems.
        Xdev = 18,
        /// NFS3ERR_NODEV: no such device.
        NoDev = 19,
        /// NFS3ERR_NOTDIR: not a directory where one was needed.
        NotDir = 20,
        /// NFS3ERR_ISDIR: a directory where none was allowed.
        IsDir = 21,
        /// NFS3ERR_INVAL: an argument that the operation does not support.
        Inval = 22,
        /// NFS3ERR_FBIG: the file would grow beyond the server's limit.
        Fbig = 27,
        /// NFS3ERR_NOSPC: no space left.
        NoSpc = 28,
        /// NFS3ERR_ROFS: a change to a read-only file system.
        Rofs = 30,
        /// NFS3ERR_MLINK: too many hard links.
        Mlink = 31,
        /// NFS3ERR_NAMETOOLONG: the name was too long.
        NameTooLong = 63,
        /// NFS3ERR_NOTEMPTY: the directory is not empty.
        NotEmpty = 66,
        /// NFS3ERR_DQUOT: the user's quota is exceeded.
        Dquot = 69,
        /// NFS3ERR_STALE: the handle's file is gone or withdrawn.
        Stale = 70,
        /// NFS3ERR_REMOTE: too many levels of remote in path.
        Remote = 71,
        /// NFS3ERR_BADHANDLE: the handle failed the server's checks.
        BadHandle = 10_001,
        /// NFS3ERR_NOT_SYNC: the guard of a SETATTR did not match.
        NotSync = 10_002,
        /// NFS3ERR_BAD_COOKIE: the READDIR cookie is stale.
        BadCookie = 10_003,
        /// NFS3ERR_NOTSUPP: the operation is not supported.
        NotSupp = 10_004,
        /// NFS3ERR_TOOSMALL: the buffer or request is too small.
        TooSmall = 10_005,
        /// NFS3ERR_SERVERFAULT: an error that maps to no other.
        ServerFault = 10_006,
        /// NFS3ERR_BADTYPE: the server makes no objects of this type.
        BadType = 10_007,
        /// NFS3ERR_JUKEBOX: the operation has started but takes long: ask again.
        Jukebox = 10_008,
    }

    /// `enum ftype3`.
    enum Ftype3 {
        /// NF3REG: regular file.
        Reg = 1,
        /// NF3DIR: directory.
        Dir = 2,
        /// NF3BLK: block special device.
        Blk = 3,
        /// NF3CHR: character special device.
        Chr = 4,
        /// NF3LNK: symbolic link.
        Lnk = 5,
        /// NF3SOCK: socket.
        Sock = 6,
        /// NF3FIFO: named pipe.
        Fifo = 7,
    }

    /// `enum stable_how` (section 3.3.7): how durable a WRITE must be, or was.
    enum StableHow {
        /// UNSTABLE: as the server likes; COMMIT makes it durable.
        Unstable = 0,
        /// DATA_SYNC: the data, with the metadata needed to read it back.
        DataSync = 1,
        /// FILE_SYNC: the data and all metadata.
        FileSync = 2,
    }

    /// `enum createmode3` (section 3.3.8).
    enum CreateMode3 {
        /// UNCHECKED: an existing file is used.
        Unchecked = 0,
        /// GUARDED: an existing file is an error.
        Guarded = 1,
        /// EXCLUSIVE: exactly once, by a verifier.
        Exclusive = 2,
    }

    /// `struct specdata3`: a device's numbers.
    struct SpecData3 {
        /// Major number.
        specdata1: u32,
        /// Minor number.
        specdata2: u32,
    }

    /// `struct nfstime3`: time since 1970, UTC.
    struct Nfstime3 {
        /// Whole seconds.
        seconds: u32,
        /// Nanoseconds beside them; a client may send any number.
        nseconds: u32,
    }

    /// `struct fattr3`: all attributes of a file system object.
    struct Fattr3 {
        /// Type of the object.
        ftype: Ftype3,
        /// Protection mode bits, 07777.
        mode: u32,
        /// Number of hard links.
        nlink: u32,
        /// Owner.
        uid: u32,
        /// Owner's group.
        gid: u32,
        /// Size in bytes.
        size: u64,
        /// Bytes of disk space that it takes.
        used: u64,
        /// Device numbers of a special file.
        rdev: SpecData3,
        /// File system id.
        fsid: u64,
        /// The number that identifies it in its file system.
        fileid: u64,
        /// Last access.
        atime: Nfstime3,
        /// Last change of its data.
        mtime: Nfstime3,
        /// Last change of its attributes.
        ctime: Nfstime3,
    }

    /// `struct wcc_attr`: the attributes that show a change.
    struct WccAttr {
        /// Size in bytes.
        size: u64,
        /// Last change of its data.
        mtime: Nfstime3,
        /// Last change of its attributes.
        ctime: Nfstime3,
    }

    /// `struct wcc_data`: weak cache consistency, before and after in one atomic step.
    struct WccData {
        /// Before the operation.
        before: PreOpAttr,
        /// After the operation.
        after: PostOpAttr,
    }

    /// `struct sattr3`: attributes to set; a `None` leaves the attribute as it is.
    struct Sattr3 {
        /// Protection mode bits.
        mode: Option<u32>,
        /// Owner.
        uid: Option<u32>,
        /// Owner's group.
        gid: Option<u32>,
        /// Size in bytes.
        size: Option<u64>,
        /// Last access.
        atime: SetTime,
        /// Last change of data.
        mtime: SetTime,
    }
}

impl Fattr3 {
    /// Bytes of a `fattr3` on the wire.
    pub const WIRE_BYTES: usize = 84;
}

impl WccData {
    /// Without attributes: for errors before the object was looked at.
    pub const NONE: WccData = WccData { before: None, after: None };
}

impl Sattr3 {
    /// Sets nothing.
    pub const NONE: Sattr3 = Sattr3 {
        mode: None,
        uid: None,
        gid: None,
        size: None,
        atime: SetTime::DontChange,
        mtime: SetTime::DontChange,
    };
}

/// `union set_atime` and `union set_mtime`, by `enum time_how`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// DONT_CHANGE.
    DontChange,
    /// SET_TO_SERVER_TIME.
    ServerTime,
    /// SET_TO_CLIENT_TIME.
    ClientTime(Nfstime3),
}

impl Encode for SetTime {
    fn encode(&self, to: &mut EncodeBuf) {
        match self {
            SetTime::DontChange => to.u32(0),
            SetTime::ServerTime => to.u32(1),
            SetTime::ClientTime(time) => {
                to.u32(2);
                to.put(time);
            }
        }
    }
}

impl<'a> Decode<'a> for SetTime {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let offset = from.position();
        match from.u32()? {
            0 => Ok(SetTime::DontChange),
            1 => Ok(SetTime::ServerTime),
            2 => Nfstime3::decode(from).map(SetTime::ClientTime),
            value => Err(XdrError::BadValue { offset, what: "time_how", value }),
        }
    }
}

/// `struct nfs_fh3`: a file handle, at most 64 bytes that only the server reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NfsFh3 {
    len: u8,
    /// Zero from `len` on, so that equality by field is equality of the handles.
    data: [u8; FH_BYTES_MAX],
}

impl NfsFh3 {
    /// A handle with these bytes; `None` if there are more than 64.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut data = [0; FH_BYTES_MAX];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(NfsFh3 { len: u8::try_from(bytes.len()).ok()?, data })
    }

    /// The bytes.
    #[expect(clippy::indexing_slicing, reason = "both constructors keep len <= 64")]
    pub fn bytes(&self) -> &[u8] {
        &self.data[..usize::from(self.len)]
    }

    /// Its bytes on the wire.
    pub fn wire_bytes(&self) -> usize {
        opaque_bytes(usize::from(self.len))
    }
}

impl fmt::Debug for NfsFh3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NfsFh3(")?;
        for byte in self.bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

impl Encode for NfsFh3 {
    fn encode(&self, to: &mut EncodeBuf) {
        to.opaque(self.bytes());
    }
}

impl<'a> Decode<'a> for NfsFh3 {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let bytes = from.opaque(FH_BYTES_MAX)?;
        let mut data = [0; FH_BYTES_MAX];
        for (to, byte) in data.iter_mut().zip(bytes) {
            *to = *byte;
        }
        Ok(NfsFh3 { len: u8::try_from(bytes.len()).unwrap_or(0), data })
    }
}

/// Bits of ACCESS (section 3.3.4).
pub mod access {
    /// ACCESS3_READ: read data from file or read a directory.
    pub const READ: u32 = 0x01;
    /// ACCESS3_LOOKUP: look up a name in a directory.
    pub const LOOKUP: u32 = 0x02;
    /// ACCESS3_MODIFY: rewrite existing file data or modify existing directory entries.
    pub const MODIFY: u32 = 0x04;
    /// ACCESS3_EXTEND: write new data or add directory entries.
    pub const EXTEND: u32 = 0x08;
    /// ACCESS3_DELETE: delete an existing directory entry.
    pub const DELETE: u32 = 0x10;
    /// ACCESS3_EXECUTE: execute file.
    pub const EXECUTE: u32 = 0x20;
}

/// Bits of FSINFO's `properties` (section 3.3.19).
pub mod fsf {
    /// FSF3_LINK: hard links are supported.
    pub const LINK: u32 = 0x01;
    /// FSF3_SYMLINK: symbolic links are supported.
    pub const SYMLINK: u32 = 0x02;
    /// FSF3_HOMOGENEOUS: PATHCONF returns the same for every object.
    pub const HOMOGENEOUS: u32 = 0x08;
    /// FSF3_CANSETTIME: SETATTR can set times to the `time_delta`.
    pub const CANSETTIME: u32 = 0x10;
}

const _: () = assert!(FH_BYTES_MAX <= 0xff, "a handle's length fits 8 bits");
