//! Golden bytes: this version writes them, byte for byte, and reads them back.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use crate::samples::{Sample, samples};
use crate::{hex, numbers};

/// Where the files lie.
pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Whether the files are to be rewritten.
pub fn bless() -> bool {
    std::env::var_os("AQUIFER_BLESS").is_some_and(|value| value == "1")
}

fn file_name(sample: &Sample) -> String {
    format!("{}.hex", sample.name)
}

/// The file's text: a title, the value, the bytes.
fn text(sample: &Sample) -> String {
    let mut out = format!("# {}\n#\n", sample.about);
    for line in shortened(&sample.value) {
        writeln!(out, "# {line}").unwrap();
    }
    out + &hex::dump(&sample.bytes)
}

/// The lines of a value, with lists of bytes in one line instead of a line each.
fn shortened(value: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in value.lines() {
        let item = line.trim_start();
        let digits = item.trim_end_matches(',');
        let byte = digits.parse::<u8>().is_ok();
        match lines.last_mut() {
            Some(last) if byte && last.ends_with(',') && last.len() + item.len() < 96 => {
                let before = last.trim_start().trim_end_matches(',');
                if before.split(", ").all(|item| item.parse::<u8>().is_ok()) {
                    last.push(' ');
                    last.push_str(item);
                    continue;
                }
            }
            _ => {}
        }
        lines.push(line.to_string());
    }
    lines
}

#[test]
fn golden_bytes_are_written_and_read() {
    for sample in samples() {
        let path = directory().join(file_name(&sample));
        if bless() {
            std::fs::write(&path, text(&sample)).unwrap();
        }
        let name = sample.name;
        let stored = std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("{name}: {e}; AQUIFER_BLESS=1 makes it"));
        let bytes = hex::parse(&stored).unwrap_or_else(|e| panic!("{name}: {e}"));
        if bytes != sample.bytes {
            let at = bytes.iter().zip(&sample.bytes).position(|(old, new)| old != new);
            let at = at.unwrap_or(bytes.len().min(sample.bytes.len()));
            panic!(
                "{name}: the format has changed, first at byte {at:#x}. Pools in use hold the old \
                 bytes: is this a new version?\nnow:\n{}",
                hex::dump(&sample.bytes)
            );
        }
        (sample.decode)(&bytes);
        assert_eq!(stored, text(&sample), "{name}: same bytes, but described otherwise: bless");
    }
}

#[test]
fn golden_directory_holds_nothing_else() {
    let mut expected: BTreeSet<String> = samples().iter().map(file_name).collect();
    assert_eq!(expected.len(), samples().len(), "two samples of one name");
    expected.insert(numbers::FILE.into());
    let files = std::fs::read_dir(directory()).unwrap();
    let found = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(expected, found);
}
