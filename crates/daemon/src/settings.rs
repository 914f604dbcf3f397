//! The daemon's settings: from its configuration, and from its command line, which takes
//! precedence.
//!
//! Invariants:
//! - `aquifer serve --check` refuses an unknown or invalid setting, with the file's line.
//! - A start goes on without it ([`usable`]), and says so as long as that is so: NFS must not stay
//!   down for a setting that it does not need. Where NFS listens is never guessed.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use aquifer_admin::{Peers, check_peers};
use aquifer_files::HostLimits;
use aquifer_meter::size;
use aquifer_nfsd::KeyFiles;

use crate::args::{MEMORY_BYTES_MIN, ServeArgs, memory};
use crate::failure::Failure;

mod machine;
#[cfg(test)]
mod tests;
mod usable;

pub(crate) use usable::{Usable, usable};

/// A setting that cannot be.
#[derive(Debug)]
struct Wrong {
    /// Its key, or that of the section that it is in.
    key: &'static str,
    why: String,
}

fn wrong<T>(key: &'static str, why: impl ToString) -> Result<T, Wrong> {
    Err(Wrong { key, why: why.to_string() })
}

/// All settings of the daemon, as the configuration has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// The directory of the list of imported pools.
    pub state_dir: PathBuf,
    /// Memory that all pools and NFS may take together, in bytes; `None`: half of the machine's.
    #[serde(deserialize_with = "read_memory", serialize_with = "write_memory")]
    pub memory: Option<u64>,
    /// Longest wait at the start for disks that are missing, in seconds.
    pub wait_for_disks_s: u32,
    /// The program that knows the health of disks; empty, if none is to be asked.
    pub smartctl: PathBuf,
    /// The filter of the log.
    pub log: String,
    pub nfs: Nfs,
    pub snapcontrol: SnapControl,
    pub portmap: Portmap,
    pub api: Api,
    pub names: Names,
    pub alerts: aquifer_alerts::Settings,
    /// Where audit lines go.
    pub audit: aquifer_audit::Settings,
    /// Other Aquifers, which have copies of datasets.
    pub peers: Peers,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Nfs {
    /// Addresses of NFS and MOUNT.
    pub listen: Vec<SocketAddr>,
    /// Threads; 0 is one per core.
    pub threads: usize,
    /// Most connections at a time.
    pub connections: usize,
    /// Seconds in which clients reclaim their locks after a restart.
    pub lock_grace_s: u32,
    pub tls: Tls,
}

/// Calls over TLS, in addition to clear text. An empty path means "not set".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Tls {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of clients.
    pub clients: PathBuf,
    /// Revocation lists of the authorities of clients.
    pub revoked: PathBuf,
}

impl Tls {
    /// The files, if TLS is wanted.
    pub fn files(&self) -> Option<KeyFiles> {
        let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
        is_set(&self.certificate).then(|| KeyFiles {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            clients: Some(self.clients.clone()).filter(is_set),
            revoked: Some(self.revoked.clone()).filter(is_set),
        })
    }
}

/// Limits of hosts that the property `snapcontrol` names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SnapControl {
    /// Acts that a host begins in a minute; 0: any number.
    pub acts_in_minute: u32,
    /// Snapshots of a dataset, with those of its files, with which hosts take no more; 0: any
    /// number.
    pub snapshots: u32,
}

impl Default for SnapControl {
    fn default() -> Self {
        // A hundred disks of guests, each with a snapshot, within a minute; and a day of these.
        SnapControl { acts_in_minute: 120, snapshots: 4096 }
    }
}

impl SnapControl {
    pub fn limits(&self) -> HostLimits {
        let SnapControl { acts_in_minute, snapshots } = *self;
        HostLimits { acts_in_minute, snapshots }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Portmap {
    pub enabled: bool,
    pub listen: Vec<SocketAddr>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Names {
    /// DNS servers; if empty, the system's.
    pub servers: Vec<SocketAddr>,
}

/// The API on TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Api {
    /// Its addresses; if empty, it does not listen.
    pub listen: Vec<SocketAddr>,
    /// Further names in its certificate.
    pub names: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            state_dir: "/var/lib/aquifer".into(),
            memory: None,
            wait_for_disks_s: 30,
            smartctl: "smartctl".into(),
            log: "info".into(),
            nfs: Nfs::default(),
            snapcontrol: SnapControl::default(),
            portmap: Portmap::default(),
            api: Api::default(),
            names: Names::default(),
            alerts: Default::default(),
            audit: Default::default(),
            peers: Peers::new(),
        }
    }
}

impl Default for Nfs {
    fn default() -> Self {
        let listen = vec![(Ipv6Addr::UNSPECIFIED, 2049).into()];
        Nfs { listen, threads: 0, connections: 4096, lock_grace_s: 45, tls: Tls::default() }
    }
}

impl Default for Portmap {
    fn default() -> Self {
        Portmap { enabled: true, listen: vec![(Ipv6Addr::UNSPECIFIED, 111).into()] }
    }
}

impl Settings {
    /// The settings of a daemon that is started with `args`.
    ///
    /// # Errors
    /// A configuration that cannot be read, is invalid, or asks for something impossible.
    pub fn of(args: &ServeArgs) -> Result<Settings, Failure> {
        let mut settings = match &args.config {
            Some(path) => Settings::read(path)?,
            None => Settings::read_if_there(Path::new(CONFIG))?,
        };
        settings.take(args);
        settings.check().map_err(|Wrong { why, .. }| Failure::usage(why))?;
        Ok(settings)
    }

    /// Takes over the settings that the command line gives: they go before.
    fn take(&mut self, args: &ServeArgs) {
        if let Some(state_dir) = &args.state_dir {
            self.state_dir.clone_from(state_dir);
        }
        if let Some(memory) = args.memory {
            self.memory = Some(memory);
        }
        if let Some(seconds) = args.wait_for_disks {
            self.wait_for_disks_s = seconds;
        }
        let environment = std::env::var(tracing_subscriber::EnvFilter::DEFAULT_ENV).ok();
        if let Some(log) = args.log.clone().or(environment) {
            self.log = log;
        }
        if !args.nfs_addr.is_empty() {
            self.nfs.listen.clone_from(&args.nfs_addr);
        }
        if !args.portmap_addr.is_empty() {
            self.portmap = Portmap { enabled: true, listen: args.portmap_addr.clone() };
        }
        self.portmap.enabled &= !args.no_portmap;
    }

    /// Memory that all pools and NFS may take together, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or_else(|| half(machine::memory_bytes()))
    }

    /// Finds addresses to listen on that this machine does not have: for a check before the start.
    ///
    /// # Errors
    /// The setting, and the address.
    pub fn check_addresses(&self) -> Result<(), Failure> {
        let portmap = if self.portmap.enabled { &self.portmap.listen[..] } else { &[] };
        for (name, addresses) in
            [("nfs", &self.nfs.listen[..]), ("portmap", portmap), ("api", &self.api.listen)]
        {
            for address in addresses.iter().map(SocketAddr::ip) {
                let bound = UdpSocket::bind((address, 0));
                if bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable) {
                    let why = format!("{name}.listen: {address}: this machine has no such address");
                    return Err(Failure::usage(why));
                }
            }
        }
        Ok(())
    }

    /// Finds files of keys that cannot be used: for a check before the start.
    ///
    /// # Errors
    /// The setting, and the file.
    pub fn check_files(&self) -> Result<(), Failure> {
        let files = self.nfs.tls.files();
        let checked = files.as_ref().map_or(Ok(()), KeyFiles::check);
        checked.map_err(|error| Failure::failed(format!("nfs.tls: {error}")))
    }

    fn read_if_there(path: &Path) -> Result<Settings, Failure> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Settings::default()),
            _ => Settings::read(path),
        }
    }

    fn read(path: &Path) -> Result<Settings, Failure> {
        let wrong = |why: &dyn std::fmt::Display| {
            Failure::usage(format!("configuration {}: {why}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
        toml::from_str(&text).map_err(|error| wrong(&error))
    }

    fn check(&self) -> Result<(), Wrong> {
        self.check_log()?;
        if let (Some(bytes), Some(machine)) = (self.memory, machine::memory_bytes())
            && bytes > machine
        {
            let (memory, machine) = (size::human(bytes), size::human(machine));
            let why =
                format!("memory: {memory}, but this machine, or its container, has {machine}");
            return wrong("memory", why);
        }
        if self.nfs.listen.is_empty() {
            return wrong("nfs.listen", "nfs.listen: there is no address to listen on");
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.nfs.connections) {
            let why = format!("nfs.connections: from 1 to {CONNECTIONS_MAX}");
            return wrong("nfs.connections", why);
        }
        let Tls { certificate, key, clients, revoked } = &self.nfs.tls;
        let given = [certificate, key, clients, revoked].map(|path| !path.as_os_str().is_empty());
        if given[0] != given[1] || given[2] && !given[0] || given[3] && !given[2] {
            let why = "nfs.tls: certificate and key belong together, clients to both, and revoked \
                       to clients";
            return wrong("nfs.tls", why);
        }
        if self.wait_for_disks_s > WAIT_FOR_DISKS_S_MAX {
            let why = format!("wait_for_disks_s: at most {WAIT_FOR_DISKS_S_MAX}");
            return wrong("wait_for_disks_s", why);
        }
        if self.portmap.enabled && self.portmap.listen.is_empty() {
            return wrong("portmap.listen", "portmap.listen: there is no address to listen on");
        }
        if let Some(name) = self.api.names.iter().find(|name| !is_host(name)) {
            return wrong("api.names", format!("api.names: {name:?} is no name of a host"));
        }
        self.alerts.check().or_else(|why| wrong("alerts", why))?;
        self.audit.check().or_else(|why| wrong("audit", why))?;
        check_peers(&self.peers).or_else(|why| wrong("peers", why))?;
        if !self.state_dir.is_absolute() {
            let why = "a daemon may be started anywhere; say where by an absolute path";
            return wrong("state_dir", format!("state_dir: {:?}: {why}", self.state_dir));
        }
        Ok(())
    }

    fn check_log(&self) -> Result<(), Wrong> {
        let filter = tracing_subscriber::EnvFilter::try_new(&self.log);
        filter.or_else(|error| wrong("log", format!("log: {:?}: {error}", self.log)))?;
        // A word alone is a part of the program to the filter: a level that is misspelt, mostly.
        let is_level = |word: &&str| LEVELS.contains(&word.to_lowercase().as_str());
        let words = self.log.split(',').filter(|word| !word.is_empty());
        let mut alone = words.filter(|word| !word.contains(['=', '[']) && !is_level(word));
        if let Some(word) = alone.find(|word| !word.starts_with("aquifer")) {
            let levels = LEVELS.join(", ");
            return wrong("log", format!("log: {word:?}: is no level; these are: {levels}"));
        }
        Ok(())
    }
}

/// Whether a certificate can have this name: an address, or labels that DNS takes.
fn is_host(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && (label == "*" || label.bytes().all(is_plain))
    };
    name.parse::<IpAddr>().is_ok()
        || name.len() <= 253 && name.trim_end_matches('.').split('.').all(is_label)
}

/// Half of the machine's memory; 1 GiB if the system does not say how much that is.
fn half(machine_bytes: Option<u64>) -> u64 {
    machine_bytes.map_or(1 << 30, |bytes| (bytes / 2).max(MEMORY_BYTES_MIN))
}

fn read_memory<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    match String::deserialize(from)?.as_str() {
        HALF => Ok(None),
        text => memory(text).map(Some).map_err(serde::de::Error::custom),
    }
}

#[expect(clippy::ref_option, reason = "what serde calls")]
fn write_memory<S: Serializer>(bytes: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    bytes.map_or_else(|| HALF.to_string(), size::human).serialize(to)
}

/// Half of the machine's memory, as the configuration says it.
const HALF: &str = "half";

/// More than anybody has; the allowances of this many are 1 GiB.
const CONNECTIONS_MAX: usize = 65536;
/// A machine that takes longer to find its disks has other problems.
const WAIT_FOR_DISKS_S_MAX: u32 = 3600;
/// The levels of the log.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
/// The default configuration file.
const CONFIG: &str = "/etc/aquifer/aquifer.toml";
