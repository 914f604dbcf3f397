//! Calls to the server, one after the other, as a host's superuser makes them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use aquifer_client::Error;
use aquifer_client::wire::call::{Caller, Source, What, of_mount, of_nfs, of_nlm};
use aquifer_client::wire::{decode, results};
use aquifer_nfs::proto::mount::{self, DirPath, MountRes3, MountStat3, Path};
use aquifer_nfs::proto::nlm::{self, Nlm4Stats};
use aquifer_nfs::proto::v3::{
    Args3, Getattr3Args, Getattr3Res, NfsFh3, Nfsstat3, Read3Args, Read3Res, Readdir3Args,
    Readdir3Res, Res3,
};
use aquifer_rpc::xdr::{Decode, Decoder, Encode};

/// Why a step did not do what it should.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// No connection, or no answer in time.
    Silent(io::Error),
    /// The answer is no RPC, or RPC refused the call.
    Rpc(String),
    /// MNT was refused.
    Mount(MountStat3),
    /// NFS gave an error.
    Nfs(Nfsstat3),
    /// A lock was not given as it should be.
    Lock(Nlm4Stats),
    /// The answer is another than it should be.
    Differs(String),
    /// The user has ended it.
    Stopped,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Silent(error) => write!(f, "no answer: {error}"),
            Wrong::Rpc(said) => write!(f, "{said}"),
            Wrong::Mount(status) => write!(f, "MNT gave {status:?}"),
            Wrong::Nfs(status) => write!(f, "NFS gave {status:?}"),
            Wrong::Lock(status) => write!(f, "NLM gave {status:?}"),
            Wrong::Differs(what) => f.write_str(what),
            Wrong::Stopped => f.write_str("interrupted"),
        }
    }
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { source, .. } => Wrong::Silent(source),
            other => Wrong::Rpc(other.to_string()),
        }
    }
}

impl Wrong {
    /// Returns the line to type next, for an export of `dataset`.
    pub fn mend(&self, dataset: &str) -> String {
        let pool = dataset.split('/').next().unwrap_or(dataset);
        match self {
            Wrong::Silent(_) => format!("aquifer pool status {pool}   # and: aquifer events"),
            Wrong::Nfs(Nfsstat3::NoSpc | Nfsstat3::Dquot) => {
                format!("aquifer list -o name,used,available,quota -r {pool}")
            }
            Wrong::Nfs(Nfsstat3::Acces | Nfsstat3::Perm) => {
                format!("aquifer get sharenfs {dataset}   # hypervisors need no_root_squash")
            }
            Wrong::Nfs(Nfsstat3::Io | Nfsstat3::Jukebox) => {
                format!("aquifer pool status -v {pool}")
            }
            Wrong::Mount(_) => "aquifer share".to_string(),
            Wrong::Lock(_) => "aquifer locks".to_string(),
            _ => "aquifer events   # and the daemon's log".to_string(),
        }
    }
}

/// Whether the user has ended it all.
pub(crate) type Stop<'a> = &'a AtomicBool;

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    caller: Caller,
}

impl Session {
    pub fn open(from: Source, to: SocketAddr) -> Result<Session, Wrong> {
        Caller::connect(from, to).map(|caller| Session { caller }).map_err(Wrong::Silent)
    }

    /// Makes a call of any program, and reads its results.
    pub fn call<T>(
        &mut self,
        what: What,
        args: &impl Encode,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<T, Error>,
    ) -> Result<T, Wrong> {
        let reply = self.caller.call(what, args).map_err(Wrong::Silent)?;
        let (_, mut from) = results(&reply)?;
        Ok(read(&mut from)?)
    }

    /// Makes a call of any program, and decodes results that hold no bytes of the reply.
    fn decoded<T: for<'a> Decode<'a>>(
        &mut self,
        what: What,
        args: &impl Encode,
    ) -> Result<T, Wrong> {
        self.call(what, args, |from| {
            T::decode(from).map_err(|error| Error::Malformed(error.to_string()))
        })
    }

    /// The handle of a path.
    pub fn mount(&mut self, path: &str) -> Result<NfsFh3, Wrong> {
        let args = DirPath { path: Path(path.as_bytes()) };
        match self.decoded(of_mount(mount::Procedure::Mnt), &args)? {
            MountRes3::Ok { fhandle, .. } => Ok(fhandle),
            MountRes3::Fail(status) => Err(Wrong::Mount(status)),
        }
    }

    /// Makes an NFS call that must succeed.
    pub fn nfs<T, F>(&mut self, args: &Args3<'_>) -> Result<T, Wrong>
    where
        T: for<'a> Decode<'a>,
        F: for<'a> Decode<'a>,
    {
        done(self.decoded::<Res3<T, F>>(of_nfs(args), args)?)
    }

    /// Makes an NFS call of which only the status counts.
    pub fn status(&mut self, args: &Args3<'_>) -> Result<Nfsstat3, Wrong> {
        self.decoded(of_nfs(args), args)
    }

    /// Makes an NFS call of which only the success counts.
    pub fn do_nfs(&mut self, args: &Args3<'_>) -> Result<(), Wrong> {
        match self.status(args)? {
            Nfsstat3::Ok => Ok(()),
            status => Err(Wrong::Nfs(status)),
        }
    }

    pub fn attributes(&mut self, object: NfsFh3) -> Result<aquifer_nfs::proto::v3::Fattr3, Wrong> {
        let args = Args3::Getattr(Getattr3Args { object });
        done(self.decoded::<Getattr3Res>(of_nfs(&args), &args)?)
    }

    pub fn read(&mut self, file: NfsFh3, offset: u64, count: u32) -> Result<Vec<u8>, Wrong> {
        let args = Args3::Read(Read3Args { file, offset, count });
        self.call(of_nfs(&args), &args, |from| {
            Ok(match decode::<Read3Res<'_>>(from)? {
                Res3::Ok(read) => Ok(read.data.to_vec()),
                Res3::Fail { status, .. } => Err(Wrong::Nfs(status)),
            })
        })?
    }

    /// The first names in a directory, without `.` and `..`, and their number.
    pub fn names(&mut self, dir: NfsFh3) -> Result<Vec<Vec<u8>>, Wrong> {
        let listing = Readdir3Args { dir, cookie: 0, cookieverf: [0; 8], count: LISTING_BYTES };
        let args = Args3::Readdir(listing);
        self.call(of_nfs(&args), &args, |from| {
            Ok(match decode::<Readdir3Res<'_>>(from)? {
                Res3::Ok(read) => {
                    let names = read.entries.iter().map(|entry| entry.name.to_vec());
                    Ok(names.filter(|name| name != b"." && name != b"..").collect())
                }
                Res3::Fail { status, .. } => Err(Wrong::Nfs(status)),
            })
        })?
    }

    /// A call of the lock manager.
    pub fn lock<T: for<'a> Decode<'a>>(
        &mut self,
        procedure: nlm::Procedure,
        args: &impl Encode,
    ) -> Result<T, Wrong> {
        self.decoded(of_nlm(procedure), args)
    }
}

fn done<T, F>(results: Res3<T, F>) -> Result<T, Wrong> {
    match results {
        Res3::Ok(done) => Ok(done),
        Res3::Fail { status, .. } => Err(Wrong::Nfs(status)),
    }
}

/// Whether it is to end.
pub(crate) fn is_stopped(stop: Stop<'_>) -> bool {
    stop.load(Ordering::Relaxed)
}

const LISTING_BYTES: u32 = 64 * 1024;
