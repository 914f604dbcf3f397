//! ESXi over NFS 3: stable writes, lock files with exclusive CREATE, several connections.

use aquifer_nfs::proto::v3::{
    Args3, Create3Args, CreateHow3, Nfsstat3, Rename3Args, Sattr3, Setattr3Args, StableHow,
};

use super::{Failed, Walk, create, create_how, data, must, place, read_back, remove, write};
use crate::session::{Session, Wrong};

pub(super) fn steps(walk: &mut Walk<'_>) -> Result<(), Failed> {
    let dir = walk.scratch()?.handle;
    let (mut session, root) = walk.mount()?;
    let session = &mut session;
    walk.step("GETATTR twice: a number that stays", || {
        let (first, second) = (session.attributes(root)?, session.attributes(root)?);
        must(first.fileid == second.fileid && first.fsid == second.fsid, || {
            format!("the directory is {} and then {}", first.fileid, second.fileid)
        })
    })?;
    let disk = walk.step("CREATE a disk", || create(session, dir, "esxi-flat"))?;
    let found = walk.step("GETATTR: the owner is root", || {
        let found = session.attributes(disk)?;
        must(found.uid == 0, || format!("the owner is {}: root is squashed", found.uid))?;
        Ok(found)
    })?;
    lock_file(walk, session, found.fileid)?;
    walk.step("WRITE as FILE_SYNC, and READ it", || {
        write(session, disk, 0, &data(), StableHow::FileSync)?;
        read_back(session, disk, 0, &data())
    })?;
    walk.step("SETATTR: a thin disk of 3 TiB, which takes no space", || {
        let new_attributes = Sattr3 { size: Some(THIN_BYTES), ..Sattr3::NONE };
        let args = Setattr3Args { object: disk, new_attributes, guard: None };
        session.do_nfs(&Args3::Setattr(args))?;
        let found = session.attributes(disk)?;
        must(found.size == THIN_BYTES && found.used < THIN_BYTES / 1024, || {
            format!("it is {} bytes long and takes {}", found.size, found.used)
        })?;
        read_back(session, disk, THIN_BYTES - 4096, &[0; 4096])
    })?;
    let (from, to) = (walk.ground.from, walk.ground.nfs);
    walk.step("nconnect: three connections more", || {
        let mut more = Vec::new();
        for _ in 0..3 {
            let mut session = Session::open(from, to)?;
            session.attributes(disk)?;
            more.push(session);
        }
        Ok(())
    })?;
    walk.step("REMOVE the disk", || remove(session, dir, "esxi-flat"))
}

/// A lock of ESXi is a file that one host alone can make.
fn lock_file(walk: &mut Walk<'_>, session: &mut Session, fileid: u64) -> Result<(), Failed> {
    let dir = walk.scratch()?.handle;
    let name = format!(".lck-{fileid:016x}");
    let lock = walk.step("CREATE exclusively: the lock file", || {
        create_how(session, dir, &name, CreateHow3::Exclusive(*b"aquifer1"))
    })?;
    walk.step("the same CREATE, sent again: the same file", || {
        let again = create_how(session, dir, &name, CreateHow3::Exclusive(*b"aquifer1"))?;
        must(again == lock, || "another file was made".into())
    })?;
    walk.step("another host's CREATE is refused", || {
        let how = CreateHow3::Exclusive(*b"aquifer2");
        let args = Args3::Create(Create3Args { place: place(dir, &name), how });
        match session.status(&args)? {
            Nfsstat3::Exist => Ok(()),
            other => Err(Wrong::Differs(format!("EXIST was due, and {other:?} came"))),
        }
    })?;
    walk.step("WRITE to the lock file: a renewal", || {
        write(session, lock, 0, &[1; 84], StableHow::FileSync).map(drop)
    })?;
    walk.step("RENAME and REMOVE the lock file", || {
        let to = place(dir, ".lck-broken");
        session.do_nfs(&Args3::Rename(Rename3Args { from: place(dir, &name), to }))?;
        remove(session, dir, ".lck-broken")
    })
}

const THIN_BYTES: u64 = 3 << 40;
