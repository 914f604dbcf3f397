//! The lock manager and the status monitor over real sockets, with a host that can be called back.
//!
//! The results of each procedure follow RFC 1813 appendix II and X/Open C702.

pub mod host;

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use aquifer_nfs::lock::{LockState, LockView};
use aquifer_nfs::proto::nlm::*;
use aquifer_nfs::proto::nsm::{self, Res, StatChge, StatRes};
use aquifer_nfs::proto::v3::NfsFh3;
use aquifer_nfs::{Access, Export};
use aquifer_nfsd::LockKeeper;
use aquifer_rpc::message::Accepted;
use aquifer_rpc::xdr::Encode;

use crate::client::{Client, Refusal};
use crate::fixture::{Fixture, config};
use host::Host;

pub const COOKIE: Netobj<'static> = Limited(b"cookie");

/// A server with a keeper, and the host that it calls.
pub struct Place {
    pub fixture: Fixture,
    pub host: Host,
    pub state: tempfile::TempDir,
    pub client: Client,
    pub file: NfsFh3,
    exports: fn() -> Vec<Export>,
}

fn exports() -> Vec<Export> {
    let access = Access::read_write_for(["10.0.0.0/8".parse().unwrap()]);
    vec![
        Export::new("/vms", "tank/vms"),
        Export { access: Access::read_only(), ..Export::new("/iso", "tank/iso") },
        Export { access, ..Export::new("/elsewhere", "tank") },
    ]
}

impl Place {
    pub fn new() -> Place {
        Place::with(exports)
    }

    pub fn with(exports: fn() -> Vec<Export>) -> Place {
        let mut fixture = Fixture::new();
        let host = Host::start();
        let state = tempfile::tempdir().unwrap();
        let (mut client, root) = fixture.mounted();
        let file = client.file(root, "disk.raw");
        serve(&mut fixture, (&host, state.path()), Duration::from_secs(1), exports());
        let client = fixture.client();
        Place { fixture, host, state, client, file, exports }
    }

    /// Kills the server and starts it again, with this grace period.
    pub fn restart(&mut self, grace: Duration) {
        let around = (&self.host, self.state.path());
        serve(&mut self.fixture, around, grace, (self.exports)());
        self.client = self.fixture.client();
    }

    pub fn locks(&self) -> Vec<LockView> {
        self.fixture.server().nfs().locks().list()
    }

    #[track_caller]
    fn until_held(&self, svid: i32) {
        self.fixture.until("the lock to be held", |fixture| {
            let locks = fixture.server().nfs().locks().list();
            locks.iter().any(|lock| lock.owner.svid == svid && lock.state == LockState::Held)
        });
    }
}

fn serve(
    fixture: &mut Fixture,
    (host, state): (&Host, &Path),
    grace: Duration,
    exports: Vec<Export>,
) {
    if let Some(server) = fixture.server.take() {
        fixture.block_on(server.stop());
    }
    let keeper = LockKeeper::open_with(state, grace, host.port);
    keeper.begin();
    fixture.keeper = Some(keeper);
    fixture.serve(config(), exports);
}

pub fn lock(file: &NfsFh3, svid: i32, l_offset: u64, l_len: u64) -> Lock4<'_> {
    let (caller_name, fh, oh) = (Limited(b"pve1"), Limited(file.bytes()), Limited(b"owner"));
    Lock4 { caller_name, fh, oh, svid, l_offset, l_len }
}

pub fn lock_args(alock: Lock4<'_>, block: bool, reclaim: bool) -> LockArgs4<'_> {
    LockArgs4 { cookie: COOKIE, block, exclusive: true, alock, reclaim, state: 1 }
}

#[track_caller]
pub fn call(client: &mut Client, procedure: Procedure, args: &impl Encode) -> Nlm4Stats {
    let what = (PROGRAM, VERSION, procedure.wire());
    let results = client.call(what, args).unwrap_or_else(|_| panic!("{procedure:?} refused"));
    let res: Nlm4Res<'_> = results.decode();
    assert_eq!(res.cookie, COOKIE);
    res.stat
}

/// LOCK, exclusive and without waiting.
#[track_caller]
pub fn locked(client: &mut Client, file: &NfsFh3, svid: i32) -> Nlm4Stats {
    let args = lock_args(lock(file, svid, 0, 0), false, false);
    call(client, Procedure::Lock, &args)
}

#[track_caller]
pub fn blocked(client: &mut Client, file: &NfsFh3, svid: i32) {
    let args = lock_args(lock(file, svid, 0, 0), true, false);
    assert_eq!(call(client, Procedure::Lock, &args), Nlm4Stats::Blocked);
}

#[track_caller]
pub fn unlocked(client: &mut Client, file: &NfsFh3, svid: i32) {
    let args = UnlockArgs4 { cookie: COOKIE, alock: lock(file, svid, 0, 0) };
    assert_eq!(call(client, Procedure::Unlock, &args), Nlm4Stats::Granted);
}

#[test]
fn a_lock_excludes_others_and_test_names_it() {
    let Place { mut client, file, fixture: _fixture, state: _state, .. } = Place::new();
    let args = lock_args(lock(&file, 1, 100, 104), false, false);
    assert_eq!(call(&mut client, Procedure::Lock, &args), Nlm4Stats::Granted);
    assert_eq!(locked(&mut client, &file, 2), Nlm4Stats::Denied);
    let test = (PROGRAM, VERSION, Procedure::Test.wire());
    let args = |alock| TestArgs4 { cookie: COOKIE, exclusive: false, alock };
    let results = client.call(test, &args(lock(&file, 2, 203, 1))).ok().unwrap();
    let holder =
        Holder4 { exclusive: true, svid: 1, oh: Limited(b"owner"), l_offset: 100, l_len: 104 };
    let expected = TestRes4 { cookie: COOKIE, stat: Nlm4Stats::Denied, holder: Some(holder) };
    assert_eq!(results.decode::<TestRes4<'_>>(), expected);
    let results = client.call(test, &args(lock(&file, 2, 204, 0))).ok().unwrap();
    assert_eq!(results.decode::<TestRes4<'_>>().stat, Nlm4Stats::Granted);
    // An unlock in the middle leaves both ends.
    let hole = UnlockArgs4 { cookie: COOKIE, alock: lock(&file, 1, 150, 1) };
    assert_eq!(call(&mut client, Procedure::Unlock, &hole), Nlm4Stats::Granted);
    let middle = lock_args(lock(&file, 2, 150, 1), false, false);
    assert_eq!(call(&mut client, Procedure::Lock, &middle), Nlm4Stats::Granted);
    assert_eq!(locked(&mut client, &file, 1), Nlm4Stats::Denied);
}

/// A grant is lost once (the call fails) and sent again; a waiter that no longer wants the lock is
/// skipped.
#[test]
fn who_waited_is_called_back_until_it_answers() {
    let mut place = Place::new();
    let (client, file) = (&mut place.client, &place.file);
    assert_eq!(locked(client, file, 1), Nlm4Stats::Granted);
    for svid in [2, 3, 4, 5] {
        blocked(client, file, svid);
    }
    // The third changes its mind.
    let alock = lock(file, 3, 0, 0);
    let cancel = CancArgs4 { cookie: COOKIE, block: true, exclusive: true, alock };
    assert_eq!(call(client, Procedure::Cancel, &cancel), Nlm4Stats::Granted);
    assert_eq!(call(client, Procedure::Cancel, &cancel), Nlm4Stats::Denied);
    // Over TCP and UDP the first time; then the fourth does not want its own.
    place.host.answer_next(&[None, None, Some(Nlm4Stats::Granted), Some(Nlm4Stats::Denied)]);
    assert!(place.host.is_quiet());
    unlocked(client, file, 1);
    let began = Instant::now();
    assert_eq!([place.host.granted(), place.host.granted(), place.host.granted()], [2, 2, 2]);
    assert!(began.elapsed() >= Duration::from_millis(900), "told again after a second");
    place.until_held(2);
    unlocked(&mut place.client, &place.file, 2);
    assert_eq!([place.host.granted(), place.host.granted()], [4, 5]);
    place.until_held(5);
    assert_eq!(place.locks().len(), 1);
}

#[test]
fn asynchronous_procedures_call_with_their_results() {
    let Place { mut client, file, host, fixture: _fixture, state: _state, .. } = Place::new();
    /// Calls `message`, which has no results; returns the content of the `results` call.
    #[track_caller]
    fn sent(
        (client, host): (&mut Client, &Host),
        message: Procedure,
        results: Procedure,
        args: &impl Encode,
    ) -> Vec<u8> {
        let reply = client.call((PROGRAM, VERSION, message.wire()), args);
        assert!(reply.is_ok(), "{message:?}");
        let body = host.wait(PROGRAM, results.wire());
        assert_eq!(body[4..10], *b"cookie");
        body[12..].to_vec()
    }
    let alock = lock(&file, 1, 0, 10);
    let args = lock_args(alock, false, false);
    let body = sent((&mut client, &host), Procedure::LockMsg, Procedure::LockRes, &args);
    assert_eq!(body, [0, 0, 0, 0]);
    let other = TestArgs4 { cookie: COOKIE, exclusive: true, alock: lock(&file, 2, 5, 1) };
    let body = sent((&mut client, &host), Procedure::TestMsg, Procedure::TestRes, &other);
    assert_eq!(body[..12], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1], "denied: exclusive, of svid 1");
    let args = CancArgs4 { cookie: COOKIE, block: true, exclusive: true, alock };
    let body = sent((&mut client, &host), Procedure::CancelMsg, Procedure::CancelRes, &args);
    assert_eq!(body, [0, 0, 0, 1]);
    let args = UnlockArgs4 { cookie: COOKIE, alock };
    let body = sent((&mut client, &host), Procedure::UnlockMsg, Procedure::UnlockRes, &args);
    assert_eq!(body, [0, 0, 0, 0]);
    let args = TestArgs4 { cookie: COOKIE, exclusive: true, alock };
    let body = sent((&mut client, &host), Procedure::GrantedMsg, Procedure::GrantedRes, &args);
    assert_eq!(body, [0, 0, 0, 1], "we wait for nothing");
}

#[test]
fn reservations_and_locks_end_with_their_client() {
    let Place { mut client, file, fixture, state: _state, .. } = Place::new();
    let share = |oh, mode, access, reclaim| ShareArgs4 {
        cookie: COOKIE,
        share: Share4 {
            caller_name: Limited(b"pve1"),
            fh: Limited(file.bytes()),
            oh: Limited(oh),
            mode,
            access,
        },
        reclaim,
    };
    let mut asked = |procedure: Procedure, args: ShareArgs4<'_>| {
        let what = (PROGRAM, VERSION, procedure.wire());
        let results = client.call(what, &args).map_err(|refusal| match refusal {
            Refusal::Accepted(status) => status,
            Refusal::Denied(why) => panic!("{why:?}"),
        })?;
        let res: ShareRes4<'_> = results.decode();
        assert_eq!((res.cookie, res.sequence), (COOKIE, 0));
        Ok(res.stat)
    };
    assert_eq!(asked(Procedure::Share, share(b"a", 2, 1, false)), Ok(Nlm4Stats::Granted));
    assert_eq!(asked(Procedure::Share, share(b"b", 0, 2, false)), Ok(Nlm4Stats::Denied));
    assert_eq!(asked(Procedure::Share, share(b"b", 0, 1, false)), Ok(Nlm4Stats::Granted));
    assert_eq!(asked(Procedure::Unshare, share(b"a", 2, 1, false)), Ok(Nlm4Stats::Granted));
    assert_eq!(asked(Procedure::Share, share(b"b", 0, 2, false)), Ok(Nlm4Stats::Granted));
    let reclaim = asked(Procedure::Share, share(b"c", 0, 1, true));
    assert_eq!(reclaim, Ok(Nlm4Stats::DeniedGracePeriod), "there is nothing to claim");
    assert_eq!(asked(Procedure::Share, share(b"a", 4, 1, false)), Err(Accepted::GarbageArgs));
    assert_eq!(locked(&mut client, &file, 1), Nlm4Stats::Granted);
    let not_monitored = lock_args(lock(&file, 1, 0, 0), false, false);
    assert_eq!(call(&mut client, Procedure::NmLock, &not_monitored), Nlm4Stats::Granted);
    assert_eq!(fixture.server().nfs().locks().list().len(), 2);
    // It is monitored: its locks end when it has restarted, not at a mere claim (see `neighbours`).
    free_all(&mut client, b"pve1");
    assert_eq!(fixture.server().nfs().locks().list().len(), 2);
}

/// FREE_ALL in the name of a host, with a state that some send in 4 bytes and some in 8.
pub fn free_all(client: &mut Client, name: &[u8]) {
    let what = (PROGRAM, VERSION, Procedure::FreeAll.wire());
    assert!(client.call(what, &NameAndState(Limited(name), 3)).is_ok());
}

/// A client that nobody monitors gives up its locks by itself, from a port of its superuser.
#[test]
fn a_client_that_nobody_monitors_gives_up_all() {
    let Place { mut client, file, fixture, state: _state, .. } = Place::new();
    let args = lock_args(lock(&file, 1, 0, 0), false, false);
    assert_eq!(call(&mut client, Procedure::NmLock, &args), Nlm4Stats::Granted);
    let left = || fixture.server().nfs().locks().list().len();
    let mut low = Client::connect_from("127.0.0.1", 0..1024, fixture.address());
    free_all(&mut client, b"pve1");
    assert_eq!(left(), 1, "from a port of everybody");
    free_all(&mut low, b"other");
    assert_eq!(left(), 1);
    free_all(&mut low, b"pve1");
    assert_eq!(left(), 0);
}

/// A restart: the host is notified, with an odd state, and reclaims its lock. No other client gets
/// one before the grace ends.
#[test]
fn a_restart_is_told_and_locks_are_claimed() {
    let mut place = Place::new();
    assert_eq!(locked(&mut place.client, &place.file, 1), Nlm4Stats::Granted);
    let reclaim = |place: &mut Place, svid| {
        let args = lock_args(lock(&place.file, svid, 0, 0), false, true);
        call(&mut place.client, Procedure::Lock, &args)
    };
    assert_eq!(reclaim(&mut place, 1), Nlm4Stats::DeniedGracePeriod, "no restart, no claims");
    let before = place.fixture.server().nfs().locks().state();
    place.restart(Duration::from_secs(3));
    let notified = place.host.wait(nsm::PROGRAM, nsm::Procedure::Notify.wire());
    let state = i32::from_be_bytes(*notified.last_chunk().unwrap());
    assert_eq!((state, before % 2), (before + 2, 1));
    assert!(notified[4..].starts_with(b"127.0.0.1"), "by the address that it knows: {notified:?}");
    assert!(place.locks().is_empty());
    assert_eq!(locked(&mut place.client, &place.file, 2), Nlm4Stats::DeniedGracePeriod);
    assert_eq!(reclaim(&mut place, 1), Nlm4Stats::Granted);
    assert_eq!(reclaim(&mut place, 2), Nlm4Stats::Denied);
    place.fixture.until("the grace to end", |fixture| !fixture.server().nfs().locks().in_grace());
    assert_eq!(locked(&mut place.client, &place.file, 2), Nlm4Stats::Denied);
    // A client that was notified a moment after the start has its time until a moment after the
    // grace.
    let begun = Instant::now();
    while reclaim(&mut place, 1) != Nlm4Stats::DeniedGracePeriod {
        assert!(begun.elapsed() < Duration::from_secs(10), "claims without end");
    }
    unlocked(&mut place.client, &place.file, 1);
    // Notified, and without a lock when the list was last written: no grace period after the next
    // start but one.
    place.restart(Duration::from_secs(3));
    assert!(place.fixture.server().nfs().locks().in_grace());
    place.host.wait(nsm::PROGRAM, nsm::Procedure::Notify.wire());
}

#[test]
fn a_fresh_start_has_no_grace_and_a_damaged_list_is_replaced() {
    let mut place = Place::new();
    assert!(!place.fixture.server().nfs().locks().in_grace());
    let list = place.state.path().join("lock-clients.json");
    std::fs::write(&list, "{\"state\": ").unwrap();
    place.restart(Duration::from_secs(60));
    let locks = place.fixture.server().nfs().locks();
    assert!(locks.in_grace() && locks.state() % 2 == 1, "who had locks is not known");
    let written = std::fs::read_to_string(&list).unwrap();
    assert!(written.contains("\"clients\": []"), "{written}");
}

#[test]
fn a_host_that_says_that_it_was_restarted_loses_its_locks() {
    let Place { mut client, file, host, fixture, state: _state, .. } = Place::new();
    assert_eq!(locked(&mut client, &file, 1), Nlm4Stats::Granted);
    let args =
        lock_args(Lock4 { caller_name: Limited(b"pve2"), ..lock(&file, 2, 0, 0) }, true, false);
    assert_eq!(call(&mut client, Procedure::Lock, &args), Nlm4Stats::Blocked);
    // Over UDP, as status monitors do; twice, as datagrams come. The host's own monitor does not
    // run yet.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.connect(fixture.address()).unwrap();
    for _ in 0..2 {
        let change = StatChge { mon_name: Limited(b"pve1.example.org"), state: 5 };
        let what = (nsm::PROGRAM, nsm::VERSION, nsm::Procedure::Notify.wire());
        socket.send(&client.record(what, &change)[4..]).unwrap();
        let mut reply = [0; 64];
        assert_eq!(socket.recv(&mut reply).unwrap(), 24, "accepted, no results");
        assert_eq!(reply[20..24], [0; 4]);
    }
    host.wait(nsm::PROGRAM, nsm::Procedure::Stat.wire());
    assert_eq!(fixture.server().nfs().locks().list().len(), 2, "not by a word alone");
    host.has_state(Some(5));
    assert_eq!(host.granted(), 2);
    let locks = fixture.server().nfs().locks().list();
    assert_eq!(locks.iter().map(|lock| lock.owner.svid).collect::<Vec<_>>(), [2]);
    // Files are not served over UDP.
    socket.send(&client.null_record()[4..]).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err());
}

#[test]
fn what_may_not_be_locked_is_refused_in_its_own_words() {
    let Place { mut client, file, fixture, state: _state, .. } = Place::new();
    let iso = client.mount("/iso").unwrap();
    let handle = |bytes: &[u8]| NfsFh3::new(bytes).unwrap();
    let mut old = *file.bytes().first_chunk::<24>().unwrap();
    old[16] ^= 1;
    let mut foreign = old;
    foreign[0] ^= 0x55;
    let pool = fixture.pool().files.root("tank").unwrap();
    for (file, expected) in [
        (file, Nlm4Stats::Granted),
        (iso, Nlm4Stats::Rofs),
        (handle(&old), Nlm4Stats::StaleFh),
        (handle(&foreign), Nlm4Stats::StaleFh),
        (handle(b""), Nlm4Stats::StaleFh),
        (handle(&[7; 64]), Nlm4Stats::StaleFh),
        (handle(&pool.encode()), Nlm4Stats::Failed),
    ] {
        assert_eq!(locked(&mut client, &file, 1), expected, "{file:?}");
    }
    let shared = LockArgs4 { exclusive: false, ..lock_args(lock(&iso, 1, 0, 0), false, false) };
    assert_eq!(call(&mut client, Procedure::Lock, &shared), Nlm4Stats::Granted);
    let beyond = lock_args(lock(&file, 1, u64::MAX, 2), false, false);
    assert_eq!(call(&mut client, Procedure::Lock, &beyond), Nlm4Stats::Fbig);
    let long = [b'n'; 1000];
    let alock = Lock4 { caller_name: Limited(&long), ..lock(&file, 1, 0, 0) };
    let args = lock_args(alock, false, false);
    assert_eq!(call(&mut client, Procedure::Lock, &args), Nlm4Stats::DeniedNolocks);
    let mut refusal = |what, args: &[u8]| match client.call(what, &RawWords(args)) {
        Err(Refusal::Accepted(status)) => status,
        _ => panic!("not refused: {what:?}"),
    };
    for version in [1, 2, 3, 5] {
        let status = refusal((PROGRAM, version, 0), b"");
        assert_eq!(status, Accepted::ProgMismatch { low: 4, high: 4 });
    }
    for procedure in [16, 19, 24, u32::MAX] {
        assert_eq!(refusal((PROGRAM, VERSION, procedure), b""), Accepted::ProcUnavail);
    }
    for procedure in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 21, 22, 23] {
        assert_eq!(refusal((PROGRAM, VERSION, procedure), &[255; 64]), Accepted::GarbageArgs);
    }
    assert_eq!(refusal((nsm::PROGRAM, 2, 0), b""), Accepted::ProgMismatch { low: 1, high: 1 });
    assert_eq!(refusal((nsm::PROGRAM, 1, 6), &[255; 64]), Accepted::GarbageArgs);
}

/// Words as they are.
struct RawWords<'a>(&'a [u8]);

impl Encode for RawWords<'_> {
    fn encode(&self, to: &mut aquifer_rpc::xdr::EncodeBuf) {
        to.opaque_fixed(self.0);
    }
}

/// A name and a state.
pub struct NameAndState<'a>(pub Name<'a>, pub u32);

impl Encode for NameAndState<'_> {
    fn encode(&self, to: &mut aquifer_rpc::xdr::EncodeBuf) {
        to.put(&self.0);
        to.u32(self.1);
    }
}

/// We monitor no host on behalf of others.
#[test]
fn the_status_monitor_is_for_our_own_locks() {
    let Place { mut client, fixture, state: _state, .. } = Place::new();
    let state = fixture.server().nfs().locks().state();
    let name = Limited::<1024>(b"somebody");
    for procedure in [nsm::Procedure::Stat, nsm::Procedure::Mon] {
        let results = client.call((nsm::PROGRAM, nsm::VERSION, procedure.wire()), &name);
        let expected = StatRes { res_stat: Res::Fail, state };
        assert_eq!(results.ok().unwrap().decode::<StatRes>(), expected);
    }
    for procedure in [nsm::Procedure::Unmon, nsm::Procedure::UnmonAll] {
        let results = client.call((nsm::PROGRAM, nsm::VERSION, procedure.wire()), &name);
        assert_eq!(results.ok().unwrap().decode::<i32>(), state);
    }
}
