//! QEMU's own NFS driver over our server.

use aquifer_conformance::clients::{Bench, Call};

use crate::Served;

const MIB: u64 = 1 << 20;

#[test]
fn qemu_makes_converts_compares_and_checks_images() {
    let mut served = Served::started("qemu-img");
    let clients = &served.clients;
    let (raw, qcow2) = (Served::url("disk.raw"), Served::url("disk.qcow2"));
    clients.image_create("raw", &raw, 64 * MIB).done().unwrap();
    let commands = ["write -P 0x5a 0 1M", "write -P 0xa5 40M 3M", "write -z 1M 64k", "flush"];
    clients.image_io("raw", &raw, &commands).done().unwrap();
    clients.image_convert(("raw", &raw), ("qcow2", &qcow2)).done().unwrap();
    clients.image_check("qcow2", &qcow2).done().unwrap();
    clients.image_compare(("raw", &raw), ("qcow2", &qcow2)).done().unwrap();
    clients.image_io("qcow2", &qcow2, &["write -P 0x11 5M 4k"]).done().unwrap();
    let same = clients.image_compare(("raw", &raw), ("qcow2", &qcow2)).unwrap();
    assert_eq!(same.status.code(), Some(1), "they differ now");
    // Flushed data is there after a kill.
    served.server.restart(crate::SOON).unwrap();
    let clients = &served.clients;
    let reads = ["read -P 0x5a 0 1M", "read -P 0 1M 64k", "read -P 0xa5 40M 3M"];
    clients.image_io("raw", &raw, &reads).done().unwrap();
    clients.image_check("qcow2", &qcow2).done().unwrap();
    served.stop();
}

#[test]
fn qemu_bench_runs_at_depth() {
    let mut served = Served::started("qemu-bench");
    let image = Served::url("bench.raw");
    served.clients.image_create("raw", &image, 64 * MIB).done().unwrap();
    for (write, depth) in [(true, 1), (true, 32), (false, 32)] {
        let bench = Bench { count: 3000, depth, bytes: 4096, write, flush_every: 0, pattern: 0x5a };
        let rate = served.clients.image_bench("raw", &image, bench).unwrap();
        println!("qemu-img bench write={write} depth={depth}: {rate:.0} requests/s");
        assert!(rate > 100.0, "{rate}");
    }
    served.stop();
}
