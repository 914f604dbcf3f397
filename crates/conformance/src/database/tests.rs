use super::*;
use crate::work::WorkDir;
use crate::workload::acked;

/// Runs transactions on this machine until `last` is committed.
fn database(scratch: &Scratch, mode: &str, last: u64) -> (std::path::PathBuf, u64) {
    let program = scratch.join("transactions");
    std::fs::write(&program, include_bytes!("transactions.sh")).unwrap();
    let (file, log) = (scratch.join(mode), scratch.join("log"));
    let running = Invocation::new("sh").arg(&program).arg(&file).arg(mode).spawn(&log).unwrap();
    let told = || acked(&std::fs::read_to_string(&log).unwrap());
    let start = std::time::Instant::now();
    while told() < Some(last) {
        assert!(running.is_running() && start.elapsed() < MINUTE, "{}", running.said());
        std::thread::sleep(Duration::from_millis(5));
    }
    // Its shell is killed, SQLite finds the end of what it was told.
    drop(running);
    (file, told().unwrap())
}

fn sql(file: &Path, sql: &str) {
    Invocation::tool("sqlite3", "guest").unwrap().arg(file).arg(sql).check(MINUTE).unwrap();
}

#[test]
fn committed_transactions_are_verified_and_what_is_missing_or_wrong_is_found() {
    let scratch = WorkDir::open().unwrap().scratch("database").unwrap();
    let (file, told) = database(&scratch, "truncate", KEEP.unsigned_abs() + 20);
    // What was still in its pipe was committed meanwhile.
    let wait = std::time::Instant::now();
    let checked = loop {
        match check(&file, told) {
            Err(Error::Failed { said, .. }) if said.contains("locked") => {}
            checked => break checked.unwrap(),
        }
        assert!(wait.elapsed() < MINUTE);
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(checked.committed > told && checked.entries == KEEP.unsigned_abs(), "{checked:?}");
    let fails = |what: &str| {
        let error = check(&file, told).unwrap_err();
        assert!(matches!(error, Error::Mismatch(_)), "{what}: {error}");
    };
    assert!(check(&file, checked.committed).is_err(), "one that was never committed");
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
}
