//! External crates: licences, crates in two versions, sources, by the rules of `deny.toml`.
//!
//! cargo-deny checks the same file, and advisories as well (`make deny`). It takes longer to build
//! than all of the workspace's lints. The checks that need no database are made here, at no cost,
//! in every run of the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::report::Report;

const FILE: &str = "deny.toml";

/// A crate that is built for our platform.
#[derive(Debug, Clone)]
pub struct Outside {
    pub name: String,
    pub version: String,
    /// Its licence: an expression of SPDX.
    pub licence: String,
    /// Its source; `None` for the workspace.
    pub source: Option<String>,
}

/// The rules of `deny.toml`.
#[derive(Debug)]
pub struct Allowed {
    licences: BTreeSet<String>,
    /// Names, each with the beginning of a version that may exist beside another.
    skipped: Vec<(String, String)>,
}

/// Asks cargo for all crates, including those of the workspace.
///
/// # Errors
/// Cargo cannot be run, or its answer makes no sense.
pub fn all(root: &Path) -> Result<Vec<Outside>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--all-features", "--format-version", "1"])
        .args(["--filter-platform", PLATFORM])
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

fn parse(metadata: &Value) -> Option<Vec<Outside>> {
    let nodes = metadata.get("resolve")?.get("nodes")?.as_array()?;
    let used: BTreeSet<&str> = nodes.iter().filter_map(|node| node.get("id")?.as_str()).collect();
    let packages = metadata.get("packages")?.as_array()?.iter();
    let used = packages.filter(|package| {
        package.get("id").and_then(Value::as_str).is_some_and(|id| used.contains(id))
    });
    used.map(|package| {
        let text = |name: &str| package.get(name)?.as_str().map(str::to_owned);
        Some(Outside {
            name: text("name")?,
            version: text("version")?,
            licence: text("license").unwrap_or_default(),
            source: text("source"),
        })
    })
    .collect()
}

/// Reads the text of `deny.toml`.
///
/// # Errors
/// A missing or invalid entry.
pub fn allowed(text: &str) -> Result<Allowed, String> {
    let file: toml::Table = text.parse().map_err(|error| format!("{FILE}: {error}"))?;
    let list = |section: &str, name: &str| {
        let found = file.get(section).and_then(|section| section.get(name));
        let list = found.and_then(toml::Value::as_array);
        list.ok_or_else(|| format!("{FILE}: has no list {section}.{name}"))
    };
    let licences = list("licenses", "allow")?.iter().filter_map(toml::Value::as_str);
    let skipped = list("bans", "skip")?.iter().map(|entry| {
        let (name, version) = entry.get("crate")?.as_str()?.split_once('@')?;
        entry.get("reason")?.as_str().filter(|reason| !reason.is_empty())?;
        Some((name.to_owned(), version.to_owned()))
    });
    let skipped: Option<Vec<_>> = skipped.collect();
    Ok(Allowed {
        licences: licences.map(str::to_owned).collect(),
        skipped: skipped.ok_or_else(|| {
            format!("{FILE}: bans.skip: each has `crate = \"NAME@VERSION\"` and a reason")
        })?,
    })
}

/// Checks licences, versions and sources, and rules that nothing needs any more.
pub fn check(crates: &[Outside], allowed: &Allowed, report: &mut Report) {
    let mut licences_used = BTreeSet::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Outside { name, version, licence, source } in crates {
        match licences_of(licence) {
            Some(choices) => match choices.iter().find(|all| all.is_subset(&allowed.licences)) {
                Some(chosen) => licences_used.extend(chosen.iter().cloned()),
                None => {
                    report.error(FILE, 0, format!("{name}: licence {licence:?} is not allowed"))
                }
            },
            None => report.error(FILE, 0, format!("{name}: {licence:?} names no licence")),
        }
        if let Some(source) = source.as_ref().filter(|source| *source != CRATES) {
            report.error(FILE, 0, format!("{name}: comes from {source}"));
        }
        versions.entry(name).or_default().insert(version);
    }
    for licence in allowed.licences.difference(&licences_used) {
        report.error(FILE, 0, format!("licence {licence} is allowed, and no crate needs it"));
    }
    let is = |version: &str, beginning: &str| {
        version.strip_prefix(beginning).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    for (name, versions) in &versions {
        let skipped = |version: &&&str| {
            allowed.skipped.iter().any(|(of, beginning)| of == name && is(version, beginning))
        };
        if versions.len() - versions.iter().filter(skipped).count() > 1 {
            report.error(FILE, 0, format!("{name}: is there in versions {versions:?}"));
        }
    }
    for (name, beginning) in &allowed.skipped {
        let found = versions.get(name.as_str()).filter(|versions| versions.len() > 1);
        if !found.is_some_and(|versions| versions.iter().any(|version| is(version, beginning))) {
            let what = format!("{name}@{beginning} is skipped, and stands beside no other version");
            report.error(FILE, 0, what);
        }
    }
}

/// The choices of an expression, each with all licences that apply together. `None` if it is not a
/// valid expression.
fn licences_of(expression: &str) -> Option<Vec<BTreeSet<String>>> {
    // The syntax from before SPDX.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (choices, rest) = any_of(&words)?;
    rest.is_empty().then_some(choices)
}

type Choices<'w> = Option<(Vec<BTreeSet<String>>, &'w [&'w str])>;

fn any_of<'w>(words: &'w [&'w str]) -> Choices<'w> {
    let (mut choices, mut rest) = all_of(words)?;
    while let ["OR", more @ ..] = rest {
        let (others, after) = all_of(more)?;
        choices.extend(others);
        rest = after;
    }
    Some((choices, rest))
}

fn all_of<'w>(words: &'w [&'w str]) -> Choices<'w> {
    let (mut choices, mut rest) = one_of(words)?;
    while let ["AND", more @ ..] = rest {
        let (others, after) = one_of(more)?;
        let pairs = choices
            .iter()
            .flat_map(|all| others.iter().map(move |other| all.union(other).cloned().collect()));
        choices = pairs.collect();
        rest = after;
    }
    Some((choices, rest))
}

fn one_of<'w>(words: &'w [&'w str]) -> Choices<'w> {
    match words {
        ["(", more @ ..] => match any_of(more)? {
            (choices, [")", rest @ ..]) => Some((choices, rest)),
            _ => None,
        },
        ["OR" | "AND" | "WITH" | ")", ..] | [] => None,
        [licence, "WITH", exception, rest @ ..] => {
            Some((vec![BTreeSet::from([format!("{licence} WITH {exception}")])], rest))
        }
        [licence, rest @ ..] => Some((vec![BTreeSet::from([(*licence).to_string()])], rest)),
    }
}

/// CI's platform.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// The registry, in cargo's form.
const CRATES: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &str = "[licenses]\nallow = [\"MIT\", \"ISC\"]\n[bans]\nskip = [\n\
                           { crate = \"two@1\", reason = \"for now\" }]\n";

    fn one(name: &str, version: &str, licence: &str) -> Outside {
        let source = Some(CRATES.to_string());
        Outside { name: name.into(), version: version.into(), licence: licence.into(), source }
    }

    fn found(crates: &[Outside]) -> Vec<String> {
        let mut report = Report::default();
        check(crates, &allowed(ALLOWED).unwrap(), &mut report);
        report.lines()
    }

    /// Crates that need every rule.
    fn needed() -> Vec<Outside> {
        vec![one("two", "1.0.0", "MIT"), one("two", "2.0.0", "ISC")]
    }

    #[test]
    fn expressions_give_choices() {
        for (expression, is_allowed) in [
            ("MIT", true),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND ISC", true),
            ("MIT AND GPL-3.0", false),
            ("(GPL-3.0 OR MIT) AND (ISC OR GPL-3.0)", true),
            ("GPL-3.0 OR MIT AND GPL-2.0", false),
            ("MIT WITH some-exception", false),
            ("GPL-3.0", false),
            ("", false),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT ISC", false),
        ] {
            let crates = [needed(), vec![one("c", "1.0.0", expression)]].concat();
            assert_eq!(found(&crates).is_empty(), is_allowed, "{expression}");
        }
    }

    #[test]
    fn a_second_version_and_another_source_are_found() {
        assert_eq!(found(&needed()), [""; 0]);
        let more = [needed(), vec![one("two", "3.0.0", "MIT")]].concat();
        assert!(found(&more)[0].contains("two: is there in versions"), "{:?}", found(&more));
        // A version that only begins with the same digit does not count.
        let other = vec![one("two", "10.0.0", "MIT"), one("two", "2.0.0", "ISC")];
        assert_eq!(found(&other).len(), 2, "{:?}", found(&other));
        let git =
            Outside { source: Some("git+https://example".into()), ..one("g", "1.0.0", "MIT") };
        assert!(found(&[needed(), vec![git]].concat())[0].contains("comes from git"));
    }

    #[test]
    fn what_is_allowed_is_needed() {
        let lines = found(&[one("two", "2.0.0", "MIT")]);
        assert!(lines.iter().any(|line| line.contains("ISC is allowed")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("two@1 is skipped")), "{lines:?}");
        assert!(allowed("[licenses]\nallow = []\n[bans]\nskip = [{ crate = \"a@1\" }]").is_err());
    }
}
