//! The Linux kernel's client over our server, in a guest.

use aquifer_conformance::guest::{Guest, GuestConfig};
use aquifer_rig::work::WorkDir;

use crate::{SOON, Served};

const V3: &str = "vers=3,proto=tcp,mountproto=tcp,nolock,hard";

/// A server, and a guest that has its export at `/mnt`.
fn mounted(name: &str, schedule: Option<&str>) -> (Served, Guest) {
    let mut served = Served::with(name, schedule);
    served.server.start(SOON).unwrap();
    // Operations on snapshots take calls from low ports alone.
    served.netns.connect_from_low_ports().unwrap();
    let config = GuestConfig { netns: Some(served.netns.clone()), ..GuestConfig::default() };
    let guest = Guest::boot(&WorkDir::open().unwrap(), &served.scratch, &config).unwrap();
    guest.mount("/vms", "/mnt", V3).unwrap();
    (served, guest)
}

fn fails(guest: &Guest, command: &str, why: &str) {
    let step = guest.run(command, SOON).unwrap();
    assert!(step.status != 0 && step.output.contains(why), "{command}: {}", step.output);
}

/// The kernel mounts a snapshot by itself, as a file system of its own: nothing that it knows of
/// the live file is taken for the old one.
#[test]
fn guest_kernel_client_reads_snapshots() {
    let (mut served, guest) = mounted("kernel-snapshots", Some("start-"));
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

/// mkdir, mv and rmdir where snapshots are, by a kernel that caches names and mounts snapshots by
/// itself.
#[test]
fn guest_kernel_client_takes_and_destroys_snapshots() {
    let (mut served, guest) = mounted("kernel-snapcontrol", None);
    let said = |command: &str| guest.check(command, SOON).unwrap().output;
    let fails = |command: &str, why: &str| fails(&guest, command, why);
    let list = "/mnt/.aquifer/snapshot";
    said("echo old >/mnt/file; sync");
    assert_eq!(said(&format!("ls {list}")), "");
    said(&format!("mkdir {list}/a && echo now >/mnt/file && sync"));
    assert_eq!(said(&format!("ls {list}; cat {list}/a/file /mnt/file")), "a\nold\nnow\n");
    said(&format!("cp {list}/a/file /mnt/restored && cmp {list}/a/file /mnt/restored"));
    fails(&format!("mkdir {list}/a"), "File exists");
    fails(&format!("mkdir '{list}/a%b'"), "Invalid argument");
    fails(&format!("touch {list}/file"), "Read-only file system");
    fails(&format!("rm {list}/a"), "");
    // The kernel itself has it mounted now.
    fails(&format!("rmdir {list}/a"), "busy");
    said(&format!("umount {list}/a"));
    said(&format!("mv {list}/a {list}/b"));
    assert_eq!(said(&format!("ls {list}; cat {list}/b/file")), "b\nold\n");
    said(&format!("mkdir {list}/c; umount {list}/b; rmdir {list}/b"));
    assert_eq!(said(&format!("ls {list}")), "c\n");
    fails(&format!("cat {list}/b/file"), "No such file");
    said(&format!("rmdir {list}/c; rm /mnt/restored"));
    served.server.restart(SOON).unwrap();
    assert_eq!(said(&format!("ls {list}; cat /mnt/file")), "now\n");
    guest.power_off(SOON).unwrap();
    served.stop();
}

/// Versions of a file beside it, and lines to `control`, by a kernel that caches names and pages.
#[test]
fn guest_kernel_client_acts_on_a_file() {
    let (mut served, guest) = mounted("kernel-versions", None);
    let said = |command: &str| guest.check(command, SOON).unwrap().output;
    let fails = |command: &str, why: &str| fails(&guest, command, why);
    said("mkdir /mnt/dir; echo old >/mnt/dir/disk; sync");
    let of = "/mnt/dir/.aquifer/disk";
    assert_eq!(said("ls -a /mnt/dir"), ".\n..\ndisk\n");
    assert_eq!(said("ls /mnt/dir/.aquifer"), "disk\n");
    assert_eq!(said(&format!("ls {of}")), "control\n");
    said(&format!("touch {of}/a && echo new >/mnt/dir/disk && sync"));
    assert_eq!(said(&format!("ls {of}; cat {of}/a /mnt/dir/disk")), "a\ncontrol\nold\nnew\n");
    fails(&format!("cmp {of}/a /mnt/dir/disk"), "differ");
    fails(&format!("echo x >{of}/a"), "denied");
    // A shell empties what it opens, or goes to what it takes for the end.
    said(&format!("echo 'rollback a' >{of}/control"));
    assert_eq!(said("cat /mnt/dir/disk"), "old\n");
    let shown = said(&format!("cat {of}/control"));
    assert!(shown.ends_with(": rollback a: done\n"), "{shown}");
    said(&format!("echo 'clone a dir/copy' >>{of}/control; cat {of}/control"));
    assert_eq!(said("ls /mnt/dir; cat /mnt/dir/copy"), "copy\ndisk\nold\n");
    said(&format!("cat {of}/control; echo 'clone a dir/more' >>{of}/control; rm /mnt/dir/more"));
    // One descriptor, several lines, each on its way before the next.
    let lines = "for to in x y z; do echo \"clone a dir/$to\"; sync; done";
    said(&format!("{{ {lines}; }} >{of}/control; sync"));
    assert_eq!(said("ls /mnt/dir"), "copy\ndisk\nx\ny\nz\n");
    let shown = said(&format!("cat {of}/control"));
    assert!(shown.ends_with(": clone a dir/z: done\n"), "{shown}");
    fails(&format!("echo 'rollback b' | dd of={of}/control conv=fsync"), "No such file");
    let shown = said(&format!("cat {of}/control"));
    assert!(shown.contains(": rollback b: refused: there is no snapshot"), "{shown}");
    said(&format!("rm -f {of}/a"));
    assert_eq!(said(&format!("ls {of}")), "control\n");
    fails(&format!("rm -f {of}/control"), "");
    served.server.restart(SOON).unwrap();
    said(&format!("touch {of}/b; echo 3 >/proc/sys/vm/drop_caches"));
    assert_eq!(said(&format!("ls {of}; cat {of}/b")), "b\ncontrol\nold\n");
    guest.power_off(SOON).unwrap();
    served.stop();
}
