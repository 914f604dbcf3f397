//! Locks between hosts: two guests with the kernel's lock manager and status monitor, as Debian
//! starts them, on a network where the server can call them back. Mounts without `nolock`.
//!
//! libvirt and Proxmox rely on the tested properties. An image is locked on all hosts. A host that
//! dies frees its locks when it is back, and a server that dies frees none.

use std::time::{Duration, Instant};

use aquifer_conformance::capture::{MOUNT, NLM, NSM};
use aquifer_conformance::clients::Call;
use aquifer_conformance::guest::Guest;
use aquifer_conformance::{Error, Result};
use serde_json::Value;

use crate::hosts::{self, Host, Monitor, SERVER};
use crate::place::{Aquifer, EXPORT, MIB, SOON, Setup};

const OPTIONS: &str = "vers=3,proto=tcp,mountproto=tcp,hard,timeo=20";
/// A restart must not cost the test as long as it costs real hosts.
const GRACE_S: u32 = 10;
/// The kernel asks for a lock again after 30 s: a host that gets it earlier was called back.
const CALLED_BACK: Duration = Duration::from_secs(15);

#[test]
fn locks_hold_between_hosts_and_outlive_the_server() -> Result<()> {
    let setup = Setup { sides: 1, lock_grace_s: GRACE_S, ..Setup::default() };
    let mut aquifer = Aquifer::start("locks", setup)?;
    let capture = hosts::network(&aquifer)?;
    let (one, two) = hosts::both(|number, name| host(&aquifer, number, name, None))?;
    an_image_in_use_is_locked(&one, &two, &aquifer)?;
    who_waits_is_called(&one, &two, &aquifer)?;
    a_killed_server_gives_locks_back(&one, &two, &mut aquifer)?;
    a_killed_host_frees_its_locks(&one, two, &aquifer)?;
    an_administrator_ends_locks(&one, &aquifer)?;
    let talk = capture.finish()?;
    eprintln!("{talk}");
    // RFC 1813 appendix II, NLM4_LOCK, UNLOCK, GRANTED; SM_NOTIFY goes both ways.
    talk.is_sound_with(&[(NLM, &[2, 4, 5]), (NSM, &[6]), (MOUNT, &[1])])?;
    aquifer.finish()
}

/// A host that has mounted the export, with locks.
fn host(aquifer: &Aquifer, number: u8, name: &str, monitored: Option<Monitor>) -> Result<Guest> {
    let guest = hosts::boot(aquifer, &Host { number, name, programs: &["qemu-io"], monitored })?;
    guest.check(&format!("nfstest mount {SERVER}:{EXPORT} /mnt {OPTIONS}"), SOON)?;
    Ok(guest)
}

/// QEMU locks single bytes of its images (100 to 203), with OFD locks.
fn an_image_in_use_is_locked(one: &Guest, two: &Guest, aquifer: &Aquifer) -> Result<()> {
    // QEMU's tools may share raw images; a qcow2 image has only one writer.
    aquifer.clients().image_create("qcow2", &aquifer.url("disk"), 64 * MIB).done()?;
    let uses = one.start("/usr/bin/qemu-io -f qcow2 -c 'sleep 3600000' /mnt/disk")?;
    let locks = wait_for_lock(aquifer, "/disk", "held")?;
    let bytes: Vec<u64> = locks.iter().filter_map(|lock| lock["offset"].as_u64()).collect();
    assert!(bytes.iter().all(|byte| (100..=203).contains(byte)), "{locks:?}");
    assert!(locks.iter().all(|lock| lock["client"] == "one" && lock["address"] == "10.9.0.11"));
    let other = two.run("/usr/bin/qemu-io -f qcow2 -c 'read 0 512' /mnt/disk 2>&1", SOON)?;
    assert!(other.status != 0 && other.output.contains("lock"), "{}", other.output);
    let shown = aquifer.must(&["locks"])?;
    eprintln!("{shown}");
    assert!(shown.contains("tank/vms/disk"), "{shown}");
    uses.signal(9)?;
    uses.wait(SOON)?;
    two.check("/usr/bin/qemu-io -f qcow2 -c 'read 0 512' /mnt/disk 2>&1", SOON)?;
    Ok(())
}

fn who_waits_is_called(one: &Guest, two: &Guest, aquifer: &Aquifer) -> Result<()> {
    let holds = one.start("nfstest lock /mnt/file /tmp/go")?;
    holds.wait_output(|output| output.contains("locked"), SOON)?;
    let refused = two.run("nfstest lock /mnt/file /tmp/go --wait 0", SOON)?;
    assert_eq!(refused.status, 1, "{}", refused.output);
    let waits = two.start("nfstest lock /mnt/file /tmp/go")?;
    wait_for_lock(aquifer, "/file", "waiting")?;
    let released = Instant::now();
    one.check("touch /tmp/go", SOON)?;
    waits.wait_output(|output| output.contains("locked"), CALLED_BACK)?;
    eprintln!("{:6} ms  from unlock to the other's lock", released.elapsed().as_millis());
    two.check("touch /tmp/go", SOON)?;
    holds.wait(SOON)?.success()?;
    waits.wait(SOON)?.success()?;
    one.check("rm /tmp/go", SOON)?;
    two.check("rm /tmp/go", SOON)?;
    Ok(())
}

/// The server is killed while the second host holds a lock. The host is told of the restart and
/// reclaims the lock. The first host does not get it, neither in the grace period nor after.
fn a_killed_server_gives_locks_back(one: &Guest, two: &Guest, aquifer: &mut Aquifer) -> Result<()> {
    let holds = two.start("nfstest lock /mnt/file /tmp/go")?;
    holds.wait_output(|output| output.contains("locked"), SOON)?;
    aquifer.kill9();
    let started = Instant::now();
    aquifer.serve()?;
    let locks = wait_for_lock(aquifer, "/file", "held")?;
    eprintln!("{:6} ms  from restart to the lock's return", started.elapsed().as_millis());
    assert!(locks.iter().all(|lock| lock["client"] == "two"), "{locks:?}");
    assert!(started.elapsed() < Duration::from_secs(GRACE_S.into()), "claimed in time");
    let refused = one.run("nfstest lock /mnt/file /tmp/go --wait 0", SOON)?;
    assert_eq!(refused.status, 1, "{}", refused.output);
    let after = started.elapsed();
    assert!(after >= Duration::from_secs(GRACE_S.into()), "refused after the grace: {after:?}");
    two.check("touch /tmp/go", SOON)?;
    holds.wait(SOON)?.success()?;
    two.check("rm /tmp/go", SOON)?;
    Ok(())
}

/// The second host loses power while it holds a lock. When it is back, its status monitor notifies
/// the server, and the waiting first host gets the lock.
fn a_killed_host_frees_its_locks(one: &Guest, two: Guest, aquifer: &Aquifer) -> Result<()> {
    let holds = two.start("nfstest lock /mnt/file /tmp/go")?;
    holds.wait_output(|output| output.contains("locked"), SOON)?;
    let monitor = Monitor::of(&two)?;
    two.power_cut();
    let waits = one.start("nfstest lock /mnt/file /tmp/go")?;
    wait_for_lock(aquifer, "/file", "waiting")?;
    let _back = host(aquifer, 3, "two", Some(monitor))?;
    let started = Instant::now();
    waits.wait_output(|output| output.contains("locked"), CALLED_BACK)?;
    eprintln!("{:6} ms  from the host's return to its lock's end", started.elapsed().as_millis());
    one.check("touch /tmp/go", SOON)?;
    waits.wait(SOON)?.success().map(|_| ())
}

/// For a host that is dead and does not come back.
fn an_administrator_ends_locks(one: &Guest, aquifer: &Aquifer) -> Result<()> {
    let holds = one.start("nfstest lock /mnt/file /tmp/stay")?;
    holds.wait_output(|output| output.contains("locked"), SOON)?;
    wait_for_lock(aquifer, "/file", "held")?;
    let said = aquifer.must(&["locks", "clear", "-f", "10.9.0.11"])?;
    assert_eq!(said, "1 ended\n");
    let left = aquifer.must(&["locks"])?;
    assert!(!left.contains("/file"), "{left}");
    one.check("touch /tmp/stay", SOON)?;
    holds.wait(SOON)?.success().map(|_| ())
}

/// The locks of a file, once one of them is in `state`.
fn wait_for_lock(aquifer: &Aquifer, file: &str, state: &str) -> Result<Vec<Value>> {
    let start = Instant::now();
    loop {
        let said = aquifer.must(&["--json", "locks"])?;
        let said: Value =
            serde_json::from_str(&said).map_err(|error| Error::Malformed(error.to_string()))?;
        let all = said["locks"].as_array().cloned().unwrap_or_default();
        let of_file: Vec<Value> = all.into_iter().filter(|lock| lock["file"] == file).collect();
        if of_file.iter().any(|lock| lock["state"] == state) {
            return Ok(of_file);
        }
        if start.elapsed() > SOON {
            let what = format!("a lock of {file} {state}");
            return Err(Error::Timeout { what, limit: SOON, said: said.to_string() });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
