//! The output of `iostat`, compared with the kernel's counters of a block device and of the
//! process.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use super::client::Client;
use super::{number, served, told};
use crate::support::{Daemon, Loop, Place};

impl Loop {
    /// Bytes read, bytes written, flushes: fields 3, 7 and 16 of `stat`
    /// (Documentation/block/stat.rst).
    fn counted(&self) -> [u64; 3] {
        let name = self.0.rsplit('/').next().unwrap();
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        let fields: Vec<u64> =
            stat.split_whitespace().map(|field| field.parse().unwrap()).collect();
        [fields[2] * 512, fields[6] * 512, fields[15]]
    }
}

/// Operations of leaf `index`: bytes read, bytes written, and how often it made data durable, by a
/// flush or by a durable write.
fn of_leaf(stat: &Value, index: usize) -> [u64; 3] {
    let leaves: Vec<&Value> = stat[0]["vdevs"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|v| v["leaves"].as_array().unwrap())
        .collect();
    let io = &leaves[index]["io"];
    let (durable, durable_bytes, _) = told(&io["durable_writes"]);
    let written = told(&io["writes"]).1 + durable_bytes;
    [told(&io["reads"]).1, written, told(&io["flushes"]).0 + durable]
}

/// Two equal looks at the same counters: then nothing is under way.
fn at_rest(place: &Place) -> Value {
    let mut last = place.json(&["iostat", "tank"]);
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(150));
        let now = place.json(&["iostat", "tank"]);
        if now[0]["vdevs"] == last[0]["vdevs"] {
            return now;
        }
        last = now;
    }
    panic!("the pool does not come to rest: {last}");
}

fn minus<const N: usize>(now: [u64; N], then: [u64; N]) -> [u64; N] {
    std::array::from_fn(|index| now[index] - then[index])
}

fn work(place: &Place) {
    let mut client = Client::new(place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk.raw");
    for page in 0..200 {
        client.write(&file, page * 4096, &[u8::try_from(page).unwrap(); 4096], true);
    }
    for mib in 0..8 {
        client.write(&file, mib << 20, &[7; 1 << 20], false);
    }
    client.commit(&file);
}

#[test]
fn a_block_device_did_what_is_told() {
    let place = Place::new();
    let image = place.image("a");
    let Some(device) = Loop::new(&image) else { return };
    let daemon = served(&place, &[&device.0]);
    let (told_before, before) = (at_rest(&place), device.counted());
    work(&place);
    // The txg writes the data to its place.
    place.must(&["set", "quota=1G", "tank/vms"]);
    let (told_after, after) = (at_rest(&place), device.counted());
    let did = minus(after, before);
    let said = minus(of_leaf(&told_after, 0), of_leaf(&told_before, 0));
    // Daemons of other tests may be searching all disks.
    assert!(said[0] <= did[0], "bytes read: {} told, {} done", said[0], did[0]);
    assert_eq!(said[1], did[1], "bytes written");
    assert!(said[1] > 8 << 20, "{said:?}");
    // The kernel may serve two waiting flushes by one. To a device without FUA, a durable write is
    // a write and a flush.
    assert!(did[2] > 0 && did[2] <= said[2], "flushes: {} told, {} done", said[2], did[2]);
    drop(daemon);
}

/// A mirror of image files: each side writes all data, and the process the sum.
#[test]
fn a_mirror_writes_twice_what_its_vdev_does() {
    let place = Place::new();
    let (a, b) = (place.image("a"), place.image("b"));
    let daemon = served(&place, &["mirror", &a, &b]);
    let (told_before, before) = (at_rest(&place), written_by(&daemon));
    work(&place);
    place.must(&["set", "quota=1G", "tank/vms"]);
    let (told_after, after) = (at_rest(&place), written_by(&daemon));
    let sides = [0, 1].map(|side| minus(of_leaf(&told_after, side), of_leaf(&told_before, side)));
    assert_eq!(sides[0][1], sides[1][1], "both sides are written alike");
    let vdev = |stat: &Value| {
        let io = &stat[0]["vdevs"][0]["io"];
        [told(&io["reads"]).1, told(&io["writes"]).1 + told(&io["durable_writes"]).1]
    };
    let logical = minus(vdev(&told_after), vdev(&told_before));
    assert_eq!(logical[0], sides[0][0] + sides[1][0], "a read goes to one side");
    let labels = sides[0][1] - logical[1];
    assert!(labels > 0 && labels % (4 * 4096) == 0 && labels < 1 << 20, "uberblocks: {labels}");
    // /proc/PID/io counts the bytes that the process caused to be written (proc(5)); beside the
    // disks it writes its log and list of pools.
    let process = after - before;
    let disks = sides[0][1] + sides[1][1];
    assert!((disks..disks + (1 << 20)).contains(&process), "{disks} told, {process} written");
    // The table has the figures of the JSON, for each second, and a row for each.
    let table = place.must(&["iostat", "-vlHp", "tank"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["tank", "mirror-0", a.as_str(), b.as_str()]);
    let now = place.json(&["iostat", "tank"]);
    let of = |kind: &str| told(&now[0]["io"][kind]);
    let (plain, durable) = (of("writes"), of("durable_writes"));
    let (writes, bytes) = (plain.0 + durable.0, plain.1 + durable.1);
    let seconds = number(&now[0]["uptime_ns"]) as f64 / 1e9;
    let shown: [f64; 2] = [rows[0][4], rows[0][6]].map(|cell| cell.parse().unwrap());
    for (shown, count) in shown.into_iter().zip([writes, bytes]) {
        let rate = count as f64 / seconds;
        assert!(shown >= rate * 0.9 - 1.0 && shown <= rate * 1.5 + 1.0, "{shown} {rate}");
    }
    assert!(rows.iter().all(|row| row.len() == 15), "{table}");
    let txgs = &now[0]["txgs"];
    assert!(number(&txgs["count"]) > 0 && number(&txgs["total_ns"]) > 0, "{txgs}");
    // Every operation is in one line of the histogram.
    let histogram = place.must(&["iostat", "-wHp", "tank"]);
    let all: u64 =
        histogram.lines().map(|l| l.split('\t').nth(3).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(all, told(&place.json(&["iostat", "tank"])[0]["io"]["writes"]).0, "{histogram}");
    assert!(place.must(&["iostat", "-w"]).starts_with("tank\n"));
}

fn written_by(daemon: &Daemon) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", daemon.pid())).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}
