//! throwaway
use std::time::Duration;
use aquifer_conformance::guest::{Guest, GuestConfig};
use aquifer_conformance::peer::ganesha::{EXPORT, Ganesha};
use aquifer_conformance::work::WorkDir;
use aquifer_conformance::Result;
#[test]
fn soak() -> Result<()> {
    let work = WorkDir::open()?;
    let scratch = work.scratch("soak")?;
    let ganesha = Ganesha::start(&scratch, &scratch.dir("export")?)?;
    let mut config = GuestConfig { netns: Some(ganesha.netns().clone()), life: Duration::from_secs(900), ..GuestConfig::default() };
    config.modules.push("nfsv4");
    let guest = Guest::boot(&work, &scratch, &config)?;
    guest.mount(EXPORT, "/mnt", "vers=3,proto=tcp,mountproto=tcp,nolock,hard")?;
    guest.mount(EXPORT, "/mnt4", "vers=4.2,proto=tcp,hard")?;
    let l = Duration::from_secs(800);
    for seed in 100..106 {
        for m in ["/mnt", "/mnt4"] {
            let s = guest.run(&format!("nfstest fsx {m}/f{seed} --seed {seed} --ops 6000 --length 1000000 --direct 1"), l)?;
            println!("{m} {seed} {} {}", s.status, s.output);
        }
    }
    println!("{:?}", guest.run("nfstest tree /mnt/t --files 10000", l)?);
    println!("{:?}", guest.run("nfstest tree /mnt4/t --files 3000", l)?);
    println!("{:?}", guest.run("time nfstest fill /mnt/big --bytes 100000000; echo 3 >/proc/sys/vm/drop_caches; nfstest verify /mnt/big --bytes 100000000", l)?);
    println!("{}", guest.console());
    Ok(())
}
#[test]
fn boots() -> Result<()> {
    let work = WorkDir::open()?;
    let scratch = work.scratch("boots")?;
    for _ in 0..8 {
        let guest = Guest::boot(&work, &scratch, &GuestConfig::default())?;
        println!("{:?}", guest.boot_time());
    }
    Ok(())
}
