//! One mutant: a piece of a source, and its replacement.

use std::ops::Range;

/// A change of a source.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// Place and change, in words.
    pub name: String,
    /// The source, from the workspace's root.
    pub file: String,
    /// The replaced range, in bytes of the source.
    pub replaced: Range<usize>,
    /// The replacement.
    pub replacement: String,
    /// The change in a form for people.
    pub diff: String,
}

impl Mutant {
    /// The directory of its crate, from the workspace's root.
    pub fn directory(&self) -> &str {
        self.file.split("/src/").next().unwrap_or_default()
    }

    /// The name of its crate in the workspace.
    pub fn room(&self) -> &str {
        self.directory().trim_start_matches("crates/")
    }

    /// The part `range` of `text`, with the change made.
    pub fn applied(&self, text: &str, range: Range<usize>) -> String {
        let before = text.get(range.start..self.replaced.start).unwrap_or_default();
        let after = text.get(self.replaced.end..range.end).unwrap_or_default();
        format!("{before}{} {after}", self.replacement)
    }
}

/// The byte of `text` at a line and a column, both from 1; columns are characters.
pub fn byte_at(text: &str, line: usize, column: usize) -> Option<usize> {
    let start: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let rest = text.get(start..)?;
    let mut within = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    Some(start + within.nth(column.checked_sub(1)?)?)
}
