//! Lines that a host writes to `.aquifer/FILE/control`.

use std::time::Duration;

use aquifer_files::history::Outcome;
use aquifer_files::{
    Attributes, Begun, CallId, CreateHow, Credentials, FileHandle, FsError, Service, SetAttributes,
    SetTime, Stability, access,
};

use crate::bed::{Bed, make, noise, read, root, settle, write};
use crate::full::full;
use crate::snapdir::{handle, names, walk};
use crate::version_acts::{host, take};
use crate::versions::{VMS, content, fill, of_file, populate, whole};

const DISK: &str = "web/.aquifer/disk";

async fn control(service: &Service) -> FileHandle {
    handle(service, &format!("{DISK}/control")).await
}

async fn say_as(service: &Service, cred: &Credentials, line: &str) -> Result<(), FsError> {
    let control = control(service).await;
    service.files.write_control(cred, control, line.as_bytes(), 0).await.kept().await.0
}

async fn say(service: &Service, line: &str) -> Result<(), FsError> {
    say_as(service, &host(), line).await
}

/// Reads the text that a reader sees, in small pieces.
async fn shown(service: &Service) -> String {
    let control = control(service).await;
    let size = service.files.getattr(control).await.unwrap().size;
    let mut text = Vec::new();
    loop {
        let read = service.files.read(&root(), control, text.len() as u64, 1000).await.unwrap();
        let eof = read.eof;
        let pieces = read.into_pieces();
        text.extend(pieces.flat_map(|(page, range)| page.as_slice()[range].to_vec()));
        if eof {
            assert_eq!(text.len() as u64, size);
            return String::from_utf8(text).unwrap();
        }
    }
}

async fn last_shown(service: &Service) -> String {
    let shown = shown(service).await;
    assert!(shown.lines().all(|line| line.starts_with('#')) && shown.ends_with('\n'), "{shown}");
    shown.lines().last().unwrap().into()
}

/// As [`populate`], without snapshots of the dataset in the way.
async fn with_own_only(service: &Service) -> FileHandle {
    let disk = populate(service).await;
    for name in ["b", "d"] {
        let (dataset, gone) = service.datasets.snapshot_by_name(&format!("{VMS}@{name}")).unwrap();
        service.datasets.destroy_snapshots(&[(dataset, [gone.txg].into())], false).await.unwrap();
    }
    disk
}

#[test]
fn a_line_is_on_disk_when_it_is_answered() {
    let mut bed = Bed::new(1, 65536);
    let disk = bed.short_life(async |service| {
        let disk = with_own_only(&service).await;
        let before = walk(&service, &format!("{DISK}/control")).await.unwrap();
        say(&service, "rollback d\n").await.unwrap();
        assert_eq!(content(&service, "web/disk").await, 5);
        let after = walk(&service, &format!("{DISK}/control")).await.unwrap();
        assert!(before.change < after.change && before.mtime < after.mtime);
        assert_eq!(last_shown(&service).await, "# 10.0.0.7: rollback d: done");
        disk
    });
    bed.cut_life(async |service| {
        assert_eq!(content(&service, "web/disk").await, 5);
        // The same file, with its handle.
        assert_eq!(handle(&service, "web/disk").await, disk);
        say(&service, "clone a web/copy of a\n").await.unwrap();
        say(&service, "clone\tc\t/web/below//c\n").await.unwrap();
        assert_eq!(last_shown(&service).await, "# 10.0.0.7: clone c web/below/c: done");
    });
    bed.life(async |service| {
        assert_eq!(content(&service, "web/copy of a").await, 1);
        assert_eq!(content(&service, "web/below/c").await, 3);
        fill(&service, handle(&service, "web/copy of a").await, 9).await;
        assert_eq!(content(&service, &format!("{DISK}/a")).await, 1);
        let noted = service.datasets.history().list().await.unwrap();
        let acts: Vec<&str> = noted.iter().map(|noted| noted.record.act.as_str()).collect();
        let expected = [
            "rollback tank/vms:web/disk@d",
            "clone tank/vms:web/disk@a 'tank/vms:web/copy of a'",
            "clone tank/vms:web/disk@c tank/vms:web/below/c",
        ];
        assert_eq!(acts, expected);
        let root_path = std::iter::once(noted.last().unwrap());
        assert!(root_path.into_iter().all(|noted| noted.record.who == "host 10.0.0.7"));
    });
    bed.assert_clean();
}

#[test]
fn what_cannot_be_done_is_refused_with_its_reason() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let disk = populate(&service).await;
        for (line, why, reason) in [
            ("", FsError::Invalid, "it has no line"),
            ("rollback d", FsError::Invalid, "does not end with a newline"),
            ("rollback d\nrollback d\n", FsError::Invalid, "several lines"),
            ("destroy d\n", FsError::Invalid, "it must be"),
            ("rollback none\n", FsError::NotFound, "there is no snapshot"),
            ("rollback early\n", FsError::NotFound, "web/disk@early"),
            ("clone early web/x\n", FsError::NotFound, "web/disk@early"),
            ("clone none web/x\n", FsError::NotFound, "there is no snapshot"),
            ("clone a web/disk\n", FsError::Exists, "file exists"),
            ("clone a none/x\n", FsError::NotFound, "a directory that does not exist"),
            ("clone a web/disk/x\n", FsError::NotFound, "a directory that does not exist"),
            ("clone a .aquifer\n", FsError::Exists, "file exists"),
            ("clone a ../x\n", FsError::Invalid, "names no path"),
            ("clone a\n", FsError::Invalid, "names no path"),
        ] {
            let before = shown(&service).await;
            assert_eq!(say(&service, line).await, Err(why), "{line:?}");
            assert_ne!(shown(&service).await, before);
            let last = last_shown(&service).await;
            assert!(last.contains(": refused: ") && last.contains(reason), "{last}");
        }
        let long = "x".repeat(20_000);
        assert_eq!(say(&service, &long).await, Err(FsError::TooLarge));
        assert!(last_shown(&service).await.len() < 700);
        let many = format!("clone a {}\n", "x/".repeat(4000));
        assert_eq!(say(&service, &many).await, Err(FsError::NotFound));
        assert!(last_shown(&service).await.len() < 700);

        // What a client may lose, or would not expect.
        write(&service, disk, 0, &noise(7, 1), Stability::Unstable).await.unwrap();
        assert_eq!(say(&service, "rollback d\n").await, Err(FsError::NotPermitted));
        assert!(last_shown(&service).await.contains("waits for their COMMIT"));
        service.files.commit(&root(), disk, 0, 0).await.kept().await.0.unwrap();
        let (files, at) = (&service.files, control(&service).await);
        let locked = files.write_control(&host(), at, b"rollback d\n", 2).await.kept().await.0;
        assert_eq!(locked, Err(FsError::NotPermitted));
        assert!(last_shown(&service).await.contains("clients hold 2 locks"));
        service.datasets.set(VMS, "readonly", Some("on")).await.unwrap();
        for line in ["rollback d\n", "clone a web/x\n"] {
            assert_eq!(say(&service, line).await, Err(FsError::ReadOnly));
        }
        service.datasets.set(VMS, "readonly", None).await.unwrap();
        assert_eq!(content(&service, "web/disk").await, 7);
        let noted = service.datasets.history().list().await.unwrap();
        assert!(noted.iter().all(|noted| noted.record.outcome == Outcome::Failed));
        // Later snapshots are in nobody's way.
        whole(&service, "later").await;
        say(&service, "rollback d\n").await.unwrap();
        assert_eq!(content(&service, "web/disk").await, 5);

        // A file that is gone is cloned, and not rolled back.
        let web = handle(&service, "web").await;
        files.remove(&root(), web, b"disk").await.kept().await.0.unwrap();
        assert_eq!(say(&service, "rollback d\n").await, Err(FsError::NotPermitted));
        assert!(last_shown(&service).await.contains("file that was removed"));
        say(&service, "clone d web/disk\n").await.unwrap();
        assert_eq!(content(&service, "web/disk").await, 5);
    });
    bed.assert_clean();
}

#[test]
fn only_the_superuser_of_a_host_that_is_named_may() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        assert_eq!(walk(&service, &format!("{DISK}/control")).await.unwrap().mode, 0o444);
        service.datasets.set("tank", "snapcontrol", Some("10.0.0.7")).await.unwrap();
        let at: Attributes = walk(&service, &format!("{DISK}/control")).await.unwrap();
        assert_eq!(at.mode, 0o644);
        let (files, before) = (&service.files, shown(&service).await);
        let user = Credentials { uid: 65_534, gid: 65_534, ..host() };
        let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
        for (cred, why) in [(user, FsError::AccessDenied), (root(), FsError::ReadOnly)] {
            assert_eq!(say_as(&service, &cred, "rollback d\n").await, Err(why));
            let emptied = files.setattr(&cred, at.handle, &cut, None).await.kept().await.0;
            assert_eq!(emptied, Err(FsError::ReadOnly));
            let (granted, _) = files.access(&cred, at.handle, 0x3f).await.unwrap();
            assert_eq!(granted & (access::MODIFY | access::EXTEND), 0);
            assert!(files.read(&cred, at.handle, 0, 10).await.is_ok());
        }
        let (granted, _) = files.access(&host(), at.handle, 0x3f).await.unwrap();
        assert_eq!(granted & !access::EXECUTE, access::READ | access::MODIFY | access::EXTEND);
        // As a shell opens it.
        for times in [SetTime::Keep, SetTime::Now] {
            let cut = SetAttributes { atime: times, mtime: times, ..cut };
            files.setattr(&host(), at.handle, &cut, None).await.kept().await.0.unwrap();
        }
        let how = CreateHow::Unchecked(cut);
        let versions = handle(&service, DISK).await;
        let opened = files.create(&host(), versions, b"control", how).await.kept().await.0;
        assert_eq!(opened.unwrap().handle, at.handle);
        let made = files.create(&host(), versions, b"control", CreateHow::Guarded(cut)).await;
        assert_eq!(made.kept().await.0, Err(FsError::Exists));
        let gone = files.remove(&host(), versions, b"control").await.kept().await.0;
        assert_eq!(gone, Err(FsError::ReadOnly));
        for set in [
            SetAttributes { size: Some(1), ..SetAttributes::default() },
            SetAttributes { mode: Some(0o666), ..cut },
        ] {
            let changed = files.setattr(&host(), at.handle, &set, None).await.kept().await.0;
            assert_eq!(changed, Err(FsError::ReadOnly));
        }
        let linked = files.link(&host(), at.handle, handle(&service, "web").await, b"x").await;
        assert_eq!(linked.kept().await.0, Err(FsError::CrossDevice));
        // A WRITE of data is none of its.
        let wrote = write(&service, at.handle, 0, b"rollback d\n", Stability::FileSync).await;
        assert_eq!(wrote, Err(FsError::ReadOnly));
        files.commit(&host(), at.handle, 0, 0).await.kept().await.0.unwrap();
        let disk = handle(&service, "web/disk").await;
        let other = files.write_control(&host(), disk, b"rollback d\n", 0).await.kept().await.0;
        assert_eq!(other, Err(FsError::Invalid));
        assert_eq!(shown(&service).await, before);
        // A snapshot of that name is not seen here.
        of_file(&service, "web/disk@control").await;
        assert_eq!(control(&service).await, at.handle);
        let listed = names(&service, versions).await;
        assert_eq!(listed, [".", "..", "control", "a", "c", "d", "b"]);
    });
    bed.assert_clean();
}

async fn new_call(service: &Service, id: CallId) -> aquifer_files::Running {
    match service.datasets.replies().begin(id).await.unwrap() {
        Begun::New(running) => running,
        Begun::Answered(answer) => panic!("{answer:?}"),
    }
}

/// A call that is sent again does nothing: it is known, also after a cut.
#[test]
fn a_line_acts_once() {
    let mut bed = Bed::new(1, 65536);
    let id = |xid| CallId::new([1; 16], xid, (100_003, 7), b"write");
    let lines = ["rollback d\n", "clone a web/x\n"];
    bed.cut_life(async |service| {
        with_own_only(&service).await;
        for (xid, line) in (1..).zip(lines) {
            let _running = new_call(&service, id(xid)).await;
            let cred = Credentials { call: Some(id(xid)), ..host() };
            say_as(&service, &cred, line).await.unwrap();
        }
        let running = new_call(&service, id(3)).await;
        let cred = Credentials { call: Some(id(3)), ..host() };
        assert_eq!(say_as(&service, &cred, "rollback none\n").await, Err(FsError::NotFound));
        running.answered(2, b"none");
    });
    bed.life(async |service| {
        for xid in 1..=2 {
            let begun = service.datasets.replies().begin(id(xid)).await.unwrap();
            assert!(matches!(begun, Begun::Answered(_)), "{xid}");
        }
        new_call(&service, id(3)).await;
        settle(&service, 60).await;
    });
    bed.assert_clean();
}

/// A caller that gives up while the disk does not answer: either nothing is done, or its call is
/// known.
#[test]
pub fn a_line_is_not_carried_out_for_a_caller_that_gave_up() {
    for line in ["rollback d\n", "clone a web/x\n"] {
        let mut told = [0, 0];
        for patience_us in (0..24_000).step_by(800) {
            let mut bed = Bed::new(1, 65536);
            let world = bed.world();
            let id = CallId::new([1; 16], 7, (100_003, 7), b"write");
            let later = bed.life(async |service| {
                with_own_only(&service).await;
                let running = new_call(&service, id).await;
                let cred = Credentials { call: Some(id), ..host() };
                let saying = Box::pin(say_as(&service, &cred, line));
                let patience = world.sleep(Duration::from_micros(patience_us));
                let ended = futures_util::future::select(saying, patience).await;
                let gave_up = matches!(ended, futures_util::future::Either::Right(_));
                drop(ended);
                if !gave_up {
                    running.answered(0, b"done");
                    return false;
                }
                let later = running.hears_later(10_008, b"later");
                // Whatever goes on goes on now.
                world.sleep(Duration::from_secs(1)).await;
                service.pool.sync().await.unwrap();
                later
            });
            told[usize::from(later)] += 1;
            bed.life(async |service| {
                let done = match line.starts_with("rollback") {
                    true => content(&service, "web/disk").await == 5,
                    false => walk(&service, "web/x").await.is_ok(),
                };
                assert_eq!(done, !later, "{line} {patience_us}");
                settle(&service, 60).await;
            });
            bed.assert_clean();
        }
        assert!(told.iter().all(|count| *count > 0), "{line} {told:?}");
    }
}

#[test]
fn a_full_pool_rolls_back_and_clones_nothing() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let disk = make(&service, top, "disk").await;
        fill(&service, disk, 1).await;
        let mut at = top;
        for name in [&b".aquifer"[..], b"disk"] {
            at = service.files.lookup(&root(), at, name).await.0.unwrap().handle;
        }
        // Notes on the labels what the pool has.
        take(&service, (&host(), at), b"first").await.unwrap();
        let control = service.files.lookup(&root(), at, b"control").await.0.unwrap().handle;
        let say = async |line: &str| {
            let said = service.files.write_control(&host(), control, line.as_bytes(), 0).await;
            said.kept().await.0
        };
        say("rollback first\n").await.unwrap();
        full(&service).await;
        take(&service, (&host(), at), b"a").await.unwrap();
        say("rollback a\n").await.unwrap();
        let cloned = say("clone a x\n").await;
        assert!(matches!(cloned, Ok(()) | Err(FsError::NoSpace)), "{cloned:?}");
        assert_eq!(read(&service, disk, 0).await.unwrap(), noise(1, 1));
    });
    bed.assert_clean();
}
