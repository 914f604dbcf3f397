//! The end of a daemon: what happened until then is not lost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aquifer_admin::Peers;
use aquifer_alerts::Settings;

use crate::daemon::Daemon;
use aquifer_api::{HistoryQuery, KeptEventsQuery, On};

/// The pool keeps the event, its history tells of it, and people hear of it. No task follows the
/// events here: those end before all else does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_in_the_last_moment_is_kept_noted_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let (opens, told) = (dir.path().join("opens"), dir.path().join("told"));
    let script = format!("test -e {} && cat >> {}", opens.display(), told.display());
    let settings = format!("[[command]]\nrun = [\"/bin/sh\", \"-c\", {script:?}]");
    let settings: Settings = toml::from_str(&settings).unwrap();
    let daemon = Daemon::start_in(dir, Peers::new(), settings).await;
    daemon.make_tank().await;
    let leaf = daemon.path("disk");
    let fields = [("leaf", leaf.as_str()), ("spare", "/dev/spare"), ("by_order", "false")];
    let fields = fields.map(|(name, value)| (name.to_string(), value.to_string()));
    daemon.events.note("warn", "spare.taken", "a spare stands in", BTreeMap::from(fields));
    let daemon = daemon.restart().await;

    let kept = daemon.client.ask(&On::new("tank", KeptEventsQuery)).await.unwrap();
    let taken: Vec<_> = kept.iter().filter(|event| event.class == "spare.taken").collect();
    assert_eq!(taken.len(), 1, "{kept:?}");
    let noted = daemon.client.ask(&On::new("tank", HistoryQuery)).await.unwrap();
    let act = format!("spare /dev/spare stands in for {leaf}");
    assert_eq!(noted.iter().filter(|noted| noted.act == act).count(), 1, "{noted:?}");
    // The server of mail was away all the time until now.
    let begun = Instant::now();
    assert!(!told.exists());
    std::fs::write(opens, "").unwrap();
    let daemon = daemon.restart().await;
    while !std::fs::read_to_string(&told).is_ok_and(|text| text.contains("a spare stands in")) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody was told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    daemon.control.stop().await;
}
