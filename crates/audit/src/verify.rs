//! Whether the lines of files are the chain that was written.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::line::{Chain, Kind, LINE_BYTES_MAX, Line, NO_SUM};

/// Content of a chain without a broken link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Lines.
    pub lines: u64,
    /// The numbers of the first and of the last one.
    pub first: u64,
    /// See `first`.
    pub last: u64,
    /// The sum of the last one: the next line bears it.
    pub sum: String,
    /// Lines that found no room, as lines say that are there.
    pub dropped: u64,
}

/// The first broken link.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is none.
    #[error("there is no line")]
    Empty,
    /// At a line.
    #[error("{}:{line}: {what}", path.display())]
    At {
        /// The file.
        path: PathBuf,
        /// The number of the line in the file, from 1 on.
        line: u64,
        /// Description of the fault.
        what: String,
    },
}

/// Verifies the chain in these files, the oldest first.
///
/// # Errors
/// The first broken link.
pub fn verify(paths: &[impl AsRef<Path>]) -> Result<Verified, Broken> {
    let (mut known, mut verified) = (None, None);
    for path in paths.iter().map(AsRef::as_ref) {
        let unreadable = |source| Broken::Unreadable { path: path.into(), source };
        let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
        let mut number = 0;
        loop {
            let mut text = Vec::new();
            let most = LINE_BYTES_MAX as u64 + 1;
            Read::by_ref(&mut file).take(most).read_until(b'\n', &mut text).map_err(unreadable)?;
            if text.is_empty() {
                break;
            }
            number += 1;
            let at = |what| Broken::At { path: path.into(), line: number, what };
            let line = link(known.as_ref(), &text).map_err(at)?;
            let text = text.strip_suffix(b"\n").unwrap_or(&text);
            let chain = Chain::behind(line.seq, text);
            let of = verified.get_or_insert_with(|| Verified {
                lines: 0,
                first: line.seq,
                last: 0,
                sum: String::new(),
                dropped: 0,
            });
            of.lines += 1;
            (of.last, of.sum) = (line.seq, chain.sum.clone());
            of.dropped = of.dropped.saturating_add(line.dropped);
            known = Some(chain);
        }
    }
    verified.ok_or(Broken::Empty)
}

/// The line of a text, if it goes on from what is known.
fn link(known: Option<&Chain>, text: &[u8]) -> Result<Line, String> {
    let whole = text.strip_suffix(b"\n").ok_or("this line is cut off, or too long")?;
    let line: Line =
        serde_json::from_slice(whole).map_err(|error| format!("this is no audit line: {error}"))?;
    let Some(Chain { seq, sum }) = known else {
        let begins = line.kind == Kind::Begin && line.seq == 1 && line.prev == NO_SUM;
        // Those before it may be in another file.
        return match begins || line.seq > 1 && line.kind != Kind::Begin {
            true => Ok(line),
            false => Err("this is no first line of a chain".into()),
        };
    };
    if line.kind == Kind::Begin {
        return Err(format!("a new chain begins here: {}", line.why));
    }
    let expected = seq.saturating_add(1);
    if line.seq > expected {
        let missing = line.seq - expected;
        return Err(format!("{missing} lines are missing before this one, number {}", line.seq));
    }
    if line.seq < expected {
        return Err(format!("this line has the number {}, and {expected} is next", line.seq));
    }
    match line.prev == *sum {
        true => Ok(line),
        false => Err(format!("the line before this one, number {seq}, was changed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Entry;

    fn chain(lines: usize) -> Vec<String> {
        let mut chain = Chain::new();
        let mut all = Vec::new();
        for at in 0..lines {
            let kind = if at == 0 { Kind::Begin } else { Kind::Act };
            let entry = Entry { kind, act: format!("act {at}"), wall_ns: 1, ..Entry::default() };
            all.push(chain.next("srv", &entry));
        }
        all
    }

    fn verified(lines: &[String]) -> Result<Verified, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        std::fs::write(&path, lines.concat()).unwrap();
        verify(&[path]).map_err(|broken| broken.to_string())
    }

    #[test]
    fn each_change_of_a_file_shows_where_it_is() {
        let all = chain(20);
        let whole = verified(&all).unwrap();
        assert_eq!((whole.lines, whole.first, whole.last), (20, 1, 20));
        let broken = |change: &dyn Fn(&mut Vec<String>)| {
            let mut lines = all.clone();
            change(&mut lines);
            let why = verified(&lines).unwrap_err();
            let (line, what) = why.split_once("audit:").unwrap().1.split_once(": ").unwrap();
            (line.parse::<u64>().unwrap(), what.to_string())
        };
        let missing = "2 lines are missing before this one, number 8";
        assert_eq!(broken(&|of| drop(of.drain(5..7))), (6, missing.into()));
        let changed = |of: &mut Vec<String>| of[9] = of[9].replace("act 9", "act 8");
        assert_eq!(
            broken(&changed),
            (11, "the line before this one, number 10, was changed".into())
        );
        assert_eq!(broken(&|of| of.swap(3, 4)).0, 4);
        let twice = |of: &mut Vec<String>| of.insert(4, of[3].clone());
        assert_eq!(broken(&twice), (5, "this line has the number 4, and 5 is next".into()));
        assert_eq!(broken(&|of| of[12].insert(0, ' ')).0, 14);
        assert_eq!(broken(&|of| of[12] = "{}\n".into()).0, 13);
        assert_eq!(
            broken(&|of| assert_eq!(of[19].pop(), Some('\n'))),
            (20, "this line is cut off, or too long".into())
        );
        let other = Chain::new().next("srv", &Entry { wall_ns: 1, ..Entry::default() });
        assert_eq!(
            broken(&|of| of[0] = other.clone()),
            (1, "this is no first line of a chain".into())
        );
        // What another file goes on with.
        assert_eq!(verified(&all[4..]).unwrap().first, 5);
        assert_eq!(verified(&[]).unwrap_err(), "there is no line");
    }

    #[test]
    fn any_byte_that_changes_shows_but_for_the_last_line() {
        let all = chain(3).concat().into_bytes();
        let last = all.len() - chain(3)[2].len();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        for at in 0..last {
            let mut bytes = all.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(verify(&[&path]).is_err(), "byte {at}");
        }
    }
}
