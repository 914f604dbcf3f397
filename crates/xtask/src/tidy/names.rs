//! Names of types that several crates declare: a reader who meets one must ask which it is. A new
//! name is in three crates at most, and those that are in more may only become fewer.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::is_word;
use super::report::Report;
use super::source::{code_without_tests, is_test};
use super::tree::{File, Tree};

/// The file that holds the table, for messages.
const HERE: &str = "crates/xtask/src/tidy/names.rs";

/// Crates that may declare types of one name.
const CRATES_MAX: usize = 3;

/// Names that more crates declare. Lower a number when one has another name, and remove the line
/// at three.
const KNOWN: [(&str, usize); 61] = [
    ("Act", 4),
    ("Acts", 4),
    ("Asked", 6),
    ("Begun", 5),
    ("Caller", 5),
    ("Chain", 4),
    ("Client", 4),
    ("Counted", 4),
    ("Entry", 5),
    ("Failure", 4),
    ("Found", 7),
    ("Held", 8),
    ("Host", 4),
    ("Inner", 4),
    ("Job", 5),
    ("Kept", 8),
    ("Kind", 6),
    ("Known", 11),
    ("Line", 6),
    ("Look", 4),
    ("Machine", 4),
    ("Member", 4),
    ("Names", 4),
    ("Options", 4),
    ("Outcome", 7),
    ("Part", 4),
    ("Place", 9),
    ("Plan", 4),
    ("Progress", 4),
    ("Reader", 5),
    ("Report", 4),
    ("Request", 5),
    ("Ring", 4),
    ("Room", 5),
    ("Run", 7),
    ("Seen", 5),
    ("Server", 4),
    ("Session", 4),
    ("Share", 5),
    ("Shared", 5),
    ("Shown", 4),
    ("Side", 4),
    ("Slot", 5),
    ("Span", 6),
    ("Stage", 5),
    ("Standing", 7),
    ("State", 16),
    ("Step", 6),
    ("Sums", 4),
    ("Table", 5),
    ("Taken", 4),
    ("Target", 5),
    ("Times", 4),
    ("Told", 5),
    ("Turn", 4),
    ("Turns", 4),
    ("Verdict", 5),
    ("Version", 5),
    ("Waiting", 5),
    ("Wanted", 9),
    ("Way", 5),
];

/// Checks all crates.
pub fn check(tree: &Tree, report: &mut Report) {
    let sources = tree.files.iter().filter(|file| !is_test(&file.path));
    check_files(sources, &KNOWN, report);
}

/// Checks sources, of which names are known to be in so many crates.
pub fn check_files<'a>(
    files: impl Iterator<Item = &'a File>,
    known: &[(&str, usize)],
    report: &mut Report,
) {
    let mut crates: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        let of = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        if let Some((room, path)) = of
            && path.ends_with(".rs")
        {
            for name in declared(&code_without_tests(&file.text)) {
                crates.entry(name).or_default().insert(room);
            }
        }
    }
    let most = |name: &str| {
        let known = known.iter().find(|(of, _)| *of == name);
        known.map_or(CRATES_MAX, |(_, count)| *count)
    };
    for (name, rooms) in &crates {
        if rooms.len() > most(name) {
            let rooms = rooms.iter().copied().collect::<Vec<_>>().join(", ");
            report.error(HERE, 0, format!("{name}: {rooms} declare types of this name"));
        }
    }
    for (name, count) in known {
        let now = crates.get(*name).map_or(0, BTreeSet::len);
        if now < *count {
            report.error(HERE, 0, format!("{name}: in {now} crates: lower the number"));
        }
    }
}

/// Names of the types that a source declares.
fn declared(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for word in ["struct ", "enum ", "trait ", "union "] {
        for (at, _) in code.match_indices(word) {
            let line = code.get(..at).unwrap_or_default().rsplit('\n').next().unwrap_or_default();
            let is_declared =
                line.trim_start().split(' ').all(|word| word.is_empty() || is_of(word));
            let rest = code.get(at + word.len()..).unwrap_or_default();
            let end = rest.bytes().take_while(|byte| is_word(*byte)).count();
            if let (true, Some(name)) = (is_declared, rest.get(..end).filter(|of| !of.is_empty())) {
                names.push(name.to_string());
            }
        }
    }
    names
}

/// Whether a word may stand before the declaration of a type.
fn is_of(word: &str) -> bool {
    word.starts_with("pub") || matches!(word, "in" | "unsafe") || word.ends_with(')')
}
