//! Arbitrary values of every type. Borrowed data comes from one static pool of bytes.

use proptest::option::of;
use proptest::prelude::*;

use super::*;

static POOL: [u8; 512] = {
    let mut pool = [0; 512];
    let mut i: u16 = 0;
    while i < 512 {
        let [_, low] = (i.wrapping_mul(167) ^ (i >> 3)).to_be_bytes();
        pool[i as usize] = low;
        i += 1;
    }
    pool
};

pub fn bytes() -> impl Strategy<Value = &'static [u8]> {
    (0..256_usize, 0..70_usize).prop_map(|(start, len)| &POOL[start..start + len])
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    (0..all.len()).prop_map(|i| all[i])
}

pub fn fh() -> impl Strategy<Value = NfsFh3> {
    (0..256_usize, 0..=64_usize).prop_map(|(at, len)| NfsFh3::new(&POOL[at..at + len]).unwrap())
}

fn time() -> impl Strategy<Value = Nfstime3> {
    any::<(u32, u32)>().prop_map(|(seconds, nseconds)| Nfstime3 { seconds, nseconds })
}

fn spec() -> impl Strategy<Value = SpecData3> {
    any::<(u32, u32)>().prop_map(|(specdata1, specdata2)| SpecData3 { specdata1, specdata2 })
}

prop_compose! {
    pub fn attributes()(
        ftype in one_of(Ftype3::ALL),
        small in any::<[u32; 4]>(),
        large in any::<[u64; 4]>(),
        rdev in spec(),
        times in [time(), time(), time()],
    ) -> Fattr3 {
        let ([mode, nlink, uid, gid], [size, used, fsid, fileid]) = (small, large);
        let [atime, mtime, ctime] = times;
        Fattr3 {
            ftype, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime,
        }
    }
}

pub fn wcc() -> impl Strategy<Value = WccData> {
    let before = (any::<u64>(), time(), time());
    let before = of(before.prop_map(|(size, mtime, ctime)| WccAttr { size, mtime, ctime }));
    (before, of(attributes())).prop_map(|(before, after)| WccData { before, after })
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![
        Just(SetTime::DontChange),
        Just(SetTime::ServerTime),
        time().prop_map(SetTime::ClientTime),
    ]
}

prop_compose! {
    fn sattr()(
        ids in any::<[Option<u32>; 3]>(),
        size in any::<Option<u64>>(),
        atime in set_time(),
        mtime in set_time(),
    ) -> Sattr3 {
        let [mode, uid, gid] = ids;
        Sattr3 { mode, uid, gid, size, atime, mtime }
    }
}

fn place() -> impl Strategy<Value = DirOpArgs3<'static>> {
    (fh(), bytes()).prop_map(|(dir, name)| DirOpArgs3 { dir, name })
}

fn how() -> impl Strategy<Value = CreateHow3> {
    prop_oneof![
        sattr().prop_map(CreateHow3::Unchecked),
        sattr().prop_map(CreateHow3::Guarded),
        any::<[u8; 8]>().prop_map(CreateHow3::Exclusive),
    ]
}

fn device() -> impl Strategy<Value = DeviceData3> {
    (sattr(), spec()).prop_map(|(dev_attributes, spec)| DeviceData3 { dev_attributes, spec })
}

fn node() -> impl Strategy<Value = MknodData3> {
    prop_oneof![
        device().prop_map(MknodData3::Chr),
        device().prop_map(MknodData3::Blk),
        sattr().prop_map(MknodData3::Sock),
        sattr().prop_map(MknodData3::Fifo),
        one_of(&[MknodData3::Reg, MknodData3::Dir, MknodData3::Lnk]),
    ]
}

/// WRITE's arguments; the data's offset is its place when encoded alone.
fn write() -> impl Strategy<Value = Write3Args<'static>> {
    (fh(), any::<u64>(), one_of(StableHow::ALL), bytes()).prop_map(
        |(file, offset, stable, bytes)| {
            let count = u32::try_from(bytes.len()).unwrap();
            let head = Write3Head { file, offset, count, stable };
            Write3Args { head, data: Span { offset: file.wire_bytes() + 20, bytes } }
        },
    )
}

prop_compose! {
    fn readdirplus()(
        dir in fh(),
        cookie in any::<u64>(),
        cookieverf in any::<[u8; 8]>(),
        limits in any::<(u32, u32)>(),
    ) -> Readdirplus3Args {
        Readdirplus3Args { dir, cookie, cookieverf, dircount: limits.0, maxcount: limits.1 }
    }
}

fn simple_args() -> impl Strategy<Value = Args3<'static>> {
    let object = || fh().prop_map(|object| Getattr3Args { object });
    prop_oneof![
        Just(Args3::Null),
        object().prop_map(Args3::Getattr),
        object().prop_map(Args3::Readlink),
        object().prop_map(Args3::Fsstat),
        object().prop_map(Args3::Fsinfo),
        object().prop_map(Args3::Pathconf),
        place().prop_map(Args3::Lookup),
        place().prop_map(Args3::Remove),
        place().prop_map(Args3::Rmdir),
    ]
}

fn data_args() -> impl Strategy<Value = Args3<'static>> {
    let setattr = (fh(), sattr(), of(time())).prop_map(|(object, new_attributes, guard)| {
        Args3::Setattr(Setattr3Args { object, new_attributes, guard })
    });
    let access = (fh(), any::<u32>())
        .prop_map(|(object, access)| Args3::Access(Access3Args { object, access }));
    let range = || (fh(), any::<u64>(), any::<u32>());
    let read =
        range().prop_map(|(file, offset, count)| Args3::Read(Read3Args { file, offset, count }));
    let commit = range()
        .prop_map(|(file, offset, count)| Args3::Commit(Commit3Args { file, offset, count }));
    prop_oneof![setattr, access, read, commit, write().prop_map(Args3::Write)]
}

fn name_args() -> impl Strategy<Value = Args3<'static>> {
    let create =
        (place(), how()).prop_map(|(place, how)| Args3::Create(Create3Args { place, how }));
    let mkdir = (place(), sattr())
        .prop_map(|(place, attributes)| Args3::Mkdir(Mkdir3Args { place, attributes }));
    let symlink = (place(), sattr(), bytes());
    let symlink = symlink.prop_map(|(place, symlink_attributes, symlink_data)| {
        let symlink = SymlinkData3 { symlink_attributes, symlink_data };
        Args3::Symlink(Symlink3Args { place, symlink })
    });
    let mknod =
        (place(), node()).prop_map(|(place, what)| Args3::Mknod(Mknod3Args { place, what }));
    let rename = (place(), place()).prop_map(|(from, to)| Args3::Rename(Rename3Args { from, to }));
    let link = (fh(), place()).prop_map(|(file, link)| Args3::Link(Link3Args { file, link }));
    prop_oneof![create, mkdir, symlink, mknod, rename, link]
}

fn listing_args() -> impl Strategy<Value = Args3<'static>> {
    prop_oneof![
        readdirplus().prop_map(Args3::Readdirplus),
        readdirplus().prop_map(|it| {
            let (dir, cookie, cookieverf) = (it.dir, it.cookie, it.cookieverf);
            Args3::Readdir(Readdir3Args { dir, cookie, cookieverf, count: it.maxcount })
        }),
    ]
}

/// Arguments of all 22 procedures.
pub fn args() -> impl Strategy<Value = Args3<'static>> {
    prop_oneof![9 => simple_args(), 5 => data_args(), 6 => name_args(), 2 => listing_args()]
}

pub fn entry() -> impl Strategy<Value = Entry3<'static>> {
    (any::<u64>(), bytes(), any::<u64>()).prop_map(|(fileid, name, cookie)| Entry3 {
        fileid,
        name,
        cookie,
    })
}

pub fn entry_plus() -> impl Strategy<Value = EntryPlus3<'static>> {
    (entry(), of(attributes()), of(fh())).prop_map(|(entry, name_attributes, name_handle)| {
        let Entry3 { fileid, name, cookie } = entry;
        EntryPlus3 { fileid, name, cookie, name_attributes, name_handle }
    })
}

/// A result with this success and this error.
pub fn res<T: std::fmt::Debug, F: std::fmt::Debug>(
    resok: impl Strategy<Value = T>,
    resfail: impl Strategy<Value = F>,
) -> impl Strategy<Value = Res3<T, F>> {
    let fail = (one_of(&Nfsstat3::ALL[1..]), resfail);
    let fail = fail.prop_map(|(status, resfail)| Res3::Fail { status, resfail });
    prop_oneof![2 => resok.prop_map(Res3::Ok), 1 => fail]
}
