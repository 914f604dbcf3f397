//! The mutants that exist, and the order in which a seed draws them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::mutant::{Mutant, byte_at};

/// The sources of mutants: the engine, and the parts of `nfs` that change something. Of these,
/// `.cargo/mutants.toml` omits code that only counts or reports.
pub const SOURCES: [&str; 20] = [
    "crates/pool/src/**",
    "crates/dataset/src/**",
    "crates/files/src/**",
    "crates/object/src/**",
    "crates/space/src/**",
    "crates/nfs/src/server.rs",
    "crates/nfs/src/together.rs",
    "crates/nfs/src/v3/commit.rs",
    "crates/nfs/src/v3/create.rs",
    "crates/nfs/src/v3/link.rs",
    "crates/nfs/src/v3/mkdir.rs",
    "crates/nfs/src/v3/mknod.rs",
    "crates/nfs/src/v3/once.rs",
    "crates/nfs/src/v3/remove.rs",
    "crates/nfs/src/v3/rename.rs",
    "crates/nfs/src/v3/request.rs",
    "crates/nfs/src/v3/rmdir.rs",
    "crates/nfs/src/v3/setattr.rs",
    "crates/nfs/src/v3/symlink.rs",
    "crates/nfs/src/v3/write.rs",
];

/// All mutants of the workspace at `root`, in the order of the seed.
///
/// # Errors
/// `cargo-mutants` is missing, or its answer makes no sense.
pub fn drawn(root: &Path, seed: u64) -> Result<Vec<Mutant>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["mutants", "--list", "--json", "--workspace"]).current_dir(root);
    for source in SOURCES {
        command.args(["--file", source]);
    }
    let output = command.output().map_err(|error| format!("cargo mutants: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo mutants: {said}(scripts/setup-deps.sh mutants installs it)"));
    }
    let list: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo mutants: {error}"))?;
    let list = list.as_array().ok_or("cargo mutants: no list")?;
    let mut mutants =
        list.iter().map(|entry| of_json(root, entry)).collect::<Result<Vec<_>, _>>()?;
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    shuffle(&mut mutants, seed);
    Ok(mutants)
}

fn of_json(root: &Path, entry: &Value) -> Result<Mutant, String> {
    let text = |name: &str| entry[name].as_str().map(str::to_string);
    let strange = || format!("cargo mutants: an entry of another shape: {entry}");
    let file = text("file").ok_or_else(strange)?;
    let source =
        fs::read_to_string(root.join(&file)).map_err(|error| format!("{file}: {error}"))?;
    let byte = |end: &str| {
        let number = |of: &str| {
            let number = entry.pointer(&format!("/span/{end}/{of}"))?.as_u64()?;
            usize::try_from(number).ok()
        };
        byte_at(&source, number("line")?, number("column")?)
    };
    Ok(Mutant {
        name: text("name").ok_or_else(strange)?,
        replaced: byte("start").ok_or_else(strange)?..byte("end").ok_or_else(strange)?,
        replacement: text("replacement").ok_or_else(strange)?,
        diff: text("diff").ok_or_else(strange)?,
        file,
    })
}

/// Shuffles things by a seed (Fisher and Yates, with the numbers of splitmix64).
pub fn shuffle<T>(things: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..things.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = state;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^= number >> 31;
        let below = (u128::from(number) * (last as u128 + 1)) >> 64;
        things.swap(last, usize::try_from(below).unwrap_or(last));
    }
}
