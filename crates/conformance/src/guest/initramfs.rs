//! Initial file systems of guests: busybox, kernel modules, `nfstest`, an init script.
//!
//! Invariant: `/init` itself loads the modules in `/modules/order`; the guest needs no udev,
//! modprobe or shared library.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use aquifer_rig::process::Invocation;
use aquifer_rig::work::WorkDir;

use crate::cpio::Archive;
use crate::kernel::Kernel;
use crate::{Error, Result};

/// A file for the guest.
#[derive(Clone, Debug)]
pub struct GuestFile {
    /// Absolute path in the guest.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Content.
    pub content: Vec<u8>,
}

/// Writes an initramfs to `into`: `modules` with their dependencies, `files`, and `init` as
/// `/init`.
///
/// # Errors
/// [`Error::MissingTool`] without busybox, [`Error::Malformed`] for an unknown module.
pub fn build(
    kernel: &Kernel,
    modules: &[&str],
    files: &[GuestFile],
    init: &str,
    into: &Path,
) -> Result<()> {
    let mut archive = Archive::default();
    for directory in ["proc", "sys", "tmp", "mnt", "etc", "root", "var/run"] {
        archive.directory(directory)?;
    }
    // The kernel opens it for init before any mount (Documentation/admin-guide/devices).
    archive.character_device("dev/console", 0o600, (5, 1))?;
    archive.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n")?;
    archive.file("etc/group", 0o644, b"root:x:0:\n")?;
    archive.file("init", 0o755, init.as_bytes())?;
    let busybox = busybox()?;
    archive.file("bin/busybox", 0o755, &read(&busybox.path)?)?;
    for applet in busybox.applets.iter().filter(|applet| *applet != "busybox") {
        archive.symlink(&format!("bin/{applet}"), "busybox")?;
    }
    let mut order = String::new();
    for module in kernel.modules(modules)? {
        let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Debian's newer kernels compress their modules, which our insmod does not understand.
        let (name, content) = match name.strip_suffix(".xz") {
            Some(name) => (name.to_owned(), unpacked(&module)?),
            None => (name, read(&module)?),
        };
        archive.file(&format!("modules/{name}"), 0o644, &content)?;
        order.push_str(&name);
        order.push('\n');
    }
    archive.file("modules/order", 0o644, order.as_bytes())?;
    for file in files {
        archive.file(file.path.trim_start_matches('/'), file.mode, &file.content)?;
    }
    fs::write(into, archive.finish()?).map_err(Error::at("write", into))
}

fn unpacked(module: &Path) -> Result<Vec<u8>> {
    let xz = Invocation::tool("xz", "guest")?.arg("-dc").arg(module);
    Ok(xz.check(Duration::from_secs(60))?.stdout)
}

/// A program of this machine with its linked libraries, for a guest.
///
/// # Errors
/// [`Error::MissingTool`] if it is not installed.
pub fn program_files(name: &str, group: &'static str) -> Result<Vec<GuestFile>> {
    let program = Invocation::tool(name, group)?.line();
    let linked = Invocation::new("ldd").arg(&program).check(Duration::from_secs(10))?.text();
    // `name => /path (address)`, or `/path (address)` for the loader.
    let libraries = linked.lines().filter_map(|line| {
        let (before, _) = line.rsplit_once(" (")?;
        Some(before.rsplit("=> ").next()?.trim().to_owned())
    });
    let libraries = libraries.filter(|path| path.starts_with('/'));
    let files = libraries.chain([program]).map(|path| {
        let content = read(Path::new(&path))?;
        Ok(GuestFile { path, mode: 0o755, content })
    });
    files.collect()
}

/// The static busybox of this machine.
pub(crate) struct Busybox {
    pub(crate) path: PathBuf,
    pub(crate) applets: Vec<String>,
}

pub(crate) fn busybox() -> Result<Busybox> {
    let tool = Invocation::tool("busybox", "guest")?;
    let path = PathBuf::from(tool.line());
    let listed = tool.arg("--list").check(Duration::from_secs(10))?;
    Ok(Busybox { path, applets: listed.text().lines().map(str::to_owned).collect() })
}

/// The test program `nfstest`, linked statically, as a file for the guest: `/bin/nfstest`. Cargo
/// builds it from this crate, in a target directory of its own; `AQUIFER_NFSTEST` names an existing
/// one.
///
/// # Errors
/// [`Error::Failed`] with the compiler's output.
pub fn test_program(work: &WorkDir) -> Result<GuestFile> {
    // One build at a time per process; cargo itself locks against other processes.
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let path = match (built.clone(), std::env::var_os("AQUIFER_NFSTEST")) {
        (Some(path), _) => path,
        (None, Some(path)) => PathBuf::from(path),
        (None, None) => compile(&work.root().join("guest-target"))?,
    };
    *built = Some(path.clone());
    Ok(GuestFile { path: "/bin/nfstest".into(), mode: 0o755, content: read(&path)? })
}

fn compile(target_dir: &Path) -> Result<PathBuf> {
    let triple = "x86_64-unknown-linux-gnu";
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Invocation::new(cargo)
        .args(["build", "--quiet", "--release", "--package", "aquifer-conformance"])
        .args(["--bin", "nfstest", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        // Naming the target keeps the flags from build scripts and macros, which must stay dynamic.
        .args(["--target", triple, "--target-dir"])
        .arg(target_dir)
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .check(Duration::from_secs(600))?;
    Ok(target_dir.join(triple).join("release/nfstest"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::at("read", path))
}
