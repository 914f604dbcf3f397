//! The operations of an XCP-ng host on an NFS datastore, in its order (xapi-project/sm: nfs.py,
//! NFSSR.py, FileSR.py): probes, the mount of a sub-directory, the checks before its use, a virtual
//! disk, and its soft mount while the server is killed.

use std::time::{Duration, Instant};

use aquifer_conformance::capture::{MOUNT, NLM, NSM, PORTMAP};
use aquifer_conformance::clients::Call;
use aquifer_conformance::guest::Guest;
use aquifer_conformance::{Error, Result};
use serde_json::Value;

use crate::hosts::{self, Host, SERVER};
use crate::kernel::timed;
use crate::kill::{more, stopped};
use crate::place::{Aquifer, DATASET, EXPORT, LONG, MIB, SOON, Setup};

/// The options of `soft_mount` in nfs.py, word by word.
const OPTIONS: &str = "soft,proto=tcp,vers=3,acdirmin=0,acdirmax=0,timeo=200,retrans=4";
const SR: &str = "0e1f3ce6-5c3c-4d4a-9a4e-6f6b3a0c9d11";
/// A refusal must not cost the driver a timeout.
const AT_ONCE: Duration = Duration::from_secs(10);

#[test]
fn guest_xcp_ng_attaches_and_uses_a_datastore() -> Result<()> {
    let setup = Setup { sync: "always", ..Setup::default() };
    let mut aquifer = Aquifer::start("xcp-ng", setup)?;
    let capture = hosts::network(&aquifer)?;
    let programs = &["rpcinfo", "showmount", "qemu-img", "qemu-io"];
    let host = Host { number: 1, name: "one", programs, monitored: None };
    let guest = hosts::boot(&aquifer, &host)?;
    probes(&guest)?;
    attaches(&guest)?;
    capacity_is_true(&guest, &aquifer)?;
    virtual_disk(&guest, &aquifer)?;
    soft_mount_outlives_restarts(&guest, &mut aquifer)?;
    guest.power_off(LONG)?;
    let talk = capture.finish()?;
    eprintln!("{talk}");
    let nfs = (100_003, &[0, 1, 2, 3, 4, 6, 7, 8, 9, 12, 14, 15, 17, 18, 19, 20][..]);
    // QEMU locks its images: TEST, LOCK, UNLOCK; a restarted server notifies its clients.
    let locks = [(NLM, &[1, 2, 4][..]), (NSM, &[6])];
    let probes = [(MOUNT, &[0, 1, 5][..]), (PORTMAP, &[3, 4])];
    talk.is_sound_with(&[&[nfs][..], &locks, &probes].concat())?;
    aquifer.finish()
}

/// Before anything is mounted.
fn probes(guest: &Guest) -> Result<()> {
    // The port accepts a connection and a byte; the server closes a connection that sends no call.
    for _ in 0..3 {
        guest.check(&format!("printf '\\n' | nc {SERVER} 2049"), SOON)?;
    }
    let listed = guest.check(&format!("/usr/sbin/rpcinfo -s {SERVER}"), SOON)?.output;
    let rows = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let nfs: Vec<_> = rows.filter(|row| row.contains(&"nfs")).collect();
    assert!(nfs.len() == 1 && nfs[0][..2] == ["100003", "3"], "{listed}");
    // Version 4 is not listed, so the driver tries to mount the root with it.
    let started = Instant::now();
    let four = guest.run(&format!("nfstest mount {SERVER}:/ /four vers=4,proto=tcp"), SOON)?;
    assert!(four.status != 0 && four.output.contains("not supported"), "{four:?}");
    assert!(started.elapsed() < AT_ONCE, "{four:?}");
    let exports = format!("/usr/sbin/showmount --no-headers -e {SERVER}");
    let exports = guest.check(&exports, SOON)?.output;
    assert!(exports.lines().any(|line| line.split(' ').next() == Some(EXPORT)), "{exports}");
    // The check of the service; Proxmox makes it too.
    guest.check(&format!("/usr/sbin/rpcinfo -T tcp {SERVER} nfs 3"), SOON).map(|_| ())
}

/// `create`, `attach`, and the checks that `attach` makes.
fn attaches(guest: &Guest) -> Result<()> {
    let mount = |export: &str, place: &str| {
        timed(guest, &format!("nfstest mount {SERVER}:{export} {place} {OPTIONS}"))
    };
    mount(EXPORT, "/probe")?;
    let options = guest.check("grep ' /probe ' /proc/mounts", SOON)?.output;
    let words =
        ["soft", "vers=3", "acdirmin=0", "acdirmax=0", "proto=tcp", "timeo=200", "retrans=4"];
    assert!(words.iter().all(|word| options.contains(word)), "{options}");
    guest.check(&format!("mkdir /probe/{SR} && umount /probe"), SOON)?;
    mount(&format!("{EXPORT}/{SR}"), "/sr")?;
    guest.check("[ -z \"$(ls -A /sr)\" ] && touch /sr/check && rm /sr/check", SOON)?;
    // Without hard links snapshots are not safe, so the driver tests for them.
    let links = "cd /sr && echo content >linked && ln linked link && [ linked -ef link ] && \
        stat -c %h link && rm linked && cat link && stat -c %h link && rm link";
    let found = guest.check(links, SOON)?.output;
    assert_eq!(found, "2\ncontent\n1\n");
    Ok(())
}

/// Size and use in bytes, as the driver computes them from statvfs.
fn capacity(guest: &Guest) -> Result<(u64, u64)> {
    let output = guest.check("stat -f -c '%S %b %f' /sr", SOON)?.output;
    let numbers: Vec<u64> =
        output.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [unit, blocks, free] if free <= blocks => Ok((unit * blocks, unit * (blocks - free))),
        _ => Err(Error::Malformed(output)),
    }
}

fn capacity_is_true(guest: &Guest, aquifer: &Aquifer) -> Result<()> {
    aquifer.must(&["set", "quota=1G", DATASET])?;
    let (size, before) = capacity(guest)?;
    assert_eq!(size, 1 << 30);
    // Content that does not compress.
    guest.check(&format!("nfstest fill /sr/file --bytes {} --seed 6", 40 * MIB), LONG)?;
    // An administrator's act closes the txg.
    aquifer.must(&["set", "quota=1536M", DATASET])?;
    let (size, used) = wait_for_use(guest, |used| used >= before + 40 * MIB)?;
    assert_eq!(size, 1536 * MIB);
    assert!(used <= before + 44 * MIB, "{used} bytes used, {before} before 40 MiB");
    let listed: Value = serde_json::from_str(&aquifer.must(&["--json", "list"])?).unwrap();
    let datasets = listed.as_array().into_iter().flatten();
    let listed: Vec<_> = datasets.filter(|dataset| dataset["name"] == DATASET).collect();
    assert_eq!(listed[0]["used_bytes"], used, "{listed:?}");
    eprintln!("statvfs: {size} bytes, {before} used, {used} with 40 MiB more");
    guest.check("rm /sr/file", SOON)?;
    aquifer.must(&["inherit", "quota", DATASET])?;
    wait_for_use(guest, |used| used <= before + 4 * MIB)?;
    assert!(capacity(guest)?.0 > 1 << 30);
    Ok(())
}

/// Space counts as used once a txg has it, and as free once its removal was synced.
fn wait_for_use(guest: &Guest, enough: impl Fn(u64) -> bool) -> Result<(u64, u64)> {
    let start = Instant::now();
    loop {
        let found = capacity(guest)?;
        if enough(found.1) {
            return Ok(found);
        }
        if start.elapsed() > SOON {
            let said = format!("{found:?}");
            return Err(Error::Timeout { what: "the use of space".into(), limit: SOON, said });
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// A VHD, written around the page cache like tapdisk does, then moved and linked as for a snapshot.
fn virtual_disk(guest: &Guest, aquifer: &Aquifer) -> Result<()> {
    let io = "/usr/bin/qemu-io -t none -f vpc";
    timed(guest, "/usr/bin/qemu-img create -q -f vpc -o subformat=dynamic /sr/disk.vhd 256M")?;
    let writes =
        "-c 'write -P 0x5a 1M 6M' -c 'write -P 0xa5 100M 192k' -c 'write -z 3M 64k' -c flush";
    timed(guest, &format!("{io} {writes} /sr/disk.vhd"))?;
    timed(guest, "cd /sr && mv disk.vhd base.vhd && ln base.vhd disk.vhd && rm base.vhd")?;
    let reads =
        ["read -P 0x5a 1M 2M", "read -P 0 3M 64k", "read -P 0x5a 4M 3M", "read -P 0 7M 64k"];
    let reads = [&reads[..], &["read -P 0xa5 100M 192k"]].concat();
    let said: Vec<String> = reads.iter().map(|read| format!("-c '{read}'")).collect();
    timed(guest, &format!("{io} {} /sr/disk.vhd", said.join(" ")))?;
    // The same data through another client.
    let url = aquifer.url(&format!("{SR}/disk.vhd"));
    aquifer.clients().image_io("vpc", &url, &reads).done()?;
    let wrong = aquifer.clients().image_io("vpc", &url, &["read -P 0x5b 1M 64k"])?;
    assert!(!wrong.status.success(), "{}", wrong.said());
    Ok(())
}

/// The server is away for up to 5 s, twice. A soft mount gives up after 100 s; before that nothing
/// may be lost or fail.
fn soft_mount_outlives_restarts(guest: &Guest, aquifer: &mut Aquifer) -> Result<()> {
    let endless = "--records 1000000";
    let append = guest.start(&format!("exec nfstest journal /sr/append {endless}"))?;
    let ring = format!("exec nfstest journal /sr/ring {endless} --slots 64 --direct 1");
    let ring = guest.start(&ring)?;
    for away in [0, 3] {
        let bulk = format!("--bytes 20000001 --seed {away}");
        let filling = guest.start(&format!("nfstest fill /sr/bulk{away} {bulk}"))?;
        more(&append, 15)?;
        more(&ring, 15)?;
        let died = Instant::now();
        aquifer.kill9();
        std::thread::sleep(Duration::from_secs(away));
        aquifer.serve()?;
        let gone = died.elapsed();
        more(&append, 5)?;
        more(&ring, 5)?;
        eprintln!(
            "soft mount: away for {gone:?}, both journals go on {:?} after the kill",
            died.elapsed()
        );
        filling.wait(LONG)?.success()?;
        guest.check("echo 3 >/proc/sys/vm/drop_caches", SOON)?;
        timed(guest, &format!("nfstest verify /sr/bulk{away} {bulk}"))?;
    }
    let (append, ring) = (stopped(append)?, stopped(ring)?);
    guest.check("echo 3 >/proc/sys/vm/drop_caches", SOON)?;
    timed(guest, &format!("nfstest journal-check /sr/append --acked {append}"))?;
    timed(guest, &format!("nfstest journal-check /sr/ring --acked {ring} --slots 64")).map(|_| ())
}
