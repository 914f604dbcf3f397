//! The columns of `aquifer list`, and the order of its lines.

use std::cmp::Ordering;

use aquifer_api::{BookmarkInfo, DatasetInfo, SnapshotInfo};

use aquifer_meter::size;

use super::Output;
use crate::args::SortKey;
use crate::failure::Failure;

/// A line of `list`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line<'a> {
    Dataset(&'a DatasetInfo),
    Snapshot(&'a SnapshotInfo),
    Bookmark(&'a BookmarkInfo),
}

/// Content of a cell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    /// Nothing stands there.
    None,
    /// It cannot be read.
    Unknown,
    Size(u64),
    Time(u64),
    /// In hundredths.
    Ratio(u64),
    Number(u64),
    Text(String),
}

/// A column that every list has.
pub(super) struct Column {
    name: &'static str,
    alias: &'static str,
    /// As `Table` takes it: `>` before a column of numbers.
    header: &'static str,
    value: fn(Line<'_>) -> Value,
}

const COLUMNS: [Column; 14] = [
    Column { name: "name", alias: "", header: "NAME", value: |line| text(line.name()) },
    Column {
        name: "type",
        alias: "",
        header: "TYPE",
        value: |line| match line {
            Line::Dataset(_) => text("filesystem"),
            Line::Snapshot(_) => text("snapshot"),
            Line::Bookmark(_) => text("bookmark"),
        },
    },
    Column {
        name: "used",
        alias: "",
        header: ">USED",
        value: |line| match line {
            Line::Dataset(info) => Value::Size(info.used_bytes),
            Line::Snapshot(info) => info.used_bytes.map_or(Value::Unknown, Value::Size),
            Line::Bookmark(_) => Value::None,
        },
    },
    Column {
        name: "available",
        alias: "avail",
        header: ">AVAIL",
        value: |line| match line {
            Line::Dataset(info) => Value::Size(info.available_bytes),
            Line::Snapshot(_) | Line::Bookmark(_) => Value::None,
        },
    },
    Column {
        name: "referenced",
        alias: "refer",
        header: ">REFER",
        value: |line| match line {
            Line::Dataset(info) => Value::Size(info.refer_bytes),
            Line::Snapshot(info) => Value::Size(info.refer_bytes),
            Line::Bookmark(info) => Value::Size(info.refer_bytes),
        },
    },
    Column {
        name: "usedbyrefreservation",
        alias: "usedrefreserv",
        header: ">USEDREFRESERV",
        value: |line| match line {
            Line::Dataset(info) => Value::Size(info.refreserved_bytes),
            Line::Snapshot(_) | Line::Bookmark(_) => Value::None,
        },
    },
    Column {
        name: "logicalused",
        alias: "lused",
        header: ">LUSED",
        value: |line| match line {
            Line::Dataset(info) => info.logical_used_bytes.map_or(Value::None, Value::Size),
            Line::Snapshot(_) | Line::Bookmark(_) => Value::None,
        },
    },
    Column {
        name: "logicalreferenced",
        alias: "lrefer",
        header: ">LREFER",
        value: |line| match line {
            Line::Dataset(info) => info.logical_refer_bytes.map_or(Value::None, Value::Size),
            Line::Snapshot(info) => info.logical_refer_bytes.map_or(Value::None, Value::Size),
            Line::Bookmark(_) => Value::None,
        },
    },
    Column {
        name: "compressratio",
        alias: "ratio",
        header: ">RATIO",
        value: |line| match line {
            Line::Dataset(info) => ratio(info.used_bytes, info.logical_used_bytes),
            Line::Snapshot(info) => ratio(info.refer_bytes, info.logical_refer_bytes),
            Line::Bookmark(_) => Value::None,
        },
    },
    Column {
        name: "refcompressratio",
        alias: "refratio",
        header: ">REFRATIO",
        value: |line| match line {
            Line::Dataset(info) => ratio(info.refer_bytes, info.logical_refer_bytes),
            Line::Snapshot(info) => ratio(info.refer_bytes, info.logical_refer_bytes),
            Line::Bookmark(_) => Value::None,
        },
    },
    Column {
        name: "creation",
        alias: "created",
        header: "CREATED",
        value: |line| match line {
            Line::Dataset(_) => Value::None,
            Line::Snapshot(info) => Value::Time(info.created_ns),
            Line::Bookmark(info) => Value::Time(info.created_ns),
        },
    },
    Column {
        name: "mountpoint",
        alias: "nfspath",
        header: "NFS PATH",
        value: |line| match line {
            Line::Dataset(info) => match (&info.nfs_path, info.standby) {
                (Some(path), _) => text(path),
                (None, true) => text("standby"),
                (None, false) => Value::None,
            },
            Line::Snapshot(_) | Line::Bookmark(_) => Value::None,
        },
    },
    Column {
        name: "origin",
        alias: "",
        header: "ORIGIN",
        value: |line| match line {
            Line::Dataset(info) => info.origin.as_deref().map_or(Value::None, text),
            Line::Snapshot(_) | Line::Bookmark(_) => Value::None,
        },
    },
    Column {
        name: "holds",
        alias: "userrefs",
        header: ">HOLDS",
        value: |line| match line {
            Line::Dataset(_) | Line::Bookmark(_) => Value::None,
            Line::Snapshot(info) => Value::Number(info.holds),
        },
    },
];

/// A wanted column: one of all lists, or a property of datasets.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    Fixed(&'static Column),
    Property(&'a str),
}

impl std::fmt::Debug for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl<'a> Wanted<'a> {
    /// The column of this name, in a list of these lines.
    ///
    /// # Errors
    /// There is none; the message names those that there are.
    pub fn of(name: &'a str, lines: &[Line<'_>]) -> Result<Wanted<'a>, Failure> {
        let is_it =
            |column: &&Column| column.name == name || column.alias == name && !name.is_empty();
        if let Some(column) = COLUMNS.iter().find(is_it) {
            return Ok(Wanted::Fixed(column));
        }
        let mut datasets = lines.iter().filter_map(|line| match line {
            Line::Dataset(info) => Some(info),
            Line::Snapshot(_) | Line::Bookmark(_) => None,
        });
        if is_users(name) {
            return Ok(Wanted::Property(name));
        }
        // Each dataset has a value of each other property.
        let first = datasets.next();
        let properties = first.into_iter().flat_map(|info| &info.properties);
        let properties: Vec<&str> = properties.map(|property| property.name.as_str()).collect();
        match properties.contains(&name) {
            true => Ok(Wanted::Property(name)),
            false => {
                let fixed = COLUMNS.iter().map(|column| column.name);
                let known: Vec<&str> = fixed.chain(properties).collect();
                Err(Failure::usage(format!("no column {name:?}; there are {}", known.join(", "))))
            }
        }
    }

    /// Its header, as a table takes it.
    pub fn header(self) -> String {
        match self {
            Wanted::Fixed(column) => column.header.into(),
            Wanted::Property(name) => name.to_uppercase(),
        }
    }

    /// Returns the text of this column for a line.
    pub fn cell(self, line: Line<'_>, output: Output) -> String {
        match self.value(line) {
            Value::None => "-".into(),
            Value::Unknown => "?".into(),
            Value::Size(bytes) => output.size(bytes),
            Value::Time(ns) => output.minute(ns),
            Value::Ratio(hundredths) => size::ratio(hundredths),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text,
        }
    }

    fn value(self, line: Line<'_>) -> Value {
        match (self, line) {
            (Wanted::Fixed(column), _) => (column.value)(line),
            (Wanted::Property(_), Line::Snapshot(_) | Line::Bookmark(_)) => Value::None,
            (Wanted::Property(name), Line::Dataset(info)) => {
                let found = info.properties.iter().find(|property| property.name == name);
                // A number is a size: no property of ours has another kind of number.
                found.map_or(Value::None, |found| match found.value.parse() {
                    Ok(bytes) if !is_users(name) => Value::Size(bytes),
                    _ => text(&found.value),
                })
            }
        }
    }
}

impl Line<'_> {
    /// Full name.
    pub fn name(&self) -> &str {
        match self {
            Line::Dataset(info) => &info.name,
            Line::Snapshot(info) => &info.name,
            Line::Bookmark(info) => &info.name,
        }
    }
}

/// Brings lines into the order of these columns, the first one first; without any, they stay.
///
/// # Errors
/// There is no such column.
pub(super) fn sort(lines: &mut [Line<'_>], keys: &[SortKey]) -> Result<(), Failure> {
    let mut by = Vec::new();
    for key in keys {
        by.push((Wanted::of(&key.column, lines)?, key.falls));
    }
    lines.sort_by(|one, other| {
        let each = by.iter().map(|(column, falls)| {
            let order = column.value(*one).cmp(&column.value(*other));
            if *falls { order.reverse() } else { order }
        });
        each.fold(Ordering::Equal, Ordering::then)
    });
    Ok(())
}

/// Whether a property of this name is one that a user made up.
pub(super) fn is_users(name: &str) -> bool {
    name.contains(':')
}

fn ratio(bytes: u64, logical_bytes: Option<u64>) -> Value {
    logical_bytes
        .map_or(Value::None, |logical| Value::Ratio(size::ratio_hundredths(bytes, logical)))
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[cfg(test)]
mod tests {
    use aquifer_api::PropertyValue;

    use super::*;

    fn dataset(name: &str, used_bytes: u64, quota: &str) -> DatasetInfo {
        let property =
            PropertyValue { name: "quota".into(), value: quota.into(), source: "local".into() };
        DatasetInfo {
            name: name.into(),
            used_bytes,
            available_bytes: 5,
            refer_bytes: 6,
            refreserved_bytes: 0,
            logical_used_bytes: Some(12),
            logical_refer_bytes: None,
            nfs_path: None,
            origin: None,
            standby: false,
            properties: vec![property],
        }
    }

    const PLAIN: Output = Output { json: false, script: false, exact: true, colour: false };

    #[test]
    fn lines_are_sorted_by_several_columns_up_and_down() {
        let [a, b, c] =
            [dataset("tank/a", 2, "7"), dataset("tank/b", 10, "none"), dataset("tank/c", 2, "9")];
        let mut lines = vec![Line::Dataset(&a), Line::Dataset(&b), Line::Dataset(&c)];
        let key = |column: &str, falls| SortKey { column: column.into(), falls };
        let names = |lines: &[Line<'_>]| {
            lines.iter().map(|line| line.name().to_string()).collect::<Vec<_>>().join(" ")
        };
        sort(&mut lines, &[key("used", true), key("name", true)]).unwrap();
        assert_eq!(names(&lines), "tank/b tank/c tank/a");
        sort(&mut lines, &[key("quota", false)]).unwrap();
        assert_eq!(names(&lines), "tank/a tank/c tank/b", "sizes, then words");
        let none = sort(&mut lines, &[key("size", false)]).unwrap_err();
        assert!(matches!(&none, Failure::Usage(why) if why.contains("referenced")), "{none:?}");
    }

    #[test]
    fn a_column_has_an_alias_and_may_be_a_property() {
        let one = dataset("tank/a", 2, "1024");
        let line = Line::Dataset(&one);
        let cell = |name: &str| Wanted::of(name, &[line]).unwrap().cell(line, PLAIN);
        assert_eq!(
            ["refer", "referenced", "quota", "origin", "type"].map(cell),
            ["6", "6", "1024", "-", "filesystem"]
        );
        assert!(Wanted::of("", &[line]).is_err());
        assert_eq!(cell("com.example:backup"), "-");
        assert_eq!(Wanted::of("quota", &[line]).unwrap().header(), "QUOTA");
    }
}
