//! Hard and symbolic links, rename.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Check, done, expect, expect_errno};
use crate::Result;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "rename_moves", run: rename_moves },
    Check { name: "rename_over_file", run: rename_over_file },
    Check { name: "rename_over_open_file", run: rename_over_open_file },
    Check { name: "rename_of_open_file", run: rename_of_open_file },
    Check { name: "rename_to_own_link_does_nothing", run: rename_to_own_link },
    Check { name: "rename_directories", run: rename_directories },
    Check { name: "hard_link", run: hard_link },
    Check { name: "hard_link_refused", run: hard_link_refused },
    Check { name: "symbolic_link", run: symbolic_link },
    Check { name: "unlink_open_file", run: unlink_open_file },
];

fn rename_moves(dir: &Path) -> Result<()> {
    let (from, to) = (dir.join("from"), dir.join("sub/to"));
    done("mkdir", fs::create_dir(dir.join("sub")))?;
    done("write", fs::write(&from, "content"))?;
    let inode = done("stat", fs::metadata(&from))?.ino();
    done("rename", fs::rename(&from, &to))?;
    expect_errno("old name", fs::metadata(&from), &[Errno::NOENT])?;
    expect("inode", done("stat", fs::metadata(&to))?.ino(), inode)?;
    expect("content", done("read", fs::read_to_string(&to))?, "content".into())?;
    expect_errno("missing source", fs::rename(&from, &to), &[Errno::NOENT])
}

fn rename_over_file(dir: &Path) -> Result<()> {
    let (new, old) = (dir.join("new"), dir.join("old"));
    done("write", fs::write(&old, "old"))?;
    done("link", fs::hard_link(&old, dir.join("second")))?;
    done("write", fs::write(&new, "new"))?;
    done("rename", fs::rename(&new, &old))?;
    expect("content", done("read", fs::read_to_string(&old))?, "new".into())?;
    let second = dir.join("second");
    expect("content by the other name", done("read", fs::read_to_string(&second))?, "old".into())?;
    expect("links of the replaced file", done("stat", fs::metadata(&second))?.nlink(), 1)
}

fn rename_over_open_file(dir: &Path) -> Result<()> {
    let (new, old) = (dir.join("new"), dir.join("old"));
    done("write", fs::write(&old, "old content"))?;
    done("write", fs::write(&new, "new"))?;
    let open = done("open", File::options().read(true).write(true).open(&old))?;
    done("rename", fs::rename(&new, &old))?;
    expect("content", done("read", fs::read_to_string(&old))?, "new".into())?;
    // NFS has no open files: the client first renames the target away (silly rename).
    let mut kept = [0; 11];
    done("read replaced file", open.read_exact_at(&mut kept, 0))?;
    expect("replaced file", &kept, b"old content")
}

fn rename_of_open_file(dir: &Path) -> Result<()> {
    let mut file = done("create", File::create(dir.join("a")))?;
    done("write", file.write_all(b"one "))?;
    done("rename", fs::rename(dir.join("a"), dir.join("b")))?;
    done("write", file.write_all(b"two"))?;
    done("fsync", file.sync_all())?;
    expect("content", done("read", fs::read_to_string(dir.join("b")))?, "one two".into())
}

fn rename_to_own_link(dir: &Path) -> Result<()> {
    let (a, b) = (dir.join("a"), dir.join("b"));
    done("write", fs::write(&a, "x"))?;
    done("link", fs::hard_link(&a, &b))?;
    // POSIX rename(): if both names are of one file, nothing happens, and the call succeeds.
    done("rename", fs::rename(&a, &b))?;
    expect("links", done("stat", fs::metadata(&a))?.nlink(), 2)
}

fn rename_directories(dir: &Path) -> Result<()> {
    let (a, b) = (dir.join("a"), dir.join("b"));
    for made in [&a, &b, &a.join("sub")] {
        done("mkdir", fs::create_dir(made))?;
    }
    done("write", fs::write(b.join("file"), ""))?;
    let into_itself = fs::rename(&a, a.join("sub/a"));
    expect_errno("into itself", into_itself, &[Errno::INVAL])?;
    let full = [Errno::NOTEMPTY, Errno::EXIST];
    expect_errno("over a full one", fs::rename(&a, &b), &full)?;
    done("write", fs::write(dir.join("file"), ""))?;
    expect_errno("over a file", fs::rename(&a, dir.join("file")), &[Errno::NOTDIR])?;
    expect_errno("file over it", fs::rename(dir.join("file"), &a), &[Errno::ISDIR])?;
    done("remove", fs::remove_file(b.join("file")))?;
    let links = done("stat", fs::metadata(dir))?.nlink();
    done("over an empty one", fs::rename(&a, &b))?;
    expect("moved", done("stat", fs::metadata(b.join("sub")))?.is_dir(), true)?;
    // A directory counts its sub-directories, or has link count 1 on file systems that do not count
    // them (btrfs).
    let expected = if links == 1 { 1 } else { links - 1 };
    expect("links of the parent", done("stat", fs::metadata(dir))?.nlink(), expected)
}

fn hard_link(dir: &Path) -> Result<()> {
    let (a, b) = (dir.join("a"), dir.join("b"));
    done("write", fs::write(&a, "one"))?;
    done("link", fs::hard_link(&a, &b))?;
    let (meta_a, meta_b) = (done("stat", fs::metadata(&a))?, done("stat", fs::metadata(&b))?);
    expect("inode", meta_b.ino(), meta_a.ino())?;
    expect("links", (meta_a.nlink(), meta_b.nlink()), (2, 2))?;
    done("write", fs::write(&b, "other"))?;
    expect("content", done("read", fs::read_to_string(&a))?, "other".into())?;
    done("remove", fs::remove_file(&a))?;
    expect("links after remove", done("stat", fs::metadata(&b))?.nlink(), 1)?;
    expect("content after remove", done("read", fs::read_to_string(&b))?, "other".into())
}

fn hard_link_refused(dir: &Path) -> Result<()> {
    let (a, b) = (dir.join("a"), dir.join("b"));
    done("write", fs::write(&a, ""))?;
    done("write", fs::write(&b, ""))?;
    done("mkdir", fs::create_dir(dir.join("sub")))?;
    expect_errno("over a name", fs::hard_link(&a, &b), &[Errno::EXIST])?;
    let directory = fs::hard_link(dir.join("sub"), dir.join("c"));
    expect_errno("of a directory", directory, &[Errno::PERM])?;
    let missing = fs::hard_link(dir.join("none"), dir.join("c"));
    expect_errno("of nothing", missing, &[Errno::NOENT])
}

fn symbolic_link(dir: &Path) -> Result<()> {
    let link = dir.join("link");
    done("symlink", symlink("target", &link))?;
    expect("text", done("readlink", fs::read_link(&link))?, "target".into())?;
    expect_errno("dangling", fs::read(&link), &[Errno::NOENT])?;
    done("write through", fs::write(&link, "x"))?;
    expect("target", done("read", fs::read_to_string(dir.join("target")))?, "x".into())?;
    let metadata = done("lstat", fs::symlink_metadata(&link))?;
    expect("kind and size", (metadata.is_symlink(), metadata.len()), (true, 6))?;
    expect_errno("again", symlink("other", &link), &[Errno::EXIST])?;
    let long = "d/".repeat(500);
    done("long symlink", symlink(&long, dir.join("long")))?;
    expect("long text", done("readlink", fs::read_link(dir.join("long")))?, long.into())?;
    done("loop", symlink("loop", dir.join("loop")))?;
    expect_errno("loop", fs::read(dir.join("loop")), &[Errno::LOOP])?;
    done("remove", fs::remove_file(&link))?;
    expect("target stays", dir.join("target").exists(), true)
}

fn unlink_open_file(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let mut file =
        done("open", File::options().read(true).write(true).create_new(true).open(&path))?;
    done("write", file.write_all(b"before "))?;
    done("unlink", fs::remove_file(&path))?;
    expect_errno("name", fs::metadata(&path), &[Errno::NOENT])?;
    done("write after", file.write_all(b"after"))?;
    super::super::drop_cache(&file)?;
    let mut content = String::new();
    let mut again = done("dup", file.try_clone())?;
    done("seek", std::io::Seek::rewind(&mut again))?;
    done("read after", again.read_to_string(&mut content))?;
    expect("content", content, "before after".into())?;
    drop((file, again));
    // Over NFS the file had a name ".nfs..." until now. The client removes it after the last close,
    // which does not wait for that.
    let begun = Instant::now();
    let mut left = names(dir)?;
    while left > 0 && begun.elapsed() < SOON {
        thread::sleep(Duration::from_millis(50));
        left = names(dir)?;
    }
    expect("names left", left, 0)
}

/// The number of names in a directory.
fn names(dir: &Path) -> Result<usize> {
    Ok(done("list", fs::read_dir(dir))?.count())
}

/// Far more than a client needs to send a call again.
const SOON: Duration = Duration::from_secs(30);
