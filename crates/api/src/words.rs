//! Words of the command line, for the history and the audit log.

use std::fmt::Write;

/// Words with blanks between them.
#[derive(Default)]
pub(crate) struct Words(String);

impl Words {
    pub fn of(command: &str) -> Words {
        Words(command.into())
    }

    /// A word that somebody chose.
    pub fn word(mut self, word: &str) -> Words {
        let plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c == '"');
        // Writing to a text does not fail.
        let _ = if plain { write!(self.0, " {word}") } else { write!(self.0, " {word:?}") };
        self
    }

    pub fn flag(mut self, is_set: bool, flag: &str) -> Words {
        if is_set {
            self.0.push(' ');
            self.0.push_str(flag);
        }
        self
    }

    pub fn option(self, flag: &str, value: Option<String>) -> Words {
        match value {
            Some(value) => self.flag(true, flag).word(&value),
            None => self,
        }
    }

    /// Options that stand as often as they have values.
    pub fn options(self, flag: &str, values: impl IntoIterator<Item = String>) -> Words {
        values.into_iter().fold(self, |words, value| words.option(flag, Some(value)))
    }

    pub fn words<'a>(self, words: impl IntoIterator<Item = &'a String>) -> Words {
        words.into_iter().fold(self, |words, word| words.word(word))
    }

    pub fn text(self) -> String {
        self.0
    }
}
