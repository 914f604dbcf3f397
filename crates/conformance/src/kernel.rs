//! Debian's cloud kernel and its modules, for guests: downloaded and unpacked, never installed.
//!
//! Invariant: a list of modules is closed under dependencies and in an order in which `insmod`
//! works; it leaves out built-in code.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aquifer_rig::process::Invocation;
use aquifer_rig::work::WorkDir;

use crate::{Error, Result};

/// An unpacked kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Release as `uname -r` gives it.
    pub release: String,
    /// The bootable image.
    pub image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// The kernel in the cache of `work`, or the one that the system's package lists name.
    ///
    /// # Errors
    /// [`Error::Failed`] if it cannot be downloaded (stale lists: `apt-get update`).
    pub fn fetch(work: &WorkDir) -> Result<Self> {
        Self::open(&work.cached("kernel", download)?)
    }

    /// An unpacked kernel at this path.
    pub(crate) fn open(unpacked: &Path) -> Result<Self> {
        // Newer packages have everything below /usr.
        let parents = ["usr/lib/modules", "lib/modules"].map(|parent| unpacked.join(parent));
        let [newer, older] = parents;
        let parent = if newer.is_dir() { newer } else { older };
        let mut entries = fs::read_dir(&parent).map_err(Error::at("list", &parent))?.flatten();
        let modules = entries.next().map(|entry| entry.path());
        let modules = modules.ok_or_else(|| Error::Malformed("a kernel without modules".into()))?;
        let release = modules.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let image = unpacked.join(format!("boot/vmlinuz-{release}"));
        Ok(Self { release, image, modules })
    }

    /// Files of the modules `names` and their dependencies, in loading order.
    ///
    /// # Errors
    /// [`Error::Malformed`] for a module that this kernel does not have.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let read = |file: &str| {
            let path = self.modules.join(file);
            fs::read_to_string(&path).map_err(Error::at("read", &path))
        };
        let order = load_order(&read("modules.dep")?, &read("modules.builtin")?, names)?;
        Ok(order.iter().map(|file| self.modules.join(file)).collect())
    }
}

/// Downloads and unpacks the package that `linux-image-cloud-amd64` stands for.
fn download(into: &Path) -> Result<()> {
    let depends = Invocation::tool("apt-cache", "guest")?
        .args(["depends", "--important", "linux-image-cloud-amd64"])
        .check(MINUTE)?
        .text();
    let package = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).next();
    let package = package.ok_or_else(|| Error::Failed {
        what: "apt-cache depends linux-image-cloud-amd64".into(),
        said: depends.clone(),
    })?;
    // apt downloads into the current directory.
    let script = "cd \"$0\" && apt-get -qq download \"$1\" && dpkg-deb -x *.deb . && rm *.deb";
    Invocation::new("sh").args(["-c", script]).arg(into).arg(package).check(10 * MINUTE)?;
    let release = Kernel::open(into)?.release;
    // Debian writes modules.dep at installation, which is skipped here.
    let depmod = Invocation::tool("depmod", "guest")?.arg("-b").arg(into).arg(release);
    depmod.check(MINUTE).map(|_| ())
}

fn load_order(dep: &str, builtin: &str, names: &[&str]) -> Result<Vec<String>> {
    let mut known = BTreeMap::new();
    for line in dep.lines() {
        let (file, needs) =
            line.split_once(':').ok_or_else(|| Error::Malformed(format!("modules.dep: {line}")))?;
        known.insert(module_name(file), (file, needs));
    }
    let mut order: Vec<String> = Vec::new();
    for name in names {
        let name = name.replace('-', "_");
        if builtin.lines().any(|file| module_name(file) == name) {
            continue;
        }
        let found = known.get(&name);
        let (file, needs) =
            found.ok_or_else(|| Error::Malformed(format!("no kernel module {name}")))?;
        // modules.dep lists all dependencies, with those to load first at the end.
        for file in needs.split_whitespace().rev().chain([*file]) {
            if !order.iter().any(|have| have == file) {
                order.push(file.to_owned());
            }
        }
    }
    Ok(order)
}

fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or_default();
    name.split('.').next().unwrap_or_default().replace('-', "_")
}

const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/a/top.ko: kernel/a/mid-one.ko kernel/b/low.ko\n\
        kernel/a/mid-one.ko: kernel/b/low.ko\nkernel/b/low.ko:\n";

    #[test]
    fn dependencies_come_first_and_once() {
        let order = load_order(DEP, "", &["top", "mid_one", "low"]).unwrap();
        assert_eq!(order, ["kernel/b/low.ko", "kernel/a/mid-one.ko", "kernel/a/top.ko"]);
    }

    #[test]
    fn built_in_is_left_out_and_unknown_is_an_error() {
        let order = load_order(DEP, "kernel/fs/ext4/ext4.ko\n", &["ext4", "low"]).unwrap();
        assert_eq!(order, ["kernel/b/low.ko"]);
        assert!(load_order(DEP, "", &["nothing"]).is_err());
        assert!(load_order("no colon", "", &[]).is_err());
    }
}
