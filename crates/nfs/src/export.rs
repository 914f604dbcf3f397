//! The export table: which client may use which dataset, and as whom.
//!
//! Invariants:
//! - Every call's handle passes [`Exports::admit`]: a handle that a client kept, guessed or heard
//!   of opens nothing that it could not mount.
//! - A handle names its dataset by file system guid. The table looks up the datasets' guids when it
//!   is replaced. Each use checks that the guid still holds, so a dataset that was destroyed or has
//!   exchanged names is not served from memory. So after a change of exported datasets the table
//!   must be replaced, with the same exports if need be.
//! - A snapshot is admitted as its dataset is. An export is always of a whole dataset: a client
//!   that mounted a directory below one may use the dataset's other handles too, and its snapshots.
//! - A call about a file of a pool that is about to come waits for it a while: see [`awaited`].
//! - Path and options of an export were checked when it entered the table; MOUNT can carry them
//!   all.

mod awaited;
mod rights;
mod table;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::access::{Access, Addresses, Rules, Verdict};
use crate::limits::{CLIENTS_MAX, EXPORTS_MAX};
use crate::proto::mount::PATH_BYTES_MAX;
use crate::refusals::{Refusals, Why};
use crate::security::{Security, Xprtsec};
use crate::server::Origin;
use crate::volume::{Root, Volume};
use awaited::Awaited;
pub use rights::Refusal;
pub(crate) use rights::Rights;
pub(crate) use table::listed_bytes_max;
use table::{Found, Table};

#[cfg(test)]
mod tests;

/// The user and group of nobody.
pub const ANONYMOUS: u32 = 65_534;

/// One export: a dataset under a path, for some clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The path that clients mount, absolute: `/tank/vms`.
    pub path: String,
    /// The dataset's full name: `tank/vms`.
    pub dataset: String,
    /// The clients that may use it. Changes by read-only clients are refused with NFS3ERR_ROFS.
    pub access: Access,
    /// The users that become anonymous.
    pub squash: Squash,
    /// Anonymous user.
    pub anon_uid: u32,
    /// Anonymous group.
    pub anon_gid: u32,
    /// Refuses anonymous callers.
    pub refuse_anonymous: bool,
    /// Clients cannot set setuid and setgid: the server removes both bits from every mode that a
    /// client sends.
    pub nosuid: bool,
    /// Answers only calls from ports below 1024. QEMU's own driver and libnfs without privileges
    /// call from higher ones.
    pub secure_ports: bool,
    /// The protection that calls need. MOUNT is answered in the clear all the same: Linux' client
    /// calls it so, and a handle opens nothing by itself.
    pub xprtsec: Xprtsec,
}

impl Export {
    /// An export for everybody, read and write, without squashing: what a hypervisor needs.
    pub fn new(path: impl Into<String>, dataset: impl Into<String>) -> Self {
        Export {
            path: path.into(),
            dataset: dataset.into(),
            access: Access::read_write(),
            squash: Squash::None,
            anon_uid: ANONYMOUS,
            anon_gid: ANONYMOUS,
            refuse_anonymous: false,
            nosuid: false,
            secure_ports: false,
            xprtsec: Xprtsec::None,
        }
    }

    fn takes(&self, security: &Security) -> bool {
        security.level() >= self.xprtsec
    }

    fn admits_port(&self, port: u16) -> bool {
        !self.secure_ports || port < RESERVED_PORTS
    }
}

/// The users whose credentials are replaced by the anonymous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// No user.
    None,
    /// The superuser.
    Root,
    /// Every user.
    All,
}

/// The reason why a list of exports cannot become a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The path is not valid.
    #[error("export path `{0}`: {1}")]
    Path(String, &'static str),
    /// Two exports have the same path.
    #[error("`{0}` is exported twice")]
    Twice(String),
    /// More exports or clients than fit.
    #[error("too many {what}: {count}, at most {limit}")]
    TooMany {
        /// The kind of thing.
        what: &'static str,
        /// The number that was given.
        count: usize,
        /// The largest number allowed.
        limit: usize,
    },
}

/// Finds the root directory of a dataset by its full name, as long as there is such a dataset.
type RootOf = Box<dyn Fn(&str) -> Option<Root> + Send + Sync>;

/// The exports of a server.
pub struct Exports {
    root_of: RootOf,
    table: RwLock<Table>,
    awaited: Awaited,
    refusals: Refusals,
}

impl Exports {
    /// A table of `exports`, whose datasets' root directories `root_of` finds.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn new(
        exports: Vec<Export>,
        root_of: impl Fn(&str) -> Option<Root> + Send + Sync + 'static,
    ) -> Result<Self, ExportError> {
        let this = Exports {
            root_of: Box::new(root_of),
            table: RwLock::default(),
            awaited: Awaited::default(),
            refusals: Refusals::default(),
        };
        this.replace(exports)?;
        Ok(this)
    }

    /// Replaces the table, for all calls from now on.
    ///
    /// # Errors
    /// [`ExportError`]; the present table then stays.
    pub fn replace(&self, mut exports: Vec<Export>) -> Result<(), ExportError> {
        check(&exports)?;
        for export in &mut exports {
            let path = path_of(components(export.path.as_bytes()));
            export.path = String::from_utf8_lossy(&path).into_owned();
        }
        if let Some(path) = repeated(&exports) {
            return Err(ExportError::Twice(path));
        }
        // Looked up before the table is locked: calls continue meanwhile.
        let known = table::known(&exports, &self.root_of);
        {
            let mut table = self.table.write();
            *table = Table::new(exports, known, std::mem::take(&mut table.addresses));
        }
        self.awaited.look_again();
        Ok(())
    }

    /// Replaces the table as [`Exports::replace`] does. If the new table is not valid, withdraws
    /// every export that it would have changed. A client that it shuts out must not be admitted
    /// because of another error in it.
    ///
    /// # Errors
    /// [`ExportError`]; the exports that would not have changed stay.
    pub fn replace_or_withdraw(&self, exports: Vec<Export>) -> Result<(), ExportError> {
        let by_path: HashMap<&str, &Export> =
            exports.iter().map(|export| (export.path.as_str(), export)).collect();
        let mut stays = self.list();
        stays.retain(|export| by_path.get(export.path.as_str()) == Some(&export));
        drop(by_path);
        self.replace(exports).inspect_err(|_| {
            let known = table::known(&stays, &self.root_of);
            let mut table = self.table.write();
            *table = Table::new(stays, known, std::mem::take(&mut table.addresses));
        })
    }

    /// Sets the addresses of hosts that exports name, for all calls from now on.
    pub fn set_addresses(&self, addresses: Addresses) {
        self.table.write().set_addresses(addresses);
    }

    /// Sets the pools that belong here and are not served yet. Their clients are then told to ask
    /// again later: "stale" would be the end of the file to them, and "no such directory" that of
    /// their mount.
    pub fn expect(&self, awaited: BTreeSet<String>) {
        self.awaited.set(awaited);
    }

    /// Adds pools to those that are expected already: one that is about to be served is expected
    /// until the table has it.
    pub fn expect_also(&self, awaited: BTreeSet<String>) {
        self.awaited.add(awaited);
    }

    /// Waits, for a while, if a call from `origin` is about a file system of a pool that is about
    /// to come.
    pub(crate) async fn arrival(&self, guid: u64, origin: &Origin) {
        let is_nowhere =
            || matches!(self.table.read().admit(&self.root_of, guid, origin), Found::Nothing);
        self.awaited.until(|| !is_nowhere()).await;
    }

    /// Whether calls may have to wait for pools that are about to come.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.awaited.is_holding()
    }

    /// Whether an export that covers this path may come: it is one of a pool that is not served
    /// yet.
    pub(crate) fn may_cover(&self, path: &[&[u8]]) -> bool {
        let pool = path.first().and_then(|pool| std::str::from_utf8(pool).ok());
        pool.is_some_and(|pool| self.awaited.contains(pool))
    }

    /// The exports, in the order in which they were given.
    pub fn list(&self) -> Vec<Export> {
        self.list_for(None)
    }

    /// The exports that admit a client of this address; all, if none is given.
    pub(crate) fn list_for(&self, client: Option<IpAddr>) -> Vec<Export> {
        self.table.read().list_for(client)
    }

    /// An upper bound of the bytes that the list of exports takes in EXPORT's reply.
    pub(crate) fn list_bytes_max(&self) -> usize {
        self.table.read().list_bytes_max
    }

    /// Whether any export admits a client of this address.
    pub fn knows(&self, client: IpAddr) -> bool {
        self.table.read().standing(client, &Security::Clear).is_admitted
    }

    /// Whether an export accepts calls to files from this origin, or may do so once names are
    /// looked up or more pools are there.
    pub fn may_call(&self, origin: &Origin) -> bool {
        self.may_admit(origin, true)
    }

    /// Logs something about a client, at a limited rate.
    pub(crate) fn tell(&self, client: IpAddr, path: &str, why: Why) {
        self.refusals.note(client, path, why);
    }

    /// Whether an export accepts calls from this origin, or may do so once names are looked up or
    /// more pools are there.
    pub(crate) fn may_admit(&self, origin: &Origin, needs_port: bool) -> bool {
        self.awaited.is_some() || {
            let standing = self.table.read().standing(origin.peer.ip(), &origin.security);
            match needs_port && !origin.is_from_low_port() {
                true => standing.calls_from_any_port,
                false => standing.calls,
            }
        }
    }

    /// Notes the refusal of a call that belongs to no file, from a client that no export admits.
    pub(crate) fn refuse_locks(&self, origin: &Origin) {
        let client = origin.peer.ip();
        let standing = self.table.read().standing(client, &origin.security);
        let why = match standing.may_come {
            true if standing.calls => Why::Port,
            true => Why::Unprotected,
            false => Why::NotNamed,
        };
        self.refusals.note(client, "any, locks", why);
    }

    /// Logs how often clients were refused since the last report. The first time of each was logged
    /// at once. Call this at regular times.
    pub fn report_refusals(&self) {
        self.refusals.report();
    }

    /// Returns the rule that admits or refuses the client `address` at `path`.
    pub fn explain(&self, path: &str, address: IpAddr) -> Explanation {
        let path: Vec<&[u8]> = components(path.as_bytes()).collect();
        let Some((export, rules, _)) = self.covering(&path) else {
            return Explanation::NotExported;
        };
        let judgement = rules.judge(address, &[]);
        Explanation::Exported(Box::new(Explained {
            rule: judgement.rule(&export.access),
            root_rule: judgement.root_rule(&export.access),
            control_rule: judgement.control_rule(&export.access),
            verdict: judgement.verdict,
            export,
        }))
    }

    /// A caller's rights on the file system `guid`. If it is exported more than once, the first
    /// export that admits the client holds: a handle does not show through which export the client
    /// got it.
    ///
    /// # Errors
    /// [`Refusal::NotExported`] if no export has it, [`Refusal::NotAllowed`] if none admits this
    /// client, and [`Refusal::NotYet`] if that may change by itself.
    pub(crate) fn admit(
        &self,
        guid: u64,
        origin: &Origin,
    ) -> Result<(Arc<Volume>, Rights), Refusal> {
        let found = self.table.read().admit(&self.root_of, guid, origin);
        match found {
            Found::Admitted(volume, rights) => Ok((volume, rights)),
            Found::Refused(refused) => Err(self.refuse(refused, origin.peer)),
            Found::Nothing if self.awaited.is_some() => Err(Refusal::NotYet),
            Found::Nothing => Err(Refusal::NotExported),
        }
    }

    /// Whether a caller may use the file system `guid`. Notes no refusal.
    pub(crate) fn admits(&self, guid: u64, origin: &Origin) -> bool {
        matches!(self.table.read().admit(&self.root_of, guid, origin), Found::Admitted(..))
    }

    /// Whether `origin` may mount `export`. A client that a certificate may admit can mount without
    /// one: MOUNT comes in the clear. A refusal is logged.
    pub(crate) fn may_mount(&self, export: &Export, rules: &Rules, origin: &Origin) -> bool {
        let peer = origin.peer;
        let verdict = rules.judge(peer.ip(), origin.security.names()).verdict;
        let port = export.admits_port(peer.port());
        let may_prove = verdict == Verdict::Refused && rules.takes_certificates();
        if (verdict.admits() || may_prove) && port {
            return true;
        }
        let (path, waiting) = (export.path.clone(), verdict == Verdict::Waiting);
        self.refuse(Refused { path, waiting, port, is_protected: true }, peer);
        false
    }

    fn refuse(&self, refused: Refused, peer: SocketAddr) -> Refusal {
        let why = match &refused {
            Refused { waiting: true, .. } => Why::NamesUnknown,
            Refused { port: false, .. } => Why::Port,
            Refused { is_protected: false, .. } => Why::Unprotected,
            _ => Why::NotNamed,
        };
        self.refusals.note(peer.ip(), &refused.path, why);
        if refused.waiting { Refusal::NotYet } else { Refusal::NotAllowed }
    }

    /// The export whose path is the nearest above a normalised path, its rules, and the components
    /// beyond it.
    pub(crate) fn covering<'p>(&self, path: &[&'p [u8]]) -> Option<(Export, Rules, Vec<&'p [u8]>)> {
        let table = self.table.read();
        let (export, rules, beyond) = table.covering(path)?;
        Some((export.clone(), rules.clone(), beyond.to_vec()))
    }

    /// The root directory of an export's dataset, if the dataset exists.
    pub(crate) fn root_of(&self, export: &Export) -> Option<Root> {
        (self.root_of)(&export.dataset)
    }
}

impl fmt::Debug for Exports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exports").field(&self.list()).finish()
    }
}

/// The refusal of a client.
struct Refused {
    /// The path of the export.
    path: String,
    /// Names have not been looked up yet.
    waiting: bool,
    /// It came from a port that the export accepts.
    port: bool,
    /// Its calls have the protection that the export asks for.
    is_protected: bool,
}

/// The reason why a client is admitted or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// Nothing is exported there.
    NotExported,
    /// Something is exported there.
    Exported(Box<Explained>),
}

/// An export, and a client's rights on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The export.
    pub export: Export,
    /// The client's rights, if it comes from a port that the export accepts.
    pub verdict: Verdict,
    /// The rule that decided; none, if no rule names the client.
    pub rule: Option<String>,
    /// The rule by which the client's superuser stays one in spite of squashing.
    pub root_rule: Option<String>,
    /// The rule by which the client's superuser takes and destroys snapshots.
    pub control_rule: Option<String>,
}

/// The components of a path, without empty ones and `.`.
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// The only way to write a path of these components.
pub(crate) fn path_of<'p>(components: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let mut path = Vec::new();
    for name in components {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() { b"/".to_vec() } else { path }
}

fn check(exports: &[Export]) -> Result<(), ExportError> {
    let too_many = |what, count, limit| match count > limit {
        true => Err(ExportError::TooMany { what, count, limit }),
        false => Ok(()),
    };
    too_many("exports", exports.len(), EXPORTS_MAX)?;
    for export in exports {
        let path = &export.path;
        let bad = |why| Err(ExportError::Path(path.clone(), why));
        if !path.starts_with('/') {
            return bad("must begin with /");
        }
        if path.len() > PATH_BYTES_MAX {
            return bad("longer than MOUNT can say (1024 bytes)");
        }
        if path.contains('\0') {
            return bad("contains a NUL");
        }
        if components(path.as_bytes()).any(|name| name == b"..") {
            return bad("contains ..");
        }
        too_many("clients of an export", export.access.entries().count(), CLIENTS_MAX)?;
    }
    Ok(())
}

fn repeated(exports: &[Export]) -> Option<String> {
    let mut paths: Vec<_> = exports.iter().map(|export| &export.path).collect();
    paths.sort_unstable();
    let pairs = paths.iter().zip(paths.iter().skip(1));
    pairs.clone().find(|(a, b)| a == b).map(|(path, _)| (*path).clone())
}

/// Ports below this are the superuser's.
pub(crate) const RESERVED_PORTS: u16 = 1024;
