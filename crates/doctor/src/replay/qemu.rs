//! QEMU's own driver (libnfs): it asks the portmapper, and calls from any port.

use aquifer_nfs::proto::v3::StableHow;
use aquifer_nfs::proto::{mount, v3};

use super::{Failed, Walk, commit, create, data, must, read_back, remove, write};
use crate::codes;
use crate::ports::port_of;
use crate::report::Finding;
use crate::session::Session;

pub(super) fn steps(walk: &mut Walk<'_>) -> Result<(), Failed> {
    let (path, dir) = (walk.ground.path.clone(), walk.scratch()?.handle);
    let (from, to) = (walk.ground.from_high, walk.ground.nfs);
    if let Some(portmap) = walk.ground.portmap {
        for (name, program, version) in [
            ("GETPORT of MOUNT 3", mount::PROGRAM, mount::VERSION),
            ("GETPORT of NFS 3", v3::PROGRAM, v3::VERSION),
        ] {
            walk.step(name, || {
                let port = port_of(portmap, program, version)?;
                must(port == u32::from(to.port()), || {
                    format!("the portmapper says {port}, and NFS listens on {}", to.port())
                })
            })?;
        }
    }
    let mut session = walk.step("connect from a port above 1023", || Session::open(from, to))?;
    let session = &mut session;
    walk.step(&format!("MNT {path}"), || session.mount(&path))?;
    let file = walk.step("CREATE", || create(session, dir, "qemu-disk"))?;
    walk.step("WRITE unstable, COMMIT, READ", || {
        let verifier = write(session, file, 0, &data(), StableHow::Unstable)?;
        commit(session, file, verifier)?;
        read_back(session, file, 0, &data())
    })?;
    walk.step("REMOVE", || remove(session, dir, "qemu-disk"))?;
    let (path, dataset) = (&walk.ground.path, &walk.ground.dataset);
    if !walk.ground.sync_always {
        let what = format!(
            "{path}: QEMU's own driver does not send again what a restart of the server lost: \
             give it sync=always, or mount the export"
        );
        let mend = format!("aquifer set sync=always {dataset}");
        walk.note(Finding::new(codes::QEMU_SYNC, what).mend(mend));
    }
    Ok(())
}
