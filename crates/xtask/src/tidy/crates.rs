//! Crates as cargo reports them, and the rules for each.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::report::Report;
use super::tree::Tree;

/// The purpose of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The crate itself, or its build script.
    Normal,
    /// Its tests and examples.
    Dev,
}

/// One crate of the workspace.
#[derive(Debug, Clone)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its directory, from the workspace's root.
    pub directory: String,
    /// The dependencies in its manifest, in the workspace and outside.
    pub dependencies: Vec<(String, Purpose)>,
}

impl Package {
    /// Its manifest.
    pub fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.directory)
    }

    /// Its short name in the workspace.
    pub fn room(&self) -> &str {
        self.name.strip_prefix("aquifer-").unwrap_or(&self.name)
    }
}

/// Asks cargo for all packages.
///
/// # Errors
/// Cargo cannot be run, or its answer makes no sense.
pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    parse(&metadata).ok_or_else(|| "cargo metadata: an answer of another shape".to_string())
}

fn parse(metadata: &Value) -> Option<Vec<Package>> {
    let root = Path::new(metadata.get("workspace_root")?.as_str()?);
    let list = metadata.get("packages")?.as_array()?;
    list.iter()
        .map(|package| {
            let manifest = Path::new(package.get("manifest_path")?.as_str()?);
            let directory = manifest.parent()?.strip_prefix(root).ok()?;
            let dependencies = package.get("dependencies")?.as_array()?;
            let dependency = |dependency: &Value| {
                let purpose = match dependency.get("kind")?.as_str() {
                    Some("dev") => Purpose::Dev,
                    _ => Purpose::Normal,
                };
                Some((dependency.get("name")?.as_str()?.to_string(), purpose))
            };
            Some(Package {
                name: package.get("name")?.as_str()?.to_string(),
                directory: directory.to_str()?.to_string(),
                dependencies: dependencies.iter().map(dependency).collect::<Option<_>>()?,
            })
        })
        .collect()
}

/// Crates that the format must not use: its bytes are written by hand, one by one.
const NO_FORMAT: [&str; 6] = ["bincode", "borsh", "postcard", "rkyv", "serde", "zerocopy"];

/// Checks manifests and heads.
pub fn check(packages: &[Package], tree: &Tree, report: &mut Report) {
    for package in packages {
        let manifest = package.manifest();
        let text = tree.file(&manifest).map_or("", |file| file.text.as_str());
        if !takes_lints(text) {
            report.error(&manifest, 0, "lacks `[lints] workspace = true`");
        }
        let heads = ["lib", "main"].map(|name| format!("{}/src/{name}.rs", package.directory));
        for file in heads.iter().filter_map(|head| tree.file(head)) {
            if !file.text.starts_with("//! ") {
                report.error(&file.path, 1, "does not begin with `//!`: what it is, what holds");
            }
        }
        if package.room() == "ondisk" {
            for (name, _) in &package.dependencies {
                if NO_FORMAT.iter().any(|banned| name.split('_').next() == Some(banned)) {
                    report.error(&manifest, 0, format!("{name}: the format is written by hand"));
                }
            }
        }
    }
}

/// Whether a manifest's `[lints]` are the workspace's.
fn takes_lints(manifest: &str) -> bool {
    let mut section = "";
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            section = line;
        }
        let setting: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        section == "[lints]" && setting == "workspace=true"
    })
}
