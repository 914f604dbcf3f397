//! A database in a guest, which reports every commit to the host, and the check of its disk after a
//! power cut: SQLite with `synchronous=FULL` on ext4.
//!
//! Invariants: the disk is checked from outside, without its guest and without mounting it. Its
//! file system may need its journal, and the repairs that every boot makes, but nothing else. Then
//! every transaction up to the last reported one is in the database, whole. So is each later one
//! that was not reported: each has changed the accounts exactly once.

use std::path::Path;
use std::time::Duration;

use aquifer_rig::process::Invocation;
use aquifer_rig::work::Scratch;

use crate::guest::initramfs::{GuestFile, program_files};
use crate::{Error, Result};

/// The content of a checked database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Transactions committed: numbers below this.
    pub committed: u64,
    /// Entries verified byte by byte: those of the last transactions.
    pub entries: u64,
}

/// Files that a guest needs: SQLite's shell, and `transactions FILE JOURNAL_MODE` in
/// /usr/local/bin.
///
/// # Errors
/// [`Error::MissingTool`].
pub fn files() -> Result<Vec<GuestFile>> {
    let mut files = program_files("sqlite3", "guest")?;
    let content = include_bytes!("database/transactions.sh").to_vec();
    files.push(GuestFile { path: PROGRAM.into(), mode: 0o755, content });
    Ok(files)
}

/// The program that runs transactions.
pub const PROGRAM: &str = "/usr/local/bin/transactions";

/// Checks `image`, an ext4 with a database at `path`, as a power cut has left it. First its file
/// system must be sound, then it must hold all transactions up to `acked`. Repairs the file system
/// in `image`.
///
/// # Errors
/// [`Error::Failed`] if the file system is damaged; [`Error::Mismatch`] if a transaction is lost.
pub fn check_image(image: &Path, path: &str, acked: u64, scratch: &Scratch) -> Result<Checked> {
    let fsck = |how: &[&str]| {
        let e2fsck = Invocation::tool("e2fsck", "build")?.args(how).arg(image);
        let outcome = e2fsck.run(MINUTE)?;
        // 1: repaired, only what the option allows (e2fsck(8)).
        let well = matches!(outcome.status.code(), Some(0 | 1));
        match well && (how != ["-f", "-n"] || outcome.status.success()) {
            true => Ok(()),
            false => Err(Error::Failed { what: e2fsck.line(), said: outcome.said() }),
        }
    };
    fsck(&["-E", "journal_only", "-y"])?;
    // Removes files that were unlinked while open; it refuses to repair damage.
    fsck(&["-f", "-p"])?;
    fsck(&["-f", "-n"])?;
    let copy = scratch.dir("database")?;
    for suffix in ["", "-wal", "-journal"] {
        let to = copy.join(format!("copy{suffix}"));
        if to.exists() {
            std::fs::remove_file(&to).map_err(Error::at("remove", &to))?;
        }
        let dump = format!("dump {path}{suffix} {}", to.display());
        // debugfs reports a missing file, but does not fail.
        Invocation::tool("debugfs", "build")?.args(["-R", &dump]).arg(image).check(MINUTE)?;
    }
    check(&copy.join("copy"), acked)
}

/// Checks the database `file`, and recovers it as SQLite does.
///
/// # Errors
/// [`Error::Mismatch`] if a transaction is lost or not whole.
pub fn check(file: &Path, acked: u64) -> Result<Checked> {
    let sqlite = Invocation::tool("sqlite3", "guest")?.args(["-batch", "-bail"]).arg(file);
    // The damage may be such that SQLite gives up.
    let said = sqlite.arg(include_str!("database/check.sql")).run(MINUTE)?.said();
    let mut lines = said.lines();
    let integrity = lines.next().unwrap_or_default().to_owned();
    let numbers: Vec<i64> = lines.map_while(|line| line.trim().parse().ok()).collect();
    let [first, last, entries, wrong, balance, moves] = *numbers else {
        return Err(Error::Mismatch(format!("the database: {said}")));
    };
    let committed = last.saturating_add(1);
    let whole = integrity == "ok"
        && wrong == 0
        && balance == 0
        && moves == committed.saturating_mul(2)
        && first == committed.saturating_sub(KEEP).max(0)
        && entries == committed.saturating_sub(first);
    let committed = u64::try_from(committed).unwrap_or(0);
    if !whole || committed <= acked {
        let what = format!(
            "transaction {acked} was committed; of {committed}: entries from {first} on, {entries} \
             of them, {wrong} wrong; accounts {balance}, moves {moves}; integrity: {integrity}"
        );
        return Err(Error::Mismatch(what));
    }
    Ok(Checked { committed, entries: u64::try_from(entries).unwrap_or(0) })
}

/// Entries that `transactions` keeps.
const KEEP: i64 = 200;
const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
