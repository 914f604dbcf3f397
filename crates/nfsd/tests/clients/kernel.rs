//! The Linux kernel's client over our server, in a guest.

use aquifer_conformance::guest::{Guest, GuestConfig};
use aquifer_rig::work::WorkDir;

use crate::{SOON, Served};

const V3: &str = "vers=3,proto=tcp,mountproto=tcp,nolock,hard";

/// The kernel mounts a snapshot by itself, as a file system of its own: nothing that it knows of
/// the live file is taken for the old one.
#[test]
fn guest_kernel_client_reads_snapshots() {
    let mut served = Served::with("kernel-snapshots", Some("start-"));
    served.server.start(SOON).unwrap();
    let config = GuestConfig { netns: Some(served.netns.clone()), ..GuestConfig::default() };
    let guest = Guest::boot(&WorkDir::open().unwrap(), &served.scratch, &config).unwrap();
    guest.mount("/vms", "/mnt", V3).unwrap();
    let said = |command: &str| guest.check(command, SOON).unwrap().output;
    said("echo old >/mnt/file; mkdir /mnt/dir; sync");
    served.server.restart(SOON).unwrap();
    said("echo now >/mnt/file; echo x >/mnt/dir/later; sync");
    let before = "/mnt/.aquifer/snapshot/start-2";
    assert_eq!(said(&format!("cat {before}/file /mnt/file")), "old\nnow\n");
    assert_eq!(said(&format!("ls -a {before}/dir")), ".\n..\n");
    assert_eq!(said("ls -a /mnt"), ".\n..\ndir\nfile\n");
    assert_eq!(said("ls /mnt/.aquifer/snapshot"), "start-1\nstart-2\n");
    let mounts = said("cat /proc/mounts");
    assert!(mounts.contains(&format!(" {before} nfs ")), "{mounts}");
    let space = said(&format!("df -P {before} | tail -1"));
    assert_eq!(space.split_whitespace().nth(3), Some("0"), "{space}");
    let refused = guest.run(&format!("echo x >{before}/file"), SOON).unwrap();
    // It asks for ACCESS first, which grants no change.
    assert!(refused.status != 0 && refused.output.contains("denied"), "{}", refused.output);
    said(&format!("cp {before}/file /mnt/restored"));
    // The same handles after a restart; and the list is not taken from a cache.
    served.server.restart(SOON).unwrap();
    said("echo 3 >/proc/sys/vm/drop_caches");
    assert_eq!(said(&format!("cat {before}/file /mnt/restored")), "old\nold\n");
    assert_eq!(said("ls /mnt/.aquifer/snapshot"), "start-1\nstart-2\nstart-3\n");
    guest.power_off(SOON).unwrap();
    served.stop();
}
