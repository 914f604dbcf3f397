//! Rights that an export gives to a caller, or the reason why it gives none.

use aquifer_files::Credentials;
use aquifer_rpc::auth::{AuthSys, Credential};

use super::{Export, Squash};
use crate::access::{Judgement, Verdict};

/// Rights of a client to the files of a dataset, and the identity that it has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub read_only: bool,
    /// See [`Export::nosuid`].
    pub nosuid: bool,
    /// Whether the client's superuser takes and destroys snapshots.
    pub controls: bool,
    squash: Squash,
    anon_uid: u32,
    anon_gid: u32,
    refuse_anonymous: bool,
}

impl Rights {
    pub fn new(export: &Export, judgement: &Judgement) -> Self {
        let keeps_root = export.squash == Squash::Root && judgement.keeps_root();
        Rights {
            read_only: judgement.verdict != Verdict::ReadWrite,
            nosuid: export.nosuid,
            controls: judgement.controls(),
            squash: if keeps_root { Squash::None } else { export.squash },
            anon_uid: export.anon_uid,
            anon_gid: export.anon_gid,
            refuse_anonymous: export.refuse_anonymous,
        }
    }

    /// Whom a credential stands for under this export. A flavor that names nobody is anonymous.
    ///
    /// # Errors
    /// [`Refusal::NotAllowed`] to an anonymous caller where none may be.
    pub fn credentials(&self, credential: &Credential<'_>) -> Result<Credentials, Refusal> {
        Ok(match (credential, self.squash) {
            (Credential::Sys(sys), Squash::None) => as_said(sys),
            (Credential::Sys(sys), Squash::Root) if !(self.refuse_anonymous && sys.uid == 0) => {
                let mut said = as_said(sys);
                if said.uid == 0 {
                    said.uid = self.anon_uid;
                }
                for gid in said.groups.iter_mut().chain([&mut said.gid]) {
                    if *gid == 0 {
                        *gid = self.anon_gid;
                    }
                }
                said
            }
            _ if self.refuse_anonymous => return Err(Refusal::NotAllowed),
            _ => {
                let (uid, gid) = (self.anon_uid, self.anon_gid);
                Credentials { uid, gid, ..Credentials::root() }
            }
        })
    }
}

/// Why a call is not let to a file. No protocol's word: [`crate::status`] says it in each one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No export has the file system.
    NotExported,
    /// It cannot be told yet: pools are still imported, or names of clients looked up.
    NotYet,
    /// No export admits this client, or an anonymous caller.
    NotAllowed,
}

fn as_said(sys: &AuthSys<'_>) -> Credentials {
    let (uid, gid, groups) = (sys.uid, sys.gid, sys.gids.iter().collect());
    Credentials { uid, gid, groups, ..Credentials::root() }
}
