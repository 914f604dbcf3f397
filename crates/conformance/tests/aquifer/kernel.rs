//! The Linux kernel's NFSv3 client: one guest checks all promises of a file system.

use std::time::Duration;

use aquifer_conformance::capture::{Capture, MOUNT, NFS, PORTMAP};
use aquifer_conformance::guest::{Guest, GuestConfig};
use aquifer_conformance::{Error, Result};
use aquifer_rig::work::WorkDir;

use crate::place::{Aquifer, DATASET, EXPORT, LONG, SOON, Setup, V3, is_long, text};

/// A guest in the server's namespace, nothing mounted yet.
pub fn boot(aquifer: &Aquifer) -> Result<Guest> {
    let life = Duration::from_secs(if is_long() { 3600 } else { 1800 });
    let config =
        GuestConfig { netns: Some(aquifer.netns().clone()), life, ..GuestConfig::default() };
    Guest::boot(&WorkDir::open()?, aquifer.scratch(), &config)
}

/// Runs a command and prints its time; a status other than 0 is an error.
pub fn timed(guest: &Guest, command: &str) -> Result<String> {
    let step = guest.check(command, LONG)?;
    eprintln!("{:6} ms  {command}", step.took.as_millis());
    Ok(step.output)
}

#[test]
fn guest_kernel_client_finds_what_posix_promises() -> Result<()> {
    let aquifer = Aquifer::start("kernel", Setup::default())?;
    let guest = boot(&aquifer)?;
    several_connections(&guest)?;
    let capture = Capture::start(aquifer.netns(), "lo", aquifer.scratch())?;
    guest.mount(EXPORT, "/mnt", V3)?;
    let mounted = guest.check("grep /mnt /proc/mounts", SOON)?.output;
    assert!(mounted.contains("rsize=1048576,wsize=1048576"), "{mounted}");
    // XCP-ng makes a directory and then mounts it.
    guest.check("mkdir /mnt/sr", SOON)?;
    guest.mount(&format!("{EXPORT}/sr"), "/other", &format!("{V3},nosharecache"))?;
    let semantics = guest.run("mkdir /mnt/s && nfstest semantics /mnt/s", LONG)?;
    eprintln!("{:6} ms  semantics", semantics.took.as_millis());
    assert_eq!(semantics.status, 0, "{}", semantics.output);
    random_io(&guest, "/mnt")?;
    timed(&guest, "nfstest sparse /mnt/huge")?;
    exclusive_creates(&guest)?;
    let files = if is_long() { 10_000 } else { 2_500 };
    timed(&guest, &format!("nfstest tree /mnt/many --files {files}"))?;
    // The kernel's client sends READDIR only with this option, and never READLINK for a link that
    // it has made itself.
    guest.mount(EXPORT, "/plain", &format!("{V3},nosharecache,nordirplus"))?;
    guest.check("ln -s text /mnt/link && ls /plain | grep sr && readlink /plain/link", SOON)?;
    let talk = capture.finish()?;
    eprintln!("{talk}");
    talk.is_sound_with(&[NFS, (MOUNT, &[1]), (PORTMAP, &[3])])?;
    capacity(&guest, &aquifer)?;
    handles_outlive_the_daemon(guest, aquifer)
}

/// Four connections of one mount: the server answers requests out of order, each on its own
/// connection.
fn several_connections(guest: &Guest) -> Result<()> {
    // The first mount of a server decides for all later ones.
    guest.mount(EXPORT, "/four", &format!("{V3},nconnect=4"))?;
    let connections = guest.check("grep -c 'xprt:.tcp' /proc/self/mountstats", SOON)?.output;
    assert_eq!(connections.trim(), "4");
    random_io(guest, "/four")?;
    let copy = "nfstest fill /four/source --bytes 50000001 --seed 7 && \
        dd if=/four/source of=/four/copy bs=1000000 conv=fsync && \
        echo 3 >/proc/sys/vm/drop_caches && cmp /four/source /four/copy && \
        nfstest verify /four/copy --bytes 50000001 --seed 7 && rm /four/source /four/copy";
    timed(guest, copy)?;
    guest.check("umount /four", SOON).map(|_| ())
}

fn random_io(guest: &Guest, directory: &str) -> Result<()> {
    let (seeds, operations) = if is_long() { (1..=8, 5_000) } else { (1..=2, 1_000) };
    for seed in seeds {
        let fsx = format!(
            "nfstest fsx {directory}/fsx{seed} --seed {seed} --ops {operations} --direct 1"
        );
        timed(guest, &fsx)?;
    }
    Ok(())
}

/// Two mounts that share no cache race for the same names, like two hosts for a lock file: each
/// name has one winner (EXCLUSIVE CREATE).
fn exclusive_creates(guest: &Guest) -> Result<()> {
    let race = "mkdir /mnt/sr/locks; for mount in /mnt/sr /other; do \
        (won=0; set -C; while [ ! -e /tmp/race ]; do :; done; for lock in $(seq 150); do \
            (: >$mount/locks/$lock) 2>/dev/null && won=$((won + 1)); done; echo $won) & \
        done; sleep 1; touch /tmp/race; wait";
    let output = timed(guest, race)?;
    let won: Vec<u32> = output.lines().filter_map(|line| line.trim().parse().ok()).collect();
    eprintln!("of 150 names, the two mounts won {won:?}");
    assert!(won.len() == 2 && won.iter().sum::<u32>() == 150, "{output}");
    Ok(())
}

/// XCP-ng reads a datastore's size and use from FSSTAT.
fn capacity(guest: &Guest, aquifer: &Aquifer) -> Result<()> {
    let total = |guest: &Guest| -> Result<u64> {
        let output = guest.check("df -k /mnt | tail -1", SOON)?.output;
        let kib = output.split_whitespace().nth(1).and_then(|kib| kib.parse().ok());
        kib.ok_or(Error::Malformed(output))
    };
    assert!(total(guest)? > 1 << 20);
    aquifer.must(&["set", "quota=64M", DATASET])?;
    assert_eq!(total(guest)?, 64 << 10);
    let full = guest.run("nfstest fill /mnt/full --bytes 100000000 --seed 5", LONG)?;
    eprintln!("{:6} ms  {}", full.took.as_millis(), full.output.trim());
    let refused = full.output.contains("No space") || full.output.contains("uota exceeded");
    assert!(full.status != 0 && refused, "{full:?}");
    guest.check("rm /mnt/full", SOON)?;
    aquifer.must(&["inherit", "quota", DATASET])?;
    guest.check("echo again >/mnt/again && sync && cat /mnt/again", SOON).map(|_| ())
}

/// The daemon is stopped and started under mounts and open files. A client that continues does not
/// notice, not even one with an unlinked open file (the kernel's client renames it).
fn handles_outlive_the_daemon(guest: Guest, mut aquifer: Aquifer) -> Result<()> {
    let open = "cd /mnt && nfstest fill kept --bytes 300000 --seed 4 && \
        exec 3<kept 4>>removed && rm removed && echo opened && while [ ! -e /tmp/go ]; do sleep \
        1; done; echo late >&4 && nfstest verify kept --bytes 300000 --seed 4 && \
        dd <&3 bs=300000 count=1 2>/dev/null | wc -c";
    let job = guest.start(open)?;
    job.wait_output(|output| output.contains("opened"), SOON)?;
    aquifer.stop()?;
    let took = aquifer.serve()?;
    eprintln!("serving again after {took:?}");
    // The same with the pool alone.
    aquifer.must(&["pool", "export", "tank"])?;
    let place = text(&aquifer.disks_dir());
    aquifer.must(&["pool", "import", "-d", &place, "tank"])?;
    guest.check("touch /tmp/go", SOON)?;
    let output = job.wait(LONG)?.success()?.output;
    assert!(output.ends_with("300000\n"), "{output}");
    guest.power_off(LONG)?;
    aquifer.finish()
}
