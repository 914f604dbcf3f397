//! Creating, opening, appending, truncating.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use rustix::io::Errno;

use super::{Check, done, expect, expect_errno};
use crate::workload::{drop_cache, mapping::Mapping};
use crate::{Error, Result};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "exclusive_create", run: exclusive_create },
    Check { name: "exclusive_create_has_one_winner", run: one_winner },
    Check { name: "append_from_many", run: append_from_many },
    Check { name: "truncate_on_open", run: truncate_on_open },
    Check { name: "grow_and_cut", run: grow_and_cut },
    Check { name: "hole_between_writes", run: hole_between_writes },
    Check { name: "synchronous_write", run: synchronous_write },
    Check { name: "mapping_is_the_file", run: mapping },
    Check { name: "close_then_open_sees_all", run: close_then_open },
];

fn exclusive_create(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let create = |mode| File::options().write(true).create_new(true).mode(mode).open(&path);
    let mut file = done("first", create(0o600))?;
    done("write", file.write_all(b"mine"))?;
    expect_errno("second", create(0o666), &[Errno::EXIST])?;
    expect("content", done("read", fs::read_to_string(&path))?, "mine".into())?;
    // An exclusive CREATE has no attributes; the client must set the mode in a second call.
    let mode = std::os::unix::fs::MetadataExt::mode(&done("stat", fs::metadata(&path))?);
    expect("mode", mode & 0o7777, 0o600)?;
    let linked = dir.join("link");
    done("symlink", std::os::unix::fs::symlink("nowhere", &linked))?;
    let through = File::options().write(true).create_new(true).open(&linked);
    expect_errno("through a dangling link", through, &[Errno::EXIST])
}

fn one_winner(dir: &Path) -> Result<()> {
    for round in 0..8 {
        let path = dir.join(format!("lock{round}"));
        let winners: usize = thread::scope(|scope| {
            let create = || File::options().write(true).create_new(true).open(&path).is_ok();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
            threads.into_iter().filter_map(|t| t.join().ok()).filter(|won| *won).count()
        });
        expect("winners", winners, 1)?;
    }
    Ok(())
}

fn append_from_many(dir: &Path) -> Result<()> {
    let path = dir.join("log");
    let writers: Vec<Result<()>> = thread::scope(|scope| {
        let append = |writer: u32| {
            let path = &path;
            move || -> Result<()> {
                let opened = File::options().append(true).create(true).open(path);
                let mut file = done("open", opened)?;
                for line in 0..50 {
                    done("append", file.write_all(format!("{writer} {line:03}\n").as_bytes()))?;
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..4).map(|writer| scope.spawn(append(writer))).collect();
        let panicked = || Err(Error::Malformed("a writer panicked".into()));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
    });
    writers.into_iter().collect::<Result<()>>()?;
    drop_cache(&done("open", File::open(&path))?)?;
    let text = done("read", fs::read_to_string(&path))?;
    let mut lines: Vec<&str> = text.lines().collect();
    expect("lines", lines.len(), 200)?;
    // Each writer's own lines are in order; a stable sort by writer shows that.
    lines.sort_by_key(|line| line.split(' ').next());
    let expected: Vec<String> =
        (0..4).flat_map(|w| (0..50).map(move |l| format!("{w} {l:03}"))).collect();
    expect(
        "all lines, in each writer's order",
        lines,
        expected.iter().map(String::as_str).collect(),
    )
}

fn truncate_on_open(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    done("write", fs::write(&path, "long content"))?;
    done("open", File::create(&path))?;
    expect("size", done("stat", fs::metadata(&path))?.len(), 0)?;
    done("write", fs::write(&path, "short"))?;
    expect("content", done("read", fs::read_to_string(&path))?, "short".into())
}

fn grow_and_cut(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let file = done("open", file)?;
    done("write", file.write_all_at(&[0xaa; 10_000], 0))?;
    done("cut", file.set_len(5_000))?;
    done("grow", file.set_len(12_000))?;
    drop_cache(&file)?;
    let content = done("read", fs::read(&path))?;
    expect("size", content.len(), 12_000)?;
    let (kept, zeros) = content.split_at(5_000);
    expect("kept", kept.iter().all(|byte| *byte == 0xaa), true)?;
    expect("what was cut off stays zero", zeros.iter().all(|byte| *byte == 0), true)
}

fn hole_between_writes(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let file = done("create", File::create(&path))?;
    done("write", file.write_all_at(b"end", 1_000_000))?;
    done("write", file.write_all_at(b"start", 0))?;
    done("fsync", file.sync_all())?;
    let content = done("read", fs::read(&path))?;
    expect("size", content.len(), 1_000_003)?;
    let hole = content.get(5..1_000_000).unwrap_or_default();
    expect("hole", hole.iter().all(|byte| *byte == 0), true)
}

fn synchronous_write(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let flags = rustix::fs::OFlags::SYNC.bits();
    let flags = i32::try_from(flags).map_err(|_| Error::Malformed("O_SYNC".into()))?;
    let file = File::options().write(true).create_new(true).custom_flags(flags).open(&path);
    let file = done("open", file)?;
    for block in 0..16_u8 {
        let content = [block; 3000];
        done("write", file.write_all_at(&content, u64::from(block) * 3000))?;
    }
    drop_cache(&file)?;
    let content = done("read", fs::read(&path))?;
    let right = content.chunks(3000).zip(0..16_u8).all(|(c, block)| c.iter().all(|b| *b == block));
    expect("content", (content.len(), right), (48_000, true))
}

fn mapping(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let file = done("open", file)?;
    done("write", file.write_all_at(&[1; 3 * 4096], 0))?;
    let mut mapped = Mapping::new(&file, 4096, 2 * 4096)?;
    let mut found = [0; 4];
    mapped.read(100, &mut found)?;
    expect("written bytes in the mapping", found, [1; 4])?;
    mapped.write(4094, &[2; 4])?;
    mapped.sync()?;
    drop_cache(&file)?;
    let content = done("read", fs::read(&path))?;
    expect("size", content.len(), 3 * 4096)?;
    let changed: Vec<usize> =
        (0..content.len()).filter(|at| content.get(*at) != Some(&1)).collect();
    expect("mapped bytes in the file", changed, (8190..8194).collect())?;
    done("cut", file.set_len(0))?;
    expect("size with a mapping", done("stat", file.metadata())?.len(), 0)
}

fn close_then_open(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    for round in 0..20_u8 {
        let content = vec![round; 100 + usize::from(round) * 1000];
        done("write", fs::write(&path, &content))?;
        let found = done("read", fs::read(&path))?;
        expect("content of the last close", found == content, true)?;
    }
    Ok(())
}
