//! A line that a host writes to `.aquifer/FILE/control`.
//!
//! ```text
//! rollback NAME
//! clone NAME PATH
//! ```
//! A client sends what it has in its pages, and when it likes: a line in pieces, or more than was
//! written just now. So these rules hold, and what does not keep to them does nothing.
//!
//! Invariants:
//! - A line ends with a newline: half of one is none.
//! - A WRITE has one line. What begins with `#`, as all does that `control` shows, and empty lines
//!   do not count.
//! - The offset means nothing.

use crate::ops::names::{check_name, is_dot};

/// Bytes that a WRITE has at most: the longest path, and more than the longest text of `control`.
pub(super) const LINE_BYTES_MAX: usize = 16 << 10;

/// Order that a line gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// To roll the file back to this snapshot.
    Rollback(String),
    /// To clone the file as of this snapshot, under this path from the root directory on.
    Clone(String, Vec<Vec<u8>>),
}

/// A line asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Longer than any line.
    #[error("it is too long")]
    TooLong,
    /// It may be half of one.
    #[error("it does not end with a newline")]
    NoEnd,
    /// There is none.
    #[error("it has no line")]
    Empty,
    /// Only one at a time.
    #[error("it has several lines: write one at a time")]
    Several,
    /// Neither of both.
    #[error("it must be \"rollback NAME\" or \"clone NAME PATH\"")]
    Unknown,
    /// A snapshot's name has other characters.
    #[error("it names no snapshot")]
    NoSnapshot,
    /// No file can have it.
    #[error("it names no path from the root directory on, such as web07/disk.vhd")]
    NoPath,
}

/// Reads the content of a WRITE. A snapshot's name may have spaces: in front of a path a tab ends
/// it then.
pub(super) fn parse(data: &[u8]) -> Result<Order, BadLine> {
    if data.len() > LINE_BYTES_MAX {
        return Err(BadLine::TooLong);
    }
    let mut lines = data.split(|byte| *byte == b'\n');
    // A client may fill up its page.
    let is_nothing = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | 0);
    if !lines.next_back().is_some_and(|rest| rest.iter().all(is_nothing)) {
        return Err(BadLine::NoEnd);
    }
    let mut orders = lines.filter(|line| !line.starts_with(b"#") && !line.iter().all(is_nothing));
    let line = orders.next().ok_or(BadLine::Empty)?;
    if orders.next().is_some() {
        return Err(BadLine::Several);
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let (verb, rest) = cut(line, is_blank).ok_or(BadLine::Unknown)?;
    match verb {
        b"rollback" => Ok(Order::Rollback(name(rest)?)),
        b"clone" => {
            let ends = if rest.contains(&b'\t') { b'\t' } else { b' ' };
            let (of, path) = cut(rest, |byte| *byte == ends).ok_or(BadLine::NoPath)?;
            Ok(Order::Clone(name(of)?, parts(path)?))
        }
        _ => Err(BadLine::Unknown),
    }
}

/// Returns the text before the first byte that `ends` accepts, and the text behind all such bytes
/// that follow it.
fn cut(text: &[u8], ends: impl Fn(&u8) -> bool) -> Option<(&[u8], &[u8])> {
    let (before, behind) = text.split_at(text.iter().position(&ends)?);
    let from = behind.iter().position(|byte| !ends(byte))?;
    Some((before, behind.get(from..)?))
}

fn name(text: &[u8]) -> Result<String, BadLine> {
    let name = std::str::from_utf8(text).ok().filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or(BadLine::NoSnapshot)
}

fn parts(path: &[u8]) -> Result<Vec<Vec<u8>>, BadLine> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let parts: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
    let is_name = |part: &Vec<u8>| check_name(part).is_ok() && !is_dot(part);
    match !parts.is_empty() && parts.iter().all(is_name) {
        true => Ok(parts),
        false => Err(BadLine::NoPath),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollback(name: &str) -> Result<Order, BadLine> {
        Ok(Order::Rollback(name.into()))
    }

    fn clone(name: &str, parts: &[&[u8]]) -> Result<Order, BadLine> {
        Ok(Order::Clone(name.into(), parts.iter().map(|part| part.to_vec()).collect()))
    }

    #[test]
    fn a_line_asks_for_one_thing() {
        let long = format!("clone a {}\n", "x".repeat(256));
        for (line, asks) in [
            (&b"rollback before\n"[..], rollback("before")),
            (b"rollback  before\r\n", rollback("before")),
            (b"rollback\ta b\n", rollback("a b")),
            (b"# shown: rollback x\n\nrollback before\n \n", rollback("before")),
            (b"rollback before\n\0\0\0", rollback("before")),
            (b"clone v1 web07/disk.vhd\n", clone("v1", &[b"web07", b"disk.vhd"])),
            (b"clone v1 /a dir//my \xff disk\n", clone("v1", &[b"a dir", b"my \xff disk"])),
            (b"clone my v1\tweb07/disk.vhd\n", clone("my v1", &[b"web07", b"disk.vhd"])),
            (b"clone\tmy v1\ta b\n", clone("my v1", &[b"a b"])),
            (b"", Err(BadLine::Empty)),
            (b"\n# x\n", Err(BadLine::Empty)),
            (b"# rollback before\n", Err(BadLine::Empty)),
            (b"rollback before", Err(BadLine::NoEnd)),
            (b"rollback a\nrollba", Err(BadLine::NoEnd)),
            (b"rollback a\nrollback b\n", Err(BadLine::Several)),
            (b"rollback\n", Err(BadLine::Unknown)),
            (b"rollback \n", Err(BadLine::Unknown)),
            (b"rollbackbefore\n", Err(BadLine::Unknown)),
            (b"Rollback before\n", Err(BadLine::Unknown)),
            (b" rollback before\n", Err(BadLine::Unknown)),
            (b"destroy before\n", Err(BadLine::Unknown)),
            (b"rollback \xff\n", Err(BadLine::NoSnapshot)),
            (b"clone a\n", Err(BadLine::NoPath)),
            (b"clone a /\n", Err(BadLine::NoPath)),
            (b"clone a ../b\n", Err(BadLine::NoPath)),
            (b"clone a b/./c\n", Err(BadLine::NoPath)),
            (b"clone a b\0c\n", Err(BadLine::NoPath)),
            (long.as_bytes(), Err(BadLine::NoPath)),
            (&[b'x'; LINE_BYTES_MAX + 1], Err(BadLine::TooLong)),
        ] {
            assert_eq!(parse(line), asks, "{:?}", String::from_utf8_lossy(line));
        }
    }

    /// No bytes make it panic, and no half of a line is one.
    #[test]
    fn whatever_a_client_sends_is_a_line_or_none() {
        let mut rng = aquifer_sim::Rng::stream(1, "lines");
        let pieces: [&[u8]; 12] = [
            b"rollback",
            b"clone",
            b" ",
            b"\t",
            b"\n",
            b"#",
            b"before",
            b"web07/disk",
            b"/",
            b"..",
            b"\0",
            b"\xff",
        ];
        for _ in 0..50_000 {
            let count = rng.below(9);
            let picked = (0..count).map(|_| pieces[usize::try_from(rng.below(12)).unwrap()]);
            let data: Vec<u8> = picked.flatten().copied().collect();
            if parse(&data).is_err() {
                continue;
            }
            let (line, rest) = data.split_at(data.iter().rposition(|byte| *byte == b'\n').unwrap());
            assert!(rest.iter().all(|byte| b"\n \t\0".contains(byte)));
            let lines = line.split(|byte| *byte == b'\n');
            let asking = lines.filter(|line| line.starts_with(b"roll") || line.starts_with(b"clo"));
            assert_eq!(asking.count(), 1);
            // Cut off anywhere before its end, it is none.
            let begun = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let begun = if line[begun..].starts_with(b"#") || line.ends_with(b"\n") {
                continue;
            } else {
                begun
            };
            for end in begun + 1..line.len() {
                assert!(parse(&data[..end]).is_err());
            }
        }
    }
}
