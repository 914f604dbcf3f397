//! Schedules of snapshots of files, by a clock that the test sets.

use aquifer_files::file_snapshots::FileNameError;
use aquifer_files::{CreateHow, FileHandle, Service, SetAttributes, Stability};
use aquifer_ondisk::inode::Time;

use crate::bed::{Bed, find, make, noise, root, snapshots_named, write};
use crate::by_text::ByText;

const HOUR_S: u64 = 3600;
/// 2026-11-26T07:43:00Z, a Thursday.
const NOW_S: u64 = 1_795_678_980;

async fn look(service: &Service, at_s: u64) -> Result<(), FileNameError> {
    let found = service.files.scheduled().await;
    let now = Time::from_ns((NOW_S + at_s) * 1_000_000_000);
    service.files.tend_scheduled(found, now).await
}

/// Takes and prunes what is due so many hours after the beginning.
async fn after(service: &Service, hours: u64) {
    // A look sees what is committed.
    service.pool.sync().await.unwrap();
    look(service, hours * HOUR_S).await.unwrap();
}

/// The snapshots that bear a path of `tank/d`: their names without what all have in common.
fn of(service: &Service, path: &str) -> Vec<String> {
    let dataset = service.datasets.by_name("tank/d").unwrap();
    let all = dataset.file_snapshots(service.pool.committed_txg());
    let of_path = all.iter().filter(|of| of.record.path == path);
    of_path.map(|of| of.record.name.replace("auto-", "").replace("2026-11-", "")).collect()
}

async fn set(service: &Service, value: &str) {
    service.datasets.set("tank/d", "filesnapshots", Some(value)).await.unwrap();
}

async fn directory(service: &Service, name: &str) -> FileHandle {
    let top = service.files.root("tank/d").unwrap();
    let attributes = SetAttributes::default();
    let made = service.files.mkdir(&root(), top, name.as_bytes(), &attributes).await.kept().await;
    made.0.unwrap().handle
}

async fn rename(service: &Service, from: (FileHandle, &str), to: (FileHandle, &str)) {
    let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
    service.files.rename(&root(), from, to).await.kept().await.0.unwrap();
}

#[test]
fn each_file_is_taken_once_a_period_by_the_first_rule_that_means_it() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let (web, db) = (directory(&service, "web1").await, directory(&service, "db").await);
        for (above, name) in [(web, "a.vhd"), (web, "b.iso"), (db, "a.vhd"), (db, "big one.vhd")] {
            make(&service, above, name).await;
        }
        after(&service, 0).await;
        assert!(of(&service, "web1/a.vhd").is_empty(), "off is the default");
        set(&service, "db/big\\0040one.vhd hourly=2; web?/*.vhd daily=2; */*.vhd hourly=3").await;
        for _ in 0..3 {
            after(&service, 0).await;
        }
        assert_eq!(of(&service, "db/a.vhd"), ["hourly-26T07:43Z"]);
        assert_eq!(of(&service, "web1/a.vhd"), ["daily-26T07:43Z"]);
        assert_eq!(of(&service, "db/big one.vhd"), ["hourly-26T07:43Z"]);
        assert!(of(&service, "web1/b.iso").is_empty());
        // All of a cadence are of one txg.
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let all = dataset.file_snapshots(service.pool.committed_txg());
        let hourly = all.iter().filter(|of| of.record.name.contains("hourly"));
        let txgs: Vec<_> = hourly.map(|of| of.txg()).collect();
        assert!(txgs.len() == 2 && txgs[0] == txgs[1], "{txgs:?}");
    });
    bed.cut_life(async |service| {
        // Five hours out of service: they are caught up once.
        after(&service, 5).await;
        // A file that is new in a period has its first ones at once, in that period.
        let db = find(&service, "tank/d", "db").await.unwrap();
        make(&service, db, "new.vhd").await;
        look(&service, 5 * HOUR_S + 60).await.unwrap();
        assert!(of(&service, "db/new.vhd").is_empty(), "it is not committed");
        service.pool.sync().await.unwrap();
        look(&service, 5 * HOUR_S + 120).await.unwrap();
        assert_eq!(of(&service, "db/new.vhd"), ["hourly-26T12:45Z"]);
        assert_eq!(of(&service, "db/a.vhd"), ["hourly-26T07:43Z", "hourly-26T12:43Z"]);
        for hours in [6, 7, 30] {
            after(&service, hours).await;
        }
    });
    bed.life(async |service| {
        after(&service, 30).await;
        let newest = ["hourly-26T13:43Z", "hourly-26T14:43Z", "hourly-27T13:43Z"];
        assert_eq!(of(&service, "db/a.vhd"), newest);
        assert_eq!(of(&service, "db/new.vhd"), newest);
        assert_eq!(of(&service, "db/big one.vhd"), newest[1..]);
        assert_eq!(of(&service, "web1/a.vhd"), ["daily-26T07:43Z", "daily-27T13:43Z"]);
        // A clock that is set back does not take again what it took.
        after(&service, 30).await;
        assert_eq!(of(&service, "db/a.vhd"), newest);
    });
    bed.assert_clean();
}

#[test]
fn only_what_a_schedule_took_of_a_file_that_a_rule_means_is_pruned() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let top = service.files.root("tank/d").unwrap();
        for name in ["stays.vhd", "renamed.vhd", "leaves.vhd", "removed.vhd", "saved.vhd"] {
            make(&service, top, name).await;
        }
        set(&service, "*.vhd hourly=2 daily=1").await;
        after(&service, 0).await;
        let (dataset, all) =
            snapshots_named(&service.files, "tank/d:saved.vhd@auto-hourly*").await.unwrap();
        let ids = all.iter().map(|of| of.id).collect();
        service.datasets.rename_file_snapshots(&dataset, &ids, "saved").await.unwrap();
        // Names of the same form have no mark; one has the name that the next one would have.
        for name in ["auto-hourly-1", "auto-hourly-2026-11-26T09:43Z", "mine"] {
            let name = format!("tank/d:stays.vhd@{name}");
            service.files.take_named(&[name]).await.unwrap();
        }
        let (dataset, all) =
            snapshots_named(&service.files, "tank/d:stays.vhd@auto-hourly*").await.unwrap();
        service.datasets.hold("audit", &[(dataset, all[0].id)], None).await.unwrap();
        after(&service, 1).await;
        rename(&service, (top, "renamed.vhd"), (top, "other.vhd")).await;
        rename(&service, (top, "leaves.vhd"), (top, "leaves.old")).await;
        service.files.remove(&root(), top, b"removed.vhd").await.kept().await.0.unwrap();
        // Another file of that name.
        make(&service, top, "removed.vhd").await;
        after(&service, 2).await;
        after(&service, 3).await;
    });
    bed.life(async |service| {
        after(&service, 4).await;
        let mut stays = of(&service, "stays.vhd");
        stays.sort();
        let mut wanted = [
            "daily-26T07:43Z",
            "hourly-1",
            // It is held.
            "hourly-26T07:43Z",
            "hourly-26T09:43Z",
            "hourly-26T10:43Z",
            "hourly-26T11:43Z",
            "mine",
        ];
        wanted.sort_unstable();
        assert_eq!(stays, wanted);
        // It keeps its history under its new name: only the newest two of both are there.
        assert_eq!(of(&service, "renamed.vhd"), ["daily-26T07:43Z"]);
        assert_eq!(of(&service, "other.vhd"), ["hourly-26T10:43Z", "hourly-26T11:43Z"]);
        let saved = ["saved", "daily-26T07:43Z", "hourly-26T10:43Z", "hourly-26T11:43Z"];
        assert_eq!(of(&service, "saved.vhd"), saved);
        // No rule means these any more.
        let left = ["hourly-26T07:43Z", "daily-26T07:43Z", "hourly-26T08:43Z"];
        assert_eq!(of(&service, "leaves.vhd"), left);
        assert!(of(&service, "leaves.old").is_empty());
        let both = of(&service, "removed.vhd");
        assert_eq!(both[..3], left);
        assert_eq!(both[3..], ["daily-26T09:43Z", "hourly-26T10:43Z", "hourly-26T11:43Z"]);
        // A cadence that the rule does not name stays; `off` prunes nothing.
        set(&service, "stays.vhd hourly=1").await;
        after(&service, 4).await;
        assert!(of(&service, "stays.vhd").contains(&"daily-26T07:43Z".into()));
        assert!(!of(&service, "stays.vhd").contains(&"hourly-26T10:43Z".into()));
        assert_eq!(of(&service, "other.vhd").len(), 2);
        set(&service, "off").await;
        after(&service, 30).await;
        assert_eq!(of(&service, "stays.vhd").len(), 6);
        // What is left goes by its name, also of files that are gone.
        let (_, all) = snapshots_named(&service.files, "tank/d:*@auto-*").await.unwrap();
        assert_eq!(all.len(), 6 - 1 + 1 + 2 + 3 + 6 + 3);
    });
    bed.assert_clean();
}

#[test]
fn below_a_dataset_rules_mean_its_own_files_and_a_copy_that_stands_by_has_none() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let datasets = &service.datasets;
        for name in ["tank/d", "tank/d/below", "tank/d/off", "tank/d/copy"] {
            datasets.create(name, &[]).await.unwrap();
            let top = service.files.root(name).unwrap();
            make(&service, top, "disk").await;
        }
        datasets.set("tank/d/off", "filesnapshots", Some("off")).await.unwrap();
        datasets.set("tank/d/copy", "standby", Some("on")).await.unwrap();
        set(&service, "disk hourly=1 daily=1").await;
        after(&service, 0).await;
        let txgs = |name: &str| {
            let dataset = datasets.by_name(name).unwrap();
            let all = dataset.file_snapshots(service.pool.committed_txg());
            all.iter().map(|of| of.txg()).collect::<Vec<_>>()
        };
        assert_eq!(txgs("tank/d").len(), 2);
        assert_eq!(txgs("tank/d"), txgs("tank/d/below"), "each cadence in one txg");
        assert!(txgs("tank/d/off").is_empty() && txgs("tank/d/copy").is_empty());
        // Nothing is due: nothing is written.
        let committed = service.pool.committed_txg();
        look(&service, 60).await.unwrap();
        assert_eq!(service.pool.committed_txg(), committed);
    });
    bed.assert_clean();
}

#[test]
fn a_rule_that_cannot_be_followed_stops_those_behind_it_alone() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let top = service.files.root("tank/d").unwrap();
        make(&service, top, "first").await;
        make(&service, top, "last").await;
        // A path that a record has no room for.
        let (mut above, part) = (directory(&service, "deep").await, "x".repeat(200));
        for _ in 0..3 {
            let attributes = SetAttributes::default();
            let made = service.files.mkdir(&root(), above, part.as_bytes(), &attributes).await;
            above = made.kept().await.0.unwrap().handle;
        }
        let how = || CreateHow::Guarded(SetAttributes::default());
        for name in ["short", &"y".repeat(60)] {
            let made = service.files.create(&root(), above, name.as_bytes(), how()).await;
            made.kept().await.0.unwrap();
        }
        set(&service, "first hourly=1; deep/*/*/*/* hourly=1; last hourly=1").await;
        service.pool.sync().await.unwrap();
        let error = look(&service, 0).await.unwrap_err().to_string();
        assert!(error.contains("more than 640 bytes"), "{error}");
        assert_eq!((of(&service, "first").len(), of(&service, "last").len()), (1, 1));
        assert_eq!(of(&service, &format!("deep/{part}/{part}/{part}/short")).len(), 1);
        // More files than a schedule takes.
        let many = directory(&service, "many").await;
        for at in 0..10_001 {
            let made = service.files.create(&root(), many, format!("{at}").as_bytes(), how()).await;
            made.result.unwrap();
        }
        set(&service, "first hourly=1; many/* daily=1; last hourly=1").await;
        service.pool.sync().await.unwrap();
        let error = look(&service, HOUR_S).await.unwrap_err().to_string();
        assert!(error.starts_with("filesnapshots of tank/d: \"many/*\" and"), "{error}");
        assert_eq!(of(&service, "first"), ["hourly-26T08:43Z"]);
        assert_eq!(of(&service, "last"), ["hourly-26T07:43Z"]);
        assert!(of(&service, "many/7").is_empty());
        // More names than a look reads, each rule for itself less.
        let rules: Vec<String> = (0..11).map(|at| format!("many/x{at}* daily=1")).collect();
        set(&service, &format!("first hourly=1; {}", rules.join("; "))).await;
        let error = look(&service, 2 * HOUR_S).await.unwrap_err().to_string();
        assert!(error.contains("\"many/x9*\" and the rules before it look at"), "{error}");
        assert_eq!(of(&service, "first"), ["hourly-26T09:43Z"]);
    });
    bed.assert_clean();
}

#[test]
fn a_full_pool_is_pruned() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        set(&service, "* hourly=5").await;
        let top = service.files.root("tank/d").unwrap();
        let file = make(&service, top, "disk").await;
        'full: for round in 0..5 {
            after(&service, round).await;
            for at in 0..40 {
                let data = noise(round * 1000 + at, 256);
                let done = write(&service, file, at * 256, &data, Stability::Unstable).await;
                if done.is_err() {
                    break 'full;
                }
            }
            service.pool.sync().await.unwrap();
        }
        let before = of(&service, "disk").len();
        assert!(before > 2, "{before}");
        set(&service, "* hourly=1").await;
        // There may be room for the next one, or not.
        let _ = look(&service, 50 * HOUR_S).await;
        assert_eq!(of(&service, "disk").len(), 1);
    });
    bed.assert_clean();
}
