//! Names, directories, special files.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;

use super::{Check, done, expect, expect_errno};
use crate::Result;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "long_names", run: long_names },
    Check { name: "strange_names", run: strange_names },
    Check { name: "case_matters", run: case_matters },
    Check { name: "missing_and_not_a_directory", run: missing },
    Check { name: "make_and_remove_directories", run: directories },
    Check { name: "deep_directories", run: deep },
    Check { name: "fifo", run: fifo },
    Check { name: "capacity", run: capacity },
];

fn long_names(dir: &Path) -> Result<()> {
    let longest = "n".repeat(255);
    done("255 bytes", fs::write(dir.join(&longest), "x"))?;
    expect("read back", done("read", fs::read_to_string(dir.join(&longest)))?, "x".into())?;
    let too_long = fs::write(dir.join("n".repeat(256)), "x");
    expect_errno("256 bytes", too_long, &[Errno::NAMETOOLONG])
}

fn strange_names(dir: &Path) -> Result<()> {
    let strange = ["...", " ", "a b", "\n", "-rf", "\u{e4}\u{1f600}", "a\\b", "\"'`$", "\u{7f}"];
    for name in strange {
        done(&format!("write {name:?}"), fs::write(dir.join(name), name))?;
    }
    for name in strange {
        let content = done(&format!("read {name:?}"), fs::read_to_string(dir.join(name)))?;
        expect("content", content.as_str(), name)?;
    }
    // Bytes that are no UTF-8 are a valid name as well.
    let raw = std::ffi::OsString::from(std::path::PathBuf::from("raw"));
    let mut bytes = std::os::unix::ffi::OsStringExt::into_vec(raw);
    bytes.extend([0xff, 0xfe]);
    let raw: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(bytes);
    done("write raw bytes", fs::write(dir.join(&raw), ""))?;
    let mut listed = Vec::new();
    for entry in done("list", fs::read_dir(dir))? {
        listed.push(done("list", entry)?.file_name());
    }
    expect("raw bytes listed", listed.contains(&raw), true)?;
    expect("names listed", listed.len(), strange.len() + 1)
}

fn case_matters(dir: &Path) -> Result<()> {
    done("write", fs::write(dir.join("Name"), "upper"))?;
    done("write", fs::write(dir.join("name"), "lower"))?;
    expect("upper", done("read", fs::read_to_string(dir.join("Name")))?, "upper".into())
}

fn missing(dir: &Path) -> Result<()> {
    done("write", fs::write(dir.join("file"), ""))?;
    expect_errno("nothing", fs::read(dir.join("none")), &[Errno::NOENT])?;
    expect_errno("below nothing", fs::write(dir.join("none/x"), ""), &[Errno::NOENT])?;
    expect_errno("below a file", fs::read(dir.join("file/x")), &[Errno::NOTDIR])?;
    expect_errno("list a file", fs::read_dir(dir.join("file")), &[Errno::NOTDIR])?;
    expect_errno("remove nothing", fs::remove_file(dir.join("none")), &[Errno::NOENT])
}

fn directories(dir: &Path) -> Result<()> {
    let sub = dir.join("sub");
    done("mkdir", fs::create_dir(&sub))?;
    expect_errno("again", fs::create_dir(&sub), &[Errno::EXIST])?;
    done("write", fs::write(sub.join("file"), ""))?;
    let full = [Errno::NOTEMPTY, Errno::EXIST];
    expect_errno("rmdir of a full one", fs::remove_dir(&sub), &full)?;
    // POSIX says EPERM, Linux EISDIR.
    let unlink = [Errno::ISDIR, Errno::PERM];
    expect_errno("unlink of a directory", fs::remove_file(&sub), &unlink)?;
    expect_errno("rmdir of a file", fs::remove_dir(sub.join("file")), &[Errno::NOTDIR])?;
    done("remove", fs::remove_file(sub.join("file")))?;
    let links = done("stat", fs::metadata(&sub))?.nlink();
    done("mkdir", fs::create_dir(sub.join("below")))?;
    let expected = if links == 1 { 1 } else { links + 1 };
    expect("links", done("stat", fs::metadata(&sub))?.nlink(), expected)?;
    done("rmdir", fs::remove_dir(sub.join("below")))?;
    done("rmdir", fs::remove_dir(&sub))?;
    expect_errno("gone", fs::metadata(&sub), &[Errno::NOENT])
}

fn deep(dir: &Path) -> Result<()> {
    let deep = dir.join(["level"; 40].join("/"));
    done("mkdir -p", fs::create_dir_all(&deep))?;
    done("write", fs::write(deep.join("file"), "bottom"))?;
    let content = fs::read_to_string(deep.join("../level/../../level/level/file"));
    expect("by dots", done("read", content)?, "bottom".into())
}

fn fifo(dir: &Path) -> Result<()> {
    let path = dir.join("fifo");
    let mode = Mode::from_raw_mode(0o640);
    let made = mknodat(CWD, &path, FileType::Fifo, mode, 0).map_err(Into::into);
    done("mkfifo", made)?;
    let metadata = done("stat", fs::metadata(&path))?;
    expect("is a fifo", metadata.file_type().is_fifo(), true)?;
    expect("size", metadata.len(), 0)
}

fn capacity(dir: &Path) -> Result<()> {
    let space = rustix::fs::statvfs(dir).map_err(Into::into);
    let space = done("statvfs", space)?;
    // The computation of XCP-ng's storage driver: size = blocks * frsize, used = blocks - bfree.
    expect("blocks and fragment size", space.f_blocks > 0 && space.f_frsize >= 512, true)?;
    let ordered = space.f_bavail <= space.f_bfree && space.f_bfree <= space.f_blocks;
    expect("available <= free <= all", ordered, true)?;
    let content = vec![0x5a; 8 << 20];
    done("write", fs::write(dir.join("file"), &content))?;
    let file = done("open", fs::File::open(dir.join("file")))?;
    done("fsync", file.sync_all())?;
    let used = done("stat", file.metadata())?.blocks() * 512;
    // Compression may make it smaller, but never zero; overhead is less than the same again.
    expect("blocks of a full file are counted", used > 0 && used <= 16 << 20, true)
}
