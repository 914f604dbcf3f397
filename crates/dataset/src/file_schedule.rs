//! The property `filesnapshots`: which files have snapshots by schedule, and which of these stay.
//!
//! `web*/*.vhd daily=7; db01/* hourly=24 daily=7`: rules with semicolons between them. A rule is a
//! pattern of paths, then what stays of each cadence, as in the property `snapshots`. A file
//! follows the first rule that means it.
//!
//! The pattern may have blanks: it ends where the cadences begin. What could be read in two ways is
//! refused. Each byte can be written as `\0ooo` in octal, as names are shown: so `\0073` is a
//! semicolon in a name.

use std::fmt;

use aquifer_ondisk::file_snapshot::FILE_PATH_BYTES_MAX;
use aquifer_ondisk::keeping::CADENCES;

use crate::property::VALUE_BYTES_MAX;
use crate::schedule::Schedule;

const USAGE: &str = "say off, or a pattern of paths and how many of each cadence stay, with \
                     semicolons between such rules: web*/*.vhd daily=7; db01/* hourly=24 daily=7";

/// Which files have snapshots by schedule: rules in their order, none for `off`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileSchedule(Vec<FileRule>);

/// Rule for the snapshots that are taken of some files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRule {
    /// The paths that it means, without a slash before it.
    pub pattern: String,
    /// Numbers of snapshots that stay.
    pub schedule: Schedule,
}

impl FileSchedule {
    /// Reads a value of the property.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(value: &str) -> Result<FileSchedule, String> {
        let mut rules: Vec<FileRule> = Vec::new();
        if value.trim() == "off" {
            return Ok(FileSchedule(rules));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(too_long(value.len()));
        }
        for text in value.split(';').map(str::trim) {
            let rule = FileRule::parse(text)?;
            if rules.iter().any(|before| before.pattern == rule.pattern) {
                return Err(format!("the pattern {:?} is given twice", rule.pattern));
            }
            rules.push(rule);
        }
        // The stored form may be longer: it has a blank behind each semicolon.
        let schedule = FileSchedule(rules);
        match schedule.to_string().len() {
            bytes if bytes > VALUE_BYTES_MAX => Err(too_long(bytes)),
            _ => Ok(schedule),
        }
    }

    /// Its rules, in their order.
    pub fn rules(&self) -> &[FileRule] {
        &self.0
    }
}

impl FileRule {
    fn parse(text: &str) -> Result<FileRule, String> {
        if text.is_empty() {
            return Err(format!("a rule is empty; {USAGE}"));
        }
        if text.contains(char::is_control) {
            return Err(format!(
                "{text:?} has a character that a terminal does not show: write it in octal, as \
                 `aquifer diff` shows it"
            ));
        }
        let (pattern, cadences) = split(text);
        if cadences.is_empty() {
            return Err(format!(
                "{text:?} does not say what stays; {USAGE}. A semicolon in a name is written \\0073"
            ));
        }
        let pattern: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
        let pattern = pattern.join("/");
        if pattern.is_empty() {
            return Err(format!("{text:?} has no pattern; {USAGE}"));
        }
        if pattern.trim() != pattern {
            return Err(format!(
                "the pattern {pattern:?} begins or ends with a blank: write it \\0040, if it is in \
                 the name"
            ));
        }
        if pattern.split('/').any(|part| part == "." || part == "..") {
            return Err(format!("{pattern:?}: '.' and '..' are no names of files"));
        }
        if pattern.len() > FILE_PATH_BYTES_MAX {
            return Err(format!("a pattern has more than {FILE_PATH_BYTES_MAX} bytes"));
        }
        // The last one had a slash behind it.
        let last = pattern.split(' ').next_back().filter(|word| is_count(word));
        if let Some(word) = pattern.split(' ').find(|word| begins_cadence(word)).or(last) {
            return Err(format!(
                "{word:?} stands in the pattern {pattern:?}: what stays comes last, with blanks or \
                 commas between. An equals sign in a name is written \\0075"
            ));
        }
        let schedule = Schedule::parse(cadences).map_err(|why| format!("{text:?}: {why}"))?;
        Ok(FileRule { pattern, schedule })
    }
}

/// The pattern of a rule, and the words behind it that have the form of a cadence.
fn split(text: &str) -> (&str, &str) {
    let mut at = text.len();
    while let Some((before, word)) = before_last(text, at) {
        if !is_count(word) {
            break;
        }
        at = before;
    }
    let (pattern, cadences) = text.split_at_checked(at).unwrap_or((text, ""));
    (pattern.trim_end(), cadences.trim_start())
}

/// The last word of what ends there, and where it begins; `None`: there is none.
fn before_last(text: &str, end: usize) -> Option<(usize, &str)> {
    let words = text.get(..end)?.trim_end();
    let begin = words.rfind(' ').map_or(0, |blank| blank + 1);
    let word = words.get(begin..)?;
    (!word.is_empty()).then_some((begin, word))
}

/// Whether a word has the form `NAME=COUNT`, maybe several with commas, and not that of a path.
fn is_count(word: &str) -> bool {
    !word.contains(['/', '*', '?'])
        && word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase())
        })
}

/// Whether a word would be a cadence in another place.
fn begins_cadence(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| CADENCES.iter().any(|of| of.name() == name))
}

fn too_long(bytes: usize) -> String {
    format!(
        "has {bytes} bytes, {VALUE_BYTES_MAX} are allowed: let one pattern mean more files, or \
         have several datasets"
    )
}

impl fmt::Display for FileSchedule {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return to.write_str("off");
        }
        let each = self.0.iter().map(|rule| format!("{} {}", rule.pattern, rule.schedule));
        to.write_str(&each.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_meant() {
        for (text, shown) in [
            ("off", "off"),
            (" off ", "off"),
            ("off daily=7", "off daily=7"),
            ("* hourly=24", "* hourly=24"),
            ("/web*//x.vhd daily=7,hourly=24", "web*/x.vhd hourly=24 daily=7"),
            ("a/* daily=7;b/*  daily=7, hourly=1", "a/* daily=7; b/* hourly=1 daily=7"),
            ("my disks/*.vhd  daily=2", "my disks/*.vhd daily=2"),
            ("two  blanks daily=2", "two  blanks daily=2"),
            ("a=b/c=d daily=2", "a=b/c=d daily=2"),
            ("a\\0073b \\0144aily=7 daily=7", "a\\0073b \\0144aily=7 daily=7"),
            ("b\u{fc}ro/* yearly=1", "b\u{fc}ro/* yearly=1"),
        ] {
            let read = FileSchedule::parse(text).unwrap_or_else(|why| panic!("{text:?}: {why}"));
            assert_eq!(read.to_string(), shown, "{text:?}");
            // What is shown means the same.
            assert_eq!(FileSchedule::parse(shown).unwrap(), read);
        }
    }

    #[test]
    fn what_is_stored_means_the_same_again() {
        let words = [
            "web*/",
            "a b",
            "daily=7",
            "hourly=01",
            "yearly=+1",
            ";",
            " ",
            "  ",
            ",",
            "=",
            "\\0073",
            "off",
            "..",
            "x=1",
            "/",
            "\u{e9}",
            "\u{a0}",
            "\t",
            "daily",
            "?",
        ];
        let (mut state, mut good) = (1_u64, 0);
        for _ in 0..200_000 {
            let mut text = String::new();
            for _ in 0..10 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(words[(state >> 33) as usize % words.len()]);
                if state >> 63 == 0 {
                    text.push(' ');
                }
            }
            let Ok(read) = FileSchedule::parse(&text) else { continue };
            let shown = read.to_string();
            assert_eq!(FileSchedule::parse(&shown).as_ref(), Ok(&read), "{text:?} {shown:?}");
            assert!(read.rules().iter().all(|rule| !rule.pattern.is_empty()), "{text:?}");
            good += 1;
        }
        assert!(good > 1000, "{good}");
    }

    #[test]
    fn what_means_nothing_is_refused_with_the_reason() {
        let long = format!("{}/* daily=7", "x".repeat(FILE_PATH_BYTES_MAX));
        let many: Vec<String> = (0..100).map(|at| format!("web{at}/* daily=7")).collect();
        // It becomes too long with its blanks.
        let grows: Vec<String> = (0..68).map(|at| format!("{at:05} daily=7x")).collect();
        let grows = grows.join(";").replace("7x", "70");
        for (bad, why) in [
            ("", "a rule is empty"),
            (";", "a rule is empty"),
            ("a/* daily=7;", "a rule is empty"),
            ("; a/* daily=7", "a rule is empty"),
            ("a/* daily=7;; b/* daily=7", "a rule is empty"),
            ("a/*", "does not say what stays"),
            ("a;b/* daily=7", "written \\0073"),
            ("daily=7", "has no pattern"),
            ("/ daily=7", "has no pattern"),
            ("a x=1 daily=7", "\"x=1\" is not understood"),
            ("a/* minutely=5", "\"minutely=5\" is not understood"),
            ("a/* daily=0", "\"daily=0\" is not understood"),
            ("a/* daily=", "\"daily=\" is not understood"),
            ("a/* daily=10000", "is not understood"),
            ("a/* daily=7 daily=8", "named twice"),
            ("a/* daily=7 hourly", "does not say what stays"),
            ("a/* daily=7 , hourly=2", "\"daily=7\" stands in the pattern"),
            ("daily=7 a/*", "does not say what stays"),
            ("daily=7 a/* hourly=2", "\"daily=7\" stands in the pattern"),
            ("x=1/ daily=7", "\"x=1\" stands in the pattern"),
            ("../* daily=7", "no names of files"),
            ("a/./b daily=7", "no names of files"),
            ("/ a daily=7", "begins or ends with a blank"),
            ("a / daily=7", "begins or ends with a blank"),
            ("a\n/* daily=7", "a terminal does not show"),
            ("a/* daily=7; a//* hourly=7", "\"a/*\" is given twice"),
            (&long, "a pattern has more than 640 bytes"),
            (&many.join("; "), "1024 are allowed"),
            (&grows, "1024 are allowed"),
        ] {
            let error = FileSchedule::parse(bad).unwrap_err();
            assert!(error.contains(why), "{bad:?}: {error}");
        }
        assert!(grows.len() <= VALUE_BYTES_MAX, "{}", grows.len());
    }
}
