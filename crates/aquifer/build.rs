//! Sets `AQUIFER_VERSION`, the version, and the commit that is built, as far as it is known;
//! `AQUIFER_BUILT_FROM`, that commit alone, or nothing; and `AQUIFER_DATE`, its day, or nothing.
//!
//! Invariant: the same commit gives the same texts, wherever and whenever it is built. A packager
//! without git sets `AQUIFER_COMMIT`; empty, it means none.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=AQUIFER_COMMIT");
    let head = head(&here);
    let date = head.as_ref().and_then(|_| git(&here, &["log", "-1", "--format=%cs"]));
    println!("cargo:rustc-env=AQUIFER_DATE={}", date.unwrap_or_default());
    let commit = match std::env::var("AQUIFER_COMMIT") {
        Ok(commit) => Some(commit).filter(|commit| !commit.is_empty()),
        Err(_) => head,
    };
    println!("cargo:rustc-env=AQUIFER_BUILT_FROM={}", commit.as_deref().unwrap_or_default());
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo:rustc-env=AQUIFER_VERSION={version}{commit}");
}

/// The commit that is checked out, if these sources belong to it.
fn head(here: &Path) -> Option<String> {
    // Sources that were unpacked inside of another project's repository are not in its commit.
    git(here, &["ls-files", "--error-unmatch", "build.rs"])?;
    // HEAD changes with the branch, its log with each commit.
    for name in ["HEAD", "logs/HEAD"] {
        let path = here.join(git(here, &["rev-parse", "--git-path", name])?);
        // Cargo takes a file that is not there for one that has changed.
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    git(here, &["rev-parse", "--short=12", "HEAD"])
}

fn git(here: &Path, words: &[&str]) -> Option<String> {
    let said = Command::new("git").arg("-C").arg(here).args(words).output().ok()?;
    let text = said.status.success().then_some(said.stdout)?;
    Some(String::from_utf8(text).ok()?.trim().to_string())
}
