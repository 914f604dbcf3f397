//! The place of the attacks: a daemon in a network of its own, and the machines around it.
//!
//! All of 10.9.0.0/16 is on the namespace's loopback interface, so each machine is an address.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aquifer_nfs::proto::mount::{self, DirPath, MountRes3, Path as MountPath};
use aquifer_nfs::proto::v3::{
    Args3, Create3Args, Create3Res, CreateHow3, DirOpArgs3, NfsFh3, Sattr3,
};
use aquifer_rig::daemon::Daemon;
use aquifer_rig::netns::{NetNs, enter_network};
use aquifer_rig::process::Invocation;
use aquifer_rig::tls::{Authority, Shown};
use aquifer_rig::wire::SERVER as TLS_NAME;
use aquifer_rig::wire::call::{Caller, Source, of_mount, of_nfs};
use aquifer_rig::wire::{decode, granted, results};
use aquifer_rig::work::{Scratch, WorkDir};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::grounds::{Grounds, Lab};
use crate::target::image;
use crate::{Error, Result};

/// The server.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// A hypervisor that the export names.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 10);
/// Another hypervisor that the export names.
pub(super) const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 11);
/// The administrator's machine, which no export names.
pub(super) const ADMINISTRATOR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 20);

/// A machine that no export names. There are 4096 of them.
pub(super) fn stranger(number: u32) -> Ipv4Addr {
    let number = number % 4096;
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 9, 64, 0]) + number)
}

/// Files that are locked.
pub(super) const LOCK_FILES: usize = 4;
/// Memory limit of the daemon.
pub(super) const MEMORY_MIB: u64 = 256;
/// Memory beside it: of as many connections as are allowed, and of the pool's table of replies
/// (docs/operations.md).
const BESIDE_MIB: u64 = 100 + 8;
/// Program text, stacks and the allocator's reserve, as in the tests of the daemon's memory.
const BASE_MIB: u64 = 48;

/// The daemon's promise: most resident memory.
pub(super) const PROMISED_BYTES: u64 = (MEMORY_MIB + BESIDE_MIB + BASE_MIB) << 20;

/// A daemon with a file and locks on it.
pub(super) struct Place {
    daemon: Daemon,
    /// The exported directory.
    pub root: NfsFh3,
    /// The file that the host reads and writes.
    pub file: NfsFh3,
    /// The files that it locks.
    pub locked: Vec<NfsFh3>,
    /// TLS configuration for NFS over TLS.
    pub tls: Arc<ClientConfig>,
    /// TLS configuration and token for the API over TCP.
    pub api: (Arc<ClientConfig>, String),
    /// Grounds of the insiders: a dataset and tokens.
    pub grounds: Grounds,
    /// Dropped after the daemon, whose files are in it.
    _scratch: Scratch,
}

impl Place {
    /// Starts a daemon and exports a dataset to two hosts.
    ///
    /// # Errors
    /// The daemon's error; [`Error::MissingTool`].
    pub fn start(program: &Path, image_bytes: u64, lab: Lab) -> Result<Self> {
        if !program.is_file() {
            return Err(Error::MissingTool { tool: program.display().to_string(), group: "build" });
        }
        let scratch = WorkDir::open()?.scratch("attacks")?;
        let netns = NetNs::new(&scratch)?;
        let network = format!("{SERVER}/16");
        let address = ["addr", "add", &network, "dev", "lo"];
        Invocation::tool("ip", "guest")?.args(address).inside(&netns).check(SOON)?;
        let home = scratch.dir("tls")?;
        let made = Authority::new(&home, "authority").and_then(|of| of.certify("nfs", &[TLS_NAME]));
        let own = made.map_err(Error::io("make a certificate"))?;
        let authority = home.join("authority.pem");
        let shown = Shown { authority, server: TLS_NAME.into(), own: None };
        let tls = shown.config().map_err(Error::io("read a certificate"))?;
        let config = scratch.join("aquifer.toml");
        let text = format!(
            "memory = \"{MEMORY_MIB}M\"\n[nfs]\nlisten = [\"{SERVER}:{NFS_PORT}\"]\n[nfs.tls]\n\
             certificate = \"{}\"\nkey = \"{}\"\n[portmap]\n\
             listen = [\"{SERVER}:{PORTMAP_PORT}\"]\n[api]\nlisten = [\"{SERVER}:{API_PORT}\"]\n",
            own.certificate.display(),
            own.key.display()
        );
        std::fs::write(&config, text).map_err(Error::at("write", &config))?;
        let args = [format!("--config={}", config.display())];
        let mut daemon = Daemon::new(program, &netns, &scratch, args, &[NFS_PORT]);
        daemon.start()?;
        let disk = scratch.join("disk.img");
        image(&disk, image_bytes, image_bytes >= WRITTEN_BYTES_MIN)?;
        let ask = |words: &[&str]| daemon.command().args(words).check(PATIENCE).map(drop);
        daemon.command().args(["pool", "create", POOL]).arg(&disk).check(PATIENCE)?;
        ask(&["create", DATASET])?;
        ask(&["set", &format!("sharenfs=rw={HOST}:{NEIGHBOUR}"), DATASET])?;
        daemon.wait_serving()?;
        let api = api_keys(&scratch.join("state"))?;
        let pid = daemon.process()?.pid();
        let (root, file, locked) = within(pid, make_files)??;
        let grounds = within(pid, || Grounds::make(&daemon, lab))??;
        Ok(Place { daemon, root, file, locked, tls, api, grounds, _scratch: scratch })
    }

    /// The daemon's process.
    ///
    /// # Errors
    /// [`Error::Failed`] with its log if it has ended.
    pub fn pid(&self) -> Result<u32> {
        let process = self.daemon.process()?;
        match process.is_running() {
            true => Ok(process.pid()),
            false => Err(Error::Failed { what: "the daemon".into(), said: process.said() }),
        }
    }

    /// The API's Unix socket.
    pub fn socket(&self) -> &Path {
        self.daemon.socket()
    }

    /// The daemon's log file.
    pub fn log(&self) -> &Path {
        self.daemon.log_path()
    }
}

/// Runs `work` on a thread in the network of process `pid`.
fn within<T: Send>(pid: u32, work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || enter_network(pid).map(|()| work()));
        thread.join().map_err(|_| Error::Malformed("a thread panicked".into()))?
    })
}

/// Makes the file for data and those for locks, and returns their handles with the export's root.
fn make_files() -> Result<(NfsFh3, NfsFh3, Vec<NfsFh3>)> {
    let mut host = Caller::connect(Source::root(HOST), nfs()).map_err(Error::io("connect"))?;
    let path = DirPath { path: MountPath(EXPORT.as_bytes()) };
    let reply = host.call(of_mount(mount::Procedure::Mnt), &path).map_err(Error::io("MNT"))?;
    let (_, mut from) = results(&reply)?;
    let root = match decode(&mut from)? {
        MountRes3::Ok { fhandle, .. } => fhandle,
        MountRes3::Fail(status) => {
            return Err(Error::Failed { what: "MNT".into(), said: format!("{status:?}") });
        }
    };
    let mut make = |name: &str| -> Result<NfsFh3> {
        let place = DirOpArgs3 { dir: root, name: name.as_bytes() };
        let attributes = Sattr3 { mode: Some(0o644), ..Sattr3::NONE };
        let args = Args3::Create(Create3Args { place, how: CreateHow3::Unchecked(attributes) });
        let reply = host.call(of_nfs(&args), &args).map_err(Error::io("CREATE"))?;
        let (_, mut from) = results(&reply)?;
        let made = granted("CREATE", decode::<Create3Res>(&mut from)?)?;
        made.obj.ok_or_else(|| Error::Malformed("CREATE gave no handle".into()))
    };
    let file = make("disk.raw")?;
    let locked: Result<Vec<_>> = (0..LOCK_FILES).map(|n| make(&format!("lock{n}"))).collect();
    Ok((root, file, locked?))
}

/// The keys with which the administrator calls from another machine.
fn api_keys(state: &Path) -> Result<(Arc<ClientConfig>, String)> {
    let home = state.join("api");
    let (certificate, token) = (home.join("certificate.pem"), home.join("token"));
    let malformed = |error: &dyn std::fmt::Display| Error::Malformed(error.to_string());
    let mut roots = RootCertStore::empty();
    let shown = CertificateDer::pem_file_iter(&certificate).map_err(|error| malformed(&error))?;
    for own in shown {
        roots.add(own.map_err(|error| malformed(&error))?).map_err(|error| malformed(&error))?;
    }
    let builder = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    // A full handshake each time, as each command makes one.
    config.resumption = rustls::client::Resumption::disabled();
    let token = std::fs::read_to_string(&token).map_err(Error::at("read", &token))?;
    Ok((Arc::new(config), token.trim().to_owned()))
}

/// The address of NFS, MOUNT and the locks.
pub(super) fn nfs() -> SocketAddr {
    (SERVER, NFS_PORT).into()
}

/// The address of the portmapper.
pub(super) fn portmapper() -> SocketAddr {
    (SERVER, PORTMAP_PORT).into()
}

/// The address of the API.
pub(super) fn api() -> SocketAddr {
    (SERVER, API_PORT).into()
}

pub(super) const PORTMAP_PORT: u16 = 111;
pub(super) const EXPORT: &str = "/tank/vms";
pub(super) const POOL: &str = "tank";
const DATASET: &str = "tank/vms";
const NFS_PORT: u16 = 2049;
const API_PORT: u16 = 9443;
/// Smaller images are for tests, and sparse.
const WRITTEN_BYTES_MIN: u64 = 1 << 30;
const SOON: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(120);
