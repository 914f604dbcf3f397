//! Snapshots of a file that a host takes and destroys by names in `.aquifer/FILE`.

use std::time::Duration;

use aquifer_files::history::Outcome;
use aquifer_files::{
    Attributes, CreateHow, Credentials, FileHandle, FsError, Service, SetAttributes, SetTime,
    Stability, access,
};

use futures_util::future::join;

use crate::bed::{Bed, acts, make, noise, read, root, snapshots_named, write};
use crate::by_text::ByText;
use crate::full::full;
use crate::snapcontrol::bad_names;
use crate::snapdir::{handle, names, walk};
use crate::versions::{VMS, content, fill, populate};

const CHANGES: u32 = access::MODIFY | access::EXTEND | access::DELETE;

/// The superuser of a host that may.
pub fn host() -> Credentials {
    Credentials { snapcontrol: Some([10, 0, 0, 7].into()), ..root() }
}

pub async fn take(
    service: &Service,
    (cred, versions): (&Credentials, FileHandle),
    name: &[u8],
) -> Result<Attributes, FsError> {
    let how = CreateHow::Unchecked(SetAttributes { mode: Some(0o644), ..Default::default() });
    service.files.create(cred, versions, name, how).await.kept().await.0
}

async fn destroy(service: &Service, versions: FileHandle, name: &[u8]) -> Result<(), FsError> {
    service.files.remove(&host(), versions, name).await.kept().await.0
}

fn touch() -> SetAttributes {
    SetAttributes { atime: SetTime::Now, mtime: SetTime::Now, ..SetAttributes::default() }
}

#[test]
fn an_act_is_on_disk_when_it_is_answered() {
    let mut bed = Bed::new(1, 65536);
    let path = "web/.aquifer/disk";
    let (versions, taken) = bed.short_life(async |service| {
        let disk = populate(&service).await;
        write(&service, disk, 0, &noise(7, 1), Stability::Unstable).await.unwrap();
        let versions = walk(&service, path).await.unwrap();
        let taken = take(&service, (&host(), versions.handle), b"now").await.unwrap();
        fill(&service, disk, 8).await;
        (versions, taken)
    });
    bed.short_life(async |service| {
        // What waited for COMMIT is in it, too.
        assert_eq!(read(&service, taken.handle, 0).await.unwrap(), noise(7, 1));
        let found = walk(&service, "web/.aquifer/disk/now").await.unwrap();
        assert_eq!((found, found.size, found.mode), (taken, 4096, 0o644));
        let now = service.files.getattr(versions.handle).await.unwrap();
        assert!(versions.change < now.change && versions.mtime < now.mtime);
        // As `touch` does behind its CREATE.
        let touched = service.files.setattr(&host(), taken.handle, &touch(), None).await;
        touched.kept().await.0.unwrap();
        destroy(&service, versions.handle, b"a").await.unwrap();
        destroy(&service, versions.handle, b"now").await.unwrap();
        assert!(now.change < service.files.getattr(versions.handle).await.unwrap().change);
    });
    bed.life(async |service| {
        assert_eq!(names(&service, versions.handle).await, [".", "..", "control", "c", "d", "b"]);
        assert_eq!(service.files.getattr(taken.handle).await, Err(FsError::Stale));
        // The path is found without a LOOKUP before.
        take(&service, (&host(), versions.handle), b"later").await.unwrap();
        let who = "host 10.0.0.7";
        let expected = [
            (who, "snapshot tank/vms:web/disk@now"),
            (who, "destroy tank/vms:web/disk@a"),
            (who, "destroy tank/vms:web/disk@now"),
            (who, "snapshot tank/vms:web/disk@later"),
        ];
        assert_eq!(acts(&service).await, expected.map(|(who, act)| (who.into(), act.into())));
        assert_eq!(content(&service, "web/.aquifer/disk/later").await, 8);
        let found = snapshots_named(&service.files, "tank/vms:web/disk@later").await.unwrap();
        assert_eq!(found.1.len(), 1);
    });
    bed.assert_clean();
}

#[test]
fn a_name_is_refused_as_on_the_command_line() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        let versions = handle(&service, "web/.aquifer/disk").await;
        take(&service, (&host(), versions), b"x y:1.2_3-4").await.unwrap();
        let before = names(&service, versions).await;
        // The second is of the dataset: it would be hidden, or hide that.
        let there = [(&b"a"[..], FsError::Exists), (b"b", FsError::Exists)];
        for (name, why) in there.into_iter().chain(bad_names()) {
            let taken = take(&service, (&host(), versions), name).await;
            assert_eq!(taken, Err(why.clone()), "{name:?}");
            if why != FsError::Exists {
                let gone = destroy(&service, versions, name).await.unwrap_err();
                assert!([FsError::NotFound, why].contains(&gone), "{name:?}: {gone}");
            }
        }
        assert_eq!(destroy(&service, versions, b"none").await, Err(FsError::NotFound));
        // With it all other files of the dataset would go.
        assert_eq!(destroy(&service, versions, b"b").await, Err(FsError::ReadOnly));
        let exclusive =
            service.files.create(&host(), versions, b"e", CreateHow::Exclusive(7)).await;
        assert_eq!(exclusive.kept().await.0, Err(FsError::NotSupported));
        assert_eq!(names(&service, versions).await, before);
        let noted = service.datasets.history().list().await.unwrap();
        let last = &noted.last().unwrap().record;
        assert_eq!(last.outcome, Outcome::Failed);
        assert!(last.result.contains("may hold letters"), "{}", last.result);
        let (dataset, held) = snapshots_named(&service.files, "tank/vms:web/disk@a").await.unwrap();
        let on = [(dataset, held[0].id)];
        service.datasets.hold("backup", &on, None).await.unwrap();
        assert_eq!(destroy(&service, versions, b"a").await, Err(FsError::NotPermitted));
        service.datasets.release("backup", &on).await.unwrap();
        // Held by a clone: it is only hidden.
        let clone = ["tank/vms:clone".to_owned()];
        service.files.clone_named("tank/vms:web/disk@a", &clone).await.unwrap();
        destroy(&service, versions, b"a").await.unwrap();
        assert_eq!(walk(&service, "web/.aquifer/disk/a").await, Err(FsError::NotFound));
        take(&service, (&host(), versions), b"a").await.unwrap();
        take(&service, (&host(), versions), &[b'x'; 255]).await.unwrap();
    });
    bed.assert_clean();
}

#[test]
fn only_the_superuser_of_a_host_that_is_named_may() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        let shown = walk(&service, "web/.aquifer/disk").await.unwrap();
        assert_eq!(shown.mode, 0o555);
        service.datasets.set("tank", "snapcontrol", Some("10.0.0.7")).await.unwrap();
        let shown = walk(&service, "web/.aquifer/disk").await.unwrap();
        assert_eq!((shown.mode, shown.uid), (0o755, 0));
        let before = names(&service, shown.handle).await;
        let files = &service.files;
        let old = handle(&service, "web/.aquifer/disk/a").await;
        let user = Credentials { uid: 65_534, gid: 65_534, ..host() };
        for (cred, why) in [(user, FsError::AccessDenied), (root(), FsError::ReadOnly)] {
            assert_eq!(take(&service, (&cred, shown.handle), b"x").await, Err(why.clone()));
            let gone = files.remove(&cred, shown.handle, b"a").await.kept().await.0;
            assert_eq!(gone, Err(why));
            let (granted, _) = files.access(&cred, shown.handle, 0x3f).await.unwrap();
            assert_eq!(granted & CHANGES, 0);
            let touched = files.setattr(&cred, old, &touch(), None).await.kept().await.0;
            assert_eq!(touched, Err(FsError::ReadOnly));
        }
        let (granted, _) = files.access(&host(), shown.handle, 0x3f).await.unwrap();
        assert_eq!(granted & CHANGES, CHANGES);
        // All else stays as it is.
        let who = host();
        let made = files.mkdir(&who, shown.handle, b"x", &touch()).await.kept().await.0;
        assert_eq!(made.map(drop), Err(FsError::ReadOnly));
        let moved = files.rename(&who, (shown.handle, b"a"), (shown.handle, b"x")).await;
        assert_eq!(moved.kept().await.0, Err(FsError::ReadOnly));
        let hidden = handle(&service, "web/.aquifer").await;
        assert_eq!(take(&service, (&who, hidden), b"x").await, Err(FsError::ReadOnly));
        assert_eq!(
            files.remove(&who, hidden, b"disk").await.kept().await.0,
            Err(FsError::ReadOnly)
        );
        let chmod = SetAttributes { mode: Some(0o777), ..touch() };
        for of in [old, shown.handle, handle(&service, "web/.aquifer/disk/b").await] {
            let changed = files.setattr(&who, of, &chmod, None).await.kept().await.0;
            assert_eq!(changed, Err(FsError::ReadOnly));
        }
        assert_eq!(names(&service, shown.handle).await, before);

        service.datasets.set(VMS, "readonly", Some("on")).await.unwrap();
        take(&service, (&who, shown.handle), b"of what stays as it is").await.unwrap();
        service.datasets.set(VMS, "snapdir", Some("disabled")).await.unwrap();
        assert_eq!(take(&service, (&who, shown.handle), b"x").await, Err(FsError::Stale));
    });
    bed.assert_clean();
}

#[test]
fn files_without_snapshots_and_without_names() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        let (files, top) = (&service.files, service.files.root(VMS).unwrap());
        let lone = make(&service, top, "lone \\ file").await;
        let versions = handle(&service, ".aquifer/lone \\ file").await;
        assert_eq!(names(&service, versions).await, [".", "..", "control"]);
        take(&service, (&host(), versions), b"first").await.unwrap();
        // The path that it bears is that of the name by which it was found last.
        let dataset = service.datasets.by_name(VMS).unwrap();
        let own = dataset.file_snapshots_of(lone.object, service.pool.committed_txg());
        assert_eq!(own[0].record.path, "lone \\0134 file");
        let web = handle(&service, "web").await;
        files
            .rename(&root(), (top, b"lone \\ file"), (web, b"moved"))
            .await
            .kept()
            .await
            .0
            .unwrap();
        // It is not there any more, so it is searched.
        take(&service, (&host(), versions), b"second").await.unwrap();
        let own = dataset.file_snapshots_of(lone.object, service.pool.committed_txg());
        assert_eq!(own[1].record.path, "web/moved");
        files.remove(&root(), web, b"moved").await.kept().await.0.unwrap();
        assert_eq!(take(&service, (&host(), versions), b"third").await, Err(FsError::NotFound));
        assert_eq!(names(&service, versions).await, [".", "..", "control", "first", "second"]);
        destroy(&service, versions, b"first").await.unwrap();
        destroy(&service, versions, b"second").await.unwrap();
        assert_eq!(destroy(&service, versions, b"second").await, Err(FsError::Stale));
        assert_eq!(take(&service, (&host(), versions), b"third").await, Err(FsError::Stale));
    });
    bed.assert_clean();
}

#[test]
fn a_full_pool_can_always_destroy() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        make(&service, top, "disk").await;
        full(&service).await;
        let mut at = top;
        for name in [&b".aquifer"[..], b"disk"] {
            at = service.files.lookup(&root(), at, name).await.0.unwrap().handle;
        }
        for _ in 0..3 {
            take(&service, (&host(), at), b"a").await.unwrap();
            destroy(&service, at, b"a").await.unwrap();
        }
    });
    bed.assert_clean();
}

/// The sync finds that the file is gone. The call was not carried out, and does not pass for one
/// that was when it is sent again.
#[test]
pub fn a_file_that_goes_in_the_same_txg_is_not_taken() {
    use aquifer_files::{Begun, CallId};
    let mut bed = Bed::new(1, 65536);
    let id = CallId::new([1; 16], 7, (100_003, 8), b"create");
    let (disk, world) = (bed.disks[0].clone(), bed.world());
    bed.short_life(async |service| {
        populate(&service).await;
        let versions = handle(&service, "web/.aquifer/disk").await;
        let web = handle(&service, "web").await;
        let cred = Credentials { call: Some(id), ..host() };
        let Begun::New(running) = service.datasets.replies().begin(id).await.unwrap() else {
            panic!("it is new");
        };
        let taking = async {
            world.sleep(Duration::from_millis(5)).await;
            take(&service, (&cred, versions), b"late").await
        };
        // While a txg is on its way to the disk, the next one is open: act and removal are in it.
        disk.stall(Duration::from_millis(50));
        let syncing = async { service.pool.sync().await.map(drop) };
        let removing = async {
            world.sleep(Duration::from_millis(10)).await;
            service.files.remove(&root(), web, b"disk").await.kept().await.0
        };
        let (synced, (taken, removed)) = join(syncing, join(taking, removing)).await;
        synced.unwrap();
        removed.unwrap();
        assert_eq!(taken, Err(FsError::NotFound));
        running.answered(2, b"not found");
    });
    bed.life(async |service| {
        let begun = service.datasets.replies().begin(id).await.unwrap();
        assert!(matches!(begun, Begun::New(_)), "{begun:?}");
    });
    bed.assert_clean();
}
