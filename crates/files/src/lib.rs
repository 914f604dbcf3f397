//! Files: POSIX names and contents over datasets, for every protocol.

pub mod error;
pub mod types;

pub use error::FsError;
pub use types::*;

use aquifer_blockio::Page;

/// Content that a READ returns.
#[derive(Debug, Clone)]
pub struct ReadData {
    /// Pieces in order: a page, and the bytes of it that belong to the answer (start, end).
    pub pieces: Vec<(Page, std::ops::Range<usize>)>,
    /// Bytes in all.
    pub count: usize,
    /// The answer reaches the end of the file.
    pub eof: bool,
    /// The file.
    pub attributes: Attributes,
}

/// All files of a pool.
#[derive(Debug)]
pub struct Files {}

impl Files {
    /// Changes with every start of the service: what was UNSTABLE before it may be lost.
    pub fn verifier(&self) -> u64 {
        0
    }
    /// The root directory of a dataset by its full name (`tank/vms`).
    pub fn root(&self, _dataset: &str) -> Option<FileHandle> {
        None
    }
    /// Attributes.
    pub async fn getattr(&self, _file: FileHandle) -> Result<Attributes, FsError> {
        Err(FsError::NotSupported)
    }
    /// Sets attributes; with `guard`, only if ctime is still that.
    pub async fn setattr(
        &self,
        _cred: &Credentials,
        _file: FileHandle,
        _set: &SetAttributes,
        _guard: Option<Time>,
    ) -> (Result<(), FsError>, Around) {
        (Err(FsError::NotSupported), Around::default())
    }
    /// Finds a name (`.` and `..` too). The second value is the directory.
    pub async fn lookup(
        &self,
        _cred: &Credentials,
        _dir: FileHandle,
        _name: &[u8],
    ) -> (Result<Attributes, FsError>, Option<Attributes>) {
        (Err(FsError::NotSupported), None)
    }
    /// Which of the wanted kinds of access are granted.
    pub async fn access(
        &self,
        _cred: &Credentials,
        _file: FileHandle,
        _wanted: u32,
    ) -> Result<(u32, Attributes), FsError> {
        Err(FsError::NotSupported)
    }
    /// The target of a symbolic link.
    pub async fn readlink(
        &self,
        _cred: &Credentials,
        _file: FileHandle,
    ) -> Result<(Vec<u8>, Attributes), FsError> {
        Err(FsError::NotSupported)
    }
    /// Reads up to `count` bytes.
    pub async fn read(
        &self,
        _cred: &Credentials,
        _file: FileHandle,
        _offset: u64,
        _count: u32,
    ) -> Result<ReadData, FsError> {
        Err(FsError::NotSupported)
    }
    /// Writes. Returns how durable the data is: at least what was asked for.
    pub async fn write(
        &self,
        _cred: &Credentials,
        _file: FileHandle,
        _offset: u64,
        _data: &[u8],
        _stability: Stability,
    ) -> (Result<Stability, FsError>, Around) {
        (Err(FsError::NotSupported), Around::default())
    }
    /// Makes a regular file. `Around` is the directory's.
    pub async fn create(
        &self,
        _cred: &Credentials,
        _dir: FileHandle,
        _name: &[u8],
        _how: CreateHow,
    ) -> (Result<Attributes, FsError>, Around) {
        (Err(FsError::NotSupported), Around::default())
    }
    /// Makes a directory.
    pub async fn mkdir(
        &self,
        _cred: &Credentials,
        _dir: FileHandle,
        _name: &[u8],
        _set: &SetAttributes,
    ) -> (Result<Attributes, FsError>, Around) {
        (Err(FsError::NotSupported), Around::default())
    }
    /// Makes a symbolic link.
    pub async fn symlink(
        &self,
        _cred: &Credentials,
        _dir: FileHandle,
        _name: &[u8],
        _target: &[u8],
        _set: &SetAttributes,
    ) -> (Result<Attributes, FsError>, Around) {
        (Err(FsError::NotSupported), Around::default())
    }
    /// Makes a device node, pipe or socket.
    pub async fn mknod(
        &self,
        _cred: &Credentials,
        _dir: FileHandle,
        _name: &[u8],
        _kind: NodeKind,
        _set: &SetAttributes,
    ) -> (Result<Attributes, FsError>, Around) {
        (Err(FsError::NotSupported), Around::default())
    }
    /// Removes a name that is no directory.
    pub async fn remove(
        &self,
        _cred: &Credentials,
        _dir: FileHandle,
        _name: &[u8],
    ) -> (Result<(), FsError>, Around) {
        (Err(FsError::NotSupported), Around::default())
    }
    /// Removes an empty directory.
    pub async fn rmdir(
        &self,
        _cred: &Credentials,
        _dir: FileHandle,
        _name: &[u8],
    ) -> (Result<(), FsError>, Around) {
        (Err(FsError::NotSupported), Around::default())
    }
    /// Renames, over an existing target if POSIX allows it. Both directories' surroundings.
    pub async fn rename(
        &self,
        _cred: &Credentials,
        _from: (FileHandle, &[u8]),
        _to: (FileHandle, &[u8]),
    ) -> (Result<(), FsError>, Around, Around) {
        (Err(FsError::NotSupported), Around::default(), Around::default())
    }
    /// Makes a hard link. The file's attributes after, and the directory's surroundings.
    pub async fn link(
        &self,
        _cred: &Credentials,
        _file: FileHandle,
        _dir: FileHandle,
        _name: &[u8],
    ) -> (Result<(), FsError>, Option<Attributes>, Around) {
        (Err(FsError::NotSupported), None, Around::default())
    }
    /// Lists entries after `cookie` (0: from the start, `.` and `..` first), at most `limit`; whether
    /// the list reaches the end; the directory.
    pub async fn readdir(
        &self,
        _cred: &Credentials,
        _dir: FileHandle,
        _cookie: u64,
        _limit: usize,
        _with_attributes: bool,
    ) -> Result<(Vec<DirectoryEntry>, bool, Attributes), FsError> {
        Err(FsError::NotSupported)
    }
    /// Space of the file's dataset.
    pub async fn fsstat(&self, _file: FileHandle) -> Result<(FsSpace, Attributes), FsError> {
        Err(FsError::NotSupported)
    }
    /// Makes durable what was written UNSTABLE in a range (`count` 0: to the end).
    pub async fn commit(
        &self,
        _cred: &Credentials,
        _file: FileHandle,
        _offset: u64,
        _count: u32,
    ) -> (Result<(), FsError>, Around) {
        (Err(FsError::NotSupported), Around::default())
    }
}
