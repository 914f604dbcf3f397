//! A file of lines.
//!
//! The chain goes on over a restart: the last line is read back. Where it cannot go on, since the
//! file is gone or its end was cut, a new one begins and says why in its first line. If the file is
//! moved away while the daemon runs, as logrotate does, the chain goes on in a new file.
//!
//! Invariant: a line is there as a whole, or what is there of it is taken back with the next try.
//! What a power cut leaves of one is seen at the next start.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::destination::Sink;
use crate::line::{Chain, Entry, Kind, LINE_BYTES_MAX, Line};

#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    host: String,
    open: Option<Open>,
    /// Of the file before.
    before: Option<Chain>,
}

#[derive(Debug)]
struct Open {
    file: File,
    is: (u64, u64),
    /// As far as it was written here.
    bytes: u64,
    /// `Err`: a chain is to begin, and why.
    chain: Result<Chain, String>,
}

impl LogFile {
    pub fn new(path: &Path, host: &str) -> LogFile {
        LogFile { path: path.into(), host: host.into(), open: None, before: None }
    }

    /// The file, looked at once more.
    fn look(&mut self) -> io::Result<&mut Open> {
        let there = match std::fs::metadata(&self.path) {
            Ok(there) if !there.is_file() => {
                return Err(io::Error::other(format!("{} is no file", self.path.display())));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            there => there.ok(),
        };
        let mut open =
            self.open.take().filter(|open| Some(open.is) == there.as_ref().map(identity));
        if let (Some(open), Some(there)) = (&mut open, there)
            && there.len() != open.bytes
        {
            let (had, has) = (open.bytes, there.len());
            let why = format!("the file had {had} bytes, and has {has}: it was changed");
            (open.bytes, open.chain) = (has, Err(why));
        }
        let open = match open {
            Some(open) => open,
            None => Open::new(&self.path, self.before.take())?,
        };
        Ok(self.open.insert(open))
    }
}

impl Sink for LogFile {
    fn write(&mut self, entries: &[Arc<Entry>]) -> io::Result<()> {
        let host = self.host.clone();
        let open = self.look()?;
        let mut text = String::new();
        let mut chain = match open.chain.clone() {
            Ok(chain) => chain,
            Err(why) => {
                if open.is_cut()? {
                    text.push('\n');
                }
                let mut chain = Chain::new();
                let begin = Entry { kind: Kind::Begin, why, ..Entry::default() };
                text.push_str(&chain.next(&host, &begin.at_now()));
                chain
            }
        };
        entries.iter().for_each(|entry| text.push_str(&chain.next(&host, entry)));
        if let Err(error) = open.append(text.as_bytes()) {
            // What is there of it goes, now or at the next look.
            let _ = open.file.set_len(open.bytes);
            return Err(error);
        }
        open.bytes = open.bytes.saturating_add(text.len() as u64);
        open.chain = Ok(chain.clone());
        self.before = Some(chain);
        Ok(())
    }
}

impl Open {
    fn new(path: &Path, before: Option<Chain>) -> io::Result<Open> {
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
        if let Some(above) = path.parent() {
            // A new name in it is there after a power cut.
            File::open(above)?.sync_all()?;
        }
        let there = file.metadata()?;
        let mut open = Open {
            file,
            is: identity(&there),
            bytes: there.len(),
            chain: Err("there was no line before".into()),
        };
        open.chain = match (there.len(), before) {
            (0, Some(before)) => Ok(before),
            (0, None) => open.chain,
            _ => open.read_back()?,
        };
        Ok(open)
    }

    /// The chain that ends in the file, or why none does.
    fn read_back(&mut self) -> io::Result<Result<Chain, String>> {
        let end = self.end(LINE_BYTES_MAX as u64 + 2)?;
        let Some(whole) = end.strip_suffix(b"\n") else {
            return Ok(Err("the last line of the file was cut off".into()));
        };
        let line = whole.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(match serde_json::from_slice::<Line>(line) {
            Ok(read) => Ok(Chain::behind(read.seq, line)),
            Err(_) => Err("the last line of the file was none of an audit".into()),
        })
    }

    /// Whether its last line has no end.
    fn is_cut(&mut self) -> io::Result<bool> {
        Ok(self.end(1)?.last().is_some_and(|byte| *byte != b'\n'))
    }

    /// Its last bytes.
    fn end(&mut self, most: u64) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(self.bytes.saturating_sub(most)))?;
        let mut end = Vec::new();
        Read::by_ref(&mut self.file).take(most).read_to_end(&mut end)?;
        Ok(end)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }
}

fn identity(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::verify;

    fn act(text: &str) -> Arc<Entry> {
        Arc::new(Entry { act: text.into(), ..Entry::default() }.at_now())
    }

    fn lines(path: &Path) -> Vec<Line> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_chain_goes_on_over_restarts_and_in_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("audit.log"), dir.path().join("audit.log.1"));
        let mut last = 0;
        for life in 0..3 {
            let mut file = LogFile::new(&path, "srv");
            for at in 0..5 {
                file.write(&[act(&format!("{life} {at}")), act("more")]).unwrap();
            }
            last = lines(&path).last().unwrap().seq;
        }
        assert_eq!(last, 31, "one line more: the chain began");
        assert_eq!(verify(&[&path]).unwrap().lines, 31);
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut file = LogFile::new(&path, "srv");
        file.write(&[act("a")]).unwrap();
        std::fs::rename(&path, &old).unwrap();
        file.write(&[act("b")]).unwrap();
        assert_eq!(lines(&path)[0].seq, 33);
        assert_eq!(verify(&[&old, &path]).unwrap().lines, 33);
    }

    #[test]
    fn a_file_that_is_gone_or_cut_begins_a_chain_that_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let write = |text: &str| LogFile::new(&path, "srv").write(&[act(text)]).unwrap();
        write("a");
        let whole = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        write("b");
        let first = lines(&path).remove(0);
        assert_eq!((first.seq, first.kind), (1, Kind::Begin));
        assert_eq!(first.why, "there was no line before");
        // What a power cut leaves of a line.
        for bytes in [whole.len() - 1, whole.len() - 20] {
            std::fs::write(&path, &whole[..bytes]).unwrap();
            write("c");
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("the last line of the file was cut off"), "{text}");
            assert_eq!(text.lines().count(), 4, "{text}");
            let broken = verify(&[&path]).unwrap_err().to_string();
            assert!(broken.contains(":2:") || broken.contains(":3:"), "{broken}");
        }
        // Somebody takes the last line while the daemon runs.
        std::fs::remove_file(&path).unwrap();
        let mut file = LogFile::new(&path, "srv");
        file.write(&[act("a"), act("b")]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let (kept, _) = text.trim_end().rsplit_once('\n').unwrap();
        std::fs::write(&path, format!("{kept}\n")).unwrap();
        file.write(&[act("c")]).unwrap();
        let all = lines(&path);
        assert!(all[2].kind == Kind::Begin && all[2].why.contains("it was changed"));
        assert!(verify(&[&path]).unwrap_err().to_string().contains("it was changed"));
    }

    /// A line of the right number, by somebody who can write to the file.
    #[test]
    fn a_line_that_somebody_adds_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = LogFile::new(&path, "srv");
        file.write(&[act("a")]).unwrap();
        let mut others = LogFile::new(&path, "srv");
        others.write(&[act("never was")]).unwrap();
        assert_eq!(verify(&[&path]).unwrap().lines, 3);
        file.write(&[act("b")]).unwrap();
        let last = &lines(&path)[3];
        assert!(last.kind == Kind::Begin && last.why.contains("it was changed"), "{last:?}");
        assert!(verify(&[&path]).unwrap_err().to_string().contains("it was changed"));
    }

    #[test]
    fn what_is_no_file_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let error = LogFile::new(dir.path(), "srv").write(&[act("a")]).unwrap_err();
        assert!(error.to_string().contains("is no file"), "{error}");
        let gone = dir.path().join("none/audit.log");
        assert!(LogFile::new(&gone, "srv").write(&[act("a")]).is_err());
    }
}
