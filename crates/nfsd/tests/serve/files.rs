//! Short functions for calls on files, for the tests of procedures. Each returns the content of the
//! reply.

use aquifer_nfs::proto::v3::*;
use aquifer_rpc::xdr::Span;

use crate::client::Client;

pub fn place<'a>(dir: NfsFh3, name: &'a str) -> DirOpArgs3<'a> {
    DirOpArgs3 { dir, name: name.as_bytes() }
}

pub fn mode(mode: u32) -> Sattr3 {
    Sattr3 { mode: Some(mode), ..Sattr3::NONE }
}

/// The body of success, or the status of failure.
pub type Said<T> = Result<T, Nfsstat3>;

fn said<T, F>(res: Res3<T, F>) -> Said<T> {
    match res {
        Res3::Ok(resok) => Ok(resok),
        Res3::Fail { status, .. } => Err(status),
    }
}

/// The objects that CREATE and its like made, with the directory's `wcc_data`.
pub struct Made {
    pub file: NfsFh3,
    pub attributes: Fattr3,
    pub dir_wcc: WccData,
}

fn made(res: Create3Res) -> Said<Made> {
    let made = said(res)?;
    let (file, attributes) = (made.obj.unwrap(), made.obj_attributes.unwrap());
    Ok(Made { file, attributes, dir_wcc: made.dir_wcc })
}

impl Client {
    #[track_caller]
    pub fn getattr(&mut self, object: NfsFh3) -> Said<Fattr3> {
        said(self.nfs(&Args3::Getattr(Getattr3Args { object })).decode::<Getattr3Res>())
    }

    #[track_caller]
    pub fn attributes(&mut self, object: NfsFh3) -> Fattr3 {
        self.getattr(object).unwrap()
    }

    #[track_caller]
    pub fn setattr(
        &mut self,
        object: NfsFh3,
        new_attributes: Sattr3,
        guard: Option<Nfstime3>,
    ) -> Setattr3Res {
        self.nfs(&Args3::Setattr(Setattr3Args { object, new_attributes, guard })).decode()
    }

    #[track_caller]
    pub fn lookup(&mut self, dir: NfsFh3, name: &str) -> Said<Lookup3ResOk> {
        said(self.nfs(&Args3::Lookup(place(dir, name))).decode::<Lookup3Res>())
    }

    #[track_caller]
    pub fn access(&mut self, object: NfsFh3) -> u32 {
        let res = self.nfs(&Args3::Access(Access3Args { object, access: 0x3f }));
        said(res.decode::<Access3Res>()).unwrap().access
    }

    #[track_caller]
    pub fn create(&mut self, dir: NfsFh3, name: &str, how: CreateHow3) -> Said<Made> {
        made(self.nfs(&Args3::Create(Create3Args { place: place(dir, name), how })).decode())
    }

    /// A new file that its owner reads and writes.
    #[track_caller]
    pub fn file(&mut self, dir: NfsFh3, name: &str) -> NfsFh3 {
        self.create(dir, name, CreateHow3::Guarded(mode(0o644))).unwrap().file
    }

    #[track_caller]
    pub fn mkdir(&mut self, dir: NfsFh3, name: &str, attributes: Sattr3) -> Said<Made> {
        made(self.nfs(&Args3::Mkdir(Mkdir3Args { place: place(dir, name), attributes })).decode())
    }

    #[track_caller]
    pub fn dir(&mut self, dir: NfsFh3, name: &str) -> NfsFh3 {
        self.mkdir(dir, name, mode(0o755)).unwrap().file
    }

    #[track_caller]
    pub fn symlink(&mut self, dir: NfsFh3, name: &str, to: &str) -> Said<Made> {
        let symlink =
            SymlinkData3 { symlink_attributes: Sattr3::NONE, symlink_data: to.as_bytes() };
        let args = Symlink3Args { place: place(dir, name), symlink };
        made(self.nfs(&Args3::Symlink(args)).decode())
    }

    #[track_caller]
    pub fn readlink(&mut self, object: NfsFh3) -> Said<Vec<u8>> {
        let results = self.nfs(&Args3::Readlink(Getattr3Args { object }));
        said(results.decode::<Readlink3Res<'_>>()).map(|link| link.data.to_vec())
    }

    #[track_caller]
    pub fn mknod(&mut self, dir: NfsFh3, name: &str, what: MknodData3) -> Said<Made> {
        made(self.nfs(&Args3::Mknod(Mknod3Args { place: place(dir, name), what })).decode())
    }

    #[track_caller]
    pub fn remove(&mut self, dir: NfsFh3, name: &str) -> Remove3Res {
        self.nfs(&Args3::Remove(place(dir, name))).decode()
    }

    #[track_caller]
    pub fn rmdir(&mut self, dir: NfsFh3, name: &str) -> Rmdir3Res {
        self.nfs(&Args3::Rmdir(place(dir, name))).decode()
    }

    #[track_caller]
    pub fn rename(&mut self, from: (NfsFh3, &str), to: (NfsFh3, &str)) -> Rename3Res {
        let (from, to) = (place(from.0, from.1), place(to.0, to.1));
        self.nfs(&Args3::Rename(Rename3Args { from, to })).decode()
    }

    #[track_caller]
    pub fn link(&mut self, file: NfsFh3, dir: NfsFh3, name: &str) -> Link3Res {
        self.nfs(&Args3::Link(Link3Args { file, link: place(dir, name) })).decode()
    }

    #[track_caller]
    pub fn write(
        &mut self,
        file: NfsFh3,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Write3Res {
        let head = Write3Head { file, offset, count: u32::try_from(data.len()).unwrap(), stable };
        let data = Span { offset: 0, bytes: data };
        self.nfs(&Args3::Write(Write3Args { head, data })).decode()
    }

    /// Data and eof.
    #[track_caller]
    pub fn read(&mut self, file: NfsFh3, offset: u64, count: u32) -> Said<(Vec<u8>, bool)> {
        let results = self.nfs(&Args3::Read(Read3Args { file, offset, count }));
        let read = said(results.decode::<Read3Res<'_>>())?;
        assert!(read.head.file_attributes.is_some());
        Ok((read.data.bytes.to_vec(), read.head.eof))
    }

    #[track_caller]
    pub fn commit(&mut self, file: NfsFh3, offset: u64, count: u32) -> Commit3Res {
        self.nfs(&Args3::Commit(Commit3Args { file, offset, count })).decode()
    }
}

/// The status of any result.
pub fn status<T, F>(res: &Res3<T, F>) -> Nfsstat3 {
    res.status()
}

/// Both halves of `wcc_data`, which must be there.
#[track_caller]
pub fn both(wcc: &WccData) -> (WccAttr, Fattr3) {
    (wcc.before.unwrap(), wcc.after.unwrap())
}

/// The expected `wcc_data` of an object that was `before` the change.
pub fn wcc_attr(attributes: &Fattr3) -> WccAttr {
    WccAttr { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime }
}
