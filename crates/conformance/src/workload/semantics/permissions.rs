//! Owners, modes, and the rights of users.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

use rustix::io::Errno;

use super::{ALICE, BOB, Check, as_user, done, expect, expect_errno};
use crate::Result;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "mode_bits_stay", run: mode_bits },
    Check { name: "read_and_write_need_permission", run: read_and_write },
    Check { name: "names_need_permission_of_the_directory", run: directory_rights },
    Check { name: "group_permission", run: group_permission },
    Check { name: "sticky_directory", run: sticky },
    Check { name: "set_group_id_directory", run: set_group_id },
    Check { name: "only_the_owner_changes_mode", run: only_owner },
    Check { name: "write_clears_set_user_id", run: write_clears },
    Check { name: "open_file_stays_open", run: open_stays },
];

const DENIED: &[Errno] = &[Errno::ACCESS];
const NOT_OWNER: &[Errno] = &[Errno::PERM, Errno::ACCESS];

fn mode_of(path: &Path) -> Result<u32> {
    Ok(done("stat", fs::symlink_metadata(path))?.mode() & 0o7777)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    done("chmod", fs::set_permissions(path, Permissions::from_mode(mode)))
}

/// A file that belongs to a user and that user's own group.
fn file_of(path: &Path, user: u32, mode: u32) -> Result<()> {
    done("write", fs::write(path, "content"))?;
    done("chown", chown(path, Some(user), Some(user)))?;
    set_mode(path, mode)
}

fn mode_bits(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    done("write", fs::write(&path, ""))?;
    for mode in [0o0, 0o644, 0o777, 0o1777, 0o2755, 0o4755, 0o7777] {
        set_mode(&path, mode)?;
        expect("mode", mode_of(&path)?, mode)?;
    }
    done("mkdir", fs::DirBuilder::new().mode(0o700).create(dir.join("sub")))?;
    expect("mode of a directory", mode_of(&dir.join("sub"))?, 0o700)?;
    done("create", File::options().write(true).create_new(true).mode(0o751).open(dir.join("x")))?;
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    expect("mode of a new file", mode_of(&dir.join("x"))?, 0o751 & !umask.bits())?;
    done("chown", chown(&path, Some(ALICE), Some(BOB)))?;
    let metadata = done("stat", fs::metadata(&path))?;
    expect("owner and group", (metadata.uid(), metadata.gid()), (ALICE, BOB))
}

fn read_and_write(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let read = || fs::read(&path);
    let write = || File::options().write(true).open(&path);
    for (mode, may_read, may_write) in
        [(0o600, false, false), (0o604, true, false), (0o602, false, true), (0o606, true, true)]
    {
        file_of(&path, ALICE, mode)?;
        done("owner reads", as_user(ALICE, read)?)?;
        done("owner writes", as_user(ALICE, write)?)?;
        let (reading, writing) = (as_user(BOB, read)?, as_user(BOB, write)?);
        expect(&format!("{mode:o} lets others read"), reading.is_ok(), may_read)?;
        expect(&format!("{mode:o} lets others write"), writing.is_ok(), may_write)?;
        if !may_read {
            expect_errno("read", reading, DENIED)?;
        }
        if !may_write {
            expect_errno("write", writing, DENIED)?;
        }
    }
    // The owner's bits count for the owner, even if others have more.
    file_of(&path, ALICE, 0o066)?;
    let reading = as_user(ALICE, read)?;
    expect_errno("owner without rights", reading, DENIED)?;
    done("root reads", read()).map(|_| ())
}

fn directory_rights(dir: &Path) -> Result<()> {
    let sub = dir.join("sub");
    done("mkdir", fs::create_dir(&sub))?;
    done("write", fs::write(sub.join("file"), ""))?;
    set_mode(&sub, 0o755)?;
    expect_errno("create", as_user(ALICE, || File::create(sub.join("new")))?, DENIED)?;
    expect_errno("mkdir", as_user(ALICE, || fs::create_dir(sub.join("new")))?, DENIED)?;
    expect_errno("unlink", as_user(ALICE, || fs::remove_file(sub.join("file")))?, DENIED)?;
    let rename = as_user(ALICE, || fs::rename(sub.join("file"), sub.join("new")))?;
    expect_errno("rename", rename, DENIED)?;
    set_mode(&sub, 0o711)?;
    done("search", as_user(ALICE, || fs::read(sub.join("file")))?)?;
    let list = as_user(ALICE, || fs::read_dir(&sub).map(|_| ()))?;
    expect_errno("list without r", list, DENIED)?;
    set_mode(&sub, 0o744)?;
    expect_errno("search without x", as_user(ALICE, || fs::read(sub.join("file")))?, DENIED)?;
    set_mode(&sub, 0o777)?;
    done("unlink in an open directory", as_user(ALICE, || fs::remove_file(sub.join("file")))?)
}

fn group_permission(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    file_of(&path, ALICE, 0o640)?;
    expect_errno("other", as_user(BOB, || fs::read(&path))?, DENIED)?;
    done("chown", chown(&path, Some(ALICE), Some(BOB)))?;
    set_mode(&path, 0o640)?;
    done("group reads", as_user(BOB, || fs::read(&path))?)?;
    let write = as_user(BOB, || File::options().write(true).open(&path))?;
    expect_errno("group writes", write, DENIED)
}

fn sticky(dir: &Path) -> Result<()> {
    let sub = dir.join("sub");
    done("mkdir", fs::create_dir(&sub))?;
    set_mode(&sub, 0o1777)?;
    let path = sub.join("file");
    done("create", as_user(ALICE, || fs::write(&path, ""))?)?;
    set_mode(&path, 0o666)?;
    expect_errno("unlink by another", as_user(BOB, || fs::remove_file(&path))?, NOT_OWNER)?;
    let rename = as_user(BOB, || fs::rename(&path, sub.join("x")))?;
    expect_errno("rename by another", rename, NOT_OWNER)?;
    done("create", as_user(BOB, || fs::write(sub.join("bob"), ""))?)?;
    let over = as_user(BOB, || fs::rename(sub.join("bob"), &path))?;
    expect_errno("rename over it by another", over, NOT_OWNER)?;
    done("unlink by the owner", as_user(ALICE, || fs::remove_file(&path))?)
}

fn set_group_id(dir: &Path) -> Result<()> {
    let sub = dir.join("sub");
    done("mkdir", fs::create_dir(&sub))?;
    done("chown", chown(&sub, None, Some(BOB)))?;
    set_mode(&sub, 0o2777)?;
    done("create", as_user(ALICE, || fs::write(sub.join("file"), ""))?)?;
    let metadata = done("stat", fs::metadata(sub.join("file")))?;
    expect("owner, group of the directory", (metadata.uid(), metadata.gid()), (ALICE, BOB))?;
    done("mkdir", as_user(ALICE, || fs::create_dir(sub.join("below")))?)?;
    let metadata = done("stat", fs::metadata(sub.join("below")))?;
    expect(
        "a directory inherits group and bit",
        (metadata.gid(), metadata.mode() & 0o2000),
        (BOB, 0o2000),
    )
}

fn only_owner(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    file_of(&path, ALICE, 0o666)?;
    let mode = Permissions::from_mode(0o600);
    let chmod = as_user(BOB, || fs::set_permissions(&path, mode.clone()))?;
    expect_errno("chmod by another", chmod, NOT_OWNER)?;
    let give = as_user(ALICE, || chown(&path, Some(BOB), None))?;
    expect_errno("giving a file away", give, NOT_OWNER)?;
    let take = as_user(BOB, || chown(&path, Some(BOB), None))?;
    expect_errno("taking a file", take, NOT_OWNER)?;
    done("chmod by the owner", as_user(ALICE, || fs::set_permissions(&path, mode.clone()))?)?;
    expect("mode", mode_of(&path)?, 0o600)
}

fn write_clears(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    file_of(&path, ALICE, 0o4777)?;
    let written = as_user(BOB, || {
        let mut file = File::options().write(true).open(&path)?;
        file.write_all(b"x")?;
        file.sync_all()
    })?;
    done("write", written)?;
    // Another user's write must remove the right to run as the owner.
    let file = done("open", File::open(&path))?;
    expect("mode", done("fstat", file.metadata())?.mode() & 0o7777, 0o777)
}

fn open_stays(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    file_of(&path, ALICE, 0o600)?;
    let written = as_user(ALICE, || {
        let mut file = File::options().write(true).open(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o400))?;
        // RFC 1813 section 4.4: the server gives the owner access, since NFS has no open files.
        file.write_all(b"through")?;
        file.sync_all()
    })?;
    done("write after chmod", written)?;
    expect("content", done("read", fs::read_to_string(&path))?, "through".into())
}
