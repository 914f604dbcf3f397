//! A pool whose disk does not answer, beside one whose disk does. Limits of time are generous: what
//! matters is that things end while the silent disk is still silent.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use aquifer_admin::control::Round;
use aquifer_api::client::{Answer, ClientError};
use aquifer_api::{
    CreateDataset, DatasetQuery, DestroyDataset, DestroyPool, DestroySnapshots, ExportPool,
    FreeWork, FreeWorkAct, FreeWorkRequest, HistoryOutcome, HistoryQuery, ImportRequest,
    InjectRequest, On, ReplicateRequest, ReplicationQuery, ScanRequest, ScrubAct, ScrubRequest,
    SetProperties, SnapshotQuery, TakeSnapshots,
};
use tokio::time::{Instant, sleep, timeout};

use crate::copies::pool_on;
use crate::daemon::Daemon;

/// For what waits for no silent disk.
const SOON: Duration = Duration::from_secs(20);
/// For what hears of the silence first.
const BOUND: Duration = Duration::from_secs(60);

/// Two pools of one disk each; that of `tank` may hang.
async fn two_pools() -> Arc<Daemon> {
    let daemon = Daemon::start().await;
    let control = Arc::clone(&daemon.control);
    tokio::spawn(async move { control.each_second().await });
    for (pool, disk) in [("tank", "tank.disk"), ("dozer", "dozer.disk")] {
        daemon.make_pool(pool, disk).await;
        create(&daemon, &format!("{pool}/vms")).await.unwrap();
    }
    Arc::new(daemon)
}

fn inject(daemon: &Daemon, disk: &str, faults: InjectRequest) {
    let request = InjectRequest { disk: daemon.path(disk), ..faults };
    daemon.control.inject("dozer", request).unwrap();
}

fn hang(daemon: &Daemon, disk: &str) {
    inject(daemon, disk, InjectRequest { hang: true, ..InjectRequest::default() });
}

fn answer(daemon: &Daemon, disk: &str) {
    inject(daemon, disk, InjectRequest { clear: true, ..InjectRequest::default() });
}

async fn create(daemon: &Daemon, name: &str) -> Answer<()> {
    let request = CreateDataset { name: name.into(), properties: Default::default() };
    daemon.client.ask(&request).await.map(drop)
}

/// An act that hangs with the disk of its pool from now on.
async fn hanging_act(daemon: &Arc<Daemon>) -> tokio::task::JoinHandle<Answer<()>> {
    hang(daemon, "tank.disk");
    let of = Arc::clone(daemon);
    let act = tokio::spawn(async move { create(&of, "tank/late").await });
    // It has its turn by then.
    sleep(Duration::from_millis(300)).await;
    assert!(!act.is_finished(), "it waits for its disk");
    act
}

async fn soon<T>(what: &str, act: impl Future<Output = T>) -> T {
    timeout(SOON, act).await.unwrap_or_else(|_| panic!("{what} waits for another pool's disk"))
}

async fn bounded<T>(what: &str, act: impl Future<Output = T>) -> T {
    timeout(BOUND, act).await.unwrap_or_else(|_| panic!("{what} does not end"))
}

/// Asks for something again and again, until it is done.
async fn until_done<T>(what: &str, act: impl AsyncFn() -> Answer<T>) {
    let begun = Instant::now();
    while let Err(error) = bounded(what, act()).await {
        assert!(begun.elapsed() < BOUND, "{what}: {error}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn message<T: std::fmt::Debug>(answer: Answer<T>) -> String {
    let Err(ClientError::Api(error)) = answer else { panic!("{answer:?}") };
    error.message
}

async fn snapshots(daemon: &Daemon, of: &str) -> Vec<String> {
    let query = SnapshotQuery { name: Some(of.into()), ..SnapshotQuery::default() };
    let found = daemon.client.snapshots(&query).await.unwrap();
    found.into_iter().map(|info| info.name).collect()
}

async fn names(daemon: &Daemon) -> Vec<String> {
    let all = daemon.client.ask(&DatasetQuery::default()).await.unwrap();
    all.into_iter().map(|info| info.name).collect()
}

fn set(name: &str, property: &str, value: &str) -> SetProperties {
    let properties = [(property.to_string(), Some(value.to_string()))].into();
    SetProperties { name: name.into(), properties, exports: false }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acts_on_other_pools_go_on_beside_a_silent_one() {
    let daemon = two_pools().await;
    let act = hanging_act(&daemon).await;
    let client = &daemon.client;
    soon("create", create(&daemon, "dozer/new")).await.unwrap();
    let request = set("dozer/new", "compression", "lz4");
    soon("set", client.ask(&request)).await.unwrap();
    let request = TakeSnapshots { names: vec!["dozer/new@a".into()], recursive: false };
    soon("snapshot", client.ask(&request)).await.unwrap();
    let request = DestroyDataset {
        name: "dozer/new".into(),
        confirm: "dozer/new".into(),
        recursive: true,
        clones: false,
    };
    soon("destroy", client.ask(&request)).await.unwrap();
    let scrub = ScrubRequest { act: ScrubAct::Start };
    soon("scrub", client.ask(&On::new("dozer", scrub))).await.unwrap();
    soon("pool create", daemon.make_pool("third", "third.disk")).await;
    soon("pool export", client.ask(&On::new("third", ExportPool::default()))).await.unwrap();
    let import = ImportRequest {
        pool: "third".into(),
        places: vec![daemon.path("third.disk").into()],
        ..ImportRequest::default()
    };
    soon("pool import", client.ask(&import)).await.unwrap();
    let request = DestroyPool { confirm: "third".into() };
    soon("pool destroy", client.ask(&On::new("third", request))).await.unwrap();
    assert!(!names(&daemon).await.contains(&"tank/late".into()), "the disk is still silent");
    answer(&daemon, "tank.disk");
    let _ = bounded("the act", act).await.unwrap();
    bounded("the stop", daemon.control.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_and_replication_of_other_pools_go_on_beside_a_silent_one() {
    let daemon = two_pools().await;
    let client = &daemon.client;
    for dataset in ["tank/vms", "dozer/vms"] {
        let request = set(dataset, "snapshots", "hourly=2");
        client.ask(&request).await.unwrap();
        // The first one is taken at once. Without it, it is due again.
        let [name] = snapshots(&daemon, dataset).await.try_into().unwrap();
        let request = DestroySnapshots {
            confirm: name.clone(),
            name,
            recursive: false,
            clones: false,
            dry_run: false,
            upto_txg: None,
        };
        client.ask(&request).await.unwrap();
    }
    hang(&daemon, "tank.disk");
    // More runs of the silent pool than run at a time, and then one of the other.
    tokio::spawn(Arc::clone(&daemon.control).replicate());
    let request = |dataset: &str, target: &str| ReplicateRequest {
        dataset: dataset.into(),
        target: target.into(),
        recursive: false,
        snapshot: None,
        all: false,
        keep: None,
        rate_bytes: None,
        force: false,
        pull: false,
    };
    for copy in ["dozer/a", "dozer/b", "dozer/c"] {
        daemon.control.begin_replication(request("tank/vms", copy)).unwrap();
    }
    sleep(Duration::from_millis(300)).await;
    for _ in 0..2 {
        daemon.control.begin_round(Round::Disks);
        daemon.control.begin_round(Round::Snapshots);
    }
    let round = async {
        while snapshots(&daemon, "dozer/vms").await.is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    soon("a round", round).await;
    let id = soon("replicate", client.ask(&request("dozer/vms", "dozer/copy"))).await;
    let id = id.unwrap().id;
    let done = async {
        loop {
            let query = ReplicationQuery { id: Some(id) };
            let info = client.ask(&query).await.unwrap().remove(0);
            if let Some(error) = &info.error {
                panic!("{error}");
            }
            if names(&daemon).await.contains(&"dozer/copy".into()) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    bounded("the replication of another pool", done).await;
    assert_eq!(snapshots(&daemon, "tank/vms").await.len(), 0, "the disk is still silent");
    answer(&daemon, "tank.disk");
    bounded("the stop", daemon.control.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_act_on_a_silent_pool_says_so() {
    let daemon = two_pools().await;
    let first = hanging_act(&daemon).await;
    let disk = daemon.path("tank.disk");
    // It waits for the first one, and is not done.
    let waiting = message(bounded("an act that waits", create(&daemon, "tank/other")).await);
    let says = |message: &str, part: &str| assert!(message.contains(part), "{message}");
    says(&waiting, &disk);
    says(&waiting, "create tank/late");
    says(&waiting, "nothing was done");
    // The first was begun: its end is open.
    let begun = message(bounded("an act under way", first).await.unwrap());
    says(&begun, &disk);
    says(&begun, "may still be done");
    // One that comes later is refused at once.
    let refused = message(soon("a late act", create(&daemon, "tank/later")).await);
    says(&refused, &disk);
    says(&refused, "nothing was done");
    answer(&daemon, "tank.disk");
    let is_made = async {
        while !names(&daemon).await.contains(&"tank/late".into()) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    bounded("what was begun", is_made).await;
    until_done("an act after the silence", async || create(&daemon, "tank/again").await).await;
    let all = names(&daemon).await;
    assert!(!all.iter().any(|name| name == "tank/other" || name == "tank/later"), "{all:?}");
    // The history has the true end.
    let history = daemon.client.ask(&On::new("tank", HistoryQuery)).await.unwrap();
    let late = history.iter().find(|entry| entry.act == "create tank/late").unwrap();
    assert_eq!(late.outcome, HistoryOutcome::Done, "{}", late.result);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_looks_at_a_hanging_disk_holds_up_nobody() {
    let daemon = two_pools().await;
    daemon.client.ask(&On::new("tank", ExportPool::default())).await.unwrap();
    hang(&daemon, "tank.disk");
    let of = Arc::clone(&daemon);
    let import = |daemon: &Daemon| ImportRequest {
        pool: "tank".into(),
        places: vec![daemon.path("tank.disk").into()],
        ..ImportRequest::default()
    };
    let importing = tokio::spawn(async move { of.client.ask(&import(&of)).await });
    sleep(Duration::from_millis(300)).await;
    soon("create", create(&daemon, "dozer/new")).await.unwrap();
    soon("pool create", daemon.make_pool("third", "third.disk")).await;
    let disk = daemon.path("tank.disk");
    let why = message(bounded("the import", importing).await.unwrap());
    assert!(why.contains(&disk) && why.contains("does not answer"), "{why}");
    let scan = ScanRequest { places: vec![disk.clone().into()] };
    let found = bounded("the scan", daemon.client.ask(&scan)).await.unwrap();
    assert!(found.pools.is_empty() && found.refused.concat().contains(&disk), "{found:?}");
    // A new pool on it is refused as well, and writes nothing.
    let request = pool_on(&disk, "fourth");
    let why = message(bounded("pool create", daemon.client.ask(&request)).await);
    assert!(why.contains(&disk), "{why}");
    answer(&daemon, "tank.disk");
    until_done("the import", async || daemon.client.ask(&import(&daemon)).await).await;
    assert!(names(&daemon).await.contains(&"tank/vms".into()));
    bounded("the stop", daemon.control.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_uses_disks_ends_beside_a_hung_one() {
    let daemon = two_pools().await;
    hang(&daemon, "tank.disk");
    let client = &daemon.client;
    let disk = daemon.path("tank.disk");
    let says = |what: &str, why: String| assert!(why.contains(&disk), "{what}: {why}");
    let scrub = ScrubRequest { act: ScrubAct::Start };
    says("scrub", message(bounded("scrub", client.ask(&On::new("tank", scrub))).await));
    let trim = FreeWorkRequest {
        work: FreeWork::Trim,
        act: FreeWorkAct::Start,
        disks: Vec::new(),
        rate: None,
    };
    says("trim", message(bounded("trim", client.ask(&On::new("tank", trim))).await));
    let export = ExportPool::default();
    let why = message(bounded("export", client.ask(&On::new("tank", export))).await);
    assert!(why.contains("--force"), "{why}");
    says("export", why);
    let export = ExportPool { force: true };
    let done = bounded("export --force", client.ask(&On::new("tank", export))).await.unwrap();
    says("export --force", done.notes.concat());
    answer(&daemon, "tank.disk");
    bounded("the stop", daemon.control.stop()).await;
}

/// An export that was begun before anybody knew of the silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_under_way_ends_when_its_disk_falls_silent() {
    let daemon = two_pools().await;
    hang(&daemon, "tank.disk");
    let export = ExportPool::default();
    let done = bounded("export", daemon.client.ask(&On::new("tank", export))).await.unwrap();
    let notes = done.notes.concat();
    assert!(notes.contains(&daemon.path("tank.disk")), "{notes}");
    soon("create", create(&daemon, "dozer/new")).await.unwrap();
    answer(&daemon, "tank.disk");
    let import = ImportRequest {
        pool: "tank".into(),
        places: vec![daemon.path("tank.disk").into()],
        ..ImportRequest::default()
    };
    until_done("the import", async || daemon.client.ask(&import).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stop_gives_up_a_pool_that_does_not_answer() {
    let daemon = two_pools().await;
    let act = hanging_act(&daemon).await;
    daemon.told();
    assert_eq!(bounded("the stop", daemon.control.stop()).await, ["tank"]);
    assert!(daemon.told().contains(&"release dozer: exported true".to_string()));
    bounded("the act", act).await.unwrap().unwrap_err();
}
