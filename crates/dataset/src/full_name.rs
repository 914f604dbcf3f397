//! Full names: `tank/vms` of a dataset, `tank/vms@before` of a snapshot, `tank/vms#sent` of a
//! bookmark. No other module of this crate takes one apart.
//!
//! No name of a dataset has an `@` or a `#`. So the first `@` ends it, and if there is none, the
//! first `#`.

use aquifer_ondisk::dataset::SNAPSHOT_NAME_BYTES_MAX;

/// A text cannot be the full name of a snapshot or of a bookmark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} {why}")]
pub struct FullNameError {
    /// The text.
    pub name: String,
    /// Why.
    pub why: &'static str,
}

/// A full name in its parts, which need not be names of anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullName<'a> {
    /// Of a dataset.
    Dataset(&'a str),
    /// Of a snapshot: its dataset, and the name behind the `@`.
    Snapshot(&'a str, &'a str),
    /// Of a bookmark: its dataset, and the name behind the `#`.
    Bookmark(&'a str, &'a str),
}

impl<'a> FullName<'a> {
    /// Takes any text apart.
    pub fn of(text: &'a str) -> FullName<'a> {
        if let Some((dataset, name)) = text.split_once('@') {
            return FullName::Snapshot(dataset, name);
        }
        match text.split_once('#') {
            Some((dataset, name)) => FullName::Bookmark(dataset, name),
            None => FullName::Dataset(text),
        }
    }

    /// Returns the part before the `@` or the `#`.
    pub fn dataset(self) -> &'a str {
        match self {
            FullName::Dataset(name) | FullName::Snapshot(name, _) | FullName::Bookmark(name, _) => {
                name
            }
        }
    }

    /// Returns the name of the snapshot, if it is one.
    pub fn snapshot(self) -> Option<&'a str> {
        match self {
            FullName::Snapshot(_, name) => Some(name),
            FullName::Dataset(_) | FullName::Bookmark(..) => None,
        }
    }

    /// Whether a text is only the part of a full name that stands behind a dataset: `@before` or
    /// `#sent`.
    pub fn is_short(text: &str) -> bool {
        text.starts_with(['@', '#'])
    }

    /// Puts a dataset before a text that [is short](FullName::is_short), and leaves any other.
    pub fn completed(dataset: &str, text: &str) -> String {
        if FullName::is_short(text) { format!("{dataset}{text}") } else { text.into() }
    }
}

/// Dataset and name of a snapshot's full name.
pub(crate) fn of_snapshot(full: &str) -> Result<(&str, &str), FullNameError> {
    let FullName::Snapshot(dataset, name) = FullName::of(full) else {
        let why = "is no snapshot: write dataset@name";
        return Err(FullNameError { name: full.into(), why });
    };
    check_snapshot(full, name)?;
    Ok((dataset, name))
}

/// Dataset and name of a bookmark's full name.
pub(crate) fn of_bookmark(full: &str) -> Result<(&str, &str), FullNameError> {
    let bad = |why| FullNameError { name: full.into(), why };
    let FullName::Bookmark(dataset, name) = FullName::of(full) else {
        return Err(bad("is no bookmark: write dataset#name"));
    };
    if name.is_empty() || name.len() > SNAPSHOT_NAME_BYTES_MAX {
        return Err(bad("needs 1 to 255 bytes behind the '#'"));
    }
    match has_good_characters(name) {
        true => Ok((dataset, name)),
        false => Err(bad("may hold letters, digits, '-', '_', '.', ':' and ' ' only behind '#'")),
    }
}

/// Checks the name of a snapshot, of a dataset or of a file, which `full` ends with.
///
/// # Errors
/// It cannot be the name of one.
pub fn check_snapshot(full: &str, name: &str) -> Result<(), FullNameError> {
    let bad = |why| Err(FullNameError { name: full.into(), why });
    if name.is_empty() {
        return bad("has no name behind the '@'");
    }
    if name.len() > SNAPSHOT_NAME_BYTES_MAX {
        return bad("has more than 255 bytes behind the '@'");
    }
    if name == "." || name == ".." {
        return bad("'.' and '..' are directories");
    }
    if !has_good_characters(name) {
        return bad("may hold letters, digits, '-', '_', '.', ':' and ' ' only behind the '@'");
    }
    Ok(())
}

/// Whether a name of a snapshot or bookmark has letters, digits, '-', '_', '.', ':' and ' ' only.
fn has_good_characters(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.: ".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mark_ends_the_name_of_a_dataset_and_an_at_comes_before_a_hash() {
        for (text, expected) in [
            ("tank/vms", FullName::Dataset("tank/vms")),
            ("tank/vms@a:b", FullName::Snapshot("tank/vms", "a:b")),
            ("tank/vms@a@b", FullName::Snapshot("tank/vms", "a@b")),
            ("tank/vms#a@b", FullName::Snapshot("tank/vms#a", "b")),
            ("tank/vms#a#b", FullName::Bookmark("tank/vms", "a#b")),
            ("@a", FullName::Snapshot("", "a")),
            ("", FullName::Dataset("")),
        ] {
            assert_eq!(FullName::of(text), expected, "{text:?}");
        }
        assert_eq!(FullName::completed("tank", "#a"), "tank#a");
        assert_eq!(FullName::completed("tank", "@a"), "tank@a");
        assert_eq!(FullName::completed("tank", "b@a"), "b@a");
    }

    #[test]
    fn what_means_more_than_a_letter_is_in_no_name() {
        for bad in ["", ".", "..", "a,b", "a%b", "a/b", "a@b", "a#b", "*", "?", "\\", "\n"] {
            assert!(check_snapshot("tank@", bad).is_err(), "{bad:?}");
            let (snapshot, bookmark) = (format!("tank@{bad}"), format!("tank#{bad}"));
            assert!(of_snapshot(&snapshot).is_err(), "{bad:?}");
            assert!(of_bookmark(&bookmark).is_err() || [".", ".."].contains(&bad), "{bad:?}");
        }
        assert_eq!(of_snapshot("tank@a b:c"), Ok(("tank", "a b:c")));
        assert_eq!(of_bookmark("tank#a b:c"), Ok(("tank", "a b:c")));
        assert!(of_snapshot("tank").is_err() && of_bookmark("tank").is_err());
    }
}
