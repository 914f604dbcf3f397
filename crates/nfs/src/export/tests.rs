//! Which client may use which dataset, and as which user.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use aquifer_files::{Credentials, FileHandle, Service};
use aquifer_rpc::auth::{AuthSys, Credential, Gids, OpaqueAuth};

use super::*;
use crate::access::{Client, Entry, Whom};
use crate::limits::{EXPORT_LIST_BYTES_MAX, STANDINGS_MAX};

/// The root of a dataset whose guid is the sum of its name's bytes.
fn root_of(dataset: &str) -> Option<Root> {
    let guid = dataset.bytes().map(u64::from).sum();
    (!dataset.is_empty()).then(|| root(guid))
}

fn root(guid: u64) -> Root {
    volume().root(handle(guid))
}

/// A volume of a pool without a file: the table never uses the files.
fn volume() -> &'static Arc<Volume> {
    static POOL: OnceLock<(tokio::runtime::Runtime, Service, Arc<Volume>)> = OnceLock::new();
    let (_, _, volume) = POOL.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // The open image outlives its name.
        let image = tempfile::tempdir().unwrap();
        let service = runtime.block_on(crate::server::tests::pool(&image.path().join("disk")));
        let volume = Volume::new(Arc::clone(&service.files));
        (runtime, service, volume)
    });
    volume
}

fn handle(guid: u64) -> FileHandle {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&guid.to_le_bytes());
    bytes[8] = 1;
    bytes[16] = 1;
    FileHandle::decode(&bytes).unwrap()
}

fn guid(dataset: &str) -> u64 {
    root_of(dataset).unwrap().handle.fs_guid.0
}

fn only(networks: &[&str]) -> Access {
    Access::read_write_for(networks.iter().map(|network| network.parse().unwrap()))
}

fn host(name: &str) -> Access {
    let entry = Entry { client: Client::Host(name.into()), except: false };
    Access { read_write: Whom::Listed(vec![entry]), ..Access::default() }
}

fn peer(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn sys(uid: u32, gid: u32, gids: &[u32]) -> Credential<'static> {
    let gids = Gids::new(gids).unwrap();
    Credential::Sys(AuthSys { stamp: 0, machine_name: b"m", uid, gid, gids })
}

#[test]
fn a_handle_is_admitted_by_dataset_and_client() {
    let vms = Export { access: only(&["10.1.0.0/16", "fd00::/8"]), ..Export::new("/vms", "a/vms") };
    let iso = Export { access: Access::read_only(), ..Export::new("/iso", "a/iso") };
    let exports = Exports::new(vec![vms, iso], root_of).unwrap();
    let admit =
        |dataset, client| exports.admit(guid(dataset), &peer(client).into()).map(|found| found.1);
    for _ in 0..2 {
        assert!(!admit("a/vms", "10.1.2.3:700").unwrap().read_only);
        assert!(!admit("a/vms", "[::ffff:10.1.2.3]:700").unwrap().read_only);
        assert!(!admit("a/vms", "[fd00::7]:40000").unwrap().read_only);
        assert_eq!(admit("a/vms", "10.2.0.1:700"), Err(Refusal::NotAllowed));
        assert!(admit("a/iso", "10.2.0.1:700").unwrap().read_only);
        assert_eq!(admit("a/other", "10.1.2.3:700"), Err(Refusal::NotExported));
    }
    assert!(exports.knows(peer("10.2.0.1:1").ip()));
    exports.replace(vec![Export { access: only(&["10.0.0.1"]), ..Export::new("/", "p") }]).unwrap();
    assert!(!exports.knows(peer("10.2.0.1:1").ip()));
    assert_eq!(admit("a/vms", "10.1.2.3:700"), Err(Refusal::NotExported), "withdrawn");
    exports.expect(["a".to_string()].into());
    assert_eq!(admit("a/vms", "10.1.2.3:700"), Err(Refusal::NotYet), "its pool may yet come");
    assert!(exports.may_cover(&[b"a", b"vms"]) && !exports.may_cover(&[b"b"]));
    exports.expect(Default::default());
    assert_eq!(admit("a/vms", "10.1.2.3:700"), Err(Refusal::NotExported), "it does not");
}

#[test]
fn reserved_ports_are_asked_for_by_secure_ports_only() {
    let export = |secure_ports| Export { secure_ports, ..Export::new("/vms", "vms") };
    for (secure_ports, port, admitted) in
        [(false, 40_000, true), (true, 1024, false), (true, 1023, true), (false, 1, true)]
    {
        let client = SocketAddr::from(([10, 0, 0, 1], port));
        let exports = Exports::new(vec![export(secure_ports)], root_of).unwrap();
        let found = exports.admit(guid("vms"), &client.into()).map(|_| ());
        let wanted = admitted.then_some(()).ok_or(Refusal::NotAllowed);
        assert_eq!(found, wanted, "{secure_ports} {port}");
    }
}

/// Two exports of one dataset: the first that admits the client holds.
#[test]
fn a_dataset_exported_twice_has_the_rights_of_the_first_export_that_admits() {
    let writers = Export { access: only(&["10.0.0.1"]), ..Export::new("/vms", "vms") };
    let readers = Export { access: Access::read_only(), ..Export::new("/vms-ro", "vms") };
    let exports = Exports::new(vec![writers, readers], root_of).unwrap();
    let read_only = |client| exports.admit(guid("vms"), &peer(client).into()).unwrap().1.read_only;
    assert!(!read_only("10.0.0.1:5"));
    assert!(read_only("10.0.0.2:5"));
}

/// A dataset that is destroyed, or exchanges names with another (promote), changes its guid under
/// the export. The table must not remember the old one. The new one is admitted once the table is
/// replaced.
#[test]
fn a_dataset_that_changes_is_looked_up_anew() {
    let now = Arc::new(AtomicU64::new(7));
    let shared = Arc::clone(&now);
    let current = move |_: &str| match shared.load(Ordering::Relaxed) {
        0 => None,
        guid => Some(root(guid)),
    };
    let exports = Exports::new(vec![Export::new("/vms", "vms")], current).unwrap();
    let admitted = |guid| exports.admit(guid, &peer("10.0.0.1:5").into()).map(|_| ());
    let (admits, stale) = (Ok(()), Err(Refusal::NotExported));
    let tell = || exports.replace(exports.list()).unwrap();
    assert_eq!((admitted(7), admitted(8)), (admits, stale));
    now.store(8, Ordering::Relaxed);
    assert_eq!((admitted(7), admitted(8)), (stale, stale));
    tell();
    assert_eq!((admitted(7), admitted(8)), (stale, admits));
    now.store(0, Ordering::Relaxed);
    assert_eq!((admitted(7), admitted(8)), (stale, stale));
    tell();
    now.store(7, Ordering::Relaxed);
    assert_eq!(admitted(7), stale);
    tell();
    assert_eq!(admitted(7), admits);
}

/// A handle that a caller makes up costs no search: not over the exports, and not under a lock that
/// keeps others out. With a search, each of these took milliseconds.
#[test]
fn what_is_made_up_is_found_to_be_nothing_at_once() {
    let one = |number| Export {
        access: only(&["10.1.0.0/16"]),
        ..Export::new(format!("/vm{number}"), "a")
    };
    let exports = Exports::new((0..EXPORTS_MAX).map(one).collect(), root_of).unwrap();
    // A reader that stays: a writer would wait for it.
    let reader = exports.table.read();
    for number in 0..20_000 {
        assert_eq!(
            exports.admit(number, &peer("10.1.0.1:5").into()).map(|_| ()),
            match number {
                97 => Ok(()),
                _ => Err(Refusal::NotExported),
            }
        );
        let path = format!("no{number}");
        assert!(exports.covering(&[path.as_bytes()]).is_none());
        assert!(!exports.knows(peer("10.9.0.1:5").ip()) && exports.knows(peer("10.1.0.1:5").ip()));
    }
    drop(reader);
    // Any number of strangers: the table's memory of them is bounded.
    for number in 0..2 * u32::try_from(STANDINGS_MAX).unwrap() {
        assert!(
            !exports
                .table
                .read()
                .standing(IpAddr::from(number.to_be_bytes()), &Security::Clear)
                .is_admitted
        );
        if number == 100 {
            break;
        }
    }
}

/// Only the first of that many are listed; all can be mounted.
#[test]
fn a_list_of_exports_ends_where_its_room_does() {
    let one = |number: usize| Export::new(format!("/{number}/{}", "x".repeat(100)), "a");
    let exports = Exports::new((0..8000).map(one).collect(), root_of).unwrap();
    assert_eq!(exports.list_bytes_max(), EXPORT_LIST_BYTES_MAX);
    let last = format!("/7999/{}", "x".repeat(100));
    let path: Vec<_> = components(last.as_bytes()).collect();
    assert_eq!(exports.covering(&path).unwrap().0.path, last);
}

/// A change that shuts a client out holds, even if the rest of the new table is not valid.
#[test]
fn what_changes_in_a_table_that_cannot_be_is_withdrawn() {
    let (a, b) = (Export::new("/a", "a"), Export::new("/b", "b"));
    let exports = Exports::new(vec![a.clone(), b.clone()], root_of).unwrap();
    let admitted = |dataset| exports.admit(guid(dataset), &peer("10.0.0.1:5").into()).map(|_| ());
    let tightened = Export { access: only(&["10.9.0.0/16"]), ..a.clone() };
    let twice = [Export::new("/c", "c"), Export::new("/c", "d")];
    let table = [vec![tightened, b.clone()], twice.to_vec()].concat();
    assert!(exports.replace_or_withdraw(table).is_err());
    assert_eq!((admitted("a"), admitted("b")), (Err(Refusal::NotExported), Ok(())));
    assert_eq!(exports.list(), std::slice::from_ref(&b));
    exports.replace_or_withdraw(vec![a, b]).unwrap();
    assert_eq!((admitted("a"), admitted("b")), (Ok(()), Ok(())));
}

#[test]
fn credentials_are_squashed_as_the_export_says() {
    let said = |squash, credential: &Credential<'_>| {
        let export = Export { squash, anon_uid: 77, anon_gid: 78, ..Export::new("/e", "e") };
        let exports = Exports::new(vec![export], root_of).unwrap();
        let (_, rights) = exports.admit(guid("e"), &peer("10.0.0.1:5").into()).unwrap();
        rights.credentials(credential).unwrap()
    };
    let is = |uid, gid, groups: &[u32]| Credentials {
        uid,
        gid,
        groups: groups.to_vec(),
        ..Credentials::root()
    };
    let (root, user) = (sys(0, 0, &[0, 5, 0]), sys(1000, 0, &[4, 0]));
    assert_eq!(said(Squash::None, &root), is(0, 0, &[0, 5, 0]));
    assert_eq!(said(Squash::None, &user), is(1000, 0, &[4, 0]));
    assert_eq!(said(Squash::Root, &root), is(77, 78, &[78, 5, 78]));
    assert_eq!(said(Squash::Root, &user), is(1000, 78, &[4, 78]));
    assert_eq!(said(Squash::Root, &sys(1000, 100, &[4])), is(1000, 100, &[4]));
    assert_eq!(said(Squash::All, &user), is(77, 78, &[]));
    for squash in [Squash::None, Squash::Root, Squash::All] {
        assert_eq!(said(squash, &Credential::None), is(77, 78, &[]));
        let other = Credential::Other(OpaqueAuth { flavor: 6, body: b"x" });
        assert_eq!(said(squash, &other), is(77, 78, &[]));
    }
    let plain = Exports::new(vec![Export::new("/e", "e")], root_of).unwrap();
    let (_, rights) = plain.admit(guid("e"), &peer("10.0.0.1:5").into()).unwrap();
    assert_eq!(rights.credentials(&Credential::None), Ok(is(65_534, 65_534, &[])));
}

#[test]
fn a_path_is_covered_by_its_nearest_export() {
    let exports = [("/tank", "tank"), ("//tank/vms/./fast/", "fast"), ("/tank/vms", "vms")];
    let exports = exports.map(|(path, dataset)| Export::new(path, dataset));
    let exports = Exports::new(exports.to_vec(), root_of).unwrap();
    let covering = |path: &'static str| {
        let path: Vec<_> = components(path.as_bytes()).collect();
        let (export, _, beyond) = exports.covering(&path)?;
        Some((export.dataset, String::from_utf8(beyond.join(&b'|')).unwrap()))
    };
    let is = |dataset: &str, beyond: &str| Some((dataset.to_owned(), beyond.to_owned()));
    assert_eq!(covering("/tank"), is("tank", ""));
    assert_eq!(covering("//tank///"), is("tank", ""));
    assert_eq!(covering("/tank/vm"), is("tank", "vm"));
    assert_eq!(covering("/tank/vms"), is("vms", ""));
    assert_eq!(covering("/tank/vmsx/y"), is("tank", "vmsx|y"));
    assert_eq!(covering("/tank/vms/fast/a/./b/"), is("fast", "a|b"));
    assert_eq!(covering("/"), None);
    assert_eq!(covering("/tan"), None);
    let root = Exports::new(vec![Export::new("/", "all")], root_of).unwrap();
    let (export, _, beyond) = root.covering(&[b"a", b"b"]).unwrap();
    assert_eq!((export.dataset.as_str(), beyond), ("all", vec![&b"a"[..], b"b"]));
}

#[test]
fn what_mount_cannot_say_is_no_export() {
    let error =
        |path: &str| Exports::new(vec![Export::new(path, "d")], root_of).map(|_| ()).unwrap_err();
    for path in ["", "tank", "/a/../b", "/a\0b", &format!("/{}", "x".repeat(1024))] {
        assert!(matches!(error(path), ExportError::Path(..)), "{path}");
    }
    let twice = vec![Export::new("/a/b", "x"), Export::new("/", "z"), Export::new("//a/b/", "y")];
    let error = Exports::new(twice, root_of).map(|_| ()).unwrap_err();
    assert_eq!(error, ExportError::Twice("/a/b".into()));
    let access = only(&["10.0.0.1"; CLIENTS_MAX + 1]);
    let export = Export { access, ..Export::new("/a", "x") };
    let error = Exports::new(vec![export], root_of).map(|_| ()).unwrap_err();
    assert!(matches!(error, ExportError::TooMany { .. }));
    let many = (0..=EXPORTS_MAX).map(|number| Export::new(format!("/{number}"), "x"));
    let exports = Exports::new(vec![Export::new("/kept", "kept")], root_of).unwrap();
    assert!(matches!(exports.replace(many.collect()), Err(ExportError::TooMany { .. })));
    assert_eq!(exports.list(), [Export::new("/kept", "kept")]);
}

#[test]
fn nobody_is_anonymous_where_that_is_refused() {
    let export = Export { squash: Squash::Root, refuse_anonymous: true, ..Export::new("/e", "e") };
    let exports = Exports::new(vec![export], root_of).unwrap();
    let (_, rights) = exports.admit(guid("e"), &peer("10.0.0.1:5").into()).unwrap();
    for credential in [sys(0, 0, &[]), Credential::None] {
        assert_eq!(rights.credentials(&credential), Err(Refusal::NotAllowed), "{credential:?}");
    }
    let user = rights.credentials(&sys(1000, 100, &[])).unwrap();
    assert_eq!((user.uid, user.gid), (1000, 100));
}

#[test]
fn the_superuser_of_a_host_in_root_stays_one() {
    let root = Entry { client: Client::Host("admin".into()), except: false };
    let access = Access { root: vec![root], ..Access::read_write() };
    let export = Export { access, squash: Squash::Root, ..Export::new("/e", "e") };
    let exports = Exports::new(vec![export], root_of).unwrap();
    exports.set_addresses([("admin".into(), vec![peer("10.0.0.1:5").ip()].into())].into());
    let uid = |client| {
        let (_, rights) = exports.admit(guid("e"), &peer(client).into()).unwrap();
        rights.credentials(&sys(0, 0, &[])).unwrap().uid
    };
    assert_eq!((uid("10.0.0.1:5"), uid("10.0.0.2:5")), (0, ANONYMOUS));
    let Explanation::Exported(said) = exports.explain("/e/x", peer("10.0.0.1:5").ip()) else {
        panic!("it is exported");
    };
    assert_eq!((said.rule.as_deref(), said.root_rule.as_deref()), (Some("rw"), Some("root=admin")));
}

/// A name without a lookup keeps clients waiting. NFS3ERR_ACCES would be an I/O error to the guests
/// of a hypervisor that comes early after a restart.
#[test]
fn a_host_is_its_addresses_from_the_moment_they_are_told() {
    let export = Export { access: host("hv1"), ..Export::new("/vms", "vms") };
    let exports = Exports::new(vec![export], root_of).unwrap();
    let admitted = |client| exports.admit(guid("vms"), &peer(client).into()).map(|_| ());
    assert_eq!(admitted("10.0.0.1:5"), Err(Refusal::NotYet));
    let tell = |addresses: &[&str]| {
        let addresses: Vec<_> = addresses.iter().map(|at| at.parse().unwrap()).collect();
        exports.set_addresses([("hv1".into(), addresses.into())].into());
    };
    tell(&["10.0.0.1", "fd00::1"]);
    assert_eq!((admitted("10.0.0.1:5"), admitted("[fd00::1]:5")), (Ok(()), Ok(())));
    assert_eq!(admitted("10.0.0.2:5"), Err(Refusal::NotAllowed));
    assert!(exports.knows(peer("10.0.0.1:5").ip()) && !exports.knows(peer("10.0.0.2:5").ip()));
    tell(&["10.0.0.2"]);
    assert_eq!(
        (admitted("10.0.0.1:5"), admitted("10.0.0.2:5")),
        (Err(Refusal::NotAllowed), Ok(()))
    );
    exports.replace(exports.list()).unwrap();
    assert_eq!(admitted("10.0.0.2:5"), Ok(()), "another table, the same addresses");
    tell(&[]);
    assert_eq!(admitted("10.0.0.2:5"), Err(Refusal::NotAllowed), "it has no address any more");
}

#[test]
fn an_explanation_names_the_nearest_export_and_its_rule() {
    let vms = Export { access: only(&["10.1.0.0/16"]), ..Export::new("/tank/vms", "tank/vms") };
    let exports = Exports::new(vec![vms, Export::new("/tank", "tank")], root_of).unwrap();
    let said = |path, client: &str| match exports.explain(path, client.parse().unwrap()) {
        Explanation::NotExported => None,
        Explanation::Exported(said) => Some((said.export.dataset.clone(), said.verdict, said.rule)),
    };
    let is = |dataset: &str, verdict, rule: Option<&str>| {
        Some((dataset.to_owned(), verdict, rule.map(str::to_owned)))
    };
    let (rw, refused) = (Verdict::ReadWrite, Verdict::Refused);
    assert_eq!(said("/tank/vms/sr", "10.1.2.3"), is("tank/vms", rw, Some("rw=10.1.0.0/16")));
    assert_eq!(said("/tank/vms/sr", "10.2.2.3"), is("tank/vms", refused, None));
    assert_eq!(said("/tank/other", "10.2.2.3"), is("tank", rw, Some("rw")));
    assert_eq!(said("/", "10.2.2.3"), None);
}

/// Datasets inherit their rules: a new address costs one judgement for each kind of rules, not one
/// for each export.
#[test]
fn a_new_address_is_judged_once_by_each_kind_of_rules() {
    let export = |at: usize| {
        let network = if at.is_multiple_of(2) { "10.1.0.0/16" } else { "10.2.0.0/16" };
        let dataset = format!("a/{at}");
        Export { access: only(&[network]), ..Export::new(format!("/{at}"), dataset) }
    };
    let mut all: Vec<Export> = (0..1000).map(export).collect();
    all.push(Export { xprtsec: Xprtsec::Tls, ..export(2000) });
    all.push(Export { secure_ports: true, ..export(2002) });
    let exports = Exports::new(all, |_| None).unwrap();
    assert_eq!(exports.table.read().kinds(), 4);
    let standing = |address: &str| {
        exports.table.read().standing(address.parse().unwrap(), &Security::Clear).is_admitted
    };
    assert!(standing("10.1.0.1") && standing("10.2.0.1") && !standing("10.3.0.1"));
}
