//! Calls that are nearly right: a stranger who has read the RFCs would send them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aquifer_nfs::limits::{FILE_BYTES_MAX, NAME_BYTES_MAX, TRANSFER_BYTES_MAX};
use aquifer_nfs::proto::mount::{self, DirPath, Path};
use aquifer_nfs::proto::nlm::{
    self, CancArgs4, Limited, Lock4, LockArgs4, Notify4, Share4, ShareArgs4, TestArgs4, UnlockArgs4,
};
use aquifer_nfs::proto::nsm::{self, StatChge};
use aquifer_nfs::proto::v3::{
    self, Access3Args, Args3, Commit3Args, Create3Args, CreateHow3, DeviceData3, DirOpArgs3,
    Getattr3Args, Link3Args, Mkdir3Args, Mknod3Args, MknodData3, NfsFh3, Nfstime3, Procedure3,
    Read3Args, Readdir3Args, Readdirplus3Args, Rename3Args, Sattr3, SetTime, Setattr3Args,
    SpecData3, StableHow, Symlink3Args, SymlinkData3, Write3Args, Write3Head,
};
use aquifer_rpc::auth::{AUTH_SYS, AuthSys, Credential, Gids, OpaqueAuth};
use aquifer_rpc::message::Call;
use aquifer_rpc::portmap;
use aquifer_rpc::xdr::{Encode, EncodeBuf, Span};
use arbitrary::{Result, Unstructured};

use super::crowd;

/// A record on its way, without its mark.
#[derive(Clone)]
pub struct Sent {
    pub peer: SocketAddr,
    pub record: Vec<u8>,
}

/// The client's knowledge.
pub struct Known {
    /// The exports' roots, then handles from replies.
    handles: Vec<NfsFh3>,
    roots: usize,
    /// Cookies from listings.
    cookies: Vec<u64>,
    /// Some calls come from machines that have locks already.
    is_crowded: bool,
}

impl Known {
    pub fn new(roots: &[NfsFh3]) -> Self {
        Known { handles: roots.to_vec(), roots: roots.len(), cookies: vec![0], is_crowded: false }
    }

    /// Adds these handles, of a server that others use.
    pub fn of_crowd(&mut self, handles: impl IntoIterator<Item = NfsFh3>) {
        self.is_crowded = true;
        for handle in handles {
            self.handles.insert(self.roots, handle);
            self.roots += 1;
        }
    }

    pub fn handle(&mut self, handle: NfsFh3) {
        if self.handles.len() < KNOWN_MAX && !self.handles.contains(&handle) {
            self.handles.push(handle);
        }
    }

    /// The handle that was learnt last.
    pub fn newest(&self) -> Option<NfsFh3> {
        self.handles.last().copied()
    }

    pub fn cookie(&mut self, cookie: u64) {
        if self.cookies.len() < KNOWN_MAX {
            self.cookies.push(cookie);
        }
    }
}

/// A call as root of a host with all rights.
pub fn plain((program, version, procedure): (u32, u32, u32), args: &impl Encode) -> Sent {
    let gids = Gids::new(&[]).unwrap();
    let sys = AuthSys { stamp: 0, machine_name: b"host", uid: 0, gid: 0, gids };
    let credential = Credential::Sys(sys);
    let mut to = EncodeBuf::new();
    to.put(&Call { xid: 1, program, version, procedure, credential, verifier: OpaqueAuth::NONE });
    to.put(args);
    Sent { peer: PEERS[3], record: to.to_vec() }
}

/// An NFSv3 call as [`plain`].
pub fn nfs3(args: &Args3<'_>) -> Sent {
    plain((v3::PROGRAM, v3::VERSION, args.procedure().wire()), args)
}

/// A call made from the input.
pub fn arbitrary(from: &mut Unstructured<'_>, known: &Known) -> Result<Sent> {
    let mut to = EncodeBuf::new();
    match from.int_in_range(0..=21)? {
        0 => mount(from, &mut to)?,
        1 => {
            let words = [portmap::PROGRAM, from.int_in_range(0..=5)?, from.int_in_range(0..=13)?];
            header(from, &mut to, words)?;
            (0..4).try_for_each(|_| from.arbitrary().map(|word| to.u32(word)))?;
        }
        2 => {
            let program =
                *from.choose(&[v3::PROGRAM, mount::PROGRAM, 100_021, 100_024, 100_227])?;
            let words = [program, from.int_in_range(0..=5)?, from.int_in_range(0..=30)?];
            header(from, &mut to, words)?;
            let length = from.int_in_range(0..=64)?;
            to.opaque_fixed(from.bytes(length)?);
        }
        3 | 4 => lock(from, &mut to, known)?,
        _ => {
            let procedure = *from.choose(Procedure3::ALL)?;
            header(from, &mut to, [v3::PROGRAM, v3::VERSION, procedure.wire()])?;
            let (names, data) = (names(from)?, data(from)?);
            to.put(&args(from, known, procedure, &names, &data)?);
        }
    }
    let mut record = to.to_vec();
    damage(from, &mut record)?;
    Ok(Sent { peer: peer(from, known)?, record })
}

fn peer(from: &mut Unstructured<'_>, known: &Known) -> Result<SocketAddr> {
    Ok(match from.int_in_range(0..=7)? {
        at @ 3..=5 if known.is_crowded => crowd::member(at - 3),
        at => *PEERS.get(usize::from(at)).unwrap_or(&PEERS[3]),
    })
}

/// Callers with different rights on the exports; most calls come from the last one.
pub const PEERS: [SocketAddr; 4] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 700),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 40_000),
    SocketAddr::new(IpAddr::V6(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped()), 40_000),
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 700),
];

/// A call's header, now and then with a credential that breaks its limits.
fn header(from: &mut Unstructured<'_>, to: &mut EncodeBuf, words: [u32; 3]) -> Result<()> {
    let [program, version, procedure] = words;
    let xid = from.arbitrary::<u16>()?.into();
    let machine = [b'm'; 255];
    let ids = [0, 1, 100, 65_534, u32::MAX];
    let (uid, gid) = (*from.choose(&ids)?, *from.choose(&ids)?);
    let groups: u8 = if from.ratio(1, 8)? { from.int_in_range(0..=17)? } else { 0 };
    let listed: Vec<u32> = (0..groups).map(|group| 98 + u32::from(group)).collect();
    let gids = Gids::new(&listed);
    let mut too_many = EncodeBuf::new();
    let credential = match (from.int_in_range(0..=31)?, gids) {
        (0, _) => Credential::None,
        (1, _) => {
            let flavor = *from.choose(&[2, 6, 7, u32::MAX])?;
            Credential::Other(OpaqueAuth { flavor, body: &machine })
        }
        (_, Some(gids)) => {
            Credential::Sys(AuthSys { stamp: 0, machine_name: b"host", uid, gid, gids })
        }
        (_, None) => {
            too_many.u32(0);
            too_many.opaque(b"host");
            [uid, gid, groups.into()].iter().chain(&listed).for_each(|word| too_many.u32(*word));
            let body = too_many.contiguous().unwrap_or_default();
            Credential::Other(OpaqueAuth { flavor: AUTH_SYS, body })
        }
    };
    to.put(&Call { xid, program, version, procedure, credential, verifier: OpaqueAuth::NONE });
    Ok(())
}

fn mount(from: &mut Unstructured<'_>, to: &mut EncodeBuf) -> Result<()> {
    let words = [mount::PROGRAM, from.int_in_range(1..=3)?, from.int_in_range(0..=6)?];
    header(from, to, words)?;
    let mut path = Vec::new();
    let parts: [&[u8]; 10] =
        [b"/", b"/tank", b"/ro", b"/one", b"/..", b"/.", b"//", b"/1", b"\0", b"\xff"];
    for _ in 0..from.int_in_range(0..=5)? {
        path.extend_from_slice(from.choose(&parts)?);
    }
    if from.ratio(1, 16)? {
        path.resize(*from.choose(&[255, 256, 1023, 1024])?, b'p');
    }
    to.put(&DirPath { path: Path(&path) });
    Ok(())
}

/// A call of NLM, or a notification of NSM.
fn lock(from: &mut Unstructured<'_>, to: &mut EncodeBuf, known: &Known) -> Result<()> {
    let long = [b'h'; 1025];
    let words: [&[u8]; 5] =
        [b"", b"host", b"other", &long[..256], &long[from.int_in_range(0..=2)?..]];
    let mut word = |often| {
        let rare = from.ratio(1, 8)?;
        Ok(if rare { *from.choose(&words)? } else { often })
    };
    let (cookie, name, oh) = (word(&b"c"[..])?, word(&b"host"[..])?, word(&b"o"[..])?);
    if from.ratio(1, 16)? {
        header(from, to, [nsm::PROGRAM, nsm::VERSION, nsm::Procedure::Notify.wire()])?;
        to.put(&StatChge { mon_name: Limited(name), state: from.int_in_range(-1..=4)? });
        return Ok(());
    }
    let procedure = *from.choose(nlm::Procedure::ALL)?;
    header(from, to, [nlm::PROGRAM, nlm::VERSION, procedure.wire()])?;
    let fh = handle(from, known)?;
    let (cookie, caller_name, fh, oh) =
        (Limited(cookie), Limited(name), Limited(fh.bytes()), Limited(oh));
    let svid = from.int_in_range(-1..=2)?;
    let [block, exclusive, odd]: [bool; 3] = from.arbitrary()?;
    let (l_offset, l_len) = (offset(from)?, offset(from)?);
    let alock = Lock4 { caller_name, fh, oh, svid, l_offset, l_len };
    let reclaim = odd && from.ratio(1, 8)?;
    match procedure {
        nlm::Procedure::Lock | nlm::Procedure::LockMsg | nlm::Procedure::NmLock => {
            to.put(&LockArgs4 { cookie, block, exclusive, alock, reclaim, state: 1 });
        }
        nlm::Procedure::Cancel | nlm::Procedure::CancelMsg => {
            to.put(&CancArgs4 { cookie, block, exclusive, alock });
        }
        nlm::Procedure::Unlock | nlm::Procedure::UnlockMsg => {
            to.put(&UnlockArgs4 { cookie, alock });
        }
        nlm::Procedure::Share | nlm::Procedure::Unshare => {
            let (mode, access) = (from.int_in_range(0..=4)?, from.int_in_range(0..=4)?);
            let share = Share4 { caller_name, fh, oh, mode, access };
            to.put(&ShareArgs4 { cookie, share, reclaim });
        }
        nlm::Procedure::FreeAll => to.put(&Notify4 { name: caller_name }),
        _ => to.put(&TestArgs4 { cookie, exclusive, alock }),
    }
    Ok(())
}

/// Changes or removes some bytes, now and then.
fn damage(from: &mut Unstructured<'_>, record: &mut Vec<u8>) -> Result<()> {
    match from.int_in_range(0..=31)? {
        0 => record.truncate(from.choose_index(record.len())?),
        1 => {
            let at = from.choose_index(record.len())?;
            record[at] = from.arbitrary()?;
        }
        2 => {
            let at = from.choose_index(record.len() / 4)? * 4;
            let word: u32 = *from.choose(&[0, 1, 2, 64, 255, 1 << 20, 1 << 31, u32::MAX])?;
            record[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        _ => {}
    }
    Ok(())
}

fn handle(from: &mut Unstructured<'_>, known: &Known) -> Result<NfsFh3> {
    let any = *from.choose(&known.handles)?;
    let newest = *known.handles.last().unwrap_or(&any);
    let mut bytes = any.bytes().to_vec();
    match from.int_in_range(0..=31)? {
        0 => bytes.truncate(from.choose_index(bytes.len())?),
        1 => bytes.resize(from.int_in_range(25..=v3::FH_BYTES_MAX)?, from.arbitrary()?),
        // Another file system, object or generation: each is a word of eight bytes.
        2 => {
            let at = from.choose_index(bytes.len())?;
            bytes[at] ^= from.arbitrary::<u8>()?;
        }
        3 => {
            let word = from.choose_index(3)? * 8;
            let value: u64 = *from.choose(&[0, 1, 2, 3, 7, 1 << 47, 1 << 62, u64::MAX])?;
            bytes[word..word + 8].copy_from_slice(&value.to_le_bytes());
        }
        4 => bytes = newest.bytes().iter().rev().copied().collect(),
        5..=7 => return Ok(any),
        8..=15 => return Ok(newest),
        // The directory of this input, and objects that it made there.
        _ => return Ok(*from.choose(&known.handles[known.roots.min(known.handles.len() - 1)..])?),
    }
    Ok(NfsFh3::new(&bytes).unwrap_or(any))
}

/// Two names, mostly out of a few, so that they collide.
fn names(from: &mut Unstructured<'_>) -> Result<[Vec<u8>; 2]> {
    Ok([name(from)?, name(from)?])
}

/// Names that mean something below `.aquifer`.
const HIDDEN: [&[u8]; 4] = [b"snapshot", b"control", b"auto-hourly-1", b"a@b"];

fn name(from: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let odd: [&[u8]; 10] = [
        b"",
        b".",
        b"..",
        b"/",
        b"a/b",
        b"a\0b",
        b"\xff\xfe",
        b"...",
        &[b'n'; NAME_BYTES_MAX],
        &[b'n'; NAME_BYTES_MAX + 1],
    ];
    Ok(match from.int_in_range(0..=31)? {
        at @ 0..=9 => odd[at].to_vec(),
        10 => {
            let length = from.int_in_range(0..=40)?;
            from.bytes(length)?.to_vec()
        }
        11 => vec![from.arbitrary()?; from.int_in_range(200..=5000)?],
        12..=14 => b".aquifer".to_vec(),
        15 => from.choose(&HIDDEN)?.to_vec(),
        other => vec![b'a' + u8::try_from(other % 5).unwrap()],
    })
}

fn data(from: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let largest = usize::try_from(TRANSFER_BYTES_MAX).unwrap();
    let length = match from.int_in_range(0..=255)? {
        0 => *from.choose(&[largest - 1, largest, largest + 1])?,
        1..=15 => *from.choose(&[8191, 8192, 65_536, 65_537])?,
        16..=31 => 0,
        32..=39 => return line(from),
        other => *[1, 511, 4095, 4096, 4097].get(other % 8).unwrap_or(&17),
    };
    Ok(vec![from.arbitrary()?; length])
}

/// Makes a line that may be written to the control file of a file, or is nearly one.
fn line(from: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const VERBS: [&[u8]; 5] = [b"clone", b"rollback", b"rollback -f", b"destroy", b"\xff"];
    const ENDS: [&[u8]; 4] = [b"\n", b"", b"\n\n", b" \0\n"];
    let end = *from.choose(&ENDS)?;
    let mut line = from.choose(&VERBS)?.to_vec();
    for _ in 0..from.int_in_range(0..=3)? {
        line.push(b' ');
        line.extend(name(from)?);
    }
    line.extend_from_slice(end);
    Ok(line)
}

fn offset(from: &mut Unstructured<'_>) -> Result<u64> {
    let edges = [
        FILE_BYTES_MAX - 4096,
        FILE_BYTES_MAX - 1,
        FILE_BYTES_MAX,
        FILE_BYTES_MAX + 1,
        1 << 59,
        (1 << 48) * 4096 - 1,
        (1 << 48) * 4096,
        i64::MAX.cast_unsigned(),
        u64::MAX - 4095,
        u64::MAX,
    ];
    Ok(match from.int_in_range(0..=7)? {
        0 => *from.choose(&edges)?,
        1 => from.arbitrary()?,
        2 => 1 << from.int_in_range(0..=45)?,
        3 => u64::from(from.arbitrary::<u16>()?),
        other => (other - 4) * 4096,
    })
}

fn count(from: &mut Unstructured<'_>) -> Result<u32> {
    let edges = [0, 1, 7, 100, 511, 4095, 4097, TRANSFER_BYTES_MAX, TRANSFER_BYTES_MAX + 1];
    Ok(match from.int_in_range(0..=7)? {
        0 => *from.choose(&edges)?,
        1 => *from.choose(&[i32::MAX.cast_unsigned(), 1 << 31, u32::MAX - 1, u32::MAX])?,
        2 => from.arbitrary()?,
        3 => from.arbitrary::<u16>()?.into(),
        _ => 4096,
    })
}

fn sattr(from: &mut Unstructured<'_>) -> Result<Sattr3> {
    if from.ratio(1, 2)? {
        return Ok(Sattr3::NONE);
    }
    let mut time = || {
        Ok(match from.int_in_range(0..=3)? {
            0 => SetTime::ServerTime,
            1 => SetTime::ClientTime(nfstime(from)?),
            _ => SetTime::DontChange,
        })
    };
    let (atime, mtime) = (time()?, time()?);
    let mode = from.arbitrary::<Option<u32>>()?;
    let (uid, gid) = if from.ratio(1, 4)? { from.arbitrary()? } else { (None, None) };
    let size = if from.ratio(1, 2)? { Some(offset(from)?) } else { None };
    Ok(Sattr3 { mode, uid, gid, size, atime, mtime })
}

fn nfstime(from: &mut Unstructured<'_>) -> Result<Nfstime3> {
    let nseconds = *from.choose(&[0, 1, 999_999_999, 1_000_000_000, u32::MAX])?;
    Ok(Nfstime3 { seconds: from.arbitrary()?, nseconds })
}

fn mknod(from: &mut Unstructured<'_>) -> Result<MknodData3> {
    let attributes = sattr(from)?;
    let spec = SpecData3 { specdata1: from.arbitrary()?, specdata2: from.arbitrary()? };
    let device = DeviceData3 { dev_attributes: attributes, spec };
    Ok(match from.int_in_range(0..=6)? {
        0 => MknodData3::Reg,
        1 => MknodData3::Dir,
        2 => MknodData3::Lnk,
        3 => MknodData3::Chr(device),
        4 => MknodData3::Blk(device),
        5 => MknodData3::Sock(attributes),
        _ => MknodData3::Fifo(attributes),
    })
}

fn how(from: &mut Unstructured<'_>) -> Result<CreateHow3> {
    Ok(match from.int_in_range(0..=3)? {
        0 => CreateHow3::Exclusive(from.choose(&[[0; 8], [1; 8], [0xff; 8]]).copied()?),
        1 => CreateHow3::Guarded(sattr(from)?),
        _ => CreateHow3::Unchecked(sattr(from)?),
    })
}

fn cookie(from: &mut Unstructured<'_>, known: &Known) -> Result<u64> {
    Ok(match from.int_in_range(0..=7)? {
        0 => from.arbitrary()?,
        1 => *from.choose(&[1, 2, 3, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX])?,
        _ => *from.choose(&known.cookies)?,
    })
}

fn args<'a>(
    from: &mut Unstructured<'_>,
    known: &Known,
    procedure: Procedure3,
    names: &'a [Vec<u8>; 2],
    data: &'a [u8],
) -> Result<Args3<'a>> {
    let object = handle(from, known)?;
    let [first, second] = names;
    let place = DirOpArgs3 { dir: object, name: first };
    Ok(match procedure {
        Procedure3::Null => Args3::Null,
        Procedure3::Getattr => Args3::Getattr(Getattr3Args { object }),
        Procedure3::Readlink => Args3::Readlink(Getattr3Args { object }),
        Procedure3::Fsstat => Args3::Fsstat(Getattr3Args { object }),
        Procedure3::Fsinfo => Args3::Fsinfo(Getattr3Args { object }),
        Procedure3::Pathconf => Args3::Pathconf(Getattr3Args { object }),
        Procedure3::Setattr => {
            let guard = if from.ratio(1, 8)? { Some(nfstime(from)?) } else { None };
            Args3::Setattr(Setattr3Args { object, new_attributes: sattr(from)?, guard })
        }
        Procedure3::Access => {
            Args3::Access(Access3Args { object, access: from.arbitrary::<u8>()?.into() })
        }
        Procedure3::Read => {
            Args3::Read(Read3Args { file: object, offset: offset(from)?, count: count(from)? })
        }
        Procedure3::Write => {
            let count = u32::try_from(data.len()).unwrap();
            let stable = *from.choose(StableHow::ALL)?;
            let head = Write3Head { file: object, offset: offset(from)?, count, stable };
            Args3::Write(Write3Args { head, data: Span { offset: 0, bytes: data } })
        }
        Procedure3::Lookup => Args3::Lookup(place),
        Procedure3::Remove => Args3::Remove(place),
        Procedure3::Rmdir => Args3::Rmdir(place),
        Procedure3::Create => Args3::Create(Create3Args { place, how: how(from)? }),
        Procedure3::Mkdir => Args3::Mkdir(Mkdir3Args { place, attributes: sattr(from)? }),
        Procedure3::Mknod => Args3::Mknod(Mknod3Args { place, what: mknod(from)? }),
        Procedure3::Symlink => {
            let symlink_attributes = sattr(from)?;
            let symlink = SymlinkData3 { symlink_attributes, symlink_data: second };
            Args3::Symlink(Symlink3Args { place, symlink })
        }
        Procedure3::Rename => {
            let to = DirOpArgs3 { dir: handle(from, known)?, name: second };
            Args3::Rename(Rename3Args { from: place, to })
        }
        Procedure3::Link => Args3::Link(Link3Args { file: handle(from, known)?, link: place }),
        Procedure3::Readdir => {
            let (cookie, count) = (cookie(from, known)?, count(from)?);
            Args3::Readdir(Readdir3Args { dir: object, cookie, cookieverf: [0; 8], count })
        }
        Procedure3::Readdirplus => {
            let (cookie, dircount) = (cookie(from, known)?, count(from)?);
            let (cookieverf, maxcount) = ([0; 8], count(from)?);
            let dir = object;
            Args3::Readdirplus(Readdirplus3Args { dir, cookie, cookieverf, dircount, maxcount })
        }
        Procedure3::Commit => {
            Args3::Commit(Commit3Args { file: object, offset: offset(from)?, count: count(from)? })
        }
    })
}

/// Most handles and cookies that are remembered.
const KNOWN_MAX: usize = 24;
