//! Modules of a crate that need each other in a circle: nobody can read, test or move one of them
//! alone. The largest circle of each crate may only shrink.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::is_word;
use super::report::Report;
use super::source::{code_without_tests, is_test};
use super::tree::{File, Tree};

/// The file that holds the table, for messages.
const HERE: &str = "crates/xtask/src/tidy/circles.rs";

/// Modules in the largest circle of a crate, where there is one. Lower a number when a circle
/// shrank, and remove the line when it is gone.
const LARGEST: [(&str, usize); 28] = [
    ("admin", 54),
    ("alerts", 5),
    ("api", 4),
    ("arc", 8),
    ("bench", 4),
    ("blockio", 16),
    ("checker", 3),
    ("cli", 14),
    ("conformance", 2),
    ("daemon", 9),
    ("dataset", 49),
    ("demo", 7),
    ("doctor", 2),
    ("files", 20),
    ("fuzz", 3),
    ("inspect", 9),
    ("nfs", 14),
    ("nfsd", 4),
    ("object", 18),
    ("ondisk", 3),
    ("pool", 36),
    ("rig", 2),
    ("rpc", 3),
    ("sim", 2),
    ("space", 2),
    ("sync", 5),
    ("vdev", 7),
    ("xtask", 2),
];

/// The place of a module in its crate: `["pool", "sync"]`; the root is empty.
type Module<'a> = Vec<&'a str>;

/// Checks all crates.
pub fn check(tree: &Tree, report: &mut Report) {
    let mut crates: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    for file in tree.files.iter().filter(|file| !is_test(&file.path)) {
        let of = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        if let Some((room, path)) = of
            && path.ends_with(".rs")
        {
            crates.entry(room).or_default().push(file);
        }
    }
    for (room, files) in crates {
        let known = LARGEST.iter().find(|(of, _)| *of == room).map_or(1, |(_, size)| *size);
        check_crate(room, &files, known, report);
    }
}

/// Checks one crate, whose largest circle is known to have so many modules.
pub fn check_crate(room: &str, files: &[&File], known: usize, report: &mut Report) {
    let circle = largest(files);
    let size = circle.len().max(1);
    if size > known {
        let names = circle.join(", ");
        let what = format!("{room}: {size} modules in a circle, {known} before: {names}");
        report.error(HERE, 0, what);
    } else if size < known {
        report.error(HERE, 0, format!("{room}: {size} modules in a circle: lower the number"));
    }
}

/// The modules in the largest circle.
fn largest(files: &[&File]) -> Vec<String> {
    let codes: Vec<(Module<'_>, String)> =
        files.iter().map(|file| (module_of(&file.path), code_without_tests(&file.text))).collect();
    let modules: BTreeSet<&Module<'_>> = codes.iter().map(|(module, _)| module).collect();
    let exports: BTreeMap<&Module<'_>, BTreeMap<&str, Module<'_>>> =
        codes.iter().map(|(module, code)| (module, exports(module, code, &modules))).collect();
    let needs = |(module, code): &(Module<'_>, String)| -> BTreeSet<usize> {
        let paths = paths(module, code);
        let found = paths.iter().map(|path| resolve(path, &modules, &exports));
        let found = found.filter(|found| found != module);
        found.filter_map(|found| codes.iter().position(|(of, _)| *of == found)).collect()
    };
    let mut reach: Vec<BTreeSet<usize>> = codes.iter().map(needs).collect();
    for between in 0..reach.len() {
        let further = reach.get(between).cloned().unwrap_or_default();
        for from in reach.iter_mut().filter(|from| from.contains(&between)) {
            from.extend(&further);
        }
    }
    let circle = |at: usize| -> Vec<usize> {
        let has = |from: usize, to: usize| reach.get(from).is_some_and(|all| all.contains(&to));
        (0..reach.len()).filter(|other| has(at, *other) && has(*other, at)).collect()
    };
    let largest = (0..reach.len()).map(circle).max_by_key(Vec::len).unwrap_or_default();
    let names = largest.into_iter().filter_map(|at| codes.get(at));
    names
        .map(|(module, _)| if module.is_empty() { "lib".into() } else { module.join("::") })
        .collect()
}

/// `crates/pool/src/sync/pace.rs` is `["sync", "pace"]`.
fn module_of(path: &str) -> Module<'_> {
    let path = path.split_once("/src/").map_or(path, |(_, path)| path);
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Module<'_> = path.split('/').collect();
    if matches!(module.last(), Some(&"mod")) || matches!(module.as_slice(), ["lib"] | ["main"]) {
        module.pop();
    }
    module
}

/// Names that a module gives on from modules below it: `pub use sync::Turns`.
fn exports<'a>(
    module: &Module<'a>,
    code: &'a str,
    modules: &BTreeSet<&Module<'_>>,
) -> BTreeMap<&'a str, Module<'a>> {
    let mut found = BTreeMap::new();
    for (at, word) in code.match_indices("use ") {
        let before = code.get(..at).unwrap_or_default().trim_end();
        if !before.ends_with("pub") && !before.ends_with(')') {
            continue;
        }
        let mut all = Vec::new();
        expand(code.get(at + word.len()..).unwrap_or_default(), &Vec::new(), &mut all);
        for path in all {
            let path = absolute(module, &path).unwrap_or_else(|| [module.clone(), path].concat());
            let holder = holder(&path, modules);
            if let (Some(name), true) = (path.last(), holder.len() + 1 == path.len()) {
                found.insert(*name, holder);
            }
        }
    }
    found
}

/// All paths of a module's code that begin in its crate.
fn paths<'a>(module: &Module<'a>, code: &'a str) -> Vec<Module<'a>> {
    let mut found = Vec::new();
    for word in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(word) {
            let before = at.checked_sub(1).and_then(|at| code.as_bytes().get(at));
            if before.is_some_and(|byte| is_word(*byte) || *byte == b':' || *byte == b'$') {
                continue;
            }
            let mut all = Vec::new();
            expand(code.get(at..).unwrap_or_default(), &Vec::new(), &mut all);
            found.extend(all.iter().filter_map(|path| absolute(module, path)));
        }
    }
    // Modules below are named without more: `use pace::Turns`.
    for (at, word) in code.match_indices("use ") {
        let mut all = Vec::new();
        expand(code.get(at + word.len()..).unwrap_or_default(), &Vec::new(), &mut all);
        found.extend(all.into_iter().map(|path| [module.clone(), path].concat()));
    }
    found
}

/// The paths of a tree `a::{b::C, d}`, and the length of its text.
fn expand<'a>(text: &'a str, head: &Module<'a>, found: &mut Vec<Module<'a>>) -> usize {
    let (mut path, mut at) = (head.clone(), 0);
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let blank = rest.len() - rest.trim_start().len();
        let rest = rest.trim_start();
        at += blank;
        if rest.starts_with('{') {
            at += 1;
            loop {
                at += expand(text.get(at..).unwrap_or_default(), &path, found);
                let rest = text.get(at..).unwrap_or_default();
                at += rest.find([',', '}']).map_or(rest.len(), |end| end + 1);
                if text.get(..at).is_none_or(|text| !text.ends_with(',')) {
                    return at;
                }
            }
        }
        let word = rest.bytes().take_while(|byte| is_word(*byte)).count();
        let Some(name) = rest.get(..word).filter(|name| !name.is_empty()) else {
            break;
        };
        at += word;
        path.push(name);
        if !text.get(at..).is_some_and(|rest| rest.starts_with("::")) {
            break;
        }
        at += 2;
    }
    if path.len() > head.len() {
        found.push(path);
    }
    at
}

/// A path from the crate's root.
fn absolute<'a>(module: &Module<'a>, path: &[&'a str]) -> Option<Module<'a>> {
    let mut base = module.clone();
    let mut rest = path;
    match path {
        ["crate", after @ ..] => (base, rest) = (Vec::new(), after),
        ["self", after @ ..] => rest = after,
        ["super", ..] => {}
        _ => return None,
    }
    while let ["super", after @ ..] = rest {
        base.pop();
        rest = after;
    }
    Some([base, rest.to_vec()].concat())
}

/// The longest beginning of a path that is a module.
fn holder<'a>(path: &[&'a str], modules: &BTreeSet<&Module<'_>>) -> Module<'a> {
    let mut module = path.to_vec();
    while !module.is_empty() && !modules.iter().any(|known| **known == module) {
        module.pop();
    }
    module
}

/// The module that has what a path names; through one that gives it on.
fn resolve<'a>(
    path: &[&'a str],
    modules: &BTreeSet<&Module<'_>>,
    exports: &BTreeMap<&Module<'_>, BTreeMap<&str, Module<'a>>>,
) -> Module<'a> {
    let mut found = holder(path, modules);
    let Some(name) = path.get(found.len()) else { return found };
    // More than two steps are rare, and a circle of them does not compile.
    for _ in 0..4 {
        let names = exports.iter().find(|(module, _)| ***module == found).map(|(_, names)| names);
        match names.and_then(|names| names.get(name)) {
            Some(deeper) if *deeper != found => found = deeper.clone(),
            _ => break,
        }
    }
    found
}
