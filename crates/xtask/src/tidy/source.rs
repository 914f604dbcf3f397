//! Rules for every source file: sizes, characters, forbidden words.

use std::ops::Range;

use super::lexer::{code_of, is_word};
use super::report::Report;
use super::tree::{File, Tree};

/// Most lines of a file, and the number above which a split should be considered.
const LINES_MAX: usize = 800;
const LINES_WARN: usize = 500;
/// Most columns of a line.
pub const COLUMNS_MAX: usize = 100;

/// Macros that must not remain, with the advice for each.
const MACROS: [(&str, &str); 3] = [
    ("todo!", "write it, or leave it out"),
    ("unimplemented!", "write it, or leave it out"),
    ("dbg!", "use tracing, or an assertion"),
];

/// Words that a page of one item leaves without sense.
const PRONOUNS: [&str; 4] = ["What", "Who", "Whose", "The same"];

/// The files with `unsafe`, each with the reason why no safe interface is enough.
const UNSAFE: [(&str, &str); 11] = [
    ("crates/arc/tests/memory.rs", "a global allocator that counts, for one test"),
    ("crates/blockio/src/block.rs", "ioctls of block devices"),
    ("crates/blockio/src/buf.rs", "page-aligned memory shared with the kernel"),
    ("crates/blockio/src/page_pool.rs", "chunks of page-aligned memory, cut into pages"),
    ("crates/blockio/src/uring/driver.rs", "buffers are the kernel's while a request is in flight"),
    ("crates/blockio/src/uring/ring.rs", "submission of requests to io_uring"),
    ("crates/blockio/src/uring/tests.rs", "seccomp, to take io_uring away from a test"),
    ("crates/blockio/tests/disk/opening.rs", "unshare and mount, for one test"),
    ("crates/conformance/src/workload/mapping.rs", "mmap, as the guests' programs use it"),
    ("crates/fuzz/src/cost.rs", "a global allocator that counts, and a hook of the compiler's"),
    ("crates/ondisk/tests/format/memory.rs", "a global allocator that counts, for its tests"),
];

/// Files where the command line prints: text of others must pass `shown` there.
const PRINTS: [&str; 4] = [
    "crates/cli/src/commands.rs",
    "crates/cli/src/commands/locks.rs",
    "crates/cli/src/commands/pool.rs",
    "crates/cli/src/failure.rs",
];

/// Checks all sources.
pub fn check(tree: &Tree, report: &mut Report) {
    for file in tree.files.iter().filter(|file| file.path.ends_with(".rs")) {
        check_file(file, report);
    }
    for (path, _) in UNSAFE {
        let uses = |file: &File| !find(&code_of(&file.text), "unsafe").is_empty();
        if !tree.file(path).is_some_and(uses) {
            report.error(path, 0, "listed in xtask's source.rs as unsafe, but is not");
        }
    }
}

/// Checks one source.
pub fn check_file(file: &File, report: &mut Report) {
    let path = file.path.as_str();
    check_shape(file, report);
    let code = code_of(&file.text);
    for (name, instead) in MACROS {
        for at in find(&code, name) {
            report.error(path, line_of(&code, at), format!("{name} is left out: {instead}"));
        }
    }
    if ["crates/aquifer/src/", "crates/cli/src/"].iter().any(|of| path.starts_with(of))
        && !PRINTS.contains(&path)
    {
        for name in ["println!", "print!", "eprintln!", "eprint!"] {
            for at in find(&code, name) {
                let why = format!("{name}: use commands::print or tell, which print what stays");
                report.error(path, line_of(&code, at), why);
            }
        }
    }
    let tests = test_modules(&code);
    for at in find_spaced(&code, "use super::*;") {
        let inside = is_test(path) || tests.iter().any(|range| range.contains(&at));
        if !inside {
            report.error(
                path,
                line_of(&code, at),
                "`use super::*` outside tests: name what is used",
            );
        }
    }
    if !UNSAFE.iter().any(|(listed, _)| *listed == path) {
        for at in find(&code, "unsafe") {
            let what = "unsafe: list the file and its reason in xtask's source.rs";
            report.error(path, line_of(&code, at), what);
        }
    }
}

fn check_shape(file: &File, report: &mut Report) {
    let path = file.path.as_str();
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        report.error(path, 0, format!("{lines} lines: at most {LINES_MAX}"));
    } else if lines > LINES_WARN {
        report.warning(path, 0, format!("{lines} lines: more than {LINES_WARN}"));
    }
    let mut before = None;
    for (number, line) in (1..).zip(file.text.lines()) {
        let doc = doc(line);
        if let (Some((mark, text)), true) = (doc, doc.map(|(mark, _)| mark) != before)
            && let Some(pronoun) = PRONOUNS.iter().find(|pronoun| begins_with(text, pronoun))
        {
            let what = format!("docs begin with a noun or a verb, not with {pronoun:?}");
            report.error(path, number, format!("{what}: {mark} is shown alone"));
        }
        before = doc.map(|(mark, _)| mark);
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            report.error(path, number, format!("{columns} columns: at most {COLUMNS_MAX}"));
        }
        if fence(line).is_some_and(|word| word.contains(char::is_whitespace)) {
            report.error(path, number, "a fence with text behind it: begin a new line");
        }
        if let Some(other) = line.chars().find(|character| !character.is_ascii()) {
            report.error(path, number, format!("{} is not ASCII", other.escape_unicode()));
        }
    }
}

/// A line of a comment that becomes a page: its mark, and its text.
fn doc(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let marks = ["///", "//!"].into_iter();
    let found = marks.filter_map(|mark| Some((mark, line.strip_prefix(mark)?))).next()?;
    (!found.1.starts_with('/')).then_some((found.0, found.1.trim()))
}

/// The text behind the fence of a block of code in a comment that becomes a page.
fn fence(line: &str) -> Option<&str> {
    doc(line)?.1.strip_prefix("```")
}

fn begins_with(text: &str, words: &str) -> bool {
    let rest = text.strip_prefix(words);
    rest.is_some_and(|rest| rest.bytes().next().is_none_or(|byte| !is_word(byte)))
}

/// Whether a whole file contains only tests: `tests.rs`, or any file in a directory `tests`.
pub fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The places of a separate word. A `!` ends a word.
fn find(code: &str, word: &str) -> Vec<usize> {
    let bytes = code.as_bytes();
    let at = |at: usize| bytes.get(at).copied();
    let by_itself = |start: usize| {
        let before = start.checked_sub(1).and_then(at);
        let after = at(start + word.len());
        let open = |byte: Option<u8>| byte.is_none_or(|byte| !is_word(byte));
        open(before) && (word.ends_with('!') || open(after))
    };
    code.match_indices(word).map(|(start, _)| start).filter(|start| by_itself(*start)).collect()
}

/// The places of words, with any white space between them, and with any visibility of the item.
fn find_spaced(code: &str, words: &str) -> Vec<usize> {
    let wanted: Vec<u8> = words.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let starts = find(code, words.split_whitespace().next().unwrap_or(words));
    let matches = |start: &usize| {
        let bytes = code.bytes().skip(*start).filter(|byte| !byte.is_ascii_whitespace());
        bytes.take(wanted.len()).eq(wanted.iter().copied())
    };
    starts.into_iter().filter(matches).collect()
}

/// A source without comments, strings and modules of tests: every other byte stays in its place.
pub fn code_without_tests(text: &str) -> String {
    let mut code = code_of(text);
    for range in test_modules(&code) {
        let module = code.get(range.clone()).unwrap_or_default();
        let blank: String = module.bytes().map(|of| if of == b'\n' { '\n' } else { ' ' }).collect();
        code.replace_range(range, &blank);
    }
    code
}

/// The bodies of `#[cfg(test)] mod name { .. }`.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (start, attribute) in code.match_indices("#[cfg(test)]") {
        let after = start + attribute.len();
        let rest = code.get(after..).unwrap_or_default();
        let item = rest.trim_start();
        let is_module = item.starts_with("mod ") || item.starts_with("pub mod ");
        let open = rest.find(['{', ';']).filter(|at| rest.get(*at..=*at) == Some("{"));
        if let (true, Some(open)) = (is_module, open) {
            let body = rest.get(open..).unwrap_or_default();
            found.push(after + open..after + open + block_length(body));
        }
    }
    found
}

/// Length of the block that `body` begins with, braces included.
fn block_length(body: &str) -> usize {
    let mut depth = 0usize;
    for (at, byte) in body.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    body.len()
}

pub fn line_of(code: &str, at: usize) -> usize {
    code.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
