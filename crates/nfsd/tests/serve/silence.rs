//! MOUNT and NLM while the disks of the pool do not answer.

use std::thread;
use std::time::{Duration, Instant};

use aquifer_nfs::proto::mount::{DirPath, MountRes3, Path, Procedure as Mount};
use aquifer_nfs::proto::nlm::{Nlm4Stats, PROGRAM, Procedure, TestArgs4, TestRes4, VERSION};
use aquifer_nfs::proto::v3::NfsFh3;
use aquifer_rig::wire::call::of_mount;

use crate::fixture::Fixture;
use crate::locks::{COOKIE, Place, call, lock, lock_args, locked};

/// So many files that what is asked about is not in memory by chance.
const FILES: usize = 1500;
/// The time for claims after the restart.
const GRACE: Duration = Duration::from_secs(1);

/// A server that has restarted, with nothing in memory: a directory `/vms/sub/deep`, many files,
/// and of these the one in which a client has a lock.
fn cold() -> (Place, NfsFh3) {
    let mut place = Place::new();
    let (mut client, root) = place.fixture.mounted();
    let sub = client.dir(root, "sub");
    let mut make = |from: usize| {
        let names = from..from + FILES / 2;
        names.map(|name| client.file(sub, &format!("file {name}"))).last().unwrap()
    };
    let file = make(0);
    make(FILES / 2);
    client.dir(sub, "deep");
    assert_eq!(locked(&mut client, &file, 1), Nlm4Stats::Granted);
    place.fixture.stop();
    place.fixture.open();
    place.restart(GRACE);
    (place, file)
}

/// Nothing comes from the disk, and the pool knows.
pub fn silence(fixture: &Fixture) {
    fixture.until("an operation that waits", |fixture| fixture.gate.waiting() > 0);
    // What passed the gate before it closed may still answer meanwhile.
    fixture.until("the pool to be silent", |fixture| {
        fixture.pool().pool.listen();
        fixture.pool().pool.is_silent()
    });
}

/// The disk answers, and the pool knows.
pub fn speak(fixture: &Fixture) {
    fixture.gate.open();
    fixture.until("the disk to answer", |fixture| {
        fixture.pool().pool.listen();
        !fixture.pool().pool.is_silent()
    });
}

#[test]
fn a_claim_is_granted_and_other_locks_hear_later() {
    let (place, file) = cold();
    place.fixture.gate.close();
    let mut client = place.fixture.client();
    let claims = thread::spawn(move || {
        let claim = lock_args(lock(&file, 1, 0, 0), false, true);
        call(&mut client, Procedure::Lock, &claim)
    });
    silence(&place.fixture);
    assert_eq!(claims.join().unwrap(), Nlm4Stats::Granted);
    // The time for claims is over.
    thread::sleep(2 * GRACE);
    let begun = Instant::now();
    let mut client = place.fixture.client();
    for _ in 0..20 {
        assert_eq!(locked(&mut client, &file, 2), Nlm4Stats::DeniedGracePeriod);
    }
    let test = TestArgs4 { cookie: COOKIE, exclusive: true, alock: lock(&file, 2, 0, 0) };
    let told = client.call((PROGRAM, VERSION, Procedure::Test.wire()), &test).ok().unwrap();
    assert_eq!(told.decode::<TestRes4<'_>>().stat, Nlm4Stats::DeniedGracePeriod);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    speak(&place.fixture);
    assert_eq!(locked(&mut client, &file, 2), Nlm4Stats::Denied, "the claim holds");
    assert_eq!(locked(&mut client, &file, 1), Nlm4Stats::Granted);
}

#[test]
fn an_export_is_mounted_and_what_is_below_it_waits_for_the_disk() {
    let (place, _) = cold();
    place.fixture.gate.close();
    let mut client = place.fixture.client();
    let root = client.mount("/vms").unwrap();
    let mut below = place.fixture.client();
    let record = below.record(of_mount(Mount::Mnt), &DirPath { path: Path(b"/vms/sub/deep") });
    below.send(&record);
    silence(&place.fixture);
    // It holds up nobody, not even on its own connection.
    let asked = below.xid;
    below.ping();
    assert_eq!(client.mount("/vms").unwrap(), root);
    speak(&place.fixture);
    let (xid, answer) = below.answer();
    assert_eq!(xid, asked);
    let answer = answer.ok().unwrap();
    let MountRes3::Ok { fhandle, .. } = answer.decode() else { panic!("not mounted") };
    assert_eq!(client.mount("/vms/sub/deep"), Ok(fhandle));
}
