//! `aquifer diff`: which files differ, and at which ranges. Both are printed as they come.

use aquifer_api::client::Client;
use aquifer_api::{ChangedName, ChangedRange, DiffQuery, FileType, NameChange, RangesQuery};
use serde_json::{Value, json};

use super::{Output, print};
use crate::failure::Failure;

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// Also what kind of file it is, in one letter.
    #[arg(short = 'F', conflicts_with = "ranges")]
    types: bool,
    /// The changed byte ranges of one file, for backup programs. Both versions are files then:
    /// DATASET@NAME:PATH, or DATASET:PATH as it is now.
    #[arg(long, requires = "new")]
    ranges: bool,
    /// The old version: a snapshot.
    #[arg(value_name = "DATASET@NAME[:PATH]")]
    old: String,
    /// The new one: a snapshot, or a dataset as it is now; without one, the snapshot's dataset.
    #[arg(value_name = "DATASET[@NAME][:PATH]")]
    new: Option<String>,
}

pub(super) async fn diff(client: &Client, output: Output, args: DiffArgs) -> Result<(), Failure> {
    let DiffArgs { types, ranges, old, new } = args;
    let dataset = |name: &str| name.split('@').next().unwrap_or_default().to_string();
    let to = new.unwrap_or_else(|| dataset(&old));
    let query = DiffQuery { from: old, to, ..DiffQuery::default() };
    if ranges {
        return changed_ranges(client, output, query).await;
    }
    let mountpoint = format!("/{}", dataset(&query.to));
    let line = |name: &ChangedName| line(name, &mountpoint, (types, output.script));
    changed_names(client, output, query, line).await
}

async fn changed_names(
    client: &Client,
    output: Output,
    mut query: DiffQuery,
    line: impl Fn(&ChangedName) -> String,
) -> Result<(), Failure> {
    let mut list = List::new(output, json!({}), "names");
    loop {
        let page = client.ask(&query).await?;
        list.print(&page.names, &line)?;
        query.after = page.next;
        if query.after.is_none() {
            return list.end();
        }
    }
}

async fn changed_ranges(
    client: &Client,
    output: Output,
    mut query: DiffQuery,
) -> Result<(), Failure> {
    let line = |range: &ChangedRange| {
        let kind = if range.data { "data" } else { "hole" };
        format!("{kind}\t{}\t{}\n", range.offset, range.length)
    };
    let mut list: Option<List> = None;
    loop {
        let page = client.ask(&RangesQuery(query.clone())).await?;
        let head = json!({
            "old_bytes": page.old_bytes,
            "new_bytes": page.new_bytes,
            "same_file": page.same_file,
        });
        let list = list.get_or_insert_with(|| List::new(output, head, "ranges"));
        list.print(&page.ranges, line)?;
        query.after = page.next;
        if query.after.is_none() {
            return list.end();
        }
    }
}

/// A long list, of which no more than a page is in memory. As JSON it is an object that ends with
/// the list: what was cut off is no JSON.
struct List {
    json: bool,
    /// Text that stands before the next entry.
    before: String,
}

impl List {
    /// `head` is an object, to which the list is added under this name.
    fn new(output: Output, head: Value, name: &str) -> List {
        let mut before = head.to_string();
        before.pop();
        if before.len() > 1 {
            before.push(',');
        }
        before += &format!("\"{name}\":[\n");
        List { json: output.json, before }
    }

    fn print<T: serde::Serialize>(
        &mut self,
        entries: &[T],
        line: impl Fn(&T) -> String,
    ) -> Result<(), Failure> {
        if !self.json {
            return print(&entries.iter().map(line).collect::<String>());
        }
        for entry in entries {
            let entry = serde_json::to_string(entry).map_err(Failure::failed)?;
            print(&format!("{}{entry}", self.before))?;
            self.before = ",\n".into();
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        // Without an entry, what stands before the first one.
        let before = if self.before == ",\n" { "\n" } else { &self.before };
        print(&format!("{before}]}}\n"))
    }
}

/// A line as `zfs diff` has it.
fn line(name: &ChangedName, mountpoint: &str, (types, script): (bool, bool)) -> String {
    let change = match name.change {
        NameChange::Created => "+",
        NameChange::Removed => "-",
        NameChange::Renamed => "R",
        NameChange::Modified => "M",
    };
    let kind = match name.kind {
        FileType::File => "\tF",
        FileType::Directory => "\t/",
        FileType::Symlink => "\t@",
        FileType::Block => "\tB",
        FileType::Character => "\tC",
        FileType::Fifo => "\t|",
        FileType::Socket => "\t=",
    };
    let kind = if types { kind } else { "" };
    let path = format!("{mountpoint}{}", name.path);
    let path = match &name.old_path {
        None => path,
        Some(old) if script => format!("{mountpoint}{old}\t{path}"),
        Some(old) => format!("{mountpoint}{old} -> {path}"),
    };
    let more = i64::from(name.links) - i64::from(name.old_links);
    let links = match name.change {
        NameChange::Modified if more != 0 => format!("\t({more:+})"),
        _ => String::new(),
    };
    format!("{change}{kind}\t{path}{links}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(change: NameChange, old_path: Option<&str>, links: (u32, u32)) -> ChangedName {
        ChangedName {
            change,
            kind: FileType::File,
            path: "/a b".into(),
            old_path: old_path.map(Into::into),
            fileid: 7,
            content: true,
            attributes: false,
            old_links: links.0,
            links: links.1,
        }
    }

    #[test]
    fn lines_are_those_of_zfs() {
        let modified = name(NameChange::Modified, None, (1, 1));
        let linked = name(NameChange::Modified, None, (3, 1));
        let renamed = name(NameChange::Renamed, Some("/c"), (1, 1));
        let (plain, script) = ((false, false), (true, true));
        assert_eq!(line(&modified, "/tank/vms", plain), "M\t/tank/vms/a b\n");
        assert_eq!(line(&modified, "/tank/vms", script), "M\tF\t/tank/vms/a b\n");
        assert_eq!(line(&linked, "/tank", plain), "M\t/tank/a b\t(-2)\n");
        assert_eq!(line(&renamed, "/tank", plain), "R\t/tank/c -> /tank/a b\n");
        assert_eq!(line(&renamed, "/tank", script), "R\tF\t/tank/c\t/tank/a b\n");
    }

    #[test]
    fn the_pieces_of_a_list_are_one_json_value() {
        let output = Output { json: true, script: false, exact: false, colour: false };
        for (head, expected) in [(json!({}), "{\"names\":[\n"), (json!({"a": 1}), "{\"a\":1,")] {
            let list = List::new(output, head, "names");
            assert!(list.before.starts_with(expected), "{}", list.before);
            let empty: Value = serde_json::from_str(&format!("{}]}}", list.before)).unwrap();
            assert_eq!(empty["names"], json!([]));
        }
    }
}
