//! Calls that must not run twice: for how long, how many, after which ends of a life, and with a
//! damaged table.

use std::time::Duration;

use aquifer_files::{
    Answer, Begun, CallId, CreateHow, Credentials, FileHandle, FsError, REPLY_AGE_MAX, Service,
    SetAttributes, Stability,
};
use aquifer_inspect::Kind;
use aquifer_sim::Corruption;
use futures_util::future::{Either, select};

use crate::bed::{Bed, find, make, root, write};

fn call(client: u8, xid: u32) -> CallId {
    CallId::new([client; 16], xid, (100_003, 8), b"arguments")
}

fn caller(call: CallId) -> Credentials {
    Credentials { call: Some(call), ..root() }
}

/// The known answer to a call. Asking does not carry the call out.
async fn known(service: &Service, call: CallId) -> Option<Answer> {
    match service.datasets.replies().begin(call).await.unwrap() {
        Begun::New(_) => None,
        Begun::Answered(answer) => Some(answer),
    }
}

/// A CREATE as a protocol carries it out.
async fn create(
    service: &Service,
    call: CallId,
    directory: FileHandle,
    name: &str,
    how: CreateHow,
) -> Result<FileHandle, FsError> {
    let Begun::New(running) = service.datasets.replies().begin(call).await.unwrap() else {
        panic!("{name} is known already")
    };
    let made =
        service.files.create(&caller(call), directory, name.as_bytes(), how).await.kept().await.0;
    running.answered(u32::from(made.is_err()), name.as_bytes());
    made.map(|attributes| attributes.handle)
}

const UNCHECKED: CreateHow = CreateHow::Unchecked(SetAttributes {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: aquifer_files::SetTime::Keep,
    mtime: aquifer_files::SetTime::Keep,
});

fn top(service: &Service) -> FileHandle {
    service.files.root("tank").unwrap()
}

/// Whether an answer is that of a call that returned this handle.
fn gave(answer: Option<Answer>, file: FileHandle) -> bool {
    let given =
        |answer: Answer| (answer.entry.status, answer.entry.object, answer.entry.generation);
    answer.map(given) == Some((0, file.object, file.generation))
}

/// Known from the log alone; from the log and then the table; from the table alone, after an export
/// too.
#[test]
fn what_was_done_is_known_after_every_end_of_a_life() {
    let mut bed = Bed::new(2, 65536);
    let a = bed.short_life(async |service: Service| {
        create(&service, call(1, 1), top(&service), "a", UNCHECKED).await.unwrap()
    });
    bed.short_life(async |service: Service| {
        assert!(gave(known(&service, call(1, 1)).await, a), "replayed");
        service.pool.sync().await.unwrap();
        assert!(gave(known(&service, call(1, 1)).await, a));
    });
    let b = bed.life(async |service: Service| {
        assert!(gave(known(&service, call(1, 1)).await, a), "committed");
        create(&service, call(1, 2), top(&service), "b", UNCHECKED).await.unwrap()
    });
    bed.life(async |service: Service| {
        assert!(gave(known(&service, call(1, 1)).await, a), "exported");
        assert!(gave(known(&service, call(1, 2)).await, b), "exported");
        assert!(known(&service, call(1, 3)).await.is_none());
        assert!(known(&service, call(2, 1)).await.is_none());
    });
    bed.assert_clean();
}

/// It succeeds and changes nothing. If it ran again later, it would change something.
#[test]
fn a_success_without_a_change_is_known_too() {
    let mut bed = Bed::new(1, 65536);
    let file = bed.short_life(async |service: Service| {
        let file = make(&service, top(&service), "a").await;
        let again = create(&service, call(1, 1), top(&service), "a", UNCHECKED).await.unwrap();
        assert_eq!(again, file);
        let link = service.files.link(&root(), file, top(&service), b"b").await.kept().await.0;
        link.unwrap();
        let cred = caller(call(1, 2));
        let (from, to) = ((top(&service), &b"a"[..]), (top(&service), &b"b"[..]));
        service.files.rename(&cred, from, to).await.kept().await.0.unwrap();
        file
    });
    bed.life(async |service: Service| {
        assert!(gave(known(&service, call(1, 1)).await, file));
        assert_eq!(known(&service, call(1, 2)).await.unwrap().entry.status, 0);
        assert!(find(&service, "tank", "a").await.is_ok());
    });
    bed.assert_clean();
}

/// A failed call is known with its answer, as long as the service runs.
#[test]
fn a_failure_is_known_until_a_restart() {
    let mut bed = Bed::new(1, 65536);
    let guarded = CreateHow::Guarded(SetAttributes::default());
    bed.short_life(async |service: Service| {
        make(&service, top(&service), "a").await;
        let failed = create(&service, call(1, 1), top(&service), "a", guarded).await;
        assert_eq!(failed, Err(FsError::Exists));
        let answer = known(&service, call(1, 1)).await.unwrap();
        assert_eq!((answer.entry.status, answer.body.as_deref()), (1, Some(&b"a"[..])));
    });
    bed.life(async |service: Service| assert!(known(&service, call(1, 1)).await.is_none()));
    bed.assert_clean();
}

/// A call that comes again much later is another call. Time out of service does not count.
#[test]
fn a_call_is_known_for_its_time_and_runs_again_then() {
    let mut bed = Bed::new(1, 65536);
    let world = bed.world();
    let little = Duration::from_secs(1);
    let first = bed.short_life(async |service: Service| {
        let first = create(&service, call(1, 1), top(&service), "a", UNCHECKED).await.unwrap();
        world.sleep(REPLY_AGE_MAX - little).await;
        assert!(gave(known(&service, call(1, 1)).await, first));
        first
    });
    let second = bed.short_life(async |service: Service| {
        world.sleep(REPLY_AGE_MAX - little).await;
        assert!(gave(known(&service, call(1, 1)).await, first), "from the restart on");
        world.sleep(2 * little).await;
        service.files.remove(&root(), top(&service), b"a").await.kept().await.0.unwrap();
        let second = create(&service, call(1, 1), top(&service), "a", UNCHECKED).await.unwrap();
        assert_ne!(first, second);
        assert!(gave(known(&service, call(1, 1)).await, second));
        second
    });
    bed.life(async |service: Service| {
        assert!(gave(known(&service, call(1, 1)).await, second), "the later of both");
    });
    bed.assert_clean();
}

/// The table is bounded, for any number of calls, txgs and lives: the inspector checks that. It
/// holds the newest calls, and those of clients with few.
#[test]
fn the_table_holds_the_newest_and_those_of_quiet_clients() {
    const CALLS: u32 = 9_000;
    let mut bed = Bed::new(1, 65536);
    let file = bed.short_life(async |service: Service| {
        let file = create(&service, call(1, 1), top(&service), "a", UNCHECKED).await.unwrap();
        for xid in 1..=CALLS {
            let cred = caller(call(2, xid));
            let set = SetAttributes { mode: Some(xid % 512), ..SetAttributes::default() };
            service.files.setattr(&cred, file, &set, None).await.kept().await.0.unwrap();
            if xid % 2500 == 0 {
                service.pool.sync().await.unwrap();
            }
        }
        file
    });
    bed.assert_clean();
    bed.life(async |service: Service| {
        assert!(gave(known(&service, call(1, 1)).await, file));
        let mut kept = 0;
        for xid in 1..=CALLS {
            kept += u32::from(known(&service, call(2, xid)).await.is_some());
        }
        assert_eq!(kept, 4095);
        assert!(known(&service, call(2, CALLS)).await.is_some());
        assert!(known(&service, call(2, CALLS - 4094)).await.is_some());
    });
    bed.assert_clean();
}

/// A table that cannot be read keeps no client away: new calls are known in memory.
#[test]
fn a_damaged_table_is_done_without() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service: Service| {
        create(&service, call(1, 1), top(&service), "a", UNCHECKED).await.unwrap();
    });
    let image = bed.disks[0].durable_image();
    let mut nodes = Vec::new();
    image.for_each(|sector, page| {
        // A tree node of kind 7.
        if &page.as_slice()[..4] == b"AQTN" && page.as_slice()[6] == 7 {
            nodes.push(sector);
        }
    });
    assert!(!nodes.is_empty());
    nodes.iter().for_each(|sector| bed.disks[0].corrupt(*sector, Corruption::Garbage));
    for life in 2..4 {
        bed.life(async |service: Service| {
            assert!(known(&service, call(1, 1)).await.is_none());
            let name = format!("life {life}");
            let file = create(&service, call(1, life), top(&service), &name, UNCHECKED).await;
            let file = file.unwrap();
            write(&service, file, 0, b"data", Stability::FileSync).await.unwrap();
            service.pool.sync().await.unwrap();
            assert!(gave(known(&service, call(1, life)).await, file));
        });
        bed.assert_only(&[Kind::NodeUnreadable, Kind::Leaked]);
    }
}

/// Two clients, or one in two calls, make one file. The second answer promises the same as the
/// first, and waits for it as long.
#[test]
fn who_finds_the_file_made_waits_until_it_stays() {
    const EXCLUSIVE: CreateHow = CreateHow::Exclusive(7);
    for how in [EXCLUSIVE, UNCHECKED] {
        let mut bed = Bed::new(1, 65536);
        bed.cut_life(async |service| {
            let root = root();
            let make = async |how| {
                service.files.create(&root, top(&service), b"file", how).await.kept().await
            };
            // The first has made the file, and its record is on its way, when the second call
            // comes.
            let (first, second) = (Box::pin(make(how)), Box::pin(make(how)));
            let answered = select(first, second).await;
            match answered {
                Either::Left((made, _)) | Either::Right((made, _)) => made.0.unwrap(),
            };
        });
        bed.life(async |service| find(&service, "tank", "file").await.map(drop)).unwrap();
        bed.assert_clean();
    }
}
