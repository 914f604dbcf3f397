//! libnfs's tools and QEMU's nfs driver against nfs-ganesha. This proves the wrappers, and is the
//! model for the same tests against Aquifer.
//!
//! Select with `cargo test client_`. Needs root and `scripts/setup-deps.sh clients peer`.

use std::fs;
use std::time::Duration;

use aquifer_conformance::clients::{Bench, Call, Clients};
use aquifer_conformance::pattern;
use aquifer_conformance::{Error, Result};
use aquifer_rig::peer::ganesha::{EXPORT, Ganesha};
use aquifer_rig::work::{Scratch, WorkDir};

fn server(scratch: &Scratch) -> Result<(Ganesha, Clients)> {
    let ganesha = Ganesha::start(scratch, &scratch.dir("export")?)?;
    let clients = Clients::new(Some(ganesha.netns()), Duration::from_secs(60));
    Ok((ganesha, clients))
}

#[test]
fn client_showmount_and_rpcinfo() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("client-rpc")?;
    let (mut ganesha, clients) = server(&scratch)?;
    let exports = clients.showmount(&["--no-headers", "-e", "127.0.0.1"]).done()?;
    assert!(exports.text().starts_with(EXPORT), "{}", exports.text());
    let programs = clients.rpcinfo(&["-s", "127.0.0.1"]).done()?;
    let nfs = programs.text().lines().find(|line| line.contains("nfs ")).map(str::to_owned);
    assert!(nfs.is_some_and(|line| line.contains("4,3") || line.contains("3,4")));
    ganesha.kill9();
    assert!(!clients.rpcinfo(&["-T", "tcp", "127.0.0.1", "nfs", "3"])?.status.success());
    ganesha.restart()?;
    clients.rpcinfo(&["-T", "tcp", "127.0.0.1", "nfs", "3"]).done().map(|_| ())
}

#[test]
fn client_libnfs_copies_lists_and_reads() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("client-libnfs")?;
    let (ganesha, clients) = server(&scratch)?;
    let mut content = vec![0; 3_000_001];
    pattern::fill(3, 0, &mut content);
    let local = scratch.join("local");
    fs::write(&local, &content).map_err(Error::at("write", &local))?;
    let url = ganesha.url("copied");
    clients.nfs_cp(&local.to_string_lossy(), &url).done()?;
    let served = ganesha.directory().join("copied");
    assert!(fs::read(&served).map_err(Error::at("read", &served))? == content);
    let listed = clients.nfs_ls(&ganesha.url("")).done()?.text();
    assert!(listed.contains("copied") && listed.contains("3000001"), "{listed}");
    assert!(clients.nfs_cat(&url).done()?.stdout == content);
    let missing = clients.nfs_cat(&ganesha.url("missing"))?;
    assert!(missing.stdout.is_empty() && missing.said().contains("NFS3ERR_NOENT"), "{missing:?}");
    Ok(())
}

#[test]
fn client_qemu_img_creates_converts_compares_and_checks() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("client-qemu-img")?;
    let (ganesha, clients) = server(&scratch)?;
    let (raw, qcow2) = (ganesha.url("disk.raw"), ganesha.url("disk.qcow2"));
    clients.image_create("raw", &raw, 64 << 20).done()?;
    let write = ["write -P 0x5a 1M 128k", "write -P 0xa5 63M 64k", "flush"];
    clients.image_io("raw", &raw, &write).done()?;
    clients.image_io("raw", &raw, &["read -P 0x5a 1M 128k", "read -P 0 2M 1M"]).done()?;
    let wrong = clients.image_io("raw", &raw, &["read -P 0x5b 1M 128k"])?;
    assert!(!wrong.status.success(), "{}", wrong.said());
    clients.image_convert(("raw", &raw), ("qcow2", &qcow2)).done()?;
    clients.image_compare(("raw", &raw), ("qcow2", &qcow2)).done()?;
    let checked = clients.image_check("qcow2", &qcow2).done()?.text();
    assert!(checked.contains("No errors were found"), "{checked}");
    let info = clients.image_info("qcow2", &qcow2).done()?.text();
    assert!(info.contains("\"virtual-size\": 67108864"), "{info}");
    clients.image_io("raw", &raw, &["write -P 0x77 5M 4k"]).done()?;
    let differ = clients.image_compare(("raw", &raw), ("qcow2", &qcow2))?;
    assert_eq!(differ.status.code(), Some(1), "{}", differ.said());
    Ok(())
}

#[test]
fn client_qemu_img_bench_counts() -> Result<()> {
    let scratch = WorkDir::open()?.scratch("client-bench")?;
    let (ganesha, clients) = server(&scratch)?;
    let url = ganesha.url("bench.raw");
    clients.image_create("raw", &url, 64 << 20).done()?;
    let before = ganesha.cpu_time()?;
    for write in [true, false] {
        let bench =
            Bench { count: 4000, depth: 16, bytes: 4096, write, flush_every: 0, pattern: 0x5a };
        let rate = clients.image_bench("raw", &url, bench)?;
        eprintln!("write {write}: {rate:.0} requests/s");
        assert!(rate > 10.0, "{rate}");
    }
    let used = ganesha.cpu_time()?.saturating_sub(before);
    eprintln!("server used {used:?} of processor time");
    assert!(used > Duration::ZERO);
    let missing =
        Bench { count: 1, depth: 1, bytes: 4096, write: false, flush_every: 0, pattern: 0x5a };
    assert!(clients.image_bench("raw", &ganesha.url("none"), missing).is_err());
    Ok(())
}
