//! Many files in one directory: READDIR over many replies, with cookies that stay valid while names
//! go.
//!
//! Invariants: every listing is compared as a whole: each name once, none missing, no others. Each
//! file has a number of its own, which does not change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aquifer_rig::random::Random;

use crate::pattern;
use crate::{Error, Result};

/// Makes `count` files in `directory` (made here, must not exist), lists and verifies them. Then
/// removes them in three ways: every third by name, half of the others while listing, and then the
/// rest.
///
/// # Errors
/// [`Error::Mismatch`]; [`Error::Io`].
pub fn run(directory: &Path, seed: u64, count: u64) -> Result<()> {
    fs::create_dir(directory).map_err(Error::at("mkdir", directory))?;
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut random = Random::new(seed);
    for number in 0..count {
        let (name, content) = (name(number, &mut random), content(seed, number, &mut random));
        let path = directory.join(&name);
        fs::write(&path, &content).map_err(Error::at("write", &path))?;
        files.insert(name, content);
    }
    let names: BTreeSet<String> = files.keys().cloned().collect();
    let numbers = verify(directory, &names)?;
    for (name, content) in &files {
        let path = directory.join(name);
        let found = fs::read(&path).map_err(Error::at("read", &path))?;
        if &found != content {
            return Err(Error::Mismatch(format!("content of {}", path.display())));
        }
    }
    let mut kept = names.clone();
    for name in names.iter().step_by(3) {
        remove(&directory.join(name))?;
        kept.remove(name);
    }
    let kept_numbers = verify(directory, &kept)?;
    if kept_numbers.iter().any(|(name, inode)| numbers.get(name) != Some(inode)) {
        return Err(Error::Mismatch("an inode number changed".into()));
    }
    remove_while_listing(directory, &mut kept)?;
    verify(directory, &kept)?;
    for name in &kept {
        remove(&directory.join(name))?;
    }
    verify(directory, &BTreeSet::new())?;
    fs::remove_dir(directory).map_err(Error::at("rmdir", directory))
}

/// Removes every other name while listing the directory. The listing must still return every name
/// that is not removed (POSIX readdir: only removed and new names are unspecified).
fn remove_while_listing(directory: &Path, kept: &mut BTreeSet<String>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for (number, entry) in
        fs::read_dir(directory).map_err(Error::at("list", directory))?.enumerate()
    {
        let entry = entry.map_err(Error::at("list", directory))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !seen.insert(name.clone()) {
            return Err(Error::Mismatch(format!("{name} listed twice during removal")));
        }
        if number % 2 == 0 {
            remove(&entry.path())?;
            kept.remove(&name);
        }
    }
    match kept.iter().find(|name| !seen.contains(*name)) {
        None => Ok(()),
        Some(name) => Err(Error::Mismatch(format!("{name} not listed during removal"))),
    }
}

/// Lists `directory`, compares with `expected`, and returns the inode number of each name.
fn verify(directory: &Path, expected: &BTreeSet<String>) -> Result<BTreeMap<String, u64>> {
    let mut inodes = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(Error::at("list", directory))? {
        let entry = entry.map_err(Error::at("list", directory))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let metadata = entry.metadata().map_err(Error::at("stat", &entry.path()))?;
        if inodes.insert(name.clone(), metadata.ino()).is_some() {
            return Err(Error::Mismatch(format!("{name} listed twice")));
        }
    }
    let found: BTreeSet<String> = inodes.keys().cloned().collect();
    if let Some(name) = found.symmetric_difference(expected).next() {
        let (have, want) = (found.len(), expected.len());
        return Err(Error::Mismatch(format!("{have} of {want} names; for instance {name}")));
    }
    let distinct: BTreeSet<u64> = inodes.values().copied().collect();
    if distinct.len() != inodes.len() {
        return Err(Error::Mismatch("two files have one inode number".into()));
    }
    Ok(inodes)
}

fn remove(path: &PathBuf) -> Result<()> {
    fs::remove_file(path).map_err(Error::at("remove", path))
}

/// Some names have the longest length (255 bytes), so that replies end at any place.
fn name(number: u64, random: &mut Random) -> String {
    let padding = match random.below(10) {
        0 => 255 - 8,
        1..4 => random.index(60),
        _ => 0,
    };
    format!("f{number:07}{}", "x".repeat(padding))
}

fn content(seed: u64, number: u64, random: &mut Random) -> Vec<u8> {
    let length = if random.below(8) == 0 { random.index(20_000) } else { random.index(200) };
    let mut content = vec![0; length];
    pattern::fill(seed ^ number, 0, &mut content);
    content
}

#[cfg(test)]
mod tests {
    use super::*;
    use aquifer_rig::work::WorkDir;

    #[test]
    fn passes_on_a_local_file_system_and_leaves_nothing() {
        let scratch = WorkDir::open().unwrap().scratch("tree").unwrap();
        let directory = scratch.join("many");
        run(&directory, 1, 500).unwrap();
        assert!(!directory.exists());
    }

    #[test]
    fn a_missing_a_foreign_and_a_doubled_file_are_found() {
        let scratch = WorkDir::open().unwrap().scratch("tree-wrong").unwrap();
        let names = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        fs::write(scratch.join("a"), "").unwrap();
        assert!(matches!(verify(scratch.path(), &names), Err(Error::Mismatch(_))));
        fs::hard_link(scratch.join("a"), scratch.join("b")).unwrap();
        let error = verify(scratch.path(), &names).unwrap_err().to_string();
        assert!(error.contains("one inode number"), "{error}");
        fs::remove_file(scratch.join("b")).unwrap();
        fs::write(scratch.join("b"), "").unwrap();
        verify(scratch.path(), &names).unwrap();
        fs::write(scratch.join("c"), "").unwrap();
        assert!(matches!(verify(scratch.path(), &names), Err(Error::Mismatch(_))));
    }
}
