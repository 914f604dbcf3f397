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

#[cfg(test)]
mod tests {
    use crate::{
        BindToken, CreateDataset, HoldSnapshots, On, Operation, ReplaceDisk, RotateToken,
        SetProperties,
    };

    #[test]
    fn operations_are_told_as_somebody_would_type_them() {
        let names = vec!["tank/vms@a".to_string(), "tank/my vms@a".to_string()];
        let (tag, until_s) = ("a \"b\"".to_string(), Some(0));
        let hold = HoldSnapshots { tag, names, recursive: true, until_s };
        let properties = [("quota".to_string(), "1G".to_string())].into();
        let create = CreateDataset { name: "tank/a".into(), properties };
        let properties = [("quota".to_string(), None)].into();
        let inherit = SetProperties { name: "tank/a".into(), properties, exports: true };
        let (disk, new) = ("sda".to_string(), Some(String::new()));
        let replace = ReplaceDisk { disk, new, force: true, ..ReplaceDisk::default() };
        let certificates = vec!["aa".to_string(), "bb".to_string()];
        let bind = BindToken { certificates: certificates.clone() };
        let certificates = Some(certificates);
        let rotate = RotateToken { keep_s: 60, expires_s: None, certificates };
        for (told, expected) in [
            (
                hold.words(),
                r#"hold -r --until 1970-01-01T00:00:00Z "a \"b\"" tank/vms@a "tank/my vms@a""#,
            ),
            (create.words(), "create -o quota=1G tank/a"),
            (inherit.words(), "inherit -f quota tank/a"),
            (On::new("tank", replace).words(), r#"pool replace -f tank sda """#),
            (On::new("x", bind).words(), "token bind --certificate aa --certificate bb x"),
            (
                On::new("x", rotate).words(),
                "token rotate --keep 60s --certificate aa --certificate bb x",
            ),
        ] {
            assert_eq!(told, expected);
        }
    }
}
