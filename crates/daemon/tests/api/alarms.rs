//! Alarms about what callers do.

use aquifer_api::{
    DaemonQuery, DestroyDataset, DestroySnapshots, HistoryOutcome, HistoryQuery, On, RenameDataset,
    Role, TakeSnapshots,
};

use crate::daemon::{Daemon, raw};
use crate::roles::{asked_by, serve_roles, status};

/// The codes of what is wrong with the server.
async fn wrong(daemon: &Daemon) -> Vec<(String, String)> {
    let info = daemon.client.ask(&DaemonQuery).await.unwrap();
    let problems = info.problems.into_iter();
    let ours =
        problems.filter(|of| ["destroyed-many", "token-refused"].contains(&of.code.as_str()));
    ours.map(|of| (of.code.clone(), of.status)).collect()
}

async fn take(daemon: &Daemon, dataset: &str, count: usize) {
    for at in 0..count {
        let request = TakeSnapshots { names: vec![format!("{dataset}@{at}")], recursive: false };
        daemon.client.ask(&request).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mass_destroys_are_told_however_they_are_done() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let create = async |name: &str| {
        let request =
            aquifer_api::CreateDataset { name: name.into(), properties: Default::default() };
        daemon.client.ask(&request).await.unwrap();
    };
    create("tank/a").await;
    create("tank/b").await;
    take(&daemon, "tank/a", 30).await;
    take(&daemon, "tank/b", 20).await;
    let destroy = async |name: &str| {
        let [name, confirm] = [name; 2].map(String::from);
        let request = DestroySnapshots { name, confirm, ..DestroySnapshots::default() };
        daemon.client.ask(&request).await.unwrap();
    };
    // One by one, or all: each counts.
    destroy("tank/a@0").await;
    destroy("tank/a@%").await;
    // Nothing is lost by this.
    let rename = RenameDataset { name: "tank/b".into(), new: "tank/c".into() };
    daemon.client.ask(&rename).await.unwrap();
    assert_eq!(wrong(&daemon).await, []);
    // With the dataset its snapshots go.
    let [name, confirm] = ["tank/c"; 2].map(String::from);
    let request = DestroyDataset { name, confirm, recursive: true, clones: false };
    daemon.client.ask(&request).await.unwrap();
    let told = wrong(&daemon).await;
    let text = "51 snapshots and datasets were destroyed within an hour";
    assert!(told.len() == 1 && told[0].1.starts_with(text), "{told:?}");
    assert_eq!(told[0].0, "destroyed-many");
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_tries_what_it_can_do_is_told() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let socket = serve_roles(&daemon);
    let ask = |token: &str, path: &str| {
        let answer = raw(&socket, &asked_by(token, ("POST", path), Role::Read, "{}"));
        assert_eq!(status(&answer), "403", "{answer}");
    };
    for _ in 0..20 {
        ask("mallory", "/datasets/destroy");
        ask("other", "/snapshots");
    }
    assert_eq!(wrong(&daemon).await, []);
    // The history has some of each, also of those at the same moment.
    let history = daemon.client.ask(&On::new("tank", HistoryQuery)).await.unwrap();
    for token in ["mallory", "other"] {
        let of = history.iter().filter(|entry| entry.who.contains(token)).count();
        assert!((1..=10).contains(&of), "{token}: {of}");
    }
    ask("mallory", "/tokens");
    let told = wrong(&daemon).await;
    assert!(told.len() == 1 && told[0].0 == "token-refused", "{told:?}");
    assert!(told[0].1.starts_with("token mallory asked 21 times"), "{told:?}");
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_acts_fail_all_the_time_has_some_lines_in_the_history() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let create = async || {
        let (name, properties) = ("tank/a".into(), Default::default());
        let request = aquifer_api::CreateDataset { name, properties };
        daemon.client.ask(&request).await
    };
    create().await.unwrap();
    for _ in 0..100 {
        create().await.unwrap_err();
    }
    let listed = daemon.control.history("tank").await.unwrap();
    let failed = listed.iter().filter(|of| of.outcome == HistoryOutcome::Failed).count();
    assert_eq!(failed, 60);
    // What is done is noted, and nothing is left as begun.
    take(&daemon, "tank/a", 1).await;
    let listed = daemon.control.history("tank").await.unwrap();
    assert_eq!(listed.last().unwrap().outcome, HistoryOutcome::Done);
    assert!(listed.iter().all(|of| of.outcome != HistoryOutcome::Running));
    daemon.control.stop().await;
}
