//! Code shared by the tests of the benchmark.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `aquifer` of the same profile: the existing program, or a new build. (Tests of the whole
/// workspace build it before any runs.)
pub fn aquifer(bench: &Path) -> PathBuf {
    if let Some(named) = std::env::var_os("AQUIFER_BIN") {
        return named.into();
    }
    let aquifer = bench.with_file_name("aquifer");
    if !aquifer.is_file() {
        let profile_dir = bench.parent().unwrap();
        let release = profile_dir.ends_with("release").then_some("--release");
        let built = Command::new(env!("CARGO"))
            .args(["build", "-p", "aquifer", "--bins", "--target-dir"])
            .arg(profile_dir.parent().unwrap())
            .args(release)
            .status();
        assert!(built.unwrap().success());
    }
    aquifer
}
