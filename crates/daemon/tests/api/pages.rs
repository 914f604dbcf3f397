//! Listings in pages.

use aquifer_api::client::ClientError;
use aquifer_api::{CreateDataset, DestroySnapshots, ErrorKind, SnapshotQuery, TakeSnapshots};

use crate::daemon::Daemon;

/// Pages show each snapshot once, in one order, also if some go and come between them.
#[tokio::test]
async fn snapshots_are_listed_in_pages() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let client = &daemon.client;
    for name in ["tank/a", "tank/a/b", "tank/a-b"] {
        let request = CreateDataset { name: name.into(), properties: Default::default() };
        client.ask(&request).await.unwrap();
    }
    let take = async |name: &str, recursive| {
        let request = TakeSnapshots { names: vec![name.into()], recursive };
        client.ask(&request).await.unwrap();
    };
    for name in ["tank@z", "tank@y", "tank@x"] {
        take(name, true).await;
    }
    let all = client.snapshots(&SnapshotQuery::default()).await.unwrap();
    assert_eq!(all.len(), 12);
    for (limit, used) in [(1, false), (5, true), (12, true), (13, false)] {
        let mut query = SnapshotQuery { limit: Some(limit), used, ..SnapshotQuery::default() };
        let mut pages = Vec::new();
        loop {
            let page = client.snapshots(&query).await.unwrap();
            assert!(page.iter().all(|of| of.used_bytes.is_some() == used));
            let Some(last) = page.last() else { break };
            query.after = Some(last.cursor.clone());
            pages.extend(page);
        }
        let names = |of: &[aquifer_api::SnapshotInfo]| -> Vec<String> {
            of.iter().map(|of| of.name.clone()).collect()
        };
        assert_eq!(names(&pages), names(&all), "{limit}");
    }
    // The last one of a page goes, and one behind it and one before it come.
    let mut query = SnapshotQuery { limit: Some(4), ..SnapshotQuery::default() };
    let first = client.snapshots(&query).await.unwrap();
    let (last, next) = (&first[3], &all[4]);
    let destroy = DestroySnapshots {
        name: last.name.clone(),
        confirm: last.name.clone(),
        ..DestroySnapshots::default()
    };
    client.ask(&destroy).await.unwrap();
    take("tank@before", false).await;
    query.after = Some(last.cursor.clone());
    assert_eq!(client.snapshots(&query).await.unwrap()[0].name, next.name);
    query.after = Some("tank".into());
    let Err(ClientError::Api(error)) = client.snapshots(&query).await else { panic!("no cursor") };
    assert_eq!(error.kind, ErrorKind::Invalid);
}
