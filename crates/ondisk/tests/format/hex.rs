//! Hex files that people can read and that define exact bytes.
//!
//! ```text
//! # a comment
//! 00000000  41 51 43 4f 4e 46 49 47  01 00 00 00 2a 00 00 00  |AQCONFIG....*...|
//! 00000010  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|
//! *
//! 00001000
//! ```
//! `*`: lines like the one before, up to the next offset. The last line is the length.

use std::fmt::Write;

const LINE: usize = 16;

/// The lines for `bytes`.
pub fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut last: Option<&[u8]> = None;
    let mut starred = false;
    for (at, line) in bytes.chunks(LINE).enumerate() {
        if last == Some(line) {
            if !starred {
                out.push_str("*\n");
                starred = true;
            }
            continue;
        }
        (last, starred) = (Some(line), false);
        write!(out, "{:08x} ", at * LINE).unwrap();
        for column in 0..LINE {
            if column == LINE / 2 {
                out.push(' ');
            }
            match line.get(column) {
                Some(byte) => write!(out, " {byte:02x}").unwrap(),
                None => out.push_str("   "),
            }
        }
        out.push_str("  |");
        for byte in line {
            out.push(if (32..127).contains(byte) { char::from(*byte) } else { '.' });
        }
        out.push_str("|\n");
    }
    writeln!(out, "{:08x}", bytes.len()).unwrap();
    out
}

/// The bytes of `text`.
pub fn parse(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut starred = false;
    let mut ended = false;
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if ended {
            return Err(format!("after the length: {line:?}"));
        }
        if line == "*" {
            starred = true;
            continue;
        }
        let (offset, rest) = line.split_once("  ").unwrap_or((line, ""));
        let offset = usize::from_str_radix(offset, 16).map_err(|e| format!("{line:?}: {e}"))?;
        if starred {
            let last = bytes.len().checked_sub(LINE).ok_or("a star without a line before it")?;
            let last = bytes[last..].to_vec();
            while bytes.len() < offset {
                bytes.extend_from_slice(&last);
            }
            starred = false;
        }
        if bytes.len() != offset {
            return Err(format!("{line:?}: {} bytes precede it", bytes.len()));
        }
        let columns = rest.split_once('|').map_or(rest, |(columns, _)| columns);
        for byte in columns.split_whitespace() {
            bytes.push(u8::from_str_radix(byte, 16).map_err(|e| format!("{line:?}: {e}"))?);
        }
        ended = rest.is_empty();
    }
    if ended { Ok(bytes) } else { Err("no length at the end".into()) }
}

#[test]
fn what_is_dumped_is_parsed() {
    let mut repeats = vec![7u8; 100];
    repeats.extend_from_slice(b"|a # * b|");
    for bytes in [&b""[..], b"x", &[0; 16], &[0; 4096], &repeats] {
        assert_eq!(parse(&dump(bytes)).as_deref(), Ok(bytes));
    }
}

#[test]
fn lines_that_contradict_each_other_are_refused() {
    for bad in [
        "",
        "*\n00000010\n",
        "00000000  00\n00000002\n",
        "00000000\n00000000  00\n",
        "00000000  zz\n00000001\n",
        "00000000  00\n",
    ] {
        assert!(parse(bad).is_err(), "{bad:?}");
    }
}
