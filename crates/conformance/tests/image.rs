//! Linux systems on disk images, from a local file and from a server through QEMU's nfs driver.
//!
//! Slow (virtual machines); select with `cargo test guest_`. The server is nfs-ganesha; needs root
//! and `scripts/setup-deps.sh guest peer clients`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use aquifer_conformance::clients::{Call, Clients};
use aquifer_conformance::image::{self, Boot, Task, Userland};
use aquifer_conformance::qemu::Disk;
use aquifer_conformance::{Error, Result};
use aquifer_rig::peer::ganesha::Ganesha;
use aquifer_rig::work::WorkDir;

const LIFE: Duration = Duration::from_secs(300);
const WRITE: Task = Task::Write { files: 4, bytes: 3_000_000, seed: 5 };

#[test]
#[ignore = "the harness in front of a peer: make conformance"]
fn guest_system_on_an_image_writes_and_another_verifies() -> Result<()> {
    let work = WorkDir::open()?;
    let scratch = work.scratch("image-busybox")?;
    let image = scratch.join("disk.raw");
    image::build(&work, Userland::Busybox, 128 << 20, &image)?;
    let boot = Boot::prepare(&work, &scratch)?;
    let disk = || Disk::raw(image.to_string_lossy());
    let start = |task, logs| boot.start(disk(), task, None, &scratch.join(logs), LIFE);
    let written = image::finish(&start(WRITE, "write")?, LIFE)?;
    assert!(written.contains(&"wrote file 4 of 4 (3000000 bytes)".to_owned()), "{written:?}");
    assert_eq!(written.last().map(String::as_str), Some("done write, status 0"));
    let verified = image::finish(&start(Task::Verify, "verify")?, LIFE)?;
    assert!(verified.contains(&"checksums match".to_owned()), "{verified:?}");
    // The check must find one changed byte in a file of the image.
    let content = fs::read(&image).map_err(Error::at("read", &image))?;
    let mut wanted = [0; 64];
    aquifer_conformance::pattern::fill(5 + 2, 1_000_000 / 4096 * 4096, &mut wanted);
    let place = content.windows(64).position(|window| window == wanted);
    let place = place.ok_or_else(|| Error::Mismatch("content is not in the image".into()))?;
    let file = fs::File::options().write(true).open(&image).map_err(Error::at("open", &image))?;
    let place = u64::try_from(place).unwrap_or(0);
    file.write_all_at(&[!wanted[0]], place).map_err(Error::at("write", &image))?;
    let damaged = image::finish(&start(Task::Verify, "damaged")?, LIFE);
    assert!(matches!(damaged, Err(Error::Failed { .. })), "{damaged:?}");
    Ok(())
}

#[test]
#[ignore = "the harness in front of a peer: make conformance"]
fn guest_system_on_nfs_keeps_its_journal_through_power_cuts() -> Result<()> {
    let work = WorkDir::open()?;
    let scratch = work.scratch("image-nfs")?;
    let ganesha = Ganesha::start(&scratch, &scratch.dir("export")?)?;
    let image = scratch.join("disk.raw");
    image::build(&work, Userland::Busybox, 64 << 20, &image)?;
    let clients = Clients::new(Some(ganesha.netns()), LIFE);
    let url = ganesha.url("disk.raw");
    clients.image_convert(("raw", &image.to_string_lossy()), ("raw", &url)).done()?;
    let boot = Boot::prepare(&work, &scratch)?;
    let start = |task, logs| {
        boot.start(Disk::raw(&url), task, Some(ganesha.netns()), &scratch.join(logs), LIFE)
    };
    let journal = Task::Journal { records: 100_000, slots: 64, pause_ms: 0 };
    let machine = start(journal, "journal")?;
    machine.wait_console("aquifer: ack 150", LIFE)?;
    machine.power_cut();
    let acks = image::told(&machine.console());
    let acked = acks.iter().rev().find_map(|line| line.strip_prefix("ack ")?.parse().ok());
    let acked = acked.ok_or_else(|| Error::Malformed("no acknowledgement".into()))?;
    eprintln!("{acked} acknowledged at the power cut");
    let checked = start(Task::JournalCheck { acked, slots: 64 }, "check")?;
    eprintln!("{:?}", image::finish(&checked, LIFE)?);
    let lost = start(Task::JournalCheck { acked: acked + 1000, slots: 64 }, "lost")?;
    assert!(matches!(image::finish(&lost, LIFE), Err(Error::Failed { .. })));
    Ok(())
}

#[test]
fn guest_debian_on_nfs_writes_and_verifies() -> Result<()> {
    let work = WorkDir::open()?;
    let scratch = work.scratch("image-debian")?;
    let ganesha = Ganesha::start(&scratch, &scratch.dir("export")?)?;
    let image = scratch.join("disk.raw");
    image::build(&work, Userland::Debian, 1 << 30, &image)?;
    let clients = Clients::new(Some(ganesha.netns()), LIFE);
    let url = ganesha.url("disk.raw");
    clients.image_convert(("raw", &image.to_string_lossy()), ("raw", &url)).done()?;
    let boot = Boot::prepare(&work, &scratch)?;
    for (task, logs) in [(WRITE, "write"), (Task::Verify, "verify")] {
        let logs = scratch.join(logs);
        let machine = boot.start(Disk::raw(&url), task, Some(ganesha.netns()), &logs, LIFE)?;
        let told = image::finish(&machine, LIFE)?;
        eprintln!("{told:?}");
        let packages = told.iter().any(|line| line.ends_with("installed packages match"));
        assert_eq!(packages, matches!(task, Task::Verify), "{told:?}");
    }
    Ok(())
}
