//! RPC-with-TLS with a real client: a guest whose kernel supports it, with `tlshd`.

use aquifer_conformance::guest::{Guest, GuestConfig};
use aquifer_conformance::trixie::{MODULES, START, TlsGuest};
use aquifer_conformance::{Error, Result};
use aquifer_rig::tls::Authority;
use aquifer_rig::work::WorkDir;

use crate::place::{Aquifer, DATASET, EXPORT, LONG, SOON, Setup, V3, text};

/// The server's address in the guest's network, which its certificate is for.
const SERVER: &str = "10.0.2.2";
/// The name in the guest's certificate.
const GUEST: &str = "hv1.example";

#[test]
fn the_kernels_client_comes_over_tls() -> Result<()> {
    let work = WorkDir::open()?;
    let keys = work.scratch("tls-keys")?;
    let home = keys.dir("keys")?;
    let made = Error::io("make certificates");
    let certified = Authority::new(&home, "authority").and_then(|authority| {
        let server = authority.certify("server", &[SERVER])?;
        Ok((server, authority.certify("guest", &[GUEST])?))
    });
    let (server, own) = certified.map_err(made)?;
    let authority = home.join("authority.pem");
    let config = format!(
        "[nfs.tls]\ncertificate = {:?}\nkey = {:?}\nclients = {:?}\n",
        server.certificate, server.key, authority
    );
    let aquifer = Aquifer::start_configured("tls", Setup::default(), &config)?;
    let only = format!("sharenfs=insecure,rw=cert:{GUEST},xprtsec=mtls");
    aquifer.must(&["set", &only, DATASET])?;
    let TlsGuest { kernel, files } = TlsGuest::fetch(&work, &authority, Some(&own))?;
    let mut guest = GuestConfig {
        kernel: Some(kernel),
        netns: Some(aquifer.netns().clone()),
        files,
        ..GuestConfig::default()
    };
    guest.modules.extend(MODULES);
    let guest = Guest::boot(&work, aquifer.scratch(), &guest)?;
    guest.check(START, SOON)?;
    // In the clear it gets only as far as MOUNT.
    let refused = guest.run(&mount("/clear", &format!("{V3},soft,retrans=1")), LONG)?;
    assert_ne!(refused.status, 0, "{}", refused.output);
    // tlshd takes a moment to start; until then the kernel has no handshake daemon.
    let over_tls = mount("/mnt", &format!("{V3},xprtsec=mtls"));
    let patient = format!("for try in $(seq 20); do {over_tls} && exit 0; sleep 1; done; exit 1");
    let shaken = guest.run(&patient, LONG)?;
    if shaken.status != 0 {
        let said = guest.run("cat /tmp/tlshd.log; dmesg | tail -n 20", SOON)?.output;
        let what = "a mount over TLS".into();
        let said = format!("{}\n{said}\n{}", shaken.output, text(&home));
        return Err(Error::Failed { what, said });
    }
    let copy = "nfstest fill /mnt/source --bytes 20000001 --seed 7 && \
        dd if=/mnt/source of=/mnt/copy bs=1000000 conv=fsync && \
        echo 3 >/proc/sys/vm/drop_caches && cmp /mnt/source /mnt/copy && \
        nfstest verify /mnt/copy --bytes 20000001 --seed 7";
    guest.check(copy, LONG)?;
    guest.check("nfstest fsx /mnt/fsx --seed 1 --ops 500 --direct 1", LONG)?;
    // A certificate that the rules do not name gives no access.
    aquifer.must(&["set", "sharenfs=insecure,rw=cert:other.example,xprtsec=mtls", DATASET])?;
    let refused = guest.run("ls /mnt/ && cat /mnt/copy >/dev/null", SOON)?;
    assert_ne!(refused.status, 0, "{}", refused.output);
    aquifer.must(&["set", &only, DATASET])?;
    guest.check("ls /mnt && umount /mnt", LONG)?;
    guest.power_off(LONG)?;
    aquifer.finish()
}

fn mount(directory: &str, options: &str) -> String {
    format!("nfstest mount {SERVER}:{EXPORT} {directory} {options}")
}
