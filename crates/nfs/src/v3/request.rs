//! A call in progress: the caller, and the file behind a handle.

use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_files::{
    Attributes, CallId, Credentials, FileHandle, FsError, Made, Promised, SetAttributes,
    dataset_below,
};
use aquifer_rpc::auth::Credential;

use crate::attributes::{fattr3, set_attributes};
use crate::export::{Exports, Rights};
use crate::lock::Locks;
use crate::proto::v3::{
    Args3, DirOpArgs3, LinkWcc, NfsFh3, Nfsstat3, PostOpAttr, RenameWcc, Sattr3, WccData,
};
use crate::server::Origin;
use crate::status::nfsstat3;
use crate::volume::Volume;

use super::silence::object_of;

/// The caller, and the server's exports.
pub(crate) struct Request<'a> {
    pub exports: &'a Exports,
    pub origin: &'a Origin,
    pub locks: &'a Locks,
    pub credential: Credential<'a>,
    /// The call, if it must not run twice.
    pub call: Option<CallId>,
    /// The data of a WRITE that was received into pages of its own.
    pub pages: Option<&'a [Page]>,
}

/// A file that the caller may name, its volume, and the caller's credentials for it.
pub(super) struct Target {
    pub files: Arc<Volume>,
    pub file: FileHandle,
    pub cred: Credentials,
    /// See [`crate::Export::nosuid`].
    nosuid: bool,
}

impl Target {
    /// The attributes of a `sattr3` that are set here.
    ///
    /// # Errors
    /// As [`set_attributes`].
    pub(super) fn to_set(&self, set: &Sattr3) -> Result<SetAttributes, Nfsstat3> {
        let mut set = set_attributes(set)?;
        if self.nosuid {
            set.mode = set.mode.map(|mode| mode & !SUID_BITS);
        }
        Ok(set)
    }
}

/// The outcome of a procedure: results, or a status with the protocol's additions.
pub(crate) type Outcome<T, F> = Result<T, Fail<F>>;

/// An error and its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fail<F> {
    pub status: Nfsstat3,
    pub resfail: F,
}

impl<F> Fail<F> {
    pub(super) fn new(error: &FsError, resfail: F) -> Self {
        Fail { status: nfsstat3(error), resfail }
    }
}

/// The body of an error without any attributes.
pub(crate) trait Unknown {
    const UNKNOWN: Self;
}

impl Unknown for () {
    const UNKNOWN: () = ();
}

impl Unknown for PostOpAttr {
    const UNKNOWN: PostOpAttr = None;
}

impl Unknown for WccData {
    const UNKNOWN: WccData = WccData::NONE;
}

impl Unknown for RenameWcc {
    const UNKNOWN: RenameWcc = RenameWcc { fromdir_wcc: WccData::NONE, todir_wcc: WccData::NONE };
}

impl Unknown for LinkWcc {
    const UNKNOWN: LinkWcc = LinkWcc { file_attributes: None, linkdir_wcc: WccData::NONE };
}

impl<F: Unknown> From<Nfsstat3> for Fail<F> {
    fn from(status: Nfsstat3) -> Self {
        Fail { status, resfail: F::UNKNOWN }
    }
}

impl Request<'_> {
    /// Waits, for a while, if the call is about a file of a pool that is about to come.
    pub(crate) async fn arrival(&self, args: &Args3<'_>) {
        let file = object_of(args).and_then(|handle| FileHandle::decode(handle.bytes()));
        if let Some(file) = file {
            self.exports.arrival(file.fs_guid.0, self.origin).await;
        }
    }

    /// The object of a call that changes nothing.
    ///
    /// # Errors
    /// [`Nfsstat3::BadHandle`], [`Nfsstat3::Stale`], [`Nfsstat3::Acces`].
    pub(super) fn look(&self, handle: &NfsFh3) -> Result<Target, Nfsstat3> {
        self.admit(handle).map(|(target, _)| target)
    }

    /// The object of a call that changes something.
    ///
    /// # Errors
    /// As [`Request::look`]; [`Nfsstat3::Rofs`]; and [`Nfsstat3::Jukebox`] while the disks do not
    /// answer.
    pub(super) fn change(&self, handle: &NfsFh3) -> Result<Target, Nfsstat3> {
        match self.admit(handle)? {
            (_, rights) if rights.read_only => Err(Nfsstat3::Rofs),
            (target, _) if target.files.is_silent() => Err(Nfsstat3::Jukebox),
            (target, _) => Ok(target),
        }
    }

    /// The directory and the name of a call that changes a directory's entries; `rule` is one of
    /// [`super::names`].
    ///
    /// # Errors
    /// As [`Request::change`] and the rule, with the directory's attributes.
    pub(super) async fn change_in<'n>(
        &self,
        place: &DirOpArgs3<'n>,
        rule: fn(&[u8]) -> Result<&[u8], Nfsstat3>,
    ) -> Result<(Target, &'n [u8]), Fail<WccData>> {
        match self.change(&place.dir).and_then(|dir| Ok((dir, rule(place.name)?))) {
            Ok(found) => Ok(found),
            Err(status) => Err(self.refuse(status, &place.dir).await),
        }
    }

    /// `post_op_attr` of an object as it is now, for an error found before `files` was called.
    /// `None`, if the attributes cannot be read.
    pub(super) async fn attributes_now(&self, handle: &NfsFh3) -> PostOpAttr {
        let target = self.look(handle).ok()?;
        let attributes = target.files.getattr(target.file).await.ok()?;
        Some(fattr3(&attributes))
    }

    /// The `wcc_data` of an object that was not changed.
    pub(super) async fn untouched(&self, handle: &NfsFh3) -> WccData {
        WccData { before: None, after: self.attributes_now(handle).await }
    }

    /// A refusal of a change before `files` was called, with the object's attributes.
    pub(super) async fn refuse(&self, status: Nfsstat3, handle: &NfsFh3) -> Fail<WccData> {
        Fail { status, resfail: self.untouched(handle).await }
    }

    /// Whether the caller sees an object that a name leads to: not what shows a dataset below that
    /// no export gives it.
    pub(super) fn sees(&self, found: FileHandle) -> bool {
        dataset_below(found).is_none_or(|guid| self.exports.admits(guid.0, self.origin))
    }

    /// The object, and its export's rights.
    ///
    /// # Errors
    /// As [`Request::look`].
    pub(super) fn admit(&self, handle: &NfsFh3) -> Result<(Target, Rights), Nfsstat3> {
        let file = FileHandle::decode(handle.bytes()).ok_or(Nfsstat3::BadHandle)?;
        let (files, rights) = self.exports.admit(file.fs_guid.0, self.origin)?;
        // Whatever ports the export takes: only the superuser of a host has a low one, and nobody
        // can put another's address into a connection.
        let is_superuser = self.origin.is_from_low_port() && !self.origin.is_datagram;
        let controls = rights.controls && is_superuser;
        let snapcontrol = controls.then(|| self.origin.peer.ip().to_canonical());
        let cred = rights.credentials(&self.credential)?;
        let cred = Credentials { call: self.call, snapcontrol, ..cred };
        Ok((Target { files, file, cred, nosuid: rights.nosuid }, rights))
    }
}

/// The outcome of a changing procedure, and the promise that its answer waits for. A failure waits
/// for nothing.
pub(crate) type Promise<T, F> = Outcome<(T, Promised), F>;

/// The answer to a change: `wcc` makes the attributes around it, `with` the results.
pub(super) fn changed<R, A, T, F>(
    made: Made<R, A>,
    wcc: impl FnOnce(&A) -> F,
    with: impl FnOnce(R, F) -> T,
) -> Promise<T, F> {
    let wcc = wcc(&made.around);
    match made.result {
        Ok(value) => Ok((with(value, wcc), made.promised)),
        Err(error) => Err(Fail::new(&error, wcc)),
    }
}

/// `post_op_attr` of attributes from `files`.
pub(super) fn post_op_attr(attributes: &Attributes) -> PostOpAttr {
    Some(fattr3(attributes))
}

/// Setuid and setgid.
const SUID_BITS: u32 = 0o6000;
