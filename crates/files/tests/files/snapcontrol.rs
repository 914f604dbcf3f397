//! Snapshots that a host takes, destroys and renames by names in `.aquifer/snapshot`.

use aquifer_files::history::Outcome;
use aquifer_files::{Attributes, Credentials, FileHandle, FsError, Service, SetAttributes, access};

use crate::bed::{Bed, acts, find, make, noise, read, root, write};
use crate::full::full;

const VMS: &str = "tank/vms";
const CHANGES: u32 = access::MODIFY | access::EXTEND | access::DELETE;

/// The superuser of a host that may.
fn host() -> Credentials {
    Credentials { snapcontrol: Some([10, 0, 0, 7].into()), ..root() }
}

async fn list(service: &Service) -> Attributes {
    let mut at = service.files.root(VMS).unwrap();
    for name in [&b".aquifer"[..], b"snapshot"] {
        at = service.files.lookup(&root(), at, name).await.0.unwrap().handle;
    }
    service.files.getattr(at).await.unwrap()
}

async fn take(service: &Service, cred: &Credentials, name: &[u8]) -> Result<FileHandle, FsError> {
    let list = list(service).await.handle;
    let made = service.files.mkdir(cred, list, name, &SetAttributes::default()).await;
    made.kept().await.0.map(|made| made.handle)
}

async fn destroy(service: &Service, cred: &Credentials, name: &[u8]) -> Result<(), FsError> {
    let list = list(service).await.handle;
    service.files.rmdir(cred, list, name).await.kept().await.0
}

async fn rename(service: &Service, name: &[u8], new: &[u8]) -> Result<(), FsError> {
    let list = list(service).await.handle;
    service.files.rename(&host(), (list, name), (list, new)).await.kept().await.0
}

fn names(service: &Service) -> Vec<String> {
    let dataset = service.datasets.by_name(VMS).unwrap();
    let all = dataset.snapshots(service.pool.committed_txg());
    all.iter().map(|snapshot| snapshot.record.name.clone()).collect()
}

async fn populate(service: &Service) -> FileHandle {
    service.datasets.create(VMS, &[]).await.unwrap();
    let disk = make(service, service.files.root(VMS).unwrap(), "disk").await;
    write(service, disk, 0, &noise(1, 1), aquifer_files::Stability::Unstable).await.unwrap();
    disk
}

#[test]
fn an_act_is_on_disk_when_it_is_answered() {
    let mut bed = Bed::new(1, 65536);
    let (before, taken) = bed.short_life(async |service| {
        let disk = populate(&service).await;
        let before = list(&service).await;
        let taken = take(&service, &host(), b"before").await.unwrap();
        write(&service, disk, 0, &noise(2, 1), aquifer_files::Stability::FileSync).await.unwrap();
        (before, taken)
    });
    bed.short_life(async |service| {
        assert_eq!(service.files.root("tank/vms@before"), Some(taken));
        let old = service.files.lookup(&root(), taken, b"disk").await.0.unwrap().handle;
        // What waited for COMMIT is in it, too.
        assert_eq!(read(&service, old, 0).await.unwrap(), noise(1, 1));
        let live = find(&service, VMS, "disk").await.unwrap();
        assert_eq!(read(&service, live, 0).await.unwrap(), noise(2, 1));
        let now = list(&service).await;
        assert!(before.change < now.change && before.mtime < now.mtime && now.nlink == 3);
        rename(&service, b"before", b"later").await.unwrap();
        assert!(now.change < list(&service).await.change);
        rename(&service, b"later", b"later").await.unwrap();
    });
    bed.short_life(async |service| {
        assert_eq!(service.files.root("tank/vms@later"), Some(taken));
        destroy(&service, &host(), b"later").await.unwrap();
    });
    bed.life(async |service| {
        assert_eq!(names(&service), Vec::<String>::new());
        assert_eq!(service.files.getattr(taken).await, Err(FsError::Stale));
        let who = "host 10.0.0.7";
        let expected = [
            (who, "snapshot tank/vms@before"),
            (who, "rename tank/vms@before tank/vms@later"),
            (who, "rename tank/vms@later tank/vms@later"),
            (who, "destroy tank/vms@later"),
        ];
        assert_eq!(acts(&service).await, expected.map(|(who, act)| (who.into(), act.into())));
    });
    bed.assert_clean();
}

/// Names that no snapshot can have, and the error that says so.
pub fn bad_names() -> [(&'static [u8], FsError); 9] {
    [
        (b"", FsError::Invalid),
        (b"x/y", FsError::Invalid),
        (b"x@y", FsError::Invalid),
        (b"x%y", FsError::Invalid),
        (b"x\ny", FsError::Invalid),
        (b"..", FsError::Invalid),
        ("\u{e4}".as_bytes(), FsError::Invalid),
        (b"\xff", FsError::Invalid),
        (&[b'x'; 256], FsError::NameTooLong),
    ]
}

#[test]
fn a_name_is_refused_as_on_the_command_line() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        take(&service, &host(), b"a").await.unwrap();
        take(&service, &host(), b"a b:1.2_3-4").await.unwrap();
        let before = names(&service);
        let taken = [(&b"a"[..], FsError::Exists)];
        for (name, why) in taken.into_iter().chain(bad_names()) {
            assert_eq!(take(&service, &host(), name).await, Err(why.clone()), "{name:?}");
            if why != FsError::Exists {
                assert_eq!(rename(&service, b"a", name).await, Err(why), "{name:?}");
            }
        }
        assert_eq!(rename(&service, b"a", b"a b:1.2_3-4").await, Err(FsError::Exists));
        assert_eq!(rename(&service, b"none", b"other").await, Err(FsError::NotFound));
        assert_eq!(destroy(&service, &host(), b"none").await, Err(FsError::NotFound));
        assert_eq!(names(&service), before);

        // A snapshot that must stay.
        service.datasets.clone_snapshot("tank/vms@a", "tank/clone", &[]).await.unwrap();
        assert_eq!(destroy(&service, &host(), b"a").await, Err(FsError::NotPermitted));
        let (dataset, held) = service.datasets.snapshot_by_name("tank/vms@a b:1.2_3-4").unwrap();
        service.datasets.hold("backup", &[(dataset, held.txg)], None).await.unwrap();
        assert_eq!(destroy(&service, &host(), b"a b:1.2_3-4").await, Err(FsError::NotPermitted));
        assert_eq!(names(&service), before);
        let noted = service.datasets.history().list().await.unwrap();
        let last = &noted.last().unwrap().record;
        assert_eq!(
            (last.outcome, last.act.as_str()),
            (Outcome::Failed, "destroy 'tank/vms@a b:1.2_3-4'")
        );
        assert!(last.result.contains("is held by \"backup\""), "{}", last.result);
        // Also an act that fails ends for those who wait.
        take(&service, &host(), &[b'x'; 255]).await.unwrap();
    });
    bed.assert_clean();
}

#[test]
fn only_the_superuser_of_a_host_that_is_named_may() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        assert_eq!(list(&service).await.mode, 0o555);
        service.datasets.set("tank", "snapcontrol", Some("10.0.0.7")).await.unwrap();
        let shown = list(&service).await;
        assert_eq!((shown.mode, shown.uid), (0o755, 0));
        take(&service, &host(), b"a").await.unwrap();
        // A user, or a superuser that the export has made nobody; and another host.
        let user = Credentials { uid: 65_534, gid: 65_534, ..host() };
        for (cred, why) in [(user, FsError::AccessDenied), (root(), FsError::ReadOnly)] {
            assert_eq!(take(&service, &cred, b"b").await, Err(why.clone()));
            assert_eq!(destroy(&service, &cred, b"a").await, Err(why.clone()));
            let at = shown.handle;
            let moved = service.files.rename(&cred, (at, b"a"), (at, b"b")).await.kept().await.0;
            assert_eq!(moved, Err(why));
            let (granted, _) = service.files.access(&cred, at, 0x3f).await.unwrap();
            assert_eq!(granted & CHANGES, 0);
        }
        let (granted, _) = service.files.access(&host(), shown.handle, 0x3f).await.unwrap();
        assert_eq!(granted & CHANGES, CHANGES);
        assert_eq!(names(&service), ["a"]);

        // All else in there stays as it is.
        let (files, who, set) = (&service.files, host(), SetAttributes::default());
        let top = files.root(VMS).unwrap();
        let hidden = files.lookup(&who, top, b".aquifer").await.0.unwrap().handle;
        let made = files.mkdir(&who, hidden, b"new", &set).await.kept().await.0;
        assert_eq!(made.map(drop), Err(FsError::ReadOnly));
        let gone = files.remove(&who, shown.handle, b"a").await.kept().await.0;
        assert_eq!(gone, Err(FsError::ReadOnly));
        let chmod = SetAttributes { mode: Some(0o777), ..set };
        let changed = files.setattr(&who, shown.handle, &chmod, None).await.kept().await.0;
        assert_eq!(changed, Err(FsError::ReadOnly));
        for (from, to) in [((shown.handle, &b"a"[..]), top), ((top, b"disk"), shown.handle)] {
            let moved = files.rename(&who, from, (to, b"moved")).await.kept().await.0;
            assert_eq!(moved, Err(FsError::ReadOnly));
        }
        let of_snapshot = files.lookup(&who, shown.handle, b"a").await.0.unwrap().handle;
        let made = files.mkdir(&who, of_snapshot, b"new", &set).await.kept().await.0;
        assert_eq!(made.map(drop), Err(FsError::ReadOnly));

        service.datasets.set(VMS, "readonly", Some("on")).await.unwrap();
        take(&service, &host(), b"of a dataset that stays as it is").await.unwrap();
        service.datasets.set(VMS, "snapdir", Some("disabled")).await.unwrap();
        let made = files.mkdir(&who, shown.handle, b"new", &set).await.kept().await.0;
        assert_eq!(made.map(drop), Err(FsError::Stale));
    });
    bed.assert_clean();
}

#[test]
fn a_full_pool_can_always_destroy() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        full(&service).await;
        let top = service.files.root("tank").unwrap();
        let mut at = top;
        for name in [&b".aquifer"[..], b"snapshot"] {
            at = service.files.lookup(&root(), at, name).await.0.unwrap().handle;
        }
        let (files, who) = (&service.files, host());
        for _ in 0..3 {
            let taken = files.mkdir(&who, at, b"a", &SetAttributes::default()).await;
            taken.kept().await.0.unwrap();
            files.rmdir(&who, at, b"a").await.kept().await.0.unwrap();
        }
    });
    bed.assert_clean();
}
