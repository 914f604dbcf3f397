//! The kernel's client fills a pool to its last byte: written data stays right, the daemon starts
//! again on it, and removing files frees the space.

use aquifer_conformance::{Error, Result};

use crate::kernel::{boot, timed};
use crate::place::{Aquifer, EXPORT, LONG, MIB, SOON, Setup, V3};

#[test]
fn guest_fills_the_pool_and_empties_it_again() -> Result<()> {
    let setup = Setup { disk_bytes: 256 * MIB, memory: "64M", ..Setup::default() };
    let mut aquifer = Aquifer::start("full", setup)?;
    let guest = boot(&aquifer)?;
    guest.mount(EXPORT, "/mnt", V3)?;
    let fill = "file=0; while nfstest fill /mnt/file$file --bytes 8000001 --seed $file; do \
        file=$((file + 1)); done; echo files $file";
    let verify = |files: u64| {
        format!(
            "for file in $(seq 0 {}); do nfstest verify /mnt/file$file --bytes 8000001 --seed \
             $file || exit 1; done",
            files - 1
        )
    };
    let mut most = 0;
    for round in 0..2 {
        let filled = timed(&guest, fill)?;
        assert!(filled.contains("No space left"), "{filled}");
        let files = filled.lines().find_map(|line| line.strip_prefix("files ")?.parse().ok());
        let files: u64 = files.ok_or_else(|| Error::Malformed(filled.clone()))?;
        eprintln!("round {round}: {files} files of 8 MB fit 256 MiB");
        // No space is lost from one round to the next.
        assert!(files > 15 && files + 1 >= most, "{files} files, {most} before");
        most = most.max(files);
        guest.check("echo 3 >/proc/sys/vm/drop_caches", SOON)?;
        timed(&guest, &verify(files))?;
        match round {
            0 => aquifer.kill9(),
            _ => aquifer.stop()?,
        }
        aquifer.serve()?;
        guest.check("echo 3 >/proc/sys/vm/drop_caches", SOON)?;
        timed(&guest, &verify(files))?;
        timed(&guest, "rm /mnt/file*")?;
        guest.check("mkdir -p /mnt/directory && echo small >/mnt/directory/file && sync", LONG)?;
    }
    guest.power_off(LONG)?;
    aquifer.finish()
}
