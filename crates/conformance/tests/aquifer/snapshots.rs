//! Snapshots by the administrator's commands, while QEMU writes: what they take, that they outlive
//! a killed daemon, and that exactly the space comes back that a dry run promised.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use aquifer_conformance::clients::Call;
use aquifer_conformance::{Error, Result};
use serde_json::Value;

use crate::place::{Aquifer, DATASET, MIB, SOON, Setup};

#[test]
fn client_overwrites_what_snapshots_keep_until_they_are_destroyed() -> Result<()> {
    let setup = Setup { sides: 1, disk_bytes: 256 * MIB, memory: "64M", ..Setup::default() };
    let mut aquifer = Aquifer::start("snapshots", setup)?;
    aquifer.must(&["create", "tank/vms/below"])?;
    aquifer.must(&["set", "compression=off", "tank"])?;
    for image in ["both", "each"] {
        aquifer.clients().image_create("raw", &aquifer.url(image), IMAGE_BYTES).done()?;
    }
    // Of `both` the first two snapshots show the same, of `each` they do not.
    write(&aquifer, "both", 1)?;
    write(&aquifer, "each", 2)?;
    aquifer.must(&["snapshot", "tank/vms@a"])?;
    write(&aquifer, "each", 3)?;
    aquifer.must(&["snapshot", "-r", "tank/vms@b"])?;
    aquifer.must(&["snapshot", "tank@other"])?;
    write(&aquifer, "each", 4)?;
    write(&aquifer, "both", 5)?;
    aquifer.must(&["snapshot", "tank/vms@c"])?;
    let before = snapshots(&aquifer)?;
    assert_eq!(names(&before), ["@a", "@b", "@c"]);
    let used: Vec<u64> = before.iter().map(|of| number(of, "used_bytes")).collect();
    for (used, expected) in used.iter().zip([IMAGE_BYTES, IMAGE_BYTES, 0]) {
        assert!((expected..expected + MIB).contains(used), "{used}, not {expected}: {before:#?}");
    }
    assert!(before.iter().all(|of| number(of, "refer_bytes") == 2 * IMAGE_BYTES), "{before:#?}");
    aquifer.kill9();
    aquifer.serve()?;
    assert_eq!(snapshots(&aquifer)?, before);
    refusals(&aquifer)?;

    let dry = aquifer.must(&["--json", "destroy", "-n", "tank/vms@a%b"])?;
    let dry = parsed(&dry)?;
    let free = number(&dry, "free_bytes");
    // Together they free what both show, and neither alone does.
    assert!(free >= used[0] + used[1] + IMAGE_BYTES, "{dry:#}");
    assert_eq!(snapshots(&aquifer)?, before, "by a dry run");
    let told = aquifer.must(&["destroy", "-nv", "-p", "tank/vms@a%b"])?;
    let expected = format!(
        "would destroy tank/vms@a\nwould destroy tank/vms@b\nwould destroy 2 snapshots, would free \
         {free}\n"
    );
    assert_eq!(told, expected);
    let held = dataset_bytes(&aquifer)?;
    aquifer.must(&["destroy", "-f", "tank/vms@a%b"])?;
    let start = Instant::now();
    while dataset_bytes(&aquifer)? != held - free {
        let now = dataset_bytes(&aquifer)?;
        assert!(start.elapsed() < SOON, "{held} bytes, then {now}: not {free} less");
        thread::sleep(Duration::from_millis(100));
    }
    aquifer.must(&["rename", "tank/vms@c", "@b"])?;
    assert_eq!(names(&snapshots(&aquifer)?), ["@b"]);
    let all = aquifer.must(&["-H", "list", "-t", "all", "-r", "tank"])?;
    let all: Vec<&str> = all.lines().filter_map(|line| line.split('\t').next()).collect();
    let expected =
        ["tank", "tank@other", DATASET, "tank/vms@b", "tank/vms/below", "tank/vms/below@b"];
    assert_eq!(all, expected);
    aquifer.must(&["destroy", "-rf", "tank@b"])?;
    let left = aquifer.must(&["-H", "list", "-t", "snapshot"])?;
    assert!(left.starts_with("tank@other\t") && left.lines().count() == 1, "{left}");
    late(&aquifer)?;
    let history = aquifer.must(&["pool", "history", "-l", "tank"])?;
    for line in ["aquifer destroy tank/vms@a%b [", "aquifer rename tank/vms@c @b [", "@b: - -> txg"]
    {
        assert!(history.contains(line), "{line}: {history}");
    }
    aquifer.finish()
}

/// Checks that a snapshot stays if it was taken while a command asked.
fn late(aquifer: &Aquifer) -> Result<()> {
    let all = "tank/vms/below@%";
    aquifer.must(&["snapshot", "tank/vms/below@early"])?;
    let log = aquifer.scratch().join("asking");
    let mut asking = aquifer.command().args(["destroy", "-v", all]).spawn_piped(&log)?;
    let start = Instant::now();
    while !asking.said().contains("again to destroy:") {
        assert!(start.elapsed() < SOON, "{}", asking.said());
        thread::sleep(Duration::from_millis(20));
    }
    aquifer.must(&["snapshot", "tank/vms/below@late"])?;
    let typed = writeln!(asking.take_stdin().unwrap(), "{all}");
    typed.map_err(Error::at("answer", &log))?;
    assert!(asking.wait(SOON)?.success(), "{}", asking.said());
    assert!(asking.said().contains("destroys tank/vms/below@early\n"), "{}", asking.said());
    let left = aquifer.must(&["-H", "list", "-t", "snapshot", "tank/vms/below"])?;
    assert!(left.starts_with("tank/vms/below@late\t") && left.lines().count() == 1, "{left}");
    Ok(())
}

/// Checks that commands that make no sense are refused, with the reason, and change nothing.
fn refusals(aquifer: &Aquifer) -> Result<()> {
    let before = snapshots(aquifer)?;
    for (words, why) in [
        (&["snapshot", "tank/vms@a"][..], "exists already"),
        (&["snapshot", "tank/vms"], "write dataset@name"),
        (&["snapshot", "tank/vms@x%y"], "may hold letters"),
        (&["snapshot", "tank/none@x"], "dataset \"tank/none\" does not exist"),
        (&["snapshot", "-r", "tank@x", "tank/vms@y"], "one command takes one of each"),
        (&["destroy", "-f", "tank/vms"], "others below it"),
        (&["destroy", "-f", "tank/vms@b%a"], "the older one comes first"),
        (&["destroy", "-f", "tank/vms@a,none"], "nothing matches \"none\""),
        (&["destroy", "-f", "tank/vms/below@a"], "nothing matches \"a\""),
        (&["destroy", "-n", "tank/vms"], "-n and -v are for snapshots"),
        (&["rename", "tank/vms@a", "@b"], "exists already"),
        (&["rename", "tank/vms@none", "@x"], "snapshot \"tank/vms@none\" does not exist"),
        (&["rename", "tank/vms", "tank/vms/below/x"], "below the dataset itself"),
        (&["list", "-t", "snapshot", "tank/vms@none"], "does not exist"),
        (&["destroy", "tank/vms@a"], "was not destroyed"),
    ] {
        let said = aquifer.ask(words, SOON)?;
        assert!(!said.status.success() && said.said().contains(why), "{words:?}: {}", said.said());
    }
    assert_eq!(snapshots(aquifer)?, before);
    Ok(())
}

/// Writes all of an image.
fn write(aquifer: &Aquifer, image: &str, byte: u8) -> Result<()> {
    let write = format!("write -P {byte} 0 {IMAGE_BYTES}");
    aquifer.clients().image_io("raw", &aquifer.url(image), &[&write, "flush"]).done()?;
    Ok(())
}

fn snapshots(aquifer: &Aquifer) -> Result<Vec<Value>> {
    let listed = parsed(&aquifer.must(&["--json", "list", "-t", "snapshot", DATASET])?)?;
    listed.as_array().cloned().ok_or_else(|| Error::Malformed(listed.to_string()))
}

fn names(snapshots: &[Value]) -> Vec<&str> {
    let names = snapshots.iter().filter_map(|of| of["name"].as_str()?.strip_prefix(DATASET));
    names.collect()
}

/// Returns the bytes that the dataset takes by itself, with its snapshots.
fn dataset_bytes(aquifer: &Aquifer) -> Result<u64> {
    let listed = parsed(&aquifer.must(&["--json", "list", "-r", DATASET])?)?;
    let used = |at: usize| number(&listed[at], "used_bytes");
    Ok(used(0) - used(1))
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap()
}

fn parsed(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| Error::Malformed(format!("{error}: {text}")))
}

const IMAGE_BYTES: u64 = 8 << 20;
