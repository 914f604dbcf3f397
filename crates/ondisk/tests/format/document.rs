//! `docs/format.md`, compared with the code: its tables add up, its magics are those on disk, and
//! no structure or example is left out.

use std::collections::BTreeSet;

use aquifer_ondisk::block_pointer::BLOCK_POINTER_BYTES;
use aquifer_ondisk::codec::SECTOR_BYTES;
use aquifer_ondisk::dead::DeadKey;
use aquifer_ondisk::history::HistoryCounters;
use aquifer_ondisk::inode::INODE_BYTES;
use aquifer_ondisk::l2arc::CHUNK_HEADER_SECTORS;
use aquifer_ondisk::layout::CONFIG_SECTORS;
use aquifer_ondisk::log_batch::BATCH_HEADER_BYTES;
use aquifer_ondisk::reply::ReplyEntry;
use aquifer_ondisk::txg_record::{RecordPointer, SLOT_ENTRY_BYTES};

use crate::samples::{Sample, samples};

/// One row of a table of fields.
struct Row {
    line: usize,
    offset: String,
    kind: String,
    field: String,
    note: String,
}

/// The tables of fields, each with the text of its section up to it.
fn tables(text: &str) -> Vec<(String, Vec<Row>)> {
    let mut tables: Vec<(String, Vec<Row>)> = Vec::new();
    let mut section = String::new();
    let mut inside = false;
    for (line, row) in (1..).zip(text.lines()) {
        if row.starts_with("## ") {
            section.clear();
        }
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if row.starts_with("| Offset | Type |") {
            tables.push((section.clone(), Vec::new()));
            inside = true;
        } else if inside && row.starts_with("|---") {
        } else if let (true, ["", offset, kind, field, note, ""]) = (inside, cells.as_slice()) {
            let [offset, kind, field, note] =
                [offset, kind, field, note].map(|cell| cell.to_string());
            tables.last_mut().unwrap().1.push(Row { line, offset, kind, field, note });
        } else {
            assert!(!inside || row.is_empty(), "line {line}: a row of other cells: {row}");
            inside = false;
            section.push_str(row);
            section.push('\n');
        }
    }
    tables
}

/// Bytes of a field; `None` if they depend on its content.
fn size(kind: &str) -> Option<usize> {
    if let Some((count, kind)) = kind.split_once(" x ") {
        return Some(count.parse::<usize>().unwrap() * size(kind)?);
    }
    if let Some(count) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        return count.parse().ok();
    }
    Some(match kind {
        "u8" => 1,
        "u16" => 2,
        "u32" => 4,
        "u40" => 5,
        "u48" => 6,
        "u64" | "i64" => 8,
        "u128" => 16,
        "time" => 12,
        "record pointer" => RecordPointer::BYTES,
        "block pointer" => BLOCK_POINTER_BYTES,
        _ => return None,
    })
}

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_tables_of_fields_add_up() {
    let mut ends = Vec::new();
    for (_, rows) in tables(&document()) {
        let mut next = Some(0);
        for Row { line, offset, kind, field, .. } in rows {
            // After a field without a fixed size, a number gives the offset of the following fields
            // at the end.
            let at = offset.parse::<usize>().ok();
            assert!(at.is_some() || offset == "..", "line {line}: offset {offset:?}");
            assert!(next.is_none() || at == next, "line {line}: {field:?} lies at {next:?}");
            if field == "end" {
                ends.push(at.unwrap());
            }
            next = at.and_then(|at| Some(at + size(&kind)?));
        }
    }
    let config = usize::try_from(CONFIG_SECTORS).unwrap() * SECTOR_BYTES;
    let chunk_header = usize::try_from(CHUNK_HEADER_SECTORS).unwrap() * SECTOR_BYTES;
    let compressed = 14;
    let free_work_record = 126;
    let open_work_record = 102;
    let line_record = 36;
    let history_counters = HistoryCounters::default().encode().len();
    let load_part = 8;
    let logged_page = 7;
    let dead_block = 16;
    let expected = [
        config,
        SECTOR_BYTES,
        SECTOR_BYTES,
        chunk_header,
        RecordPointer::BYTES,
        SLOT_ENTRY_BYTES,
        BLOCK_POINTER_BYTES,
        SECTOR_BYTES,
        compressed,
        INODE_BYTES,
        free_work_record,
        open_work_record,
        line_record,
        history_counters,
        load_part,
        logged_page,
        DeadKey::BYTES,
        dead_block,
        ReplyEntry::BYTES,
    ];
    assert_eq!(
        ends, expected,
        "sizes of label, uberblock, mark, chunk, record pointer, slot entry, ..."
    );
}

#[test]
fn the_magics_and_versions_are_those_on_disk() {
    let samples = samples();
    let mut magics = BTreeSet::new();
    for (section, rows) in tables(&document()) {
        let shown = samples.iter().filter(|sample| section.contains(&format!("`{}`", sample.name)));
        let shown: Vec<_> = shown.collect();
        for Row { line, offset, field, note, .. } in rows {
            let expected = match field.as_str() {
                "magic" => note.trim_matches('`').as_bytes().to_vec(),
                "version" | "entry_form" => vec![note.parse().unwrap(), 0],
                _ => continue,
            };
            assert!(!shown.is_empty(), "line {line}: no example is named before this table");
            let at: usize = offset.parse().unwrap();
            // The last example named is of this table, if a section has several.
            let named = |sample: &&&Sample| section.rfind(&format!("`{}`", sample.name));
            let sample = shown.iter().max_by_key(named).unwrap();
            let found = &sample.bytes[at..at + expected.len()];
            assert_eq!(found, expected, "line {line}: {}", sample.name);
            magics.insert((field, sample.name));
        }
    }
    let of_magic = magics.iter().filter(|(field, _)| field == "magic").count();
    assert_eq!((of_magic, magics.len()), (7, 7 + 38), "{magics:?}");
}

#[test]
fn every_example_and_module_is_named() {
    let text = document();
    for sample in samples() {
        assert!(text.contains(&format!("`{}`", sample.name)), "{}", sample.name);
    }
    for module in [
        "layout",
        "config",
        "uberblock",
        "txg_record",
        "pool_root",
        "block_pointer",
        "tree_node",
        "extent",
        "inode",
        "dirent",
        "dataset",
        "receiving",
        "resume",
        "bookmark",
        "user_property",
        "damage",
        "scrub",
        "free_work",
        "open_work",
        "history",
        "load",
        "log_batch",
        "log_change",
        "dead",
        "file_snapshot",
        "keeping",
        "l2arc",
        "resilver_mark",
        "reply",
    ] {
        assert!(text.contains(&format!("`{module}`")), "module {module}");
    }
    assert!(text.contains(&format!("| {BATCH_HEADER_BYTES} | records |")));
}
