//! Results of the procedures (RFC 1813 section 3.3), in their order.
//!
//! Invariants:
//! - A result is `NFS3_OK` with its body or an error with its body, never a mixture: [`Res3`].
//! - READ's `count` is the length of its data, when encoding and when decoding.

use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf, PagePiece, Span, XdrError};
use aquifer_rpc::xdr_table;

use super::readdir::{Readdir3ResOk, Readdirplus3ResOk};
use super::types::{
    Fattr3, NfsFh3, Nfsstat3, Nfstime3, PostOpAttr, PostOpFh3, StableHow, WccData, WriteVerf3,
};

/// `union *3res switch (nfsstat3 status)`: `T` follows NFS3_OK, `F` every error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Res3<T, F> {
    /// NFS3_OK.
    Ok(T),
    /// Any error.
    Fail {
        /// The status; never [`Nfsstat3::Ok`].
        status: Nfsstat3,
        /// The error's body.
        resfail: F,
    },
}

impl<T, F> Res3<T, F> {
    /// The status word.
    pub fn status(&self) -> Nfsstat3 {
        match self {
            Res3::Ok(_) => Nfsstat3::Ok,
            Res3::Fail { status, .. } => *status,
        }
    }
}

impl<T: Encode, F: Encode> Encode for Res3<T, F> {
    /// # Panics
    /// If a failure has the status OK.
    fn encode(&self, to: &mut EncodeBuf) {
        to.put(&self.status());
        match self {
            Res3::Ok(resok) => to.put(resok),
            Res3::Fail { status, resfail } => {
                assert_ne!(*status, Nfsstat3::Ok, "a failure has a reason");
                to.put(resfail);
            }
        }
    }
}

impl<'a, T: Decode<'a>, F: Decode<'a>> Decode<'a> for Res3<T, F> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        match Nfsstat3::decode(from)? {
            Nfsstat3::Ok => T::decode(from).map(Res3::Ok),
            status => F::decode(from).map(|resfail| Res3::Fail { status, resfail }),
        }
    }
}

/// GETATTR.
pub type Getattr3Res = Res3<Fattr3, ()>;
/// SETATTR.
pub type Setattr3Res = Res3<WccData, WccData>;
/// LOOKUP; an error carries the directory's attributes.
pub type Lookup3Res = Res3<Lookup3ResOk, PostOpAttr>;
/// ACCESS.
pub type Access3Res = Res3<Access3ResOk, PostOpAttr>;
/// READLINK.
pub type Readlink3Res<'a> = Res3<Readlink3ResOk<'a>, PostOpAttr>;
/// READ.
pub type Read3Res<'a> = Res3<Read3ResOk<'a>, PostOpAttr>;
/// WRITE.
pub type Write3Res = Res3<Write3ResOk, WccData>;
/// CREATE; an error carries the directory's attributes.
pub type Create3Res = Res3<Create3ResOk, WccData>;
/// MKDIR.
pub type Mkdir3Res = Create3Res;
/// SYMLINK.
pub type Symlink3Res = Create3Res;
/// MKNOD.
pub type Mknod3Res = Create3Res;
/// REMOVE: the directory's attributes.
pub type Remove3Res = Res3<WccData, WccData>;
/// RMDIR: the directory's attributes.
pub type Rmdir3Res = Res3<WccData, WccData>;
/// RENAME.
pub type Rename3Res = Res3<RenameWcc, RenameWcc>;
/// LINK.
pub type Link3Res = Res3<LinkWcc, LinkWcc>;
/// READDIR.
pub type Readdir3Res<'a> = Res3<Readdir3ResOk<'a>, PostOpAttr>;
/// READDIRPLUS.
pub type Readdirplus3Res<'a> = Res3<Readdirplus3ResOk<'a>, PostOpAttr>;
/// FSSTAT.
pub type Fsstat3Res = Res3<Fsstat3ResOk, PostOpAttr>;
/// FSINFO.
pub type Fsinfo3Res = Res3<Fsinfo3ResOk, PostOpAttr>;
/// PATHCONF.
pub type Pathconf3Res = Res3<Pathconf3ResOk, PostOpAttr>;
/// COMMIT.
pub type Commit3Res = Res3<Commit3ResOk, WccData>;

xdr_table! {
    /// `struct LOOKUP3resok`.
    struct Lookup3ResOk {
        /// The object that the name stands for.
        object: NfsFh3,
        /// Its attributes.
        obj_attributes: PostOpAttr,
        /// The directory's.
        dir_attributes: PostOpAttr,
    }

    /// `struct ACCESS3resok`.
    struct Access3ResOk {
        /// The object's attributes.
        obj_attributes: PostOpAttr,
        /// The granted ones of the requested bits of [`access`](super::access).
        access: u32,
    }

    /// `struct READLINK3resok`.
    struct Readlink3ResOk<'a> {
        /// The link's attributes.
        symlink_attributes: PostOpAttr,
        /// The link's target.
        data: &'a [u8],
    }

    /// `struct WRITE3resok`.
    struct Write3ResOk {
        /// The file's attributes.
        file_wcc: WccData,
        /// Bytes written.
        count: u32,
        /// How durable they are: at least as durable as requested.
        committed: StableHow,
        /// The write verifier: it changes when UNSTABLE writes may have been lost.
        verf: WriteVerf3,
    }

    /// `struct CREATE3resok`, `MKDIR3resok`, `SYMLINK3resok` and `MKNOD3resok`.
    struct Create3ResOk {
        /// The new object.
        obj: PostOpFh3,
        /// Its attributes.
        obj_attributes: PostOpAttr,
        /// The directory's.
        dir_wcc: WccData,
    }

    /// `struct RENAME3resok` and `RENAME3resfail`.
    struct RenameWcc {
        /// The old directory's attributes.
        fromdir_wcc: WccData,
        /// The new directory's.
        todir_wcc: WccData,
    }

    /// `struct LINK3resok` and `LINK3resfail`.
    struct LinkWcc {
        /// The file's attributes.
        file_attributes: PostOpAttr,
        /// The attributes of the directory with the new name.
        linkdir_wcc: WccData,
    }

    /// `struct FSSTAT3resok`.
    struct Fsstat3ResOk {
        /// The file system root's attributes.
        obj_attributes: PostOpAttr,
        /// Total size, in bytes.
        tbytes: u64,
        /// Free space, in bytes.
        fbytes: u64,
        /// Free space for this user, in bytes.
        abytes: u64,
        /// Total file slots.
        tfiles: u64,
        /// Free file slots.
        ffiles: u64,
        /// Free file slots for this user.
        afiles: u64,
        /// Seconds for which these values are not expected to change; 0 if unknown.
        invarsec: u32,
    }

    /// `struct FSINFO3resok`.
    struct Fsinfo3ResOk {
        /// The file system root's attributes.
        obj_attributes: PostOpAttr,
        /// Largest READ, in bytes.
        rtmax: u32,
        /// Preferred size of a READ, in bytes.
        rtpref: u32,
        /// Suggested multiple of it, in bytes.
        rtmult: u32,
        /// Largest WRITE, in bytes.
        wtmax: u32,
        /// Preferred size of a WRITE, in bytes.
        wtpref: u32,
        /// Suggested multiple of it, in bytes.
        wtmult: u32,
        /// Preferred size of a READDIR, in bytes.
        dtpref: u32,
        /// Largest file, in bytes.
        maxfilesize: u64,
        /// Finest step of times that can be set.
        time_delta: Nfstime3,
        /// Bits of [`fsf`](super::fsf).
        properties: u32,
    }

    /// `struct PATHCONF3resok`.
    struct Pathconf3ResOk {
        /// The object's attributes.
        obj_attributes: PostOpAttr,
        /// Most hard links to an object.
        linkmax: u32,
        /// Longest name, in bytes.
        name_max: u32,
        /// Whether longer names are errors, rather than truncated.
        no_trunc: bool,
        /// Whether only a privileged user changes owners.
        chown_restricted: bool,
        /// Whether names ignore case.
        case_insensitive: bool,
        /// Whether names keep case.
        case_preserving: bool,
    }

    /// `struct COMMIT3resok`.
    struct Commit3ResOk {
        /// The file's attributes.
        file_wcc: WccData,
        /// The write verifier: it changes when UNSTABLE writes may have been lost.
        verf: WriteVerf3,
    }
}

/// `struct READ3resok` as it is received; `count` is the length of `data`. The server sends it
/// with [`Read3Head::encode_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read3ResOk<'a> {
    /// All fields except count and data.
    pub head: Read3Head,
    /// The data, and where it lies in the record.
    pub data: Span<'a>,
}

/// `struct READ3resok` without count and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read3Head {
    /// The file's attributes.
    pub file_attributes: PostOpAttr,
    /// Whether the data reaches the end of the file.
    pub eof: bool,
}

impl Read3Head {
    /// Appends a whole successful READ result, including NFS3_OK, whose data is shared pages.
    pub fn encode_with(&self, to: &mut EncodeBuf, data: impl IntoIterator<Item = PagePiece>) {
        to.put(&Nfsstat3::Ok);
        to.put(&self.file_attributes);
        let count = to.hole();
        to.bool(self.eof);
        let bytes = to.payload(data);
        to.fill(count, bytes);
    }
}

impl Encode for Read3ResOk<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.put(&self.head.file_attributes);
        let count = to.hole();
        to.bool(self.head.eof);
        to.put(&self.data);
        to.fill(count, u32::try_from(self.data.len()).unwrap_or(u32::MAX));
    }
}

impl<'a> Decode<'a> for Read3ResOk<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let file_attributes = Decode::decode(from)?;
        let offset = from.position();
        let count = from.u32()?;
        let head = Read3Head { file_attributes, eof: from.bool()? };
        let data = Span::decode(from)?;
        if u32::try_from(data.len()) != Ok(count) {
            return Err(XdrError::BadValue { offset, what: "READ3resok.count", value: count });
        }
        Ok(Read3ResOk { head, data })
    }
}
