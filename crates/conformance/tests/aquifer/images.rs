//! Disk images of every format that hypervisors use, through QEMU's own driver (`nfs://`).

use std::fs;

use aquifer_conformance::capture::{Capture, MOUNT, PORTMAP};
use aquifer_conformance::clients::{Bench, Call};
use aquifer_conformance::{Error, Result, pattern};

use crate::place::{Aquifer, MIB, Setup, text};

/// QEMU's name for VHD (XCP-ng's format) is `vpc`. The flag: whether `qemu-img check` supports the
/// format.
const FORMATS: [(&str, bool); 4] =
    [("raw", false), ("qcow2", true), ("vpc", false), ("vmdk", true)];
const BYTES: u64 = 12 * MIB;
const BENCH: Bench =
    Bench { count: 600, depth: 16, bytes: 4096, write: true, flush_every: 64, pattern: 0x77 };

/// Each image is made, copied, checked, compared, written to at depth, read after a kill, and
/// copied back.
#[test]
fn client_images_of_every_format_hold_what_was_written() -> Result<()> {
    let setup = Setup { sync: "always", ..Setup::default() };
    let mut aquifer = Aquifer::start("images", setup)?;
    let capture = Capture::start(aquifer.netns(), "lo", aquifer.scratch())?;
    let mut content = vec![0; usize::try_from(BYTES).unwrap()];
    let (front, back) = content.split_at_mut(usize::try_from(BYTES / 2).unwrap());
    pattern::fill(9, 0, front);
    // A hole, and content at the very end.
    pattern::fill(10, 0, &mut back[4 << 20..]);
    let local = aquifer.scratch().join("local");
    fs::write(&local, &content).map_err(Error::at("write", &local))?;
    for (format, has_check) in FORMATS {
        copied(&aquifer, format, has_check, &text(&local))?;
        written(&aquifer, format, has_check)?;
    }
    aquifer.kill9();
    aquifer.serve()?;
    for (format, _) in FORMATS {
        let clients = aquifer.clients();
        let (image, made) = (image(&aquifer, format), made(&aquifer, format));
        clients.image_compare(("raw", &text(&local)), (format, &image)).done()?;
        clients.image_io(format, &made, &READS).done()?;
        let back = aquifer.scratch().join("back");
        clients.image_convert((format, &image), ("raw", &text(&back))).done()?;
        let back = fs::read(&back).map_err(Error::at("read", &back))?;
        // A VHD has whole cylinders: zeros follow the content.
        assert!(
            back.starts_with(&content) && back[content.len()..].iter().all(|b| *b == 0),
            "{format}"
        );
    }
    let talk = capture.finish()?;
    eprintln!("{talk}");
    let nfs = (100_003, &[0, 1, 2, 3, 4, 6, 7, 8, 19, 21][..]);
    talk.is_sound_with(&[nfs, (MOUNT, &[1]), (PORTMAP, &[3])])?;
    aquifer.finish()
}

/// Read after the bench, which writes from the start on.
const READS: [&str; 4] =
    ["read -P 0x77 0 2400k", "read -P 0x5a 5M 128k", "read -P 0 7M 1M", "read -P 0xa5 15M 64k"];

fn image(aquifer: &Aquifer, format: &str) -> String {
    aquifer.url(&format!("copied.{format}"))
}

fn made(aquifer: &Aquifer, format: &str) -> String {
    aquifer.url(&format!("made.{format}"))
}

fn copied(aquifer: &Aquifer, format: &str, has_check: bool, local: &str) -> Result<()> {
    let (clients, image) = (aquifer.clients(), image(aquifer, format));
    clients.image_convert(("raw", local), (format, &image)).done()?;
    clients.image_compare(("raw", local), (format, &image)).done()?;
    checked(aquifer, format, has_check, &image)
}

fn written(aquifer: &Aquifer, format: &str, has_check: bool) -> Result<()> {
    let (clients, made) = (aquifer.clients(), made(aquifer, format));
    clients.image_create(format, &made, 16 * MIB).done()?;
    let rate = clients.image_bench(format, &made, BENCH)?;
    let writes = ["write -P 0x5a 5M 128k", "write -P 0xa5 15M 64k", "flush"];
    clients.image_io(format, &made, &writes).done()?;
    clients.image_io(format, &made, &READS).done()?;
    let wrong = clients.image_io(format, &made, &["read -P 0x76 0 64k"])?;
    assert!(!wrong.status.success(), "{}", wrong.said());
    let read = Bench { write: false, ..BENCH };
    let reads = clients.image_bench(format, &made, read)?;
    eprintln!("{format}: {rate:.0} durable writes, {reads:.0} reads of 4 KiB/s");
    checked(aquifer, format, has_check, &made)
}

fn checked(aquifer: &Aquifer, format: &str, has_check: bool, image: &str) -> Result<()> {
    let said = aquifer.clients().image_check(format, image)?;
    if has_check {
        assert!(said.status.success() && said.text().contains("No errors"), "{}", said.said());
    } else {
        assert!(said.said().contains("does not support checks"), "{}", said.said());
    }
    Ok(())
}
