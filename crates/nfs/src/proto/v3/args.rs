//! Arguments of the procedures (RFC 1813 section 3.3), in their order.
//!
//! Names and paths are bytes without a limit of their own. `filename3` and `nfspath3` have none, so
//! the record's end limits them; NAMETOOLONG is the file layer's answer.

use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf, PagePiece, Span, XdrError};
use aquifer_rpc::xdr_table;

use super::types::{
    CookieVerf3, CreateMode3, CreateVerf3, Ftype3, NfsFh3, Nfstime3, Sattr3, SpecData3, StableHow,
};

xdr_table! {
    /// `struct diropargs3`: a name in a directory. These are all arguments of LOOKUP, REMOVE and
    /// RMDIR.
    struct DirOpArgs3<'a> {
        /// The directory.
        dir: NfsFh3,
        /// The name in it.
        name: &'a [u8],
    }

    /// GETATTR, and each procedure whose only argument is a handle: READLINK, FSSTAT, FSINFO,
    /// PATHCONF.
    struct Getattr3Args {
        /// The object.
        object: NfsFh3,
    }

    /// SETATTR.
    struct Setattr3Args {
        /// The object.
        object: NfsFh3,
        /// Attributes to set.
        new_attributes: Sattr3,
        /// `sattrguard3`: only if this is still the object's ctime.
        guard: Option<Nfstime3>,
    }

    /// ACCESS.
    struct Access3Args {
        /// The object.
        object: NfsFh3,
        /// The requested bits of [`access`](super::access).
        access: u32,
    }

    /// READ.
    struct Read3Args {
        /// The file.
        file: NfsFh3,
        /// From this byte on.
        offset: u64,
        /// At most this many bytes.
        count: u32,
    }

    /// CREATE.
    struct Create3Args<'a> {
        /// The directory and the name.
        place: DirOpArgs3<'a>,
        /// How to treat an existing file.
        how: CreateHow3,
    }

    /// MKDIR.
    struct Mkdir3Args<'a> {
        /// The directory and the name.
        place: DirOpArgs3<'a>,
        /// Its first attributes.
        attributes: Sattr3,
    }

    /// `struct symlinkdata3`.
    struct SymlinkData3<'a> {
        /// The link's first attributes.
        symlink_attributes: Sattr3,
        /// The link's target.
        symlink_data: &'a [u8],
    }

    /// SYMLINK.
    struct Symlink3Args<'a> {
        /// The directory and the name.
        place: DirOpArgs3<'a>,
        /// The link.
        symlink: SymlinkData3<'a>,
    }

    /// `struct devicedata3`.
    struct DeviceData3 {
        /// The device's first attributes.
        dev_attributes: Sattr3,
        /// Its numbers.
        spec: SpecData3,
    }

    /// MKNOD.
    struct Mknod3Args<'a> {
        /// The directory and the name.
        place: DirOpArgs3<'a>,
        /// The kind of node.
        what: MknodData3,
    }

    /// RENAME.
    struct Rename3Args<'a> {
        /// The old place.
        from: DirOpArgs3<'a>,
        /// The new place.
        to: DirOpArgs3<'a>,
    }

    /// LINK.
    struct Link3Args<'a> {
        /// The object that gets another name.
        file: NfsFh3,
        /// The new name.
        link: DirOpArgs3<'a>,
    }

    /// READDIR.
    struct Readdir3Args {
        /// The directory.
        dir: NfsFh3,
        /// After the entry with this cookie; 0 for the start.
        cookie: u64,
        /// The verifier that came with the cookie.
        cookieverf: CookieVerf3,
        /// Longest `READDIR3resok`, in bytes, XDR included.
        count: u32,
    }

    /// READDIRPLUS.
    struct Readdirplus3Args {
        /// The directory.
        dir: NfsFh3,
        /// After the entry with this cookie; 0 for the start.
        cookie: u64,
        /// The verifier that came with the cookie.
        cookieverf: CookieVerf3,
        /// Most bytes of directory information, without attributes and handles.
        dircount: u32,
        /// Longest `READDIRPLUS3resok`, in bytes, XDR included.
        maxcount: u32,
    }

    /// COMMIT.
    struct Commit3Args {
        /// The file.
        file: NfsFh3,
        /// From this byte on.
        offset: u64,
        /// The number of bytes; 0 to the end of the file.
        count: u32,
    }
}

/// WRITE. `count` and the length of the data are the same value here. A call in which they differ
/// does not decode (as in Linux's server).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write3Args<'a> {
    /// All but the data.
    pub head: Write3Head,
    /// The data, and where it lies in the record.
    pub data: Span<'a>,
}

/// WRITE without its data. It decodes from the first bytes of a record that is still arriving. The
/// decoder then stands at the first byte of the data, so the rest can be received in its final
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write3Head {
    /// The file.
    pub file: NfsFh3,
    /// From this byte on.
    pub offset: u64,
    /// Bytes of data.
    pub count: u32,
    /// The required durability.
    pub stable: StableHow,
}

impl Write3Head {
    /// Appends a whole WRITE whose data is shared pages.
    ///
    /// # Panics
    /// If the pieces do not hold `count` bytes.
    pub fn encode_with(&self, to: &mut EncodeBuf, data: impl IntoIterator<Item = PagePiece>) {
        self.encode_fields(to);
        let bytes = to.payload(data);
        assert_eq!(bytes, self.count, "WRITE announces the data that it carries");
    }

    fn encode_fields(&self, to: &mut EncodeBuf) {
        to.put(&self.file);
        to.u64(self.offset);
        to.u32(self.count);
        to.put(&self.stable);
    }

    fn decode_fields(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Write3Head {
            file: Decode::decode(from)?,
            offset: from.u64()?,
            count: from.u32()?,
            stable: Decode::decode(from)?,
        })
    }

    /// Checks that the length word of the data, which is at `offset`, equals `count`.
    fn check(self, offset: usize, len: u32) -> Result<Self, XdrError> {
        let what = "length of WRITE3args.data";
        let differs = XdrError::BadValue { offset, what, value: len };
        if len == self.count { Ok(self) } else { Err(differs) }
    }
}

/// Reads up to the length word of the data, and that word.
impl<'a> Decode<'a> for Write3Head {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let head = Write3Head::decode_fields(from)?;
        let offset = from.position();
        head.check(offset, from.u32()?)
    }
}

impl Encode for Write3Args<'_> {
    /// # Panics
    /// If the data does not hold `count` bytes.
    fn encode(&self, to: &mut EncodeBuf) {
        let bytes = u32::try_from(self.data.len());
        assert_eq!(bytes, Ok(self.head.count), "WRITE announces the data that it carries");
        self.head.encode_fields(to);
        to.put(&self.data);
    }
}

impl<'a> Decode<'a> for Write3Args<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let head = Write3Head::decode_fields(from)?;
        let offset = from.position();
        let data = Span::decode(from)?;
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Ok(Write3Args { head: head.check(offset, len)?, data })
    }
}

/// `union createhow3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow3 {
    /// UNCHECKED, with the file's first attributes.
    Unchecked(Sattr3),
    /// GUARDED, with the file's first attributes.
    Guarded(Sattr3),
    /// EXCLUSIVE, with the verifier that identifies the call.
    Exclusive(CreateVerf3),
}

impl Encode for CreateHow3 {
    fn encode(&self, to: &mut EncodeBuf) {
        match self {
            CreateHow3::Unchecked(attributes) => {
                to.put(&CreateMode3::Unchecked);
                to.put(attributes);
            }
            CreateHow3::Guarded(attributes) => {
                to.put(&CreateMode3::Guarded);
                to.put(attributes);
            }
            CreateHow3::Exclusive(verf) => {
                to.put(&CreateMode3::Exclusive);
                to.put(verf);
            }
        }
    }
}

impl<'a> Decode<'a> for CreateHow3 {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(match CreateMode3::decode(from)? {
            CreateMode3::Unchecked => CreateHow3::Unchecked(Decode::decode(from)?),
            CreateMode3::Guarded => CreateHow3::Guarded(Decode::decode(from)?),
            CreateMode3::Exclusive => CreateHow3::Exclusive(Decode::decode(from)?),
        })
    }
}

/// `union mknoddata3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MknodData3 {
    /// NF3CHR: a character device.
    Chr(DeviceData3),
    /// NF3BLK: a block device.
    Blk(DeviceData3),
    /// NF3SOCK: a socket.
    Sock(Sattr3),
    /// NF3FIFO: a named pipe.
    Fifo(Sattr3),
    /// NF3REG: MKNOD does not make this; the answer is BADTYPE.
    Reg,
    /// NF3DIR: as NF3REG.
    Dir,
    /// NF3LNK: as NF3REG.
    Lnk,
}

impl MknodData3 {
    /// The requested type.
    pub fn ftype(&self) -> Ftype3 {
        match self {
            MknodData3::Chr(_) => Ftype3::Chr,
            MknodData3::Blk(_) => Ftype3::Blk,
            MknodData3::Sock(_) => Ftype3::Sock,
            MknodData3::Fifo(_) => Ftype3::Fifo,
            MknodData3::Reg => Ftype3::Reg,
            MknodData3::Dir => Ftype3::Dir,
            MknodData3::Lnk => Ftype3::Lnk,
        }
    }
}

impl Encode for MknodData3 {
    fn encode(&self, to: &mut EncodeBuf) {
        to.put(&self.ftype());
        match self {
            MknodData3::Chr(device) | MknodData3::Blk(device) => to.put(device),
            MknodData3::Sock(attributes) | MknodData3::Fifo(attributes) => to.put(attributes),
            MknodData3::Reg | MknodData3::Dir | MknodData3::Lnk => {}
        }
    }
}

impl<'a> Decode<'a> for MknodData3 {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        Ok(match Ftype3::decode(from)? {
            Ftype3::Chr => MknodData3::Chr(Decode::decode(from)?),
            Ftype3::Blk => MknodData3::Blk(Decode::decode(from)?),
            Ftype3::Sock => MknodData3::Sock(Decode::decode(from)?),
            Ftype3::Fifo => MknodData3::Fifo(Decode::decode(from)?),
            Ftype3::Reg => MknodData3::Reg,
            Ftype3::Dir => MknodData3::Dir,
            Ftype3::Lnk => MknodData3::Lnk,
        })
    }
}
