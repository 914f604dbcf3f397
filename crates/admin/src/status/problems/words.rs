//! Words of sentences about problems: disks, verbs, commands.

use std::collections::BTreeSet;
use std::path::Path;

use aquifer_api::{LeafStatus, PoolStatus, VdevClass, VdevStatus};

pub(super) fn repaired(leaves: &[&LeafStatus]) -> String {
    match leaves.iter().map(|leaf| leaf.repaired).sum::<u64>() {
        0 => String::new(),
        1 => "; 1 bad copy was rewritten from a good one".to_string(),
        many => format!("; {many} bad copies were rewritten from good ones"),
    }
}

/// Describes by what a person finds these disks, as a sentence for each behind others.
pub(super) fn to_find(leaves: &[&LeafStatus]) -> String {
    let sentence = |leaf: &&LeafStatus| {
        let found = leaf.disk.as_ref()?.to_find_it()?;
        Some(format!(" {} is {found}.", leaf.path))
    };
    leaves.iter().filter_map(sentence).collect()
}

pub(super) fn paths<'a>(leaves: &[&'a LeafStatus]) -> Vec<&'a str> {
    leaves.iter().map(|leaf| leaf.path.as_str()).collect()
}

pub(super) fn leaves(pool: &PoolStatus) -> impl Iterator<Item = &LeafStatus> {
    pool.vdevs.iter().flat_map(|vdev| &vdev.leaves)
}

/// A time for people.
pub(super) fn ms(ns: u64) -> String {
    match ns / 1_000_000 {
        0 => "less than 1 ms".into(),
        ms => format!("{ms} ms"),
    }
}

pub(super) fn of_class(pool: &PoolStatus, class: VdevClass) -> impl Iterator<Item = &VdevStatus> {
    pool.vdevs.iter().filter(move |vdev| vdev.class == class)
}

/// The disks, with the verb for one or for several.
pub(super) fn be(disks: &[&str], one: &str, several: &str) -> String {
    let verb = if disks.len() == 1 { one } else { several };
    format!("{} {verb}", disks.join(", "))
}

/// The commands that bring a disk back, and that replace it: of the one, or of any of several.
pub(super) fn commands(pool: &str, disks: &[&str]) -> (String, String) {
    let disk = one_of(disks);
    (
        format!("`aquifer pool online {pool} {disk}`"),
        format!("`aquifer pool replace {pool} {disk} NEW`"),
    )
}

/// The command that counts the errors of a disk from 0 again, and tries it.
pub(super) fn clear(pool: &str, disks: &[&str]) -> String {
    format!("`aquifer pool clear {pool} {}`", one_of(disks))
}

pub(super) fn one_of(disks: &[&str]) -> String {
    match disks {
        [disk] => typed(disk),
        _ => "DISK".to_string(),
    }
}

/// Where a search must look beside the usual places, as options: image files are found only so.
pub(super) fn places(pool: &PoolStatus) -> String {
    let leaves = pool.vdevs.iter().flat_map(|vdev| &vdev.leaves);
    let paths = leaves.map(|leaf| Path::new(&leaf.path)).filter(|path| !path.starts_with("/dev"));
    let places: BTreeSet<&Path> = paths.filter_map(Path::parent).collect();
    places.iter().map(|place| format!(" -d {}", typed(&place.to_string_lossy()))).collect()
}

/// A word as a shell takes it.
pub(super) fn typed(word: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+=:@%,".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
