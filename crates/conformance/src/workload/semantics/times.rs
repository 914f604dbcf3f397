//! Times that a call sets, and times that change automatically.

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Check, done, expect};
use crate::Result;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "times_are_set_exactly", run: set_exactly },
    Check { name: "write_changes_mtime_and_ctime", run: write_changes },
    Check { name: "chmod_changes_ctime_only", run: chmod_changes },
    Check { name: "names_change_the_directory", run: names_change },
    Check { name: "time_is_now", run: is_now },
];

/// Longer than the coarsest clock of a server (10 ms tick).
const TICK: Duration = Duration::from_millis(30);

fn set_exactly(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let file = done("create", File::create(&path))?;
    let seconds = [0, 1, 1_000_000_000, 2_147_483_647, 4_000_000_000];
    for (second, nano) in seconds.into_iter().zip([0, 999_999_999, 1, 500_000_000, 123_456_789]) {
        let time = UNIX_EPOCH + Duration::new(second, nano);
        let access = time + Duration::from_secs(1);
        let times = FileTimes::new().set_modified(time).set_accessed(access);
        done("utimens", file.set_times(times))?;
        let metadata = done("stat", fs::metadata(&path))?;
        expect("mtime", done("mtime", metadata.modified())?, time)?;
        expect("atime", done("atime", metadata.accessed())?, access)?;
    }
    Ok(())
}

/// mtime and ctime in nanoseconds.
fn stamps(path: &Path) -> Result<(i128, i128)> {
    let metadata = done("stat", fs::metadata(path))?;
    let nanos = |second: i64, nano: i64| i128::from(second) * 1_000_000_000 + i128::from(nano);
    let mtime = nanos(metadata.mtime(), metadata.mtime_nsec());
    Ok((mtime, nanos(metadata.ctime(), metadata.ctime_nsec())))
}

fn write_changes(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    done("write", fs::write(&path, "x"))?;
    let before = stamps(&path)?;
    thread::sleep(TICK);
    let mut file = done("open", File::options().append(true).open(&path))?;
    done("append", file.write_all(b"y"))?;
    done("fsync", file.sync_all())?;
    let after = stamps(&path)?;
    expect("both later", after.0 > before.0 && after.1 > before.1, true)?;
    thread::sleep(TICK);
    done("truncate", file.set_len(0))?;
    let cut = stamps(&path)?;
    expect("both later after truncate", cut.0 > after.0 && cut.1 > after.1, true)
}

fn chmod_changes(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    done("write", fs::write(&path, "x"))?;
    let before = stamps(&path)?;
    thread::sleep(TICK);
    done("chmod", fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))?;
    let after = stamps(&path)?;
    expect("mtime stays", after.0, before.0)?;
    expect("ctime later", after.1 > before.1, true)?;
    thread::sleep(TICK);
    done("link", fs::hard_link(&path, dir.join("link")))?;
    expect("ctime later after link", stamps(&path)?.1 > after.1, true)
}

fn names_change(dir: &Path) -> Result<()> {
    type Step = (&'static str, fn(&Path) -> std::io::Result<()>);
    let steps: [Step; 4] = [
        ("create", |dir| fs::write(dir.join("a"), "")),
        ("rename", |dir| fs::rename(dir.join("a"), dir.join("b"))),
        ("link", |dir| fs::hard_link(dir.join("b"), dir.join("c"))),
        ("remove", |dir| fs::remove_file(dir.join("c"))),
    ];
    for (what, step) in steps {
        let before = stamps(dir)?;
        thread::sleep(TICK);
        done(what, step(dir))?;
        let after = stamps(dir)?;
        expect(what, after.0 > before.0 && after.1 > before.1, true)?;
    }
    Ok(())
}

fn is_now(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    done("write", fs::write(&path, ""))?;
    let modified = done("stat", fs::metadata(&path).and_then(|m| m.modified()))?;
    let now = SystemTime::now();
    let apart = now.duration_since(modified).or_else(|_| modified.duration_since(now));
    // Client and server have their own clocks. An emulated guest's falls behind by a minute or more
    // where other tests take its processors; a wrong unit or epoch would be years.
    let near = apart.is_ok_and(|apart| apart < Duration::from_secs(600));
    expect("time of a new file is about now", near, true)
}
