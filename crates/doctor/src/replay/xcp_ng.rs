//! XCP-ng: the driver's probes, the mount of a directory below the export, the check for hard
//! links, and a disk as tapdisk writes it.

use std::io::Write;
use std::net::Shutdown;

use aquifer_nfs::proto::mount::{self, Exports};
use aquifer_nfs::proto::v3;
use aquifer_nfs::proto::v3::{Args3, Link3Args, Rename3Args, StableHow};

use aquifer_client::wire::call::of_mount;
use aquifer_client::wire::decode;

use super::{Failed, Walk, commit, create, data, must, place, read_back, remove, write};
use crate::ports::{refuses_version_4, registered};
use crate::session::{Session, Wrong};

pub(super) fn steps(walk: &mut Walk<'_>) -> Result<(), Failed> {
    probes(walk)?;
    let dir = walk.scratch()?.handle;
    let below = format!("{}/{}", walk.ground.path, walk.scratch()?.name);
    let (mut session, _) = walk.mount()?;
    let session = &mut session;
    walk.step("MNT of the SR's directory below the export", || {
        let mounted = session.mount(&below)?;
        must(mounted == dir, || "the directory has two handles".into())
    })?;
    walk.step("CREATE and REMOVE a file", || {
        create(session, dir, "xcp-writable")?;
        remove(session, dir, "xcp-writable")
    })?;
    let disk = walk.step("CREATE a disk", || create(session, dir, "xcp-disk"))?;
    walk.step("WRITE and COMMIT", || {
        let verifier = write(session, disk, 0, &data(), StableHow::Unstable)?;
        commit(session, disk, verifier)
    })?;
    walk.step("READ what was written", || read_back(session, disk, 0, &data()))?;
    walk.step("LINK: a hard link, for snapshots", || {
        let link = place(dir, "xcp-link");
        session.do_nfs(&Args3::Link(Link3Args { file: disk, link }))?;
        let links = session.attributes(disk)?.nlink;
        must(links == 2, || format!("a file with two names has {links} links"))
    })?;
    walk.step("RENAME over a name that is there", || {
        let rename = Rename3Args { from: place(dir, "xcp-disk"), to: place(dir, "xcp-base") };
        session.do_nfs(&Args3::Rename(rename))?;
        read_back(session, disk, 0, &data())
    })?;
    walk.step("REMOVE both names", || {
        remove(session, dir, "xcp-base")?;
        remove(session, dir, "xcp-link")
    })
}

/// Replays what the driver asks before it mounts.
fn probes(walk: &mut Walk<'_>) -> Result<(), Failed> {
    let (from, to) = (walk.ground.from, walk.ground.nfs);
    walk.step("TCP: one stray byte, then nothing", || {
        let mut stream = from.connect(to).map_err(Wrong::Silent)?;
        let sent = stream.write_all(b"\n").and_then(|()| stream.shutdown(Shutdown::Both));
        sent.map_err(Wrong::Silent)
    })?;
    if let Some(portmap) = walk.ground.portmap {
        walk.step("rpcinfo -s: NFS 3 is listed", || {
            let listed = registered(portmap)?;
            let has = listed.iter().any(|it| (it.prog, it.vers) == (v3::PROGRAM, v3::VERSION));
            must(has, || "the portmapper does not list NFS 3".into())
        })?;
    }
    walk.step("NFS 4 is refused at once", || refuses_version_4(from, to))?;
    let path = walk.ground.path.clone();
    walk.step("showmount -e: the export is listed", || {
        let mut session = Session::open(from, to)?;
        session.call(of_mount(mount::Procedure::Export), &(), |from| {
            let listed: Exports<'_> = decode(from)?;
            let has = listed.0.iter().any(|export| export.dir.0 == path.as_bytes());
            Ok(must(has, || format!("EXPORT does not show {path} to this machine")))
        })?
    })
}
