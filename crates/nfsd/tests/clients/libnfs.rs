//! libnfs's tools over our server.

use std::fs;

use aquifer_conformance::clients::Call;
use aquifer_conformance::pattern;

use crate::Served;

#[test]
fn libnfs_copies_lists_and_reads() {
    let mut served = Served::started("libnfs");
    let mut content = vec![0; 5_000_001];
    pattern::fill(3, 0, &mut content);
    let local = served.scratch.join("local");
    fs::write(&local, &content).unwrap();
    let (from, clients) = (local.to_str().unwrap(), &served.clients);
    clients.nfs_cp(from, &Served::url("copied")).done().unwrap();
    let listed = clients.nfs_ls(&Served::url("")).done().unwrap().text();
    assert!(listed.contains("copied") && listed.contains("5000001"), "{listed}");
    assert!(clients.nfs_cat(&Served::url("copied")).done().unwrap().stdout == content);
    let missing = clients.nfs_cat(&Served::url("missing")).unwrap();
    assert!(missing.said().contains("NFS3ERR_NOENT"), "{missing:?}");
    let read_only = clients.nfs_cp(from, "nfs://127.0.0.1/iso/file").unwrap();
    assert!(read_only.said().contains("NFS3ERR_ROFS"), "{read_only:?}");
    // Copied files are there after a kill: libnfs's copy ends with a COMMIT or stable writes.
    served.server.restart(crate::SOON).unwrap();
    let clients = &served.clients;
    assert!(clients.nfs_cat(&Served::url("copied")).done().unwrap().stdout == content);
    served.stop();
}

#[test]
fn libnfs_reads_snapshots() {
    let mut served = Served::with("libnfs-snapshots", Some("start-"));
    served.server.start(crate::SOON).unwrap();
    let local = served.scratch.join("local");
    let mut content = vec![0; 1_000_001];
    pattern::fill(3, 0, &mut content);
    fs::write(&local, &content).unwrap();
    let from = local.to_str().unwrap();
    served.clients.nfs_cp(from, &Served::url("disk")).done().unwrap();
    served.server.restart(crate::SOON).unwrap();
    let clients = &served.clients;
    clients.nfs_cp(from, &Served::url("later")).done().unwrap();
    let snapshots = Served::url(".aquifer/snapshot");
    let there = |name: &str| format!("{snapshots}/start-2/{name}");
    assert!(clients.nfs_cat(&there("disk")).done().unwrap().stdout == content);
    let missing = clients.nfs_cat(&there("later")).unwrap();
    assert!(missing.said().contains("NFS3ERR_NOENT"), "{missing:?}");
    let refused = clients.nfs_cp(from, &there("new")).unwrap();
    assert!(refused.said().contains("NFS3ERR_ROFS"), "{refused:?}");
    let listed = clients.nfs_ls(&snapshots).done().unwrap().text();
    assert!(listed.contains("start-1") && listed.contains("start-2"), "{listed}");
    let listed = clients.nfs_ls(&Served::url("")).done().unwrap().text();
    assert!(listed.contains("later") && !listed.contains(".aquifer"), "{listed}");
    served.server.restart(crate::SOON).unwrap();
    assert!(served.clients.nfs_cat(&there("disk")).done().unwrap().stdout == content);
    served.stop();
}
