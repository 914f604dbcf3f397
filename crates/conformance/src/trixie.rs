//! A guest of the next Debian: a kernel whose NFS client supports TLS (6.5 and later), and `tlshd`,
//! which makes the handshakes for it. Downloaded and unpacked, never installed.
//!
//! Invariant: packages come from the same mirror as this machine's own, and are verified as apt
//! verifies them. The machine's own package lists do not change.

use std::fs;
use std::path::Path;
use std::time::Duration;

use aquifer_rig::process::Invocation;
use aquifer_rig::tls::Certified;
use aquifer_rig::work::WorkDir;

use crate::guest::initramfs::GuestFile;
use crate::kernel::Kernel;
use crate::{Error, Result};

/// The parts of a guest with TLS.
#[derive(Debug)]
pub struct TlsGuest {
    /// Its kernel.
    pub kernel: Kernel,
    /// Programs, libraries and configuration.
    pub files: Vec<GuestFile>,
}

/// Modules beside those of every guest: nothing in it loads them automatically.
pub const MODULES: [&str; 3] = ["tls", "gcm", "ghash-generic"];

/// The command that starts the handshake daemon.
pub const START: &str = "/usr/sbin/tlshd -s >/tmp/tlshd.log 2>&1 &";

impl TlsGuest {
    /// The kernel, and `tlshd` with its dependencies. It trusts `authority` (PEM) and shows `own`.
    ///
    /// # Errors
    /// [`Error::Failed`] if packages cannot be downloaded.
    pub fn fetch(work: &WorkDir, authority: &Path, own: Option<&Certified>) -> Result<Self> {
        let unpacked = work.cached("trixie", download)?;
        let mut files = programs(&unpacked)?;
        let mut config = "[debug]\nloglevel=1\n[authenticate.client]\n".to_owned();
        let own = own.map(|own| [("certificate", &own.certificate), ("private_key", &own.key)]);
        let shown = own.into_iter().flatten().map(|(name, path)| (name, path.as_path()));
        for (name, path) in [("truststore", authority)].into_iter().chain(shown) {
            let inside = format!("/etc/{name}.pem");
            config.push_str(&format!("x509.{name}={inside}\n"));
            files.push(GuestFile { path: inside, mode: 0o600, content: read(path)? });
        }
        let path = "/etc/tlshd.conf".into();
        files.push(GuestFile { path, mode: 0o600, content: config.into_bytes() });
        Ok(TlsGuest { kernel: Kernel::open(&unpacked)?, files })
    }
}

/// `tlshd` and its linked libraries, which its own loader lists.
fn programs(unpacked: &Path) -> Result<Vec<GuestFile>> {
    let loader = "usr/lib64/ld-linux-x86-64.so.2";
    let libraries = unpacked.join("usr/lib/x86_64-linux-gnu");
    let program = "/usr/sbin/tlshd";
    let listed = Invocation::new(unpacked.join(loader))
        .arg("--library-path")
        .arg(&libraries)
        .arg("--list")
        .arg(unpacked.join(program.trim_start_matches('/')))
        .check(MINUTE)?
        .text();
    let inside = |path: &str, file: &Path| -> Result<GuestFile> {
        Ok(GuestFile { path: path.into(), mode: 0o755, content: read(file)? })
    };
    let mut files = vec![
        inside("/lib64/ld-linux-x86-64.so.2", &unpacked.join(loader))?,
        inside(program, &unpacked.join(program.trim_start_matches('/')))?,
    ];
    for line in listed.lines().filter(|line| line.contains(" => /") && !line.contains(loader)) {
        let name = line.split_whitespace().next().unwrap_or_default();
        if name.starts_with('/') {
            continue;
        }
        files.push(inside(&format!("/usr/lib/x86_64-linux-gnu/{name}"), &libraries.join(name))?);
    }
    Ok(files)
}

/// Kernel and `tlshd` with all dependencies, unpacked into one tree.
fn download(into: &Path) -> Result<()> {
    let lists = Invocation::tool("apt-get", "guest")?
        .args(["indextargets", "--format", "$(REPO_URI)"])
        .check(MINUTE)?
        .text();
    let mirror = lists.lines().find(|uri| !uri.contains("security"));
    let mirror = mirror.ok_or_else(|| Error::Failed {
        what: "apt-get indextargets".into(),
        said: lists.clone(),
    })?;
    let script = include_str!("trixie.sh");
    Invocation::new("sh").args(["-c", script, "trixie", mirror]).arg(into).check(10 * MINUTE)?;
    let release = Kernel::open(into)?.release;
    let depmod = Invocation::tool("depmod", "guest")?.arg("-b").arg(into.join("usr")).arg(release);
    depmod.check(MINUTE).map(|_| ())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::at("read", path))
}

const MINUTE: Duration = Duration::from_secs(60);
