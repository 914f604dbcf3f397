//! `kill -9` of the server under load: all data that it acknowledged as durable is there
//! afterwards, and clients continue.

use std::time::{Duration, Instant};

use aquifer_conformance::clients::Call;
use aquifer_conformance::guest::{Guest, Job};
use aquifer_conformance::workload::acked;
use aquifer_conformance::{Error, Result, pattern};

use crate::kernel::{boot, timed};
use crate::place::{Aquifer, EXPORT, LONG, SOON, Setup, V3, is_long};

/// The kernel's client writes UNSTABLE. It sends again the writes that a restart lost before the
/// COMMIT, if the write verifier differs: `sync=standard` is safe with it.
#[test]
fn guest_kernel_client_goes_on_after_kill_9() -> Result<()> {
    let mut aquifer = Aquifer::start("kill-kernel", Setup::default())?;
    let guest = boot(&aquifer)?;
    guest.mount(EXPORT, "/mnt", V3)?;
    let endless = 1_000_000;
    let append = format!("exec nfstest journal /mnt/append --records {endless}");
    let ring = format!(
        "exec nfstest journal /mnt/ring --records {endless} --slots 64 --direct 1 --pause-ms 2"
    );
    // Each file, and its name, is durable when its number is printed. Everything may be sent twice.
    let files = "mkdir /mnt/files; number=0; while [ ! -e /tmp/stop ]; do \
        echo content $number | dd of=/mnt/files/$number conv=fsync 2>/dev/null || exit 1; \
        echo ack $number; number=$((number + 1)); done";
    let bulk = format!("--bytes {BULK_BYTES} --seed {BULK_SEED}");
    let (append, ring) = (guest.start(&append)?, guest.start(&ring)?);
    let files = guest.start(files)?;
    let mut bulks = Vec::new();
    for kill in 0..kills() {
        // Each kill comes while a file is being written, with nothing of it committed yet.
        bulks.push(guest.start(&format!("nfstest fill /mnt/bulk{kill} {bulk}"))?);
        for job in [&append, &ring, &files] {
            more(job, 20 + 7 * kill)?;
        }
        // Now and then an orderly stop, as in an upgrade.
        let start = Instant::now();
        if kill % 4 == 2 {
            aquifer.stop()?;
            eprintln!("stopped in order in {:?}", start.elapsed());
        } else {
            aquifer.kill9();
            std::thread::sleep(Duration::from_millis(300 * kill));
        }
        let took = aquifer.serve()?;
        let before = acked(&append.output());
        eprintln!("kill {kill}: {before:?} appended, serving again after {took:?}");
    }
    for job in [&append, &ring, &files] {
        more(job, 5)?;
    }
    for bulk in bulks {
        bulk.wait(LONG)?.success()?;
    }
    let (append, ring) = (stopped(append)?, stopped(ring)?);
    guest.check("touch /tmp/stop", SOON)?;
    let files = acked(&files.wait(LONG)?.success()?.output);
    let files = files.ok_or_else(|| Error::Malformed("no file was acknowledged".into()))?;
    eprintln!("acknowledged: {append} appended, {ring} in the ring, {files} files");
    check_kernel(&guest, append, ring, files)?;
    // Once more from the disks alone.
    aquifer.kill9();
    aquifer.serve()?;
    check_kernel(&guest, append, ring, files)?;
    guest.power_off(LONG)?;
    aquifer.finish()
}

/// The client has written a whole file, without a COMMIT, when the server is killed. It must send
/// the lost data again, and only the write verifier tells it so.
#[test]
fn guest_kernel_client_sends_again_what_a_kill_9_lost() -> Result<()> {
    let mut aquifer = Aquifer::start("kill-verifier", Setup::default())?;
    let guest = boot(&aquifer)?;
    // Pages go to the server as they are written, without a COMMIT. The flusher thread, which would
    // send one, wakes in an hour.
    guest.mount(EXPORT, "/mnt", &format!("{V3},write=eager"))?;
    guest.check("echo 360000 >/proc/sys/vm/dirty_writeback_centisecs", SOON)?;
    // A txg that closes just now makes all of it durable; that does not happen every time.
    let mut lost = false;
    for round in 0..ROUNDS_MAX {
        lost = lost || is_sent_again(&mut aquifer, &guest, &format!("lost{round}"))?;
    }
    assert!(lost, "nothing was lost, so nothing was shown");
    guest.power_off(LONG)?;
    aquifer.finish()
}

/// Kills the server when it has all of a file, UNSTABLE, and verifies the file after its COMMIT.
/// Returns whether the server had lost anything.
fn is_sent_again(aquifer: &mut Aquifer, guest: &Guest, name: &str) -> Result<bool> {
    let (file, go) = (format!("/mnt/{name}"), format!("/tmp/go-{name}"));
    let seeded = format!("--bytes {BULK_BYTES} --seed {BULK_SEED}");
    let writer = guest.start(&format!("nfstest hold {file} {go} {seeded}"))?;
    writer.wait_output(|output| output.contains("held"), LONG)?;
    let start = Instant::now();
    while kept(aquifer, name)? < BULK_BYTES {
        assert!(start.elapsed() < SOON, "{} written", kept(aquifer, name)?);
        std::thread::sleep(Duration::from_millis(50));
    }
    aquifer.kill9();
    aquifer.serve()?;
    let left = kept(aquifer, name)?;
    let start = Instant::now();
    guest.check(&format!("touch {go}"), SOON)?;
    writer.wait(LONG)?.success()?;
    eprintln!(
        "of {BULK_BYTES} bytes written, the first {left} outlived the server; sent again and \
         committed {:?} after it was back",
        start.elapsed()
    );
    aquifer.kill9();
    aquifer.serve()?;
    guest.check("echo 3 >/proc/sys/vm/drop_caches", SOON)?;
    timed(guest, &format!("nfstest verify {file} {seeded}"))?;
    Ok(left < BULK_BYTES)
}

/// Bytes from the start of the file that the server has, as another client reads them.
fn kept(aquifer: &Aquifer, name: &str) -> Result<u64> {
    let found = aquifer.clients().nfs_cat(&aquifer.url(name)).done()?.stdout;
    let all = u64::try_from(found.len()).unwrap_or(0);
    Ok(pattern::first_difference(BULK_SEED, 0, &found).unwrap_or(all))
}

fn check_kernel(guest: &Guest, append: u64, ring: u64, files: u64) -> Result<()> {
    guest.check("echo 3 >/proc/sys/vm/drop_caches", SOON)?;
    timed(guest, &format!("nfstest journal-check /mnt/append --acked {append}"))?;
    timed(guest, &format!("nfstest journal-check /mnt/ring --acked {ring} --slots 64"))?;
    for kill in 0..kills() {
        let seeded = format!("--bytes {BULK_BYTES} --seed {BULK_SEED}");
        timed(guest, &format!("nfstest verify /mnt/bulk{kill} {seeded}"))?;
    }
    let compare = format!(
        "cd /mnt/files && for number in $(seq 0 {files}); do read -r found <$number; \
         [ \"$found\" = \"content $number\" ] || {{ echo \"$number: $found\"; exit 1; }}; done"
    );
    timed(guest, &compare).map(|_| ())
}

/// Waits until a job has acknowledged this many more records.
pub fn more(job: &Job<'_>, count: u64) -> Result<()> {
    let enough = acked(&job.output()).map_or(count, |number| number + count);
    job.wait_output(|output| acked(output) >= Some(enough), LONG).map(|_| ())
}

/// Ends an endless journal and returns the last number that it acknowledged.
pub fn stopped(job: Job<'_>) -> Result<u64> {
    job.signal(15)?;
    let output = job.wait(LONG)?.output;
    acked(&output).ok_or_else(|| Error::Malformed(format!("no acknowledgement: {output}")))
}

fn kills() -> u64 {
    if is_long() { 20 } else { 4 }
}

const BULK_BYTES: u64 = 20_000_001;
const BULK_SEED: u64 = 3;
const ROUNDS_MAX: u32 = 5;
