//! Names on pages must exist: constants, types, metrics, modules and commands. A page would
//! otherwise keep names that were changed or removed. So must commands that sources tell people to
//! type. Every code block must end, and text must be wrapped.

use std::collections::BTreeSet;

use super::report::Report;
use super::source::{COLUMNS_MAX, is_test};
use super::tree::{File, Tree};

/// The page with a heading for each command; a test of the CLI compares it with the CLI.
const COMMANDS: &str = "docs/cli.md";

/// Names in the sources, for lookup by word.
#[derive(Debug, Default)]
pub struct Known<'a> {
    /// Words of all sources and manifests.
    words: BTreeSet<&'a str>,
    /// Words of each room's sources and of their paths: (room, word).
    of_rooms: BTreeSet<(&'a str, &'a str)>,
    /// First words of commands, and first two: `pool`, `pool create`.
    commands: BTreeSet<String>,
}

/// Checks all pages.
pub fn check(tree: &Tree, report: &mut Report) {
    let known = Known::of(tree);
    for page in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        check_page(page, &known, report);
    }
    let is_ours = |file: &&File| file.path.ends_with(".rs") && file.path.contains("/src/");
    for source in tree.files.iter().filter(is_ours).filter(|file| !is_test(&file.path)) {
        check_source(source, &known, report);
    }
}

impl<'a> Known<'a> {
    /// The names in the sources of a workspace.
    pub fn of(tree: &'a Tree) -> Known<'a> {
        let mut known = Known::default();
        for file in tree.files.iter().filter(|file| !file.path.ends_with(".md")) {
            known.words.extend(words(&file.text));
            let room = file.path.strip_prefix("crates/").and_then(|path| path.split('/').next());
            let room = room.unwrap_or_default();
            let all = words(&file.text).chain(words(&file.path));
            known.of_rooms.extend(all.map(|word| (room, word)));
        }
        let headings = tree.file(COMMANDS).map_or("", |page| page.text.as_str());
        for heading in headings.lines().filter_map(|line| line.strip_prefix("## aquifer ")) {
            known.commands.extend(command(heading));
        }
        known
    }
}

/// Checks one page.
pub fn check_page(page: &File, known: &Known<'_>, report: &mut Report) {
    let (mut block, mut in_span) = (None, false);
    for (at, line) in page.text.lines().enumerate() {
        let number = at + 1;
        if line.trim_start().starts_with("```") {
            block = if block.is_some() { None } else { Some(number) };
            continue;
        }
        let mut refuse = |what: String| report.error(&page.path, number, what);
        if block.is_some() {
            let prompt = line.trim_start().trim_start_matches("# ").trim_start_matches("$ ");
            check_command(prompt, known, &mut refuse);
            continue;
        }
        if is_too_long(line) {
            refuse(format!("{} columns: at most {COLUMNS_MAX}", line.chars().count()));
        }
        // Every second piece between backticks is code, even if it continues on the next line.
        in_span &= !line.trim().is_empty();
        let pieces: Vec<&str> = line.split('`').collect();
        let whole = pieces.iter().enumerate().take(pieces.len() - 1).skip(1);
        for (_, span) in whole.filter(|(at, _)| at.is_multiple_of(2) == in_span) {
            check_name(span, known, &mut refuse);
            check_command(span, known, &mut refuse);
        }
        in_span ^= pieces.len().is_multiple_of(2);
    }
    if let Some(began) = block {
        report.error(&page.path, began, "a block of code that does not end");
    }
}

/// Checks the commands that a source names, in its texts and comments.
pub fn check_source(source: &File, known: &Known<'_>, report: &mut Report) {
    for (at, line) in source.text.lines().enumerate() {
        let mut refuse = |what: String| report.error(&source.path, at + 1, what);
        // A span may go on on the next line.
        for span in line.split('`').skip(1) {
            check_command(span.trim_end_matches('\\'), known, &mut refuse);
        }
    }
}

/// Whether a line could have been wrapped but was not.
fn is_too_long(line: &str) -> bool {
    let text = line.trim_start();
    let is_text = !text.starts_with('|') && !text.starts_with('#');
    is_text && line.chars().count() > COLUMNS_MAX && text.split_whitespace().count() > 2
}

/// Checks a constant, a type, a metric or a path of modules.
fn check_name(span: &str, known: &Known<'_>, refuse: &mut impl FnMut(String)) {
    if let Some((room, rest)) = span.split_once("::") {
        let is_room = known.of_rooms.range((room, "")..).next().is_some_and(|(of, _)| *of == room);
        let unknown = rest.split("::").find(|word| {
            words(word).eq([*word]) && !known.of_rooms.contains(&(room, *word)) && is_room
        });
        if let Some(word) = unknown {
            refuse(format!("`{span}`: there is no {word} in {room}"));
        }
    } else if (is_constant(span) || is_type(span) || is_metric(span)) && !known.words.contains(span)
    {
        refuse(format!("`{span}` is not in any source"));
    }
}

/// Checks a command of ours, if the text is one.
fn check_command(text: &str, known: &Known<'_>, refuse: &mut impl FnMut(String)) {
    let Some(rest) = text.strip_prefix("aquifer ") else { return };
    if let Some(unknown) = command(rest).find(|words| !known.commands.contains(words)) {
        refuse(format!("`aquifer {unknown}` has no heading in {COMMANDS}"));
    }
}

/// The words that name a command: the first one, and the verb after `pool` or `token`.
fn command(text: &str) -> impl Iterator<Item = String> {
    let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
    let mut words = text.split_whitespace().take_while(is_word);
    let first = words.next().unwrap_or_default().to_string();
    let second = match first.as_str() {
        "pool" | "token" => words.next().map(|verb| format!("{first} {verb}")),
        _ => None,
    };
    let first = (!first.is_empty()).then_some(first);
    first.into_iter().chain(second)
}

/// `TWO_WORDS` or more.
fn is_constant(span: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
    };
    span.contains('_') && span.split('_').all(is_part)
}

/// A metric, or a crate: `aquifer_two_words`.
fn is_metric(span: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    span.starts_with("aquifer_") && span.chars().all(is_word)
}

/// `TwoWords` or more.
fn is_type(span: &str) -> bool {
    let is_capital = |c: char| c.is_ascii_uppercase();
    span.chars().all(|c| c.is_ascii_alphanumeric())
        && span.starts_with(is_capital)
        && span.matches(is_capital).count() > 1
        && span.chars().filter(char::is_ascii_lowercase).count() > 1
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
