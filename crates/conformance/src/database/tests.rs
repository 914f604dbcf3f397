use std::fs::File;
use std::os::unix::fs::FileExt;

use aquifer_rig::work::WorkDir;

use super::*;
use crate::workload::acked;

/// Runs `count` transactions on this machine.
fn database(scratch: &Scratch, mode: &str, count: u64) -> std::path::PathBuf {
    let program = scratch.join("transactions");
    std::fs::write(&program, include_bytes!("transactions.sh")).unwrap();
    let file = scratch.join(mode);
    let run = Invocation::new("sh").arg(&program).arg(&file).args([mode, &count.to_string()]);
    let said = run.check(MINUTE).unwrap().text();
    assert!(said.starts_with(mode), "{said}");
    assert_eq!(acked(&said), Some(count - 1), "{said}");
    file
}

fn sql(file: &Path, sql: &str) {
    Invocation::tool("sqlite3", "guest").unwrap().arg(file).arg(sql).check(MINUTE).unwrap();
}

#[test]
fn committed_transactions_are_verified_and_what_is_missing_or_wrong_is_found() {
    let scratch = WorkDir::open().unwrap().scratch("database").unwrap();
    let keep = KEEP.unsigned_abs();
    let few = check(&database(&scratch, "truncate", 20), 19).unwrap();
    assert_eq!(few, Checked { committed: 20, entries: 20 });
    let told = keep + 4;
    let file = database(&scratch, "wal", told + 1);
    let checked = check(&file, told).unwrap();
    assert_eq!(checked, Checked { committed: told + 1, entries: keep });
    let fails = |what: &str| {
        let error = check(&file, told).unwrap_err();
        assert!(matches!(error, Error::Mismatch(_)), "{what}: {error}");
    };
    assert!(check(&file, told + 1).is_err(), "one that was never committed");
    let at = checked.committed - 10;
    sql(&file, &format!("UPDATE entries SET content = content || '!' WHERE number = {at}"));
    fails("content");
    sql(&file, &format!("UPDATE entries SET content = rtrim(content, '!') WHERE number = {at}"));
    check(&file, told).unwrap();
    sql(&file, "UPDATE accounts SET balance = balance + 1 WHERE id = 5");
    fails("half a transfer");
    sql(&file, "UPDATE accounts SET balance = balance - 1, moves = moves - 2 WHERE id = 5");
    fails("a transfer that is missing");
    sql(&file, "UPDATE accounts SET moves = moves + 2 WHERE id = 5");
    check(&file, told).unwrap();
    sql(&file, &format!("DELETE FROM entries WHERE number = {at}"));
    fails("an entry");
    let damaged = File::options().write(true).open(&file).unwrap();
    damaged.write_all_at(&[0xff; 4096], 4096).unwrap();
    fails("a page");
}
