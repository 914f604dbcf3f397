//! nfs-ganesha on a directory, with its rpcbind, in a namespace of their own.
//!
//! Invariants: NFSv3 and v4 at the well-known port, mounted as [`EXPORT`]; no root squash; no grace
//! period after a start. The directory outlives the server: a killed server is started again on it.
//! Measured quirk: `rpcbind -h 127.0.0.1` of Debian 12 aborts, so it gets no address; the namespace
//! has no other than loopback.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::netns::NetNs;
use crate::process::{Invocation, Process};
use crate::server::Server;
use crate::work::Scratch;
use crate::{Error, Result};

/// The path that clients mount.
pub const EXPORT: &str = "/export";

/// A running nfs-ganesha.
#[derive(Debug)]
pub struct Ganesha {
    /// First, so that it ends before the services that it needs.
    server: Server,
    _rpcbind: Server,
    netns: NetNs,
    directory: PathBuf,
}

impl Ganesha {
    /// Serves `directory`, which must lie on a file system with handles (ext4, btrfs, xfs, tmpfs).
    /// Needs root.
    ///
    /// # Errors
    /// [`Error::MissingTool`], [`Error::Failed`] with the server's log.
    pub fn start(scratch: &Scratch, directory: &Path) -> Result<Self> {
        let netns = NetNs::new(scratch)?;
        let rpcbind = Invocation::tool("rpcbind", "peer")?.args(["-f", "-w"]);
        let mut rpcbind = Server::new(rpcbind, Some(&netns), 111, &scratch.join("rpcbind.log"));
        rpcbind.start(START_LIMIT)?;
        let config = scratch.join("ganesha.conf");
        fs::write(&config, configuration(directory)).map_err(Error::at("write", &config))?;
        let log = scratch.join("ganesha.log");
        let ganesha = Invocation::tool("ganesha.nfsd", "peer")?
            .args(["-F", "-N", "EVENT", "-L"])
            .arg(&log)
            .arg("-f")
            .arg(&config)
            .arg("-p")
            .arg(scratch.join("ganesha.pid"));
        let server = Server::new(ganesha, Some(&netns), NFS_PORT, &log);
        let directory = directory.to_path_buf();
        let mut ganesha = Self { server, _rpcbind: rpcbind, netns, directory };
        ganesha.restart()?;
        Ok(ganesha)
    }

    /// The namespace in which its clients must run.
    #[must_use]
    pub fn netns(&self) -> &NetNs {
        &self.netns
    }

    /// The directory that it serves, as a path of this machine.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// URL of a file in the export, for libnfs and QEMU inside the namespace.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1{EXPORT}/{path}")
    }

    /// Sends SIGKILL.
    pub fn kill9(&mut self) {
        self.server.kill9();
    }

    /// Kills it with SIGKILL if it runs, then starts it.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::Timeout`] with its log.
    pub fn restart(&mut self) -> Result<()> {
        self.server.restart(START_LIMIT)?;
        // It listens some time before it is registered and serves.
        let start = Instant::now();
        loop {
            let answers = ["nfs", "mountd"].iter().all(|program| {
                let ask = Invocation::tool("rpcinfo", "clients").and_then(|rpcinfo| {
                    let ask = rpcinfo.args(["-T", "tcp", "127.0.0.1", program, "3"]);
                    ask.inside(&self.netns).check(Duration::from_secs(10))
                });
                ask.is_ok()
            });
            if answers {
                return Ok(());
            }
            if start.elapsed() > START_LIMIT {
                let what = "nfs-ganesha to serve".to_owned();
                return Err(Error::Timeout { what, limit: START_LIMIT, said: self.server.said() });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Processor time used since its last start.
    ///
    /// # Errors
    /// [`Error::Failed`] if it does not run.
    pub fn cpu_time(&self) -> Result<Duration> {
        self.server.running()?.cpu_time()
    }

    /// The running process, for its threads and memory.
    ///
    /// # Errors
    /// [`Error::Failed`] if it does not run.
    pub fn process(&self) -> Result<&Process> {
        self.server.running()
    }

    /// The end of its log.
    #[must_use]
    pub fn said(&self) -> String {
        self.server.said()
    }
}

fn configuration(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "NFS_CORE_PARAM {{ NFS_Port = {NFS_PORT}; MNT_Port = 20048; NLM_Port = 20049; \
             Enable_RQUOTA = false; Mount_Path_Pseudo = true; Protocols = 3, 4; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         EXPORT_DEFAULTS {{ Squash = None; SecType = sys; Access_Type = RW; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{directory}\"; Pseudo = \"{EXPORT}\"; \
             FSAL {{ Name = VFS; }} }}\n"
    )
}

const NFS_PORT: u16 = 2049;
const START_LIMIT: Duration = Duration::from_secs(30);
